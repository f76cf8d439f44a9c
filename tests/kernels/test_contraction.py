"""The contraction template: odd sizes, where sides come from, what is fused, how it is cut."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kernel_cases import Case, build, case_named, element, fold, gelu, load, number, reindex, transposed
from product_cases import assert_close, check, executable, run

from frittata.egraph import indexing
from frittata.egraph.errors import LoweringError
from frittata.egraph.indexing import IndexMap, var
from frittata.egraph.machine import REFERENCE
from frittata.egraph.terms import Term
from frittata.kernels import driver, gemm_kernel
from frittata.kernels.gemm_emitters import lanes_of
from frittata.kernels.gemm_kernel import sizes_of
from frittata.kernels.gemm_schedule import NEAR_PART_BYTES, NEAR_ROWS, Sizes, most_rows_by_vectors, part_sizes, schedule
from frittata.kernels.lowered import LoweredKernel
from frittata.kernels.packing import pitch, tile_rows
from frittata.kernels.processor import processor
from frittata.kernels.templates.contraction import CONTRACTION, describe

NAME = CONTRACTION.name
SIZES = [(1, 1, 1), (1, 7, 1), (7, 1, 17), (2, 3, 40), (3, 5, 24), (1, 64, 97), (17, 7, 31), (13, 40, 8), (37, 29, 23)]


def product(m: int, k: int, n: int, dtype: str = "f32") -> Term:
    return element("dot", load("a", m, k, dtype=dtype), load("b", k, n, dtype=dtype), depth=k)


@pytest.mark.parametrize("constants", [(), ("b",)], ids=str)
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_products_of_odd_sizes(m: int, k: int, n: int, constants: tuple[str, ...]) -> None:
    check(Case("product", (build(product(m, k, n), m, n),)), NAME, constants)


@pytest.mark.parametrize(("m", "k", "n"), SIZES[5:])
def test_double_precision(m: int, k: int, n: int) -> None:
    check(Case("product", (build(product(m, k, n, "f64"), m, n),)), NAME, ("b",))


@pytest.mark.parametrize("constants", [(), ("b",)], ids=str)
@pytest.mark.parametrize(("m", "k", "n"), [(200, 300, 70), (70, 1500, 200), (1, 300, 1000)])
def test_products_of_several_blocks_and_chunks(m: int, k: int, n: int, constants: tuple[str, ...]) -> None:
    case = Case("large", (build(product(m, k, n), m, n),))
    assert CONTRACTION.lower("k", case.bodies, frozenset(constants)).chunks > 1
    check(case, NAME, constants)


@pytest.mark.parametrize(("depth", "collide"), [(1024, True), (1008, False)])
def test_tiles_of_rows_that_fall_into_one_set_of_the_cache_have_few(depth: int, collide: bool) -> None:
    columns = 2 * lanes_of("f32")
    case = Case("deep", (build(product(26, depth, columns), 26, columns),))
    work = describe(case.bodies)
    assert work is not None
    sizes = sizes_of(work, frozenset("b"))
    assert (sizes.left, sizes.collide) == ("direct", collide)
    tile = schedule(sizes).tile
    assert tile.rows <= 6 if collide else tile.rows == most_rows_by_vectors()[tile.vectors] > 6
    check(case, NAME, ("b",))


def test_every_other_pixel_of_an_image_is_a_row_in_place() -> None:
    image = load("x", 12, 14, 512)
    pixels = IndexMap((12, 14, 512), (42, 512), (var(-2, 42) // 7 * 2, var(-2, 42) % 7 * 2, var(-1, 512)))
    total = element("dot", reindex(image, pixels), load("w", 512, 256), depth=512)
    case = Case("strided", (build(total, 42, 256),))
    work = describe(case.bodies)
    assert work is not None
    sizes = sizes_of(work, frozenset("w"))
    assert (sizes.left, sizes.collide) == ("direct", True)
    check(case, NAME, ("w",))


@pytest.mark.parametrize("constants", [(), ("b",), ("a", "b")], ids=str)
@pytest.mark.parametrize("depth", [6008, 9001])
def test_great_depths_are_taken_in_parts(depth: int, constants: tuple[str, ...]) -> None:
    element_ = element("max", product(100, depth, 83), number(0))
    case = Case("deep", (build(element_, 100, 83),))
    work = describe(case.bodies)
    assert work is not None and schedule(sizes_of(work, frozenset(constants))).depth < depth
    check(case, NAME, constants)


def test_rows_of_scratch_memory_do_not_collide() -> None:
    prologue = element("dot", element("max", load("a", 9, 1024), number(0)), load("b", 1024, 40), depth=1024)
    check(Case("scratch", (build(prologue, 9, 40),)), NAME, ("b",))
    assert (pitch(1024, 4), pitch(512, 8), pitch(1000, 4)) == (1040, 520, 1000)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(49, 960, 320), (49, 320, 1280), (196, 576, 96)])
def test_chunks_fall_evenly_among_two_threads_as_the_driver_shares_them(rows: int, depth: int, columns: int) -> None:
    plan = schedule(Sizes(1, rows, columns, depth, lanes_of("f32"), 4, "direct", "packed"))
    tiles = tile_rows(rows, plan.tile.rows).tiles
    sizes = [r * p for r in part_sizes(tiles, plan.row_parts) for p in part_sizes(plan.panels, plan.panel_parts)]
    first, second = (sum(sizes[chunk] for chunk in queue) for queue in driver.queues(plan.chunks, 2))
    assert max(first, second) <= 0.53 * sum(sizes)


@pytest.mark.parametrize("rows", [13, 16, 20, 21])
@pytest.mark.parametrize("depth", [1024, 1531])
def test_few_rows_take_parts_of_weights_that_the_nearest_cache_holds(rows: int, depth: int) -> None:
    case = Case("few", (build(product(rows, depth, 331), rows, 331),))
    work = describe(case.bodies)
    assert work is not None
    plan = schedule(sizes_of(work, frozenset("b")))
    assert (plan.depth * plan.tile.width * 4 <= NEAR_PART_BYTES) == (rows <= NEAR_ROWS)
    check(case, NAME, ("b",))


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 8, 13])
def test_few_rows_read_panels_side_by_side_and_tiles_that_read_them_again_fetch_the_next_one(rows: int) -> None:
    sizes = Sizes(1, rows, 133, 24, 8, 4, "direct", "packed")
    plan = schedule(sizes)
    assert (plan.prefetch, plan.tile.panels > 1) == (rows > plan.tile.rows, rows <= 4)
    assert rows > 4 or rows * plan.tile.vectors * plan.tile.panels in (8, 12)
    check(Case("product", (build(product(rows, 24, 133), rows, 133),)), NAME, ("b",))


@pytest.mark.parametrize("rows", [13, 18, 40])
def test_the_tiles_of_a_block_fetch_all_of_the_next_panel(rows: int) -> None:
    bodies = (build(product(rows, 16, 96), rows, 96),)
    code = CONTRACTION.lower("k", bodies, frozenset({"b"})).source
    plan = schedule(Sizes(1, rows, 96, 16, lanes_of("f32"), 4, "direct", "packed"))
    width = plan.tile.width
    panel, lines = 16 * width * 4, 4 * width * 4 // 64  # the bytes of a panel, the lines of four of its steps
    assert plan.prefetch and plan.panels > 1
    each = -(-lines // min(lines, tile_rows(rows, plan.tile.rows).tiles))  # a block has no more tiles
    parts = -(-lines // each)
    assert f"panel + {panel} + t % {parts}*{panel // parts}" in code


@pytest.mark.parametrize("constants", [(), ("w", "b")], ids=str)
@pytest.mark.parametrize("lead", [(9,), (2, 3, 5)])
def test_a_linear_layer_with_leading_axes(lead: tuple[int, ...], constants: tuple[str, ...]) -> None:
    total = element("dot", load("x", *lead, 12), transposed(load("w", 21, 12)), depth=12)
    case = Case("linear", (build(gelu(element("add", total, load("b", 21))), *lead, 21),))
    check(case, NAME, constants)


@pytest.mark.parametrize("constants", [(), ("b",)], ids=str)
@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        ((5, 6, 7), (5, 7, 9), (5, 6, 9)),
        ((6, 7), (5, 7, 9), (5, 6, 9)),
        ((3, 1, 6, 7), (2, 7, 9), (3, 2, 6, 9)),
        ((3, 4, 6, 7), (3, 1, 7, 9), (3, 4, 6, 9)),
        ((40, 3, 7), (40, 7, 2), (40, 3, 2)),
    ],
)
def test_batches(a: tuple[int, ...], b: tuple[int, ...], out: tuple[int, ...], constants: tuple[str, ...]) -> None:
    case = Case("batched", (build(element("dot", load("a", *a), load("b", *b), depth=7), *out),))
    check(case, NAME, constants)


@pytest.mark.parametrize("constants", [(), ("b",)], ids=str)
@pytest.mark.parametrize("columns", [3, 16, 41])
def test_a_product_is_stored_through_a_reshape_of_its_rows(columns: int, constants: tuple[str, ...]) -> None:
    """Rows 5 and 4, batches 3 between and behind them: what is beside the product has its axes joined."""
    total = element("dot", load("a", 2, 5, 3, 4, 3, 1, 6), load("b", 3, 1, 3, 6, columns), depth=6)
    assert total.shape == (2, 5, 3, 4, 3, 1, columns)
    joined = reindex(total, indexing.reshape_map(total.shape, (2, 15, 12, columns)))
    sides = element("add", load("bias", columns), load("x", 2, 15, 12, columns))
    check(Case("reshaped", (build(gelu(element("add", joined, sides)), 2, 15, 12, columns),)), NAME, constants)


def test_vectors_stand_for_matrices_of_one_row() -> None:
    total = element("dot", load("a", 7), load("b", 7, 20), depth=7)
    check(Case("vector", (build(total, 20),)), NAME, ("b",))


@pytest.mark.parametrize("k", [5, 16, 23])
def test_attention_reads_heads_in_place(k: int) -> None:
    def heads(name: str) -> Term:
        split = reindex(load(name, 2, 11, 3 * k), indexing.reshape_map((2, 11, 3 * k), (2, 11, 3, k)))
        return reindex(split, indexing.permute_map((2, 11, 3, k), (0, 2, 1, 3)))

    scores = element("dot", heads("q"), transposed(heads("k")), depth=k)
    scaled = element("mul", scores, number(k**-0.5))
    causal = element("le", element("iota", axis=-1, extent=11), element("iota", axis=-2, extent=11))
    case = Case("scores", (build(element("where", causal, scaled, number(float("-inf"))), 2, 3, 11, 11),))
    check(case, NAME)
    work = describe(case.bodies)
    assert work is not None and work.left.rows(k) is not None


@pytest.mark.parametrize("constants", [(), ("a", "s"), ("b", "t")], ids=str)
def test_prologues_on_either_side(constants: tuple[str, ...]) -> None:
    left = element("mul", element("max", load("a", 14, 19), number(0)), load("s", 19))
    right = element("tanh", element("add", load("b", 19, 21), load("t", 19, 1)))
    check(Case("prologue", (build(element("dot", left, right, depth=19), 14, 21),)), NAME, constants)


def test_a_side_read_backwards_and_in_steps() -> None:
    steps = reindex(load("a", 9, 40), indexing.slice_map((9, 40), -1, 3, 2, 13))
    check(Case("strided", (build(element("dot", steps, load("b", 13, 10), depth=13), 9, 10),)), NAME)
    columns = transposed(load("a", 13, 9))
    check(Case("columns", (build(element("dot", columns, load("b", 13, 10), depth=13), 9, 10),)), NAME)


def test_an_index_that_is_clamped() -> None:
    shifted = indexing.IndexMap((9, 13), (9, 13), (indexing.var(-2, 9) + 1, indexing.var(-1, 13) + -2))
    a, b = reindex(load("a", 9, 13), shifted), load("b", 13, 13)
    check(Case("left", (build(element("dot", a, b, depth=13), 9, 13),)), NAME)
    shifted = indexing.IndexMap((13, 9), (13, 9), (indexing.var(-2, 13) + 1, indexing.var(-1, 9) + -2))
    a, b = load("a", 5, 13), reindex(load("b", 13, 9), shifted)
    check(Case("right", (build(element("dot", a, b, depth=13), 5, 9),)), NAME)


@pytest.mark.parametrize("n", [16, 21, 24])
def test_several_outputs_share_the_product(n: int) -> None:
    total = element("add", product(9, 8, n), load("r", 9, n))
    flags = element("gt", total, number(0))
    column = element("mul", total, load("s", 9, 1))
    check(Case("outputs", (build(total, 9, n), build(column, 9, n), build(load("r", 9, n), 9, n))), NAME)
    case = Case("flags", (build(flags, 9, n),))
    values = case.values()
    np.testing.assert_array_equal(run(case, values, NAME, ("b",))[0], case.expected(values)[0])


def test_a_mask_of_bytes_in_the_epilogue() -> None:
    masked = element("where", load("m", 9, 21, dtype="bool"), product(9, 8, 21), number(float("-inf")))
    check(Case("mask", (build(masked, 9, 21),)), NAME)


@pytest.mark.parametrize("constants", [(), ("b",)], ids=str)
def test_what_is_not_finite_stays_in_its_row_and_column(constants: tuple[str, ...]) -> None:
    case = Case("special", (build(product(14, 9, 21), 14, 21),))
    a, b = case.values()
    a[3, 2], a[7, 0], b[4, 20] = np.nan, np.inf, np.nan
    with np.errstate(invalid="ignore"):
        assert_close(case, run(case, [a, b], NAME, constants), [a, b])


def test_results_are_the_same_bit_for_bit_whatever_is_constant() -> None:
    case = Case("bits", (build(product(40, 30, 50), 40, 50),))
    values = case.values()
    first = run(case, values, NAME)[0]
    for constants in (("b",), ("a",), ("a", "b")):
        np.testing.assert_array_equal(first, run(case, values, NAME, constants)[0])


@pytest.mark.parametrize("name", ["linear-layer-norm", "attention", "pool-max", "softmax-17", "window-fused"])
def test_other_bodies_are_refused(name: str) -> None:
    bodies = case_named(name).bodies
    assert CONTRACTION.estimate(bodies, frozenset(), REFERENCE) is None
    with pytest.raises(LoweringError):
        CONTRACTION.lower("kernel", bodies, frozenset())


def test_a_product_under_a_view_or_among_folds_is_refused() -> None:
    total = product(6, 5, 7)
    for body in (
        build(transposed(total), 7, 6),
        build(reindex(total, indexing.reshape_map((6, 7), (21, 2))), 21, 2),
        build(element("add", total, fold("sum", load("x", 6, 7), -1, 7)), 6, 7),
        build(element("add", total, product(6, 4, 7)), 6, 7),
        build(element("add", load("x", 3, 6, 7), total), 3, 6, 7),
    ):
        assert CONTRACTION.estimate((body,), frozenset(), REFERENCE) is None


def test_the_estimate_grows_with_work_and_packing() -> None:
    def seconds(m: int, k: int, n: int, *constants: str) -> float:
        estimate = CONTRACTION.estimate((build(product(m, k, n), m, n),), frozenset(constants), REFERENCE)
        assert estimate is not None
        return estimate.seconds

    assert seconds(64, 768, 768, "b") < seconds(64, 768, 768)
    assert seconds(128, 768, 768, "b") > 1.8 * seconds(64, 768, 768, "b")
    peak = 2 * 512**3 / (2 * REFERENCE.fma_f32_per_s)
    assert peak < seconds(512, 512, 512, "b") < 1.2 * peak
    assert seconds(1, 4096, 4096, "b") > 4096 * 4096 * 4 / REFERENCE.memory_bytes_per_s


def test_packing_is_dearer_where_each_element_lies_in_a_cache_line_of_its_own() -> None:
    """The batch is the innermost axis of both sides: i and k, or k and j, are 32 elements apart at least."""
    apart, together = (64, 64, 32), (32, 64, 64)
    turned = (2, 0, 1)
    sides = [reindex(load(name, *apart), indexing.permute_map(apart, turned)) for name in ("a", "b")]
    found = [
        CONTRACTION.estimate((build(element("dot", *given, depth=64), *together),), frozenset(), REFERENCE)
        for given in (sides, [load("a", *together), load("b", *together)])
    ]
    far, near = (estimate.seconds for estimate in found if estimate is not None)
    assert far > 2 * near


def test_tiles_fit_registers_and_chunks_cover_everything() -> None:
    for rows in (1, 2, 3, 4, 5, 8, 49, 64, 128, 1000):
        for columns in (1, 7, 8, 10, 16, 24, 40, 256, 1000):
            plan = schedule(Sizes(1, rows, columns, 768, 8, 4, "direct", "packed"))
            tile = plan.tile
            assert tile.rows * tile.vectors * tile.panels + tile.vectors + 1 <= processor().registers
            assert plan.panels * tile.width >= columns
            assert plan.row_parts <= tile_rows(rows, tile.rows).tiles
            assert plan.chunks <= 16


@pytest.mark.parametrize(("halves", "unused"), [(1, 0), (1, 3), (3, 0), (3, 1)])
@pytest.mark.parametrize("constants", [(), ("b",), ("a", "b")], ids=str)
def test_tiles_of_half_vectors_where_those_take_half_as_long(
    halves: int, unused: int, constants: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemm_kernel, "processor", lambda: replace(processor(), splits=True))
    half = lanes_of("f32") // 2
    columns = halves * half - min(unused, half - 1)
    case = Case("halves", (build(element("tanh", product(31, 17, columns)), 31, columns),))
    work = describe(case.bodies)
    assert work is not None
    tile = schedule(sizes_of(work, frozenset(constants))).tile
    assert (tile.halved, tile.lanes) == (True, half)
    check(case, NAME, constants)


def test_nothing_is_read_beyond_the_right_side() -> None:
    script = Path(__file__).parents[1] / "support" / "guarded_memory.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, (done.returncode, done.stderr)


@pytest.mark.parametrize(("rows", "columns"), [(64, 448), (196, 1024), (784, 128), (512, 768)])
def test_two_threads_share_large_products_evenly(rows: int, columns: int) -> None:
    plan = schedule(Sizes(1, rows, columns, 1024, lanes_of("f32"), 4, "direct", "packed"))
    tiles = tile_rows(rows, plan.tile.rows).tiles
    row_parts, panel_parts = (
        [(n + 1) * count // parts - n * count // parts for n in range(parts)]
        for count, parts in ((tiles, plan.row_parts), (plan.panels, plan.panel_parts))
    )
    busy = [0, 0]
    for size in sorted((a * b for a in row_parts for b in panel_parts), reverse=True):
        busy[busy.index(min(busy))] += size
    assert max(busy) <= 0.53 * sum(busy)


def test_generated_source_says_what_it_computes() -> None:
    case = Case("linear", (build(product(64, 768, 768), 64, 768),))
    lowered = executable(case, NAME, {"b": case.values()[1]}).lowered[0]
    assert isinstance(lowered, LoweredKernel)
    assert "dot(load(x0), load(x1), 768)" in lowered.source
    lanes = lanes_of("f32")
    tile = schedule(Sizes(1, 64, 768, 768, lanes, 4, "direct", "packed")).tile
    rows = tile_rows(64, tile.rows).large_rows
    assert f"(64, 768) x (768, 768): tiles of {rows} rows x {tile.width} columns" in lowered.source
    assert len(lowered.source.splitlines()) < 20
