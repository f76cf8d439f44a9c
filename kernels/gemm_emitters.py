"""The pieces of a contraction's kernel as vector code: register tiles, their epilogue, and what fills scratch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from frittata.egraph.indexing import Affine, var
from frittata.egraph.terms import Term
from frittata.kernels import memory, simd
from frittata.kernels.contractions import Contraction, Run, Side, loads_of
from frittata.kernels.element_emitter import SIDE_BY_SIDE, ElementEmitter, side_by_side
from frittata.kernels.flow import repeat
from frittata.kernels.gemm_schedule import Source
from frittata.kernels.index_values import Along, IndexValues
from frittata.kernels.intrinsics import operand_pointers, table_pointer
from frittata.kernels.multiply_adds import MultiplyAdd
from frittata.kernels.packing import RegisterTile, pitch
from frittata.kernels.processor import processor
from frittata.kernels.simd import I64, Builder, Index, Lane, Value
from frittata.kernels.tiles import Accumulators, emit_window_tile, unroll_for
from frittata.kernels.units import apart

Emit = Callable[..., None]

_COLUMN_ROWS = 4
"""Rows that are stored together where they are neighbours in memory."""


def lanes_of(dtype: str) -> int:
    """Return how many lanes of a floating-point dtype a register has."""
    return processor().width // Lane(dtype).itemsize


@dataclass(frozen=True)
class DepthPart:
    """One of `parts` of the depth, `steps` each, but for the last; `ends`: it is the last, and gives the outputs."""

    steps: int
    parts: int
    ends: bool


@dataclass(frozen=True)
class Code:
    """Emits the pieces of one kernel, whose table starts with its `operands` and goes on with its results.

    Rows and panels hold lanes as `multiply` wants them, and the depth is counted in its turns.
    """

    work: Contraction
    tile: RegisterTile
    operands: tuple[Term, ...]
    multiply: MultiplyAdd

    @property
    def lanes(self) -> int:
        """The lanes of a vector of the product."""
        return self.tile.lanes

    @property
    def lane(self) -> Lane:
        """The type of a vector of the product, and of what rows and panels are loaded in: the values of a few steps."""
        return Lane(self.work.dtype, self.lanes)

    @property
    def turns(self) -> int:
        """The depth, in turns of the loop over it."""
        return self.multiply.turns(self.work.depth)

    @property
    def width(self) -> int:
        """The columns of a panel."""
        return self.tile.width

    # ---- the register tile -------------------------------------------------------------------------------------------

    def dot_tile(self, rows: int, panels: int, left: Source, lines: int, depth: DepthPart) -> Emit:
        """Return what emits `tile(table, g, i, j, panel, row, ahead, part, sums)`: `rows` rows of the outputs.

        Rows start at i, columns at j; `panel` and `row` are addresses of the sides, `row` unless rows lie in a buffer.
        In each turn of the loop over the depth so many lines are fetched from `ahead` on. `sums` is the address where
        the accumulators are from one part of the depth to the next; `part` is the number of this one.
        """

        def emit(builder: Builder, table: Value, g: Value, i: Value, j: Value, *others: Value) -> None:
            work, lanes = self.work, self.lanes
            *addresses, part, sums = others
            lanes_at = (Lane(self.multiply.panel), self.lane, self.lane, self.lane)
            places = zip(lanes_at, (*addresses, sums), strict=True)
            panel, row, ahead, sums = (memory.pointer_from_address(builder, lane, at) for lane, at in places)
            pointers = operand_pointers(builder, table, self.operands)
            variables: dict[int | str, Value] = {"g": g, "j": j}
            variables.update({f"i{r}": builder.add(i, I64(r)) for r in range(rows)})
            runs: tuple[Run, ...] = ((self.turns, 1),)
            if left == "direct":
                a_pointers, runs = self._rows_in_place(builder, pointers, variables, rows)
            elif left == "packed":
                a_pointers, runs = [memory.advance(builder, row, r) for r in range(rows)], ((self.turns, rows),)
            else:
                apart = pitch(self.turns, work.itemsize)
                a_pointers = [memory.advance(builder, row, r * apart) for r in range(rows)]
            before: Accumulators | None = None
            if depth.parts > 1:
                (count, step), *inner = runs
                each = count * depth.steps // self.turns
                moved = builder.mul(part, I64(each * step))
                a_pointers = [memory.advance(builder, pointer, moved) for pointer in a_pointers]
                runs = ((count - each * (depth.parts - 1) if depth.ends else each, step), *inner)
                before = self._sums_before(builder, part, sums, rows)
            *outer, (length, stride) = runs
            tile = emit_window_tile(
                builder, rows, self.tile.vectors, lanes, self.multiply.sums, outer, length, a_pointers,
                [memory.advance(builder, panel, p * self.turns * self.width) for p in range(panels)], before,
                unroll=unroll_for(length), a_stride=stride, prefetch_pointer=ahead if lines else None,
                prefetch_lines=lines, multiply=self.multiply,
            )  # fmt: skip
            if not depth.ends:
                for number, value in enumerate(value for row_sums in tile for value in row_sums):
                    memory.store(builder, value, sums, number * lanes)
                return
            self.epilogues(builder, table, pointers, variables, tile)

        return emit

    def _sums_before(self, builder: Builder, part: Value, sums: Value, rows: int) -> Accumulators:
        """Return the accumulators that the part before has left; zeros in the first."""
        begins, zero = builder.icmp_signed("==", part, I64(0)), simd.constant(self.lane, 0)

        def before(number: int) -> Value:
            left = memory.load(builder, self.lane, sums, number * self.lanes)
            return simd.select(builder, begins, zero, left)

        vectors = self.tile.vectors
        return [[before(row * vectors + vector) for vector in range(vectors)] for row in range(rows)]

    def _rows_in_place(
        self, builder: Builder, pointers: Mapping[Term, Value], variables: Mapping[int | str, Value], rows: int
    ) -> tuple[list[Value], tuple[Run, ...]]:
        found = self.multiply.rows(self.work)
        assert found is not None
        values = IndexValues(builder, dict(variables))
        offsets = [found.start.substitute({"i": var(f"i{r}", self.work.rows)}) for r in range(rows)]
        starts = (memory.advance(builder, pointers[found.leaf], values.first(at)) for at in offsets)
        return [builder.bitcast(start, self.lane.scalar.as_pointer()) for start in starts], found.runs

    def epilogues(
        self,
        builder: Builder,
        table: Value,
        pointers: Mapping[Term, Value],
        variables: Mapping[int | str, Value],
        tile: Accumulators,
    ) -> None:
        """Compute the outputs from the sums of a tile, in a loop over vectors of columns: LLVM unrolls short ones.

        Written out for each vector, a long epilogue takes up to twice as long to compile, and is no faster.
        """
        rows, lanes = len(tile), self.lanes
        held = memory.on_stack(builder, self.lane, rows * len(tile[0]))
        for number, value in enumerate(value for sums in zip(*tile, strict=True) for value in sums):
            memory.store(builder, value, held, number * lanes)

        def turn(column: Value) -> None:
            start = memory.advance(builder, held, builder.mul(column, I64(rows * lanes)))
            sums = [memory.load(builder, self.lane, start, row * lanes) for row in range(rows)]
            self._epilogue(builder, table, pointers, variables, column, sums)

        repeat(builder, 0, len(tile[0]), 1, turn)

    def _epilogue(
        self,
        builder: Builder,
        table: Value,
        pointers: Mapping[Term, Value],
        variables: Mapping[int | str, Value],
        column: Value,
        sums: list[Value],
    ) -> None:
        """Compute one vector of columns of the outputs from its sums, row by row."""
        columns, lanes = self.work.columns, self.lanes
        at = builder.add(variables["j"], builder.mul(column, I64(lanes)))
        inside = builder.sub(I64(columns), at)

        def store(valid: Value | None = None) -> None:
            self._store_rows(builder, table, pointers, {**variables, "j": at}, valid, sums)

        if columns % self.width == 0:
            store()
        elif columns % lanes == 0:
            with builder.if_then(builder.icmp_signed(">", inside, I64(0))):
                store()
        else:
            with builder.if_else(builder.icmp_signed(">=", inside, I64(lanes)), likely=True) as (whole, part):
                with whole:
                    store()
                with part, builder.if_then(builder.icmp_signed(">", inside, I64(0))):
                    store(inside)

    def _store_rows(
        self,
        builder: Builder,
        table: Value,
        pointers: Mapping[Term, Value],
        variables: Mapping[int | str, Value],
        valid: Value | None,
        sums: list[Value],
    ) -> None:
        work = self.work
        emitter = ElementEmitter(builder, pointers, variables, Along("j", self.lanes, self.lanes, valid))
        waiting: list[list[tuple[Value, Affine]]] = [[] for _ in work.bodies]
        for row, total in enumerate(sums):
            emitter.fill({work.product: total})
            there: dict[int | str, Affine] = {"i": var(f"i{row}", work.rows)}
            index = {axis: where.substitute(there) for axis, where in work.place.items()}
            for number, (body, at) in enumerate(zip(work.bodies, work.output_offsets, strict=True)):
                value = emitter.emit(body.args[0], index)
                target = table_pointer(builder, table, len(self.operands) + number, body.dtype)
                if not stores_columns(at, self.lanes):
                    _store(builder, emitter.values, value, target, at.substitute(there))
                    continue
                waiting[number].append((value, at.substitute(there)))
                if len(waiting[number]) == min(_COLUMN_ROWS, self.lanes) or row == len(sums) - 1:
                    _store_columns(builder, emitter.values, waiting[number], target, at.factor_of("i") is None)
                    waiting[number] = []

    # ---- scratch memory ----------------------------------------------------------------------------------------------

    def pack_panel(self) -> Emit:
        """Return what emits `pack(table, g, j, panel)`: the columns from j on of the right side, for all k."""
        side, lanes = self.multiply.sides(self.work)[1], self.lanes
        transposing = moves_along(side, "k", lanes) and not moves_along(side, "j", lanes)

        def emit(builder: Builder, table: Value, g: Value, j: Value, panel: Value) -> None:
            target = memory.pointer_from_address(builder, self.lane, panel)
            pointers = operand_pointers(builder, table, self.operands)
            if not transposing:
                self._pack_columns(builder, pointers, {"g": g}, j, target)
                return
            for vector in range(self.tile.vectors):
                at = builder.add(j, I64(vector * self.lanes))
                start = memory.advance(builder, target, vector * self.lanes)
                self._pack_transposed(builder, pointers, {"g": g}, at, start)

        return emit

    def _pack_columns(
        self, builder: Builder, pointers: Mapping[Term, Value], variables: dict[Any, Value], j: Value, target: Value
    ) -> None:
        """Read along j, all vectors of a panel side by side, and several steps of k where those are few."""
        work, lanes, side, each = self.work, self.lanes, self.multiply.sides(self.work)[1], self.multiply.steps
        columns: list[tuple[Value, Along]] = []
        for vector in range(self.tile.vectors):
            at, valid = builder.add(j, I64(vector * lanes)), None
            if work.columns % self.width:
                at, valid = _tail(builder, at, work.columns, lanes)
            columns.append((at, Along("j", lanes, lanes, valid)))

        def steps(turn: Value, count: int) -> None:
            """Pack `count` steps from the first of a turn on."""
            k = builder.mul(turn, I64(each))
            places = [(u, *column) for u in range(count) for column in columns]
            emitters = [
                ElementEmitter(builder, pointers, {**variables, "j": at, "k": builder.add(k, I64(u))}, along)
                for u, at, along in places
            ]
            first = builder.mul(turn, I64(self.width))
            values = side_by_side(emitters, side.element, side.index)
            for u in range(0, count, each):
                for column in range(len(columns)):
                    of_turn = values[u * len(columns) + column : (u + each) * len(columns) : len(columns)]
                    at = builder.add(first, I64(u // each * self.width + column * lanes))
                    memory.store(builder, self.multiply.joined(builder, of_turn), target, at)

        together = max(1, SIDE_BY_SIDE // len(columns) // each)
        turns = work.depth // (together * each) * together
        repeat(builder, 0, turns, together, lambda turn: steps(turn, together * each))
        if turns * each < work.depth:
            steps(I64(turns), work.depth - turns * each)

    def _pack_transposed(
        self, builder: Builder, pointers: Mapping[Term, Value], variables: dict[Any, Value], at: Value, target: Value
    ) -> None:
        """Read along k, for as many columns as there are lanes, and turn the square around in registers."""
        work, lanes, side, each = self.work, self.lanes, self.multiply.sides(self.work)[1], self.multiply.steps
        last = I64(work.columns - 1)
        columns = [simd.minimum(builder, builder.add(at, I64(c)), last) for c in range(lanes)]

        def square(k: Value, valid: int | None) -> None:
            along = Along("k", lanes, lanes, valid)
            lines: list[Value] = []
            for column in columns:
                emitter = ElementEmitter(builder, pointers, {**variables, "j": column, "k": k}, along)
                lines.append(emitter.emit(side.element, side.index))
            turned, first = simd.transpose(builder, lines)[: valid or lanes], builder.udiv(k, I64(each))
            for n in range(0, len(turned), each):
                at = builder.mul(builder.add(first, I64(n // each)), I64(self.width))
                memory.store(builder, self.multiply.joined(builder, turned[n : n + each]), target, at)

        rest = work.depth % lanes
        repeat(builder, 0, work.depth - rest, lanes, lambda k: square(k, None))
        if rest:
            square(I64(work.depth - rest), rest)

    def fill_row(self) -> Emit:
        """Return what emits `fill(table, g, i, row)`: row i of the left side, for all k."""

        def emit(builder: Builder, table: Value, g: Value, i: Value, row: Value) -> None:
            kind = Lane(self.multiply.left)
            target = memory.pointer_from_address(builder, kind, row)
            pointers = operand_pointers(builder, table, self.operands)
            side, lanes, depth = self.multiply.sides(self.work)[0], self.lanes, self.work.depth

            def vectors(starts: Sequence[Value], valid: int | None) -> None:
                along = Along("k", lanes, lanes, valid)
                emitters = [ElementEmitter(builder, pointers, {"g": g, "i": i, "k": k}, along) for k in starts]
                for k, value in zip(starts, side_by_side(emitters, side.element, side.index), strict=True):
                    memory.store_masked(builder, value, target, k, valid)

            together = SIDE_BY_SIDE * lanes
            block, whole = depth - depth % together, depth - depth % lanes
            apart = [u * lanes for u in range(SIDE_BY_SIDE)]
            repeat(builder, 0, block, together, lambda k: vectors([builder.add(k, I64(n)) for n in apart], None))
            repeat(builder, block, whole, lanes, lambda k: vectors([k], None))
            if whole < depth:
                vectors([I64(whole)], depth - whole)
            for k in range(depth, self.turns * self.multiply.steps):
                memory.store(builder, simd.constant(kind, 0), target, k)

        return emit


def _tail(builder: Builder, at: Value, columns: int, lanes: int) -> tuple[Value, Value | None]:
    """Return a column inside, and how many lanes are inside: at least one, that of the last column; None for all."""
    if columns % lanes == 0:
        return simd.minimum(builder, at, I64(columns - lanes)), None
    inside = simd.minimum(builder, at, I64(columns - 1))
    return inside, simd.minimum(builder, builder.sub(I64(columns), inside), I64(lanes))


def moves_along(side: Side, key: str, lanes: int) -> bool:
    """Whether an operand reads consecutive elements, or always the same, along a variable."""
    values = IndexValues(ir.IRBuilder(), {}, Along(key, lanes, lanes))
    return not apart(values, (offset for _, offset in loads_of(side.element, index=side.index)))


def stores_columns(offset: Affine, lanes: int) -> bool:
    """Whether rows of the product, not its columns, are neighbours in an output, but for the ends of batches."""

    def slope(key: str) -> int | None:
        return IndexValues(ir.IRBuilder(), {}, Along(key, lanes, lanes)).slope(offset)

    return slope("j") not in (0, 1) and slope("i") == 1


def _store_columns(
    builder: Builder,
    values: IndexValues,
    rows: Sequence[tuple[Value, Affine]],
    target: Value,
    may_part: bool,
) -> None:
    """Store vectors of rows that are neighbours in memory: as many elements of a column at once as there are rows.

    `may_part`: a batch may end among them, and the next begin elsewhere.
    """
    assert values.along is not None
    while rows:
        count = 1 << (len(rows).bit_length() - 1)
        at, lanes = rows[0][1], values.along.lanes
        slope = values.slope(at)
        if slope is not None:
            offsets = [builder.add(values.first(at), I64(lane * slope)) for lane in range(lanes)]
        else:
            offsets = [simd.extract(builder, values.value(at), lane) for lane in range(lanes)]
        vectors = [value for value, _ in rows[:count]]
        if not may_part:
            memory.store_columns(builder, vectors, target, offsets, values.along.valid)
        else:  # they are together if the last is as far away as it should be
            every = [values.value(row) for _, row in rows[:count]]
            far = builder.sub(values.first(rows[count - 1][1]), values.first(at))
            with builder.if_else(builder.icmp_signed("==", far, I64(count - 1)), likely=True) as (together, apart):
                with together:
                    memory.store_columns(builder, vectors, target, offsets, values.along.valid)
                with apart:
                    for value, places in zip(vectors, every, strict=True):
                        memory.store_scatter(builder, value, target, places, values.along.valid)
        rows = rows[count:]


def _store(builder: Builder, values: IndexValues, value: Value, target: Value, offset: Affine) -> None:
    """Store a vector; where lanes are not neighbours in memory, one by one."""
    assert values.along is not None
    valid: Index | None = values.along.valid
    if values.slope(offset) != 1:
        memory.store_scatter(builder, value, target, values.value(offset), valid)
        return
    first = values.first(offset)
    if valid is None:
        memory.store(builder, value, target, first)
        return
    # masked stores are slow even if no lane is masked
    with builder.if_else(builder.icmp_signed("==", simd.as_index(valid), I64(values.along.lanes))) as (whole, part):
        with whole:
            memory.store(builder, value, target, first)
        with part:
            memory.store_masked(builder, value, target, first, valid)
