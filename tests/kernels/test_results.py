"""The memory of large results is the caller's until nothing refers to it, and the next call's then."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import frittata as ft
from frittata.egraph.machine import REFERENCE
from frittata.kernels.results import LARGE_BYTES, Array

_ROWS = LARGE_BYTES // 4096
_SHAPE = (_ROWS, 1024)


@pytest.fixture(scope="module")
def twice() -> ft.Optimized:
    return ft.optimize(lambda x: x * 2, (np.zeros(_SHAPE, np.float32),), machine=REFERENCE)


def _filled(value: float) -> Array:
    return np.full(_SHAPE, value, np.float32)


def test_results_that_are_kept_stay_as_they_are(twice: ft.Optimized):
    kept = [twice(_filled(value)) for value in range(4)]
    for value, result in enumerate(kept):
        np.testing.assert_array_equal(result, _filled(2 * value))
    chained = twice(twice(twice(_filled(1))))
    np.testing.assert_array_equal(chained, _filled(8))


def test_what_was_dropped_is_written_again(twice: ft.Optimized):
    result = twice(_filled(1))
    place = result.ctypes.data
    assert place % 64 == 0
    del result
    assert twice(_filled(2)).ctypes.data == place


@pytest.mark.parametrize("view", [lambda y: y[3:5], lambda y: y.reshape(-1)[::2], lambda y: torch.from_numpy(y)[1]])
def test_a_view_keeps_the_memory(twice: ft.Optimized, view: Callable[[Any], Any]):
    part = view(twice(_filled(1)))
    later = twice(_filled(2))
    assert (part == 2).all() and (later == 4).all()


@pytest.mark.parametrize("view", [lambda y: y[3:5], lambda y: y.numpy(), lambda y: np.from_dlpack(y)[1:], torch.t])
def test_tensors_too(twice: ft.Optimized, view: Callable[[Any], Any]):
    ones, twos = torch.ones(_SHAPE), torch.full(_SHAPE, 2.0)
    twice(ones)
    result = twice(ones)
    place = result.data_ptr()
    part = view(result)
    del result
    later = twice(twos)
    assert later.data_ptr() != place
    assert (part == 2).all() and (later == 4).all()
    del part, later
    assert twice(ones).data_ptr() == place


def test_of_several_that_were_dropped_one_is_written_again(twice: ft.Optimized):
    results = [twice(_filled(1)) for _ in range(3)]
    places = {result.ctypes.data for result in results}
    assert len(places) == 3
    results.clear()
    assert twice(_filled(1)).ctypes.data in places


def test_threads_have_memory_of_their_own(twice: ft.Optimized):
    def call(value: float) -> bool:
        return all((twice(_filled(value)) == 2 * value).all() for _ in range(5))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(call, range(8)))


def test_small_results_own_their_memory():
    small = ft.optimize(lambda x: x * 2, (np.zeros((3, 5), np.float32),), machine=REFERENCE)
    assert small(np.ones((3, 5), np.float32)).flags.owndata
