"""Joins in place beside copies, by processor time on one thread: `python -m bench.in_place [NAME ...]`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numba
import torch
from torch import Tensor, nn
from torch.nn import functional

import frittata as ft
from frittata.egraph.machine import REFERENCE
from frittata.extract import candidates

_TURNS = 60


class Dense(nn.Module):
    """Layers that read all that was computed before them, as in DenseNet."""

    def __init__(self, width: int = 64, growth: int = 32, count: int = 4) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.layers = nn.ModuleList(self._layer(width + growth * i, growth) for i in range(count))

    @staticmethod
    def _layer(width: int, growth: int) -> nn.Module:
        narrow = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 4 * growth, 1), nn.ReLU())
        return nn.Sequential(narrow, nn.Conv2d(4 * growth, growth, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        found = [self.first(x)]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return torch.relu(torch.cat(found, 1)).mean((2, 3))


class Branches(nn.Module):
    """Convolutions of several sizes side by side, as in Inception."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(64, 64, 1)
        self.branches = nn.ModuleList(nn.Conv2d(64, n, k, padding=k // 2) for n, k in ((64, 1), (96, 3), (32, 5)))
        self.last = nn.Conv2d(256, 64, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        found = [torch.relu(branch(x)) for branch in self.branches]
        return self.last(torch.cat([*found, functional.max_pool2d(x, 3, 1, 1)], 1))


class Heads(nn.Module):
    """Attention that returns its keys and values, split into heads."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.sides = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.heads = heads

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.shape
        shape = batch, length, self.heads, width // self.heads
        q, k, v = (side(x).view(shape).transpose(1, 2) for side in self.sides)
        return functional.scaled_dot_product_attention(q, k, v), k, v


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (Dense, (2, 3, 28, 28)),
    "branches": (Branches, (2, 64, 28, 28)),
    "heads": (Heads, (2, 128, 256)),
}


def ratio(name: str) -> float:
    """Return the least time with joins in place over the least time without."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    contestants: list[ft.Optimized] = []
    offered = candidates.JOINS
    for joins in (offered, frozenset[str]()):
        candidates.JOINS = joins
        contestants.append(ft.optimize(model, (x,), machine=REFERENCE, library=False))
    candidates.JOINS = offered
    numba.set_num_threads(1)
    least = [float("inf")] * 2
    for _ in range(_TURNS):
        for i, fast in enumerate(contestants):
            start = time.thread_time()
            fast(x)
            least[i] = min(least[i], time.thread_time() - start)
    return least[0] / least[1]


if __name__ == "__main__":
    for given in sys.argv[1:] or MODELS:
        print(f"{given}: {ratio(given):.3f} of the time with copies")
