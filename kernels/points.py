"""Elements at indices, before there is code: what depends on which loop, and how loads move with its variable.

A point is an element term together with the index at which it is evaluated. Views are substituted in the index, so
that two points are one computation if term and index agree. Folds bind loops that are chosen beforehand.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from frittata.egraph import indexing, shapes
from frittata.egraph.indexing import FIRST, Affine, IndexMap
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import Term
from frittata.kernels.lookups import Place, as_index, depends_on, looked_up, lookups_in

Keys = frozenset[int | str]

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")
}
"""What compares two numbers, by operator."""


@dataclass(frozen=True, eq=False)
class Where:
    """An index: for each axis an expression of the loops' variables; an axis that is missing has index 0.

    `clamped` tells that some view above clamps an index that could lie outside of its axis.
    """

    index: Mapping[int, Affine]
    clamped: bool = False

    @cached_property
    def keys_by_axis(self) -> dict[int, Keys]:
        """The variables that each axis depends on."""
        return {axis: depends_on([at]) for axis, at in self.index.items()}

    @cached_property
    def _known(self) -> dict[Shape, Keys]:
        return {}

    def keys(self, term: Term) -> Keys:
        """Return the variables that a term depends on at this index."""
        extents = term.shape
        if extents not in self._known:
            own, none = self.keys_by_axis, Keys()
            axes = (axis for axis in range(-len(extents), 0) if extents[axis] != 1)
            self._known[extents] = none.union(*(own.get(axis, none) for axis in axes))
        return self._known[extents]


class Point(NamedTuple):
    """An element, not a view, and where it is evaluated."""

    term: Term
    where: Where

    @property
    def keys(self) -> Keys:
        """The variables that the value depends on."""
        return self.where.keys(self.term)


class Reduction(NamedTuple):
    """Nested folds of one operator: what they fold, over which axes of more than one place."""

    op: str
    extent_by_axis: dict[int, int]
    element: Term


def reduction(fold: Term) -> Reduction:
    """Read a chain of folds of one operator as one."""
    op, extents, e = fold.attrs[0], dict[int, int](), fold
    while e.op == "fold" and e.attrs[0] == op and e.attrs[1] not in extents:
        if e.attrs[2] != 1:
            extents[e.attrs[1]] = e.attrs[2]
        e = e.args[0]
    return Reduction(op, extents, e)


class Points:
    """The points of bodies. `bound` is the index of the axes that folds bind."""

    def __init__(self, index: Mapping[int, Affine], bound: Mapping[int, Affine]) -> None:
        self._bound = bound
        self._known: dict[tuple[tuple[tuple[int, Affine], ...], bool], Where] = {}
        self._mapped: dict[tuple[Where, Term], Where] = {}
        self._folded: dict[Where, Where] = {}
        self._offsets: dict[Point, Affine] = {}
        self.root = self._where(index, False)

    def moved(self, key: int | str, to: Affine) -> Where:
        """Return the index of the bodies where a variable has a value."""
        return self._where({axis: at.substitute({key: to}) for axis, at in self.root.index.items()}, self.root.clamped)

    def at(self, term: Term, where: Where | None = None) -> Point:
        """Return the point of an element, at the index of the bodies unless given."""
        where = where or self.root
        while term.op == "reindex":
            where, term = self._view(term, where), term.args[0]
        return Point(term, where)

    def args(self, point: Point) -> tuple[Point, ...]:
        """Return what a point is computed from; of a fold, what it folds."""
        term, where = point
        if term.op in ("load", "iota", "const"):
            return ()
        if term.op == "fold":
            return (self.at(reduction(term).element, self._inside(where)),)
        if term.op == "at":
            return self.at(term.args[1], where), self.at(term.args[0], self._looked_up(term, where))
        return tuple(self.at(arg, where) for arg in asked(term, where.index))

    def walk(self, roots: Iterable[Point], is_known: Callable[[Point], bool] = lambda _: False) -> Iterator[Point]:
        """Visit every point once, what a point is computed from before it; what known points are computed from, not."""
        seen: set[Point] = set()
        stack = [(root, False) for root in roots]
        while stack:
            point, done = stack.pop()
            if done:
                yield point
            elif point not in seen:
                seen.add(point)
                stack.append((point, True))
                if not is_known(point):
                    stack.extend((arg, False) for arg in self.args(point) if arg not in seen)

    def offset(self, point: Point) -> Affine:
        """Return the offset that a load reads, or the index that an iota gives, clamped."""
        if point not in self._offsets:
            self._offsets[point] = self._offset(*point)
        return self._offsets[point]

    def _offset(self, term: Term, where: Where) -> Affine:
        if term.op == "iota":
            return where.index.get(term.attrs[0], FIRST).clamped(term.attrs[1])
        shape = shapes.concrete(term.args[0].shape)
        at = tuple(where.index.get(axis, FIRST).clamped(shape[axis]) for axis in range(-len(shape), 0))
        return indexing.flatten(at, shape)

    def step(self, point: Point, key: str) -> int | None:
        """Return by how much the offset of a load or an iota moves with a variable; None if it is not linear in it."""
        offset = self.offset(point)
        if any(key in lookup.origins for lookup in lookups_in([offset])):
            return None
        return offset.factor_of(key)

    def _looked_up(self, term: Term, where: Where) -> Where:
        axis, extent = term.attrs
        key = looked_up(term.args[1], place_of(term.args[1], where.index), extent)
        return self._where({**where.index, axis: as_index(key)}, where.clamped)

    def _view(self, term: Term, where: Where) -> Where:
        if (where, term) not in self._mapped:
            mapping, (inner,) = term.attrs[0], term.args
            given = tuple(where.index.get(axis, FIRST) for axis in range(-len(mapping.result), 0))
            clamped, read = _seen(mapping, given)
            index = {axis: at for axis, at in enumerate(read, -len(read)) if shapes.dim_at(inner.shape, axis) != 1}
            self._mapped[where, term] = self._where(index, where.clamped or clamped)
        return self._mapped[where, term]

    def _inside(self, where: Where) -> Where:
        if where not in self._folded:
            self._folded[where] = self._where({**where.index, **self._bound}, where.clamped)
        return self._folded[where]

    def _where(self, index: Mapping[int, Affine], clamped: bool) -> Where:
        key = (tuple(sorted(((a, at) for a, at in index.items()), key=lambda pair: pair[0])), clamped)
        return self._known.setdefault(key, Where(dict(key[0]), clamped))


@lru_cache(maxsize=1 << 14)
def _seen(mapping: IndexMap, given: tuple[Affine, ...]) -> tuple[bool, tuple[Affine, ...]]:
    """Return whether a view is asked for a place beyond its ends, and the index on all axes of what it shows."""
    rank = len(mapping.result)
    pairs = list(zip(given, shapes.concrete(mapping.result), strict=True))
    by_key: dict[int | str, Affine] = {i - rank: at.clamped(extent) for i, (at, extent) in enumerate(pairs)}
    return any(_is_outside(at, extent) for at, extent in pairs), tuple(at.substitute(by_key) for at in mapping.sources)


def place_of(element: Term, index: Mapping[int, Affine]) -> Place:
    """Return the part of an index that an element depends on."""
    rank = len(element.shape)
    return tuple((axis, index[axis]) for axis in range(-rank, 0) if element.shape[axis] != 1 and axis in index)


def asked(element: Term, index: Mapping[int, Affine]) -> tuple[Term, ...]:
    """Return the operands that an element's value depends on at an index: of a selection whose answer is known, one."""
    if element.op == "where":
        answer = _answer(element.args[0], index)
        if answer is not None:
            return (element.args[1 if answer else 2],)
    return element.args


def _answer(e: Term, index: Mapping[int, Affine]) -> bool | None:
    """Return the value of a comparison of the index with a number, or of several, if it is known."""
    if e.op in COMPARISONS:
        sides = [_number(arg, index) for arg in e.args]
        return None if None in sides else COMPARISONS[e.op](*sides)
    if e.op in ("and", "or"):
        answers = {_answer(arg, index) for arg in e.args}
        absorbing = e.op == "or"
        return absorbing if absorbing in answers else None if None in answers else not absorbing
    return None


def _number(e: Term, index: Mapping[int, Affine]) -> int | float | None:
    if e.op == "const":
        return e.attrs[0].value
    if e.op == "iota":
        at = index.get(e.attrs[0], FIRST).clamped(e.attrs[1])
        return None if at.terms else at.constant
    return None


def _is_outside(at: Affine, extent: int) -> bool:
    low, high = at.bounds()
    return extent != 1 and (low < 0 or high >= extent)
