"""Vector loads, stores, folds and loops at every lane count."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from frittata.egraph.dtypes import to_numpy
from frittata.kernels import memory, simd
from frittata.kernels.compile import compile_kernel
from frittata.kernels.flow import apart, for_range, rarely
from frittata.kernels.intrinsics import make_tile_intrinsic, table_pointer, table_value
from frittata.kernels.simd import I64, Lane

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = ["bool", "u8", "i8", "u16", "i16", "i32", "i64", "bf16", "f16", "f32", "f64"]


def run(emit: Any, key: str, dtype: str, source: Array, size: int, count: int = 0) -> Array:
    """Run `emit(builder, source pointer, result pointer, count)` once; the result starts as ones."""

    def body(builder: Any, table: Any) -> None:
        pointers = [table_pointer(builder, table, i, dtype) for i in range(2)]
        emit(builder, *pointers, table_value(builder, table, 2))

    result = np.ones(size, source.dtype)
    namespace = {"body": make_tile_intrinsic("body", body, 0)}
    kernel = compile_kernel("def probe(table, chunk):\n    body(table)\n", "probe", namespace, key=key)
    table = np.array([source.ctypes.data, result.ctypes.data, count], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(kernel.address)(table.ctypes.data, 0)
    return result


def data(dtype: str, size: int = 64) -> Array:
    return (np.arange(size) % 7 % 3).astype(to_numpy(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_lanes_are_copied(dtype: str, lanes: int) -> None:
    lane, x = Lane(dtype, lanes), data(dtype)

    def emit(builder: Any, source: Any, result: Any, _: Any) -> None:
        memory.store(builder, memory.load(builder, lane, source, 3), result, 1)

    expected = np.ones(16, x.dtype)
    expected[1 : 1 + lanes] = x[3 : 3 + lanes]
    np.testing.assert_array_equal(run(emit, f"copy {lane}", dtype, x, 16), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("known", [True, False])
def test_masked_lanes_leave_memory_alone(dtype: str, count: int, known: bool) -> None:
    lane, x = Lane(dtype, 8), data(dtype)

    def emit(builder: Any, source: Any, result: Any, number: Any) -> None:
        valid = count if known else number
        value = memory.load_masked(builder, lane, source, 2, valid)
        memory.store(builder, value, result, 0)
        memory.store_masked(builder, value, result, 10, valid)

    expected = np.ones(20, x.dtype)
    expected[:8] = 0
    expected[:count] = expected[10 : 10 + count] = x[2 : 2 + count]
    np.testing.assert_array_equal(run(emit, f"mask {lane} {count} {known}", dtype, x, 20, count), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", [1, 2, 8, 16])
@pytest.mark.parametrize("stride", [2, 3, 4, 7, 100, -1])
def test_lanes_of_any_stride_are_loaded(dtype: str, lanes: int, stride: int) -> None:
    lane, x = Lane(dtype, lanes), np.resize(data(dtype), 2 + abs(stride) * (lanes - 1))
    first = 1 if stride > 0 else lanes

    def emit(builder: Any, source: Any, result: Any, count: Any) -> None:
        memory.store(builder, memory.load_strided(builder, lane, source, first, stride), result, 0)

    expected = np.ones(lanes, x.dtype)
    expected[:] = x[first::stride][:lanes]
    np.testing.assert_array_equal(run(emit, f"every {stride} {lane}", dtype, x, lanes, lanes), expected)


@pytest.mark.parametrize("dtype", ["f32", "f64", "bool"])
@pytest.mark.parametrize("count", [1, 3, 5, 7])
def test_the_first_lanes_are_stored_in_parts(dtype: str, count: int) -> None:
    lane, x = Lane(dtype, 8), data(dtype)

    def emit(builder: Any, source: Any, result: Any, _: Any) -> None:
        memory.store_masked(builder, memory.load(builder, lane, source, 2), result, 4, count)

    expected = np.ones(16, x.dtype)
    expected[4 : 4 + count] = x[2 : 2 + count]
    np.testing.assert_array_equal(run(emit, f"part {lane} {count}", dtype, x, 16, count), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", [1, 8])
def test_strided_lanes_are_gathered_and_scattered(dtype: str, lanes: int) -> None:
    lane, x = Lane(dtype, lanes), data(dtype)

    def emit(builder: Any, source: Any, result: Any, count: Any) -> None:
        value = memory.load_strided(builder, lane, source, 1, 5)
        memory.store_scatter(builder, value, result, memory.strided_offsets(builder, lanes, 2, 3))
        short = memory.load_strided(builder, lane, source, 0, 2, count)
        memory.store_scatter(builder, short, result, memory.strided_offsets(builder, lanes, 30, 1), count)
        memory.store(builder, short, result, 40)

    count = min(3, lanes)
    expected = np.ones(64, x.dtype)
    expected[2 : 2 + 3 * lanes : 3] = x[1 : 1 + 5 * lanes : 5]
    expected[30 : 30 + count] = x[0 : 2 * count : 2]
    expected[40 : 40 + lanes] = x[2 * np.minimum(np.arange(lanes), count - 1)]
    np.testing.assert_array_equal(run(emit, f"stride {lane}", dtype, x, 64, count), expected)


@pytest.mark.parametrize("dtype", ["i32", "f32", "f64"])
@pytest.mark.parametrize(("lanes", "rows"), [(1, 1), (4, 2), (4, 4), (8, 1), (8, 4), (16, 4), (16, 8)])
def test_columns_of_several_rows_are_stored_one_after_the_other(dtype: str, lanes: int, rows: int) -> None:
    lane, x = Lane(dtype, lanes), data(dtype)
    apart = rows + 1

    def emit(builder: Any, source: Any, result: Any, count: Any) -> None:
        values = [memory.load(builder, lane, source, row) for row in range(rows)]
        places = [I64(column * apart) for column in range(lanes)]
        memory.store_columns(builder, values, result, places)
        memory.store_columns(builder, values, memory.advance(builder, result, lanes * apart), places, count)

    count = min(3, lanes)
    expected = np.ones((2 * lanes, apart), x.dtype)
    for row in range(rows):
        expected[:lanes, row] = x[row : row + lanes]
        expected[lanes : lanes + count, row] = x[row : row + count]
    found = run(emit, f"columns {lane} {rows}", dtype, x, expected.size, count)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 8), ("f64", 4), ("i64", 2), ("bool", 8)])
@pytest.mark.parametrize("picked", [True, False])
def test_rows_are_loaded_as_columns_and_stored_as_rows(
    dtype: str, lanes: int, picked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_pick_steps", lambda: 0.0 if picked else 1e3)
    lane, counts = Lane(dtype, lanes), (1, 2, 3, 4, 5, 9, 12)
    drawn, size = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, 300), lanes * 13
    x = drawn.astype(to_numpy(dtype))
    places = [2 * size * i for i in range(len(counts))]

    def emit(builder: Any, source: Any, result: Any, _: Any) -> None:
        for count, place in zip(counts, places, strict=True):
            columns = memory.load_columns(builder, lane, source, 3, count)
            for number, column in enumerate(columns):
                memory.store(builder, column, result, place + number * lanes)
            memory.store_rows(builder, columns, result, place + size)

    expected = np.ones(2 * size * len(counts), x.dtype)
    for count, place in zip(counts, places, strict=True):
        rows = x[3 : 3 + lanes * count]
        expected[place : place + rows.size] = rows.reshape(lanes, count).T.reshape(-1)
        expected[place + size :][: rows.size] = rows
    found = run(emit, f"turn {lane} {picked}", dtype, x, expected.size)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["i32", "i64", "f32", "f64"])
@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_lanes_fold_to_one(dtype: str, lanes: int) -> None:
    lane = Lane(dtype, lanes)
    x = (np.arange(64) % 5 - 2.5).astype(to_numpy(dtype))

    def emit(builder: Any, source: Any, result: Any, _: Any) -> None:
        value = memory.load(builder, lane, source)
        for i, (fold, combine) in enumerate(simd.COMBINE_BY_FOLD.items()):
            memory.store(builder, simd.reduce(builder, fold, value), result, i)
            neutral = combine(builder, value, simd.neutral(lane, fold))
            memory.store(builder, simd.reduce(builder, fold, neutral), result, 4 + i)

    part = x[:lanes]
    expected = [part.sum(), part.prod(), part.max(), part.min()] * 2
    np.testing.assert_array_equal(run(emit, f"fold {lane}", dtype, x, 8), expected)


@pytest.mark.parametrize("position", range(8))
def test_a_nan_in_any_lane_reaches_the_fold(position: int) -> None:
    x = np.ones(8, np.float32)
    x[position] = np.nan

    def emit(builder: Any, source: Any, result: Any, _: Any) -> None:
        for i, fold in enumerate(simd.COMBINE_BY_FOLD):
            memory.store(builder, simd.reduce(builder, fold, memory.load(builder, Lane("f32", 8), source)), result, i)

    assert np.isnan(run(emit, "nan", "f32", x, 4)).all()


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("known", [True, False])
def test_a_loop_runs_as_often_as_range(count: int, known: bool) -> None:
    lane = Lane("i64")

    def emit(builder: Any, _: Any, result: Any, number: Any) -> None:
        limit = 2 * count if known else builder.mul(number, simd.I64(2))
        zeros = [simd.constant(lane, 0)] * 2
        loop = for_range(
            builder, 0, limit, 2, zeros, lambda i, c: [builder.add(c[0], i), builder.add(c[1], simd.I64(1))]
        )
        for i, value in enumerate(loop):
            memory.store(builder, value, result, i)

    expected = [sum(range(0, 2 * count, 2)), count]
    assert run(emit, f"loop {count} {known}", "i64", np.zeros(1, np.int64), 2, count).tolist() == expected


@pytest.mark.parametrize("value", [1, 7])
def test_a_rare_branch_is_taken_when_its_condition_holds(value: int) -> None:
    def emit(builder: Any, _: Any, result: Any, number: Any) -> None:
        condition = simd.compare(builder, ">", number, simd.I64(5))
        chosen = rarely(builder, condition, number, lambda: builder.neg(number))
        memory.store(builder, chosen, result)

    assert run(emit, "rare", "i64", np.zeros(1, np.int64), 1, value).tolist() == [value if value <= 5 else -value]


def test_what_is_computed_apart_is_one_function_for_all_places() -> None:
    """One for each name and types of operands."""
    found: list[str] = []

    def emit(builder: Any, _: Any, result: Any, number: Any) -> None:
        for at in range(3):
            value = apart(builder, "negative", [builder.add(number, simd.I64(at))], lambda inside, x: inside.neg(x))
            memory.store(builder, value, result, at)
        single = apart(builder, "negative", [simd.constant(Lane("f32"), 2.0)], lambda inside, x: inside.fneg(x))
        memory.store(builder, builder.fptosi(single, simd.I64), result, 3)
        found.extend(name for name in builder.module.globals if name.startswith("negative"))

    assert run(emit, "apart", "i64", np.zeros(1, np.int64), 4, 5).tolist() == [-5, -6, -7, -2]
    assert sorted(found) == ["negative.f32", "negative.i64"]
