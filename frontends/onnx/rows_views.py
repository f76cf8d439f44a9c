"""Rows of ONNX operators that move values: views, slices, padding, look-ups, and constants of known shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm, prod
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from frittata.egraph import dtypes
from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_indices, idioms_windows
from frittata.frontends.onnx.tables import DTYPE_BY_ONNX, Row


def _ints(values: Any) -> list[int]:
    return [int(value) for value in np.atleast_1d(values)]


def _reshape(x: Term, shape: Any, allowzero: int = 0) -> Term:
    """Zero stands for the extent that is there."""
    wanted = _ints(shape) if np.size(shape) else []
    return idioms.reshape(x, [x.shape[i] if dim == 0 and not allowzero else dim for i, dim in enumerate(wanted)])


def _transpose(x: Term, perm: Sequence[int] | None = None) -> Term:
    return idioms.permute(x, range(len(x.shape))[::-1] if perm is None else perm)


def _squeeze(x: Term, axes: Any = None) -> Term:
    return idioms.squeeze(x, None if axes is None else _ints(axes))


def _unsqueeze(x: Term, axes: Any) -> Term:
    rank = len(x.shape) + len(_ints(axes))
    for axis in sorted(axis % rank for axis in _ints(axes)):
        x = idioms.unsqueeze(x, axis)
    return x


def _flatten(x: Term, axis: int = 1) -> Term:
    at = axis + len(x.shape) if axis < 0 else axis
    lead, rest = (prod(map(idioms.number, part)) for part in (x.shape[:at], x.shape[at:]))
    return idioms.reshape(x, (lead, rest))


def _concat(*parts: Term, axis: int = 1) -> Term:
    return idioms_windows.concat(parts, axis)


def _split(x: Term, split: Any = None, axis: int = 0, num_outputs: int | None = None, results: int = 1) -> Any:
    extent = idioms.number(x.shape[axis])
    size = -(-extent // (num_outputs or results))
    sizes = [min(size, extent - start) for start in range(0, extent, size)] if split is None else _ints(split)
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    parts = zip(starts, sizes, strict=True)
    return tuple(
        idioms.take_slice(x, axis, start, 1, length) if length else _empty(x, {axis: 0}) for start, length in parts
    )


def _empty(x: Term, extents: Mapping[int, int]) -> Any:
    """Return an array of the dtype and shape of x but for these extents: there are no terms of empty tensors."""
    shape = list(map(idioms.number, x.shape))
    for axis, extent in extents.items():
        shape[axis] = extent
    return np.empty(shape, dtypes.to_numpy(x.dtype))


def _slice(x: Term, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    begins, stops = _ints(starts), _ints(ends)
    places = range(len(begins)) if axes is None else _ints(axes)
    strides = [1] * len(begins) if steps is None else _ints(steps)
    kept = {
        axis: range(*slice(start, stop, step).indices(idioms.number(x.shape[axis])))
        for axis, start, stop, step in zip(places, begins, stops, strides, strict=True)
    }
    if not all(kept.values()):
        return _empty(x, {axis: len(places) for axis, places in kept.items()})
    for axis, places in kept.items():
        if places.step > 0:
            x = idioms.take_slice(x, axis, places.start, places.step, len(places))
        else:
            x = idioms_windows.resample(x, axis, len(places), places.start, places.step)
    return x


def _expand(x: Term, shape: Any) -> Term:
    return idioms.expand(x, np.broadcast_shapes(tuple(map(idioms.number, x.shape)), tuple(_ints(shape))))


def _pad(x: Term, pads: Any, value: Any = 0, axes: Any = None, mode: str = "constant") -> Term:
    rank, given = len(x.shape), _ints(pads)
    chosen = list(range(rank)) if axes is None else [axis % rank for axis in _ints(axes)]
    low, high = [0] * rank, [0] * rank
    for at, axis in enumerate(chosen):
        low[axis], high[axis] = given[at], given[at + len(chosen)]
    match mode:
        case "constant":
            return idioms_windows.pad(x, low, high, 0 if value is None else np.asarray(value).item())
        case "edge":
            return idioms_windows.replicate(x, low, high)
        case "reflect":
            return idioms_windows.reflect(x, low, high)
        case "wrap":
            return idioms_windows.circular(x, low, high)
        case _:
            raise UnsupportedOpError(f"mode {mode}")


def _depth_to_space(x: Term, blocksize: int, mode: str = "DCR") -> Term:
    if mode == "CRD":
        return idioms_windows.pixel_shuffle(x, blocksize)
    batch, depth, h, w = map(idioms.number, x.shape)
    channels = depth // blocksize**2
    split = idioms.permute(idioms.reshape(x, (batch, blocksize, blocksize, channels, h, w)), (0, 3, 4, 1, 5, 2))
    return idioms.reshape(split, (batch, channels, h * blocksize, w * blocksize))


def _space_to_depth(x: Term, blocksize: int, mode: str = "DCR") -> Term:
    if mode == "CRD":
        return idioms_windows.pixel_unshuffle(x, blocksize)
    batch, channels, height, width = map(idioms.number, x.shape)
    h, w = height // blocksize, width // blocksize
    split = idioms.reshape(x, (batch, channels, h, blocksize, w, blocksize))
    return idioms.reshape(idioms.permute(split, (0, 3, 5, 1, 2, 4)), (batch, channels * blocksize**2, h, w))


# ---- resizing --------------------------------------------------------------------------------------------------------


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
            return Fraction(0), (extent - 1) / (extent * scale - 1) if length > 1 else Fraction(0)
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
    if mode not in ("nearest", "linear") or keep_aspect_ratio_policy != "stretch":
        raise UnsupportedOpError(f"mode {mode}, {keep_aspect_ratio_policy}")
    rank = len(x.shape)
    chosen = [axis % rank for axis in (axes or range(rank))]
    by_scale = bool(np.size(scales)) if scales is not None else False
    asked: Any = scales if by_scale else sizes
    for axis, wanted in zip(chosen, np.atleast_1d(asked), strict=True):
        extent = idioms.number(x.shape[axis])
        scale = Fraction(float(wanted)).limit_denominator(1000) if by_scale else Fraction(int(wanted), extent)
        length = (extent * scale).__floor__()
        if scale == 1:
            continue
        if antialias and scale < 1:
            raise UnsupportedOpError("antialias")
        first, step = _places(coordinate_transformation_mode, extent, length, scale)
        if mode == "linear":
            x = idioms_windows.linear(x, axis - rank, length, first, step)
        else:
            x = _nearest(x, axis - rank, length, first, step, nearest_mode)
    return x


def _upsample(x: Term, scales: Any, mode: str = "nearest") -> Term:
    return _resize(x, None, scales, None, coordinate_transformation_mode="asymmetric", mode=mode, nearest_mode="floor")


# ---- computed indices ------------------------------------------------------------------------------------------------


def _gather(x: Term, indices: Any, axis: int = 0) -> Term:
    if not isinstance(indices, Term):
        return idioms.select(x, axis, indices)
    return idioms_indices.take(x, idioms_indices.wrapped(indices, x.shape[axis]), axis)


def _gather_elements(x: Term, indices: Term, axis: int = 0) -> Term:
    return idioms_indices.gather(x, idioms_indices.wrapped(indices, x.shape[axis]), axis)


_REDUCE = {"none": "set", "add": "sum", "mul": "prod", "max": "max", "min": "min"}


def _scatter_elements(x: Term, indices: Term, updates: Term, axis: int = 0, reduction: str = "none") -> Term:
    places = idioms_indices.wrapped(indices, x.shape[axis])
    return idioms_indices.scatter(x, axis, places, updates, _REDUCE[reduction])


def _arg(op: str) -> Row:
    def row(x: Term, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Term:
        at = idioms.negative_axis(axis, len(x.shape))
        found = tensor(op, idioms_indices.flip(x, [at]) if select_last_index else x, axis=at)
        if select_last_index:
            found = tensor("sub", idioms.scalar(idioms.number(x.shape[at]) - 1, "i64"), found)
        return found if keepdims else idioms.squeeze(found, [at])

    return Row(row)


def _cumsum(x: Term, axis: Any, exclusive: int = 0, reverse: int = 0) -> Term:
    at = idioms.negative_axis(int(np.asarray(axis).item()), len(x.shape))
    out = idioms_indices.flip(x, [at]) if reverse else x
    out = tensor("cumsum", out, axis=at)
    if exclusive:
        rest = (0,) * (-at - 1)
        out = idioms_windows.pad(out, (1, *rest), (-1, *rest))
    return idioms_indices.flip(out, [at]) if reverse else out


def _top_k(x: Term, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Term, Term]:
    return idioms_indices.first_of(x, int(np.asarray(k).item()), axis, bool(largest))


def _trilu(x: Term, k: Any = None, upper: int = 1) -> Term:
    return idioms.triangle(x, "ge" if upper else "le", 0 if k is None else int(np.asarray(k).item()))


def _constant_of_shape(shape: Any, value: TensorProto | None = None) -> Any:
    array = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    kind = dtypes.from_numpy(array.dtype)
    return idioms.filled(array.item(), tuple(_ints(shape)) if np.size(shape) else (), kind)


def _eye_like(x: Term, dtype: int | None = None, k: int = 0) -> Term:
    if k:
        raise UnsupportedOpError(f"k={k}")
    rows, columns = x.shape
    return idioms_indices.eye(rows, columns, x.dtype if dtype is None else DTYPE_BY_ONNX[dtype])


def _one_hot(indices: Term, depth: Any, values: Term, axis: int = -1) -> Term:
    """Compare with 0, 1, ... along a new axis; negative indices count from the end, others outside give no one."""
    count, rank = int(np.asarray(depth).item()), len(indices.shape) + 1
    at = idioms.negative_axis(axis, rank)
    places = idioms.unsqueeze(idioms_indices.wrapped(idioms.cast(indices, "i64"), count), at)
    classes = tensor("build", element("iota", axis=-1, extent=count), shape=(count,))
    same = tensor("eq", places, idioms.reshape(classes, (count, *(1,) * (-at - 1))))
    return tensor("where", same, idioms.select(values, 0, 1), idioms.select(values, 0, 0))


ROWS: dict[str, tuple[Row, ...]] = {
    "Reshape": (Row(_reshape, known=(1,)),),
    "Transpose": (Row(_transpose),),
    "Squeeze": (Row(_squeeze, known=(1,)),),
    "Unsqueeze": (Row(_unsqueeze, known=(1,)),),
    "Flatten": (Row(_flatten),),
    "Concat": (Row(_concat, joins=True),),
    "Split": (Row(_split, known=(1,)),),
    "Slice": (Row(_slice, known=(1, 2, 3, 4)),),
    "Expand": (Row(_expand, known=(1,)),),
    "Tile": (Row(lambda x, times: idioms.repeat(x, _ints(times)), known=(1,)),),
    "Pad": (Row(_pad, known=(1, 2, 3)),),
    "DepthToSpace": (Row(_depth_to_space),),
    "SpaceToDepth": (Row(_space_to_depth),),
    "Upsample": (Row(_upsample, known=(1,)),),
    "Resize": (Row(_upsample, known=(1,)), Row(_resize, known=(1, 2, 3), since=11)),
    "Gather": (Row(_gather, numbers=(1,)),),
    "GatherElements": (Row(_gather_elements),),
    "ScatterElements": (Row(_scatter_elements),),
    "ArgMax": (_arg("argmax"),),
    "ArgMin": (_arg("argmin"),),
    "TopK": (Row(_top_k, known=(1,)),),
    "CumSum": (Row(_cumsum, known=(1,)),),
    "Trilu": (Row(_trilu, known=(1,)),),
    "ConstantOfShape": (Row(_constant_of_shape, known=(0,)),),
    "OneHot": (Row(_one_hot, known=(1,)),),
    "EyeLike": (Row(_eye_like),),
    "Range": (Row(lambda first, last, step: np.arange(first, last, step, dtype=first.dtype), known=(0, 1, 2)),),
}
"""What each operator means, by opset."""
