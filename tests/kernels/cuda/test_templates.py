"""Which template a GPU's prices choose, and that every body has one."""

from __future__ import annotations

import pytest
from kernel_cases import CASES, RANDOM_CASES, build, case_named, element, fold, load, number, softmax

from frittata.egraph import terms
from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import REFERENCE_GPU
from frittata.egraph.terms import Term
from frittata.kernels import spelling
from frittata.kernels.cuda import templates
from frittata.kernels.cuda.kernel import MOST_THREADS, SHARED_BYTES
from frittata.kernels.cuda.quads import QUAD
from frittata.kernels.cuda.rows import plan
from frittata.kernels.cuda.templates import TEMPLATES, by_name
from frittata.kernels.cuda.tensor import halves_of
from frittata.kernels.cuda.tensor_tiles import CHUNK, TENSOR_TILES
from frittata.kernels.cuda.tiles import TILES, Tile, choose_tile
from frittata.kernels.templates import contraction


def cheapest(body: Term) -> str:
    priced = [(t.estimate((body,), frozenset(), REFERENCE_GPU), t.name) for t in TEMPLATES]
    return min((estimate.seconds, name) for estimate, name in priced if estimate is not None)[1]


def test_every_case_has_a_finite_price() -> None:
    for case in (*CASES, *RANDOM_CASES):
        found = [t.estimate(case.bodies, frozenset(), REFERENCE_GPU) for t in TEMPLATES]
        assert found[0] is not None or found[-1] is not None
        assert all(REFERENCE_GPU.launch_s < e.seconds < 1e-3 for e in found if e is not None), case.name


def test_the_cases_have_every_operator() -> None:
    assert {term.op for case in CASES for term in terms.walk(*case.bodies)} >= spelling.OPS


def test_what_a_template_does_not_price_it_refuses_to_write() -> None:
    bodies = case_named("gelu-bias").bodies
    for name in ("row", "contraction", "convolution"):
        assert by_name(name).estimate(bodies, frozenset(), REFERENCE_GPU) is None
        with pytest.raises(LoweringError):
            by_name(name).write("gelu", bodies)
    with pytest.raises(LoweringError, match="it has pointwise, row"):
        by_name("stencil")


def test_prices_choose_the_template_of_each_kind() -> None:
    assert cheapest(build(softmax(load("x", 4096, 1024), -1, 1024), 4096, 1024)) == "row"
    assert cheapest(build(element("exp", load("x", 4096, 1024)), 4096, 1024)) == "pointwise"
    large = element("dot", load("a", 1024, 1024), load("b", 1024, 1024), depth=1024)
    assert cheapest(build(element("tanh", large), 1024, 1024)) == "contraction"
    vector = element("dot", load("a", 1, 4096), load("b", 4096, 1), depth=4096)
    assert cheapest(build(vector, 1, 1)) == "row"


def test_sums_down_many_columns_go_to_threads_of_their_own() -> None:
    down = build(fold("sum", load("x", 4, 1 << 20), -2, 4), 1, 1 << 20)
    assert cheapest(down) == "nest"
    few = build(fold("sum", load("x", 1 << 16, 64), -2, 1 << 16), 1, 64)
    assert cheapest(few) == "row"


@pytest.mark.parametrize(("depth", "fits"), [(24, False), (25, True), (33, False), (49, True)])
def test_every_team_has_a_slice(depth: int, fits: bool) -> None:
    work = contraction.describe((build(element("dot", load("a", 9, depth), load("b", depth, 7), depth=depth), 9, 7),))
    assert work is not None
    assert Tile(4, 4, 4, 4, 8, 4).fits(work) == fits


@pytest.mark.parametrize(("extent", "meets"), [(16, False), (640, True)])
def test_sums_down_columns_are_priced_by_where_they_meet(
    extent: int, meets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = build(fold("sum", load("x", extent, 257), -2, extent), 1, 257)
    found = plan((body,), frozenset({-2}))
    assert found is not None and found.columns and found.lanes > 1 and (found.meeting > 0) == meets
    monkeypatch.setattr("frittata.kernels.cuda.work.MEET_S", 1.0)
    estimate = templates._rows_estimate((body,), found, REFERENCE_GPU)  # type: ignore[reportPrivateUsage]
    assert (estimate.seconds > 1.0) == meets


def test_a_product_takes_its_flops_at_a_part_of_the_peak() -> None:
    body = build(element("dot", load("a", 4096, 4096), load("b", 4096, 4096), depth=4096), 4096, 4096)
    estimate = by_name("contraction").estimate((body,), frozenset(), REFERENCE_GPU)
    assert estimate is not None
    least = 4096**3 / REFERENCE_GPU.fma_f32_per_s
    assert least / 0.75 < estimate.seconds < least / 0.5


def test_large_products_have_large_tiles_and_small_ones_small() -> None:
    def tile(m: int, n: int, k: int) -> tuple[int, int, int]:
        body = build(element("dot", load("a", m, k), load("b", k, n), depth=k), m, n)
        work = contraction.describe((body,))
        assert work is not None
        chosen = choose_tile(work, REFERENCE_GPU)
        return chosen.rows, chosen.columns, chosen.teams

    assert tile(4096, 4096, 512) == (128, 128, 1)
    rows, columns, teams = tile(8, 4096, 512)
    assert rows <= 32 and columns <= 64 and teams > 1
    assert tile(128, 128, 512) < (64, 64)
    assert tile(128, 128, 512)[-1] > 1, "few results of long sums: teams share the depth"


def test_products_of_halves_go_to_tensor_cores() -> None:
    def halves(m: int, n: int, k: int, dtype: str = "bf16") -> Term:
        sides = (element("cast", load(x, *s, dtype=dtype), dtype="f32") for x, s in (("a", (m, k)), ("b", (k, n))))
        return build(element("dot", *sides, depth=k), m, n)

    assert cheapest(halves(1024, 1024, 1024)) == "tensor"
    assert cheapest(halves(1, 4096, 4096)) == "row"
    bodies = (halves(4096, 4096, 4096),)
    estimates = [by_name(name).estimate(bodies, frozenset(), REFERENCE_GPU) for name in ("contraction", "tensor")]
    assert estimates[0] is not None and estimates[1] is not None
    assert 8 * estimates[1].seconds < estimates[0].seconds
    assert by_name("tensor").estimate((halves(64, 64, 64, "u8"),), frozenset(), REFERENCE_GPU) is None
    with pytest.raises(LoweringError, match="product of halves"):
        by_name("tensor").write("bytes", (halves(64, 64, 64, "u8"),))


def test_values_that_are_all_halves_are_found() -> None:
    def found(left: Term) -> str | None:
        work = contraction.describe((build(element("dot", left, wide("b", 9, 5), depth=9), 7, 5),))
        assert work is not None
        return halves_of(work)

    def wide(name: str, *shape: int, dtype: str = "bf16") -> Term:
        return element("cast", load(name, *shape, dtype=dtype), dtype="f32")

    a = wide("a", 7, 9)
    assert found(a) == found(element("neg", element("max", a, number(0)))) == "bf16"
    assert found(element("where", load("flag", 7, 1, dtype="bool"), a, wide("c", 7, 9))) == "bf16"
    assert found(element("max", a, number(0.1))) is None
    assert found(element("mul", a, number(2))) is None
    assert found(wide("a", 7, 9, dtype="f16")) is None
    assert found(load("a", 7, 9)) is None


def test_tiles_fit_into_a_block() -> None:
    for tile in TENSOR_TILES:
        assert tile.threads <= MOST_THREADS and tile.shared_bytes <= SHARED_BYTES
        assert all(extent * tile.depth % (CHUNK * tile.threads) == 0 for extent in (tile.rows, tile.columns))
        assert 2 <= tile.stages <= 8 and tile.n % 2 == tile.depth % 16 == 0
    for tile in TILES:
        assert tile.team <= MOST_THREADS and tile.threads <= 2 * MOST_THREADS
        assert tile.depth <= tile.team
        for rows in (tile.rows, tile.columns):
            width = QUAD if rows * tile.depth >= QUAD * tile.team else 1
            assert rows * tile.depth % (width * tile.team) == 0
