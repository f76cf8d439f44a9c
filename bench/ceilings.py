"""What the machine can do, by vector code on the driver's threads: multiply-adds in registers, and moving bytes.

A ceiling is called in turn with the contestants, so that a row's floor is that of the same minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.timing import Call, least_s
from frittata.egraph.machine import Machine
from frittata.kernels import driver, memory, simd
from frittata.kernels.compile import compile_kernel
from frittata.kernels.flow import for_range
from frittata.kernels.intrinsics import make_tile_intrinsic, table_pointer
from frittata.kernels.simd import I32, I64, Builder, Lane, Value
from frittata.kernels.tables import address, aligned_bytes

_SUMS = 12
"""Independent chains of multiply-adds: enough to hide their latency, few enough for sixteen registers."""
_FMA_STEPS = 50_000
_UNROLL = 8
_CHUNK_BYTES = 256 << 10
_LEAST_BYTES_A_CALL = 8 << 20
_MOST_BYTES = 256 << 20
"""Beyond any cache: larger traffic is measured at this size."""

_SOURCE = "def ceiling(table, chunk):\n    body(table, chunk)\n"


@dataclass(frozen=True)
class Ceiling:
    """Vector code to be timed: one call does `amount` flops or moves `amount` bytes."""

    call: Call
    amount: float


def multiply_adds(machine: Machine) -> Ceiling:
    """Fused multiply-adds of float32 on registers, on every thread."""
    lane = Lane("f32", machine.lanes_f32)

    def emit(builder: Builder, table: Value, chunk: Value) -> None:
        data, results = (table_pointer(builder, table, entry, "f32") for entry in (0, 1))
        x, y, *first = (memory.load(builder, lane, data, i * lane.lanes) for i in range(_SUMS + 2))
        last = for_range(builder, 0, _FMA_STEPS, 1, first, lambda _, sums: [simd.fma(builder, s, x, y) for s in sums])
        _keep(builder, results, chunk, lane, last)

    threads = driver.thread_count()
    data = np.full(lane.lanes * (_SUMS + 2), 0.5, np.float32)
    run = _runner(f"multiply-adds of {lane}", emit, [data, _sink(threads, lane)], threads, 1)
    return Ceiling(run, 2.0 * lane.lanes * _SUMS * _FMA_STEPS * threads)


def traffic(read_bytes: float, written_bytes: float, machine: Machine) -> Ceiling:
    """Reading and writing so many bytes again and again, with plain or with streaming stores: whichever is faster."""
    both = [
        _traffic(read_bytes, written_bytes, machine, streaming)
        for streaming in (False, True)[: 1 + bool(written_bytes)]
    ]
    return min(both, key=lambda ceiling: least_s(ceiling.call, 5) / ceiling.amount)


def _traffic(read_bytes: float, written_bytes: float, machine: Machine, streaming: bool) -> Ceiling:
    """Chunks that read, then write, their parts of two arrays."""
    lane = Lane("f32", machine.lanes_f32)
    block = 4 * lane.lanes * _UNROLL
    shrunk = min(1.0, _MOST_BYTES / (read_bytes + written_bytes))
    each = driver.thread_count() * _CHUNK_BYTES
    chunks = driver.thread_count() * max(1, round(shrunk * (read_bytes + written_bytes) / each))
    reads, writes = (
        max(1, int(shrunk * size / (block * chunks))) if size else 0 for size in (read_bytes, written_bytes)
    )

    def emit(builder: Builder, table: Value, chunk: Value) -> None:
        source, target, results = (table_pointer(builder, table, entry, "f32") for entry in range(3))
        zeros = [simd.constant(lane, 0.0)] * _UNROLL
        start = builder.mul(chunk, I64(reads * _UNROLL * lane.lanes))
        sums = for_range(builder, 0, reads, 1, zeros, lambda i, sums: _read(builder, lane, source, start, i, sums))
        first = builder.mul(chunk, I64(writes * _UNROLL * lane.lanes))
        for_range(builder, 0, writes, 1, [], lambda i, _: _write(builder, lane, target, first, i, streaming))
        _keep(builder, results, chunk, lane, sums)

    arrays = [_ones(reads * block * chunks), _ones(writes * block * chunks), _sink(chunks, lane)]
    moved = (reads + writes) * block * chunks
    repeats = max(1, _LEAST_BYTES_A_CALL // moved)
    run = _runner(f"traffic {reads} {writes} {streaming} {lane}", emit, arrays, chunks, repeats)
    return Ceiling(run, float(moved * repeats))


def _read(builder: Builder, lane: Lane, source: Value, start: Value, i: Value, sums: Sequence[Value]) -> list[Value]:
    at = builder.add(start, builder.mul(i, I64(_UNROLL * lane.lanes)))
    loads = (memory.load(builder, lane, source, builder.add(at, I64(n * lane.lanes))) for n in range(_UNROLL))
    return [simd.add(builder, total, value) for total, value in zip(sums, loads, strict=True)]


def _write(builder: Builder, lane: Lane, target: Value, start: Value, i: Value, streaming: bool) -> list[Value]:
    at = builder.add(start, builder.mul(i, I64(_UNROLL * lane.lanes)))
    for n in range(_UNROLL):
        place = memory.advance(builder, target, builder.add(at, I64(n * lane.lanes)))
        store = builder.store(
            simd.constant(lane, 1.0), builder.bitcast(place, lane.type.as_pointer()), align=4 * lane.lanes
        )
        if streaming:
            store.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))
    return []


def _keep(builder: Builder, results: Value, chunk: Value, lane: Lane, values: Sequence[Value]) -> None:
    """Store what was computed, so that it has to be."""
    start = builder.mul(chunk, I64(_SUMS * lane.lanes))
    for n, value in enumerate(values):
        memory.store(builder, value, results, builder.add(start, I64(n * lane.lanes)))


def _sink(chunks: int, lane: Lane) -> NDArray[Any]:
    return np.zeros(chunks * _SUMS * lane.lanes, np.float32)


def _ones(size: int) -> NDArray[Any]:
    """Return memory whose pages are there."""
    out = aligned_bytes(max(size, 1))
    out.fill(1)
    return out


def _runner(key: str, emit: Callable[..., None], arrays: Sequence[NDArray[Any]], chunks: int, repeats: int) -> Call:
    """Return a call that runs a kernel over a table of arrays, `repeats` times without Python in between."""
    kernel = compile_kernel(_SOURCE, "ceiling", {"body": make_tile_intrinsic("body", emit, 1)}, key=key)
    table = np.array([address(array) for array in arrays], np.int64)
    steps = driver.Steps([[kernel.address, address(table), chunks]] * repeats)
    kept = kernel, table, tuple(arrays)

    def call() -> object:
        driver.run(steps)
        return kept

    return call
