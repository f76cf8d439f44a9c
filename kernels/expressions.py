"""Arithmetic on LLVM values in Python's operators, so that formulas read as formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from frittata.kernels import simd
from frittata.kernels.processor import processor
from frittata.kernels.simd import Builder, Lane, Value

Number = float | int

_SCALE_BY_DTYPE = {"f32": "ps", "f64": "pd"}
"""How AVX-512 names the instruction that multiplies by a power of two."""
_AS_IT_IS_SET = 4
"""Its rounding."""


@dataclass(frozen=True)
class Expr:
    """A float value on a builder. Each operator rounds once; nothing is contracted or reordered."""

    builder: Builder
    value: Value

    @property
    def lane(self) -> Lane:
        """The type of the value."""
        return simd.lane_of(self.value)

    @property
    def is_double(self) -> bool:
        """Whether it is in double precision."""
        return self.lane.dtype == "f64"

    def wrap(self, value: Value) -> Expr:
        """Return another value on the same builder."""
        return Expr(self.builder, value)

    def number(self, other: Expr | Number) -> Expr:
        """Return a constant of the same type; an expression stays as it is."""
        return other if isinstance(other, Expr) else self.wrap(simd.constant(self.lane, other))

    def _float(self, emit: Any, left: Expr | Number, right: Expr | Number) -> Expr:
        return self.wrap(emit(self.number(left).value, self.number(right).value))

    def __add__(self, other: Expr | Number) -> Expr:
        return self._float(self.builder.fadd, self, other)

    def __radd__(self, other: Number) -> Expr:
        return self._float(self.builder.fadd, other, self)

    def __sub__(self, other: Expr | Number) -> Expr:
        return self._float(self.builder.fsub, self, other)

    def __rsub__(self, other: Number) -> Expr:
        return self._float(self.builder.fsub, other, self)

    def __mul__(self, other: Expr | Number) -> Expr:
        return self._float(self.builder.fmul, self, other)

    def __rmul__(self, other: Number) -> Expr:
        return self._float(self.builder.fmul, other, self)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return self._float(self.builder.fdiv, self, other)

    def __rtruediv__(self, other: Number) -> Expr:
        return self._float(self.builder.fdiv, other, self)

    def __neg__(self) -> Expr:
        return self.wrap(self.builder.fneg(self.value))

    def __abs__(self) -> Expr:
        return self.call("fabs")

    def is_(self, relation: str, other: Expr | Number) -> Value:
        """Return the mask of lanes where `self <relation> other`; with a NaN only `!=` holds."""
        return simd.compare(self.builder, relation, self.value, self.number(other).value)

    def where(self, condition: Value, other: Expr | Number) -> Expr:
        """Return `self` where the condition holds and `other` elsewhere."""
        return self.wrap(self.builder.select(condition, self.value, self.number(other).value))

    def fma(self, factor: Expr | Number, addend: Expr | Number) -> Expr:
        """Return `self * factor + addend`, rounded once."""
        return self.wrap(simd.fma(self.builder, self.value, self.number(factor).value, self.number(addend).value))

    def polynomial(self, coefficients: Sequence[float]) -> Expr:
        """Return the polynomial in `self`, highest power first, by Horner's rule."""
        result = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            result = result.fma(self, coefficient)
        return result

    def clamp(self, low: float, high: float) -> Expr:
        """Return the nearest value in [low, high]; a NaN stays."""
        return self.at_most(high).at_least(low)

    # One instruction each on x86, where IEEE's minimum and maximum take seven.

    def at_most(self, high: float) -> Expr:
        """Return the smaller of the value and a bound; a NaN stays."""
        return self.number(high).where(self.is_(">", high), self)

    def at_least(self, low: float) -> Expr:
        """Return the larger of the value and a bound; a NaN stays."""
        return self.number(low).where(self.is_("<", low), self)

    def call(self, name: str, *others: Expr) -> Expr:
        """Return what an LLVM intrinsic such as `floor` computes, of the same type."""
        operands = [self.value, *(other.value for other in others)]
        return self.wrap(simd.call_intrinsic(self.builder, name, self.value.type, operands))

    def copysign(self, other: Expr) -> Expr:
        """Return the magnitude of `self` with the sign of `other`."""
        return self.call("copysign", other)

    def bits(self) -> Value:
        """Return the bit pattern as integers of the same width."""
        return self.builder.bitcast(self.value, self.lane.of("i64" if self.is_double else "i32").type)

    def from_bits(self, bits: Value) -> Expr:
        """Return the float whose bit pattern is given."""
        return self.wrap(self.builder.bitcast(bits, self.value.type))

    def to(self, dtype: str) -> Expr:
        """Return the value rounded to f32, or widened to f64."""
        if self.lane.dtype == dtype:
            return self
        convert = self.builder.fpext if dtype == "f64" else self.builder.fptrunc
        return self.wrap(convert(self.value, self.lane.of(dtype).type))

    @property
    def scales(self) -> bool:
        """Whether `scaled` is there: AVX-512 has an instruction for it."""
        return processor().width == 64

    def scaled(self, exponent: Expr) -> Expr:
        """Return `self` times two to the power of the integer that is `exponent` or the next below, rounded once."""
        lanes = 64 // self.lane.itemsize
        symbol = f"llvm.x86.avx512.mask.scalef.{_SCALE_BY_DTYPE[self.lane.dtype]}.512"
        every, rounding = ir.Constant(ir.IntType(lanes), -1), ir.Constant(simd.I32, _AS_IT_IS_SET)

        def emit(value: Value, power: Value) -> Value:
            return simd.call_symbol(self.builder, symbol, value.type, [value, power, value, every, rounding])

        return self.wrap(simd.by_registers(self.builder, lanes, emit, self.value, exponent.value))

    def by_lane(self, symbol: str, *others: Expr) -> Expr:
        """Return what a scalar C function computes, called lane by lane."""
        operands = [self.value, *(other.value for other in others)]
        results: list[Value] = []
        for i in range(self.lane.lanes):
            scalars = [simd.extract(self.builder, operand, i) for operand in operands]
            results.append(simd.call_symbol(self.builder, symbol, self.lane.scalar, scalars))
        return self.wrap(simd.from_scalars(self.builder, results))
