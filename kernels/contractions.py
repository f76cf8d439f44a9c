"""What a contraction computes, whatever operator it came from: two sides, each an element over its own index.

    product[g, i, j] = sum over k of left(g, i, k) * right(g, j, k)

for batches g, rows i and columns j; lanes run along the columns. The bodies are point-wise in the product. Indices are
expressions of the variables "g", "i", "j" and "k".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from frittata.egraph import dtypes, indexing, interpret, program, shapes, terms
from frittata.egraph.indexing import FIRST, Affine, IndexMap, var
from frittata.egraph.ops import registry
from frittata.egraph.ops.elements import CONTRACTIONS
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.index_values import IndexValues
from frittata.kernels.lowered import Array, Pack
from frittata.kernels.stores import BODIES, stored_at
from frittata.kernels.strides import view_of
from frittata.kernels.units import apart

Index = Mapping[int, Affine]
BINDERS = CONTRACTIONS | {"fold"}
_LOOKED_AT = 32
"""How many steps of a variable tell how it moves in memory."""


Run = tuple[int, int]
"""So many steps, each so many elements after the one before."""


@dataclass(frozen=True)
class InPlace:
    """Rows that are read where they lie: `start` has the offset of k = 0, `runs` how k goes on, outermost first.

    A row of a matrix is one run; a window of an image is a run for each of its lines.
    """

    leaf: Term
    start: Affine
    runs: tuple[Run, ...]

    @property
    def step(self) -> int:
        """The distance of neighbours in a run."""
        return self.runs[-1][1]

    @property
    def length(self) -> int:
        """The elements of a run."""
        return self.runs[-1][0]

    @property
    def count(self) -> int:
        """The runs of a row."""
        return prod(count for count, _ in self.runs[:-1])


@dataclass(frozen=True)
class Side:
    """One operand of a contraction: an element, and its index in terms of g, i or j, and k."""

    element: Term
    index: Index

    def mentions(self, key: str) -> bool:
        """Whether the operand differs along a variable."""
        rank = len(self.element.shape)
        used = (self.index.get(axis, Affine()) for axis in range(-rank, 0) if self.element.shape[axis] != 1)
        return any(key in at.variables() for at in used)

    def is_constant(self, constants: frozenset[str]) -> bool:
        """Whether the operand is known before run time."""
        return all(leaf.attrs[0] in constants for leaf in program.operands_of(self.element))

    @cached_property
    def kept(self) -> Side:
        """The operand without the casts around it that change no value."""
        views: list[IndexMap] = []
        element = self.element
        while element.op in ("reindex", "cast"):
            if element.op == "cast" and not dtypes.holds(element.dtype, element.args[0].dtype):
                break
            views += element.attrs[:1] if element.op == "reindex" else []
            element = element.args[0]
        for view in reversed(views):
            element = registry.make("reindex", "element", (element,), (view,))
        return Side(element, self.index)

    @property
    def stored(self) -> Side:
        """The operand as it can be kept until it is used: what it is cast from, if that is a narrow dtype."""
        return self.kept if dtypes.is_narrow(self.kept.element.dtype) else self

    def lies_along(self, key: str, extent: int, other: tuple[str, int]) -> bool:
        """Whether more of a variable's steps go to the next element in memory than of another's."""
        nearness = self._nearness(key, extent)
        return nearness > 0 and nearness >= self._nearness(*other)

    def _nearness(self, key: str, extent: int) -> float:
        """Return which share of a variable's first steps, of all loads that it moves, go to the next element."""
        steps = np.arange(min(extent, _LOOKED_AT))
        offsets = [offset for _, offset in loads_of(self.element, index=self.index) if offset is not None]
        found = [np.diff(at.evaluate(lambda each: steps if each == key else 0) + 0 * steps) for at in offsets]
        moved = [there for there in found if there.any()]
        return float(np.mean([there == 1 for there in moved])) if moved else 0.0

    def plain(self) -> tuple[Term, Affine] | None:
        """Return the buffer and the offset if the operand only reads one, without clamping any index."""
        loads = list(loads_of(self.element, index=self.index))
        if any(term.op not in ("load", "reindex", "input") for term in terms.walk(self.element)) or len(loads) != 1:
            return None
        leaf, offset = loads[0]
        return None if offset is None else (leaf, offset)

    def rows(self, depth: int) -> InPlace | None:
        """Return the rows of so many elements if the operand can be used where it lies."""
        found = self.plain()
        if found is None:
            return None
        leaf, offset = found
        along = [(atom, factor) for atom, factor in offset.terms if "k" in Affine(0, ((atom, 1),)).variables()]
        rest = Affine(offset.constant, tuple(term for term in offset.terms if term not in along))
        if any(Affine(0, (term,)).variables() != {"k"} for term in along):
            return None
        runs = _runs(Affine(0, tuple(along)), depth)
        return None if runs is None else InPlace(leaf, rest, runs)


@dataclass(frozen=True)
class Contraction:
    """Bodies over a product; `place` has the output's index in terms of g, i and j."""

    bodies: tuple[Term, ...]
    product: Term
    batches: int
    rows: int
    columns: int
    depth: int
    left: Side
    right: Side
    place: Index

    def leaves(self, sides: Iterable[Term]) -> set[Term]:
        """Return the buffers that the bodies read beside the product, and those of `sides` of it."""
        return leaves_beside(self.product, (*self.bodies, *sides))

    @property
    def dtype(self) -> str:
        """The dtype of the product."""
        return self.product.dtype

    @property
    def itemsize(self) -> int:
        """The size of an element of the product, in bytes."""
        return dtypes.itemsize(self.dtype)

    @property
    def flops(self) -> float:
        """The operations of the product alone."""
        return 2.0 * self.batches * self.rows * self.columns * self.depth

    def turned(self) -> Contraction:
        """Return the same with rows and columns exchanged: the product of the transposed sides."""
        there: dict[int | str, Affine] = {"i": var("j", self.rows), "j": var("i", self.columns)}

        def turn(index: Index) -> Index:
            return {axis: at.substitute(there) for axis, at in index.items()}

        left, right = (Side(side.element, turn(side.index)) for side in (self.right, self.left))
        sizes = self.batches, self.columns, self.rows, self.depth
        return Contraction(self.bodies, self.product, *sizes, left, right, turn(self.place))

    @cached_property
    def output_offsets(self) -> tuple[Affine, ...]:
        """The offset in each output."""
        return tuple(stored_at(body, self.place) for body in self.bodies)


@lru_cache(maxsize=4096)
def _runs(along: Affine, depth: int) -> tuple[Run, ...] | None:
    """Read the places of k = 0 .. depth - 1 as runs of runs; None where they are not regular."""
    places = np.zeros(depth, np.int64) + along.evaluate(lambda _: np.arange(depth))
    runs: list[Run] = []
    while len(places) > 1:
        steps = np.diff(places)
        others = np.flatnonzero(steps != steps[0])
        length = int(others[0]) + 1 if len(others) else len(places)
        if len(places) % length:
            return None
        parts = places.reshape(-1, length) - places[::length, None]
        if (parts != parts[0]).any():
            return None
        runs.append((length, int(steps[0])))
        places = places[::length]
    return tuple(reversed(runs)) or ((1, 1),)


def leaves_beside(product: Term, roots: Iterable[Term]) -> set[Term]:
    """Return the buffers that terms read otherwise than through a product."""
    seen: set[Term] = set()
    stack = [*roots]
    while stack:
        term = stack.pop()
        if term not in seen and term is not product:
            seen.add(term)
            stack.extend(term.args)
    return {term for term in seen if term.op == "input"}


def only_product(bodies: tuple[Term, ...], op: str) -> Term | None:
    """Return the one contraction of bodies that are point-wise in it, of constant shapes; None otherwise.

    Products of integers are those of matrices only.
    """
    elements = [body.args[0] for body in bodies if body.op in BODIES]
    every = list(terms.walk(*elements))
    found = [term for term in every if term.op in (*BINDERS, "at", "scan")]
    products = [term for term in found if term.op == op]
    if len(elements) < len(bodies) or len(found) != 1 or len(products) != 1 or not _is_static(every):
        return None
    product = products[0]
    is_number = dtypes.is_float(product.dtype) or (op == "dot" and dtypes.is_integer(product.dtype))
    if not is_number or any(body.shape != bodies[0].shape for body in bodies):
        return None
    seen = seen_as(product, every)
    if is_under_view(elements, seen) or (seen is not product and op != "dot"):
        return None
    shape = bodies[0].shape
    matches = all(shapes.dim_at(seen.shape, axis) == shape[axis] for axis in range(-len(shape), 0))
    return product if matches else None


def seen_as(product: Term, every: Iterable[Term]) -> Term:
    """Return the one reshape through which all see a product; itself, where they see it otherwise."""
    users = [term for term in every if product in term.args]
    is_reshaped = len(users) == 1 and users[0].op == "reindex" and users[0].attrs[0].reshapes_rows()
    return users[0] if is_reshaped else product


def _is_static(every: list[Term]) -> bool:
    return all(isinstance(dim, int) for term in every for dim in term.shape)


def is_under_view(elements: list[Term], product: Term) -> bool:
    """Whether some view reads a term, or what is computed from it."""
    for element in elements:
        reached = {product}
        for term in terms.walk(element):
            if term is not product and any(arg in reached for arg in term.args):
                if term.op == "reindex":
                    return True
                reached.add(term)
    return False


def split_index(name: int | str, extents: Mapping[int, int]) -> dict[int, Affine]:
    """Return the indices on axes that one variable runs over, the last axis fastest."""
    rest = var(name, int(np.prod(list(extents.values()), dtype=np.int64)))
    index: dict[int, Affine] = {}
    for axis in sorted(extents, reverse=True):
        index[axis] = rest % extents[axis]
        rest = rest // extents[axis]
    return index


def loads_of(*elements: Term, index: Index, beside: Term | None = None) -> Iterator[tuple[Term, Affine | None]]:
    """Visit each buffer that elements read, with the offset there; None where an index would be clamped.

    What is computed `beside` a term is looked at, the term itself is not.
    """
    for leaf, (offset,) in loads_at(elements, (index,), beside):
        yield leaf, offset


def loads_at(
    elements: Sequence[Term], places: Sequence[Index], beside: Term | None = None
) -> Iterator[tuple[Term, list[Affine | None]]]:
    """As `loads_of` at several places, with the offsets at each: what places have in common is computed once."""
    seen: set[tuple[Term, int]] = set()
    number_of: dict[tuple[frozenset[tuple[int, Affine]], ...], int] = {}

    def numbered(places: Sequence[Index]) -> tuple[Sequence[Index], int]:
        return places, number_of.setdefault(tuple(frozenset(at.items()) for at in places), len(number_of))

    stack = [(element, *numbered(places)) for element in reversed(elements)]
    while stack:
        element, at, number = stack.pop()
        if element is beside or (element, number) in seen:
            continue
        seen.add((element, number))
        if element.op == "load":
            yield element.args[0], [_offset(element.args[0], place) for place in at]
        elif element.op == "reindex":
            inner = element.args[0]
            stack.append((inner, *numbered(_mapped(element.attrs[0], inner, at))))
        else:
            stack.extend((arg, at, number) for arg in reversed(element.args))


def apart_beside(product: Term, bodies: tuple[Term, ...], place: Index, values: IndexValues) -> int:
    """Return how many loads of bodies, beside those of a product, are made lane by lane."""
    loads = loads_of(*(body.args[0] for body in bodies), index=place, beside=product)
    return apart(values, (offset for _, offset in loads))


def _offset(leaf: Term, index: Index) -> Affine | None:
    shape = shapes.concrete(leaf.shape)
    at = tuple(index.get(a, FIRST) if shape[a] != 1 else FIRST for a in range(-len(shape), 0))
    inside = all(_is_within(i, extent) for i, extent in zip(at, shape, strict=True))
    return indexing.flatten(at, shape) if inside else None


def _is_within(at: Affine, extent: int) -> bool:
    low, high = at.bounds()
    return low >= 0 and high < extent


_OUTSIDE = Affine(-1)
"""Stands for an index that is clamped: no load takes it for one inside."""


def _mapped(mapping: IndexMap, inner: Term, places: Sequence[Index]) -> list[dict[int, Affine]]:
    """Return where a view reads for each of several places."""
    rank = len(mapping.source)
    extents = shapes.concrete(mapping.result)
    out: list[dict[int, Affine]] = [{} for _ in places]
    for axis in range(-rank, 0):
        if shapes.dim_at(inner.shape, axis) == 1:
            continue
        source = mapping.sources[axis]
        used = [a for a in range(-len(extents), 0) if a in source.variables()]
        found: dict[tuple[Affine, ...], Affine] = {}
        for place, result in zip(places, out, strict=True):
            values = tuple(place.get(a, FIRST) for a in used)
            if values not in found:
                inside = all(_is_within(value, extents[a]) for a, value in zip(used, values, strict=True))
                found[values] = source.substitute(dict(zip(used, values, strict=True))) if inside else _OUTSIDE
            result[axis] = found[values]
    return out


def packer(side: Side, extents: Mapping[str, int]) -> Pack:
    """Return a function of the operands' values that computes a side for all g, i or j, and k, in the order given.

    What lies in its buffer at regular distances is not copied.

    Shapes: the result has an axis for each of `extents`.
    """
    leaves = list(program.operands_of(side.element))
    keys = list(extents)
    rank = len(keys)
    axis_of: dict[int | str, Affine] = {key: var(i - rank, extents[key]) for i, key in enumerate(keys)}
    shape = side.element.shape
    sources = tuple(
        Affine() if shape[a] == 1 else side.index.get(a, Affine()).substitute(axis_of) for a in range(-len(shape), 0)
    )
    mapping = IndexMap(shape, tuple(extents.values()), sources)
    element = registry.make("reindex", "element", (side.element,), (mapping,)) if shape else side.element
    built = registry.make("build", "tensor", (element,), (tuple(extents.values()),))
    seen = strided_view(side, extents)

    def pack(*arrays: Array) -> Array:
        view = seen(*arrays) if seen else None
        if view is not None:
            return view
        values = {leaf.attrs[0]: array for leaf, array in zip(leaves, arrays, strict=True)}
        return np.ascontiguousarray(interpret.evaluate((built,), values, "native")[0])

    return pack


def strided_view(side: Side, extents: Mapping[str, int]) -> Callable[[Array], Array | None] | None:
    """Return what shows the buffer that a side only reads with an axis for each of `extents`, or None if it cannot.

    The function returns None for a buffer whose layout does not allow it.
    """
    element, index = side.element, side.index
    while element.op == "reindex":
        (index,) = _mapped(element.attrs[0], element.args[0], (index,))
        element = element.args[0]
    if element.op != "load":
        return None
    leaf = element.args[0]
    if _offset(leaf, index) is None:
        return None
    at = tuple(index.get(a, Affine()) if leaf.shape[a] != 1 else Affine() for a in range(-len(leaf.shape), 0))
    return lambda array: view_of(array, at, extents)


def structure(bodies: tuple[Term, ...]) -> str:
    """Write bodies and the types of their operands: equal text, equal code."""
    operands = (f"{leaf.attrs[0]}: {leaf.type}" for leaf in program.operands_of(*bodies))
    return "\n".join([*operands, *source.comment(bodies)])
