"""Register tiles and packing against numpy, at sizes that do not divide."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from frittata.egraph.dtypes import to_numpy
from frittata.kernels import packing, tiles
from frittata.kernels.compile import compile_kernel
from frittata.kernels.intrinsics import make_tile_intrinsic, table_pointer, table_value
from frittata.kernels.memory import advance, store

Array = np.ndarray[Any, np.dtype[Any]]
LANES = {"f32": 8, "f64": 4}
TOLERANCE = {"f32": 1e-5, "f64": 1e-13}


def run_tile(emit: Any, key: str, *arguments: Array | int) -> None:
    """Compile and run a kernel of one tile; arrays become addresses in its table."""
    source = "def tile(table, chunk):\n    body(table)\n"
    kernel = compile_kernel(source, "tile", {"body": make_tile_intrinsic("body", emit, 0)}, key=key)
    table = np.array([a if isinstance(a, int) else a.ctypes.data for a in arguments], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(kernel.address)(table.ctypes.data, 0)


def packed(weights: Array, width: int) -> Array:
    depth, columns = weights.shape
    panels = packing.aligned_zeros((-(-columns // width), depth, width), weights.dtype)
    packing.fill_panels(panels, weights)
    return panels


def store_tile(builder: Any, accumulators: tiles.Accumulators, pointer: Any, width: int) -> None:
    for row, vectors in enumerate(accumulators):
        for column, value in enumerate(vectors):
            store(builder, value, pointer, row * width + column * (width // len(vectors)))


def random(dtype: str, *shape: int) -> Array:
    return np.random.default_rng(1).normal(size=shape).astype(to_numpy(dtype))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("depth", [1, 7, 17, 64])
@pytest.mark.parametrize(("rows", "vectors"), [(1, 2), (6, 2), (3, 3)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_dot_tile_is_a_matrix_product(dtype: str, depth: int, rows: int, vectors: int, symbolic: bool) -> None:
    width = vectors * LANES[dtype]
    a, b, c = random(dtype, rows, depth), random(dtype, depth, width), random(dtype, rows, width)
    panel = packed(b, width)

    def emit(builder: Any, table: Any) -> None:
        left, right, result = (table_pointer(builder, table, i, dtype) for i in range(3))
        pointers = [advance(builder, left, row * depth) for row in range(rows)]
        count = table_value(builder, table, 3) if symbolic else depth
        shape = rows, vectors, LANES[dtype], dtype
        tile = tiles.emit_panels_tile(builder, *shape, count, pointers, [right], prefetch_pointer=right)
        store_tile(builder, tile, result, width)

    run_tile(emit, f"dot {dtype} {depth} {rows} {vectors} {symbolic}", a, panel, c, depth)
    np.testing.assert_allclose(c, a @ b, TOLERANCE[dtype], TOLERANCE[dtype] * depth)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_dot_tile_goes_on_from_given_accumulators_and_strided_rows(dtype: str) -> None:
    rows, vectors, depth, lanes = 4, 2, 9, LANES[dtype]
    width = vectors * lanes
    a, b, c = random(dtype, depth, rows), random(dtype, 2, depth, width), np.zeros((rows, width), to_numpy(dtype))

    def emit(builder: Any, table: Any) -> None:
        left, right, result = (table_pointer(builder, table, i, dtype) for i in range(3))
        pointers = [advance(builder, left, row) for row in range(rows)]
        tile = None
        for part in range(2):
            panel = advance(builder, right, part * depth * width)
            shape = rows, vectors, lanes, dtype
            tile = tiles.emit_panels_tile(builder, *shape, depth, pointers, [panel], tile, a_stride=rows, unroll=3)
        assert tile is not None
        store_tile(builder, tile, result, width)

    run_tile(emit, f"strided {dtype}", a, b, c)
    np.testing.assert_allclose(c, a.T @ (b[0] + b[1]), TOLERANCE[dtype] * 10, TOLERANCE[dtype] * 10)


@pytest.mark.parametrize("depth", [1, 17])
def test_several_panels_serve_one_row(depth: int) -> None:
    panels, width = 4, 16
    a, b, c = random("f32", 1, depth), random("f32", depth, panels * width), np.zeros((1, panels * width), np.float32)
    stacked = packed(b, width)

    def emit(builder: Any, table: Any) -> None:
        left, right, result = (table_pointer(builder, table, i, "f32") for i in range(3))
        pointers = [advance(builder, right, panel * depth * width) for panel in range(panels)]
        tile = tiles.emit_panels_tile(builder, 1, 2, 8, "f32", depth, [left], pointers, unroll=2)
        store_tile(builder, tile, result, panels * width)

    run_tile(emit, f"panels {depth}", a, stacked, c)
    np.testing.assert_allclose(c, a @ b, 1e-5, 1e-4)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("channels", [1, 7, 17])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (2, 3)])
def test_window_tile_is_a_convolution(dtype: str, channels: int, stride: int, dilation: int) -> None:
    height, width, kernel, rows, vectors = 9, 11, (3, 2), 5, 2
    columns = vectors * LANES[dtype]
    x, w = random(dtype, height, width, channels), random(dtype, *kernel, channels, columns)
    out_width = (width - dilation * (kernel[1] - 1) - 1) // stride + 1
    pixels = [divmod(p, out_width) for p in range(rows)]
    offsets = [(i * stride * width + j * stride) * channels for i, j in pixels]
    result = np.zeros((rows, columns), to_numpy(dtype))
    segments, length = [(kernel[0], dilation * width * channels)], kernel[1] * channels
    if dilation > 1:
        segments, length = [*segments, (kernel[1], dilation * channels)], channels

    def emit(builder: Any, table: Any) -> None:
        image, weights, target = (table_pointer(builder, table, i, dtype) for i in range(3))
        windows = [advance(builder, image, int(offset)) for offset in offsets]
        shape = rows, vectors, LANES[dtype], dtype
        tile = tiles.emit_window_tile(builder, *shape, segments, length, windows, [weights], prefetch_pointer=weights)
        store_tile(builder, tile, target, columns)

    run_tile(emit, f"window {dtype} {channels} {stride} {dilation}", x, w, result)
    expected = np.zeros_like(result)
    for row, (i, j) in enumerate(pixels):
        for p in range(kernel[0]):
            for q in range(kernel[1]):
                expected[row] += x[i * stride + p * dilation, j * stride + q * dilation] @ w[p, q]
    np.testing.assert_allclose(result, expected, TOLERANCE[dtype] * 10, TOLERANCE[dtype] * 10)


def test_rows_are_cut_into_equal_tiles() -> None:
    for rows in range(1, 200):
        tiling = packing.tile_rows(rows)
        assert tiling.large_tiles * tiling.large_rows + tiling.small_tiles * tiling.small_rows == rows
        assert tiling.large_rows <= packing.MOST_ROWS
        assert tiling.tiles == -(-rows // packing.MOST_ROWS)
    assert packing.tile_rows(8) == packing.RowTiling(4, 2, 0)


def test_panels_are_aligned_and_padded_with_zeros() -> None:
    weights = random("f32", 5, 37)
    panels = packed(weights, 16)
    assert panels.shape == (3, 5, 16)
    assert panels.ctypes.data % 64 == 0
    joined = panels.transpose(1, 0, 2).reshape(5, 48)
    np.testing.assert_array_equal(joined[:, :37], weights)
    assert not joined[:, 37:].any()


def test_large_weights_are_packed_as_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.default_rng(0).standard_normal((37, 50)).astype(np.float32).T
    alone = packed(weights, 16)
    monkeypatch.setattr(packing, "_LEAST_SHARED_BYTES", 0)
    np.testing.assert_array_equal(packed(weights, 16), alone)
    np.testing.assert_array_equal(alone.transpose(1, 0, 2).reshape(50, 48)[:, :37], weights)
    assert not alone.transpose(1, 0, 2).reshape(50, 48)[:, 37:].any()


def test_unrolling_leaves_nothing_over_where_it_can() -> None:
    assert [tiles.unroll_for(depth) for depth in (768, 21, 9, 11)] == [4, 7, 3, 4]
