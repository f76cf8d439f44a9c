"""What templates say that kernels take: which of two is dearer, where machines do not change the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_cases import CASES, build, element, load, number, reindex, window

from frittata.egraph import indexing
from frittata.egraph.indexing import IndexMap, slice_map, var
from frittata.egraph.machine import REFERENCE
from frittata.egraph.program import Template
from frittata.egraph.terms import Term
from frittata.kernels.processor import processor
from frittata.kernels.templates import library
from frittata.kernels.templates.contraction import CONTRACTION
from frittata.kernels.templates.nest import NEST
from frittata.kernels.templates.pointwise import POINTWISE
from frittata.kernels.templates.row import ROW
from frittata.kernels.templates.stencil import STENCIL
from frittata.kernels.templates.winograd import WINOGRAD
from frittata.kernels.traffic import moved_bytes

SHAPE = (1, 28, 28, 32)
SHARE_OF_16_LANES = processor().width / 64
"""What is loaded lane by lane takes a step for each."""


def seconds(template: Template, body: Term) -> float:
    found = template.estimate((body,), frozenset("w"), REFERENCE)
    assert found is not None
    return found.seconds


def product() -> Term:
    return element("dot", load("x", 1, 28, 28, 64), load("w", 64, 32), depth=64)


def tiled() -> Term:
    w = load("w", 32, 32, 3, 3)
    x = load("x", 1, 28, 28, 32)
    return element("winograd_dot", x, w, source=(28, 28, 32), channels=32, padding=(1, 1), tile=2)


def slid() -> Term:
    return window(load("x", 1, 28, 28, 32), load("w", 28, 28, 3, 3), (28, 28, 32), (3, 3), 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("template", "e"),
    [(CONTRACTION, product()), (WINOGRAD, tiled()), (STENCIL, slid())],
    ids=lambda x: getattr(x, "name", ""),
)
def test_what_is_read_apart_beside_a_product_is_dearer(template: Template, e: Term) -> None:
    """Lanes run along the last axis; `turned` has its neighbours 28 * 28 elements apart."""
    order = (0, 2, 3, 1)
    beside = load("r", *SHAPE)
    turned = reindex(load("r", 1, 32, 28, 28), indexing.permute_map((1, 32, 28, 28), order))
    alone = seconds(template, build(e, *SHAPE))
    near, far = (seconds(template, build(element("add", e, other), *SHAPE)) for other in (beside, turned))
    assert far - near > 5 * SHARE_OF_16_LANES * (near - alone) > 0


@pytest.mark.parametrize(
    ("columns", "step", "expected"),
    [
        (256, 1, 10 * 256 * 4),  # all
        (256, 4, 10 * 256 * 4 * 4),  # what lies between, too
        (256, 50, 10 * 256 * 64),  # a line of the cache for each
    ],
)
def test_a_view_moves_the_lines_that_it_touches(columns: int, step: int, expected: int) -> None:
    shape = (10, columns * step)
    view = reindex(load("x", *shape), indexing.slice_map(shape, -1, 0, step, columns))
    moved = moved_bytes((build(view, 10, columns),)) - 10 * columns * 4
    assert moved == pytest.approx(expected, rel=0.05)


def test_what_a_view_repeats_is_moved_once() -> None:
    spread = reindex(load("x", 1000), indexing.IndexMap((1000,), (64, 1000), (indexing.var(-1, 1000),)))
    assert moved_bytes((build(element("add", spread, load("y", 64, 1000)), 64, 1000),)) == 1000 * 4 + 2 * 64 * 1000 * 4


def centred(rows: int, columns: int, *, apart: bool) -> Term:
    """Rows less their means; the columns of a matrix (columns, rows) if they are to be read with elements apart."""
    x = load("x", rows, columns)
    if apart:
        x = reindex(load("x", columns, rows), indexing.permute_map((columns, rows), (1, 0)))
    return build(element("sub", x, element("fold", x, op="sum", axis=-1, extent=columns)), rows, columns)


def test_rows_that_no_cache_holds_are_read_in_each_pass() -> None:
    """Those whose elements lie apart read sixteen times as many bytes, and again for each row."""
    found = [ROW.estimate((centred(16, columns, apart=True),), frozenset(), REFERENCE) for columns in (100, 10_000)]
    assert found[0] is not None and found[0].bytes == 2 * 16 * 100 * 4
    assert found[1] is not None and found[1].bytes == (1 + 2 * 16) * 16 * 10_000 * 4
    together = ROW.estimate((centred(16, 10_000, apart=False),), frozenset(), REFERENCE)
    assert together is not None and together.bytes == 2 * 16 * 10_000 * 4
    long = ROW.estimate((centred(2, 100_000, apart=False),), frozenset(), REFERENCE)
    assert long is not None and long.bytes == 3 * 2 * 100_000 * 4


def test_one_column_of_many_is_dearer_than_each_of_all() -> None:
    every = [reindex(load("x", 3000 * 8), indexing.slice_map((3000 * 8,), -1, k, 8, 3000)) for k in range(8)]
    one, all_ = (seconds(POINTWISE, build(_sum(parts), 3000)) for parts in (every[:1], every))
    assert all_ < 8 * one


@pytest.mark.parametrize(("op", "times"), [("exp", 2), ("sqrt", 2), ("tanh", 24 * SHARE_OF_16_LANES)])
def test_functions_of_float64_are_dearer(op: str, times: float) -> None:
    """Bytes are twice as many; formulas are longer; functions of C, called lane by lane, take far more."""
    double, single = (
        seconds(POINTWISE, build(element(op, load("x", 64, 1024, dtype=dtype)), 64, 1024)) for dtype in ("f64", "f32")
    )
    assert double > times * single


def test_int64_is_made_of_floats_lane_by_lane_in_short_vectors() -> None:
    x = load("x", 64, 1024)
    to_int64, to_int32 = (seconds(POINTWISE, build(element("cast", x, dtype=to), 64, 1024)) for to in ("i64", "i32"))
    assert (to_int64 > 2 * to_int32) == (processor().width < 64)


def test_int64_is_divided_lane_by_lane() -> None:
    x, y = (load(name, 64, 1024, dtype="i64") for name in "xy")
    by_y, by_7 = (seconds(POINTWISE, build(element("mod", x, by), 64, 1024)) for by in (y, number(7, "i64")))
    assert by_y > 3 * SHARE_OF_16_LANES * by_7


def test_lanes_of_one_block_are_loaded_together() -> None:
    """Each value twice, as in an image made larger, for about what a copy takes; values from anywhere are dearer."""
    copied = seconds(POINTWISE, build(load("x", 4, 6400), 4, 6400))
    twice, thrice = (
        seconds(POINTWISE, build(reindex(load("x", 4, 3200), indexing.IndexMap((4, 3200), (4, 6400), index)), 4, 6400))
        for index in ((indexing.var(-2, 4), indexing.var(-1, 6400) // divisor) for divisor in (2, 3))
    )
    assert twice < 1.5 * copied
    assert thrice > 3 * SHARE_OF_16_LANES * twice


def _sum(parts: list[Term]) -> Term:
    total = parts[0]
    for part in parts[1:]:
        total = element("add", total, part)
    return total


def test_what_is_looked_up_is_dearer_than_what_lies_apart() -> None:
    apart = reindex(load("x", 100, 50), indexing.slice_map((100, 50), -1, 0, 50, 1))
    index = load("i", 100, 40, dtype="i64")
    found = element(
        "at",
        reindex(load("x", 5000), indexing.IndexMap((5000,), (5000, 1, 1), (indexing.var(-3, 5000),))),
        index,
        axis=-3,
        extent=5000,
    )
    assert seconds(POINTWISE, build(found, 100, 40)) > seconds(
        POINTWISE, build(element("add", apart, load("y", 100, 40)), 100, 40)
    )


def test_a_nest_that_is_not_cut_has_one_thread() -> None:
    def of(rows: int) -> float:
        return seconds(NEST, build(element("exp", load("x", rows, 100)), rows, 100))

    cut = next(
        rows
        for rows in range(1, 200)
        if NEST.lower("k", (build(element("exp", load("x", rows, 100)), rows, 100),), frozenset()).chunks > 1
    )
    assert of(cut) < of(cut - 1)


def test_the_library_is_not_for_few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_address", lambda dtype: 1)

    def flops_per_s(columns: int) -> float:
        body = build(element("dot", load("x", 1024, 512), load("y", 512, columns), depth=512), 1024, columns)
        found = library.LIBRARY.estimate((body,), frozenset(), REFERENCE)
        assert found is not None
        return found.flops / found.seconds

    assert 8 * flops_per_s(2) < flops_per_s(1024)


def test_a_profile_without_a_library_has_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_address", lambda dtype: 1)
    body = build(element("dot", load("x", 8, 8), load("y", 8, 8), depth=8), 8, 8)
    assert library.LIBRARY.estimate((body,), frozenset(), replace(REFERENCE, library_gemm_share=0.0)) is None


def test_the_least_that_a_nest_takes_is_no_more_than_what_it_takes() -> None:
    for case in CASES:
        found = NEST.estimate(case.bodies, frozenset(), REFERENCE)
        assert found is None or 0 < NEST.least_s(case.bodies, REFERENCE) <= found.seconds, case.name


def test_rows_that_are_packed_from_lines_apart_are_dearer() -> None:
    """Neighbours along the depth are 64 elements apart, and so are those of the next turn, one further on."""
    x, w = load("x", 128, 64, 64), load("w", 4096, 8)
    k = var(-1, 4096)
    apart, together = (
        element("tanh", reindex(x, IndexMap((128, 64, 64), (128, 4096), (var(-2, 128), *inner))))
        for inner in ((k % 64, k // 64), (k // 64, k % 64))
    )
    far, near = (seconds(CONTRACTION, build(element("dot", e, w, depth=4096), 128, 8)) for e in (apart, together))
    assert (far - near) * REFERENCE.scalar_per_s > 40 * 128 * 4096


def test_what_is_packed_is_priced_at_each_place_where_it_is_computed() -> None:
    """Each level reads the one below at two places, which are two of four in the next."""

    def level(depth: int) -> Term:
        if depth == 0:
            return load("x", 64, 3000)
        below, length = level(depth - 1), 3001 - 3**depth
        shape = (64, 3001 - 3 ** (depth - 1))
        views = (reindex(below, slice_map(shape, -1, start, 1, length)) for start in (0, 2 * 3 ** (depth - 1)))
        return element("mul", *views)

    taken: list[float] = []
    for depth in (3, 4, 5):
        e = element("tanh", level(depth))
        extent = 3001 - 3**depth
        taken.append(seconds(CONTRACTION, build(element("dot", e, load("w", extent, 8), depth=extent), 64, 8)) / extent)
    assert taken[2] - taken[1] > 1.5 * (taken[1] - taken[0])


@pytest.mark.parametrize("shape", [(1000, 1000), (1024, 1024), (4096, 4096)])
def test_what_lies_apart_is_no_loop_nest(shape: tuple[int, int]) -> None:
    """However slow memory is: a nest waits for each line, and for lines that share sets of a cache far longer."""
    body = build(reindex(load("x", *shape), indexing.permute_map(shape, (1, 0))), *shape[::-1])
    for machine in (REFERENCE, replace(REFERENCE, memory_bytes_per_s=1e10, l3_bytes_per_s=1e10)):
        nest, tiles = (template.estimate((body,), frozenset(), machine) for template in (NEST, POINTWISE))
        assert nest is not None and tiles is not None and nest.seconds > 1.2 * tiles.seconds


def test_evaluating_the_left_side_hides_behind_no_weights() -> None:
    """Each part of the columns evaluates the row before it reads its weights, which take longest."""

    def of(left: Term) -> float:
        return seconds(CONTRACTION, build(element("dot", left, load("w", 1024, 4096), depth=1024), 1, 4096))

    x = load("x", 1, 1024)
    once, twice = of(element("exp", x)), of(element("exp", element("exp", x)))
    assert of(x) < once < twice
