"""Empty tensors in torch models: joined with others they are left out, anywhere else they are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import EmptyError
from frittata.egraph.machine import REFERENCE

X = torch.linspace(-2, 1, 12).reshape(3, 4)


class WithBuffer(nn.Module):
    """Has a memory that is empty yet, and that another may replace."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.start = nn.Buffer(torch.zeros(0, 4)), nn.Parameter(torch.ones(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.memory, self.start, x]).exp()


def _lower(x: Tensor) -> Tensor:
    rows, columns = torch.tril_indices(3, 3)
    return x[..., rows, columns]


JOINED: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "a slice": (lambda x: torch.cat([x[:, :0], x, x.new_zeros(x.shape[0], 0)], 1) * 2, (X,)),
    "a dtype": (lambda x: torch.cat([x[:, :0].double(), x.half(), x], 1), (X,)),
    "integers": (lambda x: torch.cat([torch.zeros(0), x.long()[0]]), (X,)),
    "no axes": (lambda x: torch.cat([torch.tensor([], dtype=torch.float64), x], 1), (X,)),
    "several": (lambda x: torch.cat([torch.cat([x[:0], x[:0]]).exp(), x]), (X,)),
    "an input": (lambda past, new: torch.cat([past, new], 1).softmax(1), (torch.zeros(2, 0, 3), X.reshape(2, 2, 3))),
    "places of a triangle": (_lower, (X,)),
    "triangles": (lambda x: (torch.triu_indices(4, 4, 1) * x[0, 0], torch.tril_indices(3, 5, -1)), (X,)),
    "blocks": (lambda x: torch.block_diag(x, x[:2], x[0, 0]), (X,)),
}


@pytest.mark.parametrize("name", JOINED)
def test_empty_parts_of_a_join_are_left_out(name: str) -> None:
    source, args = JOINED[name]
    fast = ft.optimize(source, args, machine=REFERENCE)
    torch.testing.assert_close(fast(*args), source(*args))


def _shifted(x: Tensor) -> tuple[Tensor, ...]:
    y, z = x.clone(), x.clone()
    y[:, 1:] += x[:, :-1]
    z.diagonal(-5).fill_(1)
    z[4:].zero_()
    return y, z


def test_what_is_written_to_an_empty_part_changes_nothing() -> None:
    fast = ft.optimize(_shifted, (X,), dynamic_shapes=({1: "steps"},), machine=REFERENCE)
    for x in (X, X[:, :1]):
        torch.testing.assert_close(fast(x), _shifted(x))


REFUSED: dict[str, tuple[Callable[..., Any] | nn.Module, tuple[Tensor, ...], str]] = {
    "a result": (lambda x: (x * 2, x[:0]), (X,), "slice_1 is empty: shape 0x4"),
    "a sum": (lambda x: x[:, :0].exp().sum(1) + x[:, 0], (X,), "slice_1 is empty: shape 3x0(.|\n)*aten.sum"),
    "an input": (lambda x: (x * 2).exp(), (torch.zeros(0, 3),), "input x is empty: shape 0x3"),
    "a join of nothing": (lambda x: torch.cat([x[:0], x[:0]]), (X,), "slice_1 is empty"),
    "a buffer": (WithBuffer().eval(), (X,), "buffer memory is empty: shape 0x4"),
    "a call of torch": (lambda x: torch.nextafter(x[:0], x[:0]).sum() + x, (X,), "slice_1 is empty"),
    "places": (lambda x: x.index_put((torch.zeros(0, dtype=torch.long),), x[:0]), (X,), "zeros is empty: shape 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_computed_from_empty_tensors_is_refused_by_their_name(name: str) -> None:
    source, args, message = REFUSED[name]
    with pytest.raises(EmptyError, match=message):
        ft.optimize(source, args, machine=REFERENCE)
