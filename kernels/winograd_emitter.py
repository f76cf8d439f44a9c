"""The pieces of a convolution by tiles as vector code: transforms of the image and of the results, products between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce

from frittata.egraph.indexing import Affine, var
from frittata.egraph.terms import Term
from frittata.kernels import memory, simd
from frittata.kernels.element_emitter import ElementEmitter
from frittata.kernels.flow import repeat
from frittata.kernels.index_values import Along
from frittata.kernels.intrinsics import operand_pointers, table_pointer
from frittata.kernels.simd import I64, Builder, Lane, Value
from frittata.kernels.stores import stored_at
from frittata.kernels.tiles import Accumulators, emit_panels_tile, unroll_for
from frittata.kernels.winograd import Axis, TiledPlan

Vectors = list[Value]


@dataclass(frozen=True)
class TiledCode:
    """Emits the pieces of one kernel, whose table starts with its `operands` and goes on with its results."""

    plan: TiledPlan
    operands: tuple[Term, ...]

    @property
    def _lane(self) -> Lane:
        return Lane(self.plan.work.dtype, self.plan.lanes)

    # ---- the image ---------------------------------------------------------------------------------------------------

    def fill(self, builder: Builder, table: Value, g: Value, line: Value, pixel: Value, row: Value) -> None:
        """Emit `fill(table, g, line, pixel, row)`: the transformed values of a tile, one row of each plane."""
        work = self.plan.work
        pointers = operand_pointers(builder, table, self.operands)
        target = memory.pointer_from_address(builder, self._lane, row)
        places = [self._places(builder, "v", work.lines, line), self._places(builder, "u", work.pixels, pixel)]

        def inside() -> None:
            scalars = {key: value for axis in places for key, value in axis.items()}
            self._fill_channels(builder, pointers, {"g": g, **scalars}, target, None)

        axes = list(zip((work.lines, work.pixels), places, strict=True))
        outside = [(axis, list(at.values())) for axis, at in axes if axis.reaches_outside(work.tile)]
        if not outside:
            inside()
            return
        within = [_is_inside(builder, at, axis) for axis, values in outside for at in (values[0], values[-1])]
        with builder.if_else(_all(builder, within), likely=True) as (then, otherwise):
            with then:
                inside()
            with otherwise:
                self._fill_border(builder, pointers, g, places, target)

    def _places(self, builder: Builder, key: str, axis: Axis, tile: Value) -> dict[int | str, Value]:
        """Return the indices on one axis of the image that a tile depends on, by variable."""
        first = builder.sub(builder.mul(tile, I64(self.plan.work.tile)), I64(axis.padding))
        return {f"{key}{r}": builder.add(first, I64(r)) for r in range(self.plan.work.size)}

    def _fill_border(
        self,
        builder: Builder,
        pointers: Mapping[Term, Value],
        g: Value,
        places: Sequence[Mapping[int | str, Value]],
        target: Value,
    ) -> None:
        """Do the same where the image ends: indices are clamped, and what lies outside is masked."""
        scalars: dict[int | str, Value] = {"g": g}
        flags: list[list[Value]] = []
        for axis, at_by_key in zip((self.plan.work.lines, self.plan.work.pixels), places, strict=True):
            flags.append([_is_inside(builder, at, axis) for at in at_by_key.values()])
            for key, at in at_by_key.items():
                low = simd.maximum(builder, at, I64(0))
                scalars[key] = simd.minimum(builder, low, I64(axis.source - 1))
        masks = [[self._mask(builder, builder.and_(down, across)) for across in flags[1]] for down in flags[0]]
        self._fill_channels(builder, pointers, scalars, target, masks)

    @property
    def _bits(self) -> Lane:
        return self._lane.of("i32" if self._lane.itemsize == 4 else "i64")

    def _mask(self, builder: Builder, flag: Value) -> Value:
        return simd.splat(builder, builder.sext(flag, self._bits.scalar), self.plan.lanes)

    def _fill_channels(
        self,
        builder: Builder,
        pointers: Mapping[Term, Value],
        scalars: Mapping[int | str, Value],
        target: Value,
        masks: list[list[Value]] | None,
    ) -> None:
        work, lanes = self.plan.work, self.plan.lanes
        rest = work.inputs % lanes

        def vector(k: Value, valid: int | None) -> None:
            emitter = ElementEmitter(builder, pointers, {**scalars, "c": k}, Along("c", lanes, lanes, valid))

            def value(down: int, across: int) -> Value:
                found = emitter.emit(work.image, self._image_index(down, across))
                return found if masks is None else self._kept(builder, found, masks[down][across])

            for p, line in enumerate(_both_ways(builder, _IMAGE[work.tile], work.size, value)):
                for q, one in enumerate(line):
                    plane = (p * work.size + q) * self.plan.image_plane
                    memory.store(builder, one, target, builder.add(k, I64(plane)))

        repeat(builder, 0, work.inputs - rest, lanes, lambda k: vector(k, None))
        if rest:
            vector(I64(work.inputs - rest), rest)

    def _image_index(self, down: int, across: int) -> dict[int, Affine]:
        work = self.plan.work
        here: dict[int | str, Affine] = {
            "v": var(f"v{down}", work.lines.source),
            "u": var(f"u{across}", work.pixels.source),
        }
        return {axis: at.substitute(here) for axis, at in work.at.items()}

    def _kept(self, builder: Builder, value: Value, mask: Value) -> Value:
        """Return a value where the mask is set, zero elsewhere."""
        return builder.bitcast(builder.and_(builder.bitcast(value, self._bits.type), mask), value.type)

    # ---- products ----------------------------------------------------------------------------------------------------

    def multiply(
        self, builder: Builder, _table: Value, rows: Value, panel: Value, sums: Value, ahead: Value, first: Value
    ) -> None:
        """Emit `multiply(table, rows, panel, sums, ahead, first)`: some rows of a plane of the image by a panel.

        Of the inputs those from `first` on are added, the first ones to nothing. What lies at `ahead`, a part of what
        comes next of the weights, is fetched meanwhile.
        """
        plan, lane = self.plan, self._lane
        left, right, target, following = (
            memory.pointer_from_address(builder, lane, a) for a in (rows, panel, sums, ahead)
        )
        places = [[r * plan.width + v * plan.lanes for v in range(plan.register.vectors)] for r in range(plan.rows)]
        before: Accumulators | None = None
        if plan.depth < plan.work.inputs:
            begins, zero = builder.icmp_signed("==", first, I64(0)), simd.constant(lane, 0)
            left_over = [[memory.load(builder, lane, target, place) for place in row] for row in places]
            before = [[simd.select(builder, begins, zero, value) for value in row] for row in left_over]
        grid = emit_panels_tile(
            builder, plan.rows, plan.register.vectors, plan.lanes, plan.work.dtype, plan.depth,
            [memory.advance(builder, left, r * plan.image_row) for r in range(plan.rows)], [right], before,
            unroll=unroll_for(plan.depth), prefetch_pointer=following, prefetch_lines=plan.fetched_lines[0],
        )  # fmt: skip
        for row, line in zip(places, grid, strict=True):
            for place, total in zip(row, line, strict=True):
                memory.store(builder, total, target, place)

    # ---- the results -------------------------------------------------------------------------------------------------

    def finish(
        self, builder: Builder, table: Value, g: Value, line: Value, pixel: Value, channel: Value, sums: Value
    ) -> None:
        """Emit `finish(table, g, line, pixel, channel, sums)`: the bodies at a tile, for one panel of channels."""
        plan, work = self.plan, self.plan.work
        pointers = operand_pointers(builder, table, self.operands)
        scalars: dict[int | str, Value] = {"g": g}
        for key, axis, tile in (("y", work.lines, line), ("x", work.pixels, pixel)):
            first = builder.mul(tile, I64(work.tile))
            scalars.update({f"{key}{i}": builder.add(first, I64(i)) for i in range(min(work.tile, axis.result))})
        source = memory.pointer_from_address(builder, self._lane, sums)
        for number in range(plan.register.vectors):
            at = builder.add(channel, I64(number * plan.lanes))
            start = memory.advance(builder, source, number * plan.lanes)
            if work.outputs % plan.width == 0 or number == 0:
                self._finish_vector(builder, table, pointers, {**scalars, "o": at}, start)
            else:
                with builder.if_then(builder.icmp_signed("<", at, I64(work.outputs))):
                    self._finish_vector(builder, table, pointers, {**scalars, "o": at}, start)

    def _finish_vector(
        self,
        builder: Builder,
        table: Value,
        pointers: Mapping[Term, Value],
        scalars: Mapping[int | str, Value],
        sums: Value,
    ) -> None:
        plan, work = self.plan, self.plan.work
        valid = None
        if work.outputs % plan.lanes:
            valid = simd.minimum(builder, builder.sub(I64(work.outputs), scalars["o"]), I64(plan.lanes))
        emitter = ElementEmitter(builder, pointers, scalars, Along("o", plan.lanes, plan.lanes, valid))

        def product(down: int, across: int) -> Value:
            return memory.load(builder, self._lane, sums, (down * work.size + across) * plan.result_plane)

        for i, line in enumerate(_both_ways(builder, _RESULT[work.tile], work.size, product)):
            for j, value in enumerate(line):
                if i < work.lines.result and j < work.pixels.result:
                    self._store(builder, table, emitter, value, (i, j), valid)

    def _store(
        self,
        builder: Builder,
        table: Value,
        emitter: ElementEmitter,
        value: Value,
        place: tuple[int, int],
        valid: Value | None,
    ) -> None:
        """Compute the bodies at one place of the tile, if the image reaches so far."""
        work, scalars = self.plan.work, emitter.values.scalar_by_key
        ends = [
            builder.icmp_signed("<", scalars[f"{key}{at}"], I64(axis.result))
            for key, at, axis in zip("yx", place, (work.lines, work.pixels), strict=True)
            if at and axis.result % work.tile
        ]
        here: dict[int | str, Affine] = {
            "y": var(f"y{place[0]}", work.lines.result),
            "x": var(f"x{place[1]}", work.pixels.result),
        }
        index = {axis: at.substitute(here) for axis, at in work.place.items()}
        with builder.if_then(_all(builder, ends), likely=True) if ends else nullcontext():
            emitter = emitter.inner(along=emitter.values.along) if ends else emitter
            emitter.fill({work.product: value})
            for number, body in enumerate(work.bodies):
                result = emitter.emit(body.args[0], index)
                target = table_pointer(builder, table, len(self.operands) + number, body.dtype)
                at = emitter.values.first(stored_at(body, index))
                memory.store_masked(builder, result, target, at, valid)


def _is_inside(builder: Builder, at: Value, axis: Axis) -> Value:
    return builder.icmp_unsigned("<", at, I64(axis.source))


def _all(builder: Builder, flags: Sequence[Value]) -> Value:
    return reduce(builder.and_, flags)


# ---- transforms ------------------------------------------------------------------------------------------------------

Transform = Callable[[Builder, Vectors], Vectors]


def _both_ways(builder: Builder, transform: Transform, size: int, value: Callable[[int, int], Value]) -> list[Vectors]:
    """Return the lines of M X M^T for a square of so many values a side, column after column."""
    halves = [transform(builder, [value(down, across) for down in range(size)]) for across in range(size)]
    return [transform(builder, [half[p] for half in halves]) for p in range(len(halves[0]))]


def _image_2(builder: Builder, d: Vectors) -> Vectors:
    return [builder.fsub(d[0], d[2]), builder.fadd(d[1], d[2]), builder.fsub(d[2], d[1]), builder.fsub(d[1], d[3])]


def _result_2(builder: Builder, m: Vectors) -> Vectors:
    first = builder.fadd(builder.fadd(m[0], m[1]), m[2])
    return [first, builder.fsub(builder.fsub(m[1], m[2]), m[3])]


def _image_4(builder: Builder, d: Vectors) -> Vectors:
    even, odd = _added(builder, d[4], d[2], -4), _added(builder, d[3], d[1], -4)
    near = builder.fsub(d[4], d[2])
    far = builder.fsub(d[3], d[1])
    far = builder.fadd(far, far)
    return [
        _added(builder, _added(builder, d[4], d[2], -5), d[0], 4),
        builder.fadd(even, odd),
        builder.fsub(even, odd),
        builder.fadd(near, far),
        builder.fsub(near, far),
        _added(builder, _added(builder, d[5], d[3], -5), d[1], 4),
    ]


def _result_4(builder: Builder, m: Vectors) -> Vectors:
    near, far = builder.fadd(m[1], m[2]), builder.fadd(m[3], m[4])
    one, two = builder.fsub(m[1], m[2]), builder.fsub(m[3], m[4])
    return [
        builder.fadd(builder.fadd(m[0], near), far),
        _added(builder, one, two, 2),
        _added(builder, near, far, 4),
        builder.fadd(_added(builder, one, two, 8), m[5]),
    ]


def _added(builder: Builder, total: Value, value: Value, factor: int) -> Value:
    return simd.fma(builder, value, simd.constant_like(value, factor), total)


_IMAGE: dict[int, Transform] = {2: _image_2, 4: _image_4}
_RESULT: dict[int, Transform] = {2: _result_2, 4: _result_4}
"""What B^T and A^T do to a column, by m."""
