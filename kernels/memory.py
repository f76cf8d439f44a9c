"""Loading and storing vector values: consecutive, masked, strided, gathered.

A pointer points to `Lane.memory_scalar`; what is stored is narrowed to that. Offsets and strides are in elements;
addresses are aligned to one element.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from frittata.kernels import narrow
from frittata.kernels.processor import processor
from frittata.kernels.simd import (
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    Builder,
    Index,
    Lane,
    Value,
    as_index,
    call_symbol,
    constant,
    extract,
    from_scalars,
    lane_numbers,
    lane_of,
    lane_picks,
    overload_name,
    part,
    permute,
    splat,
    transpose,
)

MOST_COLUMNS = 48
"""How long rows may be that are loaded as columns: beyond, what lies so far apart is loaded one by one.

Kernels with all elements of a row side by side take longer to compile the longer it is: a softmax of 48 about a second.
"""


def advance(builder: Builder, pointer: Value, offset: Index) -> Value:
    """Return `pointer + offset` elements."""
    return pointer if isinstance(offset, int) and offset == 0 else builder.gep(pointer, [as_index(offset)])


def _to_register(builder: Builder, value: Value, lane: Lane) -> Value:
    if lane.dtype == "bool":
        return builder.icmp_unsigned("!=", value, ir.Constant(value.type, None))
    return narrow.widened(builder, value, lane)


def _to_memory(builder: Builder, value: Value, pointer: Value) -> Value:
    """Return what is stored of a value at a pointer."""
    lane = lane_of(value)
    if pointer.type.pointee != lane.memory_scalar:
        return narrow.narrowed(builder, value, pointer.type.pointee)
    return builder.zext(value, lane.memory_type) if lane.dtype == "bool" else value


def load(builder: Builder, lane: Lane, pointer: Value, offset: Index = 0) -> Value:
    """Load consecutive elements."""
    address = builder.bitcast(advance(builder, pointer, offset), lane.memory_type.as_pointer())
    return _to_register(builder, builder.load(address, align=lane.itemsize), lane)


def load_splat(builder: Builder, lane: Lane, pointer: Value, offset: Index = 0) -> Value:
    """Load one element into every lane."""
    return splat(builder, load(builder, Lane(lane.dtype), pointer, offset), lane.lanes)


def store(builder: Builder, value: Value, pointer: Value, offset: Index = 0) -> None:
    """Store the lanes to consecutive elements."""
    stored = _to_memory(builder, value, pointer)
    address = builder.bitcast(advance(builder, pointer, offset), stored.type.as_pointer())
    builder.store(stored, address, align=_size(pointer))


def _size(pointer: Value) -> int:
    """Return the bytes of what a pointer points to."""
    kind = pointer.type.pointee
    return {F16: 2, F32: 4, F64: 8}.get(kind) or kind.width // 8


def pointer_from_address(builder: Builder, lane: Lane, address: Value) -> Value:
    """Return an int64 address as a pointer to elements."""
    return builder.inttoptr(address, lane.memory_scalar.as_pointer())


def on_stack(builder: Builder, lane: Lane, count: int) -> Value:
    """Return a pointer to elements for so many vectors, there for as long as the function runs."""
    with builder.goto_entry_block():
        held = builder.alloca(lane.memory_type, count)
        held.align = processor().width
        return builder.bitcast(held, lane.memory_scalar.as_pointer())


def valid_mask(builder: Builder, lane: Lane, count: Index) -> Value:
    """Return the mask of the first `count` lanes."""
    if isinstance(count, int):
        flags = [int(i < count) for i in range(lane.lanes)]
        return ir.Constant(lane.of("bool").type, flags if lane.lanes > 1 else flags[0])
    dtype = "i32" if lane.register_bytes == 4 else "i64"
    limit = builder.trunc(count, I32) if dtype == "i32" else count
    return builder.icmp_signed("<", lane_numbers(lane.lanes, dtype), splat(builder, limit, lane.lanes))


def load_masked(builder: Builder, lane: Lane, pointer: Value, offset: Index, count: Index | None) -> Value:
    """Load consecutive elements into the first `count >= 1` lanes (None: all); the rest are zero, and not read."""
    if count is None or lane.lanes == 1 or count == lane.lanes:
        return load(builder, lane, pointer, offset)
    return load_where(builder, lane, pointer, offset, valid_mask(builder, lane, count))


def load_where(builder: Builder, lane: Lane, pointer: Value, offset: Index, mask: Value) -> Value:
    """Load consecutive elements into the lanes where `mask` holds; the rest are zero, their memory untouched."""
    address = advance(builder, pointer, offset)
    rest = _to_memory(builder, constant(lane, 0), pointer)
    arguments = [address, I32(lane.itemsize), mask, rest]
    symbol = f"llvm.masked.load.{overload_name(lane.memory_type)}.p0"
    return _to_register(builder, call_symbol(builder, symbol, lane.memory_type, arguments), lane)


def store_masked(builder: Builder, value: Value, pointer: Value, offset: Index, count: Index | None) -> None:
    """Store the first `count >= 1` lanes (None: all) to consecutive elements; memory of the rest is not touched."""
    lane = lane_of(value)
    if count is None or lane.lanes == 1 or count == lane.lanes:
        return store(builder, value, pointer, offset)
    if isinstance(count, int):
        return _store_parts(builder, value, pointer, as_index(offset), count)
    if pointer.type.pointee != lane.memory_scalar:
        return _store_by_halves(builder, value, pointer, as_index(offset), count)
    address = advance(builder, pointer, offset)
    arguments = [_to_memory(builder, value, pointer), address, I32(lane.itemsize), valid_mask(builder, lane, count)]
    call_symbol(builder, f"llvm.masked.store.{overload_name(lane.memory_type)}.p0", ir.VoidType(), arguments)
    return None


def _store_parts(builder: Builder, value: Value, pointer: Value, offset: Value, count: int) -> None:
    """Store the first lanes in parts that are powers of two: a masked store takes as long as a dozen plain ones."""
    start = 0
    while start < count:
        size = 1 << ((count - start).bit_length() - 1)
        store(builder, part(builder, value, start, size), pointer, builder.add(offset, I64(start)))
        start += size


def _store_by_halves(builder: Builder, value: Value, pointer: Value, offset: Value, count: Value) -> None:
    """Store the first lanes: half of them, if there are so many, a fourth of what is left, ...

    LLVM 22 writes 32 bits where a masked store of one lane, known when it compiles, has narrowed it.
    """
    lanes = lane_of(value).lanes
    with builder.if_else(builder.icmp_signed(">=", count, I64(lanes))) as (whole, some):
        with whole:
            store(builder, value, pointer, offset)
        with some:
            while lanes > 1:
                lanes //= 2
                low, high = (part(builder, value, start, lanes) for start in (0, lanes))
                taken = builder.icmp_unsigned("!=", builder.and_(count, I64(lanes)), I64(0))
                with builder.if_then(taken):
                    store(builder, low, pointer, offset)
                offset = builder.select(taken, builder.add(offset, I64(lanes)), offset)
                value = builder.select(taken, high, low)


def load_gather(builder: Builder, lane: Lane, pointer: Value, offsets: Value) -> Value:
    """Load lane i from `pointer + offsets[i]`; every offset must be in range."""
    element = Lane(lane.dtype)
    positions = (extract(builder, offsets, i) for i in range(lane.lanes))
    return from_scalars(builder, [load(builder, element, pointer, position) for position in positions])


def strided_offsets(builder: Builder, lanes: int, offset: Index, stride: Index, count: Index | None = None) -> Value:
    """Return `offset + i * stride` for lane i; lanes from `count` on repeat the last valid one."""
    numbers = lane_numbers(lanes)
    if count is not None:
        last = splat(builder, builder.sub(as_index(count), I64(1)), lanes)
        numbers = builder.select(builder.icmp_signed("<", numbers, last), numbers, last)
    steps = builder.mul(numbers, splat(builder, as_index(stride), lanes))
    return builder.add(splat(builder, as_index(offset), lanes), steps)


def load_strided(
    builder: Builder, lane: Lane, pointer: Value, offset: Index, stride: Index, count: Index | None = None
) -> Value:
    """Load lane i from `offset + i * stride`; lanes from `count` on repeat the last valid one."""
    if isinstance(stride, int) and stride == 0:
        return load_splat(builder, lane, pointer, offset)
    if isinstance(stride, int) and stride == -1 and count is None:
        first = load(builder, lane, pointer, _after(builder, offset, 1 - lane.lanes))
        return permute(builder, first, [*reversed(range(lane.lanes))])
    is_whole = isinstance(stride, int) and stride > 1 and count is None
    if is_whole and 1 < _every_steps(lane.lanes, stride) < 2 * lane.lanes:
        return _load_every(builder, lane, pointer, as_index(offset), stride)
    return load_gather(builder, lane, pointer, strided_offsets(builder, lane.lanes, offset, stride, count))


def store_scatter(builder: Builder, value: Value, pointer: Value, offsets: Value, count: Index | None = None) -> None:
    """Store lane i to `pointer + offsets[i]`, in order of lanes; with `count`, the first `count` lanes only."""
    for i in range(lane_of(value).lanes):
        element, position = extract(builder, value, i), extract(builder, offsets, i)
        if count is None or (isinstance(count, int) and i < count):
            store(builder, element, pointer, position)
        elif not isinstance(count, int):
            with builder.if_then(builder.icmp_signed("<", I64(i), count)):
                store(builder, element, pointer, position)


def store_columns(
    builder: Builder, values: Sequence[Value], pointer: Value, offsets: Sequence[Value], count: Index | None = None
) -> None:
    """Store lane i of all values, one after the other, from `pointer + offsets[i]` on; with `count`, the first lanes.

    The values are a power of two, at most as many as a vector has lanes.
    """
    turned, size = transpose(builder, values), len(values)
    for i, offset in enumerate(offsets):
        column = part(builder, turned[i % size], i - i % size, size)
        if count is None:
            store(builder, column, pointer, offset)
        else:
            with builder.if_then(builder.icmp_signed("<", I64(i), as_index(count))):
                store(builder, column, pointer, offset)


def load_columns(builder: Builder, lane: Lane, pointer: Value, offset: Index, count: int) -> list[Value]:
    """Load as many rows of `count` as there are lanes, one after the other, as columns: lane i is of row i.

    0 1 2 3 4 5 6 7 8 9 10 11, rows of three, four lanes -> [0 3 6 9], [1 4 7 10], [2 5 8 11]
    """
    lanes = lane.lanes
    squares = _squares(lanes, count)
    if not squares:
        vectors = [load(builder, lane, pointer, _after(builder, offset, v * lanes)) for v in range(count)]
        every = ([divmod(i * count + r, lanes) for i in range(lanes)] for r in range(count))
        return [_picked(builder, vectors, places) for places in every]
    columns: list[Value] = []
    for start, size in squares:
        rows = [
            _load_row(builder, Lane(lane.dtype, size), pointer, offset, i, start, count, lanes) for i in range(lanes)
        ]
        joined = [_joined(builder, rows[i::size]) for i in range(size)]
        columns[start:] = transpose(builder, joined)
    return columns[:count]


def store_rows(builder: Builder, columns: Sequence[Value], pointer: Value, offset: Index) -> None:
    """Store columns as rows, one after the other: the reverse of `load_columns`."""
    lanes, count = lane_of(columns[0]).lanes, len(columns)
    squares = _squares(lanes, count)
    for v in range(0 if squares else count):
        places = [((v * lanes + j) % count, (v * lanes + j) // count) for j in range(lanes)]
        store(builder, _picked(builder, columns, places), pointer, _after(builder, offset, v * lanes))
    for start, size in squares:
        square = list(columns[start : start + size])
        turned = transpose(builder, square + square[:1] * (size - len(square)))
        for i in range(lanes):
            row, at = part(builder, turned[i % size], i - i % size, size), i * count + start
            # what is stored beyond a row is stored again with the next one
            width = size if at + size <= lanes * count else count
            store_masked(builder, row, pointer, _after(builder, offset, at), width)


def column_steps(lanes: int, count: int, used: int) -> float:
    """Return how many loads and shuffles a vector takes when `used` columns of rows of `count` are loaded."""
    picked = min(count, used * lanes) + used * (min(count, lanes) - 1) * _pick_steps()
    return min(picked, _turned_steps(_turned_squares(lanes, count))) / used


_WIDE_BYTES = 64
_NARROW_PICKS = 2.5
"""How many instructions pick lanes of two vectors where none does so at once."""


def _squares(lanes: int, count: int) -> list[tuple[int, int]]:
    """Return the squares that columns are turned in: (first column, size); none if they are picked lane by lane."""
    squares = _turned_squares(lanes, count)
    return squares if _turned_steps(squares) < _picked_steps(count) else []


def _picked_steps(count: int) -> float:
    return count * (1 + (count - 1) * _pick_steps())


def _pick_steps() -> float:
    return 1.0 if processor().width >= _WIDE_BYTES else _NARROW_PICKS


def _turned_steps(squares: Sequence[tuple[int, int]]) -> float:
    return float(sum(2 * size + size * (size.bit_length() - 1) for _, size in squares))


def _turned_squares(lanes: int, count: int) -> list[tuple[int, int]]:
    """Cover columns by squares as large as a vector, the last of half that size if it is enough."""
    out: list[tuple[int, int]] = []
    start = 0
    while start < count:
        size = lanes // 2 if 2 * (count - start) <= lanes and lanes > 2 else lanes
        out.append((min(start, max(0, count - size)), size))
        start += size
    return out


def _load_row(
    builder: Builder, lane: Lane, pointer: Value, offset: Index, row: int, start: int, count: int, rows: int
) -> Value:
    """Load a part of a row, what lies beyond it within the rows too."""
    at = row * count + start
    width = lane.lanes if at + lane.lanes <= rows * count else count
    return load_masked(builder, lane, pointer, _after(builder, offset, at), width)


def _joined(builder: Builder, parts: Sequence[Value]) -> Value:
    """Put one vector, or two, side by side."""
    if len(parts) == 1:
        return parts[0]
    first, second = parts
    return builder.shuffle_vector(first, second, lane_picks(range(2 * lane_of(first).lanes)))


def _after(builder: Builder, offset: Index, by: int) -> Value:
    return builder.add(as_index(offset), I64(by)) if by else as_index(offset)


def _picked(builder: Builder, vectors: Sequence[Value], places: Sequence[tuple[int, int]]) -> Value:
    """Return a vector whose lanes are of others: (the number of the vector, the lane), each lane by one shuffle."""
    lanes = lane_of(vectors[0]).lanes
    used = sorted({vector for vector, _ in places})
    out = vectors[used[0]]
    numbers = [lane for _, lane in places]
    for position, vector in enumerate(used[1:] or used):
        taken = [i if position else numbers[i] for i in range(lanes)]
        mask = [lanes + lane if v == vector else taken[i] for i, (v, lane) in enumerate(places)]
        out = builder.shuffle_vector(out, vectors[vector], lane_picks(mask))
    return out


def _every_steps(lanes: int, stride: int) -> float:
    """Return how many loads and shuffles `_load_every` takes; lane by lane it is two a lane."""
    vectors = min(stride, lanes)
    return vectors + (vectors - 1) * _pick_steps()


def _load_every(builder: Builder, lane: Lane, pointer: Value, offset: Value, stride: int) -> Value:
    """Load with a stride: vectors side by side, of which the last ends with the last element that is wanted."""
    lanes, last = lane.lanes, stride * (lane.lanes - 1)
    starts = [*range(0, last + 1 - lanes, lanes), last + 1 - lanes]
    numbers = [min(i * stride // lanes, len(starts) - 1) for i in range(lanes)]
    places = [(number, i * stride - starts[number]) for i, number in enumerate(numbers)]
    vectors = {v: load(builder, lane, pointer, _after(builder, offset, starts[v])) for v in sorted(set(numbers))}
    index_by_vector = {v: index for index, v in enumerate(vectors)}
    return _picked(builder, [*vectors.values()], [(index_by_vector[v], place) for v, place in places])


def prefetch(builder: Builder, pointer: Value, offset: Index = 0, *, locality: int = 2) -> None:
    """Ask for the cache line at an address, for reading; locality 3 is the first-level cache, 2 the second."""
    address = builder.bitcast(advance(builder, pointer, offset), I8.as_pointer())
    call_symbol(builder, "llvm.prefetch.p0", ir.VoidType(), [address, I32(0), I32(locality), I32(1)])
