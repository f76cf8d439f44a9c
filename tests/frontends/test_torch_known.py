"""Sizes that depend on the module's own tensors are known at import: masks, repeats, and what is found in these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import ModelError, StaleParametersError
from frittata.egraph.machine import REFERENCE
from frittata.frontends.torch_export import from_module

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
SOME = [True, False, True, True]


class Holding(nn.Module):
    """A function of an argument and of the module, which holds what decides sizes."""

    some: Tensor
    none: Tensor
    pairs: Tensor
    repeats: Tensor

    def __init__(self, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.function, self.plain = function, torch.tensor(SOME)
        self.register_buffer("some", torch.tensor(SOME))
        self.register_buffer("none", torch.zeros(4, dtype=torch.bool))
        self.register_buffer("pairs", torch.eye(6, 4, dtype=torch.bool))
        self.register_buffer("repeats", torch.tensor([1, 2, 0, 3, 1, 1]))

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def written(m: Holding, x: Tensor) -> Tensor:
    y = x.clone()
    y[:, m.some] = 2 * x[:, :3]
    y[m.pairs] = x[:4, 0]
    y[m.repeats > 1, 0] += torch.tensor([5.0, 7.0])
    return y


def made_in_place(_: Holding, x: Tensor) -> tuple[Tensor, Tensor]:
    mask = torch.zeros(4, dtype=torch.bool)
    mask[1:3] = True
    first = x[:, mask]
    mask[0] = True
    return first, x[:, mask]


def of_values(m: Holding, x: Tensor) -> tuple[Tensor, ...]:
    kinds, counts = torch.unique(m.repeats, return_counts=True)
    return torch.bincount(m.repeats) * x[0], counts * x[0], kinds + x[0]


def padded(m: Holding, x: Tensor) -> Tensor:
    """Pad to whole steps, twice, by numbers in tensors. Source: Defossez et al., EnCodec, 2022."""
    for _ in range(2):
        steps = torch.ceil((x.shape[0] + m.repeats[3]) / m.repeats[1]).to(torch.int64)
        x = nn.functional.pad(x, (0, 0, 1, steps * m.repeats[1] - x.shape[0]))[1:]  # type: ignore[list-item]
    return x


def framed(m: Holding, x: Tensor) -> Tensor:
    """Pad to whole steps by reflection. Source: Defossez et al., EnCodec, 2022."""
    length, step, left = x.shape[0], m.repeats[3], m.repeats[1]
    right = torch.ceil((length + left) / step).to(torch.int64) * step - length - left
    lacks = max(left, right) - length + 1 if length <= max(left, right) else 0  # type: ignore[call-overload]
    x = nn.functional.pad(x.T, (left, right), mode="reflect")  # type: ignore[arg-type]
    return x[:, : x.shape[1] - lacks]


CASES: dict[str, Callable[[Any, Tensor], Any]] = {
    "a buffer": lambda m, x: x[:, m.some] @ torch.ones(3, 2),
    "an attribute": lambda m, x: torch.relu(x[:, m.plain]).reshape(-1, 3),
    "a literal": lambda m, x: x[:, torch.tensor(SOME)],
    "a triangle": lambda m, x: (x @ x.T)[torch.ones(6, 6).triu(1) == 1].view(3, 5),
    "several axes": lambda m, x: x[m.pairs],
    "masked_select": lambda m, x: x.masked_select(m.pairs) * 2,
    "a mask beside an index": lambda m, x: x[m.repeats > 1, 1],
    "of what was selected": lambda m, x: x[m.repeats > 0][:, m.some],
    "two that meet": lambda m, x: x[:, m.some] + x[:, m.plain],
    "two that are joined": lambda m, x: torch.cat([x[m.repeats > 0], x[m.repeats <= 0]]),
    "one that lets nothing through": lambda m, x: torch.cat([x[:, m.none], x], 1),
    "places": lambda m, x: x[torch.nonzero(m.repeats > 1)[:, 0]],
    "repeats": lambda m, x: torch.repeat_interleave(x, m.repeats, dim=0) * 2,
    "literal repeats": lambda m, x: x.repeat_interleave(torch.tensor([2, 0, 1, 1]), 1),
    "repeats of a size": lambda m, x: torch.repeat_interleave(x, m.repeats, dim=0, output_size=8),
    "combinations": lambda m, x: torch.combinations(x[0]),
    "a size in arithmetic": lambda m, x: x[:, m.some].sum(1) / x[:, m.some].shape[1],
    "a window": lambda m, x: x * torch.kaiser_window(4),
    "a number that is read": lambda m, x: x.repeat(m.repeats[1].item(), 1) * m.repeats[1].item(),
    "padding, and padding by what was padded": padded,
    "an end that is read": lambda m, x: x[: m.repeats[3].item()],
    "an end": lambda m, x: x[: -m.repeats[1]],
    "parts": lambda m, x: torch.cat(torch.split(x, [*m.repeats[3:5].tolist(), 2])[::2]),
    "a branch": lambda m, x: x * 2 if m.repeats[1] > 1 else x,
    "branches, padding and an end": framed,
    "places that are few": lambda m, x: x[torch.nonzero(m.repeats > 2)[:, 0]],
    "writes": written,
    "masks that change": made_in_place,
    "what is found in values": of_values,
}


@pytest.mark.parametrize("name", CASES)
def test_what_depends_on_tensors_of_the_module_has_a_size(name: str) -> None:
    module = Holding(CASES[name]).eval()
    found = from_module(module, (X,)).model.interpret(X.numpy())
    law = module(X)
    for ours, right in zip(found, law if isinstance(law, tuple) else (law,), strict=True):
        torch.testing.assert_close(torch.from_numpy(ours), right, check_dtype=False)


@pytest.mark.parametrize("freeze", [None, False])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("some", lambda m, x: x[:, m.some]),
        ("plain", lambda m, x: x[:, m.plain]),
        ("repeats", lambda m, x: x.repeat(m.repeats[0].item(), 1)),
        ("repeats", lambda m, x: x * 2 if m.repeats[1] > 1 else x),
        ("repeats", lambda m, x: x[: m.repeats[1]]),
    ],
)
def test_what_decides_a_size_is_guarded(
    name: str, read: Callable[[Any, Tensor], Any], freeze: bool | None
) -> None:
    module = Holding(read).eval()
    fast = ft.optimize(module, (X,), machine=REFERENCE, freeze=freeze)
    assert torch.equal(fast(X), module(X))
    getattr(module, name)[0] = False
    with pytest.raises(StaleParametersError, match=f"{name}( .of a number.)?' was changed"):
        fast(X)


def test_weights_beside_a_mask_are_read_anew() -> None:
    module = Holding(lambda m, x: x[:, m.some] * m.weight[:, m.some]).eval()
    module.weight = nn.Parameter(torch.randn(6, 4))
    with torch.no_grad():
        fast = ft.optimize(module, (X,), machine=REFERENCE, freeze=False)
        module.weight.add_(1)
        assert torch.equal(fast(X), module(X))


def test_weights_that_decide_a_size_too_are_guarded() -> None:
    module = Holding(lambda m, x: (x * m.weight)[:, m.weight > 0]).eval()
    module.weight = nn.Parameter(torch.tensor([1.0, -1.0, 2.0, 3.0]))
    with torch.no_grad():
        fast = ft.optimize(module, (X,), machine=REFERENCE, freeze=False)
        assert torch.equal(fast(X), module(X))
        module.weight.neg_()
        with pytest.raises(StaleParametersError, match="weight"):
            fast(X)


def test_what_the_model_changes_is_not_known() -> None:
    def turned(m: Holding, x: Tensor) -> Tensor:
        y = x[:, m.some]
        m.some.logical_not_()
        return y

    with pytest.raises(ModelError, match="indexing by a mask"):
        from_module(Holding(turned).eval(), (X,))


def by_a_view(m: Holding, x: Tensor) -> Tensor:
    y = x * 2 if m.repeats[1] > 1 else x
    m.repeats.view(2, 3)[0] += 1
    return y


def replaced(m: Holding, x: Tensor) -> Tensor:
    y = x[: m.repeats[1]]
    m.repeats = m.repeats + 1
    return y


@pytest.mark.parametrize("function", [by_a_view, replaced])
def test_a_number_in_what_the_model_changes_is_not_known(function: Callable[[Any, Tensor], Any]) -> None:
    with pytest.raises(ModelError, match=r"data-dependent|made of the values"):
        from_module(Holding(function).eval(), (X,))


def test_a_number_that_decides_nothing_is_read_anew() -> None:
    module = Holding(lambda m, x: x * m.repeats[1].item() + m.repeats.sum())
    fast = ft.optimize(module.eval(), (X,), machine=REFERENCE, freeze=False)
    module.repeats[1] = 7
    torch.testing.assert_close(fast(X), module(X))


def drawn(m: Holding, x: Tensor) -> Tensor:
    return x[:, torch.rand(4) > 0.5]


def of_the_argument(m: Holding, x: Tensor) -> Tensor:
    weights = torch.ones(4)
    weights.mul_(x[0])
    return x[:, weights > 0]


@pytest.mark.parametrize("function", [drawn, of_the_argument])
def test_what_is_another_at_each_call_is_not_known(function: Callable[[Any, Tensor], Any]) -> None:
    with pytest.raises(ModelError, match="indexing by a mask"):
        from_module(Holding(function).eval(), (X,))
