"""Attributes of rules on padding, windows and transposed convolution: shapes, paddings, permutations, maps."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from math import gcd, prod
from typing import Any, NamedTuple

from frittata.egraph import indexing, shapes
from frittata.egraph.indexing import IndexMap, var
from frittata.egraph.ops import elements, windows
from frittata.egraph.shapes import Shape

Ints = tuple[int, ...]

_LINE = 16
"""The float32 of a cache line."""

_LEAST_INSIDE = 2 / 3
"""Of what windows read along an axis, the part inside the image from which on they are left together."""
_MOST_BANDS = 3
"""As many as a window of three places has."""


def on_axis(rank: int, axis: int, value: int) -> Ints:
    """Return `value` on one negative axis and 0 on the others: on_axis(3, -2, 5) = (0, 5, 0)."""
    return tuple(value if i - rank == axis else 0 for i in range(rank))


def on_all(values: Ints, value: int) -> Ints:
    """Return as many times `value`."""
    return (value,) * len(values)


def added(left: Ints, right: Ints) -> Ints:
    """Add place by place."""
    return tuple(a + b for a, b in zip(left, right, strict=True))


def without(values: Ints, axis: int) -> Ints:
    """Return the values with 0 on one negative axis."""
    return tuple(0 if i - len(values) == axis else value for i, value in enumerate(values))


def padded_axes(low: Ints, high: Ints) -> Ints:
    """Return the negative axes that a padding changes."""
    return tuple(i - len(low) for i, pair in enumerate(zip(low, high, strict=True)) if any(pair))


def padded(shape: Shape, low: Ints, high: Ints) -> Shape:
    """Return the shape after padding."""
    return indexing.pad_map(shape, low, high).result


def are_slices(shape: Shape, indices: Shape, source: Shape, axis: int) -> bool:
    """Whether a source is slices of a tensor from end to end, with an index on an axis for each."""
    whole, each, given = (shapes.concrete(one) for one in (shape, indices, source))
    return without(whole, axis) == without(given, axis) and prod(each) == each[axis] == given[axis]


def pool_low(shape: Shape, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool) -> Ints:
    """Return what a pool pads before each axis."""
    return windows.pool_padding(shape, kernel, stride, padding, dilation, ceil)[0]


def pool_high(shape: Shape, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool) -> Ints:
    """Return what a pool pads after each axis."""
    return windows.pool_padding(shape, kernel, stride, padding, dilation, ceil)[1]


def pool_view(shape: Shape, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool) -> IndexMap:
    """Return the map (*lead, *spatial) -> (*kernel, *lead, *out) of a pool that reads clamped values for padding."""
    spatial = shape[len(shape) - len(kernel) :]
    out = windows.pool_extents(spatial, kernel, stride, padding, dilation, ceil)
    return indexing.pool_map(shape, kernel, padding, stride, dilation, out)


def inner_view(shape: Shape, kernel: Ints, stride: Ints, dilation: Ints) -> IndexMap:
    """Return the map (*lead, *spatial) -> (*kernel, *lead, *out) of all windows that lie inside."""
    return pool_view(shape, kernel, stride, (0,) * len(kernel), dilation, False)


def pool_view_last(shape: Shape, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool) -> IndexMap:
    """Return the map (batch, *spatial, channels) -> (*kernel, batch, *out, channels) of such a pool, channels last."""
    out = windows.pool_extents(shape[1:-1], kernel, stride, padding, dilation, ceil)
    return indexing.pool_map_last(shape, kernel, padding, stride, dilation, out)


def group_view_last(shape: Shape, weights: Shape, stride: Ints, dilation: Ints) -> IndexMap:
    """Return the map (batch, *spatial, channels) -> (*lines, inputs, columns, batch, *out, outputs) of windows.

    Each output channel reads the `inputs` channels of its group in windows of so many columns, the last axis of the
    kernel, and lines, its others; all inside.
    """
    outputs, inputs, *kernel = shapes.concrete(weights)
    (channels,) = shapes.concrete(shape[-1:])
    result = (*kernel[:-1], inputs, kernel[-1], *convolved_last(shape, weights, stride, dilation))
    *lines, channel, column, batch = indexing.axes_of(result)[: len(kernel) + 2]
    *out, output = indexing.axes_of(result)[len(kernel) + 2 :]
    group = output // (outputs * inputs // channels)
    at = (y * s + k * d for y, s, k, d in zip(out, stride, (*lines, column), dilation, strict=True))
    return IndexMap(shape, result, (batch, *at, group * inputs + channel))


def convolved_last(shape: Shape, weights: Shape, stride: Ints, dilation: Ints) -> Shape:
    """Return the shape (batch, *out, outputs) of a convolution with the channels last, all windows inside."""
    spatial = elements.window_extents(shape[1:-1], weights[2:], stride, on_all(stride, 0), dilation)
    return shape[0], *spatial, weights[0]


def by_lines(shape: Shape) -> Shape:
    """(outputs, inputs, *kernel) -> (parts, outputs of a part, inputs, *kernel), parts of a cache line if possible."""
    outputs, *others = shapes.concrete(shape)
    part = gcd(outputs, _LINE)
    return outputs // part, part, *others


def part_last(axes: int) -> Ints:
    """Return the permutation (parts, outputs of a part, inputs, *lines, columns) -> (parts, *lines, inputs, columns,
    outputs of a part): part_last(5) = (0, 3, 2, 4, 1)."""
    return (0, *range(3, axes - 1), 2, axes - 1, 1)


def parts_map(shape: Shape) -> IndexMap:
    """Return the map of weights (parts, *lines, inputs, columns, outputs of a part) to what `group_view_last` meets.

    That has the shape (*lines, inputs, columns, 1, ..., 1, outputs).
    """
    parts, *window, part = shapes.concrete(shape)
    result = (*window, *on_all(tuple(window), 1), parts * part)
    *at, output = indexing.axes_of(result)
    return IndexMap(shape, result, (output // part, *at[: len(window)], output % part))


def kernel_first(rank: int) -> Ints:
    """Return the permutation of weights (channels, inputs, *kernel) to (*kernel, inputs, channels)."""
    return (*range(2, rank), 1, 0)


def moved(values: Ints, permutation: Ints) -> Ints:
    """Return a number for each axis after a permutation of the axes."""
    return tuple(values[axis] for axis in permutation)


def moved_axis(axis: int, permutation: Ints) -> int:
    """Return where a permutation takes a negative axis: moved_axis(-3, (0, 2, 3, 1)) = -1."""
    rank = len(permutation)
    return permutation.index(axis + rank) - rank


def pooled_last(shape: Shape, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool) -> Shape:
    """Return the shape (batch, *out, channels) that folds over the kernel leave of `pool_view_last`."""
    return pool_view_last(shape, kernel, stride, padding, dilation, ceil).result[len(kernel) :]


def counts_all(shape: Shape, kernel: Ints, stride: Ints, padding: Ints, ceil: bool, include: bool) -> bool:
    """Whether each window of an average counts as many values as the kernel has."""
    ones = (1,) * len(kernel)
    low, high = windows.pool_padding(shape, kernel, stride, padding, ones, ceil)
    if include:
        return all(after <= before for before, after in zip(low, high, strict=True))
    return not any((*low, *high))


def bordered(shape: Shape, padding: Ints) -> Shape:
    """Return the extents of the spatial axes with their padding."""
    spatial = shapes.concrete(shape[len(shape) - len(padding) :])
    return tuple(n + 2 * p for n, p in zip(spatial, padding, strict=True))


def clipped(shape: Shape, kernel: Ints, stride: Ints, padding: Ints, ceil: bool) -> Ints:
    """Return how far the last window of each axis reaches beyond the padding; less than 0 where it ends before."""
    _, high = windows.pool_padding(shape, kernel, stride, padding, (1,) * len(kernel), ceil)
    return tuple(h - p for h, p in zip(high[len(high) - len(kernel) :], padding, strict=True))


def interleaved(shape: Shape, steps: Ints, inner: bool) -> Shape:
    """Insert an axis after each, of its step or, if not `inner`, of 1: (3, 5) with (1, 2) gives (3, 1, 5, 2)."""
    return tuple(dim for pair in zip(shape, steps, strict=True) for dim in (pair[0], pair[1] if inner else 1))


def stuffing(steps: Ints) -> Ints:
    """Return the padding after each interleaved axis that makes 1 the step."""
    return tuple(pad for step in steps for pad in (0, step - 1))


def grouped(shape: Shape, groups: int) -> Shape:
    """Return the shape (batch, groups, channels / groups, values of a channel)."""
    channels, *spatial = shapes.concrete(shape[1:])
    return shape[0], groups, channels // groups, prod(spatial)


def by_pixels(shape: Shape) -> Shape:
    """(batch, *spatial, channels) -> (batch, values of a channel, channels)."""
    return shape[0], prod(shapes.concrete(shape[1:-1])), shape[-1]


def by_channel(shape: Shape) -> Shape:
    """(batch, *spatial, channels) -> (batch, 1, channels)."""
    return shape[0], 1, shape[-1]


def for_pixels(shape: Shape) -> Shape:
    """(batch, *spatial, channels) -> (batch, 1, ..., 1, channels)."""
    return shape[0], *on_all(shapes.concrete(shape[1:-1]), 1), shape[-1]


def size_of_group(shape: Shape, groups: int) -> int:
    """Return how many channels, the last axis, a group has."""
    (channels,) = shapes.concrete(shape[-1:])
    return channels // groups


def group_map(shape: Shape, groups: int) -> IndexMap:
    """Return the map (batch, 1, channels) -> (channels of a group, batch, 1, channels): those of its group."""
    size = size_of_group(shape, groups)
    result = (size, *shapes.concrete(shape))
    member, batch, one, channel = indexing.axes_of(result)
    return IndexMap(shape, result, (batch, one, channel // size * size + member))


def values_of_group(shape: Shape, groups: int) -> int:
    """Return how many values the channels of a group have in an image (batch, *spatial, channels)."""
    return prod(shapes.concrete(shape[1:])) // groups


def weights_by_group(shape: Shape, groups: int) -> Shape:
    """(inputs, outputs / groups, *kernel) -> (groups, inputs / groups, outputs / groups * kernel)."""
    inputs, *outer = shapes.concrete(shape)
    return groups, inputs // groups, prod(outer)


def inputs_by_group(shape: Shape, groups: int) -> Shape:
    """(batch, inputs, *spatial) -> (batch, groups, inputs / groups, values of a channel)."""
    inputs, *spatial = shapes.concrete(shape[1:])
    return shape[0], groups, inputs // groups, prod(spatial)


def reached(shape: Shape, weights: Shape, groups: int) -> Shape:
    """Return the shape (batch, outputs, *kernel, *spatial) of what each value gives to each place of its window."""
    (outputs,) = shapes.concrete(weights[1:2])
    return shape[0], outputs * groups, *weights[2:], *shape[2:]


def taps(kernel: Shape, stride: Ints, dilation: Ints) -> Ints:
    """Return how many taps, a stride apart, may reach one place of a transposed convolution."""
    return indexing.taps(shapes.concrete(kernel), stride, dilation)


def tap_steps(dilation: Ints) -> Ints:
    """Return the steps that bring the taps of (batch, outputs, *kernel, *spatial) to their places in the window."""
    return (1, 1, *dilation, *on_all(dilation, 1))


def tap_padding(shape: Shape, stride: Ints, padding: Ints, extra: Ints, dilation: Ints, side: int) -> Ints:
    """Return the padding, before (side 0) or after (1), so that all taps that `tap_view` reads are there."""
    rank = len(stride)
    kernel, spatial = (shapes.concrete(shape[start : start + rank]) for start in (2, 2 + rank))
    counts = indexing.taps(kernel, stride, dilation)
    if side == 0:
        return (0, 0, *on_all(stride, 0), *(count - 1 for count in counts))
    out = windows.transposed_extents(spatial, kernel, stride, padding, extra, dilation)
    axes = list(zip(counts, stride, kernel, dilation, strict=True))
    places = zip(out, padding, stride, spatial, strict=True)
    return (0, 0, *(t * s - k * d for t, s, k, d in axes), *(max(0, (o + p - 1) // s + 1 - n) for o, p, s, n in places))


def tap_view(shape: Shape, stride: Ints, padding: Ints, extra: Ints, dilation: Ints) -> IndexMap:
    """Return the map of padded (batch, outputs, *kernel, *spatial) to (*taps, batch, outputs, *out)."""
    rank = len(stride)
    kernel, spatial = (shapes.concrete(shape[start : start + rank]) for start in (2, 2 + rank))
    low, high = (tap_padding(shape, stride, padding, extra, dilation, side) for side in (0, 1))
    source = padded(windows.stuffed(shape, tap_steps(dilation)), low, high)
    out = windows.transposed_extents(spatial, kernel, stride, padding, extra, dilation)
    return indexing.overlap_map(source, indexing.taps(kernel, stride, dilation), stride, padding, out)


def are_whole_phases(shape: Shape, kernel: Shape, stride: Ints, padding: Ints, extra: Ints, dilation: Ints) -> bool:
    """Whether a transposed convolution of (batch, inputs, *spatial), not dilated, has as many places in each phase."""
    out = windows.transposed_extents(shape[2:], kernel, stride, padding, extra, dilation)
    return max(dilation) == 1 and all(o % s == 0 for o, s in zip(out, stride, strict=True))


def phase_low(kernel: Shape, stride: Ints, padding: Ints) -> Ints:
    """Return how many values before the first the first places read, on each axis."""
    counts = taps(kernel, stride, on_all(stride, 1))
    return tuple(max(0, c - 1 - p // s) for c, s, p in zip(counts, stride, padding, strict=True))


def phase_high(spatial: Shape, kernel: Shape, stride: Ints, padding: Ints, extra: Ints) -> Ints:
    """Return how many values behind the last the last places read, on each axis."""
    out = windows.transposed_extents(spatial, kernel, stride, padding, extra, on_all(stride, 1))
    axes = zip(out, shapes.concrete(spatial), stride, padding, strict=True)
    return tuple(max(0, (o + p - 1) // s - n + 1) for o, n, s, p in axes)


def missing_taps(kernel: Shape, stride: Ints) -> Ints:
    """Return how many taps there are not, for each phase to have as many: on the axes (inputs, outputs, *kernel)."""
    counts = taps(kernel, stride, on_all(stride, 1))
    return 0, 0, *(c * s - k for c, s, k in zip(counts, stride, shapes.concrete(kernel), strict=True))


def phase_elements(kernel: Shape, stride: Ints, inputs: int) -> int:
    """Return how many products each place of a transposed convolution sums."""
    return prod(taps(kernel, stride, on_all(stride, 1))) * inputs


def phase_view(shape: Shape, kernel: Shape, stride: Ints, padding: Ints, out: Shape) -> IndexMap:
    """Return the map of padded (batch, *spatial, inputs) to (batch, *(places, phases), 1, elements).

    Place o of an axis is phase f = o % stride of its number i = o // stride. Its taps, (f + padding) % stride and so
    on, a stride apart, read as many values, the last at i + (f + padding) // stride: rows begin with the first.
    """
    counts, (inputs,) = taps(kernel, stride, on_all(stride, 1)), shapes.concrete(shape[-1:])
    elements = phase_elements(kernel, stride, inputs)
    batch, *places, _, _ = indexing.axes_of((*out[:-1], elements))
    *steps, channel = indexing.reshape_map((*counts, inputs), (elements,)).sources
    low = phase_low(kernel, stride, padding)
    axes = zip(places[::2], places[1::2], steps, counts, stride, padding, low, strict=True)
    at = (i + (f + p) // s + j + (before - c + 1) for i, f, j, c, s, p, before in axes)
    return IndexMap(shape, (*out[:-1], elements), (batch, *at, channel))


def phase_weights(shape: Shape, kernel: Shape, stride: Ints, padding: Ints) -> IndexMap:
    """Return the map of padded weights (inputs, outputs, *kernel) to (1, *(1, phases), elements, outputs)."""
    counts, (inputs, outputs) = taps(kernel, stride, on_all(stride, 1)), shapes.concrete(shape[:2])
    elements = phase_elements(kernel, stride, inputs)
    result = (1, *(extent for s in stride for extent in (1, s)), elements, outputs)
    _, *phases, _, output = indexing.axes_of(result)
    *steps, channel = (
        at.substitute({-1: var(-2, elements)})
        for at in indexing.reshape_map((*counts, inputs), (elements,)).sources
    )
    axes = zip(phases[1::2], steps, counts, stride, padding, strict=True)
    at = ((f + p) % s + j * -s + (c - 1) * s for f, j, c, s, p in axes)
    return IndexMap(shape, result, (channel, output, *at))


def phase_shape(shape: Shape, weights: Shape, stride: Ints, padding: Ints, extra: Ints) -> Shape:
    """Return (batch, *(places, phases), 1, outputs) of a transposed convolution of (batch, inputs, *spatial)."""
    batch, *out, outputs = shapes.concrete(overlapped_last(shape, weights, stride, padding, extra))
    return batch, *(extent for o, s in zip(out, stride, strict=True) for extent in (o // s, s)), 1, outputs


def reads_inside(spatial: Shape, kernel: Shape, stride: Ints, padding: Ints, extra: Ints) -> bool:
    """Whether as many values reach all places of a transposed convolution, not dilated: no border, no tap missing."""
    beyond = (*phase_low(kernel, stride, padding), *phase_high(spatial, kernel, stride, padding, extra))
    return not any((*beyond, *missing_taps(kernel, stride)))


def taps_last(weights: Shape) -> Ints:
    """Return the permutation of weights (inputs, outputs, *kernel) to (inputs, *kernel, outputs)."""
    return (0, *range(2, len(weights)), 1)


def reached_last(shape: Shape, weights: Shape) -> Shape:
    """Return (batch, *spatial, *kernel, outputs): what each value of (batch, inputs, *spatial) gives to its window."""
    return shape[0], *shape[2:], *weights[2:], weights[1]


def overlapped_last(shape: Shape, weights: Shape, stride: Ints, padding: Ints, extra: Ints) -> Shape:
    """Return (batch, *out, outputs) of a transposed convolution, not dilated, of (batch, inputs, *spatial)."""
    out = windows.transposed_extents(shape[2:], weights[2:], stride, padding, extra, on_all(stride, 1))
    return shape[0], *out, weights[1]


def tap_padding_last(shape: Shape, stride: Ints, padding: Ints, extra: Ints, side: int) -> Ints:
    """Return `tap_padding` of (batch, *spatial, *kernel, outputs)."""
    found = tap_padding(_taps_first(shape), stride, padding, extra, on_all(stride, 1), side)
    rank = len(stride)
    return (0, *found[2 + rank :], *found[2 : 2 + rank], 0)


def tap_view_last(shape: Shape, stride: Ints, padding: Ints, extra: Ints) -> IndexMap:
    """Return the map of (batch, *spatial, *kernel, outputs), once it is padded, to (*taps, batch, *out, outputs)."""
    rank = len(stride)
    first = tap_view(_taps_first(shape), stride, padding, extra, on_all(stride, 1))
    axes = len(first.result)
    order = (*range(rank + 1), *range(rank + 2, axes), rank + 1)  # of the result's axes: outputs last
    result = tuple(first.result[axis] for axis in order)
    at: dict[int | str, indexing.Affine] = {
        axis - axes: var(place - axes, result[place]) for place, axis in enumerate(order)
    }
    batch, output, *others = (source.substitute(at) for source in first.sources)
    source = first.source
    return IndexMap(
        (source[0], *source[2 + rank :], *source[2 : 2 + rank], source[1]),
        result,
        (batch, *others[rank:], *others[:rank], output),
    )


def _taps_first(shape: Shape) -> Shape:
    """(batch, *spatial, *kernel, outputs) -> (batch, outputs, *kernel, *spatial)."""
    rank = (len(shape) - 2) // 2
    return shape[0], shape[-1], *shape[1 + rank : -1], *shape[1 : 1 + rank]


def joined_phases(shape: Shape) -> Shape:
    """(batch, *(places, phases), 1, outputs) -> (batch, *out, outputs)."""
    batch, *places, _, outputs = shapes.concrete(shape)
    return batch, *(i * f for i, f in zip(places[::2], places[1::2], strict=True)), outputs


class _Band(NamedTuple):
    """Neighbouring results along an axis, and the first and last place of their windows inside the image."""

    start: int
    stop: int
    first: int
    last: int


def margin_axis(shape: Shape, weights: Shape, stride: Ints, padding: Ints, dilation: Ints) -> int:
    """Return the first negative axis along which windows read the margin for more than a third, 0 if there is none."""
    return _margin(shape, weights, stride, padding, dilation)[0]


def margin_bands(shape: Shape, weights: Shape, stride: Ints, padding: Ints, dilation: Ints) -> int:
    """Return into how many bands results fall along that axis by which places of the windows are inside."""
    return len(_margin(shape, weights, stride, padding, dilation)[1])


def band_places(shape: Shape, weights: Shape, stride: Ints, padding: Ints, dilation: Ints, band: int) -> Ints:
    """Return the first place of the window that is inside for a band, and how many are."""
    _, _, first, last = _margin(shape, weights, stride, padding, dilation)[1][band]
    return first, last - first + 1


def band_reads(shape: Shape, weights: Shape, stride: Ints, padding: Ints, dilation: Ints, band: int) -> Ints:
    """Return where what a band reads of the image begins, and its extent."""
    axis, bands = _margin(shape, weights, stride, padding, dilation)
    start, stop, first, last = bands[band]
    extent = (stop - 1 - start) * stride[axis] + (last - first) * dilation[axis] + 1
    return start * stride[axis] + first * dilation[axis] - padding[axis], extent


def _margin(
    shape: Shape, weights: Shape, stride: Ints, padding: Ints, dilation: Ints
) -> tuple[int, tuple[_Band, ...]]:
    image, kernel = shapes.concrete(shape), shapes.concrete(weights)
    for axis in range(-len(stride), 0):
        bands = _bands(image[axis], kernel[axis], stride[axis], padding[axis], dilation[axis])
        read = sum((band.stop - band.start) * (band.last - band.first + 1) for band in bands)
        if bands and read < _LEAST_INSIDE * bands[-1].stop * kernel[axis]:
            return axis, bands
    return 0, ()


@lru_cache(maxsize=4096)
def _bands(extent: int, kernel: int, stride: int, padding: int, dilation: int) -> tuple[_Band, ...]:
    """Return the bands along an axis; none if there are many, or windows that read nothing but the margin."""
    (count,) = elements.window_extents((extent,), (kernel,), (stride,), (padding,), (dilation,))
    offsets = [place * dilation - padding for place in range(kernel)]
    low = [max(0, -(offset // stride)) for offset in offsets]
    high = [min(count, (extent - 1 - offset) // stride + 1) for offset in offsets]
    edges = sorted({0, count, *(edge for edge in (*low, *high) if 0 < edge < count)})
    if len(edges) > _MOST_BANDS + 1:
        return ()
    bands: list[_Band] = []
    for start, stop in pairwise(edges):
        inside = [place for place in range(kernel) if low[place] <= start and stop <= high[place]]
        if not inside:
            return ()
        bands.append(_Band(start, stop, inside[0], inside[-1]))
    return tuple(bands)


_OWN = (
    on_axis, on_all, added, without, padded_axes, padded, grouped, by_pixels, by_channel, for_pixels, size_of_group,
    group_map, values_of_group, elements.fold_identity, are_slices, pool_low, pool_high, pool_view, inner_view,
    counts_all, bordered, clipped, windows.stuffed, interleaved, stuffing, weights_by_group, inputs_by_group, reached,
    taps, tap_steps, tap_padding, tap_view, indexing.pad_map, indexing.windows_map, indexing.resample_map,
    pool_view_last, pooled_last, convolved_last, kernel_first, moved, moved_axis, indexing.patches_map,
    group_view_last, by_lines, part_last, parts_map, are_whole_phases, phase_low, phase_high, missing_taps,
    phase_elements, phase_view, phase_weights, phase_shape, joined_phases, reads_inside, taps_last, reached_last,
    overlapped_last, tap_padding_last, tap_view_last, margin_axis, margin_bands, band_places, band_reads,
)  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {function.__name__: function for function in _OWN}
"""What rules may call."""
