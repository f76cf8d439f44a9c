"""What sources call of the tensor cores and of what feeds them: instructions that numba has no names for.

A product of a 16 x 16 matrix and a 16 x 8 one is made by the 32 threads of a warp together. Each holds 8 elements of
the first, 4 of the second, two in a word, and 4 of the sum; `load_matrix` brings four 8 x 8 matrices of shared memory
into that order. The simulator has its own versions, where the threads of a warp wait for each other.

Source: Parallel Thread Execution ISA, warp-level matrix instructions, and asynchronous copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from frittata.egraph import dtypes
from frittata.kernels.cuda.intrinsics import function
from frittata.kernels.cuda.warps import exchange
from frittata.kernels.halves import HALVES

_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()


# ---- for numba's compiler --------------------------------------------------------------------------------------------


def compiled() -> dict[str, Any]:
    """Return the functions by name."""
    return {
        "as_halves": function(_as_halves, types.Array(types.uint16, 1, "C"), 1),
        "is_aligned": function(_is_aligned, types.boolean, 1),
        "copy_chunk": function(_copy_chunk, types.void, 5),
        "copies_end": function(_statement("cp.async.commit_group;"), types.void, 0),
        **{f"copies_wait{n}": function(_statement(f"cp.async.wait_group {n};"), types.void, 0) for n in range(8)},
        "load_matrix": function(_load_matrix(""), types.void, 4),
        "load_transposed": function(_load_matrix(".trans"), types.void, 4),
        **{f"multiply_{dtype}": function(_multiply(dtype), types.void, 6) for dtype in HALVES},
    }


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index_kind: Any, index: Any) -> Any:
    """Return where an element of an array lies."""
    data = context.make_array(kind)(context, builder, value=array).data
    return builder.gep(data, [context.cast(builder, index, index_kind, types.uint64)], inbounds=True)


def _shared_address(builder: Any, pointer: Any) -> Any:
    return builder.ptrtoint(builder.addrspacecast(pointer, pointer.type.pointee.as_pointer(3)), _I32)


def _global_address(builder: Any, pointer: Any) -> Any:
    return builder.ptrtoint(builder.addrspacecast(pointer, pointer.type.pointee.as_pointer(1)), _I64)


def _asm(builder: Any, text: str, constraints: str, values: list[Any], result: Any = None) -> Any:
    kind = ir.FunctionType(result or ir.VoidType(), [value.type for value in values])
    return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=True), values)


def _statement(text: str) -> Callable[..., Any]:
    return lambda context, builder, kinds, values: _asm(builder, text, "~{memory}", [])


def _as_halves(context: Any, builder: Any, kinds: Any, values: Any) -> Any:
    """See the memory of an array of floats as halves: `view` of numba asks a device, even to be compiled."""
    given = context.make_array(kinds[0])(context, builder, value=values[0])
    seen = context.make_array(types.Array(types.uint16, 1, "C"))(context, builder)
    extent, size = builder.mul(given.nitems, _I64(2)), _I64(2)
    seen.meminfo, seen.parent, seen.nitems, seen.itemsize = given.meminfo, given.parent, extent, size
    seen.data = builder.bitcast(given.data, seen.data.type)
    seen.shape, seen.strides = (builder.insert_value(given.shape, n, 0) for n in (extent, size))
    return seen._getvalue()


def _is_aligned(context: Any, builder: Any, kinds: Any, values: Any) -> Any:
    """Whether the memory of an array begins at a multiple of 16 bytes."""
    data = context.make_array(kinds[0])(context, builder, value=values[0]).data
    address = builder.ptrtoint(data, _I64)
    return builder.icmp_unsigned("==", builder.and_(address, _I64(15)), _I64(0))


def _copy_chunk(context: Any, builder: Any, kinds: Any, values: Any) -> Any:
    """Begin to copy 8 halves: (to, place, from, offset, inside); zeros where they lie outside."""
    there = _shared_address(builder, _pointer(context, builder, kinds[0], values[0], kinds[1], values[1]))
    here = _global_address(builder, _pointer(context, builder, kinds[2], values[2], kinds[3], values[3]))
    size = builder.select(context.cast(builder, values[4], kinds[4], types.boolean), _I32(16), _I32(0))
    return _asm(builder, "cp.async.cg.shared.global [$0], [$1], 16, $2;", "r,l,r,~{memory}", [there, here, size])


def _load_matrix(modifier: str) -> Callable[..., Any]:
    """Load four matrices: (words, first, from, place of this thread's line)."""
    text = f"ldmatrix.sync.aligned.m8n8.x4{modifier}.shared.b16 {{$0, $1, $2, $3}}, [$4];"

    def emit(context: Any, builder: Any, kinds: Any, values: Any) -> Any:
        line = _shared_address(builder, _pointer(context, builder, kinds[2], values[2], kinds[3], values[3]))
        words = _asm(builder, text, "=r,=r,=r,=r,r,~{memory}", [line], ir.LiteralStructType([_I32] * 4))
        target = _pointer(context, builder, kinds[0], values[0], kinds[1], values[1])
        for n in range(4):
            builder.store(builder.extract_value(words, n), builder.gep(target, [_I32(n)]))

    return emit


def _multiply(dtype: str) -> Callable[..., Any]:
    """Add a product to sums: (sums, first, left words, first, right words, first)."""
    text = (
        f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32 "
        "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
    )

    def emit(context: Any, builder: Any, kinds: Any, values: Any) -> Any:
        sums, left, right = (
            [builder.gep(_pointer(context, builder, *kinds_and_values), [_I32(n)]) for n in range(count)]
            for count, kinds_and_values in (
                (4, (kinds[0], values[0], kinds[1], values[1])),
                (4, (kinds[2], values[2], kinds[3], values[3])),
                (2, (kinds[4], values[4], kinds[5], values[5])),
            )
        )
        given = [builder.load(pointer) for pointer in (*left, *right, *sums)]
        kind = ir.FunctionType(ir.LiteralStructType([_F32] * 4), [value.type for value in given])
        call = ir.InlineAsm(kind, text, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f")
        result = builder.call(call, given)
        for n, pointer in enumerate(sums):
            builder.store(builder.extract_value(result, n), pointer)

    return emit


# ---- for the simulator -----------------------------------------------------------------------------------------------


def simulated() -> dict[str, Any]:
    """Return the functions by name."""
    return {
        "as_halves": lambda array: array.view(np.uint16),
        "is_aligned": lambda array: array.ctypes.data % 16 == 0,
        "copy_chunk": _simulated_copy,
        "copies_end": lambda: None,
        **{f"copies_wait{n}": lambda: None for n in range(8)},
        "load_matrix": _simulated_load(transposed=False),
        "load_transposed": _simulated_load(transposed=True),
        **{f"multiply_{dtype}": _simulated_multiply(dtype) for dtype in HALVES},
    }


def _simulated_copy(target: Any, place: Any, source: Any, offset: Any, inside: Any) -> None:
    for n in range(8):
        target[place + n] = source[offset + n] if inside else 0


def _simulated_load(transposed: bool) -> Callable[..., None]:
    def load(words: Any, first: Any, source: Any, place: Any) -> None:
        lines, lane = exchange(int(place))
        line, column = lane // 4, lane % 4 * 2
        for n in range(4):
            at = lines[8 * n : 8 * n + 8]
            pair = (at[column] + line, at[column + 1] + line) if transposed else (at[line] + column + e for e in (0, 1))
            low, high = (int(source[where]) for where in pair)
            words[first + n] = low | high << 16

    return load


def _simulated_multiply(dtype: str) -> Callable[..., None]:
    half = dtypes.to_numpy(dtype)

    def product(words: Any) -> Any:
        """Multiply what the lanes hold: axes of the words are lines, pairs of columns, matrices, places in a pair."""
        values = words.view(np.uint16).view(half).astype(np.float32).reshape(8, 4, 6, 2)
        a = values[:, :, :4].reshape(8, 4, 2, 2, 2).transpose(3, 0, 2, 1, 4).reshape(16, 16)
        b = values[:, :, 4:].transpose(2, 1, 3, 0).reshape(16, 8)
        return a @ b

    def multiply(sums: Any, at: Any, left: Any, left_at: Any, right: Any, right_at: Any) -> None:
        shown, lane = exchange((*left[left_at : left_at + 4], *right[right_at : right_at + 2]))
        made, _ = exchange(product(np.array(shown, np.uint32)) if lane == 0 else None)
        line, column = lane // 4, lane % 4 * 2
        for n in range(4):
            sums[at + n] += made[0][line + n // 2 * 8, column + n % 2]

    return multiply
