"""The pieces of a stencil's kernel as vector code: what fills a line of scratch memory, and register tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from frittata.egraph.indexing import Affine, var
from frittata.egraph.terms import Term
from frittata.kernels import memory, simd
from frittata.kernels.element_emitter import ElementEmitter
from frittata.kernels.flow import for_range, repeat
from frittata.kernels.index_values import Along
from frittata.kernels.intrinsics import operand_pointers, table_pointer
from frittata.kernels.simd import I64, Builder, Lane, Value
from frittata.kernels.stencil_schedule import StencilPlan
from frittata.kernels.stencils import DOT, clamps
from frittata.kernels.stores import stored_at

_Sums = list[Value]


@dataclass(frozen=True)
class StencilCode:
    """Emits the pieces of one kernel, whose table starts with its `operands` and goes on with its results."""

    plan: StencilPlan
    operands: tuple[Term, ...]

    @property
    def _lane(self) -> Lane:
        return Lane(self.plan.work.dtype, self.plan.lanes)

    # ---- scratch memory ----------------------------------------------------------------------------------------------

    def clear(self, builder: Builder, _table: Value, scratch: Value) -> None:
        """Emit `clear(table, scratch)`: margins are zero, and stay so."""
        target = memory.pointer_from_address(builder, self._lane, scratch)
        zero = simd.constant(self._lane, 0)
        count = self.plan.scratch_elements

        whole = count - count % self.plan.lanes
        repeat(builder, 0, whole, self.plan.lanes, lambda k: memory.store(builder, zero, target, k))
        if whole < count:
            memory.store_masked(builder, zero, target, I64(whole), count - whole)

    def fill(self, builder: Builder, table: Value, g: Value, c: Value, line: Value, row: Value, scratch: Value) -> None:
        """Emit `fill(table, g, c, line, row, scratch)`: a line, counted from the margin, to a row of scratch."""
        plan, lines = self.plan, self.plan.work.lines
        target = memory.pointer_from_address(builder, self._lane, scratch)
        start = builder.mul(row, I64(plan.phases * plan.width))
        v = builder.sub(line, I64(lines.padding))
        variables: dict[int | str, Value] = {"g": g, "c": c, "v": v, "line": line}

        def phases(*, zeros: bool) -> None:
            for phase in range(plan.phases):
                pointer = memory.advance(builder, target, builder.add(start, I64(phase * plan.width)))
                self._phase(builder, table, variables, pointer, phase, zeros=zeros)

        if plan.inside:
            phases(zeros=False)
            return
        inside = builder.icmp_unsigned("<", v, I64(lines.source))
        if plan.bands == 1:  # the margins lie where they lay for the image before
            with builder.if_then(inside):
                phases(zeros=False)
            return
        with builder.if_else(inside) as (within, outside):
            with within:
                phases(zeros=False)
            with outside:
                phases(zeros=True)

    def _phase(
        self,
        builder: Builder,
        table: Value,
        variables: Mapping[int | str, Value],
        target: Value,
        phase: int,
        *,
        zeros: bool,
    ) -> None:
        """Fill the columns of one remainder modulo the stride that lie in the image."""
        work, lanes = self.plan.work, self.plan.lanes
        low, high = self.plan.columns(phase)
        count, pixels = high - low, work.pixels
        if count <= 0:
            return
        if zeros:
            for k in range(0, count, lanes):
                first, valid = max(0, min(k, count - lanes)), min(lanes, count)
                memory.store_masked(builder, simd.constant(self._lane, 0), target, I64(low + first), valid)
            return
        emitter = ElementEmitter(builder, operand_pointers(builder, table, self.operands), variables)
        at = var("u", count) * pixels.stride + (low * pixels.stride + phase - pixels.padding)
        cuts = sorted({0, count, *clamps(work.image, {**work.at, -1: at}, "u", count)})
        for first, last in pairwise(cuts):
            self._segment(builder, emitter, memory.advance(builder, target, low + first), at, (first, last))

    def _segment(
        self, builder: Builder, emitter: ElementEmitter, target: Value, at: Affine, cut: tuple[int, int]
    ) -> None:
        """Fill columns along which no index starts or ceases to be clamped."""
        work, (first, last) = self.plan.work, cut
        count = last - first
        lanes = min(self.plan.lanes, 1 << (count - 1).bit_length())
        here = at.substitute({"u": var("u", count) + first})
        index = {axis: where.substitute({"u": here}) for axis, where in work.at.items()}

        def vector(k: Value, valid: int | None) -> None:
            inner = emitter.inner({"u": k}, Along("u", lanes, 1, valid))
            value = inner.emit(work.image, index)
            memory.store_masked(builder, value, target, k, valid)

        if count < lanes:
            vector(I64(0), count)
            return
        repeat(builder, 0, count - count % lanes, lanes, lambda k: vector(k, None))
        if count % lanes:
            vector(I64(count - lanes), None)

    # ---- register tiles ----------------------------------------------------------------------------------------------

    def tiles(
        self, builder: Builder, table: Value, g: Value, o: Value, y: Value, row: Value, weights: Value, scratch: Value
    ) -> None:
        """Emit `tiles(table, g, o, y, row, weights, scratch)`: the results from channel o and line y on, whole lines.

        `row` is the row of scratch memory where the windows start, `weights` the address of those of the tile.
        """
        plan = self.plan
        image = memory.pointer_from_address(builder, self._lane, scratch)
        image = memory.advance(builder, image, builder.mul(row, I64(plan.phases * plan.width)))
        packed = memory.pointer_from_address(builder, self._lane, weights)
        width, last = plan.lanes * plan.vectors, plan.last_start

        def tile(k: Value) -> None:
            x = simd.minimum(builder, k, I64(last)) if plan.pixel_tiles > 1 else I64(0)
            sums = self._channels(builder, memory.advance(builder, image, x), packed)
            self._store(builder, table, {"g": g, "o": o, "y": y}, x, sums)

        repeat(builder, 0, plan.pixel_tiles * width, width, tile)

    def _channels(self, builder: Builder, image: Value, weights: Value) -> _Sums:
        """Add up over the input channels."""
        plan, work = self.plan, self.plan.work
        count = plan.outputs * plan.lines * plan.vectors
        start: list[Value | None] = [None] * count
        if work.inputs == 1:
            return self._window(builder, image, weights, start)
        plane = plan.band_lines * plan.phases * plan.width
        area = work.lines.kernel * work.pixels.kernel * plan.outputs

        def channel(c: Value, sums: _Sums) -> _Sums:
            pointer = memory.advance(builder, image, builder.mul(c, I64(plane)))
            return self._window(builder, pointer, memory.advance(builder, weights, builder.mul(c, I64(area))), sums)

        zero = simd.constant(self._lane, 0)
        return for_range(builder, 0, work.inputs, 1, [zero] * count, channel)

    def _window(self, builder: Builder, image: Value, weights: Value, start: Sequence[Value | None]) -> _Sums:
        """Add up over a window, some lines of it at a time."""
        plan, lines = self.plan, self.plan.work.lines
        if plan.turn == lines.kernel and not plan.is_long:
            return self._taps(builder, image, weights, start, lines.kernel)
        down = lines.dilation * plan.phases * plan.width
        across = plan.work.pixels.kernel * plan.outputs
        neutral = simd.neutral(self._lane, "sum" if plan.work.op == DOT else plan.work.op)

        def some(dy: Value, sums: _Sums, count: int) -> _Sums:
            below = memory.advance(builder, image, builder.mul(dy, I64(down)))
            beside = memory.advance(builder, weights, builder.mul(dy, I64(across)))
            if plan.is_long:
                return self._long(builder, below, beside, sums)
            return self._taps(builder, below, beside, sums, count)

        rest = lines.kernel % plan.turn
        sums = [neutral if total is None else total for total in start]
        sums = for_range(builder, 0, lines.kernel - rest, plan.turn, sums, partial(some, count=plan.turn))
        return some(I64(lines.kernel - rest), sums, rest) if rest else sums

    def _taps(
        self, builder: Builder, image: Value, weights: Value, start: Sequence[Value | None], kernel: int
    ) -> _Sums:
        """Add up over `kernel` lines of a window, column by column, all that reads a line of the image side by side."""
        plan, lines, pixels = self.plan, self.plan.work.lines, self.plan.work.pixels
        sums = list(start)
        steps = ((row, dy) for row in range(plan.lines) for dy in range(kernel))
        places = [(row * lines.stride + dy * lines.dilation, row, dy) for row, dy in steps]
        for dx in range(pixels.kernel):
            reach, phase = divmod(dx * pixels.dilation, pixels.stride)
            seen: dict[tuple[int, int], Value] = {}
            known: dict[tuple[int, int], Value] = {}
            for below, row, dy in sorted(places):
                for v, offset in enumerate(plan.vector_starts):
                    if (below, v) not in seen:
                        position = (below * plan.phases + phase) * plan.width + reach + offset
                        seen[below, v] = memory.load(builder, self._lane, image, position)
                    for o in range(plan.outputs):
                        number = (o * plan.lines + row) * plan.vectors + v
                        if plan.work.op == DOT and (o, dy) not in known:
                            tap = (dy * pixels.kernel + dx) * plan.outputs + o
                            known[o, dy] = memory.load_splat(builder, self._lane, weights, tap)
                        sums[number] = self._added(builder, known.get((o, dy)), seen[below, v], sums[number])
        return [total for total in sums if total is not None]

    def _long(self, builder: Builder, image: Value, weights: Value, sums: _Sums) -> _Sums:
        """Add up over a long line of a window: in turns all taps that are whole vectors apart from each other."""
        plan, stride = self.plan, self.plan.work.pixels.stride
        for phase in range(plan.phases):
            whole, rest = divmod(-(-(plan.work.pixels.kernel - phase) // stride), plan.lanes)

            def turn(first: Value, sums: _Sums, phase: int = phase, taps: int = 0) -> _Sums:
                sums = list(sums)
                line = memory.advance(builder, image, builder.add(first, I64(phase * plan.width)))
                row = memory.advance(builder, weights, builder.add(builder.mul(first, I64(stride)), I64(phase)))
                known = [memory.load_splat(builder, self._lane, row, a * plan.lanes * stride) for a in range(taps)]
                for k in range(plan.vectors + taps - 1):
                    value = memory.load(builder, self._lane, line, k * plan.lanes)
                    for v in range(max(0, k - taps + 1), min(k + 1, plan.vectors)):
                        sums[v] = simd.fma(builder, known[k - v], value, sums[v])
                return sums

            sums = for_range(builder, 0, rest, 1, sums, partial(turn, taps=whole + 1))
            sums = for_range(builder, rest, plan.lanes, 1, sums, partial(turn, taps=whole))
        return sums

    def _added(self, builder: Builder, weight: Value | None, value: Value, total: Value | None) -> Value:
        if weight is None:
            return value if total is None else simd.COMBINE_BY_FOLD[self.plan.work.op](builder, total, value)
        return builder.fmul(weight, value) if total is None else simd.fma(builder, weight, value, total)

    # ---- the bodies --------------------------------------------------------------------------------------------------

    def _store(
        self, builder: Builder, table: Value, variables: Mapping[int | str, Value], x: Value, sums: _Sums
    ) -> None:
        """Compute the bodies from a tile's results."""
        plan = self.plan
        pointers = operand_pointers(builder, table, self.operands)
        scalars = dict(variables)
        scalars.update({f"o{o}": builder.add(variables["o"], I64(o)) for o in range(plan.outputs)})
        scalars.update({f"y{r}": builder.add(variables["y"], I64(r)) for r in range(plan.lines)})
        for v, start in enumerate(plan.vector_starts):
            along = Along("x", plan.lanes, 1, plan.valid)
            emitter = ElementEmitter(builder, pointers, {**scalars, "x": builder.add(x, I64(start))}, along)
            for o in range(plan.outputs):
                for r in range(plan.lines):
                    total = sums[(o * plan.lines + r) * plan.vectors + v]
                    self._store_vector(builder, table, emitter, total, o, r)

    def _store_vector(
        self, builder: Builder, table: Value, emitter: ElementEmitter, total: Value, output: int, line: int
    ) -> None:
        plan, work = self.plan, self.plan.work
        there: dict[int | str, Affine] = {
            "o": var(f"o{output}", work.outputs),
            "y": var(f"y{line}", work.lines.result),
        }
        index = {axis: where.substitute(there) for axis, where in work.place.items()}
        emitter.fill({work.hole: total})
        for number, body in enumerate(work.bodies):
            offset = emitter.values.first(stored_at(body, index))
            value = emitter.emit(body.args[0], index)
            target = table_pointer(builder, table, len(self.operands) + number, body.dtype)
            memory.store_masked(builder, value, target, offset, plan.valid)
