"""The convolution template: strides, margins, dilation, groups, lines shorter than a vector, what is fused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_cases import Case, build, case_named, element, load, number, reindex, window
from product_cases import assert_close, check, run

from frittata.egraph import indexing
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.elements import window_extents
from frittata.egraph.terms import Term
from frittata.kernels import templates, window_packing
from frittata.kernels.templates.convolution import CHANNELS, CONVOLUTION, describe

NAME = CONVOLUTION.name


def convolution(
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    *,
    batch: int = 1,
    inputs: int = 3,
    outputs: int = 5,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    dtype: str = "f32",
) -> tuple[Term, tuple[int, ...]]:
    """Return the element and the shape of a convolution of x and w."""
    x = load("x", batch, inputs, *extents, dtype=dtype)
    w = load("w", outputs, inputs // groups, *kernel, dtype=dtype)
    rank = len(kernel)
    out = window_extents(extents, kernel, (stride,) * rank, (padding,) * rank, (dilation,) * rank)
    e = window(x, w, (inputs, *extents), kernel, stride, padding, dilation, groups)
    return e, (batch, outputs, *out)


def is_fast(body: Term) -> bool:
    """Whether windows are packed line by line."""
    work = describe((body,))
    return work is not None and window_packing.describe(work) is not None


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(
    ("extents", "kernel", "padding", "dilation"),
    [
        ((9, 9), (3, 3), 1, 1),
        ((16, 24), (3, 3), 1, 1),
        ((7, 5), (2, 3), 1, 1),
        ((13, 11), (3, 3), 2, 2),
        ((3, 3), (3, 3), 2, 1),
        ((6, 6), (1, 1), 0, 1),
        ((17,), (4,), 1, 1),
        ((40,), (3,), 0, 3),
        ((5, 6, 7), (2, 3, 2), 1, 1),
    ],
)
def test_windows(extents: tuple[int, ...], kernel: tuple[int, ...], padding: int, dilation: int, stride: int) -> None:
    e, shape = convolution(extents, kernel, batch=2, stride=stride, padding=padding, dilation=dilation)
    check(Case("windows", (build(e, *shape),)), NAME, ("w",))
    assert is_fast(build(e, *shape)) == (len(kernel) < 3 and stride < 3)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    ("extents", "kernel", "padding", "groups"),
    [((7, 7), (1, 1), 0, 1), ((7, 5), (2, 3), 1, 1), ((1, 1), (1, 1), 0, 1), ((9, 9), (3, 3), 1, 2)],
)
def test_lanes_along_channels(
    extents: tuple[int, ...], kernel: tuple[int, ...], padding: int, groups: int, stride: int
) -> None:
    e, shape = convolution(
        extents, kernel, batch=2, inputs=6, outputs=26, stride=stride, padding=padding, groups=groups
    )
    check(Case("channels", (build(residual(e, shape), *shape), build(e, *shape))), CHANNELS.name, ("w", "b"))


def test_lanes_along_channels_are_for_few_pixels() -> None:
    e, shape = convolution((1, 1), (1, 1), inputs=96, outputs=64)
    assert templates.cheapest((build(e, *shape),), frozenset("w"), REFERENCE) == CHANNELS.name
    e, shape = convolution((1, 1), (1, 1), inputs=960, outputs=1280)
    weights_in_memory = replace(REFERENCE, cold_weights=True)  # both ways wait for them
    ways = [way.estimate((build(e, *shape),), frozenset("w"), weights_in_memory) for way in (CHANNELS, CONVOLUTION)]
    assert ways[0] is not None and ways[1] is not None and ways[0].seconds < ways[1].seconds
    e, shape = convolution((28, 28), (1, 1), inputs=96, outputs=64)
    assert CHANNELS.estimate((build(e, *shape),), frozenset("w"), REFERENCE) is None


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("outputs", [6, 12])
def test_groups(groups: int, outputs: int) -> None:
    e, shape = convolution((9, 10), (3, 3), batch=2, inputs=6, outputs=outputs, padding=1, groups=groups)
    check(Case("groups", (build(e, *shape),)), NAME, ("w",))


@pytest.mark.parametrize("stride", [1, 2])
def test_double_precision(stride: int) -> None:
    e, shape = convolution((9, 7), (3, 3), stride=stride, padding=1, dtype="f64")
    check(Case("f64", (build(e, *shape),)), NAME)


@pytest.mark.parametrize("inputs", [16, 20, 33])
def test_channels_in_blocks_and_pixels_in_chunks(inputs: int) -> None:
    e, shape = convolution((30, 30), (3, 3), inputs=inputs, outputs=40, padding=1)
    case = Case("blocks", (build(e, *shape),))
    assert CONVOLUTION.lower("k", case.bodies, frozenset("w")).chunks > 1
    check(case, NAME, ("w",))


def test_deep_windows_are_packed_before_the_blocks_of_rows() -> None:
    e, shape = convolution((7, 7), (3, 3), inputs=128, outputs=100, padding=1)
    check(Case("deep", (build(e, *shape),)), NAME, ("w",))


def residual(e: Term, shape: tuple[int, ...]) -> Term:
    biased = element("add", e, load("b", shape[1], 1, 1))
    return element("max", element("add", biased, load("r", *shape)), number(0))


@pytest.mark.parametrize("extents", [(8, 8), (9, 7)])
def test_bias_residual_and_relu(extents: tuple[int, int]) -> None:
    e, shape = convolution(extents, (3, 3), batch=2, padding=1)
    total = residual(e, shape)
    check(Case("residual", (build(total, *shape), build(e, *shape))), NAME, ("w", "b"))


def test_a_prologue_does_not_touch_the_margin() -> None:
    x = element("add", element("mul", load("x", 2, 3, 9, 7), load("s", 3, 1, 1)), load("t", 3, 1, 1))
    w = element("mul", load("w", 4, 3, 3, 3), load("v", 4, 1, 1, 1))
    e = window(element("exp", x), w, (3, 9, 7), (3, 3), 1, 1, 1)
    body = build(e, 2, 4, 9, 7)
    assert is_fast(body)
    check(Case("prologue", (body,)), NAME)
    check(Case("prologue", (body,)), NAME, ("w", "v"))


def test_a_prologue_that_reads_two_images_takes_the_general_way() -> None:
    x = element("add", load("x", 1, 3, 9, 7), load("y", 1, 3, 9, 7))
    body = build(window(x, load("w", 4, 3, 3, 3), (3, 9, 7), (3, 3), 1, 1, 1), 1, 4, 9, 7)
    assert not is_fast(body)
    check(Case("sum", (body,)), NAME)


def test_an_image_with_channels_last_takes_the_general_way() -> None:
    x = reindex(load("x", 2, 9, 7, 3), indexing.permute_map((2, 9, 7, 3), (0, 3, 1, 2)))
    body = build(window(x, load("w", 4, 3, 3, 3), (3, 9, 7), (3, 3), 1, 1, 1), 2, 4, 9, 7)
    assert not is_fast(body)
    check(Case("channels-last", (body,)), NAME)


def test_what_is_not_finite_stays_in_its_windows() -> None:
    e, shape = convolution((9, 9), (3, 3), padding=1)
    case = Case("special", (build(e, *shape),))
    x, w = case.values()
    x[0, 1, 4, 4], x[0, 0, 0, 8] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        assert_close(case, run(case, [x, w], NAME, ("w",)), [x, w])


@pytest.mark.parametrize("name", ["dot-7x33x17", "softmax-17", "gelu-bias"])
def test_other_bodies_are_refused(name: str) -> None:
    assert CONVOLUTION.estimate(case_named(name).bodies, frozenset(), REFERENCE) is None


def test_depthwise_windows_cost_more_for_each_operation() -> None:
    e, shape = convolution((28, 28), (3, 3), inputs=64, outputs=64, padding=1)
    deep, deep_shape = convolution((28, 28), (3, 3), inputs=64, outputs=64, padding=1, groups=64)
    dense = CONVOLUTION.estimate((build(e, *shape),), frozenset("w"), REFERENCE)
    depthwise = CONVOLUTION.estimate((build(deep, *deep_shape),), frozenset("w"), REFERENCE)
    assert dense is not None and depthwise is not None
    assert dense.seconds / dense.flops < depthwise.seconds / depthwise.flops
