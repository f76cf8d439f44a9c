"""Vector values on an LLVM IR builder: their types, constants, selection and reductions, for any dtype and lane count.

A value of one lane has the scalar LLVM type, never a vector of one. Booleans are `i1` in registers, a byte in memory;
values of narrow dtypes have in registers the type of the wide dtype that they are computed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import copysign, isnan
from typing import Any

from llvmlite import ir

from frittata.egraph import dtypes
from frittata.egraph.errors import LoweringError
from frittata.kernels.processor import processor

Builder = Any
Value = Any
Index = Any
"""An int64 LLVM value, or a Python int where it is known."""

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()

_TYPE_BY_DTYPE: dict[str, Any] = {"bool": I1, "i32": I32, "i64": I64, "f32": F32, "f64": F64}
_TYPE_IN_MEMORY: dict[str, Any] = {"bool": I8, "u8": I8, "i8": I8, "u16": I16, "i16": I16, "bf16": I16, "f16": F16}


@dataclass(frozen=True)
class Lane:
    """The type of a value: an element type, and how many of it side by side."""

    dtype: str
    lanes: int = 1

    @property
    def scalar(self) -> Any:
        """The LLVM type of one element in a register."""
        return _TYPE_BY_DTYPE[dtypes.wide(self.dtype)]

    @property
    def type(self) -> Any:
        """The LLVM type in a register."""
        return widen(self.scalar, self.lanes)

    @property
    def memory_scalar(self) -> Any:
        """The LLVM type of one element in memory."""
        return _TYPE_IN_MEMORY.get(self.dtype, self.scalar)

    @property
    def memory_type(self) -> Any:
        """The LLVM type in memory."""
        return widen(self.memory_scalar, self.lanes)

    @property
    def itemsize(self) -> int:
        """The size of one element in memory, in bytes."""
        return dtypes.itemsize(self.dtype)

    @property
    def register_bytes(self) -> int:
        """The bytes that a lane takes in a vector register."""
        return dtypes.itemsize(dtypes.wide(self.dtype))

    def of(self, dtype: str) -> Lane:
        """Return the type with as many lanes of another dtype."""
        return Lane(dtype, self.lanes)


def widen(scalar: Any, lanes: int) -> Any:
    """Return the LLVM type of so many scalars side by side."""
    return scalar if lanes == 1 else ir.VectorType(scalar, lanes)


def overload_name(type_: Any) -> str:
    """Return the name of a type in the names of overloaded LLVM intrinsics, such as `v8f32`."""
    if isinstance(type_, ir.VectorType):
        return f"v{type_.count}{overload_name(type_.element)}"
    return {F16: "f16", F32: "f32", F64: "f64"}.get(type_) or f"i{type_.width}"


def lane_of(value: Value) -> Lane:
    """Return the type of a value in a register."""
    vector = isinstance(value.type, ir.VectorType)
    scalar = value.type.element if vector else value.type
    for dtype, type_ in _TYPE_BY_DTYPE.items():
        if type_ == scalar:
            return Lane(dtype, value.type.count if vector else 1)
    raise LoweringError(f"no element type for the LLVM type {value.type}")


def call_intrinsic(builder: Builder, name: str, result: Any, arguments: Sequence[Value]) -> Value:
    """Call `llvm.<name>.<type of the result>`."""
    return call_symbol(builder, f"llvm.{name}.{overload_name(result)}", result, arguments)


def call_symbol(builder: Builder, symbol: str, result: Any, arguments: Sequence[Value]) -> Value:
    """Call an external function by its symbol."""
    known = builder.module.globals.get(symbol)
    if known is None:
        known = ir.Function(builder.module, ir.FunctionType(result, [a.type for a in arguments]), name=symbol)
    return builder.call(known, list(arguments))


# ---- constants -------------------------------------------------------------------------------------------------------


def constant(lane: Lane, value: float | int | bool) -> Value:
    """Return a constant, the same in every lane, rounded to the dtype."""
    return _constant(lane, repr(float(value) if dtypes.is_float(lane.dtype) else int(value)))


def row_of(lane: Lane, numbers: Sequence[float]) -> Value:
    """Return a constant with a number for each lane, over again where there are fewer."""
    return _constant(lane, *map(repr, numbers))


@lru_cache(maxsize=4096)
def _constant(lane: Lane, *texts: str) -> Value:
    """Return a constant from what Python writes, which tells zeros of both signs apart."""
    numbers = list(map(float if dtypes.is_float(lane.dtype) else int, texts))
    return ir.Constant(lane.type, numbers[0] if lane.lanes == 1 else numbers * (lane.lanes // len(numbers)))


def lane_picks(numbers: Sequence[int]) -> Value:
    """Return the constant that tells a shuffle which lane goes where."""
    return _lane_picks(tuple(numbers))


@lru_cache(maxsize=4096)
def _lane_picks(numbers: tuple[int, ...]) -> Value:
    return ir.Constant(ir.VectorType(I32, len(numbers)), list(numbers))


def constant_like(value: Value, number: float | int | bool) -> Value:
    """Return a constant of the type of `value`."""
    return constant(lane_of(value), number)


def lane_numbers(lanes: int, dtype: str = "i64") -> Value:
    """Return 0, 1, 2, ... lane by lane."""
    lane = Lane(dtype, lanes)
    return constant(lane, 0) if lanes == 1 else ir.Constant(lane.type, [lane.scalar(i).constant for i in range(lanes)])


def splat(builder: Builder, scalar: Value, lanes: int) -> Value:
    """Return a vector with `scalar` in every lane."""
    if lanes == 1:
        return scalar
    if isinstance(scalar, ir.Constant):
        return ir.Constant(ir.VectorType(scalar.type, lanes), [scalar.constant] * lanes)
    undefined = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, scalar, I32(0))
    return builder.shuffle_vector(first, undefined, lane_picks([0] * lanes))


def as_index(value: Index) -> Value:
    """Return an index as an LLVM value."""
    return I64(value) if isinstance(value, int) else value


def insert(builder: Builder, value: Value, scalar: Value, lane: int) -> Value:
    """Return a value with another scalar in one lane."""
    return builder.insert_element(value, scalar, I32(lane)) if isinstance(value.type, ir.VectorType) else scalar


def extract(builder: Builder, value: Value, lane: int) -> Value:
    """Return one lane of a value."""
    return builder.extract_element(value, I32(lane)) if isinstance(value.type, ir.VectorType) else value


def from_scalars(builder: Builder, scalars: Sequence[Value]) -> Value:
    """Return the value whose lanes are `scalars`."""
    if len(scalars) == 1:
        return scalars[0]
    result = ir.Constant(ir.VectorType(scalars[0].type, len(scalars)), ir.Undefined)
    for i, scalar in enumerate(scalars):
        result = builder.insert_element(result, scalar, I32(i))
    return result


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def fma(builder: Builder, a: Value, b: Value, c: Value) -> Value:
    """Return `a * b + c`, rounded once; twice where the processor would have to call a function for that."""
    return call_intrinsic(builder, "fma" if processor().fuses else "fmuladd", a.type, [a, b, c])


def compare(builder: Builder, relation: str, a: Value, b: Value) -> Value:
    """Return `a <relation> b` for one of `== != < <= > >=`; with a NaN only `!=` holds."""
    dtype = lane_of(a).dtype
    if dtype[0] == "f":
        emit = builder.fcmp_unordered if relation == "!=" else builder.fcmp_ordered
    else:
        emit = builder.icmp_unsigned if dtype == "bool" else builder.icmp_signed
    return emit(relation, a, b)


def select(builder: Builder, condition: Value, a: Value, b: Value) -> Value:
    """Return `a` in the lanes where `condition` holds and `b` in the others."""
    return builder.select(condition, a, b)


def any_lane(builder: Builder, condition: Value) -> Value:
    """Return whether a condition holds in any lane, as one `i1`."""
    lanes = lane_of(condition).lanes
    if lanes == 1:
        return condition
    bits = builder.bitcast(condition, ir.IntType(lanes))
    return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))


def maximum(builder: Builder, a: Value, b: Value) -> Value:
    """Return the larger; a NaN wins, and +0.0 beats -0.0, so that the order of operands never matters."""
    if _is_zero(a, 1.0) or _is_zero(b, 1.0):  # a zero is added to what may be -0.0, in less than to compare with "<="
        a, b = (x if _number(x) is not None else add(builder, x, zero) for x, zero in ((a, b), (b, a)))
    return _bounded(builder, a, b, "<") or _extremum(builder, a, b, "maximum", "smax", builder.or_)


def minimum(builder: Builder, a: Value, b: Value) -> Value:
    """Return the smaller; a NaN wins, and -0.0 beats +0.0, so that the order of operands never matters."""
    beyond = ">=" if _is_zero(a, -1.0) or _is_zero(b, -1.0) else ">"
    return _bounded(builder, a, b, beyond) or _extremum(builder, a, b, "minimum", "smin", builder.and_)


def larger(builder: Builder, a: Value, b: Value) -> Value:
    """Return the larger in one instruction: b if one of them is NaN, or both are zeros."""
    return select(builder, compare(builder, ">", a, b), a, b)


def _bounded(builder: Builder, a: Value, b: Value, beyond: str) -> Value | None:
    """Return the bound where a value lies beyond it; None unless one operand is a float constant, and not NaN.

    A NaN lies beyond nothing. Two instructions at most, where two operands of any value take seven.
    """
    for value, bound in ((a, b), (b, a)):
        number = _number(bound) if _number(value) is None else None
        if number is not None and not isnan(number):
            return select(builder, compare(builder, beyond, value, bound), bound, value)
    return None


def _is_zero(value: Value, sign: float) -> bool:
    """Whether a value is the constant zero of a sign."""
    number = _number(value)
    return number is not None and number == 0.0 and copysign(1.0, number) == sign


def _number(value: Value) -> float | None:
    """Return the float that is in every lane of a constant; None if the value is none."""
    if not isinstance(value, ir.Constant) or lane_of(value).dtype[0] != "f":
        return None
    first, *others = _numbers_of(value)
    same = isinstance(first, float) and all(n is first or n == first for n in others)
    return first if same else None


def known_integer(value: Value) -> int | None:
    """Return the integer that is in every lane of a constant; None if the value is none."""
    if not isinstance(value, ir.Constant) or lane_of(value).dtype not in ("i32", "i64"):
        return None
    first, *others = _numbers_of(value)
    return first if isinstance(first, int) and all(n == first for n in others) else None


def _numbers_of(constant: Any) -> list[Any]:
    """Return what is in the lanes of a constant."""
    lanes: list[Any] = constant.constant if isinstance(constant.constant, list) else [constant]
    return [lane.constant if isinstance(lane, ir.Constant) else lane for lane in lanes]


def _extremum(builder: Builder, a: Value, b: Value, floating: str, integer: str, logical: Any) -> Value:
    dtype = lane_of(a).dtype
    if dtype == "bool":
        return logical(a, b)
    return call_intrinsic(builder, floating if dtype[0] == "f" else integer, a.type, [a, b])


def add(builder: Builder, a: Value, b: Value) -> Value:
    """Return `a + b`; on booleans, or."""
    dtype = lane_of(a).dtype
    if dtype == "bool":
        return builder.or_(a, b)
    return builder.fadd(a, b) if dtype[0] == "f" else builder.add(a, b)


def multiply(builder: Builder, a: Value, b: Value) -> Value:
    """Return `a * b`; on booleans, and."""
    dtype = lane_of(a).dtype
    if dtype == "bool":
        return builder.and_(a, b)
    return builder.fmul(a, b) if dtype[0] == "f" else builder.mul(a, b)


COMBINE_BY_FOLD: dict[str, Callable[[Builder, Value, Value], Value]] = {
    "sum": add,
    "prod": multiply,
    "max": maximum,
    "min": minimum,
}
"""How two partial results of a fold become one."""


def neutral(lane: Lane, fold: str) -> Value:
    """Return the value that changes nothing in a fold."""
    if fold in ("sum", "prod"):
        return constant(lane, int(fold == "prod"))
    sign = -1 if fold == "max" else 1
    if dtypes.is_float(lane.dtype):
        return constant(lane, sign * float("inf"))
    if lane.dtype == "bool":
        return constant(lane, fold == "min")
    bits = 8 * lane.itemsize - 1
    return constant(lane, -(2**bits) if fold == "max" else 2**bits - 1)


def combined(builder: Builder, fold: str, values: Sequence[Value]) -> Value:
    """Fold several values to one, pair by pair."""
    rest = list(values)
    while len(rest) > 1:
        pairs = zip(rest[::2], rest[1::2], strict=False)
        rest = [COMBINE_BY_FOLD[fold](builder, a, b) for a, b in pairs] + rest[len(rest) & ~1 :]
    return rest[0]


def reduce(builder: Builder, fold: str, value: Value) -> Value:
    """Fold the lanes, a power of two of them, to one element: halves are combined until one lane is left."""
    combine = COMBINE_BY_FOLD[fold]
    lanes = lane_of(value).lanes
    while lanes > 1:
        lanes //= 2
        low, high = (part(builder, value, start, lanes) for start in (0, lanes))
        value = combine(builder, low, high)
    return value


def part(builder: Builder, value: Value, start: int, lanes: int) -> Value:
    """Return some consecutive lanes."""
    return extract(builder, value, start) if lanes == 1 else permute(builder, value, range(start, start + lanes))


def by_registers(builder: Builder, lanes: int, emit: Callable[..., Value], *values: Value) -> Value:
    """Apply to values what is there for so many lanes only: in halves to more, with undefined lanes to fewer."""
    count = lane_of(values[0]).lanes
    if count <= lanes:
        wide = (_widened(builder, value, lanes) for value in values)
        return part(builder, emit(*wide), 0, count)
    starts = (0, count // 2)
    low, high = (by_registers(builder, lanes, emit, *(part(builder, v, s, count // 2) for v in values)) for s in starts)
    return builder.shuffle_vector(low, high, lane_picks(range(count)))


def _widened(builder: Builder, value: Value, lanes: int) -> Value:
    own = lane_of(value)
    if own.lanes == 1:
        return builder.insert_element(ir.Constant(ir.VectorType(own.type, lanes), ir.Undefined), value, I32(0))
    return permute(builder, value, [min(i, own.lanes) for i in range(lanes)])


def permute(builder: Builder, value: Value, numbers: Sequence[int]) -> Value:
    """Return the lanes of a value with these numbers, each as often as it is named; undefined where there is none."""
    if lane_of(value).lanes == 1:
        return splat(builder, value, len(numbers))
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), lane_picks(numbers))


def transpose(builder: Builder, rows: Sequence[Value]) -> list[Value]:
    """Return the columns of a square of as many vectors as each has lanes, a power of two.

    Fewer vectors, a power of two as well, are several squares side by side, each of which is turned around.

    Source: Eklundh, A Fast Computer Method for Matrix Transposing, 1972: blocks are swapped, halving their size.
    """
    lanes, out = lane_of(rows[0]).lanes, list(rows)
    step = len(rows) // 2
    while step:
        low = [lane if not lane & step else lanes + lane - step for lane in range(lanes)]
        high = [lane + step if not lane & step else lanes + lane for lane in range(lanes)]
        for row in range(len(rows)):
            if not row & step:
                a, b = out[row], out[row + step]
                for target, numbers in ((row, low), (row + step, high)):
                    out[target] = builder.shuffle_vector(a, b, lane_picks(numbers))
        step //= 2
    return out
