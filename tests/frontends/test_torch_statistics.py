"""Covariances and correlations, whose own code in torch looks at values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import frittata as ft
from frittata.egraph.machine import REFERENCE

torch.manual_seed(0)
ROWS, COUNTS, WEIGHTS = torch.randn(4, 9), torch.randint(1, 4, (9,)), torch.rand(9)
CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "covariances": (lambda x: torch.cov(x), (ROWS,)),
    "without correction": (lambda x: x.cov(correction=0), (ROWS,)),
    "repeated": (lambda x, n: torch.cov(x, fweights=n), (ROWS, COUNTS)),
    "weighed": (lambda x, w: torch.cov(x, aweights=w), (ROWS, WEIGHTS)),
    "repeated and weighed": (
        lambda x, n, w: torch.cov(x, correction=2, fweights=n, aweights=w),
        (ROWS, COUNTS, WEIGHTS),
    ),
    "of one row": (lambda x: torch.cov(x[0]), (ROWS,)),
    "of one number": (lambda x: torch.cov(x[0, 0]), (ROWS,)),
    "of one observation": (lambda x: torch.cov(x[:, :1]), (ROWS,)),
    "of integers": (lambda x: torch.cov(x), (torch.randint(0, 9, (3, 7)),)),
    "correlations": (lambda x: torch.corrcoef(x), (ROWS.double(),)),
    "correlation of one row": (lambda x: x[0].corrcoef(), (ROWS,)),
}


REFUSED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], str]] = {
    "three dims": (lambda x: torch.cov(x[None]), (ROWS,), "3 dims"),
    "complex numbers": (lambda x: torch.cov(torch.complex(x, x)), (ROWS,), "complex"),
    "repeated half": (lambda x, w: torch.cov(x, fweights=w), (ROWS, WEIGHTS), "give integers"),
    "weighed by integers": (lambda x, w: torch.cov(x, aweights=w), (ROWS, COUNTS), "give floats"),
    "too few weights": (lambda x, w: torch.cov(x, aweights=w[:1]), (ROWS, WEIGHTS), "each of 9 observations"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused(name: str) -> None:
    function, args, what = REFUSED[name]
    with pytest.raises(ft.FrittataError, match=what):
        ft.optimize(function, args, machine=REFERENCE)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", CASES)
def test_covariances_are_as_torch_has_them(name: str) -> None:
    function, args = CASES[name]
    expected = function(*args)
    got = ft.optimize(function, args, machine=REFERENCE, fallback="error")(*args)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
