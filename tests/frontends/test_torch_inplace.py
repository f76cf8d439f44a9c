"""In-place calls are read by renaming where that is right, and left to torch where it is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from frittata.egraph.errors import ModelError
from frittata.frontends.torch_export import from_module
from frittata.frontends.torch_inplace import in_place_calls


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> object:
        """Apply the function."""
        return self.function(x)


def fresh_then_relu(x: Tensor) -> Tensor:
    return (x + 1).relu_()


def twice(x: Tensor) -> Tensor:
    return (x + 1).relu_().mul_(2).add_(x)


def read_before_and_after(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    before = y + 1
    y.relu_()
    return before, y, y + before


def compared(x: Tensor) -> tuple[Tensor, ...]:
    """What it is written to keeps its dtype."""
    return (x + 1).gt_(0.5).mul_(3), (x + 1).logical_not_(), (x * 2).logical_and_(x.round())


def a_view_is_taken_after(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    y.relu_()
    return y.reshape(-1), y


def a_view_is_taken_before(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    z = y.view(-1)
    y.relu_()
    return z, y


def through_a_view(x: Tensor) -> Tensor:
    y = x * 2
    y[0].relu_()
    return y


def a_view_between_two(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    y.relu_()
    z = y.view(-1)
    y.mul_(3)
    return z, y


def dropout_returns_its_operand(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    z = nn.functional.dropout(y, training=False)
    y.relu_()
    return z, y


def dropout_is_changed(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    z = nn.functional.dropout(y, training=False)
    z += 1
    return z, y * 3


def dropout_in_place(x: Tensor) -> tuple[Tensor, ...]:
    """It leaves its operand as it is, be that an input."""
    y = nn.functional.dropout(x, training=False, inplace=True)
    return y * 2, nn.functional.dropout(x * 3, 0.0, inplace=True)


def what_dropout_in_place_returns_is_changed(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    z = nn.functional.dropout(y, training=False, inplace=True)
    z += 1
    return z, y * 3


def a_letter_for_each_axis_is_a_view(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    z = torch.einsum("ij->ji", y)
    z += 1
    return z, y * 3, torch.einsum("ij,kj->ik", y, x)


def through_windows(x: Tensor) -> Tensor:
    """Through those that cover an axis; the last are a copy."""
    y = x * 2
    y.unfold(1, 2, 2)[:, 1].neg_()
    y.unfold(1, 2, 3).transpose(0, 1).flatten().neg_()
    y.unfold(1, 2, 1).contiguous().neg_()
    return y


def another_dtype(x: Tensor) -> Tensor:
    return (x * 2).add_(torch.arange(4, dtype=torch.float64))


def powers(x: Tensor) -> Tensor:
    """Of the overloads, `pow_.Scalar` is `pow.Tensor_Scalar`."""
    return (x.int() * 3).pow_(3) + (x * 2).pow_(2)


RENAMED: dict[Callable[..., object], int] = {
    fresh_then_relu: 1,
    twice: 3,
    read_before_and_after: 1,
    a_view_is_taken_after: 1,
    compared: 4,
    powers: 2,
    dropout_in_place: 2,
}
LEFT = [
    *(a_view_is_taken_before, through_a_view, a_view_between_two, another_dtype),
    *(dropout_returns_its_operand, dropout_is_changed, what_dropout_in_place_returns_is_changed),
    *(a_letter_for_each_axis_is_a_view, through_windows),
]


@pytest.mark.parametrize("function", [*RENAMED, *LEFT], ids=lambda function: function.__name__)
def test_the_import_computes_what_eager_does(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    expected = function(x.clone())
    found = from_module(Of(function).eval(), (x,)).model.interpret(x.numpy())
    for one, other in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-6)


@pytest.mark.parametrize(("extent", "step"), [(5, 2), (6, 4)])
@pytest.mark.parametrize(
    "change", [lambda y: y.mul_(3), lambda y: torch.add(y, 1, out=y), lambda y: torch.ops.aten._foreach_neg_([y])]
)
def test_a_change_through_windows_that_leave_values_out_is_refused(
    extent: int, step: int, change: Callable[[Tensor], object]
) -> None:
    """Torch's functional form makes zeros of what is behind the last and between them."""

    def changed(x: Tensor) -> Tensor:
        y = x * 2
        change(y.unfold(-1, 2, step).transpose(0, 1).chunk(2)[0].unfold(-1, 2, 1))
        return y

    with pytest.raises(ModelError, match="windows of unfold that leave some of it out"):
        from_module(Of(changed).eval(), (torch.ones(3, extent),))


@pytest.mark.parametrize("function", [*RENAMED, *LEFT], ids=lambda function: function.__name__)
def test_what_is_renamed_and_what_is_not(function: Callable[[Tensor], object]) -> None:
    graph = torch.export.export(Of(function).eval(), (torch.zeros(3, 4),)).graph
    mutating = [n for n in graph.nodes if n.op == "call_function" and getattr(n.target, "_schema", None)]
    mutating = [n for n in mutating if n.target._schema.is_mutable]
    assert mutating
    renamed = in_place_calls(graph.nodes)
    if function in RENAMED:
        assert len(renamed) == len(mutating) == RENAMED[function]
    else:
        assert len(renamed) < len(mutating)
