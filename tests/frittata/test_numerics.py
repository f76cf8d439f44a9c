"""The option `numerics`: which algorithms each level admits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import frittata as ft
from frittata.egraph.machine import REFERENCE
from frittata.egraph.terms import walk


class Layers(torch.nn.Module):
    """Two wide convolutions with what stands between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(24, 32, 3, padding=1)
        self.second = torch.nn.Conv2d(32, 24, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))))


def tiles(fast: Any) -> set[int]:
    """Return the tiles of the convolutions that were chosen."""
    kernels = fast.compilation.extraction.program.kernels
    every = (term for kernel in kernels for output in kernel.outputs for term in walk(output.body))
    return {term.attrs[3] for term in every if term.op == "winograd_dot"}


@pytest.mark.parametrize(("numerics", "admitted"), [("exact", set[int]()), ("reassoc", {2}), ("loose", {4})])
def test_tiles_are_chosen_where_their_error_is_admitted(numerics: Any, admitted: set[int], tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = Layers().eval(), torch.randn(1, 24, 33, 34)
    with torch.no_grad():
        expected = module(x)
    fast = ft.optimize(module, (x,), machine=REFERENCE, numerics=numerics, cache=tmp_path)
    assert tiles(fast) == admitted
    torch.testing.assert_close(fast(x), expected, rtol=0, atol=1e-4 if numerics == "loose" else 1e-5)


def test_the_plain_form_convolves_directly(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = Layers().eval(), torch.randn(1, 24, 9, 8)
    fast = ft.optimize(module, (x,), machine=REFERENCE, form="plain", cache=tmp_path)
    assert tiles(fast) == set()


def buckets(x: torch.Tensor) -> torch.Tensor:
    """Distances on a logarithmic scale, as T5 numbers them: exact powers of two lie on edges of buckets."""
    return x + (torch.log(torch.arange(1, 47).float() / 8) / math.log(16) * 8).long()


def thirds(x: torch.Tensor) -> torch.Tensor:
    return x + (torch.arange(46).float() / torch.tensor(13.0) * torch.tensor(13.0)).long()


def difference(x: torch.Tensor) -> torch.Tensor:
    return x + (torch.tensor([0.1]) * 10 - torch.tensor([1.0])).sign()


@pytest.mark.parametrize("options", [{}, {"numerics": "exact"}, {"freeze": False}], ids=str)
@pytest.mark.parametrize("function", [buckets, thirds, difference])
def test_constants_that_become_integers_are_those_of_the_framework(
    function: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    x = torch.zeros(46)
    fast = ft.optimize(function, (x,), machine=REFERENCE, cache=tmp_path, **options)
    assert torch.equal(fast(x), function(x))


def absorbed(x: torch.Tensor) -> torch.Tensor:
    return x < (torch.full((7,), 1e-5) + 300)


def absorbed_factor(x: torch.Tensor) -> torch.Tensor:
    return x < torch.full((7,), 1.25) * 1e-45  # which is rounded to the least number again


def tolerated(x: torch.Tensor) -> torch.Tensor:
    return torch.isclose(x, torch.ones(7), atol=300)


@pytest.mark.parametrize("function", [absorbed, absorbed_factor, tolerated])
def test_a_sum_or_product_of_numbers_that_is_one_of_them_gathers_nothing(function: Any, tmp_path: Path) -> None:
    x = torch.tensor([0.0, 299.5, 300.5, 301.5, -299.5, -298.0, math.nan])
    fast = ft.optimize(function, (x,), machine=REFERENCE, cache=tmp_path)
    assert torch.equal(fast(x), function(x))
