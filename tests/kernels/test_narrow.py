"""Float16 and bfloat16 from memory to registers and back: every value, and what lies between two of them."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from frittata.egraph.dtypes import to_numpy
from frittata.kernels import memory, narrow, vmath
from frittata.kernels.compile import compile_kernel
from frittata.kernels.intrinsics import make_tile_intrinsic, table_pointer
from frittata.kernels.processor import processor
from frittata.kernels.simd import Lane

Array = np.ndarray[Any, np.dtype[Any]]
LANES = 8
WAYS = ["instructions", "bits"]


def converted(source: Array, dtype: str, to: str, way: str) -> Array:
    """Cast values with vector code."""

    def emit(builder: Any, table: Any, first: Any) -> None:
        given, result = (table_pointer(builder, table, i, name) for i, name in enumerate((dtype, to)))
        value = memory.load(builder, Lane(dtype, LANES), given, first)
        memory.store(builder, vmath.cast(builder, value, to), result, first)

    text = f"def cast(table, chunk):\n    for first in range(0, {source.size}, {LANES}):\n        tile(table, first)\n"
    kernel = compile_kernel(text, "cast", {"tile": make_tile_intrinsic("tile", emit, 1)}, key=f"{dtype} {to} {way}")
    result = np.empty(source.size, to_numpy(to))
    table = np.array([source.ctypes.data, result.ctypes.data], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(kernel.address)(table.ctypes.data, 0)
    return result


def choose(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convert float16 by instructions, where there are any, or by its bits."""
    chosen = processor() if way == "instructions" else replace(processor(), halves=False)
    monkeypatch.setattr(narrow, "processor", lambda: chosen)


def assert_same_bits(found: Array, expected: Array) -> None:
    """Compare bit by bit, but for NaN, whose sign and payload are nobody's."""
    numbers = expected == expected
    np.testing.assert_array_equal(found == found, numbers)
    bits = f"u{found.itemsize}"
    np.testing.assert_array_equal(found.view(bits)[numbers], expected.view(bits)[numbers])


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("way", WAYS)
def test_every_half_is_widened(dtype: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(way, monkeypatch)
    every = np.arange(1 << 16, dtype=np.uint16).view(to_numpy(dtype))
    assert_same_bits(converted(every, dtype, "f32", way), every.astype(np.float32))


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("way", WAYS)
def test_floats_become_the_nearest_half_and_of_two_the_even_one(
    dtype: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(way, monkeypatch)
    every = np.arange(1 << 16, dtype=np.uint16).view(to_numpy(dtype)).astype(np.float32)
    with np.errstate(all="ignore"):
        between = every + (np.roll(every, -1) - every) / 2  # exact: a float32 has a bit to spare
        drawn = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, np.uint32).view(np.float32)
        beside = [np.nextafter(between, np.float32(end)) for end in (-np.inf, np.inf)]
        given = np.concatenate([every, between, *beside, drawn])
        expected = given.astype(to_numpy(dtype))
    assert_same_bits(converted(given, "f32", dtype, way), expected)


@pytest.mark.parametrize("dtype", ["u8", "i8", "u16", "i16"])
def test_integers_wrap(dtype: str) -> None:
    given = np.arange(-70_000, 70_000, dtype=np.int32)
    np.testing.assert_array_equal(converted(given, "i32", dtype, ""), given.astype(to_numpy(dtype)))
    every = given.astype(to_numpy(dtype))
    np.testing.assert_array_equal(converted(every, dtype, "i32", ""), every.astype(np.int32))
