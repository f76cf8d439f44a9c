"""Element terms as vector code: the LLVM value of an element at an index whose lanes run along one variable.

Views are substituted in the index, so that what reaches a load is the offset of its buffer as an expression of the
loop variables. How the offset grows from lane to lane chooses the load: not at all, one element spread to all lanes;
by one, consecutive elements; by another constant, strided ones; if all lanes read from one aligned block, its elements
in another order; otherwise each lane has an offset of its own. What is the same in every lane is computed once, as a
scalar. No flag allows contraction or reordering: an element has the same bits wherever it is emitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from frittata.egraph import indexing, shapes
from frittata.egraph.errors import LoweringError
from frittata.egraph.indexing import Affine, IndexMap
from frittata.egraph.ops.elements import CONTRACTIONS
from frittata.egraph.terms import Term
from frittata.kernels import lookups, memory, simd, vmath
from frittata.kernels.guards import Guard
from frittata.kernels.index_values import Along, IndexValues
from frittata.kernels.lookups import LookedUp, Place
from frittata.kernels.nans import is_below_its_maximum
from frittata.kernels.points import asked, place_of
from frittata.kernels.simd import Builder, Lane, Value, lane_of

Index = Mapping[int, Affine]
"""For each axis the index there; an axis that is missing has index 0."""

SIDE_BY_SIDE = 4
"""So many vectors of a long element are best emitted side by side.

Source: Zen 5, ten operators: 1.24 times as fast as 2, as fast as 8; softmax, bound by memory: 0.95 of 2, 1.15 times 8.
"""
_WHOLE = frozenset({"const", "load", "iota", "at"}) | CONTRACTIONS
"""Elements that are emitted as they are."""


class ElementEmitter:
    """Emits elements at the builder's position; what has been computed at an index is not computed again.

    `pointer_by_leaf` has the `input` leaves that are read, `value_by_variable` the int64 variables of the indices, that
    along the lanes in lane 0. `holes` are terms whose value is known whatever the index: the accumulator of a
    contraction, a held row's element.

    What was emitted must dominate what is emitted later: in a loop or a branch use an emitter made by `inner`.
    """

    def __init__(
        self,
        builder: Builder,
        pointer_by_leaf: Mapping[Term, Value],
        value_by_variable: Mapping[int | str, Value],
        along: Along | None = None,
        holes: Mapping[Term, Value] | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.builder = builder
        self.guard = guard
        self.values = IndexValues(builder, dict(value_by_variable), along)
        self._pointer_by_leaf = pointer_by_leaf
        self._holes = dict(holes or {})
        self._known: dict[tuple[Term, Place], Value] = {}
        self._columns: dict[tuple[Value, Affine], list[Value]] = {}

    def inner(
        self,
        value_by_variable: Mapping[int | str, Value] | None = None,
        along: Along | None = None,
        holes: Mapping[Term, Value] | None = None,
    ) -> ElementEmitter:
        """Return an emitter for a block inside of the present one: further variables, other lanes, further holes.

        Variables that are given again must have the same values, unless they are the one along the lanes.
        """
        scalars = {**self.values.scalar_by_key, **(value_by_variable or {})}
        every_hole = {**self._holes, **(holes or {})}
        new = ElementEmitter(self.builder, self._pointer_by_leaf, scalars, along, every_hole, self.guard)
        new.values.origins.update(self.values.origins)
        new.values.keep_vectors(self.values, along)
        if not holes:
            moving = self.values.moving(along)
            new._known = {key: value for key, value in self._known.items() if moving.isdisjoint(_variables(key[1]))}
        return new

    def fill(self, value_by_hole: Mapping[Term, Value]) -> None:
        """Give holes new values. What was computed from the old ones must not be asked for at the same index."""
        self._holes.update(value_by_hole)

    def is_known(self, element: Term, index: Index) -> bool:
        """Whether the value of an element at an index is given, or has been computed."""
        return element in self._holes or (element, place_of(element, index)) in self._known

    def know(self, element: Term, index: Index, value: Value) -> None:
        """Record the value of an element, such as that of a fold, at an index."""
        self._known[element, place_of(element, index)] = value

    def emit(self, element: Term, index: Index) -> Value:
        """Return the value of an element, one in each lane."""
        return _spread(self.builder, self.emit_narrow(element, index), self.values.lanes)

    def emit_narrow(self, element: Term, index: Index) -> Value:
        """Return the value of an element; it has one lane if it is the same in all."""
        if element in self._holes:
            return self._holes[element]
        if element.op == "const":
            return simd.constant(Lane(element.dtype), element.attrs[0].value)
        if element.op == "reindex":
            return self.emit_narrow(element.args[0], self.mapped(element.attrs[0], element.args[0], index))
        place = place_of(element, index)
        key = (element, place)
        if key not in self._known:
            for lookup in lookups.lookups_in(at for _, at in place):
                self.look_up(lookup)
            self._known[key] = self._computed(element, dict(place))
        return self._known[key]

    def look_up(self, key: LookedUp) -> None:
        """Compute the index that a look-up gives, if that has not been done, and check it."""
        if self.values.knows(key):
            return
        if self.guard is None:
            raise LoweringError("no status to note a wrong index in", do="choose another template")
        value = self.emit_narrow(key.element, dict(key.place))
        valid = self.values.along.valid if self.values.along is not None else None
        self.values.define(key, self.guard.index(self.builder, value, key.element, key.extent, valid), key.origins)

    def _computed(self, e: Term, index: Index) -> Value:
        match e.op:
            case "load":
                return self._load(e.args[0], index)
            case "iota":
                axis, extent, dtype = e.attrs
                return vmath.cast(self.builder, self.values.value(self.values.clamped(index, axis, extent)), dtype)
            case "cast":
                return vmath.cast(self.builder, self.emit_narrow(e.args[0], index), e.dtype)
            case "at":
                looked_up, indices = e.args
                axis, extent = e.attrs
                key = lookups.looked_up(indices, place_of(indices, index), extent)
                self.look_up(key)
                return self.emit_narrow(looked_up, {**index, axis: lookups.as_index(key)})
            case op if op == "fold" or op in CONTRACTIONS:
                raise LoweringError(f"no vector code for a {e.op} inside an element", do="make it a hole")
            case _:
                args = [self.emit_narrow(arg, index) for arg in asked(e, index)]
                if len(args) < len(e.args):
                    return args[0]
                lanes = max(lane_of(arg).lanes for arg in args)
                wide = (_spread(self.builder, arg, lanes) for arg in args)
                if e.op == "exp" and is_below_its_maximum(e.args[0]):
                    return vmath.exp_of_nonpositive(self.builder, *wide)
                return vmath.emit(e.op, self.builder, *wide)

    def _load(self, leaf: Term, index: Index) -> Value:
        if leaf not in self._pointer_by_leaf:
            raise LoweringError(f"a body loads {leaf.op}, which is no buffer", do="materialize it or inline it first")
        offset = self._offset(leaf, index)
        return self._load_at(self._pointer_by_leaf[leaf], leaf.dtype, offset, shapes.size(leaf.shape))

    def _offset(self, leaf: Term, index: Index) -> Affine:
        """Return the offset of a buffer's element, in elements, of the index clamped to the buffer's extents."""
        shape = shapes.concrete(leaf.shape)
        at = tuple(self.values.clamped(index, axis, shape[axis]) for axis in range(-len(shape), 0))
        return indexing.flatten(at, shape)

    def _load_at(self, pointer: Value, dtype: str, offset: Affine, size: int) -> Value:
        """Load from an offset of a buffer of `size`, in the way that how it moves from lane to lane allows."""
        values, along = self.values, self.values.along
        slope = values.slope(offset)
        if along is None or slope == 0:
            return memory.load(self.builder, Lane(dtype), pointer, values.first(offset))
        lane = Lane(dtype, along.lanes)
        if slope is None:
            return self._load_apart(lane, pointer, offset, size)
        first = values.first(offset)
        if slope != 1:
            column = self._column(lane, pointer, offset, slope, size)
            if column is not None:
                return column
            return memory.load_strided(self.builder, lane, pointer, first, slope, along.valid)
        return memory.load_masked(self.builder, lane, pointer, first, along.valid)

    def _column(self, lane: Lane, pointer: Value, offset: Affine, stride: int, size: int) -> Value | None:
        """Return lanes that are `stride` apart as a column of rows of so many elements, all of which lie in the buffer.

        Other columns of the same rows cost nothing more.
        """
        along = self.values.along
        if along is None or along.valid is not None or not 2 <= stride <= memory.MOST_COLUMNS:
            return None
        column = offset.constant % stride
        base = offset + -column
        low, high = base.bounds()
        if low < 0 or high + stride > size:
            return None
        key = (pointer, base)
        if key not in self._columns:
            self._columns[key] = memory.load_columns(self.builder, lane, pointer, self.values.first(base), stride)
        return self._columns[key][column]

    def _load_apart(self, lane: Lane, pointer: Value, offset: Affine, size: int) -> Value:
        block = self.values.block(offset, size)
        if block is None:
            return memory.load_gather(self.builder, lane, pointer, self.values.value(offset))
        length, places = block
        first = self.values.first(offset + -places[0])
        return simd.permute(self.builder, memory.load(self.builder, Lane(lane.dtype, length), pointer, first), places)

    def mapped(self, mapping: IndexMap, inner: Term, index: Index) -> dict[int, Affine]:
        """Return the index into the operand of a view."""
        rank = len(mapping.source)
        extents = shapes.concrete(mapping.result)
        needed = [i for i in range(rank) if shapes.dim_at(inner.shape, i - rank) != 1]
        mentioned = {axis for i in needed for axis in mapping.sources[i].variables()}
        by_key: dict[int | str, Affine] = {
            axis: self.values.clamped(index, axis, extents[axis])
            for axis in range(-len(extents), 0)
            if axis in mentioned
        }
        return {i - rank: mapping.sources[i].substitute(by_key) for i in needed}


def side_by_side(emitters: Sequence[ElementEmitter], element: Term, index: Index) -> list[Value]:
    """Emit an element with several emitters, each value with all of them before the next, and return what they give.

    A processor looks only so far ahead for what does not wait for what came before: one long element after the other
    would mostly wait.
    """
    _emit_parts(emitters, element, [index] * len(emitters))
    return [emitter.emit(element, index) for emitter in emitters]


def _emit_parts(emitters: Sequence[ElementEmitter], element: Term, indices: Sequence[Index]) -> None:
    first = emitters[0]
    if element.op in _WHOLE or first.is_known(element, indices[0]):
        return
    if element.op == "reindex":
        inner = element.args[0]
        pairs = zip(emitters, indices, strict=True)
        _emit_parts(emitters, inner, [emitter.mapped(element.attrs[0], inner, index) for emitter, index in pairs])
        return
    for arg in asked(element, indices[0]):
        _emit_parts(emitters, arg, indices)
    for emitter, index in zip(emitters, indices, strict=True):
        emitter.emit_narrow(element, index)


def _variables(place: Place) -> set[int | str]:
    return {key for _, at in place for key in at.variables()}


def _spread(builder: Builder, value: Value, lanes: int) -> Value:
    return value if lane_of(value).lanes == lanes else simd.splat(builder, value, lanes)
