"""Rows of ONNX operators that move values: views, slices, padding, look-ups, and constants of known shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from frittata.egraph import dtypes
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.shapes import Dim
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_indices, idioms_windows
from frittata.frontends.onnx.tables import Row, dtype_of


def _ints(values: Any) -> list[int]:
    return [int(value) for value in np.atleast_1d(values)]


def _reshape(x: Term, shape: Any, allowzero: int = 0) -> Term:
    """Zero stands for the extent that is there."""
    wanted = _ints(shape) if np.size(shape) else []
    return idioms.reshape(x, [x.shape[i] if dim == 0 and not allowzero else dim for i, dim in enumerate(wanted)])


def _transpose(x: Term, perm: Sequence[int] | None = None) -> Term:
    return idioms.permute(x, range(len(x.shape))[::-1] if perm is None else perm)


def _compress(x: Term, condition: Any, axis: int | None = None) -> Any:
    """Keep the values at which a known condition holds, run by run; those after its end are none of them."""
    if axis is None:
        x, axis = idioms.reshape(x, (-1,)), 0
    holds = np.flatnonzero(condition)
    if not len(holds):
        return _empty(x, {axis: 0})
    runs = np.split(holds, np.flatnonzero(np.diff(holds) != 1) + 1)
    return idioms_windows.concat([idioms.take_slice(x, axis, int(run[0]), 1, len(run)) for run in runs], axis)


def _dropped(shape: Sequence[Dim], axes: Any) -> tuple[int, ...] | None:
    if axes is not None and not np.size(axes) and 1 in shape:
        what = "no axes: ONNX Runtime drops all of one value then, and ONNX's shape inference none"
        raise ModelError(what, do="leave the axes out, or the operator")
    return None if axes is None else tuple(_ints(axes))


def _squeeze(x: Term, axes: Any = None) -> Term:
    chosen = _dropped(x.shape, axes)
    if any(x.shape[axis] != 1 for axis in chosen or ()):
        raise ModelError(f"axes {list(chosen or ())} of {x.type} have several values", do="drop axes of one value only")
    return idioms.squeeze(x, chosen)


def _unsqueeze(x: Term, axes: Any) -> Term:
    rank = len(x.shape) + len(_ints(axes))
    for axis in sorted(idioms.negative_axis(axis, rank) for axis in _ints(axes)):
        x = idioms.unsqueeze(x, axis + rank)
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


def _places(
    shape: Sequence[Dim], starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> Iterator[tuple[int, range]]:
    """Yield axes and the places that are kept of them; the first is within the axis, backwards, too."""
    begins, stops = _ints(starts), _ints(ends)
    places = range(len(begins)) if axes is None else _ints(axes)
    strides = [1] * len(begins) if steps is None else _ints(steps)
    for axis, start, stop, step in zip(places, begins, stops, strides, strict=True):
        extent = idioms.number(shape[axis])
        yield axis, range(*slice(max(start, -extent), stop, step).indices(extent))


def _sliced(x: Any, *given: Any, **named: Any) -> Any:
    """The law of known operands: ONNX's reference slices backwards as numpy does."""
    for axis, places in _places(x.shape, *given, **named):
        x = np.take(x, np.array(places, np.int64), axis)
    return x


def _slice(x: Term, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    kept = dict(_places(x.shape, starts, ends, axes, steps))
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
    chosen = list(range(rank)) if axes is None else [idioms.negative_axis(axis, rank) for axis in _ints(axes)]
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


def _trilu(x: Term, k: Any = None, upper: int = 1) -> Term:
    return idioms.triangle(x, "ge" if upper else "le", 0 if k is None else int(np.asarray(k).item()))


# ---- constants -------------------------------------------------------------------------------------------------------


def _constant_of_shape(shape: Any, value: TensorProto | None = None) -> Any:
    array = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    kind = dtypes.from_numpy(array.dtype)
    return idioms.filled(array.item(), tuple(_ints(shape)) if np.size(shape) else (), kind)


def _range(first: Any, last: Any, step: Any) -> Any:
    """Each value is first + i * step, rounded once: numpy would round the step to the precision of the first value."""
    return np.arange(first.item(), last.item(), step.item()).astype(first.dtype)


def _eye_like(x: Term, dtype: int | None = None, k: int = 0) -> Term:
    rows, columns = x.shape
    return idioms_indices.eye(rows, columns, x.dtype if dtype is None else dtype_of(dtype, "the result"), k)


ROWS: dict[str, tuple[Row, ...]] = {
    "Reshape": (Row(_reshape, known=(1,)),),
    "Transpose": (Row(_transpose),),
    "Squeeze": (Row(_squeeze, known=(1,), law=lambda x, axes=None: np.squeeze(x, _dropped(x.shape, axes))),),
    "Unsqueeze": (Row(_unsqueeze, known=(1,), law=lambda x, axes: np.expand_dims(x, tuple(_ints(axes)))),),
    "Flatten": (Row(_flatten),),
    "Concat": (Row(_concat, joins=True),),
    "Compress": (Row(_compress, known=(1,)),),
    "Split": (Row(_split, known=(1,)),),
    "Slice": (Row(_slice, known=(1, 2, 3, 4), law=_sliced),),
    "Expand": (Row(_expand, known=(1,)),),
    "Tile": (Row(lambda x, times: idioms.repeat(x, _ints(times)), known=(1,)),),
    "Pad": (Row(_pad, known=(1, 2, 3)),),
    "DepthToSpace": (Row(_depth_to_space),),
    "SpaceToDepth": (Row(_space_to_depth),),
    "Trilu": (Row(_trilu, known=(1,)),),
    "ConstantOfShape": (Row(_constant_of_shape, known=(0,)),),
    "EyeLike": (Row(_eye_like),),
    "Range": (Row(_range, known=(0, 1, 2)),),
}
"""What each operator means, by opset."""
