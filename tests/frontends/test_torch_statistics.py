"""Functions whose own code in torch looks at values: covariances, correlations, and the masks of transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import transformer

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


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "another mask"])
def test_masks_of_transformers_are_not_looked_at(is_causal: bool) -> None:
    mask = nn.Transformer.generate_square_subsequent_mask(5) if is_causal else torch.randn(5, 5)
    x, y = torch.randn(2, 2, 5, 8)
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval()
    detect = transformer.__dict__["_detect_is_causal_mask"]
    fast = ft.optimize(model, (x, y, torch.zeros(5, 5), torch.zeros(5, 5)), machine=REFERENCE)
    assert transformer.__dict__["_detect_is_causal_mask"] is detect
    expected = model(x, y, mask, mask).detach()  # without gradients torch's own kernel makes NaN of such masks
    torch.testing.assert_close(fast(x, y, mask, mask), expected, rtol=1e-4, atol=1e-5)
