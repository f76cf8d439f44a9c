"""Remainders and rounded quotients: the bits that numpy computes, zeros with their signs, infinities and NaN too."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from frittata.kernels.cuda import remainders

NUMBERS = (0.0, -0.0, 1.0, -1.0, 3.0, 0.3, -0.1, 7.5, -1e-20, 1e10, -1e30, np.inf, -np.inf, np.nan)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("name", "law"), [("mod", np.mod), ("floordiv", np.floor_divide)])
def test_they_are_those_of_numpy(name: str, law: np.ufunc, dtype: str) -> None:
    real = {"f32": np.float32, "f64": np.float64}[dtype]
    function = remainders.functions(np)[f"{name}_{dtype}"]
    with np.errstate(all="ignore"):
        for x, y in product(map(real, NUMBERS), repeat=2):
            found, expected = function(x, y), law(x, y)
            assert type(found) is real
            np.testing.assert_array_equal(found, expected, f"{x} {y}")
            assert np.isnan(expected) or np.signbit(found) == np.signbit(expected), (x, y)
