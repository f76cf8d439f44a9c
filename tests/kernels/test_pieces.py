"""Long rows: pieces of them are folded apart and combined, the same bit for bit whoever does it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from kernel_cases import Array, Case, assert_agrees, build, element, fold, load, number, reindex

from frittata.egraph import indexing
from frittata.egraph.machine import REFERENCE
from frittata.egraph.terms import Term
from frittata.kernels import runtime
from frittata.kernels.templates.row import ROW

_LONG = 200_003


def run(*bodies: Term, values: list[Array] | None = None, cut: str = "pieces of each row") -> tuple[Array, ...]:
    case = Case("case", bodies)
    assert cut in ROW.lower("row", bodies, frozenset()).source
    given = values or case.values()
    executable = runtime.build(case.program("row"), {})
    got = executable(*given)
    assert_agrees(case, got, case.expected(given))
    for _ in range(3):  # a counter that was not set back would leave the results of the run before
        changed = [value + value.dtype.type(1) for value in given]
        assert_agrees(case, executable(*changed), case.expected(changed))
    return got


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
def test_one_long_row(op: str, dtype: str) -> None:
    run(build(fold(op, load("x", _LONG, dtype=dtype), -1, _LONG), 1))


def test_few_long_rows_with_work_before_and_after() -> None:
    x, y = load("x", 3, 100_003), load("y", 3, 1)
    total = fold("sum", element("exp", element("sub", x, y)), -1, 100_003)
    run(build(element("mul", total, number(0.25)), 3, 1), build(fold("max", x, -1, 100_003), 3, 1))


@pytest.mark.parametrize("columns", [1, 3, 8, 37])
def test_long_columns(columns: int) -> None:
    run(build(fold("sum", load("x", 2, 90_001, columns), -2, 90_001), 2, 1, columns))


@pytest.mark.parametrize("columns", [512, 777, 1025, 4096])
@pytest.mark.parametrize("steps", [8, 37])
def test_many_columns(columns: int, steps: int) -> None:
    x = load("x", 2, steps, columns)
    run(build(fold("sum", x, -2, steps), 2, 1, columns), cut="slices of")


def test_many_columns_with_work_before_and_after() -> None:
    x, b = load("x", 3, 19, 1003), load("b", 1003)
    total = fold("sum", element("square", element("sub", x, b)), -2, 19)
    scaled = element("mul", element("sqrt", total), b)
    run(build(scaled, 3, 1, 1003), build(fold("max", x, -2, 19), 3, 1, 1003), cut="slices of")
    both = fold("min", fold("min", load("y", 5, 3, 17, 1003), -2, 17), -4, 5)
    run(build(both, 1, 3, 1, 1003), cut="slices of")
    for dtype in ("f64", "i32"):
        run(build(fold("prod", load("x", 9, 2000, dtype=dtype), -2, 9), 1, 2000), cut="slices of")


def test_rows_that_are_no_single_loop() -> None:
    x = load("x", 40_009, 2, 9)
    run(build(fold("sum", fold("sum", x, -1, 9), -3, 40_009), 1, 2, 1))
    turned = reindex(load("x", 50_021, 7), indexing.permute_map((50_021, 7), (1, 0)))
    run(build(fold("max", turned, -1, 50_021), 7, 1))


def test_a_nan_in_any_piece_is_found() -> None:
    body = build(fold("max", load("x", _LONG), -1, _LONG), 1)
    for place in (0, 77_777, _LONG - 1):
        x = np.zeros(_LONG, np.float32)
        x[place] = np.nan
        assert np.isnan(run(body, values=[x])[0]).all()


def test_looked_up_elements() -> None:
    ids = element("min", element("max", load("ids", _LONG, dtype="i64"), number(0, "i64")), number(99, "i64"))
    run(build(fold("sum", element("at", load("w", 100), ids, axis=-1, extent=100), -1, _LONG), 1))


def test_threads_change_no_bit() -> None:
    case = Case("case", (build(fold("sum", load("x", 1 << 20), -1, 1 << 20), 1),))
    executable, values = runtime.build(case.program("row"), {}), case.values()
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        alone = executable(*values)[0]
    finally:
        numba.set_num_threads(before)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: executable(*values)[0], range(40)))
    assert all(np.array_equal(one, alone) for one in found)


def test_short_rows_and_several_passes_stay_whole() -> None:
    x = load("x", 1000)
    whole = build(fold("sum", x, -1, 1000), 1)
    deep = element("square", element("sub", load("x", _LONG), fold("sum", load("x", _LONG), -1, _LONG)))
    for body in (whole, build(fold("sum", deep, -1, _LONG), 1)):
        assert "pieces of each row" not in ROW.lower("row", (body,), frozenset()).source


def test_the_price_counts_both_threads() -> None:
    one, many = (ROW.estimate((build(fold("sum", load("x", rows, n), -1, n), rows, 1),), frozenset(), REFERENCE)
                 for rows, n in ((1, 1 << 22), (64, 1 << 16)))  # fmt: skip
    assert one is not None and many is not None
    assert one.seconds < 1.2 * many.seconds
