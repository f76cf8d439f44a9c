"""What frameworks say about padding, pools and interpolation, in the term language: framework-neutral builders."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from math import lcm, prod

from frittata.egraph import dtypes
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.ops.elements import fold_identity
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.terms import Scalar, Term
from frittata.frontends import idioms, idioms_indices
from frittata.frontends.idioms import Number

Ints = tuple[int, ...]


# ---- joining and padding ---------------------------------------------------------------------------------------------


def concat(parts: Sequence[Term], axis: int) -> Term:
    """Join tensors along an axis, two at a time."""
    axis = idioms.negative_axis(axis, len(parts[0].shape))
    return reduce(lambda x, y: tensor("concat", x, y, axis=axis), parts)


def pad(x: Term, low: Sequence[int], high: Sequence[int], value: Number = 0) -> Term:
    """Pad the last axes with a constant; negative numbers cut off."""
    lead = (0,) * (len(x.shape) - len(low))
    if not any((*low, *high)):
        return x
    return tensor("pad", x, low=(*lead, *low), high=(*lead, *high), value=Scalar.of(value, x.dtype))


def resample(x: Term, axis: int, length: int, start: int = 0, step: int = 1, divisor: int = 1) -> Term:
    """Read one axis at (start + i * step) // divisor, clamped."""
    axis = idioms.negative_axis(axis, len(x.shape))
    if (start, step, divisor, length) == (0, 1, 1, x.shape[axis]):
        return x
    return tensor("resample", x, axis=axis, length=length, start=start, step=step, divisor=divisor)


def replicate(x: Term, low: Sequence[int], high: Sequence[int]) -> Term:
    """Pad the last axes with their first and last values."""
    for axis, before, after in zip(range(-len(low), 0), low, high, strict=True):
        x = resample(x, axis, idioms.number(x.shape[axis]) + before + after, -before)
    return x


def reflect(x: Term, low: Sequence[int], high: Sequence[int], twice: int = 0) -> Term:
    """Pad the last axes with their mirror image, in which so many values at the border are there once more."""
    for axis, before, after in zip(range(-len(low), 0), low, high, strict=True):
        extent = idioms.number(x.shape[axis])
        if max(before, after) >= extent + twice:
            raise ModelError(f"reflection of {x.type} by {before} and {after} on axis {axis}")
        left = [resample(x, axis, before, before - twice, -1)] if before > 0 else []
        right = [resample(x, axis, after, extent - 2 + twice, -1)] if after > 0 else []
        middle = idioms.take_slice(x, axis, max(0, -before), 1, extent + min(0, before) + min(0, after))
        x = concat((*left, middle, *right), axis)
    return x


def circular(x: Term, low: Sequence[int], high: Sequence[int]) -> Term:
    """Pad the last axes as if they were rings, of what negative numbers leave."""
    x = pad(x, [min(0, before) for before in low], [min(0, after) for after in high])
    for axis, before, after in zip(range(-len(low), 0), low, high, strict=True):
        extent = idioms.number(x.shape[axis])
        rounds, first = divmod(max(0, before), extent)
        left = [idioms.take_slice(x, axis, extent - first, 1, first)] if first else []
        more, last = divmod(max(0, after), extent)
        right = [idioms.take_slice(x, axis, 0, 1, last)] if last else []
        x = concat((*left, *[x] * (rounds + 1 + more), *right), axis)
    return x


# ---- pools -----------------------------------------------------------------------------------------------------------


def max_pool(x: Term, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool = False) -> Term:
    """Take the maximum of each window of the last axes."""
    return tensor("max_pool", x, kernel=kernel, stride=stride, padding=padding, dilation=dilation, ceil=ceil)


def windows(x: Term, kernel: Ints, stride: Ints, dilation: Ints, low: Ints, high: Ints, nothing: Number) -> Term:
    """Return the windows of a padded tensor, the values of each on the last axes."""
    padded = pad(x, low, high, nothing)
    return tensor("windows", padded, kernel=kernel, stride=stride, dilation=dilation)


def reached(x: Term, kernel: Ints, stride: Ints, dilation: Ints, low: Ints, high: Ints, ceil: bool) -> Ints:
    """Return the padding at the end up to which windows reach: with `ceil` the last may reach beyond what was asked."""
    ends: list[int] = []
    extents = map(idioms.number, x.shape[-len(kernel) :])
    for n, k, s, d, a, b in zip(extents, kernel, stride, dilation, low, high, strict=True):
        room, span = n + a + b, d * (k - 1) + 1
        last = -(-(room - span) // s) if ceil else (room - span) // s
        last -= last * s >= n + a
        ends.append(last * s + span - n - a)
    return tuple(ends)


def max_pool_places(
    x: Term, found: Term, kernel: Ints, stride: Ints, dilation: Ints, low: Ints, high: Ints, last_nan: bool = False
) -> Term:
    """Return where the maximum that was `found` in each window first stands, a number within the last axes in order.

    Of NaN it is the first place, or the last.
    """
    rank = len(kernel)
    extents = tuple(map(idioms.number, x.shape[-rank:]))
    outside = idioms.scalar(prod(extents), "i64")
    every = windows(x, kernel, stride, dilation, low, high, fold_identity("max", x.dtype).value)
    place = idioms.reshape(idioms_indices.numbers(prod(extents), -1), (1,) * (len(x.shape) - rank) + extents)
    places = windows(place, kernel, stride, dilation, low, high, prod(extents))
    is_found = tensor("eq", every, idioms.reshape(found, (*found.shape, *(1,) * rank)))
    ranked = tensor("where", is_found, places, outside)
    if dtypes.is_float(x.dtype):  # the greatest of some with NaN is NaN
        of_nan = tensor("sub", idioms.scalar(-1, "i64"), places) if last_nan else places
        ranked = tensor("where", tensor("ne", every, every), of_nan, ranked)
    first = idioms.reduce(ranked, "min", list(range(-rank, 0)))
    if not (last_nan and dtypes.is_float(x.dtype)):
        return first
    is_counted_down = tensor("lt", first, idioms.scalar(0, "i64"))
    return tensor("where", is_counted_down, tensor("sub", idioms.scalar(-1, "i64"), first), first)


def avg_pool(
    x: Term, kernel: Ints, stride: Ints, padding: Ints, ceil: bool = False, include: bool = True, divisor: int = 0
) -> Term:
    """Take the mean of each window of the last axes; `divisor` 0 is the number of values.

    With `ceil` a window may be larger than all that it reaches, which takes its place: so are means of whole images
    written for any size.
    """
    if ceil:
        extents = map(idioms.number, x.shape[-len(kernel) :])
        kernel = tuple(min(k, n + 2 * p) for k, n, p in zip(kernel, extents, padding, strict=True))
    attrs = {"ceil": ceil, "count_include_pad": include, "divisor": divisor}
    return tensor("avg_pool", x, kernel=kernel, stride=stride, padding=padding, **attrs)


def adaptive_pool(x: Term, fold: str, extents: Sequence[int]) -> Term:
    """Reduce the last axes to `extents` values each, of windows as equal as can be; `fold` is "max" or "mean"."""
    rank = len(extents)
    sizes = [idioms.number(dim) for dim in x.shape[len(x.shape) - rank :]]
    if all(extent == 1 for extent in extents):
        axes = list(range(-rank, 0))
        return idioms.mean(x, axes, True) if fold == "mean" else idioms.reduce(x, "max", axes, True)
    if all(n % extent == 0 for n, extent in zip(sizes, extents, strict=True)):
        kernel = tuple(n // extent for n, extent in zip(sizes, extents, strict=True))
        ones, none = (1,) * rank, (0,) * rank
        if kernel == ones:
            return x
        return avg_pool(x, kernel, kernel, none) if fold == "mean" else max_pool(x, kernel, kernel, none, ones)
    for axis, n, extent in zip(range(-rank, 0), sizes, extents, strict=True):
        if n != extent:
            x = _uneven_pool(x, fold, axis, n, extent)
    return x


def adaptive_max_pool_places(x: Term, extents: Sequence[int]) -> Term:
    """Return where the values of an adaptive pool stand, numbers within the last axes in order.

    That is the first place of several with one value, the last one of NaN; found along the last axis, then before it.
    """
    rank = len(extents)
    sizes = [idioms.number(dim) for dim in x.shape[len(x.shape) - rank :]]
    places = idioms.expand(idioms.reshape(idioms_indices.numbers(prod(sizes), -1), sizes), x.shape)
    lowest = fold_identity("max", x.dtype).value
    for axis, n, extent in reversed([*zip(range(-rank, 0), sizes, extents, strict=True)]):
        values, order = _uneven_windows(x, axis, n, extent, lowest)
        stands, _ = _uneven_windows(places, axis, n, extent, 0)
        found = tensor("argmax", values, axis=-1)
        if dtypes.is_float(x.dtype):
            numbers = idioms_indices.numbers(idioms.number(values.shape[-1]), -1)
            nans = tensor("where", tensor("ne", values, values), numbers, idioms.scalar(-1, "i64"))
            last = idioms.reduce(nans, "max", [-1], True)
            found = tensor("where", tensor("ge", last, idioms.scalar(0, "i64")), last, found)
        read = (idioms.squeeze(tensor("gather", each, found, axis=-1), [-1]) for each in (values, stands))
        x, places = (idioms.permute(each, order) for each in read)
    return places


def _uneven_windows(x: Term, axis: int, n: int, extent: int, nothing: Number) -> tuple[Term, list[int]]:
    """Return the windows of one axis, from floor(i n / extent) to ceil((i + 1) n / extent), on a new last one.

    All are read at the length of the longest; what is beyond their own end is `nothing`. The axis has changed places
    with the last one; permuted by the order that comes along it is where it was.
    """
    longest = max(-(-(i + 1) * n // extent) - i * n // extent for i in range(extent))
    order = list(range(len(x.shape)))
    order[axis], order[-1] = order[-1], order[axis]
    moved = idioms.permute(x, order)
    ended = pad(moved, (0,), (longest - 1,))
    every = tensor("windows", ended, kernel=(longest,), stride=(1,), dilation=(1,))
    read = resample(every, -2, extent, 0, n, extent)
    size = tensor("build", _window_size(n, extent), shape=(extent, 1))
    place = tensor("build", element("iota", axis=-1, extent=longest), shape=(longest,))
    return tensor("where", tensor("lt", place, size), read, idioms.scalar(nothing, x.dtype)), order


def _uneven_pool(x: Term, fold: str, axis: int, n: int, extent: int) -> Term:
    kept, order = _uneven_windows(x, axis, n, extent, 0 if fold == "mean" else fold_identity("max", x.dtype).value)
    out = idioms.reduce(kept, "sum" if fold == "mean" else "max", -1)
    if fold == "mean":
        size = tensor("build", _window_size(n, extent), shape=(extent, 1))
        out = tensor("div", out, idioms.reshape(idioms.cast(size, x.dtype), (extent,)))
    return idioms.permute(out, order)


def _window_size(n: int, extent: int) -> Term:
    """Return the element whose value at (i, 0) is ceil((i + 1) n / extent) - floor(i n / extent)."""
    scaled = element("mul", element("iota", axis=-2, extent=extent), _integer(n))
    start = element("floordiv", scaled, _integer(extent))
    end = element("floordiv", element("add", scaled, _integer(n + extent - 1)), _integer(extent))
    return element("sub", end, start)


def _integer(value: int) -> Term:
    return element("const", value=Scalar.of(value, "i64"))


def folded(
    columns: Term, extents: Sequence[int], kernel: Ints, stride: Ints, dilation: Ints, low: Ints, high: Ints
) -> Term:
    """Add windows to an image of zeros where they would be read; what they have beyond its borders is left out.

    Shapes: columns (batch, channels * values of a window, windows), result (batch, channels, *extents).
    """
    padded = [n + a + b for n, a, b in zip(extents, low, high, strict=True)]
    batch, channels, rank = columns.shape[0], idioms.number(columns.shape[1]) // prod(kernel), len(kernel)
    place = idioms.scalar(0, "i64")
    for at, (n, k, s, d) in enumerate(zip(padded, kernel, stride, dilation, strict=True)):
        line = prod(padded[at + 1 :])
        for axis, extent, step in ((at - 2 * rank, k, d), (at - rank, (n - d * (k - 1) - 1) // s + 1, s)):
            numbers = tensor("mul", idioms_indices.numbers(extent, axis), idioms.scalar(step * line, "i64"))
            place = tensor("add", place, numbers)
    planes = idioms.number(batch) * channels
    zeros = idioms.filled(0, (planes, prod(padded)), columns.dtype)
    values = idioms.reshape(columns, (planes, -1))
    image = idioms.reshape(idioms_indices.index_write(zeros, -1, place, values, "sum"), (batch, channels, *padded))
    return pad(image, [-a for a in low], [-b for b in high])


# ---- interpolation ---------------------------------------------------------------------------------------------------


def nearest(x: Term, axis: int, table: Sequence[int], first: Fraction, step: Fraction) -> Term:
    """Read one axis at the places of a table, which are floor(first + i * step).

    Raises: UnsupportedOpError if some are not, by the rounding of the framework that made the table.
    """
    extent = idioms.number(x.shape[axis])
    by = lcm(first.denominator, step.denominator)
    start, stride = int(first * by), int(step * by)
    if any(at != min(max((start + i * stride) // by, 0), extent - 1) for i, at in enumerate(table)):
        raise UnsupportedOpError(
            f"nearest neighbours of {x.type} on axis {axis} at {len(table)} places in uneven steps"
        )
    return resample(x, axis, len(table), start, stride, by)


def linear(x: Term, axis: int, length: int, first: Fraction, step: Fraction) -> Term:
    """Interpolate one axis at first + i * step, clamped, between its neighbours.

    Raises: UnsupportedOpError for integers, which frameworks round each in its way.
    """
    if not dtypes.is_float(x.dtype):
        raise UnsupportedOpError(f"interpolation of {x.dtype}", do="convert to floats before, and round after")
    extent = idioms.number(x.shape[axis])
    if (length, first, step) == (extent, 0, 1):
        return x
    by = lcm(first.denominator, step.denominator)
    start, stride = int(first * by), int(step * by)
    left = resample(x, axis, length, start, stride, by)
    right = resample(x, axis, length, start + by, stride, by)
    shape = (length, *(1,) * (-axis - 1))
    scaled = element("mul", element("iota", axis=axis, extent=length), _integer(stride))
    rest = element("mod", element("add", scaled, _integer(start)), _integer(by))
    share = element("cast", rest, dtype=x.dtype)
    weight = element("mul", share, element("const", value=Scalar.of(1 / by, x.dtype)))
    weight_of_right = tensor("build", weight, shape=shape)
    weight_of_left = tensor("sub", idioms.scalar(1, x.dtype), weight_of_right)
    return tensor("add", tensor("mul", left, weight_of_left), tensor("mul", right, weight_of_right))


# ---- depth and space -------------------------------------------------------------------------------------------------


def pixel_shuffle(x: Term, factor: int) -> Term:
    """(*lead, channels * factor^2, h, w) -> (*lead, channels, h * factor, w * factor)."""
    *lead, depth, h, w = x.shape
    rank, channels = len(lead), idioms.number(depth) // (factor * factor)
    split = idioms.reshape(x, (*lead, channels, factor, factor, h, w))
    mixed = idioms.permute(split, [*range(rank + 1), rank + 3, rank + 1, rank + 4, rank + 2])
    return idioms.reshape(mixed, (*lead, channels, idioms.number(h) * factor, idioms.number(w) * factor))


def pixel_unshuffle(x: Term, factor: int) -> Term:
    """(*lead, channels, h * factor, w * factor) -> (*lead, channels * factor^2, h, w)."""
    *lead, channels, height, width = x.shape
    rank, h, w = len(lead), idioms.number(height) // factor, idioms.number(width) // factor
    split = idioms.reshape(x, (*lead, channels, h, factor, w, factor))
    mixed = idioms.permute(split, [*range(rank + 1), rank + 2, rank + 4, rank + 1, rank + 3])
    return idioms.reshape(mixed, (*lead, idioms.number(channels) * factor * factor, h, w))
