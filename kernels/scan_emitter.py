"""Running folds as vector code: down the columns of a block, or along one line."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from frittata.egraph import dtypes, program
from frittata.egraph.terms import Term
from frittata.kernels import memory, simd
from frittata.kernels.element_emitter import ElementEmitter
from frittata.kernels.flow import for_range, rarely
from frittata.kernels.frames import LANES
from frittata.kernels.guards import guard_of
from frittata.kernels.index_values import Along
from frittata.kernels.intrinsics import operand_pointers, result_pointers
from frittata.kernels.scans import SEQUENCE, ScanPlan
from frittata.kernels.simd import I64, Builder, Lane, Value
from frittata.kernels.stores import stored_at


class ScanEmitter:
    """Emits at a builder's position what one row takes. The table holds operands, results, then the status if any."""

    def __init__(
        self, builder: Builder, plan: ScanPlan, bodies: tuple[Term, ...], table: Value, rows: Sequence[Value]
    ) -> None:
        self._builder, self._plan = builder, plan
        leaves = list(program.operands_of(*bodies))
        pointers = operand_pointers(builder, table, leaves)
        self._results = result_pointers(builder, table, len(leaves), bodies)
        variables: dict[int | str, Value] = dict(zip((loop.key for loop in plan.rows), rows, strict=True))
        guard = guard_of(builder, table, len(leaves) + len(bodies), bodies)
        self._base = ElementEmitter(builder, pointers, variables, guard=guard)
        self._offsets = [stored_at(body, plan.index) for body in bodies]

    def emit_columns(self, first: Value | int, valid: int | None) -> None:
        """Emit the folds down the columns from `first` on, a vector of them."""
        lanes = self._plan.lanes
        k = simd.as_index(first)
        along = Along(LANES, lanes, lanes, valid)
        base = self._base.inner({LANES: k}, along)

        def down(s: Value, totals: list[Value]) -> list[Value]:
            emitter = base.inner({SEQUENCE: s}, along)
            new = [self._folded(scan, t, self._operand(emitter, scan)) for scan, t in self._with(totals)]
            self._write(emitter, new, valid)
            return new

        neutral = [_neutral(Lane(scan.dtype, lanes), scan.attrs[0]) for scan in self._plan.scans]
        for_range(self._builder, 0, self._plan.steps, 1, neutral, down)

    def emit_line(self) -> None:
        """Emit the folds along one row."""
        lanes, extent = self._plan.lanes, self._plan.extent
        full = extent - extent % lanes

        def vector(k: Value, before: list[Value], valid: int | None) -> list[Value]:
            emitter = self._base.inner({LANES: k}, Along(LANES, lanes, lanes, valid))
            new = [self._along(scan, old, self._operand(emitter, scan)) for scan, old in self._with(before)]
            self._write(emitter, new, valid)
            return [simd.splat(self._builder, simd.extract(self._builder, total, lanes - 1), lanes) for total in new]

        totals = [_neutral(Lane(scan.dtype, lanes), scan.attrs[0]) for scan in self._plan.scans]
        totals = for_range(self._builder, 0, full, lanes, totals, lambda k, before: vector(k, before, None))
        if full != extent:
            vector(I64(full), totals, extent - full)

    def _with(self, totals: Sequence[Value]) -> list[tuple[Term, Value]]:
        return list(zip(self._plan.scans, totals, strict=True))

    def _operand(self, emitter: ElementEmitter, scan: Term) -> Value:
        return emitter.emit(scan.args[0], self._plan.index)

    def _folded(self, scan: Term, total: Value, value: Value) -> Value:
        return simd.COMBINE_BY_FOLD[scan.attrs[0]](self._builder, total, value)

    def _along(self, scan: Term, before: Value, value: Value) -> Value:
        """Fold each lane with all before it, and those with what was before.

        Products of floats are folded one after the other where some in the lanes is not of a normal size: those of
        later values alone may overflow, or lose all precision, where what they are multiplied with makes them finite.
        """
        products: list[Value] = []
        new = self._folded(scan, before, self._prefix(scan, value, products))
        if scan.attrs[0] != "prod" or not dtypes.is_float(simd.lane_of(value).dtype):
            return new
        odd = simd.any_lane(self._builder, self._are_odd(products))
        return rarely(self._builder, odd, new, lambda: self._in_order(scan, before, value))

    def _are_odd(self, values: Sequence[Value]) -> Value:
        """Return the lanes in which a value is zero, denormal, infinite or NaN: the others' bits lie between two."""
        builder, info = self._builder, dtypes.finfo(simd.lane_of(values[0]).dtype)
        whole = ir.IntType(info.bits)
        integers = ir.VectorType(whole, self._plan.lanes) if self._plan.lanes > 1 else whole
        tiny, infinite, sign = (1 << info.nmant, ((1 << info.iexp) - 1) << info.nmant, 1 << (info.bits - 1))

        def every(number: int) -> Value:
            return ir.Constant(integers, [number] * self._plan.lanes if self._plan.lanes > 1 else number)

        farthest = every(0)
        for value in values:
            size = builder.and_(builder.bitcast(value, integers), every(sign - 1))
            above = builder.sub(size, every(tiny))
            farthest = builder.select(builder.icmp_unsigned(">", above, farthest), above, farthest)
        return builder.icmp_unsigned(">=", farthest, every(infinite - tiny))

    def _in_order(self, scan: Term, before: Value, value: Value) -> Value:
        total, out = simd.extract(self._builder, before, 0), value
        for lane in range(self._plan.lanes):
            total = self._folded(scan, total, simd.extract(self._builder, value, lane))
            out = simd.insert(self._builder, out, total, lane)
        return out

    def _prefix(self, scan: Term, value: Value, passed: list[Value]) -> Value:
        """Fold each lane with all before it, distances of 1, 2, 4, ... at a time; add what it passes through.

        Source: Hillis and Steele, Data Parallel Algorithms, 1986.
        """
        lanes, distance = self._plan.lanes, 1
        neutral = _neutral(simd.lane_of(value), scan.attrs[0])
        passed.append(value)
        while distance < lanes:
            picks = simd.lane_picks(range(lanes - distance, 2 * lanes - distance))
            value = self._folded(scan, self._builder.shuffle_vector(neutral, value, picks), value)
            passed.append(value)
            distance *= 2
        return value

    def _write(self, emitter: ElementEmitter, totals: Sequence[Value], valid: int | None) -> None:
        index = self._plan.index
        for scan, total in self._with(totals):
            emitter.know(scan, index, total)
        values = [emitter.emit(element, index) for element in self._plan.elements]
        for pointer, value, at in zip(self._results, values, self._offsets, strict=True):
            memory.store_masked(self._builder, value, pointer, emitter.values.first(at), valid)


def _neutral(lane: Lane, fold: str) -> Value:
    """Return the value that changes nothing: of sums of floats that is -0.0, for 0.0 would change -0.0 itself.

    Beside zeros LLVM moves floats by vexpandps, for which Zen 4 takes twice as long.
    """
    is_sum_of_floats = fold == "sum" and dtypes.is_float(lane.dtype)
    return simd.constant(lane, -0.0) if is_sum_of_floats else simd.neutral(lane, fold)
