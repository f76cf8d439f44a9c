"""Predictions beside measurements: what counts, and how errors are summed up."""

import pytest

from bench.predictions import Timed, summary, timed
from bench.rows import ROWS


def test_every_kernel_of_a_row_is_timed() -> None:
    found = list(timed(ROWS["MLP 784-256-10, batch 1"]))
    assert sum(kernel.count for kernel in found) == 2
    assert all(kernel.predicted_s > 0 and kernel.measured_s > 0 for kernel in found)


def test_errors_are_shares_of_what_was_measured_and_short_kernels_do_not_count() -> None:
    kernels = [
        Timed("a", "row", 1, 50e-6, 100e-6),
        Timed("a", "row", 4, 110e-6, 100e-6),
        Timed("b", "row", 1, 300e-6, 100e-6),
        Timed("b", "taps", 1, 25e-6, 20e-6),
        Timed("b", "taps", 1, 1e-6, 19e-6),
    ]
    found = summary(kernels)
    assert list(found) == ["row", "taps", "all"]
    assert found["row"] == pytest.approx({"kernels": 3, "median_error": 0.5, "median_ratio": 1.1})
    assert found["taps"] == pytest.approx({"kernels": 1, "median_error": 0.25, "median_ratio": 1.25})
    assert found["all"]["kernels"] == 4
