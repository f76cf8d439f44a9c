"""The stencil template: windows of products and of folds, strides, margins, groups, lines shorter than a vector."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from kernel_cases import Case, build, element, fold, load, number, padded, pool, reindex, window
from product_cases import assert_close, check, run

from frittata.egraph import indexing
from frittata.egraph.indexing import IndexMap, var
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.elements import window_extents
from frittata.egraph.terms import Term
from frittata.kernels import stencils, templates
from frittata.kernels.stencil_schedule import plan
from frittata.kernels.templates.stencil import STENCIL

NAME = STENCIL.name
Shape = tuple[int, ...]


def convolution(
    extents: Shape,
    kernel: Shape,
    channels: tuple[int, int, int],
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    dtype: str = "f32",
) -> tuple[Term, Shape]:
    """Return the element and the shape of a convolution of x and w; `channels` are inputs, outputs and groups."""
    inputs, outputs, groups = channels
    x = load("x", 2, inputs, *extents, dtype=dtype)
    w = load("w", outputs, inputs // groups, *kernel, dtype=dtype)
    rank = len(kernel)
    out = window_extents(extents, kernel, (stride,) * rank, (padding,) * rank, (dilation,) * rank)
    return window(x, w, (inputs, *extents), kernel, stride, padding, dilation, groups), (2, outputs, *out)


# ---- products --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(
    ("extents", "kernel", "padding", "dilation"),
    [((9, 9), (3, 3), 1, 1), ((13, 33), (5, 2), 2, 2), ((7, 5), (2, 3), 1, 1), ((17,), (4,), 1, 1)],
)
def test_one_channel_a_group(extents: Shape, kernel: Shape, padding: int, dilation: int, stride: int) -> None:
    e, shape = convolution(extents, kernel, (5, 5, 5), stride=stride, padding=padding, dilation=dilation)
    check(Case("depthwise", (build(e, *shape),)), NAME, ("w",))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", [(6, 12, 6), (12, 12, 3), (3, 13, 1)])
@pytest.mark.parametrize("extents", [(9, 7), (17, 24)])
def test_several_channels_a_group(extents: Shape, channels: tuple[int, int, int], stride: int) -> None:
    e, shape = convolution(extents, (3, 3), channels, stride=stride, padding=1)
    check(Case("grouped", (build(e, *shape),)), NAME, ("w",))


def test_double_precision() -> None:
    e, shape = convolution((9, 7), (3, 3), (4, 8, 4), stride=2, padding=1, dtype="f64")
    check(Case("f64", (build(e, *shape),)), NAME, ("w",))


def test_an_image_in_bands_and_chunks_is_the_same_on_one_thread() -> None:
    e, shape = convolution((90, 200), (3, 3), (3, 3, 3), padding=1)
    case = Case("bands", (build(e, *shape),))
    work = stencils.describe(case.bodies)
    found = plan(work) if work is not None else None
    assert found is not None and found.bands > 1 and found.chunks > 1
    values = case.values()
    got = run(case, values, NAME, ("w",))
    assert_close(case, got, values)
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        (alone,) = run(case, values, NAME, ("w",))
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(got[0], alone)


@pytest.mark.parametrize(("pixels", "size"), [(33, 33), (200, 39), (129, 17)])
def test_long_windows_along_a_line_have_many_vectors_of_it_at_once(pixels: int, size: int) -> None:
    e, shape = convolution((pixels,), (size,), (6, 6, 6), padding=size // 2)
    case = Case("line", (build(e, *shape),))
    work = stencils.describe(case.bodies)
    found = plan(work) if work is not None else None
    assert found is not None and found.vectors >= min(4, -(-pixels // found.lanes))
    check(case, NAME, ("w",))


@pytest.mark.parametrize(
    ("extents", "kernel", "channels", "stride", "dtype"),
    [
        ((300,), (256,), (3, 3, 3), 1, "f32"),
        ((131,), (67,), (4, 2, 2), 1, "f32"),
        ((500,), (101,), (2, 2, 2), 3, "f32"),
        ((7, 150), (3, 70), (2, 2, 2), 1, "f32"),
        ((200,), (41,), (2, 2, 2), 2, "f64"),
    ],
)
def test_taps_of_long_windows_go_side_by_side_that_are_vectors_apart(
    extents: Shape, kernel: Shape, channels: tuple[int, int, int], stride: int, dtype: str
) -> None:
    e, shape = convolution(extents, kernel, channels, stride=stride, padding=kernel[-1] // 2, dtype=dtype)
    case = Case("long", (build(e, *shape),))
    work = stencils.describe(case.bodies)
    found = plan(work) if work is not None else None
    assert found is not None and found.is_long
    check(case, NAME, ("w",))


@pytest.mark.parametrize(("kernel", "stride", "dilation"), [((31, 31), 1, 1), ((29, 17), 2, 1), ((23, 14), 1, 2)])
def test_large_windows_are_turns_of_some_of_their_lines(kernel: Shape, stride: int, dilation: int) -> None:
    padding = kernel[0] // 2 * dilation
    e, shape = convolution((19, 37), kernel, (3, 3, 3), stride=stride, padding=padding, dilation=dilation)
    case = Case("large", (build(e, *shape),))
    work = stencils.describe(case.bodies)
    found = plan(work) if work is not None else None
    assert found is not None and 1 < found.turn < kernel[0] and found.sums > 1 and not found.is_long
    check(case, NAME, ("w",))


def test_a_prologue_does_not_touch_the_margin_and_an_epilogue_is_fused() -> None:
    x = element("exp", element("add", load("x", 2, 4, 9, 9), load("t", 4, 1, 1)))
    w = element("mul", load("w", 4, 1, 3, 3), load("v", 4, 1, 1, 1))
    e = window(x, w, (4, 9, 9), (3, 3), 1, 1, 1, 4)
    biased = element("add", element("add", e, load("b", 4, 1, 1)), load("r", 2, 4, 9, 9))
    clipped = element("min", element("max", biased, number(0)), number(6))
    check(Case("fused", (build(clipped, 2, 4, 9, 9), build(e, 2, 4, 9, 9))), NAME, ("w", "v", "b"))


def test_what_is_not_finite_stays_in_its_windows() -> None:
    e, shape = convolution((9, 9), (3, 3), (3, 3, 3), padding=1)
    case = Case("special", (build(e, *shape),))
    x, w = case.values()
    x[0, 1, 4, 4], x[1, 0, 0, 8], w[2, 0, 1, 1] = np.nan, np.inf, np.inf
    with np.errstate(invalid="ignore"):
        assert_close(case, run(case, [x, w], NAME, ("w",)), [x, w])


def test_weights_that_come_at_run_time_and_windows_of_volumes_are_refused() -> None:
    e, shape = convolution((9, 9), (3, 3), (3, 3, 3), padding=1)
    assert STENCIL.estimate((build(e, *shape),), frozenset(), REFERENCE) is None
    e, shape = convolution((5, 5, 5), (2, 2, 2), (3, 3, 3))
    assert STENCIL.estimate((build(e, *shape),), frozenset("w"), REFERENCE) is None


def test_how_it_is_cut_depends_on_nothing_but_sizes() -> None:
    def cut(*extents: int, bias: bool = False, dtype: str = "f32") -> tuple[int, ...]:
        e, shape = convolution(extents, (3, 3), (8, 8, 8), padding=1, dtype=dtype)
        body = build(element("add", e, load("b", 8, 1, 1, dtype=dtype)) if bias else e, *shape)
        work = stencils.describe((body,))
        assert work is not None
        found = plan(work)
        assert found is not None
        assert found.work is work and work.bodies == (body,)  # not another's, for which it was found first
        return found.outputs, found.lines, found.vectors, found.bands, found.turn

    assert cut(64, 64) == cut(64, 64, bias=True)
    assert len({cut(64, 64), cut(200, 9), cut(64, 64, dtype="f64")}) == 3


def test_depthwise_convolutions_are_given_to_it_and_deep_ones_are_not() -> None:
    e, shape = convolution((28, 28), (3, 3), (32, 32, 32), padding=1)
    assert templates.cheapest((build(e, *shape),), frozenset("w"), REFERENCE) == NAME
    e, shape = convolution((28, 28), (3, 3), (256, 256, 1), padding=1)
    assert templates.cheapest((build(e, *shape),), frozenset("w"), REFERENCE) == "convolution"


# ---- folds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("kernel", "low"), [((3, 3), 1), ((2, 2), 0), ((1, 3), 0), ((5, 1), 0)])
def test_the_maximum_of_windows(kernel: Shape, low: int, stride: int) -> None:
    e, shape = pool(load("x", 2, 3, 9, 17), "max", kernel, stride, low)
    check(Case("max", (build(element("add", e, load("b", 3, 1, 1)), *shape),), special=True), NAME)


def test_the_maximum_of_large_windows() -> None:
    e, shape = pool(load("x", 2, 40, 37), "max", (19, 18), 1, 0)
    case = Case("large", (build(e, *shape),), special=True)
    work = stencils.describe(case.bodies)
    found = plan(work) if work is not None else None
    assert found is not None and found.turn < 19 and found.sums > 1
    check(case, NAME)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_sum_of_windows_of_a_padded_image(dtype: str) -> None:
    image = padded(element("exp", load("x", 3, 7, 33, dtype=dtype)), 1, 0)
    e, shape = pool(image, "sum", (3, 3), 1, 0)
    check(Case("mean", (build(element("mul", e, number(1 / 9, dtype)), *shape),)), NAME)


def test_windows_of_lines() -> None:
    e, shape = pool(load("x", 3, 40), "min", (4,), 2, 1)
    check(Case("lines", (build(e, *shape),), special=True), NAME)


def test_other_folds_are_refused() -> None:
    x = load("x", 4, 9, 9)
    wide = IndexMap((4, 9, 9), (2, 4, 9, 9), (var(-3, 4), var(-2, 9), var(-1, 9)))
    repeated = fold("sum", reindex(x, wide), -4, 2)  # the fold's axis moves no window
    mixed = element("add", pool(x, "max", (3, 3), 1, 1)[0], fold("sum", x, -1, 9))
    view = reindex(pool(x, "max", (3, 3), 1, 1)[0], indexing.permute_map((4, 9, 9), (0, 2, 1)))
    for e in (repeated, mixed, view):
        assert stencils.describe((build(e, 4, 9, 9),)) is None
