"""The functions of the library over every magnitude of float, as the table in docs/kernels.md states them."""

import numpy as np
import pytest

from bench.functions import FUNCTIONS, error_in_ulps, errors_f32, errors_f64

_STEP = 1 << 14


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_keeps_its_bounds(name: str) -> None:
    ulps, tail = errors_f32(name, _STEP)
    assert ulps <= (4.0 if name in ("gelu", "gelu_tanh", "silu") else 2.0)
    assert tail <= 1e-7
    assert errors_f64(name, 100) <= 4.0


def test_what_is_wrong_is_seen() -> None:
    found = np.array([1 + 2**-22, np.inf, np.nan, 1.0, 0.0], np.float32)
    ulps = error_in_ulps(found, np.array([1.0, np.nan, 1.0, np.inf, -(2.0**-149)]))
    np.testing.assert_array_equal(ulps, [2.0, np.inf, np.inf, np.inf, 1.0])
