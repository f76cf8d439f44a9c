"""Register tiles: the inner loops of contractions and convolutions, as vector LLVM IR.

A tile is `rows` by `vectors` accumulators that stay in registers while one loop runs over the depth. The left operand
is read in place, row by row, the right one from panels made by `packing.fill_panels`. The caller goes on with the
accumulators and stores them; nothing here knows an epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frittata.kernels import simd, vmath
from frittata.kernels.flow import for_range
from frittata.kernels.memory import advance, load, load_splat, prefetch
from frittata.kernels.multiply_adds import MultiplyAdd, plain
from frittata.kernels.simd import I64, Builder, Index, Lane, Value, as_index

Accumulators = list[list[Value]]
"""One vector per row and column vector: `accumulators[row][vector]`."""

CACHE_LINE_BYTES = 64


def zero_accumulators(rows: int, vectors: int, lane: Lane) -> Accumulators:
    """Return accumulators that hold zeros."""
    return [[simd.constant(lane, 0)] * vectors for _ in range(rows)]


def emit_panels_tile(
    builder: Builder,
    rows: int,
    vectors: int,
    lanes: int,
    dtype: str,
    depth: Index,
    a_pointers: Sequence[Value],
    b_pointers: Sequence[Value],
    accumulators: Accumulators | None = None,
    *,
    unroll: int = 4,
    a_stride: int = 1,
    b_stride: int | None = None,
    prefetch_pointer: Value | None = None,
    prefetch_lines: int = 1,
    multiply: MultiplyAdd | None = None,
) -> Accumulators:
    """Add `sum over k of a[row, k] * b[k, column]` to each accumulator, one fma a term, in the order of k.

    Shapes: a_pointers (rows), each to elements `a_stride` apart; each of b_pointers a panel (depth, vectors * lanes),
    whose rows are `b_stride` elements apart, unless they follow each other: several panels, side by side, are as many
    streams of b where rows are few; accumulators (rows, panels * vectors), panel by panel.
    With an instruction `multiply` for narrow values `dtype` is that of the sums, and all sizes count lanes.
    What `prefetch_pointer` points to, usually a part of the next panel, is fetched into the second-level cache,
    `prefetch_lines` lines every `unroll` steps: see `fetched_lines`.
    """
    lane, multiply = Lane(dtype, lanes), multiply or plain(dtype)
    stored = Lane(multiply.panel, lanes)
    columns = [(panel, lanes * vector) for panel in b_pointers for vector in range(vectors)]
    start = accumulators or zero_accumulators(rows, len(columns), lane)

    def step(k: Value, values: list[Value]) -> list[Value]:
        offset = builder.mul(k, I64(vectors * lanes if b_stride is None else b_stride))
        loaded = (load(builder, stored, panel, builder.add(offset, I64(column))) for panel, column in columns)
        b = [vmath.cast(builder, value, dtype) for value in loaded]
        position = builder.mul(k, I64(a_stride))
        results: list[Value] = []
        for row in range(rows):
            a = load_splat(builder, lane, a_pointers[row], position)
            sums = values[row * len(b) : (row + 1) * len(b)]
            results += [multiply.emit(builder, a, right, total) for right, total in zip(b, sums, strict=True)]
        return results

    def fetch(k: Value) -> None:
        if prefetch_pointer is not None:
            line = CACHE_LINE_BYTES // lane.itemsize
            start = advance(builder, prefetch_pointer, builder.mul(k, I64(max(1, prefetch_lines * line // unroll))))
            for number in range(prefetch_lines):
                prefetch(builder, start, number * line)

    flat = _unrolled(builder, depth, unroll, [value for row in start for value in row], step, fetch)
    return [flat[row * len(columns) : (row + 1) * len(columns)] for row in range(rows)]


def fetched_lines(turn_bytes: int, tiles: int) -> tuple[int, int]:
    """Return how many lines a turn each of some tiles fetches of what comes next, and how many of them fetch it all.

    `turn_bytes`: what a turn of the loop over the depth reads of a panel.
    """
    lines = max(1, turn_bytes // CACHE_LINE_BYTES)
    each = -(-lines // min(lines, tiles))
    return each, -(-lines // each)


def _unrolled(
    builder: Builder,
    count: Index,
    unroll: int,
    carried: list[Value],
    step: Callable[[Value, list[Value]], list[Value]],
    before: Callable[[Value], None],
) -> list[Value]:
    """Emit `for k in range(count): carried = step(k, carried)`, in turns of `unroll` steps that start with `before`."""

    def turn(k: Value, values: list[Value]) -> list[Value]:
        before(k)
        for u in range(unroll):
            values = step(builder.add(k, I64(u)), values)
        return values

    if isinstance(count, int):
        main = count - count % unroll
        carried = for_range(builder, 0, main, unroll, carried, turn)
        for k in range(main, count):
            carried = step(I64(k), carried)
        return carried
    main = builder.sub(count, builder.srem(count, I64(unroll)))
    carried = for_range(builder, 0, main, unroll, carried, turn)
    return for_range(builder, main, count, 1, carried, step)


def emit_window_tile(
    builder: Builder,
    rows: int,
    vectors: int,
    lanes: int,
    dtype: str,
    segments: Sequence[tuple[int, int]],
    segment_length: int,
    a_pointers: Sequence[Value],
    b_pointers: Sequence[Value],
    accumulators: Accumulators | None = None,
    *,
    unroll: int | None = None,
    a_stride: int = 1,
    prefetch_pointer: Value | None = None,
    prefetch_lines: int = 1,
    multiply: MultiplyAdd | None = None,
) -> Accumulators:
    """Like `emit_panels_tile` where a row is not one run: an implicit matrix product with windows of images as rows.

    A window is a nest of `segments`, (count, stride in elements) outermost first, of `segment_length` elements each.
    An input (height, width, channels) without dilation has [(kernel height, width * channels)] of kernel width *
    channels; dilated [(kernel height, dilation * width * channels), (kernel width, dilation * channels)] of channels.

    Shapes: a_pointers (rows), each to the first element of a window; each of b_pointers a panel (segments *
    segment_length, vectors * lanes) in the order of the nest. The lines at `prefetch_pointer` are fetched in that order
    too.
    """
    turns = unroll or unroll_for(segment_length)
    lane = Lane(dtype, lanes)
    panel = segment_length * vectors * lanes
    fetched = segment_length * max(1, prefetch_lines * CACHE_LINE_BYTES // lane.itemsize // turns)

    def nest(level: int, first: Index, pointers: Sequence[Value], values: list[Value]) -> list[Value]:
        if level == len(segments):
            at = builder.mul(as_index(first), I64(panel))
            ahead = prefetch_pointer
            if ahead is not None:
                ahead = advance(builder, ahead, builder.mul(as_index(first), I64(fetched)))
            tile = emit_panels_tile(
                builder, rows, vectors, lanes, dtype, segment_length, pointers,
                [advance(builder, pointer, at) for pointer in b_pointers], _grid(values, rows),
                unroll=turns, a_stride=a_stride, prefetch_pointer=ahead, prefetch_lines=prefetch_lines,
                multiply=multiply,
            )  # fmt: skip
            return [value for row in tile for value in row]
        count, stride = segments[level]

        def body(i: Value, carried: list[Value]) -> list[Value]:
            moved = [advance(builder, pointer, builder.mul(i, I64(stride))) for pointer in pointers]
            number = builder.add(builder.mul(as_index(first), I64(count)), i)
            return nest(level + 1, number, moved, carried)

        return for_range(builder, 0, count, 1, values, body)

    start = accumulators or zero_accumulators(rows, len(b_pointers) * vectors, lane)
    return _grid(nest(0, 0, a_pointers, [value for row in start for value in row]), rows)


def _grid(values: list[Value], rows: int) -> Accumulators:
    columns = len(values) // rows
    return [values[row * columns : (row + 1) * columns] for row in range(rows)]


def unroll_for(depth: int) -> int:
    """Return how many steps of the loop over `depth` to unroll: preferably a divisor, so that nothing is left over."""
    return next((u for u in (4, 8, 7, 6, 5, 3, 2) if depth % u == 0), 4)
