"""Elements as vector code against the interpreter, and which loads an index becomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_cases import CASES, Array, Case, assert_agrees, build, case_named, load, reindex
from llvmlite import ir

from frittata.egraph import dtypes, indexing, shapes, terms
from frittata.egraph.indexing import Affine, IndexMap, var
from frittata.kernels.compile import compile_kernel
from frittata.kernels.element_emitter import ElementEmitter
from frittata.kernels.index_values import Along, IndexValues
from frittata.kernels.intrinsics import make_tile_intrinsic, table_pointer
from frittata.kernels.memory import store_masked
from frittata.kernels.simd import I64

LANES = 8
BINDERS = {"fold", "dot", "window_dot", "at", "scan"}
POINTWISE = [case for case in CASES if not any(t.op in BINDERS for t in terms.walk(*case.bodies))]


def run(case: Case, values: list[Array], *, multiple: int) -> tuple[Array, ...]:
    """Compute the bodies, lanes along the last axis, one intrinsic call for each vector of each row."""
    shape = shapes.concrete(case.bodies[0].shape)
    extents = shape or (1,)
    rank, width, rows = len(extents), extents[-1], int(np.prod(extents[:-1]))
    results = [np.empty(shape, dtypes.to_numpy(body.dtype)) for body in case.bodies]

    def emit(builder: Any, table: Any, row: Any, j: Any, count: Any) -> None:
        leaves = [*case.operands, *case.bodies]
        pointers = {leaf: table_pointer(builder, table, i, leaf.dtype) for i, leaf in enumerate(leaves)}
        along = Along(-1, LANES, multiple, None if width % LANES == 0 else count)
        emitter = ElementEmitter(builder, pointers, {"row": row, -1: j}, along)
        index = {-1: var(-1, width)}
        rest = var("row", rows)
        for axis in range(-2, -rank - 1, -1):
            index[axis] = rest % extents[axis]
            rest = rest // extents[axis]
        place = emitter.values.first(indexing.flatten(tuple(index[a] for a in range(-rank, 0)), extents))
        for body in case.bodies:
            store_masked(builder, emitter.emit(body.args[0], index), pointers[body], place, count)

    source = f"""def kernel(table, chunk):
    for row in range({rows}):
        for j in range(0, {width}, {LANES}):
            tile(table, row, j, min({width} - j, {LANES}))
"""
    tile = make_tile_intrinsic("tile", emit, 3)
    key = f"{case.name} {multiple}"
    kernel = compile_kernel(source, "kernel", {"tile": tile}, key=key)
    call(kernel.address, [*values, *results])
    return tuple(results)


def call(address: int, arrays: list[Array]) -> None:
    import ctypes

    table = np.array([array.ctypes.data for array in arrays], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(address)(table.ctypes.data, 0)


@pytest.mark.parametrize("case", POINTWISE, ids=lambda case: case.name)
def test_vector_code_computes_what_the_interpreter_does(case: Case) -> None:
    values = case.values()
    assert_agrees(case, run(case, values, multiple=LANES), case.expected(values))


@pytest.mark.parametrize(
    ("offset", "multiple", "slope"),
    [
        (var("i", 5) * 40 + var("j", 40), 1, 1),
        (var("j", 40) * 3 + 2, 1, 3),
        (var("i", 5) + 7, 1, 0),
        (var("j", 64) // 16, 16, 0),
        (var("j", 64) % 16, 16, 1),
        (var("j", 64) % 16, 1, None),
        (var("j", 64) // 4, 16, None),
        ((var("j", 64) % 16) // 8, 16, 0),
        ((var("i", 5) * 16 + var("j", 64)) % 32, 8, 1),
        ((var("j", 64) + 4) % 32, 8, None),
        (((var("j", 64) + 4) % 32) * 2, 16, 2),
    ],
    ids=str,
)
def test_offsets_grow_from_lane_to_lane(offset: Affine, multiple: int, slope: int | None) -> None:
    values = IndexValues(ir.IRBuilder(), {"i": I64(0), "j": I64(0)}, Along("j", LANES, multiple))
    assert values.slope(offset) == slope


@pytest.mark.parametrize(
    ("offset", "multiple", "size", "block"),
    [
        (var("j", 64) // 4 * 4 + 3, 8, 64, (8, (3, 3, 3, 3, 7, 7, 7, 7))),
        (var("i", 5) * 64 + var("j", 64) // 4 * 2, 8, 320, (4, (0, 0, 0, 0, 2, 2, 2, 2))),
        (var("j", 64) // 2 + 4, 8, 36, (4, (0, 0, 1, 1, 2, 2, 3, 3))),
        (var("j", 64) % 4 + var("j", 64) // 4 * 4, 8, 64, (8, tuple(range(8)))),
        ((var("j", 64) // 2) % 8 + 8, 8, 16, (4, (0, 0, 1, 1, 2, 2, 3, 3))),
        (var("j", 64) // 4 * 4 + 3, 4, 64, None),  # lanes may begin at the second group of a block
        (var("j", 64) // 4 * 4 + 3, 8, 68, None),  # the last block would end after the buffer
        (var("i", 5) + var("j", 64) // 4 * 4, 8, 64, None),  # blocks begin anywhere
        (var("j", 64) // 3, 8, 24, None),
        (var("j", 64) // 4 * 16, 8, 256, None),  # farther apart than a block is long
    ],
    ids=str,
)
def test_lanes_in_one_aligned_block(
    offset: Affine, multiple: int, size: int, block: tuple[int, tuple[int, ...]] | None
) -> None:
    values = IndexValues(ir.IRBuilder(), {"i": I64(0), "j": I64(0)}, Along("j", LANES, multiple))
    assert values.block(offset, size) == block


def test_repeated_elements_are_one_load_and_a_permutation() -> None:
    repeated = IndexMap((6, 24), (6, 48), (var(-2, 6), var(-1, 48) // 2))
    case = Case("repeated", (build(reindex(load("x", 6, 24), repeated), 6, 48),))
    values = case.values()
    assert_agrees(case, run(case, values, multiple=LANES), case.expected(values))


def test_views_that_stay_in_a_block_load_consecutive_elements() -> None:
    split = reindex(load("x", 6, 48), indexing.reshape_map((6, 48), (6, 3, 16)))
    heads = reindex(split, indexing.permute_map((6, 3, 16), (1, 0, 2)))
    merged = reindex(heads, indexing.reshape_map((3, 6, 16), (18, 16)))
    case = Case("merged", (build(merged, 18, 16),))
    values = case.values()
    assert_agrees(case, run(case, values, multiple=LANES), case.expected(values))


def test_a_clamped_index_is_clamped_in_every_lane() -> None:
    case = case_named("clamped")
    values = case.values(seed=3)
    assert_agrees(case, run(case, values, multiple=1), case.expected(values))
