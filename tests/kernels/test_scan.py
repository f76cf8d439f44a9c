"""The scan template: running folds down columns and along rows, with every tail, in one pass."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_cases import Array, Case, assert_agrees, at, build, element, fold, load, reindex, scan

from frittata.egraph.errors import IndexRangeError
from frittata.egraph.indexing import permute_map
from frittata.egraph.machine import REFERENCE
from frittata.egraph.terms import Term
from frittata.kernels import runtime
from frittata.kernels.loops import Loop, Statement
from frittata.kernels.lower import lower
from frittata.kernels.scans import plan_scan
from frittata.kernels.templates.nest import NEST
from frittata.kernels.templates.scan import SCAN


def run(*bodies: Term, special: bool = False, chunks: int = 0) -> tuple[Array, ...]:
    case = Case("case", bodies, special)
    built = runtime.build(case.program("scan"), {})
    assert not chunks or built.lowered[0].chunks >= chunks  # type: ignore[union-attr]
    values = case.values()
    got = built(*values)
    assert_agrees(case, got, case.expected(values))
    return got


@pytest.mark.parametrize("extent", [2, 3, 8, 17, 31, 64, 131])
def test_every_length_of_tail_along_rows_and_across_columns(extent: int) -> None:
    x = load("x", 3, extent)
    two = element("mul", scan("sum", element("tanh", x), -1, extent), element("sub", scan("max", x, -1, extent), x))
    run(build(two, 3, extent), build(scan("sum", x, -1, extent), 3, extent))
    run(build(scan("sum", load("x", 5, 3, extent), -2, 3), 5, 3, extent))


@pytest.mark.parametrize("dtype", ["f64", "i32", "i64"])
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_every_fold_of_every_dtype(op: str, dtype: str) -> None:
    x = load("x", 4, 19, dtype=dtype)
    run(build(scan(op, x, -1, 19), 4, 19), special=dtype == "f64")
    run(build(scan(op, x, -2, 4), 4, 19), special=dtype == "f64")


@pytest.mark.parametrize("axis", [-1, -2])
def test_sums_of_negative_zeros_are_negative(axis: int) -> None:
    x = np.full((19, 19), -0.0, np.float32)
    body = build(scan("sum", load("x", 19, 19), axis, 19), 19, 19)
    (got,) = runtime.build(Case("case", (body,)).program("scan"), {})(x)
    assert np.array_equal(np.signbit(got), np.signbit(np.cumsum(x, axis))) and np.signbit(got).all()


def test_columns_and_rows_fall_into_chunks() -> None:
    run(build(scan("sum", load("x", 700, 515), -2, 700), 700, 515), chunks=4)
    run(build(scan("sum", load("x", 515, 700), -1, 700), 515, 700), chunks=4)


def test_a_long_sum_is_more_exact_than_one_by_one() -> None:
    x = np.full((1, 1 << 20), 0.1, np.float32)
    body = build(scan("sum", load("x", 1, 1 << 20), -1, 1 << 20), 1, 1 << 20)
    (got,) = runtime.build(Case("case", (body,)).program("scan"), {})(x)
    error, one_by_one = (abs(float(end) - (1 << 20) * 0.1) for end in (got[0, -1], np.cumsum(x, dtype=np.float32)[-1]))
    assert error < one_by_one / 2


@pytest.mark.parametrize("first", [0.0, 1e-30])
def test_products_that_are_finite_stay_so_whatever_comes_later(first: float) -> None:
    x = np.array([[first, 1e20, 1e20, 1e20, *[1.0] * 13]], np.float32)
    body = build(scan("prod", load("x", 1, 17), -1, 17), 1, 17)
    (got,) = runtime.build(Case("case", (body,)).program("scan"), {})(x)
    np.testing.assert_array_equal(got, np.cumprod(x, axis=-1))


def test_products_whose_parts_are_denormal_lose_nothing() -> None:
    x = np.array([[1e15, 1e15, 1.5, 1.0, 1.3e-20, 1.7e-20, 1.0, 1.0, 3e30, *[1.0] * 24]], np.float32)
    body = build(scan("prod", load("x", 1, 33), -1, 33), 1, 33)
    (got,) = runtime.build(Case("case", (body,)).program("scan"), {})(x)
    np.testing.assert_allclose(got, np.cumprod(x, axis=-1), rtol=1e-6)


def test_what_is_looked_up_is_guarded() -> None:
    case = Case("case", (build(scan("sum", at(load("x", 9), load("i", 5, 7, dtype="i64"), -1, 9), -2, 5), 5, 7),))
    values = case.values()
    assert_agrees(case, runtime.build(case.program("scan"), {})(*values), case.expected(values))
    free = element("at", load("x", 9), load("i", 5, 7, dtype="i64"), axis=-1, extent=9)
    bare = Case("bare", (build(scan("sum", free, -1, 7), 5, 7),))
    given = [v % 9 if v.dtype == np.int64 else v for v in bare.values()]
    wrong = [np.where(np.arange(v.size).reshape(v.shape) == 34, 9, v) if v.dtype == np.int64 else v for v in given]
    built = runtime.build(bare.program("scan"), {})
    assert_agrees(bare, built(*given), bare.expected(given))
    with pytest.raises(IndexRangeError, match="index 9 "):
        built(*wrong)


def test_bodies_of_another_kind_are_left_to_other_templates() -> None:
    x = load("x", 6, 6)
    running = scan("sum", x, -1, 6)
    others = [
        element("add", running, scan("sum", x, -2, 6)),
        element("add", running, fold("sum", x, -1, 6)),
        reindex(running, permute_map((6, 6), (1, 0))),
        scan("sum", running, -1, 6),
        x,
    ]
    for other in others:
        assert plan_scan((build(other, 6, 6),)) is None
    assert plan_scan((build(element("exp", running), 6, 6),)) is not None


def test_a_nest_fills_each_scan_once() -> None:
    def loops(body: list[Statement]) -> list[object]:
        return [[s.extent, *loops(s.body)] for s in body if isinstance(s, Loop)]

    assert loops(lower((build(scan("sum", load("x", 5, 7), -2, 5), 5, 7),)).body) == [[7, [5]]]
    assert loops(lower((build(scan("sum", load("x", 40), -1, 40), 40),)).body) == [[40]]


def test_it_is_cheaper_than_a_nest() -> None:
    for axis in (-1, -2):
        bodies = (build(scan("sum", load("x", 200, 300), axis, (200, 300)[axis]), 200, 300),)
        fast, slow = (template.estimate(bodies, frozenset(), REFERENCE) for template in (SCAN, NEST))
        assert fast is not None and slow is not None and fast.seconds < slow.seconds


def test_along_a_row_each_vector_waits_for_the_one_before() -> None:
    along, down = (
        SCAN.estimate((build(scan("sum", load("x", 200, 300), axis, extent), 200, 300),), frozenset(), REFERENCE)
        for axis, extent in ((-1, 300), (-2, 200))
    )
    assert along is not None and down is not None and along.seconds > 1.5 * down.seconds
