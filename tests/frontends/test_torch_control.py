"""Graphs within graphs: `torch.cond`, `scan` and `map` give what torch gives, whichever branch is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch.utils import _pytree as pytree

import frittata as ft
from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.machine import REFERENCE

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Layers(nn.Module):
    """Another layer for positive sums, one of them in place and with an operator that torch decomposes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        def negative(x: Tensor) -> Tensor:
            return self.second(x).relu_() + torch.special.entr(x.abs())

        return torch.cond(x.sum() > 0, self.first.forward, negative, (x,))


class Steps(nn.Module):
    """A recurrent cell over slices, backward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        def step(state: Tensor, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            return torch.tanh(self.layer(state) + x), (state * x, state - 1)

        return scan(step, torch.zeros(4), x, reverse=True)


def nested(x: Tensor) -> Tensor:
    def first(x: Tensor) -> Tensor:
        return torch.cond(x[0, 0] > 0.5, lambda x: x * 3, lambda x: x * 4, (x,))

    return torch.cond(x.sum() > 0, first, lambda x: -x, (x,))


def mapped(row: Any, y: Any) -> Any:
    return row.sin() * y.sum(), row + 1


CASES: dict[str, Callable[..., Any]] = {
    "results": lambda x: torch.cond(x.sum() > 0, lambda x: (x.sin(), x > 0), lambda x: (x.cos(), x > 1), (x,)),
    "layers": Layers().eval(),
    "nested": nested,
    "complex": lambda x: torch.cond(x.sum() > 0, torch.fft.rfft, lambda x: torch.fft.rfft(x * 2) * 1j, (x,)).abs(),
    "one value": lambda x: torch.cond(x[:1, 0] > 0, lambda x: x * 3, lambda x: x * 4, (x,)),
    "scan": Steps().eval(),
    "map": lambda x: torch_map(mapped, x, x[0] * 1),
}


@pytest.mark.parametrize("name", CASES)
def test_graphs_within_graphs(name: str) -> None:
    function = CASES[name]
    with torch.no_grad():
        fast = ft.optimize(function, (X,), machine=REFERENCE)
        for x in (X.abs(), -X.abs(), X.abs() + 1, X * torch.nan):
            found, wanted = (pytree.tree_leaves(call(x)) for call in (fast, function))
            torch.testing.assert_close(found, wanted, equal_nan=True)


def test_torch_compile_takes_branches() -> None:
    model = Layers().eval()
    compiled = torch.compile(model, backend="frittata")
    with torch.no_grad():
        for x in (X.abs(), -X.abs()):
            torch.testing.assert_close(compiled(x), model(x))


def test_what_is_unrolled_too_often_is_refused() -> None:
    with pytest.raises(UnsupportedOpError, match="more than 256 iterations"):
        ft.optimize(lambda x: scan(lambda c, x: (c + x, c * x), torch.zeros(4), x), (torch.ones(300, 4),))
