"""Values of narrow dtypes: how a register's value of the wide dtype comes from memory, is rounded, and goes back.

Source of the roundings of float16 without instructions for them: Giesen, float-to-half conversions, 2012.
"""

from __future__ import annotations

from typing import Any

from frittata.egraph import dtypes
from frittata.kernels import simd
from frittata.kernels.processor import processor
from frittata.kernels.simd import F16, I16, Builder, Lane, Value, call_intrinsic, constant_like, lane_of

_SIGN, _FLOAT_INFINITY, _QUIET = 0x8000, 0x7F800000, 0x00400000
_HALF_INFINITY, _LEAST_TOO_LARGE = 0x7C00, 0x47800000
_LEAST_NORMAL, _REBIAS = 0x38800000, 0xC8000FFF


def widened(builder: Builder, value: Value, lane: Lane) -> Value:
    """Return what a narrow value in memory is in a register; a value of another dtype as it is."""
    match lane.dtype:
        case "u8" | "u16":
            return builder.zext(value, lane.type)
        case "i8" | "i16":
            return builder.sext(value, lane.type)
        case "bf16":
            bits = builder.zext(value, lane.of("i32").type)
            return builder.bitcast(builder.shl(bits, constant_like(bits, 16)), lane.type)
        case "f16":
            return builder.fpext(value, lane.type) if processor().halves else _float_of_half(builder, value, lane)
        case _:
            return value


def narrowed(builder: Builder, value: Value, kind: Any) -> Value:
    """Return a register's value, one of a narrow dtype, as the LLVM type that it has in memory."""
    lane = lane_of(value)
    if lane.dtype == "i32":
        return builder.trunc(value, simd.widen(kind, lane.lanes))
    if kind == I16:  # bfloat16
        bits = builder.bitcast(value, lane.of("i32").type)
        return builder.trunc(builder.lshr(bits, constant_like(bits, 16)), simd.widen(I16, lane.lanes))
    assert kind == F16
    if processor().halves:
        return builder.fptrunc(value, simd.widen(F16, lane.lanes))
    bits = builder.trunc(_half_of_float(builder, value), simd.widen(I16, lane.lanes))
    return builder.bitcast(bits, simd.widen(F16, lane.lanes))


def rounded(builder: Builder, value: Value, dtype: str) -> Value:
    """Return the value of a narrow dtype, in the wide one, that a value of the wide dtype becomes: integers wrap."""
    lane = lane_of(value)
    match dtype:
        case "u8" | "u16":
            return builder.and_(value, constant_like(value, 2 ** (8 * dtypes.itemsize(dtype)) - 1))
        case "i8" | "i16":
            by = constant_like(value, 32 - 8 * dtypes.itemsize(dtype))
            return builder.ashr(builder.shl(value, by), by)
        case "bf16":
            bits = builder.bitcast(value, lane.of("i32").type)
            odd = builder.and_(builder.lshr(bits, constant_like(bits, 16)), constant_like(bits, 1))
            up = builder.add(builder.add(bits, constant_like(bits, 0x7FFF)), odd)
            quiet = builder.or_(bits, constant_like(bits, _QUIET))
            chosen = builder.select(simd.compare(builder, "==", value, value), up, quiet)
            return builder.bitcast(builder.and_(chosen, constant_like(bits, -0x10000)), lane.type)
        case _:
            return widened(builder, narrowed(builder, value, F16), lane.of("f16"))


def _float_of_half(builder: Builder, value: Value, lane: Lane) -> Value:
    """Shift the bits into place and scale by 2 ** 112, which makes normal numbers of those that are not, too."""
    bits = builder.zext(builder.bitcast(value, simd.widen(I16, lane.lanes)), lane.of("i32").type)
    sign = builder.shl(builder.and_(bits, constant_like(bits, _SIGN)), constant_like(bits, 16))
    rest = builder.shl(builder.and_(bits, constant_like(bits, _SIGN - 1)), constant_like(bits, 13))
    scaled = builder.fmul(builder.bitcast(rest, lane.type), simd.constant(Lane("f32", lane.lanes), 2.0**112))
    plain = builder.bitcast(scaled, bits.type)
    infinite = builder.icmp_signed(">=", rest, constant_like(bits, _HALF_INFINITY << 13))
    magnitude = builder.select(infinite, builder.or_(rest, constant_like(bits, _FLOAT_INFINITY)), plain)
    return builder.bitcast(builder.or_(magnitude, sign), lane.type)


def _half_of_float(builder: Builder, value: Value) -> Value:
    """Return the bits of the nearest float16, in the low half of those of an i32."""
    size = call_intrinsic(builder, "fabs", value.type, [value])
    bits = builder.bitcast(size, lane_of(value).of("i32").type)
    sign = builder.lshr(builder.bitcast(value, bits.type), constant_like(bits, 16))
    odd = builder.and_(builder.lshr(bits, constant_like(bits, 13)), constant_like(bits, 1))
    rebiased = builder.add(builder.add(bits, constant_like(bits, _REBIAS - 2**32)), odd)
    normal = builder.lshr(rebiased, constant_like(bits, 13))
    # to add 0.5 rounds to multiples of the least float16, and leaves their number in the low bits
    shifted = builder.bitcast(builder.fadd(size, constant_like(value, 0.5)), bits.type)
    small = builder.sub(shifted, constant_like(bits, 0x3F000000))
    nan = builder.icmp_signed(">", bits, constant_like(bits, _FLOAT_INFINITY))
    large = builder.select(nan, constant_like(bits, _HALF_INFINITY | 0x200), constant_like(bits, _HALF_INFINITY))
    is_small = builder.icmp_signed("<", bits, constant_like(bits, _LEAST_NORMAL))
    is_large = builder.icmp_signed(">=", bits, constant_like(bits, _LEAST_TOO_LARGE))
    magnitude = builder.select(is_large, large, builder.select(is_small, small, normal))
    return builder.or_(magnitude, builder.and_(sign, constant_like(bits, _SIGN)))
