"""Pieces of rows as vector code: what one chunk folds and leaves, and how what all have left is combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frittata.egraph.indexing import var
from frittata.egraph.terms import Term
from frittata.kernels import memory, simd
from frittata.kernels.element_emitter import ElementEmitter
from frittata.kernels.flow import for_range, repeat
from frittata.kernels.frames import LANES
from frittata.kernels.index_values import Along
from frittata.kernels.passes import Passes
from frittata.kernels.pieces import STEPS, Partials, Pieces
from frittata.kernels.points import reduction
from frittata.kernels.row_emitter import Carried, Part, RowEmitter, Span, Variables
from frittata.kernels.simd import I64, Builder, Lane, Value


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns from `first` to `stop`, whole vectors; and those after the last whole vector if `ends` is 1."""

    first: Value
    stop: Value
    ends: Value


class PieceEmitter(RowEmitter):
    """Emits at a builder's position; what chunks leave lies in memory that begins at an int64 address."""

    def __init__(
        self,
        builder: Builder,
        plan: Passes,
        bodies: tuple[Term, ...],
        table: Value,
        rows: Sequence[Value],
        pieces: Pieces,
        address: Value,
    ) -> None:
        super().__init__(builder, plan, bodies, table, rows, I64(0))
        self._pieces, self._address = pieces, address
        self._partials = Partials(plan, pieces)
        self._folds = plan.passes[0].folds

    def emit_piece(self, span: Span, ends: Value, chunk: Value) -> None:
        """Emit the folds of a piece of a row; `ends` is 1 in the last piece, which takes the rest."""
        self._hoist(self._base, 0)
        turn = self._plan.vectors
        neutral = [self._neutral(fold, self._frame.lanes) for fold in self._folds for _ in range(turn)]
        full = self._frame.extent - self._frame.extent % (turn * self._frame.lanes)

        def part(variables: Variables, sums: Carried) -> Carried:
            sums = self._blocks(variables, sums, 0, span)
            return for_range(self._builder, 0, ends, 1, sums, lambda _, s: self._rest(variables, s, 0, full))

        def whole(variables: Variables, sums: Carried) -> Carried:
            return self._lanes(variables, sums, 0)

        if self._pieces.along_lanes:
            sums = self._sequence(self._frame.sequence, {}, neutral, part)
        else:
            sums = self._sequence(self._frame.sequence, {}, neutral, whole, span)
        for i, fold in enumerate(self._folds):
            op = reduction(fold.term).op
            total = simd.reduce(self._builder, op, simd.combined(self._builder, op, sums[i * turn : (i + 1) * turn]))
            memory.store(self._builder, total, self._partial(chunk, i))

    def emit_steps(self, span: Span, chunk: Value) -> None:
        """Emit the folds of some steps of the sequence over all columns, which are few: accumulators are registers."""
        frame, turn = self._frame, self._frame.lanes * self._plan.vectors
        full = frame.extent - frame.extent % turn

        def block(first: Value | int, widths: Sequence[int | None]) -> None:
            bases = self._column_bases(first, widths)
            sums = iter(self._columns(bases, widths, 0, span))
            for base in bases:
                at = base.values.first(var(LANES, frame.extent))
                for i in range(len(self._folds)):
                    memory.store(self._builder, next(sums), self._partial(chunk, i), at)

        repeat(self._builder, 0, full, turn, lambda k: block(k, [None] * self._plan.vectors))
        if full != frame.extent:
            rest = range(full, frame.extent, frame.lanes)
            block(full, [frame.extent - k if frame.extent - k < frame.lanes else None for k in rest])

    def emit_slice(self, columns: Columns, chunk: Value) -> None:
        """Emit the folds of a slice of the columns, some rows of it at a time: accumulators lie in the cache."""
        *outer, last = self._frame.sequence
        rest = last.extent % STEPS
        places = [self._partial(chunk, i) for i in range(len(self._folds))]

        def clear(k: Value, _: int | None) -> None:
            for fold, place in zip(self._folds, places, strict=True):
                at = self._builder.sub(k, columns.first)
                memory.store(self._builder, self._neutral(fold, self._frame.lanes), place, at)

        def fold_steps(variables: Variables, first: Value, count: int) -> None:
            def visit(k: Value, valid: int | None) -> None:
                base = self._base.inner({**variables, LANES: k}, self._along(valid))
                self._hoist(base, 0)
                at = self._builder.sub(k, columns.first)
                sums = self._left(places, at)
                for u in range(count):
                    step = base.inner({last.key: self._builder.add(first, I64(u))}, base.values.along)
                    self._fetch_steps(step, count)
                    sums = self._step([Part(step, sums, valid)], 0)[0]
                for total, place in zip(sums, places, strict=True):
                    memory.store(self._builder, total, place, at)

            self._each_column(columns, visit)

        def down(variables: Variables, carried: Carried) -> Carried:
            whole = last.extent - rest
            repeat(self._builder, 0, whole, STEPS, lambda first: fold_steps(variables, first, STEPS))
            if rest:
                fold_steps(variables, I64(whole), rest)
            return carried

        self._each_column(columns, clear)
        self._sequence(outer, {}, [], down)
        self._each_column(columns, lambda k, valid: self._combine(chunk, k, self._builder.sub(k, columns.first), valid))

    def _fetch_steps(self, emitter: ElementEmitter, count: int) -> None:
        """Ask for what is read so many steps later, where slices are narrow: the next row is too far for the processor.

        Source: two Zen 4 cores, slices of 1, 2, 4 and 8 KiB: 1.1 to 1.2, 1.09, 0.97 to 1.04 and 0.9 times as fast.
        """
        for point, apart in self._plan.steps_apart.items():
            if not self._pieces.is_narrow(Lane(point.term.dtype).itemsize):
                continue
            first = emitter.values.first(self._plan.points.offset(point))
            at = self._builder.add(first, I64(apart * count))
            memory.prefetch(self._builder, self._pointers[point.term.args[0]], at, locality=3)

    def emit_combined(self, row: Value) -> None:
        """Combine the folds that the pieces of a row have left, in order, and write the results."""
        frame, first = self._frame, self._builder.mul(row, I64(self._pieces.count))
        if frame.columns:
            every = Columns(I64(0), I64(frame.extent - frame.extent % frame.lanes), I64(1))
            self._each_column(every, lambda k, valid: self._combine(first, k, k, valid))
        else:
            self._combine(first, None, I64(0), None)

    def _combine(self, first: Value, k: Value | None, at: Value, valid: int | None) -> None:
        """Combine what pieces have left, the first of them in chunk `first`, and write one vector or element."""
        base = self._base.inner({LANES: k}, self._along(valid)) if k is not None else self._base
        lanes = base.values.lanes

        def add(piece: Value, totals: list[Value]) -> list[Value]:
            chunk = self._builder.add(first, piece)
            left = self._left([self._partial(chunk, i) for i in range(len(totals))], at, lanes)
            pairs = zip(self._folds, totals, left, strict=True)
            return [simd.COMBINE_BY_FOLD[reduction(fold.term).op](self._builder, a, b) for fold, a, b in pairs]

        neutral = [self._neutral(fold, lanes) for fold in self._folds]
        totals = for_range(self._builder, 0, self._pieces.count, 1, neutral, add)
        for fold, total in zip(self._folds, totals, strict=True):
            self._know(base, fold, total)
        self._write(base, range(len(self._results)), valid)

    def _each_column(self, columns: Columns, visit: Callable[[Value, int | None], None]) -> None:
        """Emit a loop over the vectors of columns, and the last one, of which only some lanes are valid."""
        frame = self._frame
        full = frame.extent - frame.extent % frame.lanes

        repeat(self._builder, columns.first, columns.stop, frame.lanes, lambda k: visit(k, None))
        if full != frame.extent:
            repeat(self._builder, 0, columns.ends, 1, lambda _: visit(I64(full), frame.extent - full))

    def _along(self, valid: int | None) -> Along:
        return Along(LANES, self._frame.lanes, self._frame.lanes, valid)

    def _partial(self, chunk: Value, number: int) -> Value:
        return self._partials.pointer(self._builder, self._address, chunk, number)

    def _left(self, places: Sequence[Value], at: Value, lanes: int | None = None) -> list[Value]:
        width = lanes or self._frame.lanes
        pairs = zip(self._folds, places, strict=True)
        return [memory.load(self._builder, Lane(fold.term.dtype, width), place, at) for fold, place in pairs]
