"""The template of folds over few places: pools and depthwise windows with the channels last."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_cases import Case, build, case_named, element, fold, load, number, reindex
from product_cases import check

from frittata.egraph import indexing, shapes
from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.windows import pool_extents
from frittata.egraph.terms import Term
from frittata.kernels import templates
from frittata.kernels.taps import describe
from frittata.kernels.templates.taps import TAPS
from frittata.rules import geometry

NAME = TAPS.name


def windows(
    shape: tuple[int, ...],
    kernel: tuple[int, int] = (3, 3),
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    dtype: str = "f32",
) -> tuple[Term, tuple[int, ...]]:
    """Return the windows of an image (batch, height, width, channels), kernel axes in front, and the result's shape."""
    strides, dilations, paddings = (stride,) * 2, (dilation,) * 2, (padding,) * 2
    out = pool_extents(shape[1:3], kernel, strides, paddings, dilations, False)
    mapping = indexing.pool_map_last(shape, kernel, paddings, strides, dilations, out)
    return reindex(load("x", *shape, dtype=dtype), mapping), (shape[0], *out, shape[3])


def over_window(op: str, e: Term, kernel: tuple[int, int] = (3, 3)) -> Term:
    """Fold the two axes in front."""
    return fold(op, fold(op, e, -5, kernel[1]), -6, kernel[0])


def depthwise(shape: tuple[int, ...], kernel: tuple[int, int] = (3, 3), **how: Any) -> tuple[Term, tuple[int, ...]]:
    view, out = windows(shape, kernel, **how)
    return over_window("sum", element("mul", view, load("w", *kernel, 1, 1, 1, shape[3])), kernel), out


def grouped(
    shape: tuple[int, ...], outputs: int, groups: int, kernel: tuple[int, int] = (3, 2), stride: int = 1
) -> tuple[Term, tuple[int, ...]]:
    """Return windows times weights, summed over a group's channels, weights in parts as `last-grouped` has them."""
    inputs, (lines, columns) = shape[3] // groups, kernel
    weights, strides, dilations = (outputs, inputs, *kernel), (stride,) * 2, (1, 1)
    parts, part = shapes.concrete(geometry.by_lines(weights)[:2])
    v = load("v", parts, lines, inputs, columns, part)
    view = reindex(load("x", *shape), geometry.group_view_last(shape, weights, strides, dilations))
    e = element("mul", view, reindex(v, geometry.parts_map(v.args[0].shape)))
    e = fold("sum", fold("sum", fold("sum", e, -5, columns), -6, inputs), -7, lines)
    return e, shapes.concrete(geometry.convolved_last(shape, weights, strides, dilations))


@pytest.mark.parametrize("channels", [2, 7, 8, 17, 40])
@pytest.mark.parametrize("width", [3, 9, 17])
def test_depthwise_at_odd_sizes(channels: int, width: int) -> None:
    e, out = depthwise((3, 5, width, channels))
    check(Case("depthwise", (build(e, *out),)), NAME, ("w",))


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [((3, 3), 2, 1), ((5, 5), 1, 1), ((2, 3), 3, 1), ((3, 2), 1, 2)]
)
def test_depthwise_strides_and_dilations(kernel: tuple[int, int], stride: int, dilation: int) -> None:
    e, out = depthwise((2, 13, 14, 11), kernel, stride=stride, dilation=dilation)
    shifted = element("max", element("add", e, load("b", 11)), number(0))
    check(Case("strided", (build(shifted, *out), build(e, *out))), NAME, ("w", "b"))


@pytest.mark.parametrize("op", ["max", "min", "sum", "prod"])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("channels", [7, 16])
def test_pools_keep_what_is_special(op: str, padding: int, channels: int) -> None:
    view, out = windows((2, 9, 8, channels), stride=2, padding=padding)
    check(Case("pool", (build(over_window(op, view), *out),), special=True), NAME)


def test_a_prologue_and_double_precision() -> None:
    view, out = windows((1, 6, 9, 5), dtype="f64")
    e = over_window("sum", element("max", view, number(0, "f64")))
    check(Case("prologue", (build(element("div", e, number(9, "f64")), *out),)), NAME)


def test_a_mean_over_whole_images() -> None:
    e = fold("sum", fold("sum", load("x", 2, 7, 7, 70), -2, 7), -3, 7)
    check(Case("mean", (build(element("mul", e, number(1 / 49)), 2, 1, 1, 70),)), NAME)


def test_a_short_last_axis_and_few_axes() -> None:
    check(Case("short", (build(fold("sum", load("x", 5, 4, 3), -3, 5), 1, 4, 3),)), NAME)
    check(Case("vector", (build(fold("sum", load("x", 5, 9), -2, 5), 1, 9),)), NAME)


def test_depthwise_windows_are_cheapest_here() -> None:
    e, out = depthwise((1, 30, 30, 64))
    assert templates.cheapest((build(e, *out),), frozenset("w"), REFERENCE) == NAME


@pytest.mark.parametrize(
    ("channels", "outputs", "groups"),
    [(8, 8, 4), (16, 16, 4), (32, 32, 4), (48, 48, 3), (12, 12, 3), (16, 32, 4), (32, 16, 8), (6, 15, 3), (34, 34, 2)],
)
@pytest.mark.parametrize("stride", [1, 2])
def test_windows_by_groups(channels: int, outputs: int, groups: int, stride: int) -> None:
    e, out = grouped((2, 5, 11, channels), outputs, groups, stride=stride)
    shifted = element("max", element("add", e, load("b", outputs)), number(0))
    check(Case("grouped", (build(shifted, *out),)), NAME, ("v", "b"))


def test_many_places_are_a_loop_around_some() -> None:
    e, out = grouped((1, 9, 9, 64), 64, 2)
    work = describe((build(e, *out),))
    assert work is not None
    assert work.turns * len(work.places) == 32 * 6
    assert work.turns > 1
    check(Case("turns", (build(e, *out),)), NAME, ("v",))


def test_the_last_axis_is_never_folded() -> None:
    assert describe((build(fold("sum", load("x", 5, 9), -1, 9), 5, 1),)) is None


def test_parts_of_a_fold_that_are_read_beside_it_are_refused() -> None:
    view, shape = windows((1, 6, 12, 5))
    inner = over_window("max", view)
    whole = fold("max", inner, -4, 1)
    assert describe((build(whole, *shape),)) is not None
    assert describe((build(element("sub", inner, whole), *shape),)) is None
    assert describe((build(whole, *shape), build(inner, *shape))) is None


def test_folds_over_many_places_are_refused() -> None:
    assert describe((build(fold("sum", load("x", 100, 9), -2, 100), 1, 9),)) is None
    assert describe((build(fold("sum", fold("sum", load("x", 60, 60, 9), -2, 60), -3, 60), 1, 1, 9),)) is None


@pytest.mark.parametrize("name", ["attention", "softmax-17", "window-fused"])
def test_other_bodies_are_refused(name: str) -> None:
    bodies = case_named(name).bodies
    assert TAPS.estimate(bodies, frozenset(), REFERENCE) is None
    with pytest.raises(LoweringError):
        TAPS.lower("k", bodies, frozenset())


def test_what_each_lane_clamps_is_loaded_lane_by_lane() -> None:
    """A margin is dear where windows run over the last axis, and cheap where they run over those in front of it."""

    def units(e: Term, shape: tuple[int, ...], axes: tuple[int, int]) -> float:
        work = describe((build(fold("max", fold("max", e, axes[0], 3), axes[1], 3), *shape),))
        assert work is not None
        return work.units

    dear, cheap = (
        [units(*over_last(margin), (-4, -5)) for margin in (1, 0)],
        [units(*windows((1, 60, 62, 16), padding=margin), (-5, -6)) for margin in (1, 0)],
    )
    assert dear[0] > 3 * dear[1] and cheap[0] < 1.5 * cheap[1]


def test_loads_that_fall_together_at_some_places_only() -> None:
    """Pairs of neighbours, each element twice: at even places both are the same one."""
    shape = (1, 6, 12, 5)
    columns = indexing.var(-2, 12)
    _, rows, _, channels = indexing.axes_of(shape)
    halves = [
        indexing.IndexMap((1, 6, 7, 5), shape, (indexing.Affine(), rows, (columns + n) // 2, channels)) for n in (0, 1)
    ]
    pairs = element("mul", *(reindex(load("x", 1, 6, 7, 5), half) for half in halves))
    view = indexing.pool_map_last(shape, (3, 3), (1, 1), (1, 1), (1, 1), (6, 12))
    check(Case("pairs", (build(over_window("max", reindex(pairs, view)), *shape),)), NAME)


def over_last(margin: int) -> tuple[Term, tuple[int, ...]]:
    """Return windows of 3 x 3 over the last two axes, and the result's shape."""
    out = (58 + 2 * margin, 62 + 2 * margin)
    view = indexing.pool_map((2, 60, 64), (3, 3), (margin, margin), (1, 1), (1, 1), out)
    return reindex(load("x", 2, 60, 64), view), (2, *out)
