"""The attention template: odd sizes, masks, what is not finite, where sides and results lie, what is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kernel_cases import Case, build, element, load, number, reindex
from product_cases import assert_close, check, executable, run

from frittata.egraph import indexing
from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.terms import Term
from frittata.kernels import templates
from frittata.kernels.attention import describe
from frittata.kernels.attention_schedule import AttentionPlan, plan
from frittata.kernels.compile import compile_kernel
from frittata.kernels.lowered import LoweredKernel
from frittata.kernels.templates.attention import ATTENTION
from frittata.kernels.visibility import Band

NAME = ATTENTION.name
INF = float("inf")
SIZES = [
    (1, 1, 1, 1), (1, 7, 5, 8), (1, 1030, 64, 64), (2, 9, 16, 16), (3, 40, 23, 40), (7, 17, 5, 3), (7, 1, 16, 9),
    (5, 16, 64, 88), (17, 7, 64, 16), (17, 17, 7, 17), (131, 67, 5, 24),
]  # fmt: skip


def turned(e: Term, *shape: int) -> Term:
    """Swap the last two axes of an element of a shape."""
    order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    return reindex(e, indexing.permute_map(shape, order))


def products(m: int, n: int, d: int, *batch: int, dtype: str = "f32") -> Term:
    q, k = load("q", *batch, m, d, dtype=dtype), turned(load("k", *batch, n, d, dtype=dtype), *batch, n, d)
    return element("mul", element("dot", q, k, depth=d), number(d**-0.5, dtype))


def attend(scores: Term, n: int, e: int, *batch: int, safe: bool = False) -> Term:
    return element("attend", scores, load("v", *batch, n, e, dtype=scores.dtype), keys=n, safe=safe)


def causal(scores: Term, m: int, n: int, offset: int = 0) -> Term:
    row = element("add", element("iota", axis=-2, extent=m), number(offset, "i64"))
    seen = element("ge", row, element("iota", axis=-1, extent=n))
    return element("where", seen, scores, number(-INF))


def planned(case: Case) -> AttentionPlan:
    work = describe(case.bodies)
    assert work is not None
    return plan(work)


@pytest.mark.parametrize(("m", "n", "d", "e"), SIZES)
def test_odd_sizes(m: int, n: int, d: int, e: int) -> None:
    check(Case("attention", (build(attend(products(m, n, d), n, e), m, e),)), NAME)


@pytest.mark.parametrize(("m", "n", "d", "e"), [(1, 33, 8, 12), (2, 7, 5, 8), (17, 23, 7, 10)])
def test_double_precision(m: int, n: int, d: int, e: int) -> None:
    check(Case("double", (build(attend(products(m, n, d, dtype="f64"), n, e), m, e),)), NAME)


@pytest.mark.parametrize("m", [1, 19])
@pytest.mark.parametrize(
    ("q", "k", "v"),
    [((2, 3), (2, 3), (2, 3)), ((2, 3), (3,), (2, 1)), ((2, 1), (2, 3), ()), ((40, 1), (1, 2), (40, 2))],
)
def test_batches_and_heads_broadcast(m: int, q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> None:
    scores = element("dot", load("q", *q, m, 9), turned(load("k", *k, 11, 9), *k, 11, 9), depth=9)
    result = element("attend", scores, load("v", *v, 11, 16), keys=11)
    check(Case("batches", (build(result, *np.broadcast_shapes(q, k, v), m, 16),)), NAME)


def test_several_blocks_parts_and_chunks() -> None:
    case = Case("large", (build(attend(products(150, 1500, 8), 1500, 8), 150, 8),))
    cut = planned(case)
    assert cut.row_parts > 1 and cut.chunks > 1 and cut.block_rows < 150 // cut.row_parts
    check(case, NAME)


# ---- masks -----------------------------------------------------------------------------------------------------------


MASKS = [(2, 3, 7, 13), (3, 7, 13), (2, 1, 1, 13), (7, 13), (13,), (7, 1), (1,)]


def test_masks_are_fetched_while_products_are_summed() -> None:
    """Their rows lie apart: no processor sees what comes next."""

    def fetches(scores: Term) -> bool:
        lowered = ATTENTION.lower("attention", (build(attend(scores, 40, 16), 64, 16),), frozenset())
        compiled = compile_kernel(lowered.source, lowered.name, lowered.namespace, key=lowered.key)
        return "prefetch" in compiled.library.get_asm_str()

    scores = products(64, 40, 16)
    assert fetches(element("add", scores, load("b", 64, 40))) and not fetches(scores)


@pytest.mark.parametrize(("m", "mask"), [*((7, mask) for mask in MASKS), (1, (2, 3, 1, 13)), (1, (13,))], ids=str)
def test_masks_of_all_broadcast_shapes(m: int, mask: tuple[int, ...]) -> None:
    added = element("add", products(m, 13, 5, 2, 3), load("b", *mask))
    chosen = element("where", load("m", *mask, dtype="bool"), added, number(-9.0))
    check(Case("masked", (build(attend(chosen, 13, 16, 2, 3), 2, 3, m, 16),)), NAME)


@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize(("m", "n"), [(1, 13), (9, 16), (14, 70)])
def test_rows_that_see_nothing(m: int, n: int, safe: bool) -> None:
    chosen = element("where", load("m", m, n, dtype="bool"), products(m, n, 5), number(-INF))
    case = Case("blind", (build(attend(chosen, n, 6, safe=safe), m, 6),))
    values = case.values()
    mask = values[next(i for i, leaf in enumerate(case.operands) if leaf.dtype == "bool")]
    mask[:, 0] = True
    mask[m // 2] = False
    found = run(case, values, NAME)
    assert_close(case, found, values)
    blind = found[0][m // 2]
    assert (blind == 0).all() if safe else np.isnan(blind).all()


@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize("m", [2, 9])
def test_what_is_not_finite(m: int, safe: bool) -> None:
    case = Case(
        "special", (build(attend(element("add", products(m, 13, 5), load("b", m, 13)), 13, 6, safe=safe), m, 6),)
    )
    base = dict(zip((leaf.attrs[0] for leaf in case.operands), case.values(), strict=True))
    base["b"][1] = -INF
    kernel = executable(case, NAME, {})
    for name, place, odd in (
        ("q", (0, 3), np.nan), ("k", (12, 0), np.nan), ("v", (4, 5), np.nan), ("v", (2, 1), INF), ("q", (0, 1), INF),
        ("b", (0, 7), INF), ("b", (1, 3), np.nan), ("b", (0, 5), -INF),
    ):  # fmt: skip
        values = {key: value.copy() for key, value in base.items()}
        values[name][place] = odd
        given = list(values.values())
        with np.errstate(invalid="ignore"):
            assert_close(case, kernel(*given), given)


def test_large_scores_and_values_stay_finite() -> None:
    case = Case("large", (build(attend(products(8, 21, 4), 21, 8), 8, 8),))
    values = dict(zip((leaf.attrs[0] for leaf in case.operands), case.values(), strict=True))
    kernel = executable(case, NAME, {})
    values["q"] *= 1e4
    given = list(values.values())
    assert_close(case, kernel(*given), given)
    values["q"] *= 0
    values["v"][:] = 3e38
    given = list(values.values())
    np.testing.assert_allclose(kernel(*given)[0], np.full((8, 8), 3e38), rtol=1e-6)


@pytest.mark.parametrize(("m", "n", "offset"), [(7, 17, 0), (17, 7, 4), (40, 40, -3), (131, 131, 0), (9, 5, 1000)])
def test_causal_scores(m: int, n: int, offset: int) -> None:
    case = Case("causal", (build(attend(causal(products(m, n, 5), m, n, offset), n, 16, safe=True), m, 16),))
    work = describe(case.bodies)
    assert work is not None and work.band == Band(most=offset)
    check(case, NAME)


@pytest.mark.parametrize("odd", [np.nan, INF])
def test_causal_scores_of_values_that_are_not_finite(odd: float) -> None:
    """Zero times what is not finite is NaN, also where it is not seen."""
    case = Case("causal", (build(attend(causal(products(40, 40, 5), 40, 40), 40, 16), 40, 16),))
    values = dict(zip((leaf.attrs[0] for leaf in case.operands), case.values(), strict=True))
    values["v"][39, 3] = odd
    given = list(values.values())
    found = run(case, given, NAME)
    assert_close(case, found, given)
    assert np.isnan(found[0][0, 3]) and np.isfinite(found[0][0, 4])


@pytest.mark.parametrize(
    ("m", "n", "back", "ahead"), [(300, 300, 10, 0), (131, 211, -5, 40), (97, 40, 60, 3), (7, 300, 1, 1)]
)
@pytest.mark.parametrize("odd", [0.0, np.nan])
def test_bands_of_scores(m: int, n: int, back: int, ahead: int, odd: float) -> None:
    i, j = element("iota", axis=-2, extent=m), element("iota", axis=-1, extent=n)
    distance = element("sub", j, i)
    seen = element("and", element("ge", distance, number(-back, "i64")), element("le", distance, number(ahead, "i64")))
    scores = element("where", seen, products(m, n, 5), number(-INF))
    case = Case("band", (build(attend(scores, n, 16, safe=True), m, 16),))
    work = describe(case.bodies)
    assert work is not None and work.band == Band(-back, ahead)
    values = dict(zip((leaf.attrs[0] for leaf in case.operands), case.values(), strict=True))
    values["v"][n // 2, 3] += odd
    given = list(values.values())
    assert_close(case, run(case, given, NAME), given)


def test_keys_above_the_diagonal_are_not_read() -> None:
    """A NaN in a key that no query sees reaches nothing."""
    case = Case("causal", (build(attend(causal(products(20, 60, 5), 20, 60), 60, 16), 20, 16),))
    values = dict(zip((leaf.attrs[0] for leaf in case.operands), case.values(), strict=True))
    values["k"][45:] = np.nan
    given = list(values.values())
    found = run(case, given, NAME)
    assert_close(case, found, given)
    assert np.isfinite(found[0]).all()


def bands() -> Iterator[tuple[str, Term, Band]]:
    scores = products(9, 11, 5)
    i, j = element("iota", axis=-2, extent=9), element("iota", axis=-1, extent=11)
    nothing, distance = number(-INF), element("sub", i, j)
    yield "strict", element("where", element("gt", i, j), scores, nothing), Band(most=-1)
    yield "turned", element("where", element("le", j, i), scores, nothing), Band(most=0)
    window = element("and", element("ge", i, j), element("lt", distance, number(3, "i64")))
    yield "window", element("where", window, scores, nothing), Band(-2, 0)
    near = element("le", element("abs", distance), number(2, "i64"))
    yield "near", element("where", near, scores, nothing), Band(-2, 2)
    nearer = element("and", near, element("gt", number(2, "i64"), element("abs", element("sub", j, i))))
    yield "nearer", element("where", nearer, scores, nothing), Band(-1, 1)
    never = element("and", element("gt", i, j), element("lt", i, j))
    yield "never", element("where", never, scores, nothing), Band(1, -1)
    queries = reindex(element("iota", axis=-1, extent=9), indexing.IndexMap((9,), (9, 1), (indexing.var(-2, 9),)))
    ahead = element("le", element("sub", j, queries), number(2, "i64"))
    yield "a view", element("where", ahead, scores, nothing), Band(most=2)
    masked = element("where", load("m", 9, 11, dtype="bool"), scores, nothing)
    yield "nested", element("where", element("ge", i, j), masked, nothing), Band(most=0)
    yield "mask", masked, Band()
    yield "finite", element("where", element("ge", i, j), scores, number(-1e9)), Band()
    yield "keys", element("where", element("lt", j, number(5, "i64")), scores, nothing), Band()
    behind = element("or", element("gt", j, i), element("ge", distance, number(4, "i64")))
    yield "hidden", element("where", behind, nothing, scores), Band(-3, 0)
    yield "not hidden", element("where", element("not", behind), scores, nothing), Band(-3, 0)
    away = element("gt", element("abs", distance), number(4, "i64"))
    yield "hidden far away", element("where", away, nothing, scores), Band(-4, 4)
    yield "hidden by both", element("where", element("and", away, element("gt", i, j)), nothing, scores), Band()
    yield "above", element("where", element("le", i, j), scores, nothing), Band(least=0)
    yield "far", element("where", element("ge", element("abs", distance), number(2, "i64")), scores, nothing), Band()
    either = element("or", element("ge", i, j), load("m", 9, 11, dtype="bool"))
    yield "either", element("where", either, scores, nothing), Band()
    yield "shifted", element("add", element("where", element("ge", i, j), scores, nothing), number(1)), Band()


@pytest.mark.parametrize(
    ("name", "scores", "band"), list(bands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_how_far_queries_see(name: str, scores: Term, band: Band) -> None:
    case = Case(name, (build(attend(scores, 11, 8, safe=True), 9, 8),))
    work = describe(case.bodies)
    assert work is not None and work.band == band
    check(case, NAME)


# ---- where operands and results lie ----------------------------------------------------------------------------------


def heads(name: str, part: int, m: int, d: int) -> Term:
    """One of three parts of a packed projection (2, m, 3 * 3 * d), as (2, 3, m, d)."""
    part_of = reindex(load(name, 2, m, 9 * d), indexing.slice_map((2, m, 9 * d), -1, part * 3 * d, 1, 3 * d))
    split = reindex(part_of, indexing.reshape_map((2, m, 3 * d), (2, m, 3, d)))
    return reindex(split, indexing.permute_map((2, m, 3, d), (0, 2, 1, 3)))


def packed(m: int, d: int) -> Term:
    scores = element("dot", heads("x", 0, m, d), turned(heads("x", 1, m, d), 2, 3, m, d), depth=d)
    return element("attend", scores, heads("x", 2, m, d), keys=m)


@pytest.mark.parametrize(("m", "d"), [(13, 16), (13, 5), (3, 8), (1, 8)])
def test_heads_are_read_and_written_in_place(m: int, d: int) -> None:
    together = reindex(packed(m, d), indexing.permute_map((2, 3, m, d), (0, 2, 1, 3)))
    merged = reindex(together, indexing.reshape_map((2, m, 3, d), (2, m, 3 * d)))
    check(Case("merged", (build(merged, 2, m, 3 * d),)), NAME)
    check(Case("together", (build(together, 2, m, 3, d),)), NAME)
    residual = element("add", element("mul", merged, load("g", 3 * d)), load("r", 2, m, 3 * d))
    check(Case("residual", (build(residual, 2, m, 3 * d), build(merged, 2, m, 3 * d))), NAME)


def test_results_may_be_stored_feature_by_feature() -> None:
    every = reindex(packed(13, 5), indexing.permute_map((2, 3, 13, 5), (1, 3, 0, 2)))
    check(Case("turned", (build(every, 3, 5, 2, 13),)), NAME)


def test_views_that_lose_or_repeat_results_are_refused() -> None:
    every = packed(13, 8)
    twice = indexing.IndexMap((2, 3, 13, 8), (2, 3, 13, 8), (*indexing.axes_of((2, 3, 13, 8))[:3], indexing.Affine(1)))
    part = indexing.slice_map((2, 3, 13, 8), -2, 0, 1, 5)
    backwards = indexing.slice_map((2, 3, 13, 8), -2, 12, -1, 13)
    shared = element("add", every, reindex(every, indexing.permute_map((2, 3, 13, 8), (0, 1, 2, 3))))
    for body in (
        build(reindex(every, twice), 2, 3, 13, 8),
        build(reindex(every, part), 2, 3, 5, 8),
        build(reindex(every, backwards), 2, 3, 13, 8),
        build(shared, 2, 3, 13, 8),
        build(element("add", every, load("y", 4, 1, 1, 1, 1)), 4, 2, 3, 13, 8),
    ):
        assert ATTENTION.estimate((body,), frozenset(), REFERENCE) is None
        with pytest.raises(LoweringError):
            ATTENTION.lower("kernel", (body,), frozenset())


def test_other_scores_are_refused() -> None:
    loaded = attend(load("s", 7, 9), 9, 8)
    whole = element("dot", load("a", 7, 5), load("b", 5, 9, dtype="f32"), depth=5)
    viewed = attend(reindex(whole, indexing.slice_map((7, 9), -1, 8, -1, 9)), 9, 8)
    both = attend(element("add", whole, products(7, 9, 4)), 9, 8)
    for result in (loaded, viewed, both):
        case = Case("other", (build(result, 7, 8),))
        assert ATTENTION.estimate(case.bodies, frozenset(), REFERENCE) is None
        assert templates.cheapest(case.bodies, frozenset(), REFERENCE) == "nest"
        check(case, "nest")


def test_operands_are_computed_on_the_way() -> None:
    q = element("tanh", element("add", load("q", 9, 6), load("bq", 6)))
    k = element("max", turned(element("add", load("k", 11, 6), load("bk", 6)), 11, 6), number(0))
    v = element("mul", load("v", 11, 10), load("w", 10))
    for scores in (element("dot", q, k, depth=6), element("tanh", element("dot", q, k, depth=6))):
        check(Case("prologues", (build(element("attend", scores, v, keys=11), 9, 10),)), NAME)


def test_keys_that_lie_transposed() -> None:
    for m in (1, 9):
        scores = element("dot", load("q", m, 6), load("k", 6, 21), depth=6)
        check(Case("transposed", (build(attend(scores, 21, 8), m, 8),)), NAME)


def test_queries_that_lie_apart() -> None:
    for m in (2, 9):
        scores = element("dot", turned(load("q", 6, m), 6, m), turned(load("k", 21, 6), 21, 6), depth=6)
        check(Case("apart", (build(attend(scores, 21, 8), m, 8),)), NAME)


def test_few_queries_read_keys_and_values_where_they_lie() -> None:
    few = planned(Case("few", (build(attend(products(1, 100, 64), 100, 64), 1, 64),)))
    many = planned(Case("many", (build(attend(products(50, 100, 64), 100, 64), 50, 64),)))
    assert few.keys_in_place and few.values_in_place and few.value_width == min(64, 8 * few.lanes)
    assert not many.keys_in_place and not many.values_in_place
    assert few.offset_by_part["end"] < many.offset_by_part["end"]


def test_results_do_not_depend_on_other_rows() -> None:
    case = Case("bits", (build(attend(products(17, 23, 7), 23, 10), 17, 10),))
    values = dict(zip((leaf.attrs[0] for leaf in case.operands), case.values(), strict=True))
    kernel = executable(case, NAME, {})
    (first,) = kernel(*values.values())
    values["q"][3:] += 1
    (second,) = kernel(*values.values())
    np.testing.assert_array_equal(first[:3], second[:3])
    assert (first[3:] != second[3:]).any()


# ---- prices and source -----------------------------------------------------------------------------------------------


def seconds(case: Case) -> float:
    estimate: Any = ATTENTION.estimate(case.bodies, frozenset(), REFERENCE)
    return estimate.seconds


def test_what_is_left_out_is_not_paid() -> None:
    full = Case("full", (build(attend(products(512, 512, 64, 12), 512, 64, 12), 12, 512, 64),))
    half = Case("half", (build(attend(causal(products(512, 512, 64, 12), 512, 512), 512, 64, 12), 12, 512, 64),))
    assert 0.5 < seconds(half) / seconds(full) < 0.75
    peak = 4 * 12 * 512 * 512 * 64 / (2 * REFERENCE.fma_f32_per_s)
    assert peak < seconds(full) < 2 * peak


def test_generated_source_says_what_it_computes() -> None:
    case = Case("attention", (build(attend(products(128, 128, 64, 12), 128, 64, 12), 12, 128, 64),))
    lowered = executable(case, NAME, {}).lowered[0]
    assert isinstance(lowered, LoweredKernel)
    chosen = planned(case)
    tile = f"{chosen.tiling.large_rows} queries x {chosen.key_width} keys, x {chosen.value_width} features"
    assert f"12 x 128 queries of 128 keys: tiles of {tile}" in lowered.source
    assert len(lowered.source.splitlines()) < 60
