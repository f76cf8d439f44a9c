"""Rows of aten operators on windows and borders: padding, joining, pools, interpolation, transposed convolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np

from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_indices, idioms_sampling, idioms_windows
from frittata.frontends.aten_scalars import linspace

Ints = tuple[int, ...]
Row = Callable[..., Any]


def _each(value: int | Sequence[int], rank: int) -> Ints:
    given = [value] if isinstance(value, int) else list(value)
    return tuple(given * rank if len(given) == 1 else given)


# ---- joining and padding ---------------------------------------------------------------------------------------------


def _cat(parts: Sequence[Term], axis: int = 0) -> Term:
    """Join; torch passes over empty tensors of one axis, which the import does not have."""
    return idioms_windows.concat(idioms.promoted(*parts), axis)


def _stack(parts: Sequence[Term], axis: int = 0) -> Term:
    return _cat([idioms.unsqueeze(part, axis) for part in parts], axis)


def _hstack(parts: Sequence[Term]) -> Term:
    rows = [idioms.reshape(part, (1,)) if not part.shape else part for part in parts]
    return _cat(rows, 0 if len(rows[0].shape) == 1 else 1)


def _vstack(parts: Sequence[Term]) -> Term:
    rows = [
        idioms.reshape(part, (1, *part.shape) if part.shape else (1, 1)) if len(part.shape) < 2 else part
        for part in parts
    ]
    return _cat(rows, 0)


def _sides(pads: Sequence[int]) -> tuple[Ints, Ints]:
    """Return low and high of the last axes; torch lists pairs from the last axis on."""
    return tuple(pads[::2][::-1]), tuple(pads[1::2][::-1])


def _border(build: Callable[[Term, Ints, Ints], Term]) -> Row:
    return lambda x, pads: build(x, *_sides(pads))


def _constant_pad(x: Term, pads: Sequence[int], value: idioms.Number = 0) -> Term:
    return idioms_windows.pad(x, *_sides(pads), value)


def _pad(x: Term, pads: Sequence[int], mode: str = "constant", value: float | None = None) -> Term:
    if mode == "constant":
        return _constant_pad(x, pads, 0 if value is None else value)
    return _border(_BORDERS[mode])(x, pads)


def _circular(x: Term, low: Ints, high: Ints) -> Term:
    """Pad with a ring; torch refuses more than once around it, but not of what negative numbers leave.

    Raises: ModelError there, for torch raises in a call, or reads what nothing was written to.
    """
    for dim, before, after in zip(x.shape[len(x.shape) - len(low) :], low, high, strict=True):
        left = idioms.number(dim) + min(0, before) + min(0, after)
        if max(before, after) > left:
            what = f"circular padding by {before} and {after}, more than the {left} values that are left of {dim}"
            raise ModelError(what, do="cut off first, then pad by no more than is left")
    return idioms_windows.circular(x, low, high)


_BORDERS: dict[str, Callable[[Term, Ints, Ints], Term]] = {
    "reflect": idioms_windows.reflect,
    "replicate": idioms_windows.replicate,
    "circular": _circular,
}


def _rot90(x: Term, times: int = 1, axes: Sequence[int] = (0, 1)) -> Term:
    first, second = axes
    match times % 4:
        case 0:
            return x
        case 1:
            return idioms.swap(idioms_indices.flip(x, [second]), first, second)
        case 2:
            return idioms_indices.flip(x, axes)
        case _:
            return idioms_indices.flip(idioms.swap(x, first, second), [second])


def _unfold(x: Term, axis: int, size: int, step: int) -> Term:
    """Return the windows of one axis, their values on a new last one."""
    rank = len(x.shape)
    if not rank:
        return idioms.reshape(x, (size,))
    axis = idioms.negative_axis(axis, rank)
    order = [i for i in range(rank) if i - rank != axis] + [axis + rank]
    out = tensor("windows", idioms.permute(x, order), kernel=(size,), stride=(step,), dilation=(1,))
    back = [*range(axis + rank), rank - 1, *range(axis + rank, rank - 1), rank]
    return idioms.permute(out, back)


def _im2col(
    x: Term, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Term:
    batched = x if len(x.shape) == 4 else idioms.reshape(x, (1, *x.shape))
    kernel, dilation, padding, stride = (_each(v, 2) for v in (kernel, dilation, padding, stride))
    padded = idioms_windows.pad(batched, padding, padding)
    every = tensor("windows", padded, kernel=kernel, stride=stride, dilation=dilation)
    batch, channels, *inner = every.shape
    moved = idioms.permute(every, (0, 1, 4, 5, 2, 3))
    rows, columns = idioms.number(channels) * kernel[0] * kernel[1], idioms.number(inner[0]) * idioms.number(inner[1])
    out = idioms.reshape(moved, (batch, rows, columns))
    return out if batched is x else idioms.reshape(out, (rows, columns))


# ---- pools -----------------------------------------------------------------------------------------------------------


def _moved(rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[Any, Any, Any, Any]:
    """Return how windows lie along each axis; without a stride side by side."""
    steps = stride if isinstance(stride, int) or stride else kernel
    return _each(kernel, rank), _each(steps, rank), _each(padding, rank), _each(dilation, rank)


def _max_pool(rank: int) -> Row:
    def row(x: Term, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False) -> Term:
        return idioms_windows.max_pool(x, *_moved(rank, kernel, stride, padding, dilation), ceil)

    return row


def _max_pool_and_places(rank: int) -> Row:
    def row(
        x: Term, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
    ) -> tuple[Term, Term]:
        kernel, steps, padding, dilation = _moved(rank, kernel, stride, padding, dilation)
        found = idioms_windows.max_pool(x, kernel, steps, padding, dilation, ceil)
        high = idioms_windows.reached(x, kernel, steps, dilation, padding, padding, ceil)
        return found, idioms_windows.max_pool_places(x, found, kernel, steps, dilation, padding, high, last_nan=True)

    return row


def _avg_pool(rank: int) -> Row:
    def row(
        x: Term,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil: bool = False,
        include: bool = True,
        divisor: int | None = None,
    ) -> Term:
        kernel = _each(kernel, rank)
        steps = _each(stride, rank) if isinstance(stride, int) or stride else kernel
        negative = divisor is not None and divisor < 0
        size = abs(divisor) if divisor else 0
        out = idioms_windows.avg_pool(x, kernel, steps, _each(padding, rank), ceil, include, size)
        return tensor("neg", out) if negative else out

    return row


def _adaptive(fold: str, rank: int) -> Row:
    def row(x: Term, size: Any) -> Term:
        extents = _each(size, rank)
        return idioms_windows.adaptive_pool(x, fold, extents)

    return row


def _adaptive_max_and_places(rank: int) -> Row:
    pool = _adaptive("max", rank)
    return lambda x, size: (pool(x, size), idioms_windows.adaptive_max_pool_places(x, _each(size, rank)))


# ---- interpolation ---------------------------------------------------------------------------------------------------


def _sizes(x: Term, size: Sequence[int] | None, scales: Sequence[float | None] | None, rank: int) -> list[int]:
    if size is not None:
        return [idioms.number(n) for n in size]
    if scales is None:
        raise ModelError(f"interpolation of {x.type} without a size")
    inner = x.shape[len(x.shape) - rank :]
    return [floor(idioms.number(n) * factor) for n, factor in zip(inner, scales, strict=True) if factor is not None]


def _ratio(extent: int, length: int, scale: float | None) -> Fraction:
    """Return how far one step of the result goes in the source; a given scale stands for a simple fraction."""
    if scale is not None and scale > 0:
        return Fraction(1 / scale).limit_denominator(1_000_000)
    return Fraction(extent, length)


def _nearest(rank: int, exact: bool) -> Callable[[Term, list[int], Sequence[float | None]], Term]:
    def build(x: Term, size: list[int], scales: Sequence[float | None]) -> Term:
        half = Fraction(int(exact), 2)
        for axis, length, scale in zip(range(-rank, 0), size, scales, strict=True):
            extent = idioms.number(x.shape[axis])
            if rank == 2 and not exact and length in (extent, 2 * extent):
                # Of images, torch copies each value, whatever the scale; of a volume only with the channels last.
                scale = None
            step = _ratio(extent, length, scale)
            table = _nearest_table(extent, length, scale, exact)
            x = idioms_windows.nearest(x, axis, table, half * step, step)
        return x

    return build


def _nearest_table(extent: int, length: int, scale: float | None, exact: bool) -> list[int]:
    """Return the places that torch reads: its steps are in single precision.

    Source: nearest_idx and nearest_exact_idx in ATen/native/UpSample.h.
    """
    places = np.arange(length, dtype=np.float32)
    step = np.float32(extent) / np.float32(length)
    if scale is not None and scale > 0:
        step = np.float32(1 / scale)
    read = np.floor((places + np.float32(0.5 if exact else 0)) * step)
    return [min(int(at), extent - 1) for at in read]


def _linear(rank: int, align: bool) -> Callable[[Term, list[int], Sequence[float | None]], Term]:
    def build(x: Term, size: list[int], scales: Sequence[float | None]) -> Term:
        for axis, length, scale in reversed(list(zip(range(-rank, 0), size, scales, strict=True))):
            extent = idioms.number(x.shape[axis])
            if length == extent:  # torch copies it, whatever the scale
                continue
            if align:
                first, step = Fraction(0), Fraction(extent - 1, length - 1) if length > 1 else Fraction(0)
            else:
                step = _ratio(extent, length, scale)
                first = step / 2 - Fraction(1, 2)
            x = idioms_windows.linear(x, axis, length, first, step)
        return x

    return build


def _upsample(rank: int, exact: bool = False) -> Row:
    def row(x: Term, size: Sequence[int], *scales: float | None) -> Term:
        return _nearest(rank, exact)(x, list(size), scales or (None,) * rank)

    return row


def _upsample_vec(rank: int, exact: bool = False) -> Row:
    def row(x: Term, size: Sequence[int] | None, scales: Sequence[float] | None) -> Term:
        return _nearest(rank, exact)(x, _sizes(x, size, scales, rank), scales or (None,) * rank)

    return row


def _upsample_linear(rank: int) -> Row:
    def row(x: Term, size: Sequence[int], align: bool, *scales: float | None) -> Term:
        return _linear(rank, align)(x, list(size), scales or (None,) * rank)

    return row


def _upsample_linear_vec(rank: int) -> Row:
    def row(x: Term, size: Sequence[int] | None, align: bool, scales: Sequence[float] | None) -> Term:
        return _linear(rank, align)(x, _sizes(x, size, scales, rank), scales or (None,) * rank)

    return row


_MOST_REACH = 16
"""Filters that reach over more values to each side take long to compile, and are not faster than torch's."""


def _smooth(weigh: idioms_sampling.Filter, reach: int) -> Callable[..., Term]:
    """Return what reads an image through a filter that is as wide as a step, of which only what is inside counts.

    Raises: UnsupportedOpError for corners that are aligned, and filters that are wide.
    """

    def build(x: Term, size: list[int], align: bool, scales: Sequence[float | None]) -> Term:
        if align:
            raise UnsupportedOpError("antialias with align_corners")
        for axis, length, scale in reversed(list(zip((-2, -1), size, scales, strict=True))):
            extent = idioms.number(x.shape[axis])
            if length == extent:  # torch copies it, whatever the scale
                continue
            step = _ratio(extent, length, scale)
            first, width = (step - 1) / 2, max(step, Fraction(1))
            if reach * width > _MOST_REACH:
                raise UnsupportedOpError(f"antialias over more than {2 * _MOST_REACH} values")
            x = idioms_sampling.filtered(x, axis, length, first, step, weigh, reach, width, exclude=True)
        return x

    return build


_SMOOTH = {
    "bilinear2d_aa": _smooth(idioms_sampling.triangle, 1),
    "bicubic2d_aa": _smooth(idioms_sampling.cubic(-0.5), 2),
}


def _upsample_smooth(name: str) -> Row:
    def row(x: Term, size: Sequence[int], align: bool, *scales: float | None) -> Term:
        return _SMOOTH[name](x, list(size), align, scales or (None, None))

    return row


def _upsample_smooth_vec(name: str) -> Row:
    def row(x: Term, size: Sequence[int] | None, align: bool, scales: Sequence[float] | None) -> Term:
        return _SMOOTH[name](x, _sizes(x, size, scales, 2), align, scales or (None, None))

    return row


_GRID_MODES = ("linear", "nearest", "cubic")
_GRID_BORDERS = ("zeros", "border", "reflection")


def _grid_sample(x: Term, grid: Term, mode: int, padding: int, corners: bool) -> Term:
    """In space torch makes something else of places that are no number."""
    how = _GRID_MODES[mode], _GRID_BORDERS[padding], corners
    return idioms_sampling.grid_sample(x, grid, *how, rounds_last=True, nan_beyond=len(x.shape) == 5)


def _affine_grid(theta: Term, size: Sequence[int], corners: bool) -> Term:
    """Return where a matrix for each image leads from the places of a grid; an axis of one place stands at 0.

    Shapes: theta (batch, rank, rank + 1), size (batch, channels, *places), result (batch, *places, rank).
    """
    rank = len(size) - 2
    columns = [idioms.reshape(idioms.select(theta, -1, i), (size[0], *[1] * rank, rank)) for i in range(rank + 1)]
    total = columns.pop()
    for i, column in enumerate(columns):  # the last axis first
        length = size[-1 - i]
        end = 0 if length == 1 else 1 if corners else (length - 1) / length
        places = idioms.reshape(linspace(-end, end, length, theta.dtype), (length, *[1] * (i + 1)))
        total = tensor("add", total, tensor("mul", column, places))
    return total


# ---- layers ----------------------------------------------------------------------------------------------------------


def conv_transpose(rank: int) -> Row:
    """Return the row of a transposed convolution with so many spatial axes."""

    def row(
        x: Term,
        weight: Term,
        bias: Term | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Term:
        batched = x if len(x.shape) == rank + 2 else idioms.reshape(x, (1, *x.shape))
        out = tensor(
            "conv_transpose",
            batched,
            weight,
            stride=_each(stride, rank),
            padding=_each(padding, rank),
            output_padding=_each(output_padding, rank),
            dilation=_each(dilation, rank),
            groups=groups,
        )
        if bias is not None:
            out = tensor("add", out, idioms.per_channel(bias, rank + 2))
        return out if batched is x else idioms.reshape(out, out.shape[1:])

    return row


def _scale_and_shift(x: Term, weight: Term | None, bias: Term | None) -> tuple[Term, Term]:
    channels = (x.shape[1],)
    scale = idioms.filled(1, channels, x.dtype) if weight is None else weight
    return scale, idioms.filled(0, channels, x.dtype) if bias is None else bias


def _group_norm(
    x: Term, groups: int, weight: Term | None = None, bias: Term | None = None, eps: float = 1e-5, *_: Any
) -> Term:
    return tensor("group_norm", x, *_scale_and_shift(x, weight, bias), groups=groups, eps=float(eps))


def _native_group_norm(x: Term, weight: Any, bias: Any, _n: Any, _c: Any, _hw: Any, groups: int, eps: float) -> Any:
    return _group_norm(x, groups, weight, bias, eps), None, None


def _instance_norm(
    x: Term,
    weight: Term | None,
    bias: Term | None,
    mean: Term | None,
    var: Term | None,
    use_input: bool,
    _momentum: float,
    eps: float,
    *_: Any,
) -> Term:
    scale, shift = _scale_and_shift(x, weight, bias)
    if use_input:
        if mean is not None:
            do = "give F.instance_norm None for running statistics, or use_input_stats=False, as model.eval() does"
            raise ModelError("instance norm changes its running statistics", do=do)
        return tensor("group_norm", x, scale, shift, groups=idioms.number(x.shape[1]), eps=float(eps))
    if mean is None or var is None:
        raise UnsupportedOpError("instance_norm without statistics")
    return tensor("batch_norm", x, mean, var, scale, shift, eps=float(eps))


def _rms_norm(x: Term, axes: Sequence[int], weight: Term | None = None, eps: float | None = None) -> Term:
    """Several normalized axes are one axis first."""
    extent = idioms.count(x, list(range(-len(axes), 0)))
    least = float(eps) if eps is not None else float(np.finfo(np.float64 if x.dtype == "f64" else np.float32).eps)
    scale = idioms.filled(1, (extent,), x.dtype) if weight is None else idioms.reshape(weight, (extent,))
    rows = idioms.reshape(x, (*x.shape[: len(x.shape) - len(axes)], extent))
    return idioms.reshape(tensor("rms_norm", rows, scale, eps=least), x.shape)


def _channel_shuffle(x: Term, groups: int) -> Term:
    batch, channels, *inner = x.shape
    split = idioms.reshape(x, (batch, groups, idioms.number(channels) // groups, *inner))
    return idioms.reshape(idioms.swap(split, 1, 2), x.shape)


ROWS: dict[str, Row] = {
    **{f"aten.{name}.default": _cat for name in ("cat", "concat", "concatenate")},
    "aten.stack.default": _stack,
    "aten.hstack.default": _hstack,
    "aten.vstack.default": _vstack,
    "aten.constant_pad_nd.default": _constant_pad,
    "aten.pad.default": _pad,
    **{f"aten.reflection_pad{rank}d.default": _border(idioms_windows.reflect) for rank in (1, 2, 3)},
    **{f"aten.replication_pad{rank}d.default": _border(idioms_windows.replicate) for rank in (1, 2, 3)},
    "aten.fliplr.default": lambda x: idioms_indices.flip(x, [1]),
    "aten.flipud.default": lambda x: idioms_indices.flip(x, [0]),
    "aten.rot90.default": _rot90,
    "aten.unfold.default": _unfold,
    "aten.im2col.default": _im2col,
    "aten.pixel_shuffle.default": idioms_windows.pixel_shuffle,
    "aten.pixel_unshuffle.default": idioms_windows.pixel_unshuffle,
    "aten.channel_shuffle.default": _channel_shuffle,
    **{f"aten.max_pool{rank}d.default": _max_pool(rank) for rank in (1, 2, 3)},
    **{f"aten.max_pool{rank}d_with_indices.default": _max_pool_and_places(rank) for rank in (1, 2, 3)},
    **{f"aten.avg_pool{rank}d.default": _avg_pool(rank) for rank in (1, 2, 3)},
    **{f"aten.adaptive_avg_pool{rank}d.default": _adaptive("mean", rank) for rank in (1, 2, 3)},
    **{f"aten._adaptive_avg_pool{rank}d.default": _adaptive("mean", rank) for rank in (2, 3)},
    **{f"aten.adaptive_max_pool{rank}d.default": _adaptive_max_and_places(rank) for rank in (1, 2, 3)},
    **{f"aten.upsample_nearest{rank}d.default": _upsample(rank) for rank in (1, 2, 3)},
    **{f"aten.upsample_nearest{rank}d.vec": _upsample_vec(rank) for rank in (1, 2, 3)},
    **{f"aten._upsample_nearest_exact{rank}d.default": _upsample(rank, True) for rank in (1, 2, 3)},
    **{f"aten._upsample_nearest_exact{rank}d.vec": _upsample_vec(rank, True) for rank in (1, 2, 3)},
    **{
        f"aten.upsample_{name}.{kind}": row(rank)
        for rank, name in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d"))
        for kind, row in (("default", _upsample_linear), ("vec", _upsample_linear_vec))
    },
    **{f"aten._upsample_{name}.default": _upsample_smooth(name) for name in _SMOOTH},
    **{f"aten._upsample_{name}.vec": _upsample_smooth_vec(name) for name in _SMOOTH},
    **{f"aten.grid_sampler{kind}.default": _grid_sample for kind in ("", "_2d", "_3d")},
    "aten.affine_grid_generator.default": _affine_grid,
    "aten.conv_transpose1d.default": conv_transpose(1),
    "aten.conv_transpose2d.input": conv_transpose(2),
    "aten.conv_transpose3d.input": conv_transpose(3),
    "aten.group_norm.default": _group_norm,
    "aten.native_group_norm.default": _native_group_norm,
    "aten.instance_norm.default": _instance_norm,
    "aten.rms_norm.default": _rms_norm,
}
"""What each overload means."""
