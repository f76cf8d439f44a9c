"""Packing windows of images: for a vector of consecutive output pixels, what each window offset reads.

Pixels run on from one line of the image to the next, so a vector falls into segments, one for each line it touches.
A segment's lanes read consecutive elements, or every s-th with stride s; lanes outside of the segment or of the image
are masked, and the segments are joined. Masks and addresses depend on the window offset alone: the innermost loop runs
over the channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from frittata.egraph import dtypes, shapes
from frittata.egraph.indexing import Affine, var
from frittata.egraph.ops import registry
from frittata.egraph.ops.elements import window_extents
from frittata.egraph.terms import Term
from frittata.kernels import memory, simd
from frittata.kernels.contractions import Contraction, loads_of, split_index
from frittata.kernels.element_emitter import ElementEmitter
from frittata.kernels.flow import repeat
from frittata.kernels.gemm_emitters import Code, Emit
from frittata.kernels.index_values import Along
from frittata.kernels.intrinsics import operand_pointers
from frittata.kernels.simd import I64, Builder, Index, Lane, Value

_MOST_STRIDE = 2
_SET_BYTES = 4096
"""So far apart lines share a set of the first-level cache."""
_SHARED_SET_UNITS = 15.0
_BLOCK_CHANNELS = 8
"""Channels packed together: few enough that their pages stay known and their lines in the first-level cache, of which
those of images that are a power of two large share a set."""


@dataclass(frozen=True)
class Plane:
    """One spatial axis: extents of image, output and kernel, and how windows move."""

    source: int
    result: int
    kernel: int
    stride: int
    padding: int
    dilation: int


@dataclass(frozen=True)
class Windows:
    """Windows of images of two axes; an image of one axis has a single line.

    `element` is point-wise in one load of the image, at `offset` in terms of g, c, y and x, and in what is the same at
    every pixel.
    """

    element: Term
    image: Term
    leaf: Term
    offset: Affine
    index: Mapping[int, Affine]
    channels: int
    lines: Plane
    pixels: Plane

    def segments(self, lanes: int) -> int:
        """Return how many lines a vector may touch."""
        width = self.pixels.result
        if width % lanes == 0:
            return 1
        return min((lanes - 2) // width + 2, self.lines.result)

    def units(self, lanes: int, panels: int) -> float:
        """Return what packing an element takes, in additions, where so many panels of a tile are packed one by one.

        Source: measured on Zen 3, 3 with one segment, 4.5 with two; with stride two 6 and 11. On Zen 5 fifteen more,
        panel by panel, where channels share sets of the caches: 280 us for 64 of 64 x 64, 96 for 64 of 60 x 60.
        """
        each = 1.0 if self.pixels.stride == 1 else 3.2
        apart = self.offset.factor_of("c") or 0
        shared = panels > 1 and apart * dtypes.itemsize(self.leaf.dtype) % _SET_BYTES == 0
        return 1.5 * (1 + self.segments(lanes) * each) + (_SHARED_SET_UNITS if shared else 0.0)


def describe(work: Contraction) -> Windows | None:
    """Return the windows of a convolution if they can be packed line by line, else None."""
    source, _, kernel, stride, padding, dilation, groups = work.product.attrs
    rank = len(kernel)
    if rank > 2:
        return None
    spatial = window_extents(source[1:], kernel, stride, padding, dilation)
    planes = [Plane(*p) for p in zip(source[1:], spatial, kernel, stride, padding, dilation, strict=True)]
    lines, pixels = planes if rank == 2 else (Plane(1, 1, 1, 1, 0, 1), planes[0])
    element = work.product.args[0]
    inputs = source[0] // groups
    shape = shapes.concrete(work.bodies[0].shape)
    batch = {axis: shape[axis] for axis in range(-len(shape), -rank - 1)}
    index = split_index("g", {**batch, -rank - 1: groups})
    index[-rank - 1] = index[-rank - 1] * inputs + var("c", inputs)
    index[-1] = var("x", pixels.source)
    if rank == 2:
        index[-2] = var("y", lines.source)
    found = _image_load(element, index)
    if found is None or pixels.stride > _MOST_STRIDE:
        return None
    return Windows(element, *found, index, inputs, lines, pixels)


def _image_load(element: Term, index: Mapping[int, Affine]) -> tuple[Term, Term, Affine] | None:
    """Return the one load that moves with the pixel, its buffer and offset."""
    moving: set[tuple[Term, Affine]] = set()
    for leaf, offset in loads_of(element, index=index):
        if offset is None or offset.factor_of("x") not in (0, 1) or offset.factor_of("y") is None:
            return None
        if offset.factor_of("x") or offset.factor_of("y"):
            moving.add((leaf, offset))
    if len(moving) != 1:
        return None
    leaf, offset = moving.pop()
    others = [o for other, o in loads_of(element, index=index) if other is leaf and o != offset]
    if others or offset.factor_of("x") != 1 or offset.factor_of("c") is None:
        return None
    return registry.element("load", leaf), leaf, offset


@dataclass(frozen=True)
class _Track:
    """The lanes of a vector on one line of the output: the line, where lane 0 reads, and which lanes are inside."""

    line: Value
    x: Value
    mask: Value


@dataclass(frozen=True)
class _Segment:
    """Where the lanes of a track read for channel 0 and one line of the kernel, and which of them lie in the image."""

    pointer: Value
    mask: Value


def pack_windows(work: Contraction) -> Callable[[Code], Emit] | None:
    """Return what makes the emitter of `pack(table, g, j, panel)` from a kernel's code; None for the general one."""
    windows = describe(work)
    if windows is None:
        return None

    def bind(code: Code) -> Emit:
        def emit(builder: Builder, table: Value, g: Value, j: Value, panel: Value) -> None:
            target = memory.pointer_from_address(builder, code.lane, panel)
            _Packing(builder, code, windows, operand_pointers(builder, table, code.operands), g, j, target).emit()

        return emit

    return bind


@dataclass
class _Packing:
    """Emits the packing of one panel."""

    builder: Builder
    code: Code
    windows: Windows
    pointers: Mapping[Term, Value]
    g: Value
    j: Value
    target: Value

    def emit(self) -> None:
        """Loop over blocks of channels and over window offsets."""
        builder, windows = self.builder, self.windows
        starts = [self._start(vector) for vector in range(self.code.tile.vectors)]
        segments = windows.segments(self.code.lanes)
        block = min(windows.channels, _BLOCK_CHANNELS)

        def channels(first: Value) -> None:
            last: Index = builder.add(first, I64(block))
            if windows.channels % block:
                last = simd.minimum(builder, last, I64(windows.channels))

            def column(dx: Value) -> None:
                tracks = [[self._track(start, n, dx) for n in range(segments)] for start in starts]

                def line(dy: Value) -> None:
                    vectors = [[self._segment(track, dy) for track in part] for part in tracks]
                    position = builder.add(builder.mul(dy, I64(windows.pixels.kernel)), dx)
                    self._channels(first, last, vectors, builder.mul(position, I64(self.code.width)))

                repeat(builder, 0, windows.lines.kernel, 1, line)

            repeat(builder, 0, windows.pixels.kernel, 1, column)

        repeat(builder, 0, windows.channels, block, channels)

    def _start(self, vector: int) -> tuple[Value, Value]:
        """Return line and column of a vector's first pixel."""
        first = self.builder.add(self.j, I64(vector * self.code.lanes))
        width = I64(self.windows.pixels.result)
        return self.builder.udiv(first, width), self.builder.urem(first, width)

    def _track(self, start: tuple[Value, Value], number: int, dx: Value) -> _Track:
        builder, lines, pixels, lanes = self.builder, self.windows.lines, self.windows.pixels, self.code.lanes
        line = builder.add(start[0], I64(number))
        column = builder.sub(start[1], I64(number * pixels.result))
        x = self._place(pixels, column, dx)
        numbers = simd.lane_numbers(lanes)
        columns = builder.add(simd.splat(builder, column, lanes), numbers)
        steps = builder.mul(numbers, simd.constant_like(numbers, pixels.stride))
        places = builder.add(simd.splat(builder, x, lanes), steps)
        mask = builder.and_(_within(builder, columns, pixels.result), _within(builder, places, pixels.source))
        inside = simd.splat(builder, _within(builder, line, lines.result), lanes)
        return _Track(line, x, builder.and_(mask, inside))

    def _segment(self, track: _Track, dy: Value) -> _Segment:
        builder, windows = self.builder, self.windows
        y = self._place(windows.lines, track.line, dy)
        inside = simd.splat(builder, _within(builder, y, windows.lines.source), self.code.lanes)
        variables: dict[int | str, Value] = {"g": self.g, "c": I64(0), "y": y, "x": track.x}
        emitter = ElementEmitter(builder, self.pointers, variables)
        offset = emitter.values.first(windows.offset)
        pointer = memory.advance(builder, self.pointers[windows.leaf], offset)
        return _Segment(pointer, builder.and_(track.mask, inside))

    def _place(self, plane: Plane, at: Value, offset: Value) -> Value:
        builder = self.builder
        moved = builder.mul(offset, I64(plane.dilation))
        return builder.sub(builder.add(builder.mul(at, I64(plane.stride)), moved), I64(plane.padding))

    def _channels(self, first: Value, last: Value, vectors: list[list[_Segment]], position: Value) -> None:
        """Pack one window offset of a block of channels."""
        builder, windows, code = self.builder, self.windows, self.code
        area = windows.lines.kernel * windows.pixels.kernel
        stride = windows.offset.factor_of("c")

        def channel(c: Value) -> None:
            moved = builder.mul(c, I64(stride))
            row = builder.add(builder.mul(c, I64(area * code.width)), position)
            for number, segments in enumerate(vectors):
                value = self._value(c, moved, segments)
                memory.store(builder, value, self.target, builder.add(row, I64(number * code.lanes)))

        repeat(builder, first, last, 1, channel)

    def _value(self, c: Value, moved: Value, segments: list[_Segment]) -> Value:
        builder, windows, lanes = self.builder, self.windows, self.code.lanes
        lane = Lane(windows.leaf.dtype, lanes)
        value = self._segment_value(lane, moved, segments[0])
        for segment in segments[1:]:
            value = builder.select(segment.mask, self._segment_value(lane, moved, segment), value)
        if windows.element is windows.image:
            return value
        along = Along("x", lanes)
        variables: dict[int | str, Value] = {"g": self.g, "c": c, "y": I64(0), "x": I64(0)}
        emitter = ElementEmitter(builder, self.pointers, variables, along, {windows.image: value})
        mask = segments[0].mask
        for segment in segments[1:]:
            mask = builder.or_(mask, segment.mask)
        value = emitter.emit(windows.element, windows.index)
        return builder.select(mask, value, simd.constant_like(value, 0))

    def _segment_value(self, lane: Lane, moved: Value, segment: _Segment) -> Value:
        builder, stride = self.builder, self.windows.pixels.stride
        pointer = memory.advance(builder, segment.pointer, moved)
        if stride == 1:
            return memory.load_where(builder, lane, pointer, 0, segment.mask)
        parts: list[Value] = []
        for half in range(2):
            mask = _every_other(builder, segment.mask, half * lane.lanes // 2, lane.lanes)
            parts.append(memory.load_where(builder, lane, pointer, half * lane.lanes, mask))
        return builder.shuffle_vector(*parts, simd.lane_picks(range(0, 2 * lane.lanes, 2)))


def _within(builder: Builder, value: Value, extent: int) -> Value:
    """Return whether 0 <= value < extent, lane by lane."""
    return builder.icmp_unsigned("<", value, simd.constant_like(value, extent))


def _every_other(builder: Builder, mask: Value, first: int, lanes: int) -> Value:
    """Return the mask whose even lanes are those of `mask` from `first` on; odd ones do not hold."""
    off = simd.constant_like(mask, 0)
    numbers = [first + i // 2 if i % 2 == 0 else lanes for i in range(lanes)]
    return builder.shuffle_vector(mask, off, simd.lane_picks(numbers))
