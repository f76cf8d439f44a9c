"""The pieces of an attention's kernel as vector code: tiles of scores, the softmax of a row, tiles of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce

from frittata.egraph.indexing import Affine, var
from frittata.egraph.terms import Term
from frittata.kernels import memory, simd, transcendental
from frittata.kernels.attention_schedule import AttentionPlan
from frittata.kernels.contractions import loads_at
from frittata.kernels.element_emitter import ElementEmitter
from frittata.kernels.expressions import Expr
from frittata.kernels.flow import for_range, repeat
from frittata.kernels.gemm_emitters import Code, Emit
from frittata.kernels.index_values import Along, IndexValues
from frittata.kernels.intrinsics import operand_pointers
from frittata.kernels.multiply_adds import plain
from frittata.kernels.simd import I64, Builder, Lane, Value
from frittata.kernels.tiles import emit_panels_tile, unroll_for

_SUMS = 4
"""How many sums run side by side where the order does not matter."""
_VECTORS_AT_ONCE = 16
"""How many vectors of a row of values are packed in one loop."""


@dataclass(frozen=True)
class AttentionCode:
    """Emits the pieces of one kernel, whose table starts with its `operands` and goes on with its results.

    Addresses are those of scratch memory: panels of keys or values, rows of queries and of scores.
    """

    plan: AttentionPlan
    operands: tuple[Term, ...]

    @cached_property
    def keys(self) -> Code:
        """The code that packs keys and fills rows of queries."""
        work = self.plan.work.scores
        return Code(work, self.plan.key_tile, self.operands, plain(work.dtype))

    @cached_property
    def values(self) -> Code:
        """The code that packs values and stores results."""
        work = self.plan.work.values
        return Code(work, self.plan.value_tile, self.operands, plain(work.dtype))

    @property
    def _lane(self) -> Lane:
        return self.keys.lane

    # ---- scores ------------------------------------------------------------------------------------------------------

    def score_tile(self, rows: int, *, ends: bool) -> Emit:
        """Return what emits `scores(table, g, i, j, panel, query, target)`: rows from i on, keys from j on.

        `ends`: the last of the keys are in the panel; what is beyond them gets minus infinity.
        """

        def emit(builder: Builder, table: Value, g: Value, i: Value, j: Value, *addresses: Value) -> None:
            panel, query, target = (memory.pointer_from_address(builder, self._lane, a) for a in addresses)
            pointers = operand_pointers(builder, table, self.operands)
            variables: dict[int | str, Value] = {"g": g, "j": j}
            variables.update({f"i{r}": builder.add(i, I64(r)) for r in range(rows)})
            self._fetch(builder, pointers, variables, rows)
            queries, stride = self._queries(builder, pointers, variables, rows, query)
            if self.plan.keys_in_place:
                sums = [self._products_in_place(builder, pointers, variables, row) for row in queries]
            else:
                depth, vectors = self.plan.work.scores.depth, self.plan.key_tile.vectors
                sums = emit_panels_tile(
                    builder, rows, vectors, self.plan.lanes, self._lane.dtype, depth, queries, [panel],
                    unroll=unroll_for(depth), a_stride=stride,
                )  # fmt: skip
            for column in range(len(sums[0])):
                self._score_column(builder, pointers, variables, column, [row[column] for row in sums], target, ends)

        return emit

    def _fetch(
        self, builder: Builder, pointers: Mapping[Term, Value], variables: Mapping[int | str, Value], rows: int
    ) -> None:
        """Ask for what scores are computed from beside their products, so that it comes while those are summed."""
        work, lanes = self.plan.work, self.plan.lanes
        places = [self._score_place(row) for row in range(rows)]
        for leaf, offsets in loads_at((work.score,), places, beside=work.scores.product):
            for offset in dict.fromkeys(offsets):
                if offset is None or offset.factor_of("j") != 1:
                    continue
                start = IndexValues(builder, dict(variables)).first(offset)
                # the line in which a vector begins has come with the keys before
                for last in range(lanes - 1, self.plan.key_width, lanes):
                    memory.prefetch(builder, pointers[leaf], builder.add(start, I64(last)), locality=3)

    def _score_place(self, row: int) -> dict[int, Affine]:
        """Return where the scores of a row of the tile are."""
        work = self.plan.work
        there: dict[int | str, Affine] = {"i": var(f"i{row}", work.queries)}
        return {axis: where.substitute(there) for axis, where in work.score_index.items()}

    def _queries(
        self,
        builder: Builder,
        pointers: Mapping[Term, Value],
        variables: Mapping[int | str, Value],
        rows: int,
        query: Value,
    ) -> tuple[list[Value], int]:
        """Return the pointers to rows of queries, and the stride along them."""
        work = self.plan.work.scores
        found = work.left.rows(work.depth) if self.plan.queries_in_place else None
        if found is None:
            return [memory.advance(builder, query, r * work.depth) for r in range(rows)], 1
        values = IndexValues(builder, dict(variables))
        offsets = [found.start.substitute({"i": var(f"i{r}", work.rows)}) for r in range(rows)]
        return [memory.advance(builder, pointers[found.leaf], values.first(at)) for at in offsets], found.step

    def _products_in_place(
        self, builder: Builder, pointers: Mapping[Term, Value], variables: Mapping[int | str, Value], row: Value
    ) -> list[Value]:
        """Sum along the depth for as many keys as there are lanes, and turn the square around to add it up."""
        work, lanes = self.plan.work.scores, self.plan.lanes
        found = work.right.plain()
        assert found is not None
        leaf, offset = found
        last = I64(work.columns - 1)
        start = offset.substitute({"k": Affine()})
        keys: list[Value] = []
        for lane in range(lanes):
            j = simd.minimum(builder, builder.add(variables["j"], I64(lane)), last)
            values = IndexValues(builder, {**variables, "j": j})
            keys.append(memory.advance(builder, pointers[leaf], values.first(start)))

        def step(k: Value, sums: list[Value], valid: int) -> list[Value]:
            q = memory.load_masked(builder, self._lane, row, k, valid)
            loaded = [memory.load_masked(builder, self._lane, key, k, valid) for key in keys]
            return [simd.fma(builder, q, key, total) for key, total in zip(loaded, sums, strict=True)]

        rest = work.depth % lanes
        zeros = [simd.constant(self._lane, 0)] * lanes
        sums = for_range(builder, 0, work.depth - rest, lanes, zeros, lambda k, values: step(k, values, lanes))
        if rest:
            sums = step(I64(work.depth - rest), sums, rest)
        return [simd.combined(builder, "sum", simd.transpose(builder, sums))]

    def _score_column(
        self,
        builder: Builder,
        pointers: Mapping[Term, Value],
        variables: Mapping[int | str, Value],
        column: int,
        sums: Sequence[Value],
        target: Value,
        ends: bool,
    ) -> None:
        """Compute one vector of keys of the scores from its products, row by row."""
        plan, work, lanes = self.plan, self.plan.work, self.plan.lanes
        nothing = simd.neutral(self._lane, "max")
        rest = work.keys - (plan.key_panels - 1) * plan.key_width - column * lanes if ends else lanes
        valid = None if rest >= lanes else rest
        along = Along("j", lanes, lanes, valid)
        at = builder.add(variables["j"], I64(column * lanes))
        emitter = ElementEmitter(builder, pointers, {**variables, "j": at}, along)
        for row, total in enumerate(sums):
            value = nothing
            if rest > 0:
                emitter.fill({work.scores.product: total})
                value = emitter.emit(work.score, self._score_place(row))
            if valid is not None and rest > 0:
                value = simd.select(builder, memory.valid_mask(builder, self._lane, valid), value, nothing)
            memory.store(builder, value, target, I64(row * plan.row_elements + column * lanes))

    # ---- results -----------------------------------------------------------------------------------------------------

    def value_tile(self, rows: int) -> Emit:
        """Return what emits `attend(table, g, i, j, panel, share, seen)`: `rows` rows of results from i and j on.

        `share` is the address of rows of what the softmax gave, of which the first `seen` keys count.
        """

        def emit(builder: Builder, table: Value, g: Value, i: Value, j: Value, *rest: Value) -> None:
            panel, share, seen = rest
            lane, tile = self._lane, self.plan.value_tile
            row = memory.pointer_from_address(builder, lane, share)
            shares = [memory.advance(builder, row, r * self.plan.row_elements) for r in range(rows)]
            pointers = operand_pointers(builder, table, self.operands)
            variables: dict[int | str, Value] = {"g": g, "j": j}
            variables.update({f"i{r}": builder.add(i, I64(r)) for r in range(rows)})
            vectors, stride, source = tile.vectors, None, memory.pointer_from_address(builder, lane, panel)
            if self.plan.values_in_place:
                source, stride = self._values_in_place(builder, pointers, variables)
            depth = seen if self.plan.skips else self.plan.work.keys
            sums = emit_panels_tile(
                builder, rows, vectors, self.plan.lanes, lane.dtype, depth, shares, [source], b_stride=stride
            )
            self.values.epilogues(builder, table, pointers, variables, sums)

        return emit

    def _values_in_place(
        self, builder: Builder, pointers: Mapping[Term, Value], variables: Mapping[int | str, Value]
    ) -> tuple[Value, int]:
        found = self.plan.work.values.right.plain()
        assert found is not None
        leaf, offset = found
        stride = offset.factor_of("k")
        assert stride is not None
        start = IndexValues(builder, dict(variables)).first(offset.substitute({"k": Affine()}))
        return memory.advance(builder, pointers[leaf], start), stride

    def pack_values(self, builder: Builder, table: Value, g: Value, panels: Value) -> None:
        """Emit `pack_values(table, g, panels)`: row by row of the values, so that each is read in one go."""
        plan, side, lanes = self.plan, self.plan.work.values.right, self.plan.lanes
        columns, keys = plan.work.values.columns, plan.work.keys
        target = memory.pointer_from_address(builder, self._lane, panels)
        pointers = operand_pointers(builder, table, self.operands)

        def vector(emitter: ElementEmitter, at: int) -> Value:
            valid = columns - at if columns - at < lanes else None
            if columns <= at:
                return simd.constant(self._lane, 0)
            inner = emitter.inner({"j": I64(at)}, Along("j", lanes, lanes, valid))
            value = inner.emit(side.element, side.index)
            if valid is None:
                return value
            mask = memory.valid_mask(builder, self._lane, valid)
            return simd.select(builder, mask, value, simd.constant(self._lane, 0))

        def pack(starts: range) -> None:
            def step(k: Value) -> None:
                emitter = ElementEmitter(builder, pointers, {"g": g, "k": k})
                for at in starts:
                    panel, column = divmod(at, plan.value_width)
                    place = builder.add(
                        builder.mul(k, I64(plan.value_width)), I64(panel * keys * plan.value_width + column)
                    )
                    memory.store(builder, vector(emitter, at), target, place)

            repeat(builder, 0, keys, 1, step)

        every = range(0, plan.value_panels * plan.value_width, lanes)
        for first in range(0, len(every), _VECTORS_AT_ONCE):
            pack(every[first : first + _VECTORS_AT_ONCE])

    def is_finite(self, builder: Builder, _table: Value, panels: Value) -> Value:
        """Emit `is_finite(table, values)`: 1 if no value of the packed panels is infinite or NaN, else 0."""
        lane, plan = self._lane, self.plan
        values = memory.pointer_from_address(builder, lane, panels)
        count = plan.value_panels * plan.work.keys * plan.value_tile.vectors
        zeros = simd.constant(lane, 0)

        def step(k: Value, sums: list[Value]) -> list[Value]:
            places = [builder.mul(builder.add(k, I64(u)), I64(plan.lanes)) for u in range(len(sums))]
            loaded = [memory.load(builder, lane, values, place) for place in places]
            return [simd.fma(builder, value, zeros, total) for value, total in zip(loaded, sums, strict=True)]

        whole = count - count % _SUMS
        sums = for_range(builder, 0, whole, _SUMS, [zeros] * _SUMS, step)
        sums += for_range(builder, whole, count, 1, [zeros], step)
        wrong = simd.any_lane(builder, builder.fcmp_unordered("uno", simd.combined(builder, "sum", sums), zeros))
        return builder.select(wrong, I64(0), I64(1))

    def soften(self, rows: int) -> Emit:
        """Return what emits `soften(table, row, count)`: the softmax of rows of scores, whole panels, in place."""

        def emit(builder: Builder, _table: Value, address: Value, count: Value) -> None:
            first = memory.pointer_from_address(builder, self._lane, address)
            pointers = [memory.advance(builder, first, r * self.plan.row_elements) for r in range(rows)]
            emit_softmax(builder, self._lane, pointers, count, self.plan.key_tile.vectors, safe=self.plan.work.safe)

        return emit


def emit_softmax(
    builder: Builder, lane: Lane, rows: Sequence[Value], count: Value, vectors: int, *, safe: bool
) -> None:
    """Emit the softmax of rows of `count` elements in place, a multiple of so many vectors.

    `safe`: zeros if all are minus infinity. A NaN need not reach the maximum: it reaches the sum, and with it every
    share. Where the row is safe it must, for minus infinities with a NaN give NaN.
    """
    larger = simd.maximum if safe else simd.larger
    nothing, zero, one = simd.neutral(lane, "max"), simd.constant(lane, 0), simd.constant(lane, 1)

    def turns(start: Value, each: Callable[[int, Value, Value], Value]) -> list[list[Value]]:
        """Go over all rows side by side, with a value for each of the vectors of a turn."""

        def turn(k: Value, carried: list[Value]) -> list[Value]:
            places = [builder.add(k, I64(v * lane.lanes), flags=["nsw"]) for v in range(vectors)]
            return [each(n // vectors, places[n % vectors], value) for n, value in enumerate(carried)]

        found = for_range(builder, 0, count, vectors * lane.lanes, [start] * (vectors * len(rows)), turn)
        return [found[r * vectors : (r + 1) * vectors] for r in range(len(rows))]

    def reduced(values: list[Value], combine: Callable[[Builder, Value, Value], Value], fold: str) -> Value:
        total = reduce(partial(combine, builder), values)
        return simd.splat(builder, simd.reduce(builder, fold, total), lane.lanes)

    tops = turns(nothing, lambda r, k, top: larger(builder, memory.load(builder, lane, rows[r], k), top))
    top = [reduced(values, larger, "max") for values in tops]

    def power(r: int, k: Value, total: Value) -> Value:
        distance = Expr(builder, builder.fsub(memory.load(builder, lane, rows[r], k), top[r]))
        value = transcendental.exp_down(distance).value
        memory.store(builder, value, rows[r], k)
        return builder.fadd(total, value)

    totals = [reduced(values, simd.add, "sum") for values in turns(zero, power)]
    factors = [builder.fdiv(one, total) for total in totals]
    blind = [simd.compare(builder, "==", value, nothing) for value in top]

    def share(r: int, k: Value, carried: Value) -> Value:
        value = builder.fmul(memory.load(builder, lane, rows[r], k), factors[r])
        memory.store(builder, simd.select(builder, blind[r], zero, value) if safe else value, rows[r], k)
        return carried

    turns(zero, share)
