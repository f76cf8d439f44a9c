"""Where the buffers of a program lie: each in memory of its own, or written in place inside of another.

A view lies in its source. The parts of a join lie in the join: a part is the whole memory of something that a kernel
writes, in one join only, and there it may have gaps between its rows. Kernels over such buffers are written over the
memory that holds them:

    load(x)            ->  reindex(load(x as one axis), index -> number of the element)
    build(e, shape)    ->  part(e, shape, index -> number of the element)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from frittata.egraph import shapes
from frittata.egraph.indexing import Affine, IndexMap, Var, axes_of, flatten, reshape_map
from frittata.egraph.ops import registry
from frittata.egraph.program import Join, Kernel, Program, View
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import Scalar, Term, rebuild_all

Index = tuple[Affine, ...]

JOINS = frozenset({"concat", "pad", "permute"})
"""The operators whose operands may be written in place."""


@dataclass(frozen=True)
class Place:
    """Where a buffer lies: the value at an index is element number `at` of the buffer `root`, in terms of the axes.

    `join` is the innermost join around it.
    """

    root: str
    at: Affine
    shape: Shape
    join: str | None = None

    @property
    def offset(self) -> int:
        """The number of the first element."""
        return self.at.constant

    @cached_property
    def inside(self) -> Affine:
        """The number of an element, counted from the first."""
        return self.at + -self.offset

    @cached_property
    def is_contiguous(self) -> bool:
        """Whether the elements are one after the other, in row-major order."""
        return self.inside == flatten(axes_of(self.shape), shapes.concrete(self.shape))

    @property
    def strides(self) -> tuple[int, ...] | None:
        """The distance of neighbours on each axis, in elements; None if it is not the same everywhere."""
        if not all(isinstance(atom, Var) for atom, _ in self.inside.terms):
            return None
        return tuple(self.inside.factor_of(axis) or 0 for axis in range(-len(self.shape), 0))


@dataclass(frozen=True)
class Places:
    """The place of every buffer; `wrong` names joins whose parts cannot lie where they would have to.

    `border_by_join` has the value that fills a join before any part is written, outer joins first.
    """

    by_name: Mapping[str, Place]
    wrong: frozenset[str]
    border_by_join: Mapping[str, Scalar]

    def is_bordered(self, root: str) -> bool:
        """Whether a buffer holds values that no kernel writes: its memory is never used for anything else."""
        return any(self.by_name[join].root == root for join in self.border_by_join)


def find_places(program: Program) -> Places:
    """Return where the buffers of a program lie."""
    return _Finder(program).places()


class _Finder:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._types = program.types()
        self._views: dict[str, View] = {}
        self._joined: dict[str, tuple[str, Index]] = {}
        self._known: dict[str, Place] = {}
        self._wrong: set[str] = set()

    def places(self) -> Places:
        joins: list[Join] = []
        for step in self._program.steps:
            if isinstance(step, View):
                self._views[step.name] = step
            elif isinstance(step, Join):
                joins.append(step)
                self._join(step)
        by_name = {name: self._place(name) for name in self._types}
        borders = {j.name: j.body.attrs[2] for j in reversed(joins) if j.body.op == "pad"}
        uneven = {by_name[name].join or name for name in borders if by_name[name].strides is None}
        return Places(by_name, frozenset(self._wrong | uneven), borders)

    def _join(self, join: Join) -> None:
        owners = [self._owner(part) for part in join.parts]
        if None in owners or len(set(owners)) < len(owners):
            self._wrong.add(join.name)
            return
        for owner, part, index in zip(owners, join.body.args, _indices(join.body), strict=True):
            assert owner is not None
            rank = len(part.shape)
            own = reshape_map(part.shape, self._types[owner].shape).sources
            there: dict[int | str, Affine] = {axis - rank: at for axis, at in enumerate(own)}
            self._joined[owner] = join.name, tuple(at.substitute(there) for at in index)

    def _owner(self, name: str) -> str | None:
        """Return the buffer whose memory a part is as a whole, None if it is not a kernel's, or has a place already."""
        while name in self._views:
            view = self._views[name]
            if shapes.size(view.type.shape) != shapes.size(self._types[view.source].shape):
                return None
            name = view.source
        is_given = name in self._program.inputs or name in self._program.constants
        return None if is_given or name in self._joined else name

    def _place(self, name: str) -> Place:
        chain = [name]
        while chain[-1] not in self._known and (outer := self._outer(chain[-1])) is not None:
            chain.append(outer)
        for inner in reversed(chain):
            if inner not in self._known:
                self._known[inner] = self._within(inner)
        return self._known[name]

    def _outer(self, name: str) -> str | None:
        if name in self._views:
            return self._views[name].source
        return self._joined[name][0] if name in self._joined else None

    def _within(self, name: str) -> Place:
        """Return the place of a buffer when that of the one around it is known."""
        shape = self._types[name].shape
        if name in self._joined:
            join, index = self._joined[name]
            return Place(*self._inside(join, index), shape, join)
        rows = flatten(axes_of(shape), shapes.concrete(shape))
        if name not in self._views:
            return Place(name, rows, shape)
        view = self._views[name]
        outer = self._known[view.source]
        if outer.is_contiguous:
            return Place(outer.root, rows + (outer.offset + view.offset), shape, outer.join)
        source = self._types[view.source].shape
        index = _unflattened(rows + view.offset, shapes.concrete(source))
        return Place(*self._inside(view.source, index), shape, outer.join)

    def _inside(self, outer: str, index: Index) -> tuple[str, Affine]:
        around = self._known[outer]
        return around.root, around.at.substitute({axis - len(index): at for axis, at in enumerate(index)})


def _indices(body: Term) -> Iterator[Index]:
    """Visit the index into a join of each of its parts, in terms of the part's axes."""
    start = 0
    for part in body.args:
        index = list(axes_of(part.shape))
        if body.op == "pad":
            yield tuple(at + low for at, low in zip(index, body.attrs[0], strict=True))
            continue
        if body.op == "permute":
            yield tuple(index[axis] for axis in body.attrs[0])
            continue
        (axis,) = body.attrs
        index[axis] += start
        start += shapes.concrete(part.shape)[axis]
        yield tuple(index)


def _unflattened(at: Affine, shape: tuple[int, ...]) -> Index:
    index: list[Affine] = []
    for extent in reversed(shape):
        index.insert(0, at % extent)
        at = at // extent
    return tuple(index)


def can_be_placed(body: Term) -> bool:
    """Whether the parts of an operator can be written where its result ends up."""
    if any(not isinstance(dim, int) for dim in body.shape):
        return False
    return body.op != "pad" or min(*body.attrs[0], *body.attrs[1], 0) == 0


def placed_bodies(kernel: Kernel, places: Places) -> tuple[Term, ...]:
    """Return the bodies of a kernel over the memory that holds its buffers.

    What is inside of a border is always a `part`: no kernel may write more than its values.
    """
    apart = {name for name in kernel.operands if not places.by_name[name].is_contiguous}

    def replace(term: Term, args: tuple[Term, ...]) -> Term:
        if term.op == "load" and args[0].attrs[0] in apart:
            return _loaded(args[0], places.by_name[args[0].attrs[0]].inside)
        return term if args == term.args else registry.make(term.op, term.sort, args, term.attrs)

    bodies = rebuild_all(tuple(output.body for output in kernel.outputs), replace)
    return tuple(_stored(b, places, o.name) for b, o in zip(bodies, kernel.outputs, strict=True))


def _loaded(leaf: Term, inside: Affine) -> Term:
    name, shape, dtype = leaf.attrs
    line = (int(inside.bounds()[1]) + 1,)
    memory = registry.make("input", "tensor", (), (name, line, dtype))
    return registry.element("reindex", registry.element("load", memory), map=IndexMap(line, shape, (inside,)))


def _stored(body: Term, places: Places, name: str) -> Term:
    place = places.by_name[name]
    if body.op != "build" or (place.is_contiguous and not places.is_bordered(place.root)):
        return body
    return registry.tensor("part", body.args[0], shape=body.shape, at=place.inside)


def touches_apart(kernel: Kernel, places: Places) -> bool:
    """Whether a kernel reads or writes a buffer that has gaps, or lies in one that has a border."""
    written = (places.by_name[output.name] for output in kernel.outputs)
    return any(not places.by_name[name].is_contiguous for name in kernel.operands) or any(
        not place.is_contiguous or places.is_bordered(place.root) for place in written
    )
