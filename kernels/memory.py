"""Loading and storing vector values: consecutive, masked, strided, gathered.

A pointer points to `Lane.memory_scalar`. Offsets and strides are in elements; addresses are aligned to one element.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from frittata.kernels.simd import (
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
    overload_name,
    part,
    splat,
    transpose,
)


def advance(builder: Builder, pointer: Value, offset: Index) -> Value:
    """Return `pointer + offset` elements."""
    return pointer if isinstance(offset, int) and offset == 0 else builder.gep(pointer, [as_index(offset)])


def _to_register(builder: Builder, value: Value, lane: Lane) -> Value:
    if lane.dtype != "bool":
        return value
    return builder.icmp_unsigned("!=", value, ir.Constant(value.type, None))


def _to_memory(builder: Builder, value: Value) -> Value:
    lane = lane_of(value)
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
    lane = lane_of(value)
    address = builder.bitcast(advance(builder, pointer, offset), lane.memory_type.as_pointer())
    builder.store(_to_memory(builder, value), address, align=lane.itemsize)


def pointer_from_address(builder: Builder, lane: Lane, address: Value) -> Value:
    """Return an int64 address as a pointer to elements."""
    return builder.inttoptr(address, lane.memory_scalar.as_pointer())


def valid_mask(builder: Builder, lane: Lane, count: Index) -> Value:
    """Return the mask of the first `count` lanes."""
    if isinstance(count, int):
        flags = [int(i < count) for i in range(lane.lanes)]
        return ir.Constant(lane.of("bool").type, flags if lane.lanes > 1 else flags[0])
    dtype = "i32" if lane.itemsize == 4 else "i64"
    limit = builder.trunc(count, I32) if dtype == "i32" else count
    return builder.icmp_signed("<", lane_numbers(lane.lanes, dtype), splat(builder, limit, lane.lanes))


def load_masked(
    builder: Builder, lane: Lane, pointer: Value, offset: Index, count: Index, other: float | int = 0
) -> Value:
    """Load consecutive elements into the first `count >= 1` lanes; the rest are `other`, their memory untouched."""
    if lane.lanes == 1 or count == lane.lanes:
        return load(builder, lane, pointer, offset)
    return load_where(builder, lane, pointer, offset, valid_mask(builder, lane, count), other)


def load_where(
    builder: Builder, lane: Lane, pointer: Value, offset: Index, mask: Value, other: float | int = 0
) -> Value:
    """Load consecutive elements into the lanes where `mask` holds; the rest are `other`, their memory untouched."""
    address = advance(builder, pointer, offset)
    arguments = [address, I32(lane.itemsize), mask, _to_memory(builder, constant(lane, other))]
    symbol = f"llvm.masked.load.{overload_name(lane.memory_type)}.p0"
    return _to_register(builder, call_symbol(builder, symbol, lane.memory_type, arguments), lane)


def store_masked(builder: Builder, value: Value, pointer: Value, offset: Index, count: Index) -> None:
    """Store the first `count >= 1` lanes to consecutive elements; memory of the rest is not touched."""
    lane = lane_of(value)
    if lane.lanes == 1 or count == lane.lanes:
        return store(builder, value, pointer, offset)
    if isinstance(count, int):
        return _store_parts(builder, value, pointer, as_index(offset), count)
    address = advance(builder, pointer, offset)
    arguments = [_to_memory(builder, value), address, I32(lane.itemsize), valid_mask(builder, lane, count)]
    call_symbol(builder, f"llvm.masked.store.{overload_name(lane.memory_type)}.p0", ir.VoidType(), arguments)
    return None


def _store_parts(builder: Builder, value: Value, pointer: Value, offset: Value, count: int) -> None:
    """Store the first lanes in parts that are powers of two: a masked store takes as long as a dozen plain ones."""
    start = 0
    while start < count:
        size = 1 << ((count - start).bit_length() - 1)
        store(builder, part(builder, value, start, size), pointer, builder.add(offset, I64(start)))
        start += size


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
    if stride == 2 and count is None and lane.lanes > 1:
        return _load_every_other(builder, lane, pointer, offset)
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


def _load_every_other(builder: Builder, lane: Lane, pointer: Value, offset: Index) -> Value:
    """Load with stride 2: two vectors, of which the second ends with the last element that is wanted."""
    first = load(builder, lane, pointer, offset)
    second = load(builder, lane, pointer, builder.add(as_index(offset), I64(lane.lanes - 1)))
    half, lanes = lane.lanes // 2, lane.lanes
    numbers = [2 * i if i < half else lanes + 2 * (i - half) + 1 for i in range(lanes)]
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(I32, lanes), numbers))


def prefetch(builder: Builder, pointer: Value, offset: Index = 0, *, locality: int = 2) -> None:
    """Ask for the cache line at an address, for reading; locality 3 is the first-level cache, 2 the second."""
    address = builder.bitcast(advance(builder, pointer, offset), I8.as_pointer())
    call_symbol(builder, "llvm.prefetch.p0", ir.VoidType(), [address, I32(0), I32(locality), I32(1)])
