"""Ceilings do the work that they are named for."""

from __future__ import annotations

import pytest

from bench import ceilings
from bench.timing import least_s
from frittata.egraph.machine import REFERENCE
from frittata.kernels import driver


def test_multiply_adds_are_counted_and_done() -> None:
    ceiling = ceilings.multiply_adds(REFERENCE)
    assert ceiling.amount == driver.thread_count() * 2 * 8 * 12 * 50_000
    assert 1e8 < ceiling.amount / least_s(ceiling.call, 5) < 5e12


@pytest.mark.parametrize("read, written", [(1e6, 0), (1e6, 3e5), (0, 1e6), (3e7, 1e4)])
def test_traffic_moves_the_bytes_asked_for(read: float, written: float) -> None:
    ceiling = ceilings.traffic(read, written, REFERENCE)
    repeats = max(1, round(ceiling.amount / (read + written)))
    assert ceiling.amount / repeats == pytest.approx(read + written, rel=0.05)
    assert 1e8 < ceiling.amount / least_s(ceiling.call, 5) < 1e13


def test_large_traffic_is_measured_at_a_size_that_fits_the_memory() -> None:
    assert ceilings.traffic(1e12, 1e12, REFERENCE).amount < 3e8
