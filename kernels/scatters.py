"""Folds of what is sent to the places of an axis, of `where(place == axis, value, identity)`: a step for each value.

    result[i, :, j] = identity
    for k in values:
        fold value(i, k, j) into result[i, place(i, k), j]

for rows i, all axes but two, and columns j, the last axis. Where that is the axis of the places there are no columns.
The body is point-wise in the fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

from frittata.egraph import program, shapes, terms
from frittata.egraph.indexing import Affine, var
from frittata.egraph.ops.elements import fold_identity
from frittata.egraph.terms import Scalar, Term
from frittata.kernels import memory, simd, vmath
from frittata.kernels.chunks import wanted_chunks
from frittata.kernels.contractions import BINDERS, is_under_view, split_index
from frittata.kernels.element_emitter import ElementEmitter
from frittata.kernels.flow import repeat
from frittata.kernels.frames import is_known
from frittata.kernels.guards import guard_of
from frittata.kernels.index_values import Along
from frittata.kernels.intrinsics import operand_pointers, table_pointer
from frittata.kernels.processor import processor
from frittata.kernels.simd import I64, Builder, Lane, Value
from frittata.kernels.stencils import dim_at
from frittata.kernels.stores import stored_at
from frittata.kernels.units import EXTREME_UNITS, SIMPLE_UNITS, operator_units

_MOST_VECTORS = 4
"""The vectors of columns that are added to side by side."""
_PLACE_UNITS = 1.0
"""What it takes to read a place and to go there, in scalar steps."""
_MISS_UNITS = 8.0
"""What it takes now and then to have guessed wrong whether a place is in the range of a part."""
_MOST_PARTS = 4
_APART_UNITS = 16.0
"""From so many additions of vectors for a value on, ranges of places are filled apart.

Source: two Zen 4 cores with AVX-512, 3000 values to 500 places, 8 vectors each: 23 to 35 us in four parts, 29 to 33 in
two, 38 to 60 in one; halves of the columns instead, 69 to 226: what one core fetches ahead the other writes.
"""


@dataclass(frozen=True, eq=False)
class Scatter:
    """What a body computes; `hole` stands for the fold in it, of `count` values on axis `folded`, sent along `axis`."""

    body: Term
    hole: Term
    place: Term
    value: Term
    folded: int
    count: int
    axis: int
    shape: tuple[int, ...]

    @property
    def op(self) -> str:
        """The operator of the fold."""
        return self.hole.attrs[0]

    @property
    def columns(self) -> int:
        """The extent of the last axis, 1 if the places are there."""
        return 1 if self.axis == -1 else self.shape[-1]

    @property
    def places(self) -> int:
        """The extent of the axis that values are sent along."""
        return self.shape[self.axis]

    @property
    def blocks(self) -> int:
        """The places of the axes before that of the places: their results lie apart."""
        return prod(self.shape[: self.axis])

    @property
    def rows(self) -> int:
        """The places of the other axes in a block."""
        return prod(self.shape) // (self.blocks * self.places * self.columns)

    @cached_property
    def lanes(self) -> int:
        """The lanes of a vector: no more than there are columns."""
        return min(_width(self.body), 1 << (self.columns - 1).bit_length())

    @property
    def turn(self) -> int:
        """The columns that are added to side by side."""
        return self.lanes * min(_MOST_VECTORS, -(-self.columns // self.lanes))

    @cached_property
    def index(self) -> dict[int, Affine]:
        """The index in terms of i, n, j and k: row, place, column and number of the value."""
        axes = range(-len(self.shape), 0)
        rows = {axis: self.shape[axis] for axis in axes if axis != self.axis and (axis != -1 or self.columns == 1)}
        index = {**split_index("i", rows), self.folded: var("k", self.count)}
        if self.columns > 1:
            index[-1] = var("j", self.columns)
        return {**index, self.axis: var("n", self.places)}

    @property
    def parts(self) -> int:
        """The ranges of places that are filled apart: for each all values are looked at, and some are added."""
        if self._sent_units < _APART_UNITS:
            return 1
        return max(1, min(_MOST_PARTS, self.places, wanted_chunks(self._units(1)) // self.blocks))

    @property
    def units(self) -> float:
        """What it takes, in additions of vector code."""
        return self._units(self.parts)

    def _units(self, parts: int) -> float:
        vectors, turns = -(-self.columns // self.lanes), -(-self.columns // self.turn)
        looked = parts * turns * (_cost(self.place) + _PLACE_UNITS) + (_MISS_UNITS * turns if parts > 1 else 0.0)
        written = (_cost(self.body.args[0]) - _cost(self.hole) + 3 * SIMPLE_UNITS) * vectors
        steps = self.count * (self._sent_units + looked) + self.places * written
        return self.blocks * self.rows * steps * _width(self.body)  # a scalar step takes the time of a vector

    @property
    def _sent_units(self) -> float:
        """What one value takes in all columns, in additions of vectors."""
        each = _cost(self.value) + 2 * SIMPLE_UNITS + (EXTREME_UNITS if self.op in ("max", "min") else SIMPLE_UNITS)
        return -(-self.columns // self.lanes) * each


def _cost(element: Term) -> float:
    return sum(operator_units(term) for term in terms.walk(element) if term.sort == "element")


def _width(body: Term) -> int:
    every = (term for term in terms.walk(body) if term.sort == "element" and term.dtype != "bool")
    return processor().width // min(Lane(term.dtype).register_bytes for term in every)


@lru_cache(maxsize=4096)
def describe(bodies: tuple[Term, ...]) -> Scatter | None:
    """Return what bodies compute if it is point-wise in one such fold."""
    if len(bodies) != 1 or bodies[0].op != "build":
        return None
    (body,) = bodies
    (element,) = body.args
    found = [term for term in terms.walk(element) if term.op in BINDERS or term.op == "scan"]
    if [term.op for term in found] != ["fold"] or not all(map(is_known, terms.walk(element))):
        return None
    (hole,) = found
    op, folded, count = hole.attrs
    shape = shapes.concrete(body.shape)
    is_whole = shapes.concrete(hole.shape) == shape and hole.dtype == body.dtype != "bool"
    if not is_whole or -folded <= len(shape) or is_under_view([element], hole):
        return None
    sent = _sent(hole.args[0], shape, fold_identity(op, hole.dtype))
    if sent is None:
        return None
    place, value, axis = sent
    work = Scatter(body, hole, place, value, folded, count, axis, shape)
    found_at = ((value, axis), (place, axis), (place, -1))
    return work if all(shapes.dim_at(term.shape, at) == 1 for term, at in found_at) else None


def _sent(element: Term, shape: tuple[int, ...], identity: Scalar) -> tuple[Term, Term, int] | None:
    """Read `where(place == iota, value, identity)`: return the place, the value, and the axis of the iota."""
    if element.op != "where":
        return None
    condition, value, other = element.args
    if condition.op != "eq" or other.op != "const" or other.attrs[0] != identity:
        return None
    for place, along in (condition.args, condition.args[::-1]):
        is_axis = along.op == "iota" and dim_at(shape, along.attrs[0]) == along.attrs[1] > 1
        if is_axis and place.dtype in ("i32", "i64"):
            return place, value, along.attrs[0]
    return None


class ScatterEmitter:
    """Emits a row at a builder's position. The table holds operands, the result, then the status if any."""

    def __init__(self, builder: Builder, work: Scatter, table: Value, i: Value) -> None:
        self._builder, self._work = builder, work
        leaves = list(program.operands_of(work.body))
        pointers = operand_pointers(builder, table, leaves)
        self._result = table_pointer(builder, table, len(leaves), work.body.dtype)
        guard = guard_of(builder, table, len(leaves) + 1, (work.body,))
        self._base = ElementEmitter(builder, pointers, {"i": i}, guard=guard)

    def emit(self, low: Value, high: Value, first: Value, columns: int) -> None:
        """Emit the places from `low` to `high`, so many columns from `first` on."""
        work, builder = self._work, self._builder
        nothing = simd.neutral(Lane(work.hole.dtype, work.lanes), work.op)
        starts = range(0, columns, work.lanes)
        parts = [(builder.add(first, I64(at)), min(work.lanes, columns - at)) for at in starts]

        def clear(n: Value) -> None:
            for j, valid in parts:
                self._store(self._at(self._base, n, j, valid), nothing, valid)

        def add(k: Value) -> None:
            place = self._base.inner({"k": k})
            n = vmath.cast(builder, place.emit_narrow(work.place, work.index), "i64")
            if work.parts == 1 and self._is_in_range():
                self._add(place, n, parts)
            else:
                is_here = builder.icmp_unsigned("<", builder.sub(n, low), builder.sub(high, low))
                with builder.if_then(is_here):
                    self._add(place, n, parts)

        def finish(n: Value) -> None:
            emitter = self._base
            for j, valid in parts:
                emitter = self._at(emitter, n, j, valid)
                emitter.know(work.hole, work.index, self._load(emitter, valid))
                self._store(emitter, emitter.emit(work.body.args[0], work.index), valid)

        repeat(builder, low, high, 1, clear)
        repeat(builder, 0, work.count, 1, add)
        if work.body.args[0] is not work.hole:
            repeat(builder, low, high, 1, finish)

    def _is_in_range(self) -> bool:
        """Whether the place is a look-up, which is clamped to the axis."""
        place = self._work.place
        return place.op == "at" and place.args[0].op == "iota" and place.args[0].attrs[1] == self._work.places

    def _add(self, place: ElementEmitter, n: Value, parts: list[tuple[Value, int]]) -> None:
        sent: list[tuple[ElementEmitter, Value, int]] = []
        for j, valid in parts:
            emitter = self._at(sent[-1][0] if sent else place, n, j, valid)  # what all columns share is known by then
            sent.append((emitter, emitter.emit(self._work.value, self._work.index), valid))
        for emitter, value, valid in sent:
            total = simd.COMBINE_BY_FOLD[self._work.op](self._builder, self._load(emitter, valid), value)
            self._store(emitter, total, valid)

    def _at(self, base: ElementEmitter, n: Value, j: Value, valid: int) -> ElementEmitter:
        lanes = self._work.lanes
        return base.inner({"n": n, "j": j}, Along("j", lanes, lanes, valid if valid < lanes else None))

    def _load(self, emitter: ElementEmitter, valid: int) -> Value:
        lane = Lane(self._work.hole.dtype, self._work.lanes)
        return memory.load_masked(self._builder, lane, self._result, self._offset(emitter), valid)

    def _store(self, emitter: ElementEmitter, value: Value, valid: int) -> None:
        memory.store_masked(self._builder, value, self._result, self._offset(emitter), valid)

    def _offset(self, emitter: ElementEmitter) -> Value:
        return emitter.values.first(stored_at(self._work.body, self._work.index))
