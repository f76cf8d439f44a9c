"""Special functions: of float32 nearly as rounded from torch's in double precision, of float64 torch's own."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import frittata as ft
from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.machine import REFERENCE
from frittata.frontends.torch_export import from_module
from frittata.frontends.torch_functions import as_module

Function = Callable[[Tensor], Tensor]


def ndtr(x: Tensor) -> Tensor:
    """The share of a normal distribution below; in double precision torch's own loses what is far below."""
    return torch.special.ndtr(x) if x.dtype != torch.float64 else torch.erfc(-x * math.sqrt(0.5)) / 2


FUNCTIONS: dict[str, Function] = {
    "erfc": torch.erfc,
    "erfcx": torch.special.erfcx,
    "erfinv": torch.erfinv,
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
    "polygamma": lambda x: torch.polygamma(0, x),
    "ndtr": ndtr,
    "log_ndtr": torch.special.log_ndtr,
    "ndtri": torch.special.ndtri,
    "i0": torch.i0,
    "i0e": torch.special.i0e,
    "i1": torch.special.i1,
    "i1e": torch.special.i1e,
}
ROOTS = (1.0, 2.0, 1.4616321, -2.4570247, -2.7476826, -0.5040830, -1.5734985)
SPECIAL = (0.0, torch.inf, torch.nan, 1e-45, 3.4e38, 1e37, 10.05, 9.3, 0.5, 3.0, 2553.97, 8388609.0, 4194303.5)


def samples() -> Tensor:
    """Return special values, every magnitude at random, the ranges in which functions bend, and those beside roots."""
    dice = torch.Generator().manual_seed(7)
    patterns = torch.randint(-(2**31), 2**31 - 1, (1000,), generator=dice).to(torch.int32).view(torch.float32)
    ranges = [torch.empty(500).uniform_(-width, width, generator=dice) for width in (0.1, 1, 3, 12, 200)]
    beside = torch.tensor(ROOTS).view(torch.int32)[:, None] + torch.arange(-20, 21, dtype=torch.int32)
    below_one = 1 - 2.0 ** -torch.linspace(1, 24, 200)
    special = torch.tensor(SPECIAL)
    return torch.cat((special, -special, patterns, *ranges, beside.view(torch.float32).flatten(), below_one))


def ulps(found: Tensor, exact: Tensor) -> float:
    """Return how far results are off in units of the last place; those that are not finite are the same."""
    rounded = exact.float()
    torch.testing.assert_close(found.where(~rounded.isfinite(), rounded), rounded, rtol=0, atol=0, equal_nan=True)
    unit = torch.from_numpy(np.spacing(rounded.abs().numpy()))
    return float(((found.double() - exact).abs() / unit)[rounded.isfinite()].max())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_in_single_precision_are_within_two_ulps(name: str) -> None:
    x = samples()
    fast = ft.optimize(FUNCTIONS[name], (x,), machine=REFERENCE)
    assert not fast.report.externs
    assert ulps(fast(x), FUNCTIONS[name](x.double())) <= 2
    (law,) = from_module(as_module(FUNCTIONS[name]), (x,)).model.interpret(x.numpy())
    assert ulps(torch.from_numpy(law).float(), FUNCTIONS[name](x.double())) <= 2


def test_the_second_derivative_of_the_logarithm_of_the_gamma_function() -> None:
    x = samples()
    x = x[(x > 0) | (x != x.round())]  # by its own reflection torch misses the poles
    fast = ft.optimize(lambda x: torch.polygamma(1, x), (x,), machine=REFERENCE, fallback="error")
    assert ulps(fast(x), torch.polygamma(1, x.double())) <= 2
    assert fast(-x.nan_to_num().clamp(0, 99).ceil()).isinf().all()


@pytest.mark.parametrize("name", ["lgamma", "erfc"])
def test_zeros_and_halves(name: str) -> None:
    x = torch.tensor([0.0, -0.0, 0.7, -2.5, 2.0], dtype=torch.float16)
    imported = from_module(as_module(FUNCTIONS[name]), (x,))
    (found,) = imported.model.interpret(x.numpy())
    assert imported.model.main.outputs[0].dtype == "f16"
    np.testing.assert_allclose(found.astype("f4"), FUNCTIONS[name](x).float(), rtol=1e-3)


def test_torch_computes_them_of_float64() -> None:
    x = torch.tensor([0.7, 3.0, -1.5], dtype=torch.float64)
    fast = ft.optimize(torch.lgamma, (x,), machine=REFERENCE)
    assert fast.report.externs == ("lgamma",)
    assert torch.equal(fast(x), torch.lgamma(x))
    normal = ft.optimize(torch.special.ndtr, (x,), machine=REFERENCE, fallback="error")
    torch.testing.assert_close(normal(x), torch.special.ndtr(x))
    with pytest.raises(UnsupportedOpError, match=r"polygamma\.default \(of order 2\)"):
        ft.optimize(lambda x: torch.polygamma(2, x), (x,), machine=REFERENCE, fallback="error")
    with pytest.raises(UnsupportedOpError, match=r"lgamma\.default \(of float64\)"):
        ft.optimize(torch.lgamma, (x,), machine=REFERENCE, fallback="error")
