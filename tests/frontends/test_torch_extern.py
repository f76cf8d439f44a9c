"""Operators without a row become calls into torch, those that are pure functions of tensors with fixed types."""

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops import externs, registry
from frittata.egraph.terms import TensorType
from frittata.frontends.torch_export import from_module

X = torch.linspace(-2, 2, 20, dtype=torch.float64).reshape(5, 4) + torch.eye(5, 4, dtype=torch.float64)


@torch.library.custom_op("frittata_tests::middle_of", mutates_args=())
def middle_of(values: list[Tensor], share: float) -> Tensor:
    """Return a quantile over tensors."""
    return torch.quantile(torch.stack(values), share, 0)


@middle_of.register_fake
def _(values: list[Tensor], share: float) -> Tensor:  # pyright: ignore[reportUnusedFunction]
    return torch.empty_like(values[0])


@torch.library.custom_op("frittata_tests::halved_single", mutates_args=())
def halved_single(x: Tensor) -> Tensor:
    """Return half of what must be float32, as many operators on quantized models must."""
    if x.dtype != torch.float32:
        raise TypeError(f"expected float32, not {x.dtype}")
    return x / 2


@halved_single.register_fake
def _(x: Tensor) -> Tensor:  # pyright: ignore[reportUnusedFunction]
    return torch.empty_like(x)


@torch.library.custom_op("frittata_tests::offset_in_memory", mutates_args=())
def offset_in_memory(x: Tensor) -> Tensor:
    """Return how far from the last multiple of 64 bytes a tensor starts."""
    return torch.tensor(x.data_ptr() % 64)


class Module(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def imported(function: Callable[..., Any], *args: Tensor) -> Any:
    return from_module(Module(function).eval(), args, fallback="extern")


CALLS: dict[str, Callable[[Tensor], Any]] = {
    "several results": lambda x: torch.geqrf(x),
    "the second result alone": lambda x: torch.geqrf(x)[1],
    "an argument by name": lambda x: torch.linalg.solve(x[:4], x[:4] * 2, left=False),
    "two operands": lambda x: torch.linalg.solve(x[:4], x[:4] * 2),
    "one operand twice": lambda x: torch.nextafter(x, x),
    "an operator of the user, with a list of tensors": lambda x: middle_of([x, x * 2, x - 1], 0.5),
    "between other operators": lambda x: torch.relu(torch.special.bessel_j0(torch.exp(x))) + 1,
    "infinite arguments": lambda x: torch.special.bessel_j0(x) * float("inf"),
    "special functions": lambda x: torch.special.bessel_j0(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_means_what_it_means_in_torch(name: str) -> None:
    model = imported(CALLS[name], X).model
    assert any(externs.is_extern(term.op) for term in model.main.walk())
    wanted = CALLS[name](X)
    for found, one in zip(model.interpret(X.numpy()), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_allclose(found, one, atol=1e-12)
    assert ft.parse(str(model)) == model


def test_equal_calls_are_one_term() -> None:
    model = imported(lambda x: torch.polygamma(1, x) + torch.polygamma(1, x) * torch.polygamma(2, x), X).model
    assert sum(externs.is_extern(term.op) for term in model.main.walk()) == 2


def test_terms_know_the_line_of_the_user() -> None:
    model = imported(lambda x: torch.special.bessel_j0(x), X).model
    (call,) = (term for term in model.main.walk() if externs.is_extern(term.op))
    assert "test_torch_extern.py" in model.origin_by_term[call]


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "random numbers": (
        lambda x: torch.rand_like(x) + x,
        r"rand_like.*draws random numbers\) x1 at .*test_torch_extern",
    ),
    "shapes that depend on values": (lambda x: torch.nonzero(x) + 1, "nonzero.*depends on values"),
    "results without an element type": (lambda x: torch.linalg.eigvals(x.mT @ x).abs(), "no element type"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_cannot_be_called_for_is_refused(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(UnsupportedOpError, match=message):
        imported(function, X)


def test_with_error_all_of_them_are_listed_with_counts_and_lines() -> None:
    def function(x: Tensor) -> Any:
        return torch.geqrf(x)[0] + torch.geqrf(x * 2)[0], torch.special.bessel_j0(x)

    with pytest.raises(UnsupportedOpError) as caught:
        ft.optimize(Module(function).eval(), (X,), fallback="error")
    text = str(caught.value)
    assert "aten.geqrf.default x2" in text and "bessel_j0" in text and "test_torch_extern.py:" in text
    assert 'fallback="extern"' in text


def test_torch_says_why_it_refuses_values() -> None:
    singular = np.zeros((3, 3))
    with pytest.raises(ModelError, match="torch refuses"):
        externs.run("aten.linalg_inv.default(x0)", (singular,))
    with pytest.raises(ModelError, match="torch has no call"):
        externs.run("aten.no_such.default(x0)", (singular,))


@pytest.mark.parametrize("is_constant", [False, True])
def test_what_takes_no_float64_is_given_its_own_dtype(is_constant: bool) -> None:
    x = X.float()

    def function(given: Tensor) -> Tensor:
        return given + halved_single(x if is_constant else given).exp()

    fast = ft.optimize(Module(function).eval(), (x,), machine=REFERENCE, verify=True)
    torch.testing.assert_close(fast(x), function(x))


def test_arrays_are_given_to_torch_where_its_own_start() -> None:
    memory = np.zeros(128, np.uint8)
    for start in range(64):
        (found,) = externs.run("frittata_tests.offset_in_memory.default(x0)", (memory[start : start + 40],))
        assert found == 0


def test_arrays_of_any_layout_are_given_to_torch() -> None:
    turned = np.arange(12.0).reshape(3, 4).T[::-1]
    turned.flags.writeable = False
    (found,) = externs.run("aten.cumsum.default(x0, 0)", (turned,))
    np.testing.assert_array_equal(found, np.cumsum(turned, 0))


@pytest.mark.parametrize(
    "value", [None, True, 3, -2.5, float("inf"), float("-inf"), "mean", [1, [2, 3]], torch.float32]
)
def test_arguments_have_a_text(value: Any) -> None:
    text = externs.show_argument(value)
    assert externs._bound(ast.parse(text, mode="eval").body, ()) == value  # pyright: ignore[reportPrivateUsage]


def test_rows_are_made_for_any_number_of_operands() -> None:
    type_ = TensorType((2,), "f32")
    leaves = [registry.tensor("input", name=f"a{i}", shape=(2,), dtype="f32") for i in range(11)]
    call = f"aten.cat.default([{', '.join(f'x{i}' for i in range(11))}])"
    term = externs.extern(call, leaves, 0, type_)
    assert term.op == "extern_11" and term.type == type_ and registry.get("extern_11").opaque
    (joined,) = externs.run(call, [np.full(2, float(i)) for i in range(11)])
    np.testing.assert_array_equal(joined, np.repeat(np.arange(11.0), 2))
    assert "extern_11" not in registry.names() and registry.nearest("extern_1") != "extern_11"
    assert registry.find("extern_x", "tensor") is None and registry.find("extern_01", "tensor") is None


def test_what_is_called_in_place_is_called_by_its_functional_name() -> None:
    x = torch.tensor([-3, 0, 1, 2])
    model = Module(lambda x: (x * 3).pow_(x.abs()) + 1).eval()
    fast = ft.optimize(model, (x,), machine=REFERENCE)
    assert torch.equal(fast(x), model(x))
    assert fast.report.externs
