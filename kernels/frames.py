"""The loops of a vector kernel: which axes its rows, the sequence within a row and the lanes run over.

    for i0 in rows:              axes that no fold binds
        for s0 in sequence:      axes that folds bind; in a frame of columns all of them
            for k in lanes:      the last axis, or several that every load goes through as one

Neighbouring axes are one loop where every load and store stays linear in its variable:
(2, 17, 64) + (1, 1, 64) has two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod

from frittata.egraph import terms
from frittata.egraph.indexing import Affine, var
from frittata.egraph.ops import registry
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Term
from frittata.kernels import vmath
from frittata.kernels.memory import MOST_COLUMNS
from frittata.kernels.points import Points, reduction
from frittata.kernels.processor import processor
from frittata.kernels.simd import Lane
from frittata.kernels.stores import BODIES, stored_at

LANES = "k"
_MOST_POINTS, _MOST_TIMES = 500, 8
"""A body of more points computes no element at more places than this, on average."""
_ATOMS = frozenset({"load", "const", "iota", "fold", "reindex", "at", "cast"})


@dataclass(frozen=True)
class Loop:
    """A variable and its extent."""

    key: str
    extent: int


@dataclass(frozen=True, eq=False)
class Frame:
    """How the axes of bodies become loops; `whole_lanes` are those of a vector, `lanes` as many as there is use for.

    `index` gives the bodies' index, `bound` that of the axes that folds bind, both in the variables of the loops. In
    `columns` folds run over the sequence, lane by lane; otherwise over sequence and lanes. Rows that are `short` lie
    side by side in the lanes, and the sequence goes along them.
    """

    shape: tuple[int, ...]
    index: Mapping[int, Affine]
    bound: Mapping[int, Affine]
    rows: tuple[Loop, ...]
    sequence: tuple[Loop, ...]
    extent: int
    lanes: int
    columns: bool
    whole_lanes: int
    short: bool = False

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return prod(loop.extent for loop in self.rows)

    @property
    def steps(self) -> int:
        """The number of steps of the sequence."""
        return prod(loop.extent for loop in self.sequence)

    @cached_property
    def inner(self) -> frozenset[int | str]:
        """The variables of the loops within a pass: what does not depend on them is computed before."""
        keys = {loop.key for loop in self.sequence}
        return frozenset(keys if self.columns else keys | {LANES})

    @property
    def is_reduced(self) -> bool:
        """Whether the bodies have one value for all that folds bind."""
        return bool(self.bound) and all(_extent(self.shape, axis) == 1 for axis in self.bound)

    def points(self) -> Points:
        """Return the points of the bodies."""
        return Points(self.index, self.bound)

    def describe(self) -> str:
        """Return all that tells frames of the same bodies apart."""
        index = ", ".join(f"{axis}: {at}" for axis, at in self.index.items())
        return f"{{{index}}} {self.rows} {self.sequence} {self.extent} {self.lanes} {self.columns} {self.short}"


def without_unit_folds(bodies: tuple[Term, ...]) -> tuple[Term, ...]:
    """Drop folds over one element."""
    if not any(term.op == "fold" and term.attrs[2] == 1 for term in terms.walk(*bodies)):
        return bodies

    def replace(term: Term, args: tuple[Term, ...]) -> Term:
        if term.op == "fold" and term.attrs[2] == 1:
            return args[0]
        return term if args == term.args else registry.make(term.op, term.sort, args, term.attrs)

    return terms.rebuild_all(bodies, replace)


@lru_cache(maxsize=4096)
def choose_frame(bodies: tuple[Term, ...], exchanged: bool = False) -> Frame | None:
    """Return the loops for bodies without folds over one element; None if they are not of this kind.

    Where the last axes are `exchanged` short rows lie side by side, and few columns, or those whose elements are
    neighbours in memory, are folded each along the lanes, or along the axis before them; or there is no frame.
    """
    elements = [body.args[0] for body in bodies if body.op in BODIES]
    every = [*terms.walk(*elements)]
    if len(elements) != len(bodies) or not all(map(is_known, every)):
        return None
    shape = tuple(dim for dim in bodies[0].shape if not isinstance(dim, Sym))
    folded = _folded(every)
    if folded is None or any(body.shape != shape for body in bodies):
        return None
    reduced = {_extent(shape, axis) == 1 for axis in folded}
    if len(reduced) > 1 or any(_extent(shape, axis) not in (1, extent) for axis, extent in folded.items()):
        return None
    return _frame(bodies, every, shape, folded, exchanged)


def is_known(term: Term) -> bool:
    """Whether a term has known extents and, if it is an element, vector code can be emitted for it or a fold of it."""
    if any(isinstance(dim, Sym) for dim in term.shape):
        return False
    return term.sort == "tensor" or term.op in _ATOMS or term.op in vmath.OPS


def _folded(every: Sequence[Term]) -> dict[int, int] | None:
    """Return the axes that folds bind and their extents; None if an axis has two."""
    extents: dict[int, int] = {}
    for term in every:
        if term.op == "fold" and extents.setdefault(term.attrs[1], term.attrs[2]) != term.attrs[2]:
            return None
    return extents


def _extent(shape: tuple[int, ...], axis: int) -> int:
    return shape[axis] if -axis <= len(shape) else 1


def _frame(
    bodies: Sequence[Term], every: Sequence[Term], shape: tuple[int, ...], folded: dict[int, int], exchanged: bool
) -> Frame | None:
    """Return the loops for bodies, of which `every` are all terms."""
    elements = [body.args[0] for body in bodies]
    rank = max(len(shape), max((-axis for axis in folded), default=0))
    extents = {axis: folded.get(axis, _extent(shape, axis)) for axis in range(-rank, 0)}
    live = [axis for axis, extent in extents.items() if extent > 1]
    index = {axis: var(axis, extents[axis]) for axis in live}
    points = Points(index, {axis: index[axis] for axis in folded})
    offsets = _offsets(elements, len(every), points, folded)
    if offsets is None:
        return None
    stored = {axis: at for axis, at in index.items() if _extent(shape, axis) > 1}
    offsets |= {stored_at(body, stored) for body in bodies}
    groups = _grouped(live, extents, folded, offsets)
    columns = bool(folded) and bool(live) and live[-1] not in folded
    lanes = _lanes(every)
    if not exchanged:
        frame = _with_roles(shape, extents, folded, groups, columns, lanes)
    elif not columns:
        return _short(bodies, shape, extents, folded, groups, lanes)
    elif len(groups) > 1 and (
        prod(extents[axis] for axis in groups[-1]) < lanes or _lies_along(groups[-2], folded, offsets)
    ):
        turned = [*groups[:-2], groups[-1], groups[-2]]
        frame = _with_roles(shape, extents, folded, turned, groups[-2][0] not in folded, lanes)
    else:
        return None
    if not _is_smooth(frame, bodies) and not folded and _extent(shape, -1) == 1:
        frame = _with_roles(shape, extents, folded, [*groups, []], columns, lanes)  # one column of something wider
    return frame if _is_smooth(frame, bodies) else None


def _lies_along(group: list[int], folded: Mapping[int, int], offsets: set[Affine]) -> bool:
    """Whether what is folded along a group of axes is in one piece."""
    return group[0] in folded and any(offset.factor_of(group[-1]) == 1 for offset in offsets)


def _is_smooth(frame: Frame, bodies: Sequence[Term]) -> bool:
    """Whether the lanes of a vector are stored side by side, or in one place."""
    return all(at.factor_of(LANES) in (0, 1) for at in _stored(frame, bodies))


def _short(
    bodies: Sequence[Term],
    shape: tuple[int, ...],
    extents: dict[int, int],
    folded: Mapping[int, int],
    groups: list[list[int]],
    lanes: int,
) -> Frame | None:
    """Let rows of the last axes lie side by side, where they are stored one by one.

    Folds bind all of a row, one group, and nothing else. Where there is no fold, rows are as long as they may be.
    """
    if folded and (groups[-1][0] not in folded or any(group[0] in folded for group in groups[:-1])):
        return None
    sizes = [prod(extents[axis] for axis in group) for group in groups]
    counts = (1,) if folded else range(len(groups) - 1, 0, -1)
    count = next((n for n in counts if n < len(groups) and prod(sizes[-n:]) <= MOST_COLUMNS), 0)
    if not count or sizes[-count - 1] < lanes:
        return None
    row = [axis for group in groups[-count:] for axis in group]
    turned = [*groups[: -count - 1], row, groups[-count - 1]]
    frame = _with_roles(shape, extents, dict.fromkeys(row, 0), turned, True, lanes)
    (loop,) = frame.sequence
    frame = replace(frame, bound={axis: frame.index[axis] for axis in folded}, short=True)
    wanted = (1, 0) if frame.is_reduced else (frame.steps, 1)
    is_dense = all((at.factor_of(LANES), at.factor_of(loop.key)) == wanted for at in _stored(frame, bodies))
    return frame if is_dense else None


def _stored(frame: Frame, bodies: Sequence[Term]) -> list[Affine]:
    stored = {axis: at for axis, at in frame.index.items() if _extent(frame.shape, axis) > 1}
    return [stored_at(body, stored) for body in bodies]


def _offsets(elements: Sequence[Term], count: int, points: Points, folded: dict[int, int]) -> set[Affine] | None:
    """Return the offsets of all loads, of `count` terms; None if folds are not all over `folded`, or depend on these.

    Also None where much is computed again and again: at each of the places that steps of a stencil reach together.
    """
    offsets: set[Affine] = set()
    bound = frozenset(folded)
    most = max(_MOST_POINTS, _MOST_TIMES * count)
    for number, point in enumerate(points.walk(map(points.at, elements))):
        if number > most:
            return None
        if point.term.op == "fold":
            if reduction(point.term).extent_by_axis != folded or point.where.clamped or point.keys & bound:
                return None
        elif point.term.op in ("load", "iota"):
            offsets.add(points.offset(point))
    return offsets


def _grouped(
    live: list[int], extents: dict[int, int], folded: Mapping[int, int], offsets: set[Affine]
) -> list[list[int]]:
    """Join neighbouring axes, from the last one on, where all offsets stay linear in the joined variable."""
    groups: list[list[int]] = []
    for axis in reversed(live):
        last = groups[0] if groups else None
        if last is not None and (axis in folded) == (last[0] in folded):
            inner = prod(extents[a] for a in last)
            joined = var("joined", extents[axis] * inner)
            by_key: dict[int | str, Affine] = {axis: joined // inner, last[0]: joined % inner}
            merged = {offset.substitute(by_key) for offset in offsets}
            if all(offset.factor_of("joined") is not None for offset in merged):
                whole: dict[int | str, Affine] = {"joined": var(axis, extents[axis] * inner)}
                offsets = {offset.substitute(whole) for offset in merged}
                last.insert(0, axis)
                continue
        groups.insert(0, [axis])
    return groups


def _lanes(every: Sequence[Term]) -> int:
    """Return how many lanes a vector of the narrowest numbers has; of bytes, as if they were of four."""
    sizes = [Lane(term.dtype).register_bytes for term in every if term.dtype != "bool"]
    return processor().width // min(sizes, default=4)


def _with_roles(
    shape: tuple[int, ...],
    extents: dict[int, int],
    folded: Mapping[int, int],
    groups: list[list[int]],
    columns: bool,
    lanes: int,
) -> Frame:
    index: dict[int, Affine] = {}
    rows: list[Loop] = []
    sequence: list[Loop] = []
    width = 1
    for group in groups:
        size = prod(extents[axis] for axis in group)
        if group is groups[-1]:
            key, width = LANES, size
        elif group[0] in folded:
            key = f"s{len(sequence)}"
            sequence.append(Loop(key, size))
        else:
            key = f"i{len(rows)}"
            rows.append(Loop(key, size))
        whole, inner = var(key, size), size
        for axis in group:
            inner //= extents[axis]
            index[axis] = (whole // inner) % extents[axis]
    used = min(lanes, 1 << (width - 1).bit_length())
    bound = {axis: index[axis] for axis in folded}
    return Frame(shape, index, bound, tuple(rows), tuple(sequence), width, used, columns, lanes)
