"""The row template: passes, what they hold, and that rows, columns and their tails compute the same as the law."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_cases import (
    Array,
    Case,
    assert_agrees,
    build,
    element,
    fold,
    gelu,
    layer_norm,
    load,
    mean,
    number,
    pool,
    reindex,
    softmax,
)

import frittata as ft
from frittata.egraph import dtypes, indexing, shapes
from frittata.egraph.machine import REFERENCE
from frittata.egraph.terms import Term
from frittata.kernels import runtime
from frittata.kernels.compile import compile_kernel
from frittata.kernels.element_emitter import SIDE_BY_SIDE
from frittata.kernels.frames import choose_frame
from frittata.kernels.lowered import Scratch
from frittata.kernels.passes import Passes, plan_passes
from frittata.kernels.processor import processor
from frittata.kernels.templates.row import ROW


def run(*bodies: Term, values: list[Array] | None = None, special: bool = False) -> tuple[Array, ...]:
    case = Case("case", bodies, special)
    values = values or case.values()
    assert ROW.estimate(bodies, frozenset(), REFERENCE) is not None
    got = runtime.build(case.program("row"), {})(*values)
    assert_agrees(case, got, case.expected(values))
    return got


def plan(*bodies: Term) -> Passes:
    frame = choose_frame(bodies)
    assert frame is not None
    return plan_passes(frame, tuple(body.args[0] for body in bodies))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("extent", [2, 3, 7, 8, 17, 31, 64, 97, 131])
def test_every_length_of_tail(extent: int, dtype: str) -> None:
    x = load("x", 5, extent, dtype=dtype)
    run(build(softmax(x, -1, extent), 5, extent))
    w, b = load("w", extent, dtype=dtype), load("b", extent, dtype=dtype)
    run(build(layer_norm(x, w, b, extent), 5, extent))


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
def test_every_fold_of_every_dtype(op: str, dtype: str) -> None:
    run(build(fold(op, load("x", 3, 13, dtype=dtype), -1, 13), 3, 1))
    run(build(fold(op, load("x", 3, 13, 11, dtype=dtype), -2, 13), 3, 1, 11))


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("columns", [2, 3, 5, 7])
def test_few_columns_are_folded_along_the_lanes(columns: int, op: str) -> None:
    for rows in (7, 40, 67, 300):
        x, y = load("x", 5, rows, columns), load("y", rows, 1)
        run(build(fold(op, element("mul", element("tanh", x), y), -2, rows), 5, 1, columns))


def test_lanes_along_the_fold_are_cheaper_than_two_of_them_across() -> None:
    bodies = (build(fold("sum", element("tanh", load("x", 5, 300, 2)), -2, 300), 5, 1, 2),)
    along = choose_frame(bodies, exchanged=True)
    assert along is not None and along.extent == 300 and not along.columns
    assert plan_passes(along, (bodies[0].args[0],)).units < plan(*bodies).units


@pytest.mark.parametrize("shape", [(7, 4, 4), (5, 3, 40), (6, 2, 3, 4)])
def test_few_columns_that_are_stored_across(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Neither of the last axes is folded, and the lanes run over the one that is stored side by side."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for turned in (lambda x: np.mean(x, 0, keepdims=True), lambda x: x - np.mean(x, 0, keepdims=True)):
        fast = ft.optimize(lambda x, f=turned: np.swapaxes(f(x), -1, -2), (x,), machine=REFERENCE, cache=tmp_path)
        np.testing.assert_allclose(fast(x), np.swapaxes(turned(x.astype(np.float64)), -1, -2), atol=1e-6)


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("size", [7, 9, 14])
def test_windows_as_large_as_the_image_are_folded_along_the_lanes(size: int, op: str) -> None:
    e, shape = pool(element("square", load("x", 3, 40, size, size)), op, (size, size), 1, 0)
    bodies = (build(element("exp", element("mul", e, number(0.01))), *shape),)
    along = choose_frame(bodies, exchanged=True)
    assert along is not None and along.extent == size * size and not along.columns
    assert plan_passes(along, (bodies[0].args[0],)).units < plan(*bodies).units
    run(*bodies)


def test_what_is_computed_of_a_fold_is_counted() -> None:
    total = fold("sum", load("x", 200, 31), -1, 31)
    plain, power = (plan(build(e, 200, 1)).units for e in (total, element("pow", total, number(0.3))))
    assert power > plain + 200 * 100 * processor().width / 4


@pytest.mark.parametrize("extent", [1, 3, 7, 8, 19, 33, 70])
def test_folds_down_columns(extent: int) -> None:
    x = load("x", 2, 9, extent)
    run(build(softmax(x, -2, 9), 2, 9, extent))
    run(build(element("mul", fold("sum", gelu(x), -2, 9), number(0.5)), 2, 1, extent))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("extent", [17, 64, 127, 300, 513])
def test_folds_down_columns_of_many_rows_take_blocks_as_wide_as_registers_hold(extent: int, dtype: str) -> None:
    x = load("x", 67, 5, extent, dtype=dtype)
    one = build(fold("sum", gelu(x), -2, 5), 67, 1, extent)
    both = one, build(fold("max", x, -2, 5), 67, 1, extent)
    run(one, special=True)
    run(*both, special=True)
    found, registers = plan(one), processor().registers
    assert found.vectors == min(-(-extent // found.frame.lanes), registers // 2)
    assert plan(*both).vectors == min(-(-extent // found.frame.lanes), max(registers // 4, SIDE_BY_SIDE))


def test_of_long_elements_fewer_vectors_go_side_by_side() -> None:
    def chain(length: int) -> Term:
        e = load("x", 3, 200)
        for _ in range(length):
            e = element("add", element("log", element("add", element("mul", e, e), number(1.0))), load("y", 3, 200))
        return build(fold("sum", e, -1, 200), 3, 1)

    short, long = chain(2), chain(60)
    assert plan(short).vectors == SIDE_BY_SIDE and plan(long).vectors == 1
    run(long)


@pytest.mark.parametrize(("dtype", "least"), [("f32", -120.0), ("f64", -760.0)])
def test_exponentials_below_a_maximum_are_those_of_exp(dtype: str, least: float) -> None:
    x = load("x", 2, 4099, dtype=dtype)
    below = Case("below", (build(element("exp", element("sub", x, fold("max", x, -1, 4099))), 2, 4099),))
    plain = Case("plain", (build(element("exp", x), 2, 4099),))
    values = np.linspace(least, 0.0, 2 * 4099).reshape(2, 4099).astype(dtypes.to_numpy(dtype))
    values[:, -1], values[1, 7] = 0.0, -np.inf
    (got,), (law,) = (runtime.build(c.program(t), {})(values) for c, t in ((below, "row"), (plain, "pointwise")))
    assert got.tobytes() == law.tobytes()
    assert np.count_nonzero((got > 0) & (got < np.finfo(got.dtype).tiny)) > 0


def test_folds_over_several_trailing_axes_run_along_one_loop() -> None:
    total = fold("sum", fold("sum", load("x", 6, 7, 7), -1, 7), -2, 7)
    assert plan(build(total, 6, 1, 1)).frame.extent == 49
    run(build(total, 6, 1, 1))
    run(build(element("sub", load("x", 6, 7, 7), total), 6, 7, 7))


def test_folds_over_axes_that_are_not_one_loop() -> None:
    scaled = element("mul", load("x", 3, 5, 18), load("y", 18))
    total = fold("max", fold("max", scaled, -1, 18), -2, 5)
    run(build(element("sub", element("exp", scaled), total), 3, 5, 18))
    around = fold("sum", fold("sum", load("x", 5, 3, 18), -1, 18), -3, 5)
    run(build(around, 1, 3, 1))


def test_a_fold_of_all() -> None:
    run(build(fold("sum", load("x", 1000), -1, 1000), 1))
    run(build(softmax(load("x", 77), -1, 77), 77))


def test_folds_of_permuted_and_masked_elements() -> None:
    turned = reindex(load("x", 4, 6, 33), indexing.permute_map((4, 6, 33), (1, 0, 2)))
    causal = element("le", element("iota", axis=-1, extent=33), element("iota", axis=-2, extent=4))
    masked = element("where", causal, turned, number(float("-inf")))
    run(build(softmax(masked, -1, 33), 6, 4, 33))
    strided = reindex(load("y", 33, 6), indexing.permute_map((33, 6), (1, 0)))
    run(build(softmax(strided, -1, 33), 6, 33))


def test_nan_and_infinities_go_through_folds() -> None:
    rows = np.zeros((6, 19), np.float32)
    rows[0, 3], rows[1, 18], rows[2, 5], rows[3, :] = np.nan, np.nan, np.inf, -np.inf
    rows[4, 7] = -np.inf
    x = load("x", 6, 19)
    run(build(softmax(x, -1, 19), 6, 19), values=[rows])
    for op in ("max", "min", "sum"):
        run(build(fold(op, x, -1, 19), 6, 1), values=[rows])
        run(build(fold(op, load("x", 19, 6), -2, 19), 1, 6), values=[rows.T.copy()])


def test_several_results() -> None:
    x, r = load("x", 11, 50), load("r", 11, 50)
    total = element("add", x, r)
    normed = layer_norm(total, load("w", 50), load("b", 50), 50)
    run(build(total, 11, 50), build(normed, 11, 50), build(element("gt", normed, total), 11, 50))
    run(build(mean(x, 50), 11, 1), build(mean(element("square", x), 50), 11, 1), build(fold("max", x, -1, 50), 11, 1))


def test_many_rows_fall_into_chunks() -> None:
    run(build(softmax(load("x", 301, 130), -1, 130), 301, 130))
    run(build(softmax(load("x", 3, 64, 515), -2, 64), 3, 64, 515))


# ---- the plan --------------------------------------------------------------------------------------------------------


def test_softmax_takes_three_passes_and_computes_exp_once() -> None:
    found = plan(build(softmax(load("x", 8, 64), -1, 64), 8, 64))
    assert [[fold.term.attrs[0] for fold in step.folds] for step in found.passes] == [["max"], ["sum"], []]
    assert [point.term.op for point in found.first_by_held] == ["exp"]


def test_what_is_held_lies_in_the_result_if_it_is_of_that_dtype() -> None:
    body = build(softmax(load("x", 8, 64), -1, 64), 8, 64)
    assert not any(isinstance(a, Scratch) for a in ROW.lower("kernel", (body,), frozenset()).arguments)
    e = gelu(load("x", 8, 64))
    total = build(element("sub", fold("sum", e, -1, 64), fold("max", e, -1, 64)), 8, 1)
    assert not plan(total).first_by_held  # one pass
    other = build(element("gt", softmax(load("x", 8, 64), -1, 64), number(0.1)), 8, 64)
    assert any(isinstance(a, Scratch) for a in ROW.lower("kernel", (other,), frozenset()).arguments)
    run(other)


def test_a_result_that_is_needed_again_is_read_back() -> None:
    total = element("add", load("x", 4, 33), load("r", 4, 33))
    found = plan(build(total, 4, 33), build(layer_norm(total, load("w", 33), load("b", 33), 33), 4, 33))
    assert found.passes[0].outputs == [0]
    assert [point.term for point in found.read_back(1)] == [total]


def test_the_next_row_is_fetched_in_the_second_pass() -> None:
    x = load("x", 12, 8, 512)
    body = build(softmax(x, -1, 512), 12, 8, 512)
    assert {point.term: stride for point, stride in plan(body).fetched_ahead.items()} == {x: 512}
    for other in (
        build(softmax(load("x", 512), -1, 512), 512),
        build(softmax(load("x", 9, 64), -1, 64), 9, 64),
        build(softmax(load("x", 9, 64, 512), -2, 64), 9, 64, 512),
        build(mean(x, 512), 12, 8, 1),
    ):
        assert not plan(other).fetched_ahead
    lowered = ROW.lower("row", (body,), frozenset())
    compiled = compile_kernel(lowered.source, lowered.name, lowered.namespace, key=lowered.key)
    assert "prefetch" in compiled.library.get_asm_str()


def test_folds_that_do_not_wait_for_each_other_share_a_pass() -> None:
    x = load("x", 4, 33)
    found = plan(build(element("sub", fold("max", x, -1, 33), fold("min", x, -1, 33)), 4, 1))
    assert len(found.passes) == 1 and len(found.passes[0].folds) == 2


def test_other_bodies_are_refused() -> None:
    x = load("x", 4, 5)
    mixed = element("add", fold("sum", x, -1, 5), fold("sum", x, -2, 4))
    product = element("dot", load("a", 4, 5), load("b", 5, 6), depth=5)
    turned = reindex(softmax(x, -1, 5), indexing.permute_map((4, 5), (1, 0)))
    for body in (build(x, 4, 5), build(mixed, 4, 5), build(product, 4, 6), build(turned, 5, 4)):
        assert ROW.estimate((body,), frozenset(), REFERENCE) is None


def test_the_source_is_short_and_says_what_it_does() -> None:
    lowered = ROW.lower("row", (build(softmax(load("x", 12, 128, 130), -1, 130), 12, 128, 130),), frozenset())
    assert len(lowered.source.splitlines()) < 15
    assert "pass 1 over a row: folds sum; holds exp" in lowered.source


def test_holding_is_counted() -> None:
    twice = ROW.estimate((build(softmax(load("x", 64, 256), -1, 256), 64, 256),), frozenset(), REFERENCE)
    assert twice is not None
    assert 14 < twice.flops / (64 * 256) < 28


@pytest.mark.parametrize("axis", [-2, -1])
def test_folds_of_indices_that_views_clamp(axis: int) -> None:
    part = reindex(load("x", 5, 19), indexing.slice_map((5, 19), axis, 1, 1, 3))
    mapping = indexing.resample_map(part.shape, axis, 17, -4, 1, 1)
    e = reindex(part, mapping)
    shape = shapes.concrete(mapping.result)
    run(build(element("sub", e, fold("max", e, -1, shape[-1])), *shape))
