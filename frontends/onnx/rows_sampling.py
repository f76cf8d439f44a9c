"""Rows of ONNX operators that read between values: resizing, and samples at a grid."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm, prod
from typing import Any

import numpy as np

from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.terms import Scalar, Term
from frittata.frontends import idioms, idioms_indices, idioms_sampling, idioms_windows
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


def _roi_align(
    x: Term,
    rois: Term,
    images: Term,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Term:
    """Return the means of samples over the cells of a grid in each box, (left, top, right, bottom) in an image.

    In mode max it is the largest of what neighbours give to samples, each times its weight.
    """
    if mode not in ("avg", "max"):
        raise UnsupportedOpError(f"mode {mode}")
    if sampling_ratio <= 0:
        raise UnsupportedOpError("no sampling_ratio, so that boxes say how many samples there are")
    half = coordinate_transformation_mode == "half_pixel"
    boxes = tensor("mul", rois, idioms.scalar(spatial_scale, rois.dtype))
    left, top, right, bottom = (idioms.select(boxes, 1, at) for at in range(4))
    count = idioms.number(rois.shape[0])
    rows, counts_rows = _samples(top, bottom, output_height, sampling_ratio, half, x.shape[2])
    columns, counts_columns = _samples(left, right, output_width, sampling_ratio, half, x.shape[3])
    places = [idioms.unsqueeze(rows, 2), idioms.unsqueeze(columns, 1)]
    counts = tensor("and", idioms.unsqueeze(counts_rows, 2), idioms.unsqueeze(counts_columns, 1))
    join = "max" if mode == "max" else "add"
    read = idioms_sampling.sampled(idioms_indices.take(x, images, 0), places, "linear", "border", join=join)
    kept = tensor("where", idioms.unsqueeze(counts, 1), read, idioms.scalar(0, x.dtype))
    shape = (count, x.shape[1], output_height, sampling_ratio, output_width, sampling_ratio)
    cells = idioms.reshape(kept, shape)
    return idioms.reduce(cells, "max", [-3, -1]) if mode == "max" else idioms.mean(cells, [-3, -1])


def _roi_align_by_whole_pixels(x: Term, rois: Term, images: Term, **options: Any) -> Term:
    """Up to opset 15 boxes are not moved by half a pixel."""
    return _roi_align(x, rois, images, "output_half_pixel", **options)


def _samples(start: Term, end: Term, cells: int, each: int, half: bool, extent: Any) -> tuple[Term, Term]:
    """Return where the samples of an axis stand, (boxes, cells * each), and which of them are within reach of it.

    By half a pixel more to the left, or in boxes of one pixel at least.
    """
    size = tensor("sub", end, start)
    size = size if half else tensor("max", size, idioms.scalar(1, size.dtype))
    start = tensor("sub", start, idioms.scalar(0.5, start.dtype)) if half else start
    numbers = idioms.cast(idioms_indices.numbers(cells * each, -1), start.dtype)
    shares = tensor("mul", tensor("add", numbers, idioms.like(numbers, 0.5)), idioms.like(numbers, 1 / (cells * each)))
    u = tensor("add", idioms.unsqueeze(start, -1), tensor("mul", idioms.unsqueeze(size, -1), shares))
    return u, tensor("and", tensor("ge", u, idioms.like(u, -1)), tensor("le", u, idioms.like(u, idioms.number(extent))))


def _deform_conv(
    x: Term,
    w: Term,
    offset: Term,
    bias: Term | None = None,
    mask: Term | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Term:
    """Convolve an image with what is read beside each place of the kernel, by an offset for each (and a factor).

    Source: Dai et al., 2017; Zhu et al., 2019.
    """
    if len(x.shape) != 4:
        raise UnsupportedOpError(f"a convolution of {x.type}")
    batch, channels, *_ = map(idioms.number, x.shape)
    outputs, _, *kernel = map(idioms.number, w.shape)
    taps, inner = prod(kernel), [idioms.number(dim) for dim in offset.shape[2:]]
    groups = batch * offset_group
    shifts = idioms.reshape(offset, (groups, *kernel, 2, *inner))
    places: list[Term] = []
    lows, stride, dilation = pads or (0, 0), strides or (1, 1), dilations or (1, 1)
    for at in range(2):
        whole = _grid_of_windows(kernel, inner, at, stride[at], dilation[at], -lows[at])
        u = tensor("add", idioms.select(shifts, 3, at), idioms.cast(whole, shifts.dtype))
        places.append(idioms.reshape(u, (groups, taps, *inner)))
    images = idioms.reshape(x, (groups, channels // offset_group, *x.shape[2:]))
    read = idioms_sampling.sampled(images, places, "linear", "zeros")
    if mask is not None:
        read = tensor("mul", read, idioms.reshape(mask, (groups, 1, taps, *inner)))
    columns = idioms.reshape(read, (batch, group, channels // group * taps, prod(inner)))
    rows = idioms.reshape(w, (group, outputs // group, channels // group * taps))
    out = idioms.reshape(idioms.matmul(rows, columns), (batch, outputs, *inner))
    return out if bias is None else tensor("add", out, idioms.per_channel(bias, 4))


def _grid_of_windows(
    kernel: Sequence[int], inner: Sequence[int], axis: int, stride: int, dilation: int, start: int
) -> Term:
    """Return where windows read an axis of two: the axes of the kernel are first, those of the result last."""
    tap = tensor("mul", idioms_indices.numbers(kernel[axis], axis - 4), idioms.scalar(dilation, "i64"))
    window = tensor("mul", idioms_indices.numbers(inner[axis], axis - 2), idioms.scalar(stride, "i64"))
    return tensor("add", tensor("add", tap, window), idioms.scalar(start, "i64"))


ROWS: dict[str, tuple[Row, ...]] = {
    "RoiAlign": (Row(_roi_align_by_whole_pixels, forwards=_roi_align), Row(_roi_align, since=16)),
    "DeformConv": (Row(_deform_conv),),
    "Upsample": (Row(_upsample, known=(1,)),),
    "Resize": (Row(_upsample, known=(1,)), Row(_resize, known=(1, 2, 3), since=11)),
    "GridSample": (Row(_grid_sample),),
}
"""What each operator means, by opset."""
