"""Rows of ONNX operators that read between values: resizing, and samples at a grid."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.terms import Scalar, Term
from frittata.frontends import idioms, idioms_sampling, idioms_windows
from frittata.frontends.idioms_sampling import cubic, filtered, triangle
from frittata.frontends.onnx.tables import Row


def _places(mode: str, extent: int, length: int, scale: Fraction) -> tuple[Fraction, Fraction]:
    """Return where the first value stands in the source and how far apart they are."""
    step = 1 / scale
    match mode:
        case "asymmetric":
            return Fraction(0), step
        case "half_pixel":
            return step / 2 - Fraction(1, 2), step
        case "pytorch_half_pixel":
            return (step / 2 - Fraction(1, 2), step) if length > 1 else (Fraction(0), step)
        case "half_pixel_symmetric":
            shift = Fraction(extent, 2) * (1 - Fraction(length) / (extent * scale))
            return shift + step / 2 - Fraction(1, 2), step
        case "align_corners":
            return Fraction(0), Fraction(extent - 1, length - 1) if length > 1 else Fraction(0)
        case _:
            raise UnsupportedOpError(f"coordinate_transformation_mode {mode}")


def _nearest(x: Term, axis: int, length: int, first: Fraction, step: Fraction, mode: str) -> Term:
    """Read one axis at first + i * step, rounded: in units of 1 / by, all of that is whole."""
    by = lcm(first.denominator, step.denominator, 2)
    shift = {"floor": 0, "ceil": by - 1, "round_prefer_ceil": by // 2, "round_prefer_floor": by // 2 - 1}
    return idioms_windows.resample(x, axis, length, int(first * by) + shift[mode], int(step * by), by)


def _resize(
    x: Term,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Term:
    if mode not in ("nearest", "linear", "cubic"):
        raise UnsupportedOpError(f"mode {mode}")
    chosen = [idioms.negative_axis(axis, len(x.shape)) for axis in (axes or range(len(x.shape)))]
    extents = [idioms.number(x.shape[axis]) for axis in chosen]
    by_scale = scales is not None and bool(np.size(scales))
    factors, lengths = _factors(extents, scales if by_scale else sizes, by_scale, keep_aspect_ratio_policy)
    for at, (axis, extent, scale, length) in enumerate(zip(chosen, extents, factors, lengths, strict=True)):
        outside = None
        if coordinate_transformation_mode == "tf_crop_and_resize":
            first, step = _crop(_fraction(roi[at], 1), _fraction(roi[at + len(chosen)], 1), extent, length)
            outside = _outside(axis, length, first, step, extent)
        elif scale == 1:
            continue
        else:
            first, step = _places(coordinate_transformation_mode, extent, length, scale)
        width = 1 / scale if antialias and scale < 1 else Fraction(1)
        if mode == "nearest":
            x = _nearest(x, axis, length, first, step, nearest_mode)
        elif mode == "linear" and width == 1:
            x = idioms_windows.linear(x, axis, length, first, step)
        else:
            weigh, reach = (cubic(cubic_coeff_a), 2) if mode == "cubic" else (triangle, 1)
            x = filtered(x, axis, length, first, step, weigh, reach, width, bool(exclude_outside))
        if outside is not None:
            x = tensor("where", outside, idioms.scalar(extrapolation_value, x.dtype), x)
    return x


def _fraction(value: Any, extent: int) -> Fraction:
    """Return what a scale in single precision stands for: a quotient by the extent, or by as little as may be."""
    single = np.float32(value)
    whole = Fraction(round(extent * float(single)), max(extent, 1))
    every = (whole, *(Fraction(float(single)).limit_denominator(10**digits) for digits in range(3, 8)))
    return next((found for found in every if np.float32(float(found)) == single), Fraction(float(single)))


def _factors(extents: Sequence[int], asked: Any, by_scale: bool, policy: str) -> tuple[list[Fraction], list[int]]:
    """Return the scale and the extent of each axis; all have one scale if a `policy` keeps their proportions."""
    if by_scale:
        factors = [_fraction(scale, extent) for scale, extent in zip(np.atleast_1d(asked), extents, strict=True)]
        return factors, [int(extent * scale) for extent, scale in zip(extents, factors, strict=True)]
    factors = [Fraction(int(size), extent) for size, extent in zip(np.atleast_1d(asked), extents, strict=True)]
    if policy == "stretch":
        return factors, [int(size) for size in np.atleast_1d(asked)]
    common = min(factors) if policy == "not_larger" else max(factors)
    return [common] * len(extents), [int(common * extent + Fraction(1, 2)) for extent in extents]


def _crop(start: Fraction, end: Fraction, extent: int, length: int) -> tuple[Fraction, Fraction]:
    """Return the first place and the step of a part of an axis, given by shares of it."""
    if length == 1:
        return (start + end) * (extent - 1) / 2, Fraction(0)
    return start * (extent - 1), (end - start) * (extent - 1) / (length - 1)


def _outside(axis: int, length: int, first: Fraction, step: Fraction, extent: int) -> Term:
    """Return which places first + i * step of an axis are none of its own."""
    by = lcm(first.denominator, step.denominator)
    start, stride, last = (element("const", value=Scalar.of(int(n * by), "i64")) for n in (first, step, extent - 1))
    place = element("add", element("mul", element("iota", axis=axis, extent=length), stride), start)
    below = element("lt", place, element("const", value=Scalar.of(0, "i64")))
    return tensor("build", element("or", below, element("gt", place, last)), shape=(length, *(1,) * (-axis - 1)))


def _upsample(x: Term, scales: Any, mode: str = "nearest") -> Term:
    return _resize(x, None, scales, None, coordinate_transformation_mode="asymmetric", mode=mode, nearest_mode="floor")


def _grid_sample(
    x: Term, grid: Term, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Term:
    """Up to opset 19 two modes have the names that torch gives them for images."""
    plain = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if plain not in ("nearest", "linear", "cubic") or padding_mode not in ("zeros", "border", "reflection"):
        raise UnsupportedOpError(f"mode {mode}, padding_mode {padding_mode}")
    return idioms_sampling.grid_sample(x, grid, plain, padding_mode, bool(align_corners))


ROWS: dict[str, tuple[Row, ...]] = {
    "Upsample": (Row(_upsample, known=(1,)),),
    "Resize": (Row(_upsample, known=(1,)), Row(_resize, known=(1, 2, 3), since=11)),
    "GridSample": (Row(_grid_sample),),
}
"""What each operator means, by opset."""
