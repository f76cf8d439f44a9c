"""Padding, joining, resampling, windows and pools, and the convolution that goes the other way."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from frittata.egraph import indexing, shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.ops.elements import window_extents
from frittata.egraph.ops.registry import REQUIRED, Op, register
from frittata.egraph.ops.tensors import check_axis
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import Scalar, Sort, TensorType, Type

Ints = tuple[int, ...]


# ---- padding, joining, resampling ------------------------------------------------------------------------------------


def _pad(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    (x,), (low, high, value) = types, attrs
    if not len(low) == len(high) == len(x.shape):
        raise ModelError(f"pad of {x} by {low} and {high}", do="give a number for each axis on each side")
    if not isinstance(value, Scalar) or value.dtype != x.dtype:
        raise ModelError(f"pad of {x} with {value}", do="give a constant of the tensor's dtype")
    result = indexing.pad_map(x.shape, low, high).result
    if any(isinstance(dim, int) and dim < 1 for dim in result):
        raise ModelError(f"pad of {x} by {low} and {high} leaves nothing")
    return TensorType(result, x.dtype)


def _pad_numpy(x: Any, low: Ints, high: Ints, value: Scalar) -> Any:
    out = np.full([n + a + b for n, a, b in zip(x.shape, low, high, strict=True)], value.value, x.dtype)
    pairs = list(zip(x.shape, out.shape, low, strict=True))
    kept = tuple(slice(max(a, 0), max(0, min(n + a, size))) for n, size, a in pairs)
    taken = tuple(slice(max(-a, 0), max(0, min(n, size - a))) for n, size, a in pairs)
    out[kept] = x[taken]
    return out


def _concat(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    (x, y), (axis,) = types, attrs
    check_axis(x.shape, axis)
    if x.dtype != y.dtype or len(x.shape) != len(y.shape):
        raise ModelError(f"concat of {x} and {y}")
    if any(a != b for i, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)) if i - len(x.shape) != axis):
        raise ModelError(f"concat of {x} and {y} on axis {axis}: other extents differ")
    total = sum(shapes.concrete((x.shape[axis], y.shape[axis])))
    shape = list(x.shape)
    shape[axis] = total
    return TensorType(tuple(shape), x.dtype)


def _resample(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    (x,), (axis, length, start, step, divisor) = types, attrs
    check_axis(x.shape, axis)
    if length < 1 or divisor < 1:
        raise ModelError(f"resample of {x} to {length} values with divisor {divisor}")
    shapes.concrete((x.shape[axis],))
    return TensorType(indexing.resample_map(x.shape, axis, length, start, step, divisor).result, x.dtype)


def _resample_numpy(x: Any, axis: int, length: int, start: int, step: int, divisor: int) -> Any:
    at = (start + np.arange(length) * step) // divisor
    return np.take(x, np.clip(at, 0, x.shape[axis] - 1), axis)


def _stuff(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    (x,), (steps,) = types, attrs
    if len(steps) != len(x.shape) or any(step < 1 for step in steps):
        raise ModelError(f"stuff of {x} with steps {steps}", do="give a step, at least 1, for each axis")
    return TensorType(stuffed(x.shape, steps), x.dtype)


def stuffed(shape: Shape, steps: Ints) -> Shape:
    """Return the shape with step - 1 zeros after each value."""
    return tuple(_stuffed(dim, step) for dim, step in zip(shape, steps, strict=True))


def _stuffed(dim: shapes.Dim, step: int) -> shapes.Dim:
    return dim if step == 1 else shapes.concrete((dim,))[0] * step


def _stuff_numpy(x: Any, steps: Ints) -> Any:
    out = np.zeros([n * step for n, step in zip(x.shape, steps, strict=True)], x.dtype)
    out[tuple(slice(None, None, step) for step in steps)] = x
    return out


# ---- windows and pools -----------------------------------------------------------------------------------------------


def _windows(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    (x,), (kernel, stride, dilation) = types, attrs
    _check_windows(x, kernel, stride, dilation)
    window_extents(x.shape[len(x.shape) - len(kernel) :], kernel, stride, (0,) * len(kernel), dilation)
    return TensorType(indexing.windows_map(x.shape, kernel, stride, dilation).result, x.dtype)


def _check_windows(x: TensorType, *per_axis: Ints) -> None:
    ranks = {len(values) for values in per_axis}
    if len(ranks) != 1 or not 1 <= max(ranks) <= len(x.shape):
        raise ModelError(f"windows of {x} with {' and '.join(map(str, per_axis))}")


def windows_numpy(x: Any, kernel: Ints, stride: Ints, dilation: Ints) -> Any:
    """Return a view of all windows: (*lead, *spatial) -> (*lead, *out, *kernel)."""
    rank = len(kernel)
    spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    every = np.lib.stride_tricks.sliding_window_view(x, spans, tuple(range(-rank, 0)))
    steps = (slice(None, None, step) for step in (*stride, *dilation))
    return every[(..., *steps)]


def pool_extents(spatial: Shape, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool) -> Ints:
    """Return how many windows a pool has on each axis; with `ceil` the last may reach beyond the padding.

    No window starts in the padding on the right.

    Raises: ModelError if a window does not fit.
    """
    out: list[int] = []
    for n, k, s, p, d in zip(shapes.concrete(spatial), kernel, stride, padding, dilation, strict=True):
        room = n + 2 * p - d * (k - 1) - 1
        count = (-(-room // s) if ceil else room // s) + 1
        if ceil and (count - 1) * s >= n + p:
            count -= 1
        if count < 1 or 2 * p > d * (k - 1) + 1:
            raise ModelError(f"a window of {k} with padding {p} does not fit into {n}")
        out.append(count)
    return tuple(out)


def pool_padding(
    shape: Shape, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool
) -> tuple[Ints, Ints]:
    """Return low and high, over all axes: the padding after which the windows of a pool are exactly those inside."""
    rank = len(kernel)
    lead, spatial = (0,) * (len(shape) - rank), shapes.concrete(shape[len(shape) - rank :])
    counts = pool_extents(spatial, kernel, stride, padding, dilation, ceil)
    axes = zip(spatial, kernel, stride, padding, dilation, counts, strict=True)
    high = tuple(max(0, (c - 1) * s + d * (k - 1) + 1 - n - p) for n, k, s, p, d, c in axes)
    return (*lead, *padding), (*lead, *high)


def _pooled(x: TensorType, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool) -> Type:
    _check_windows(x, kernel, stride, padding, dilation)
    if x.dtype == "bool":
        raise ModelError("a pool of bool", do="cast to a number first")
    lead = len(x.shape) - len(kernel)
    return TensorType(
        (*x.shape[:lead], *pool_extents(x.shape[lead:], kernel, stride, padding, dilation, ceil)), x.dtype
    )


def _max_pool(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    return _pooled(types[0], *attrs)


def _avg_pool(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    kernel, stride, padding, ceil, _, divisor = attrs
    if types[0].dtype not in ("f32", "f64") or divisor < 0:
        raise ModelError(f"avg_pool of {types[0]} with divisor {divisor}", do="cast to a float first")
    return _pooled(types[0], kernel, stride, padding, (1,) * len(kernel), ceil)


def _max_pool_numpy(x: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool) -> Any:
    low, high = pool_padding(x.shape, kernel, stride, padding, dilation, ceil)
    least = Scalar.of(
        -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min, "f64" if x.dtype.kind == "f" else "i64"
    )
    view = windows_numpy(_pad_numpy(x, low, high, least), kernel, stride, dilation)
    return view.max(tuple(range(-len(kernel), 0)))


def _avg_pool_numpy(x: Any, kernel: Ints, stride: Ints, padding: Ints, ceil: bool, include: bool, divisor: int) -> Any:
    rank = len(kernel)
    ones = (1,) * rank
    low, high = pool_padding(x.shape, kernel, stride, padding, ones, ceil)
    zero, axes = Scalar.of(0, "f64"), tuple(range(-rank, 0))
    total = windows_numpy(_pad_numpy(x, low, high, zero), kernel, stride, ones).sum(axes)
    if divisor:
        return total / np.asarray(divisor, x.dtype)
    counted = np.ones(x.shape[-rank:], x.dtype)
    if include:
        counted = np.pad(
            counted, [(p, min(p, h)) for p, h in zip(padding, high[-rank:], strict=True)], constant_values=1
        )
        low, high = low[:-rank] + (0,) * rank, tuple(max(0, h - p) for h, p in zip(high[-rank:], padding, strict=True))
    counted = _pad_numpy(counted, low[-rank:], high[-rank:], zero)
    return total / windows_numpy(counted, kernel, stride, ones).sum(axes)


# ---- transposed convolution ------------------------------------------------------------------------------------------


def transposed_extents(
    source: Shape, kernel: Shape, stride: Ints, padding: Ints, output_padding: Ints, dilation: Ints
) -> Ints:
    """Return the spatial extents of a transposed convolution: (n - 1) s - 2 p + d (k - 1) + extra + 1 on each axis."""
    axes = zip(*map(shapes.concrete, (source, kernel)), stride, padding, output_padding, dilation, strict=True)
    return tuple((n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, e, d in axes)


def _conv_transpose(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    x, w = types
    stride, padding, output_padding, dilation, groups = attrs
    rank = len(stride)
    if rank > 3 or not len(x.shape) == len(w.shape) == rank + 2 or x.dtype != w.dtype or x.dtype == "bool":
        raise ModelError(f"conv_transpose with {rank} spatial axes of {x} and {w}")
    inputs, outputs = shapes.concrete(w.shape[:2])
    if x.shape[1] != inputs or inputs % groups:
        raise ModelError(f"conv_transpose of {x} and {w} with {groups} groups")
    spatial = transposed_extents(x.shape[2:], w.shape[2:], stride, padding, output_padding, dilation)
    if min(spatial) < 1 or any(e >= max(s, d) for e, s, d in zip(output_padding, stride, dilation, strict=True)):
        raise ModelError(f"conv_transpose of {x} and {w} to {shapes.fmt(spatial)} with output padding {output_padding}")
    return TensorType((x.shape[0], outputs * groups, *spatial), x.dtype)


def _conv_transpose_numpy(
    x: Any, w: Any, stride: Ints, padding: Ints, output_padding: Ints, dilation: Ints, groups: int
) -> Any:
    """Add each input, times the kernel, to the places that it reaches."""
    batch, inputs, *spatial = x.shape
    kernel, outputs = w.shape[2:], w.shape[1]
    full = [
        (n - 1) * s + d * (k - 1) + 1 + e
        for n, k, s, d, e in zip(spatial, kernel, stride, dilation, output_padding, strict=True)
    ]
    out = np.zeros((batch, groups, outputs, *full), x.dtype)
    grouped = x.reshape(batch, groups, inputs // groups, prod(spatial))
    weights = w.reshape(groups, inputs // groups, outputs, *kernel)
    for offset in product(*map(range, kernel)):
        part = np.swapaxes(weights[(..., *offset)], -1, -2) @ grouped
        places = tuple(
            slice(o * d, o * d + (n - 1) * s + 1, s)
            for o, d, n, s in zip(offset, dilation, spatial, stride, strict=True)
        )
        out[(..., *places)] += part.reshape(batch, groups, outputs, *spatial)
    kept = tuple(slice(p, size - p) for p, size in zip(padding, full, strict=True))
    return out.reshape(batch, groups * outputs, *full)[(..., *kept)]


_X: tuple[tuple[str, Sort], ...] = (("x", "tensor"),)
register(
    Op(
        "pad",
        "tensor",
        _X,
        (("low", REQUIRED), ("high", REQUIRED), ("value", REQUIRED)),
        _pad,
        _pad_numpy,
        doc="A constant before and after the values of each axis; negative numbers cut values off.",
        carries=True,
    )
)
register(
    Op(
        "concat",
        "tensor",
        (("x", "tensor"), ("y", "tensor")),
        (("axis", REQUIRED),),
        _concat,
        lambda x, y, axis: np.concatenate((x, y), axis),
        doc="x, then y, along one axis.",
        carries=True,
    )
)
register(
    Op(
        "resample",
        "tensor",
        _X,
        (("axis", REQUIRED), ("length", REQUIRED), ("start", 0), ("step", 1), ("divisor", 1)),
        _resample,
        _resample_numpy,
        cost=0,
        doc="One axis read at (start + i * step) // divisor, clamped: nearest neighbours, flips, replicated borders.",
        carries=True,
    )
)
register(
    Op(
        "stuff",
        "tensor",
        _X,
        (("steps", REQUIRED),),
        _stuff,
        _stuff_numpy,
        doc="step - 1 zeros after each value of each axis.",
        carries=True,
    )
)
register(
    Op(
        "windows",
        "tensor",
        _X,
        (("kernel", REQUIRED), ("stride", REQUIRED), ("dilation", REQUIRED)),
        _windows,
        windows_numpy,
        cost=0,
        doc="The windows of the last axes, (*lead, *spatial) -> (*lead, *out, *kernel); they lie inside.",
        carries=True,
    )
)
register(
    Op(
        "max_pool",
        "tensor",
        _X,
        (*((label, REQUIRED) for label in ("kernel", "stride", "padding", "dilation")), ("ceil", False)),
        _max_pool,
        _max_pool_numpy,
        doc="The maximum of each window of the last axes; a NaN wins, padding never does.",
    )
)
register(
    Op(
        "avg_pool",
        "tensor",
        _X,
        (
            *((label, REQUIRED) for label in ("kernel", "stride", "padding")),
            ("ceil", False),
            ("count_include_pad", True),
            ("divisor", 0),
        ),
        _avg_pool,
        _avg_pool_numpy,
        doc="The sum of each window over `divisor`, 0 for the number of values, padding counted or not.",
    )
)
register(
    Op(
        "conv_transpose",
        "tensor",
        (("x", "tensor"), ("w", "tensor")),
        (("stride", (1, 1)), ("padding", (0, 0)), ("output_padding", (0, 0)), ("dilation", (1, 1)), ("groups", 1)),
        _conv_transpose,
        _conv_transpose_numpy,
        cost=2,
        doc="The adjoint of conv in x: (batch, inputs, *spatial) with (inputs, outputs / groups, *kernel).",
    )
)
