"""Numbers that a module reads of tensors from elsewhere: fixed at the import, and noticed where they change."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import grad

import frittata as ft
from frittata.egraph.errors import ModelError, StaleParametersError
from frittata.egraph.machine import REFERENCE

X = torch.linspace(-1, 1, 20).reshape(5, 4)
COUNT = torch.tensor(3)
SCALES = torch.tensor([2.0, 3.0])


class Held(torch.nn.Module):
    """A function with a tensor in a list, a buffer and a parameter beside it."""

    bias: Tensor

    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.kept = function, [torch.tensor(2)]
        self.register_buffer("bias", torch.tensor([1.0]))
        self.weight = torch.nn.Parameter(torch.tensor([2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x * self.weight + self.bias)


def _doubled(value: Tensor) -> Tensor:
    found = torch.zeros(2, 2)
    found[0] = value * 2
    return found[0, 0]


FIXED: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "a number": lambda _, x: x * COUNT.item(),
    "a number of what is computed": lambda _, x: x * (COUNT * 2).item(),
    "a number beside a call into torch": lambda _, x: torch.special.bessel_j0(x) * COUNT.item(),
    "a list of numbers": lambda _, x: x * SCALES.tolist()[1],
    "a list of numbers, and the tensor": lambda _, x: x[:, :2] * SCALES + SCALES.tolist()[1],
    "a float in a list": lambda m, x: x * float(m.kept[0]),
    "an index": lambda _, x: x[COUNT],
    "an end": lambda _, x: x[:COUNT],
    "a size": lambda _, x: x[:1] + torch.zeros(COUNT, 1),  # pyright: ignore[reportArgumentType]
    "a range": lambda _, x: sum((x * i for i in range(COUNT)), x),
    "a branch": lambda _, x: x if COUNT.item() > 2 else -x,
    "a comparison": lambda _, x: x if torch.equal(SCALES, SCALES) else -x,
    "an entry, and the tensor": lambda _, x: x[:, :2] * SCALES * SCALES[0].item(),
    "an entry of the data, and the tensor": lambda _, x: x[:, :2] * SCALES * SCALES.data[0].item(),
    "a sum, and a view": lambda _, x: x[:, :2] * SCALES[:] + SCALES.sum().item(),
    "a size that is computed, and the tensor": lambda _, x: x.reshape(COUNT + 2, -1) * COUNT,  # pyright: ignore[reportArgumentType]
    "the end of a range, and the tensor": lambda _, x: torch.arange(COUNT) * COUNT + x[:1, :1],  # pyright: ignore[reportCallIssue, reportArgumentType]
    "an entry of what is written, and the tensor": lambda _, x: x[:, :2] * SCALES + _doubled(SCALES).item(),
    "a number beside a gradient": lambda _, x: grad(lambda y: y.square().sum())(x) * SCALES.tolist()[0],
}


@pytest.mark.parametrize("freeze", [None, False])
@pytest.mark.parametrize("name", FIXED)
def test_a_change_of_what_was_fixed_is_noticed(name: str, freeze: bool | None) -> None:
    module = Held(FIXED[name]).eval()
    fast = ft.optimize(module, (X,), machine=REFERENCE, freeze=freeze, fallback="extern")
    torch.testing.assert_close(fast(X), module(X))
    tensors = (COUNT, SCALES, module.kept[0])
    for value in tensors:
        value.sub_(1)
    try:
        with pytest.raises(StaleParametersError, match="was changed after optimize"):
            fast(X)
    finally:
        for value in tensors:
            value.add_(1)


def test_it_is_named_as_the_code_names_it() -> None:
    module = Held(FIXED["a float in a list"]).eval()
    fast = ft.optimize(module, (X,), machine=REFERENCE)
    module.kept[0].add_(1)
    with pytest.raises(StaleParametersError, match=r"self\.kept\[0\] \(of a number\)"):
        fast(X)


def test_frozen_numbers_are_not_looked_at() -> None:
    fast = ft.optimize(Held(FIXED["a number"]).eval(), (X,), machine=REFERENCE, freeze=True)
    before = fast(X)
    COUNT.add_(1)
    try:
        torch.testing.assert_close(fast(X), before)
    finally:
        COUNT.sub_(1)


def _written(value: Tensor) -> Tensor:
    found = torch.zeros(2, 2)
    found[:] = value
    return found


NOT_FIXED: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "a tensor": lambda _, x: x[:, :2] * SCALES + COUNT,
    "a description": lambda _, x: x[:, :2] + torch.zeros(SCALES.shape[0], dtype=SCALES.dtype, device=SCALES.device),
    "what calls tell of it": lambda _, x: x[:, :2] * SCALES * (SCALES.nelement() + SCALES.is_same_size(x)),
    "what is written somewhere": lambda _, x: _written(SCALES) + x[:2, :2],
    "a constant": lambda _, x: x * torch.tensor(3).item(),
    "a parameter": lambda m, x: x * m.weight.item() + m.bias.item(),
}


@pytest.mark.parametrize("name", NOT_FIXED)
def test_what_is_read_at_each_call_may_change(name: str) -> None:
    module = Held(NOT_FIXED[name]).eval()
    fast = ft.optimize(module, (X,), machine=REFERENCE, freeze=False)
    tensors = (COUNT, SCALES, module.weight, module.bias)
    with torch.no_grad():
        try:
            for value in tensors:
                value.add_(1)
            torch.testing.assert_close(fast(X), module(X))
        finally:
            for value in tensors:
                value.sub_(1)


UNSEEN: dict[str, Callable[[Tensor], Any]] = {
    "a list": lambda own: own.tolist()[0],
    "an array": lambda own: torch.from_numpy(own.detach().numpy()),
    "numpy's": lambda own: torch.from_numpy(np.asarray(own.detach())),
    "memory": lambda own: torch.from_dlpack(own.detach()),
}


@pytest.mark.parametrize("own", ["weight", "bias"])
@pytest.mark.parametrize("name", UNSEEN)
def test_values_of_its_own_beside_gradients_are_refused(name: str, own: str) -> None:
    def function(module: Any, x: Tensor) -> Tensor:
        return grad(lambda y: y.square().sum())(x) * UNSEEN[name](getattr(module, own))

    with pytest.raises(ModelError, match=r"made of the values of a tensor|cannot follow"):
        ft.optimize(Held(function).eval(), (X,), machine=REFERENCE)
