"""The instruction that adds products up in a contraction: of one value in a lane, or of several narrow ones at once.

    sums[lane] += sum over u of left[k + u] * right[lane, k + u]          u = 0 .. steps - 1

Values of several steps fill the four bytes of a lane. The depth is counted in turns of so many steps; what a last turn
lacks is zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir

from frittata.egraph import dtypes
from frittata.kernels import simd
from frittata.kernels.contractions import Contraction, InPlace, Side
from frittata.kernels.intervals import interval, lies_in, of_dtype
from frittata.kernels.processor import processor
from frittata.kernels.simd import I8, I16, Builder, Lane, Value

_LANE_BITS = 32
_PAIRS_BY_WIDTH = {16: "sse2.pmadd.wd", 32: "avx2.pmadd.wd", 64: "avx512.pmaddw.d.512"}
_SLOWER = {"i32": 2.0, "i64": 6.0}
"""How much longer products of wide integers take than those of floats; there are no fused ones."""
_UNFUSED_PAIRS = 1.3


@dataclass(frozen=True)
class MultiplyAdd:
    """`steps` products at once, of values of the dtypes `left` and `right`, added to sums of the dtype `sums`.

    One step takes values of the dtype of the sums: what is stored of a side is widened where it is loaded.
    """

    steps: int
    left: str
    right: str
    sums: str

    def turns(self, depth: int) -> int:
        """Return how many turns the depth takes."""
        return -(-depth // self.steps)

    @property
    def panel(self) -> str:
        """The dtype by which what is multiplied is loaded from panels: lanes filled by several values are one."""
        return self.right if self.steps == 1 else self.sums

    @property
    def flushes(self) -> bool:
        """Whether the instruction takes denormal numbers for zeros."""
        return self.steps > 1 and self.sums == "f32"

    @property
    def slower(self) -> float:
        """How much longer the instruction takes than a fused multiply-add of floats."""
        if self.steps == 1:
            return _SLOWER.get(self.sums, 1.0)
        return _UNFUSED_PAIRS if self.left == "i16" and not processor().multiplies_bytes else 1.0

    def emit(self, builder: Builder, a: Value, b: Value, total: Value) -> Value:
        """Return `total` and the products of two vectors of lanes."""
        if self.steps == 1:
            if dtypes.is_float(self.sums):
                return simd.fma(builder, a, b, total)
            return simd.add(builder, total, simd.multiply(builder, a, b))
        scalar = {"bf16": _Bfloat(), "i16": I16}.get(self.left, I8)
        pieces = ir.VectorType(scalar, simd.lane_of(total).lanes * self.steps)
        a, b = (builder.bitcast(value, pieces) for value in (a, b))
        width = processor().width
        if self.left == "bf16":
            return _call(builder, f"avx512bf16.dpbf16ps.{8 * width}", total, a, b)
        if self.left == "i16":
            symbol = f"llvm.x86.{_PAIRS_BY_WIDTH[width]}"
            return builder.add(total, simd.call_symbol(builder, symbol, total.type, [a, b]))
        unsigned, signed = (a, b) if self.left == "u8" else (b, a)
        return _call(builder, f"avx512.vpdpbusd.{8 * width}", total, unsigned, signed)

    def joined(self, builder: Builder, values: Sequence[Value]) -> Value:
        """Return lanes filled by values of the right side for consecutive steps, zeros where there are fewer."""
        if self.steps == 1:
            return values[0]
        bits = _LANE_BITS // self.steps
        integers = Lane("i32", simd.lane_of(values[0]).lanes)
        out = simd.constant(integers, 0)
        for step, value in enumerate(values):
            if self.right == "bf16":
                raw = builder.lshr(builder.bitcast(value, integers.type), simd.constant(integers, bits))
            else:
                raw = builder.and_(value, simd.constant(integers, 2**bits - 1))
            out = builder.or_(out, builder.shl(raw, simd.constant(integers, bits * step)))
        return builder.bitcast(out, integers.of(self.sums).type)

    def sides(self, work: Contraction) -> tuple[Side, Side]:
        """Return what is multiplied, as it is evaluated into rows and panels."""
        return (work.left, work.right) if self.steps == 1 else (work.left.kept, work.right.kept)

    def rows(self, work: Contraction) -> InPlace | None:
        """Return the rows of the left side if they can be used where they lie; their runs count lanes, not values."""
        rows = self.sides(work)[0].rows(work.depth)
        if rows is None or self.steps == 1:
            return rows
        *outer, (length, step) = rows.runs
        whole = not any(n % self.steps for n in (length, *(stride for _, stride in outer)))
        if rows.leaf.dtype != self.left or step != 1 or not whole:
            return None
        lanes = [(count, stride // self.steps) for count, stride in outer]
        return replace(rows, runs=(*lanes, (length // self.steps, 1)))


def plain(dtype: str, right: str | None = None) -> MultiplyAdd:
    """Return the multiply-add of single values; those of the right side may be stored in a narrower dtype."""
    return MultiplyAdd(1, dtype, right or dtype, dtype)


def choose(work: Contraction, constants: frozenset[str], *, flushes: bool = False) -> MultiplyAdd:
    """Return the instruction that does most of a product at once.

    `flushes`: one that takes denormal numbers for zeros is admitted.
    """
    packed = work.right.is_constant(constants)
    single = plain(work.dtype, work.right.stored.element.dtype if packed else None)
    if work.product.op != "dot" or work.itemsize * 8 != _LANE_BITS:
        return single
    left, right = work.left.kept, work.right.kept
    if left.element.dtype == right.element.dtype == "bf16":
        return MultiplyAdd(2, "bf16", "bf16", "f32") if flushes and processor().multiplies_halves else single
    ends = [interval(side.element) for side in (left, right)]
    if work.dtype != "i32" or None in ends:
        return single
    if processor().multiplies_bytes:
        for pair in (("u8", "i8"), ("i8", "u8")):
            if _fit(ends, pair):
                return MultiplyAdd(4, *pair, "i32")
    if processor().multiplies_pairs and _fit(ends, ("i16", "i16")):
        return MultiplyAdd(2, "i16", "i16", "i32")
    return single


def _fit(ends: Sequence[Any], pair: Sequence[str]) -> bool:
    return all(lies_in(found, of_dtype(dtype)) for found, dtype in zip(ends, pair, strict=True))


class _Bfloat(ir.Type):
    """The LLVM type of bfloat16, which llvmlite does not know."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bfloat)

    def __hash__(self) -> int:
        return hash(_Bfloat)


def _call(builder: Builder, name: str, total: Value, a: Value, b: Value) -> Value:
    return simd.call_symbol(builder, f"llvm.x86.{name}", total.type, [total, a, b])
