"""Element-wise operators as LLVM IR, for every dtype and lane count: `emit(op, builder, *args)`.

Operators agree with numpy, NaN and infinities included; what is not rounded once is in `transcendental`.
No fast-math flag is set anywhere: the same operands give the same bits wherever an operator is emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from frittata.egraph import dtypes
from frittata.egraph.errors import LoweringError
from frittata.kernels import narrow, simd, transcendental
from frittata.kernels.expressions import Expr
from frittata.kernels.flow import apart, rarely
from frittata.kernels.processor import processor
from frittata.kernels.simd import Builder, Value, constant_like, lane_of


def emit(op: str, builder: Builder, *args: Value) -> Value:
    """Emit one operator on values of one dtype and lane count; `OPS` names them.

    Raises: LoweringError for an operator or a dtype that has no code here.
    """
    kind = "float" if lane_of(args[-1]).dtype[0] == "f" else "bool" if lane_of(args[-1]).dtype == "bool" else "int"
    emitter = _EMITTERS[kind].get(op)
    if emitter is None:
        raise LoweringError(f"no vector code for {op} on {lane_of(args[-1]).dtype}")
    return emitter(builder, *args)


def exp_of_nonpositive(builder: Builder, x: Value) -> Value:
    """Emit what `exp` computes, for values that are not above 0, in less time."""
    return transcendental.exp_of_nonpositive(Expr(builder, x)).value


def cast(builder: Builder, value: Value, dtype: str) -> Value:
    """Convert to another dtype as C on x86 does: floats truncate, and those out of range give the least integer."""
    source = lane_of(value)
    if dtypes.is_narrow(dtype):
        return narrow.rounded(builder, cast(builder, value, dtypes.wide(dtype)), dtype)
    target = source.of(dtype)
    if source.dtype == dtype:
        return value
    if dtype == "bool":
        return simd.compare(builder, "!=", value, constant_like(value, 0))
    if source.dtype[0] == "f":
        return Expr(builder, value).to(dtype).value if dtype[0] == "f" else _truncate(builder, value, dtype)
    if dtype[0] == "f":
        convert = builder.uitofp if source.dtype == "bool" else builder.sitofp
    elif source.dtype == "bool":
        convert = builder.zext
    else:
        convert = builder.sext if target.itemsize > source.itemsize else builder.trunc
    return convert(value, target.type)


def _truncate(builder: Builder, value: Value, dtype: str) -> Value:
    x, target = Expr(builder, value), lane_of(value).of(dtype)
    limit = 2.0 ** (8 * target.itemsize - 1)
    low = x.is_(">=", -limit) if (dtype, x.lane.dtype) != ("i32", "f64") else x.is_(">", -limit - 1.0)
    fits = builder.and_(low, x.is_("<", limit))
    # an operand out of range would be poison even if the result is not used
    safe = x.where(fits, 0.0)
    return builder.select(fits, builder.fptosi(safe.value, target.type), simd.constant(target, -int(limit)))


def _formula(function: Callable[..., Expr]) -> Callable[..., Value]:
    """Return the emitter of a function on expressions."""
    return lambda builder, *args: function(*(Expr(builder, arg) for arg in args)).value


def _comparison(relation: str) -> Callable[[Builder, Value, Value], Value]:
    return lambda builder, a, b: simd.compare(builder, relation, a, b)


def _sign(builder: Builder, x: Value) -> Value:
    zero, one = constant_like(x, 0), constant_like(x, 1)
    negative = builder.select(simd.compare(builder, "<", x, zero), constant_like(x, -1), zero)
    result = builder.select(simd.compare(builder, ">", x, zero), one, negative)
    if lane_of(x).dtype[0] != "f":
        return result
    return builder.select(builder.fcmp_unordered("uno", x, x), x, result)


def _abs_integer(builder: Builder, x: Value) -> Value:
    return builder.select(simd.compare(builder, "<", x, constant_like(x, 0)), builder.neg(x), x)


def _divide_integer(builder: Builder, a: Value, b: Value) -> tuple[Value, Value]:
    """Return quotient and remainder rounded towards minus infinity; by zero both are 0, as in numpy."""
    known = simd.known_integer(b)
    if known is not None and known > 0:
        return _divide_by(builder, a, known)
    zero, one, minus_one = (constant_like(b, n) for n in (0, 1, -1))
    by_zero, negates = (simd.compare(builder, "==", b, n) for n in (zero, minus_one))
    # the processor traps on a zero divisor and on the least integer by -1
    divisor = builder.select(builder.or_(by_zero, negates), one, b)
    quotient = _truncated_quotient(builder, a, divisor)
    remainder = builder.sub(a, builder.mul(quotient, divisor))
    opposite = simd.compare(builder, "<", builder.xor(remainder, divisor), zero)
    down = builder.and_(opposite, simd.compare(builder, "!=", remainder, zero))
    quotient = builder.select(down, builder.sub(quotient, one), quotient)
    remainder = builder.select(down, builder.add(remainder, divisor), remainder)
    quotient = builder.select(by_zero, zero, builder.select(negates, builder.neg(a), quotient))
    return quotient, builder.select(by_zero, zero, remainder)


def _truncated_quotient(builder: Builder, a: Value, b: Value) -> Value:
    """Return the quotient rounded towards zero.

    Processors divide vectors of floats alone. The quotient of 32 bits lies further from the next integer than float64
    rounds it by.
    """
    lane = lane_of(a)
    if lane.dtype != "i32" or lane.lanes == 1:
        return builder.sdiv(a, b)
    doubles = lane.of("f64").type
    quotient = builder.fdiv(builder.sitofp(a, doubles), builder.sitofp(b, doubles))
    return builder.fptosi(quotient, lane.type)


def _divide_by(builder: Builder, a: Value, divisor: int) -> tuple[Value, Value]:
    """Return quotient and remainder by an n > 0, rounded towards minus infinity: ~(~a // n) for a negative a."""
    if divisor & (divisor - 1) == 0:
        shift, mask = constant_like(a, divisor.bit_length() - 1), constant_like(a, divisor - 1)
        return builder.ashr(a, shift), builder.and_(a, mask)
    by = constant_like(a, divisor)
    sign = builder.ashr(a, constant_like(a, 8 * lane_of(a).itemsize - 1))
    quotient = builder.xor(_quotient(builder, builder.xor(a, sign), by, divisor), sign)
    return quotient, builder.sub(a, builder.mul(quotient, by))


def _quotient(builder: Builder, x: Value, by: Value, divisor: int) -> Value:
    """Return the quotient of an x that is not negative by what is no power of two.

    LLVM multiplies by a reciprocal, but 64 bits lane by lane: here it is by halves, for x < 2**63 and
    n < 2**c the upper half of x * ceil(2**(63 + c) / n), shifted.
    Source: Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994.
    """
    lane = lane_of(x)
    if lane.dtype == "i32" or lane.lanes == 1:
        return builder.udiv(x, by)
    bits = divisor.bit_length()
    factor = -(-(1 << (63 + bits)) // divisor)
    half, mask = constant_like(x, 32), constant_like(x, 2**32 - 1)
    low, high = builder.and_(x, mask), builder.lshr(x, half)
    by_low, by_high = constant_like(x, factor & 2**32 - 1), constant_like(x, factor >> 32)
    first = builder.lshr(builder.mul(low, by_low), half)
    second = builder.add(builder.mul(high, by_low), first)
    third = builder.add(builder.mul(low, by_high), builder.and_(second, mask))
    carried = builder.add(builder.lshr(second, half), builder.lshr(third, half))
    return builder.lshr(builder.add(builder.mul(high, by_high), carried), constant_like(x, bits - 1))


def _shift_left(builder: Builder, a: Value, count: Value) -> Value:
    """Return a * 2**count without its upper bits; beyond the width it is 0."""
    fits = builder.icmp_unsigned("<", count, constant_like(count, 8 * lane_of(a).itemsize))
    return builder.select(fits, builder.shl(a, count), constant_like(a, 0))


def _shift_right(builder: Builder, a: Value, count: Value) -> Value:
    """Return a / 2**count rounded towards minus infinity; beyond the width only the sign is left, as in numpy."""
    most = constant_like(count, 8 * lane_of(a).itemsize - 1)
    return builder.ashr(a, builder.select(builder.icmp_unsigned("<", count, most), count, most))


def _remainder(a: Expr, b: Expr) -> tuple[Expr, Value]:
    """Return a remainder of less than b, exact, and where its sign differs from b's."""
    rest = _fused_remainder(a, b) if processor().fuses else a.wrap(a.builder.frem(a.value, b.value))
    differs = a.builder.xor(rest.is_("<", 0.0), b.is_("<", 0.0))
    return rest, a.builder.and_(differs, rest.is_("!=", 0.0))


def _fused_remainder(a: Expr, b: Expr) -> Expr:
    """Return what one multiply-add leaves of the whole quotient, with either sign.

    Of a quotient that rounds to a number with a fraction the integer below is at most one too large. Larger ones, and
    what is not finite, are computed lane by lane.
    """
    builder, ratio = a.builder, a / b
    whole = ratio.call("trunc")
    near = a.where(whole.is_("==", 0.0), (-whole).fma(b, a))
    far = simd.any_lane(builder, builder.not_(abs(ratio).is_("<", 2.0**51 if a.is_double else 2.0**22)))

    def by_lane() -> Value:
        return apart(builder, "frem", [a.value, b.value], lambda inside, x, y: inside.frem(x, y))

    return a.wrap(rarely(builder, far, near.value, by_lane))


def _mod(a: Expr, b: Expr) -> Expr:
    """Return a - b * floor(a / b), exact, with the sign of b."""
    rest, differs = _remainder(a, b)
    proper = (rest + b).where(differs, rest).where(rest.is_("!=", 0.0), a.number(0.0).copysign(b))
    return proper.where(b.is_("!=", 0.0), rest)


def _floordiv(a: Expr, b: Expr) -> Expr:
    """Return floor(a / b), from the exact remainder so that rounding cannot cross an integer."""
    rest, differs = _remainder(a, b)
    toward_zero = (a - rest) / b
    quotient = (toward_zero - 1.0).where(differs, toward_zero)
    floor = quotient.call("floor")
    nearest = (floor + 1.0).where((quotient - floor).is_(">", 0.5), floor)
    ratio = a / b
    signed = nearest.where(quotient.is_("!=", 0.0), a.number(0.0).copysign(ratio))
    return signed.where(b.is_("!=", 0.0), ratio)


_ANY: dict[str, Callable[..., Value]] = {
    "add": simd.add,
    "mul": simd.multiply,
    "max": simd.maximum,
    "min": simd.minimum,
    "square": lambda builder, x: simd.multiply(builder, x, x),
    "where": simd.select,
    "lt": _comparison("<"),
    "le": _comparison("<="),
    "gt": _comparison(">"),
    "ge": _comparison(">="),
    "eq": _comparison("=="),
    "ne": _comparison("!="),
}
_LOGIC: dict[str, Callable[..., Value]] = {
    "and": lambda builder, a, b: builder.and_(a, b),
    "or": lambda builder, a, b: builder.or_(a, b),
    "not": lambda builder, a: builder.not_(a),
}
_INTEGER: dict[str, Callable[..., Value]] = {
    "sub": lambda builder, a, b: builder.sub(a, b),
    "neg": lambda builder, a: builder.neg(a),
    "abs": _abs_integer,
    "sign": _sign,
    "mod": lambda builder, a, b: _divide_integer(builder, a, b)[1],
    "floordiv": lambda builder, a, b: _divide_integer(builder, a, b)[0],
    "bitwise_and": _LOGIC["and"],
    "bitwise_or": _LOGIC["or"],
    "bitwise_xor": lambda builder, a, b: builder.xor(a, b),
    "left_shift": _shift_left,
    "right_shift": _shift_right,
}
_FLOAT: dict[str, Callable[..., Value]] = {
    "sub": _formula(lambda a, b: a - b),
    "div": _formula(lambda a, b: a / b),
    "neg": _formula(lambda a: -a),
    "abs": _formula(Expr.__abs__),
    "fma": simd.fma,
    "sqrt": _formula(lambda a: a.call("sqrt")),
    "rsqrt": _formula(lambda a: 1.0 / a.call("sqrt")),
    "reciprocal": _formula(lambda a: 1.0 / a),
    "floor": _formula(lambda a: a.call("floor")),
    "ceil": _formula(lambda a: a.call("ceil")),
    "round": _formula(lambda a: a.call("rint")),
    "trunc": _formula(lambda a: a.call("trunc")),
    "sign": _sign,
    "mod": _formula(_mod),
    "floordiv": _formula(_floordiv),
    "exp": _formula(transcendental.exp),
    "log": _formula(transcendental.log),
    "log1p": _formula(transcendental.log1p),
    "expm1": _formula(transcendental.expm1),
    "atan": _formula(transcendental.atan),
    "tanh": _formula(transcendental.tanh),
    "sigmoid": _formula(transcendental.sigmoid),
    "erf": _formula(transcendental.erf),
    "sin": _formula(transcendental.sin),
    "cos": _formula(transcendental.cos),
    "pow": _formula(transcendental.pow_),
}
_EMITTERS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {"bool": _ANY | _LOGIC, "int": _ANY | _INTEGER, "float": _ANY | _FLOAT}
)
OPS: frozenset[str] = frozenset().union(*_EMITTERS.values())
"""The operators that `emit` knows for at least one dtype; `cast` is a function of its own."""
