"""The winograd template: odd images and channels, batches, margins, what is fused, NaN, how it is cut."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_cases import Array, Case, build, element, load, number
from product_cases import run

from frittata.egraph import indexing, shapes
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.elements import window_extents
from frittata.egraph.ops.winograd import as_window_dot
from frittata.egraph.terms import Term
from frittata.kernels import templates
from frittata.kernels.gemm_schedule import NEAR_PART_BYTES
from frittata.kernels.templates.convolution import CONVOLUTION
from frittata.kernels.templates.nest import NEST
from frittata.kernels.templates.winograd import WINOGRAD
from frittata.kernels.winograd import describe, plan

TOLERANCE = {("f32", 2): 1e-5, ("f32", 4): 1e-4, ("f64", 2): 1e-12, ("f64", 4): 1e-12}

Shape = tuple[int, ...]


def tiled(
    extents: tuple[int, int],
    *,
    batch: int = 1,
    inputs: int = 3,
    outputs: int = 5,
    padding: tuple[int, int] = (1, 1),
    tile: int = 2,
    dtype: str = "f32",
    image: Term | None = None,
) -> tuple[Term, Shape]:
    """Return the element and the shape of a convolution of x, or of `image`, and w."""
    x = image or load("x", batch, *extents, inputs, dtype=dtype)
    w = load("w", outputs, inputs, 3, 3, dtype=dtype)
    e = element("winograd_dot", x, w, source=(*extents, inputs), channels=outputs, padding=padding, tile=tile)
    return e, (batch, *window_extents(extents, (3, 3), (1, 1), padding, (1, 1)), outputs)


def assert_right(case: Case, got: tuple[Array, ...], values: list[Array], tile: int) -> None:
    """Compare with the law: relative to the largest value, NaN and infinities exactly."""
    for body, ours, law in zip(case.bodies, got, case.expected(values), strict=True):
        assert ours.shape == law.shape
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(law))
        np.testing.assert_array_equal(np.isinf(ours), np.isinf(law))
        finite = np.isfinite(law)
        scale = np.abs(law[finite]).max(initial=1.0)
        assert np.abs(ours[finite] - law[finite]).max(initial=0.0) <= TOLERANCE[body.dtype, tile] * scale


def check(case: Case, tile: int = 2, constants: tuple[str, ...] = ("w",)) -> None:
    values = case.values()
    assert_right(case, run(case, values, WINOGRAD.name, constants), values, tile)


def epilogue(e: Term, shape: Shape) -> Term:
    biased = element("add", e, load("b", shape[-1]))
    return element("max", element("add", biased, load("r", *shape)), number(0))


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    ("extents", "padding"),
    [((1, 1), (1, 1)), ((4, 4), (0, 0)), ((2, 3), (1, 0)), ((7, 7), (1, 1)), ((13, 10), (0, 0)), ((5, 17), (2, 1))],
)
def test_odd_images_and_margins(extents: tuple[int, int], padding: tuple[int, int], tile: int) -> None:
    e, shape = tiled(extents, batch=3, padding=padding, tile=tile)
    check(Case("image", (build(e, *shape),)), tile)


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (7, 17), (17, 7), (65, 24), (8, 65)])
def test_ragged_channels(inputs: int, outputs: int) -> None:
    e, shape = tiled((6, 7), inputs=inputs, outputs=outputs)
    check(Case("channels", (build(epilogue(e, shape), *shape),)))


@pytest.mark.parametrize("tile", [2, 4])
def test_bias_residual_and_relu_and_a_second_result(tile: int) -> None:
    e, shape = tiled((9, 8), batch=2, inputs=8, outputs=20, tile=tile)
    check(Case("residual", (build(epilogue(e, shape), *shape), build(e, *shape))), tile, ("w", "b"))


def test_a_prologue_does_not_touch_the_margin() -> None:
    x = element("add", element("mul", load("x", 2, 9, 7, 5), load("s", 5)), load("t", 5))
    e, shape = tiled((9, 7), batch=2, inputs=5, padding=(1, 2), image=element("exp", x))
    check(Case("prologue", (build(e, *shape),)))


def test_an_image_that_is_not_consecutive_along_the_channels() -> None:
    x = element("reindex", load("x", 2, 5, 9, 7), map=indexing.permute_map((2, 5, 9, 7), (0, 2, 3, 1)))
    e, shape = tiled((9, 7), batch=2, inputs=5, image=x)
    case = Case("channels-first", (build(e, *shape),))
    check(case)
    plain, _ = tiled((9, 7), batch=2, inputs=5)
    apart, beside = (
        WINOGRAD.estimate((build(one, *shape),), frozenset("w"), REFERENCE).seconds  # type: ignore[union-attr]
        for one in (e, plain)
    )
    assert apart > beside


@pytest.mark.parametrize("tile", [2, 4])
def test_double_precision(tile: int) -> None:
    e, shape = tiled((9, 7), inputs=9, outputs=10, dtype="f64", tile=tile)
    check(Case("f64", (build(e, *shape),)), tile)


@pytest.mark.parametrize(
    ("extents", "inputs", "outputs", "tile"), [((30, 31), 16, 40, 2), ((30, 31), 16, 40, 4), ((7, 7), 128, 100, 2)]
)
def test_chunks_and_blocks(extents: tuple[int, int], inputs: int, outputs: int, tile: int) -> None:
    e, shape = tiled(extents, inputs=inputs, outputs=outputs, tile=tile)
    body = build(epilogue(e, shape), *shape)
    work = describe((body,))
    assert work is not None
    assert plan(work).chunks > 1
    assert (plan(work).panel_parts > 1) == (extents == (7, 7))
    check(Case("chunks", (body,)), tile, ("w", "b"))


@pytest.mark.parametrize(("inputs", "can_be_cut"), [(1022, True), (1021, False)])
def test_few_tiles_take_parts_of_weights_that_the_nearest_cache_holds(inputs: int, can_be_cut: bool) -> None:
    e, shape = tiled((7, 7), inputs=inputs, outputs=70)
    body = build(epilogue(e, shape), *shape)
    work = describe((body,))
    assert work is not None
    assert (plan(work).depth * plan(work).width * work.itemsize <= NEAR_PART_BYTES) == can_be_cut
    check(Case("parts", (body,)), constants=("w", "b"))


def test_nan_and_infinity_reach_the_results_whose_windows_hold_them() -> None:
    e, shape = tiled((11, 9), inputs=4, outputs=9)
    case = Case("special", (build(e, *shape),))
    x, w = case.values()
    x[0, 3, 4, 1], x[0, 8, 2, 0] = np.nan, np.inf
    (got,) = run(case, [x, w], WINOGRAD.name, ("w",))
    assert_right(case, (got,), [x, w], 2)
    odd = np.argwhere(~np.isfinite(got).all(-1))[:, 1:]
    near = {(y + dy, z + dz) for y, z in ((3, 4), (8, 2)) for dy in (-1, 0, 1) for dz in (-1, 0, 1)}
    assert {(int(y), int(z)) for y, z in odd} == near


def test_nan_stays_in_large_tiles() -> None:
    e, shape = tiled((11, 9), inputs=4, outputs=9, tile=4)
    case = Case("nan", (build(e, *shape),))
    x, w = case.values()
    x[0, 3, 4, 1] = np.nan
    (got,) = run(case, [x, w], WINOGRAD.name, ("w",))
    assert np.isnan(got[0, 2:5, 3:6]).all()
    assert np.isfinite(got[0, 8:]).all()


def test_the_nest_computes_it_too() -> None:
    e, shape = tiled((5, 6), batch=2, padding=(0, 1))
    case = Case("nest", (build(epilogue(e, shape), *shape),))
    values = case.values()
    assert_right(case, run(case, values, NEST.name), values, 2)


def test_weights_must_be_known_and_nothing_else_be_bound() -> None:
    e, shape = tiled((6, 6))
    assert WINOGRAD.estimate((build(e, *shape),), frozenset(), REFERENCE) is None
    folded = element("fold", e, op="sum", axis=-1, extent=shape[-1])
    assert WINOGRAD.estimate((build(folded, *shape[:-1], 1),), frozenset("w"), REFERENCE) is None


def test_the_plain_form_has_no_use_for_it() -> None:
    assert WINOGRAD in templates.select("fast", True)
    assert WINOGRAD not in templates.select("plain", True)


@pytest.mark.parametrize(("extent", "channels"), [(56, 64), (28, 128), (14, 256), (7, 512)])
def test_it_is_cheaper_than_the_direct_way_on_wide_layers(extent: int, channels: int) -> None:
    e, shape = tiled((extent, extent), inputs=channels, outputs=channels)
    direct = as_window_dot(e).args[0]
    rival = build(direct, *shapes.concrete(direct.shape))
    found = WINOGRAD.estimate((build(e, *shape),), frozenset("w"), REFERENCE)
    other = CONVOLUTION.estimate((rival,), frozenset("w"), REFERENCE)
    assert found is not None and other is not None
    assert found.seconds < 0.8 * other.seconds
