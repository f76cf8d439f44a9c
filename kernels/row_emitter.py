"""Rows as vector code: the passes of a plan over one row, over a block of columns, or over a part of a plain row.

A pass goes over a row in turns of a few vectors, each with an accumulator of its own; then over the vectors that are
left, of the last of which only some lanes may be valid; then it combines accumulators, and lanes, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from frittata.egraph import program
from frittata.egraph.indexing import Affine, var
from frittata.egraph.terms import Term
from frittata.kernels import memory, simd
from frittata.kernels.element_emitter import SIDE_BY_SIDE, ElementEmitter, side_by_side
from frittata.kernels.flow import for_range, repeat
from frittata.kernels.frames import LANES, Loop
from frittata.kernels.guards import guard_of
from frittata.kernels.index_values import Along
from frittata.kernels.intrinsics import operand_pointers, result_pointers, table_value
from frittata.kernels.lowered import aligned
from frittata.kernels.nans import blind_maxima
from frittata.kernels.passes import Passes
from frittata.kernels.points import Point, reduction
from frittata.kernels.simd import I64, Builder, Lane, Value
from frittata.kernels.stores import stored_at
from frittata.kernels.tiles import CACHE_LINE_BYTES

Carried = list[Value]
Variables = dict[int | str, Value]
Span = tuple[simd.Index, simd.Index]


@dataclass(frozen=True)
class Part:
    """A vector: its emitter and accumulators, its valid lanes (None: all), its place among those side by side."""

    emitter: ElementEmitter
    sums: Carried = field(default_factory=list[Value])
    valid: int | None = None
    column: int = 0


class RowEmitter:
    """Emits at a builder's position what one row takes.

    The table holds the operands of the bodies in order, the results, then scratch memory for the chunk's held rows; of
    the `whole` bodies where these are a range of others.
    """

    def __init__(
        self,
        builder: Builder,
        plan: Passes,
        bodies: tuple[Term, ...],
        table: Value,
        rows: Sequence[Value],
        chunk: Value,
        whole: tuple[Term, ...] = (),
    ) -> None:
        self._builder, self._plan, self._frame = builder, plan, plan.frame
        leaves = list(program.operands_of(*(whole or bodies)))
        self._pointers = operand_pointers(builder, table, leaves)
        self._results = result_pointers(builder, table, len(leaves), bodies)
        self._held = self._held_rows(table, len(leaves) + len(bodies), chunk)
        variables: Variables = dict(zip((loop.key for loop in plan.frame.rows), rows, strict=True))
        guard = guard_of(builder, table, len(leaves) + len(bodies) + bool(plan.scratch_bytes), whole or bodies)
        self._base = ElementEmitter(builder, self._pointers, variables, guard=guard)
        reduced = plan.frame.is_reduced
        index = {a: Affine() if reduced and a in plan.frame.bound else at for a, at in plan.frame.index.items()}
        self._offsets = [stored_at(body, index) for body in bodies]
        self._blind = blind_maxima(body.args[0] for body in bodies)

    def _held_rows(self, table: Value, position: int, chunk: Value) -> dict[Point, Value]:
        rows = self._plan.scratch_offsets
        if not rows:
            return {}
        total = aligned(self._plan.scratch_bytes)
        address = self._builder.add(table_value(self._builder, table, position), self._builder.mul(chunk, I64(total)))
        out: dict[Point, Value] = {}
        for point, offset in rows.items():
            lane = Lane(point.term.dtype)
            out[point] = memory.pointer_from_address(self._builder, lane, self._builder.add(address, I64(offset)))
        return out

    # ---- rows --------------------------------------------------------------------------------------------------------

    def emit_row(self) -> None:
        """Emit all passes over a row whose folds run over the lanes."""
        for number, step in enumerate(self._plan.passes):
            self._hoist(self._base, number)
            turn = self._plan.vectors
            neutral = [self._neutral(fold, self._frame.lanes) for fold in step.folds for _ in range(turn)]

            def along(variables: Variables, sums: Carried, number: int = number) -> Carried:
                return self._lanes(variables, sums, number)

            sums = self._sequence(self._frame.sequence, {}, neutral, along)
            for i, fold in enumerate(step.folds):
                total = simd.combined(self._builder, reduction(fold.term).op, sums[i * turn : (i + 1) * turn])
                self._know(self._base, fold, simd.reduce(self._builder, reduction(fold.term).op, total))
        if self._frame.is_reduced:
            self._write(self._base, range(len(self._results)), None)

    def _lanes(self, variables: Variables, sums: Carried, number: int) -> Carried:
        full = self._frame.extent - self._frame.extent % (self._plan.vectors * self._frame.lanes)
        sums = self._blocks(variables, sums, number, (0, full))
        return self._rest(variables, sums, number, full)

    def _blocks(self, variables: Variables, sums: Carried, number: int, span: Span) -> Carried:
        """Go over a span of whole turns."""
        width, turn = self._frame.lanes, self._plan.vectors

        def body(k: Value, carried: list[Value]) -> list[Value]:
            out = list(carried)
            if number == 1:
                self._fetch_ahead({**variables, LANES: k}, turn * width)
            starts = [self._builder.add(k, I64(u * width), flags=["nsw"]) if u else k for u in range(turn)]
            parts = [self._part({**variables, LANES: at}, out[u::turn], None) for u, at in enumerate(starts)]
            for u, new in enumerate(self._step(parts, number)):
                out[u::turn] = new
            return out

        return for_range(self._builder, *span, turn * width, sums, body)

    def _fetch_ahead(self, variables: Variables, count: int) -> None:
        """Ask for the elements of the next row that the first pass over it will read, a cache line at a time."""
        for point, stride in self._plan.fetched_ahead.items():
            values = self._base.inner(variables, Along(LANES, self._frame.lanes, self._frame.lanes)).values
            line = CACHE_LINE_BYTES // Lane(point.term.dtype).itemsize
            first = self._builder.add(values.first(self._plan.points.offset(point)), I64(stride))
            for start in range(0, count, line):
                at = self._builder.add(first, I64(start))
                memory.prefetch(self._builder, self._pointers[point.term.args[0]], at)

    def _rest(self, variables: Variables, sums: Carried, number: int, start: int) -> Carried:
        """Go over the vectors from `start` to the end, the last of which may be partial."""
        out, width, turn = list(sums), self._frame.lanes, self._plan.vectors
        for u, k in enumerate(range(start, self._frame.extent, width)):
            valid = self._frame.extent - k
            part = self._part({**variables, LANES: I64(k)}, out[u % turn :: turn], valid if valid < width else None)
            out[u % turn :: turn] = self._step([part], number)[0]
        return out

    def _part(self, variables: Variables, sums: Carried, valid: int | None) -> Part:
        along = Along(LANES, self._frame.lanes, self._frame.lanes, valid)
        return Part(self._base.inner(variables, along), sums, valid)

    # ---- parts of rows without folds ---------------------------------------------------------------------------------

    def emit_span(self, first: Value, stop: Value) -> None:
        """Emit the elements from `first` to `stop`, whole turns."""
        self._hoist(self._base, 0)
        self._blocks({}, [], 0, (first, stop))

    def emit_rest(self) -> None:
        """Emit the elements after the last whole turn."""
        self._hoist(self._base, 0)
        self._rest({}, [], 0, self._frame.extent - self._frame.extent % (self._plan.vectors * self._frame.lanes))

    # ---- tiles of rows and lanes -------------------------------------------------------------------------------------

    def emit_tiles(self, row: Value, start: Value, stop: Value) -> None:
        """Emit the tiles from `row` on and from lane `start` to `stop`, whole tiles, or the end.

        They fall into squares: loads that stride along the lanes run along the rows instead.
        """
        loop, tile, lanes = self._plan.tile_loop, self._plan.tile, self._frame.lanes
        assert loop is not None
        builder, last = self._builder, I64(self._frame.extent - tile)

        def square(i: Value, k: Value) -> None:
            turned = {point: self._turned(point, {loop.key: i, LANES: k}, loop) for point in self._plan.transposed}
            for r in range(lanes):
                at = builder.add(i, I64(r))
                emitter = self._base.inner({loop.key: at, LANES: k}, Along(LANES, lanes))
                for point, vectors in turned.items():
                    self._know(emitter, point, vectors[r])
                self._step([Part(emitter)], 0)

        def block(k: Value) -> None:
            # what lies over the end is computed twice
            first = simd.minimum(builder, k, last)
            repeat(builder, 0, self._plan.tile_rows, lanes, lambda i: within(builder.add(row, i), first))

        def within(i: Value, first: Value) -> None:
            repeat(builder, 0, tile, lanes, lambda k: square(i, builder.add(first, k)))

        repeat(builder, start, stop, tile, block)

    def _turned(self, point: Point, variables: Variables, loop: Loop) -> list[Value]:
        """Load a square along the rows and return it along the lanes."""
        vectors: list[Value] = []
        for lane in range(self._frame.lanes):
            k = self._builder.add(variables[LANES], I64(lane))
            emitter = self._base.inner({**variables, LANES: k}, Along(loop.key, self._frame.lanes))
            vectors.append(emitter.emit(point.term, point.where.index))
        return simd.transpose(self._builder, vectors)

    # ---- columns -----------------------------------------------------------------------------------------------------

    def emit_columns(self, first: Value | int, widths: Sequence[int | None]) -> None:
        """Emit all passes over columns from `first` on, a vector for each of `widths`, its valid lanes (None: all)."""
        bases = self._column_bases(first, widths)
        for number, step in enumerate(self._plan.passes):
            sums = iter(self._columns(bases, widths, number))
            for base in bases:
                for fold in step.folds:
                    self._know(base, fold, next(sums))
        if self._frame.is_reduced:
            for base, valid in zip(bases, widths, strict=True):
                self._write(base, range(len(self._results)), valid)

    def _column_bases(self, first: Value | int, widths: Sequence[int | None]) -> list[ElementEmitter]:
        lanes, builder = self._frame.lanes, self._builder
        bases: list[ElementEmitter] = []
        for v, valid in enumerate(widths):
            k = I64(first + v * lanes) if isinstance(first, int) else builder.add(first, I64(v * lanes))
            bases.append(self._base.inner({LANES: k}, Along(LANES, lanes, lanes, valid)))
        return bases

    def _columns(
        self, bases: Sequence[ElementEmitter], widths: Sequence[int | None], number: int, span: Span | None = None
    ) -> Carried:
        """Emit a pass down columns and return its folds, vector by vector."""
        folds = self._plan.passes[number].folds
        for base in bases:
            self._hoist(base, number)
        neutral = [self._neutral(fold, self._frame.lanes) for _ in bases for fold in folds]

        def down(variables: Variables, sums: Carried) -> Carried:
            count = len(folds)
            parts = [
                Part(base.inner(variables, base.values.along), sums[v * count : (v + 1) * count], widths[v], v)
                for v, base in enumerate(bases)
            ]
            together = (parts[at : at + SIDE_BY_SIDE] for at in range(0, len(parts), SIDE_BY_SIDE))
            return [value for some in together for new in self._step(some, number) for value in new]

        return self._sequence(self._frame.sequence, {}, neutral, down, span)

    # ---- what vectors side by side take ------------------------------------------------------------------------------

    def _step(self, parts: Sequence[Part], number: int) -> list[Carried]:
        """Emit a pass for some vectors and return their accumulators.

        Each value is emitted for all of them before the next: a processor looks only so far ahead for what does not
        wait for what came before.
        """
        for point in self._plan.read_back(number):
            for part in parts:
                self._know(part.emitter, point, self._load_held(part, point))
        emitters = [part.emitter for part in parts]
        for point in self._plan.roots(number):
            side_by_side(emitters, point.term, point.where.index)
        return [self._finish(part, number) for part in parts]

    def _finish(self, part: Part, number: int) -> Carried:
        """Fold and store what has been computed for a vector."""
        step, emitter, valid = self._plan.passes[number], part.emitter, part.valid
        out: list[Value] = []
        for fold, total in zip(step.folds, part.sums, strict=True):
            inner = self._plan.points.args(fold)[0]
            value = emitter.emit(inner.term, inner.where.index)
            if valid is not None:
                mask = memory.valid_mask(self._builder, simd.lane_of(value), valid)
                value = simd.select(self._builder, mask, value, self._neutral(fold, self._frame.lanes))
            combine = simd.larger if fold.term in self._blind else simd.COMBINE_BY_FOLD[reduction(fold.term).op]
            out.append(combine(self._builder, value, total))
        values = [emitter.emit(point.term, point.where.index) for point in step.held]
        self._write(emitter, step.outputs, valid)
        for point, value in zip(step.held, values, strict=True):
            pointer, offset = self._place(part, point)
            memory.store_masked(self._builder, value, pointer, offset, valid)
        return out

    def _write(self, emitter: ElementEmitter, outputs: Sequence[int], valid: int | None) -> None:
        """Store outputs, once all of them are computed: one may lie where an operand of another does."""
        points = [self._plan.outputs[i] for i in outputs]
        values = [emitter.emit(point.term, point.where.index) for point in points]
        for i, value in zip(outputs, values, strict=True):
            offset = emitter.values.first(self._offsets[i])
            memory.store_masked(self._builder, value, self._results[i], offset, valid)

    def _place(self, part: Part, point: Point) -> tuple[Value, Value]:
        """Return where a held point lies: in its output, or in a row of scratch memory."""
        output = self._plan.output_by_held.get(point)
        if output is not None:
            return self._results[output], part.emitter.values.first(self._offsets[output])
        frame = self._frame
        step = Affine()
        for loop in frame.sequence:
            step = step * loop.extent + var(loop.key, loop.extent)
        if frame.columns:
            at = step * (frame.lanes * self._plan.vectors) + part.column * frame.lanes
        else:
            at = step * frame.extent + var(LANES, frame.extent)
        return self._held[point], part.emitter.values.first(at)

    def _load_held(self, part: Part, point: Point) -> Value:
        pointer, offset = self._place(part, point)
        lane = Lane(point.term.dtype, part.emitter.values.lanes)
        return memory.load_masked(self._builder, lane, pointer, offset, part.valid)

    # ---- parts -------------------------------------------------------------------------------------------------------

    def _hoist(self, emitter: ElementEmitter, number: int) -> None:
        """Emit what is the same throughout a pass before its loops."""
        for key in self._plan.fixed_lookups(number):
            emitter.look_up(key)
        for point in self._plan.uniform(number):
            emitter.emit_narrow(point.term, point.where.index)

    def _sequence(
        self,
        loops: Sequence[Loop],
        variables: Variables,
        carried: Carried,
        body: Callable[[Variables, Carried], Carried],
        span: Span | None = None,
    ) -> Carried:
        """Emit loops around a body; `span` is the part of the outermost that is run."""
        if not loops:
            return body(variables, carried)
        first, *rest = loops

        def turn(value: Value, values: list[Value]) -> list[Value]:
            return self._sequence(rest, {**variables, first.key: value}, values, body)

        return for_range(self._builder, *(span or (0, first.extent)), 1, carried, turn)

    def _neutral(self, fold: Point, lanes: int) -> Value:
        return simd.neutral(Lane(fold.term.dtype, lanes), reduction(fold.term).op)

    @staticmethod
    def _know(emitter: ElementEmitter, point: Point, value: Value) -> None:
        emitter.know(point.term, point.where.index, value)
