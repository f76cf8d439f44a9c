"""The pointwise template: which loops it chooses; vectors, tails, pieces and tiles compute the same as the law."""

from __future__ import annotations

from functools import partial, reduce

import numpy as np
import pytest
from kernel_cases import Case, assert_agrees, build, element, gelu, load, number, reindex, softmax

from frittata.egraph import indexing, shapes
from frittata.egraph.indexing import IndexMap, permute_map, var
from frittata.egraph.machine import REFERENCE
from frittata.egraph.terms import Term
from frittata.kernels import runtime
from frittata.kernels.frames import choose_frame
from frittata.kernels.passes import plan_passes
from frittata.kernels.templates.pointwise import POINTWISE


def check(*bodies: Term, special: bool = False) -> None:
    case = Case("case", bodies, special)
    values = case.values()
    assert POINTWISE.estimate(bodies, frozenset(), REFERENCE) is not None
    assert_agrees(case, runtime.build(case.program("pointwise"), {})(*values), case.expected(values))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 17, 31, 64, 97, 131])
def test_every_length_of_tail(size: int, dtype: str) -> None:
    x, y = load("x", size, dtype=dtype), load("y", size, dtype=dtype)
    check(build(element("add", element("exp", x), element("div", x, y)), size), special=True)


@pytest.mark.parametrize("shape", [(5, 3, 7), (1, 3, 7), (5, 1, 7), (5, 3, 1), (3, 7), (3, 1), (7,), (1, 1, 1), ()])
def test_every_broadcast(shape: tuple[int, ...]) -> None:
    check(build(element("sub", load("x", 5, 3, 7), element("tanh", load("y", *shape))), 5, 3, 7))


def test_a_long_row_falls_into_pieces() -> None:
    check(build(gelu(load("x", 20_011)), 20_011))
    check(build(gelu(element("add", load("x", 3, 9001), load("y", 9001))), 3, 9001))


def test_many_rows_fall_into_slices() -> None:
    check(build(element("tanh", element("add", load("x", 211, 67), load("y", 67))), 211, 67))


@pytest.mark.parametrize("permutation", [(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("shape", [(3, 5, 7), (33, 20, 17), (2, 40, 50)])
def test_permuted_loads(shape: tuple[int, int, int], permutation: tuple[int, int, int]) -> None:
    mapping = indexing.permute_map(shape, permutation)
    turned = reindex(load("x", *shape), mapping)
    result = tuple(shape[p] for p in permutation)
    check(build(element("add", turned, load("b", *result)), *result), build(element("abs", turned), *result))


@pytest.mark.parametrize("dtype", ["u8", "f32", "f64"])
@pytest.mark.parametrize("shape", [(1024, 40), (2048, 17), (512, 33), (300, 64)])
def test_transposes_whose_lines_share_sets_of_a_cache(shape: tuple[int, int], dtype: str) -> None:
    """Their tiles have fewer rows; of results that differ in size the larger counts."""
    turned = reindex(load("x", *shape, dtype=dtype), indexing.permute_map(shape, (1, 0)))
    check(build(turned, *shape[::-1]), build(element("cast", turned, dtype="f64"), *shape[::-1]))


@pytest.mark.parametrize(("rows", "few"), [(1000, False), (1024, True), (1025, True), (1023, True), (1040, False)])
def test_tiles_are_low_where_lines_of_results_nearly_share_sets(rows: int, few: bool) -> None:
    body = build(reindex(load("x", rows, 1008), permute_map((rows, 1008), (1, 0))), 1008, rows)
    frame = choose_frame((body,))
    assert frame is not None
    passes = plan_passes(frame, body.args)
    assert (passes.tile_rows == 16) == few


def test_rows_of_one_tile() -> None:
    check(build(reindex(load("x", 40, 32), indexing.permute_map((40, 32), (1, 0))), 32, 40))


@pytest.mark.parametrize("rows", [16, 17, 40, 64])
def test_few_turned_rows_fall_into_pieces(rows: int) -> None:
    shape = (10_007, rows)
    body = build(gelu(reindex(load("x", *shape), indexing.permute_map(shape, (1, 0)))), rows, 10_007)
    assert POINTWISE.lower("turned", (body,), frozenset()).chunks > 1
    check(body)


@pytest.mark.parametrize(("length", "start", "step", "divisor"), [(7, -1, -1, 3), (13, -5, 1, 1), (33, 4, -1, 2)])
def test_an_index_is_clamped_to_each_view_that_it_goes_through(
    length: int, start: int, step: int, divisor: int
) -> None:
    for axis in (-2, -1):  # the middle of x, then indices beyond it
        part = reindex(load("x", 5, 5), indexing.slice_map((5, 5), axis, 1, 1, 3))
        source = (3, 5) if axis == -2 else (5, 3)
        mapping = indexing.resample_map(source, axis, length, start, step, divisor)
        body = reindex(part, mapping)
        shape = shapes.concrete(mapping.result)
        check(build(body, *shape), build(element("exp", body), *shape))


@pytest.mark.parametrize("dtype", ["f64", "i64", "i32", "bool"])
def test_permuted_loads_of_every_dtype(dtype: str) -> None:
    turned = reindex(load("x", 37, 41, dtype=dtype), indexing.permute_map((37, 41), (1, 0)))
    check(build(turned, 41, 37))


def test_sliced_strided_and_reversed_loads() -> None:
    x = load("x", 6, 40)
    inner = reindex(x, indexing.slice_map((6, 40), -1, 3, 2, 17))
    outer = reindex(load("y", 12, 17), indexing.slice_map((12, 17), -2, 1, 2, 6))
    backwards = reindex(load("z", 17), IndexMap((17,), (17,), (var(-1, 17) * -1 + 16,)))
    check(build(element("add", element("mul", inner, outer), backwards), 6, 17))


def test_reshaped_loads_go_through_one_loop() -> None:
    merged = reindex(load("x", 4, 6, 10), indexing.reshape_map((4, 6, 10), (24, 10)))
    body = build(element("add", merged, load("y", 24, 10)), 24, 10)
    frame = choose_frame((body,))
    assert frame is not None and (frame.extent, frame.rows) == (240, ())
    check(body)


def test_a_bias_keeps_the_last_axis_alone() -> None:
    frame = choose_frame((build(element("add", load("x", 2, 17, 64), load("b", 64)), 2, 17, 64),))
    assert frame is not None
    assert (frame.extent, [loop.extent for loop in frame.rows]) == (64, [34])


def neighbours(steps: int) -> Term:
    """Return so many steps, each the sum of four neighbours in the one before."""
    whole = load("x", 64, 64)
    for _ in range(steps):
        views = [(by, 0) for by in (1, 63)] + [(0, by) for by in (1, 63)]
        maps = [
            IndexMap((64, 64), (64, 64), ((var(-2, 64) + down) % 64, (var(-1, 64) + right) % 64))
            for down, right in views
        ]
        whole = reduce(partial(element, "add"), (reindex(whole, view) for view in maps))
    return whole


def test_steps_of_a_stencil_are_not_computed_again_at_ever_more_places() -> None:
    assert choose_frame((build(neighbours(3), 64, 64),)) is not None
    assert choose_frame((build(neighbours(14), 64, 64),)) is None
    long = load("x", 64, 64)
    for n in range(1000):
        long = element("mul", long, element("add", long, number(n)))
    assert choose_frame((build(long, 64, 64),)) is not None


def test_a_clamped_shift() -> None:
    shifted = reindex(load("x", 5, 19), IndexMap((5, 19), (5, 19), (var(-2, 5) + -1, var(-1, 19) + 3)))
    check(build(element("mul", shifted, load("y", 5, 19)), 5, 19))


def test_several_results_of_several_dtypes() -> None:
    x, i, flag = load("x", 9, 13), load("i", 13, dtype="i32"), load("f", 9, 1, dtype="bool")
    position = element("iota", axis=-1, extent=13)
    positive = element("and", element("gt", x, number(0)), flag)
    picked = element("where", positive, element("cast", i, dtype="f64"), element("cast", x, dtype="f64"))
    total = element("add", position, element("cast", i, dtype="i64"))
    check(build(positive, 9, 13), build(picked, 9, 13), build(total, 9, 13))


def test_what_does_not_move_along_the_lanes_is_computed_once_a_row() -> None:
    check(build(element("mul", load("x", 7, 33), element("exp", load("s", 7, 1))), 7, 33), special=True)


def test_a_fold_over_one_element_is_none() -> None:
    check(build(element("fold", load("x", 4, 1), op="sum", axis=-1, extent=1), 4, 1))


def test_bodies_with_folds_or_symbols_are_refused() -> None:
    assert POINTWISE.estimate((build(softmax(load("x", 4, 5), -1, 5), 4, 5),), frozenset(), REFERENCE) is None
    product = element("dot", load("a", 4, 5), load("b", 5, 6), depth=5)
    assert POINTWISE.estimate((build(product, 4, 6),), frozenset(), REFERENCE) is None


def test_gathers_are_dearer_than_consecutive_loads() -> None:
    def units(step: int) -> float:
        shape = (12, 4096 * step)
        body = build(reindex(load("x", *shape), indexing.slice_map(shape, -1, 0, step, 4096)), 12, 4096)
        found = POINTWISE.estimate((body,), frozenset(), REFERENCE)
        assert found is not None
        return found.flops

    assert units(50) > 5 * units(1)
    assert units(1) < units(2) < units(3) < units(50) / 2  # rows of three are loaded as columns


def test_chunks_depend_on_work_only() -> None:
    small = POINTWISE.lower("kernel", (build(element("add", load("x", 64), load("y", 64)), 64),), frozenset())
    assert small.chunks == 1
    large = POINTWISE.lower("kernel", (build(gelu(load("x", 1 << 20)), 1 << 20),), frozenset())
    assert large.chunks == 64
    assert len(large.source.splitlines()) < 12


def test_results_do_not_depend_on_where_a_vector_begins() -> None:
    body = build(gelu(load("x", 37)), 37)
    case = Case("case", (body,))
    run = runtime.build(case.program("pointwise"), {})
    (values,) = case.values()
    (straight,), (turned,) = run(values), run(values[::-1].copy())
    np.testing.assert_array_equal(straight, turned[::-1])
