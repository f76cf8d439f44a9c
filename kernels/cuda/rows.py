"""Rows: how bodies with folds are split among blocks, and their loops among the lanes of a row.

A row has a group of lanes, part of a warp up to several warps. What loops of one row use at the same places stays in
each lane's registers if it fits, otherwise rows are held in shared memory, or computed again. A block has several rows
if they are short. Where the last axis numbers rows, as in sums down columns, neighbouring threads have neighbouring
rows, so that loads stay coalesced. How that is written: kernels/cuda/row_writer.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from frittata.egraph import dtypes, shapes, terms
from frittata.egraph.indexing import IndexMap, var
from frittata.egraph.ops import registry
from frittata.egraph.terms import Term
from frittata.kernels.contractions import split_index
from frittata.kernels.cuda.kernel import (
    ENOUGH_THREADS,
    MOST_THREADS,
    MULTIPROCESSORS,
    SHARED_BYTES,
    ceil_div,
    power_of_two,
)
from frittata.kernels.cuda.unroll import MOST_ROUNDS, in_step, is_plain, keep_loads, most_rounds, words_alive
from frittata.kernels.cuda.warps import WARP
from frittata.kernels.holding import HOLD_UNITS
from frittata.kernels.loops import (
    Accumulate,
    Accumulator,
    Assign,
    AssignIndex,
    Load,
    Local,
    Lookup,
    Loop,
    Nest,
    Row,
    Statement,
    Store,
    parts,
    statements,
    values_of,
)
from frittata.kernels.lower import Around, lower

ROW = "i"
_INNER = "j"
MOST_LANES = 1024
"""The lanes of a row, at most: a whole block."""
FEW_ROUNDS = 4
"""A row has no more lanes than leave each so many rounds, unless it is short."""
_MOST_KEPT_BYTES = 8 * MOST_ROUNDS * MOST_LANES
_MOST_ROW_BYTES = 16 << 10
"""What is kept of a row in registers, or held in shared memory, at most."""
_SIDE_BY_SIDE = 32
_SECTOR = 8
"""Columns of four bytes that memory delivers together."""


@dataclass(frozen=True, eq=False)
class Rows:
    """How bodies are split among blocks: `members` rows in each, `lanes` threads for each row."""

    bodies: tuple[Term, ...]
    nest: Nest
    block: list[Statement]
    """What is done for one row."""
    count: int
    members: int
    lanes: int
    columns: bool
    """Whether neighbouring threads have neighbouring rows, not neighbouring lanes."""
    unrolled: bool
    """Whether plain loops have few rounds for each lane, and rows that lanes need not share lie in registers."""

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return ceil_div(self.count, self.members)

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.members * self.lanes

    @property
    def held(self) -> set[str]:
        """The names of all rows that lie in registers or shared memory."""
        return {s.array for s in self.block if isinstance(s, Row)}

    @property
    def private(self) -> list[Row]:
        """The rows that lie in registers."""
        return in_step(self.block) if self.unrolled else []

    @property
    def shared(self) -> list[Row]:
        """The rows that lie in shared memory."""
        private = {row.array for row in self.private}
        return [s for s in self.block if isinstance(s, Row) and s.array not in private]

    @property
    def among(self) -> int:
        """How many lanes of one row a warp has, whose folds meet without shared memory."""
        return min(self.lanes, max(1, WARP // self.members) if self.columns else WARP)

    @property
    def meeting(self) -> int:
        """How many values of a fold meet in shared memory."""
        return self.threads // self.among if self.lanes > self.among else 0

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block: rows, and where folds meet."""
        rows = sum(row.extent * dtypes.itemsize(row.dtype) for row in self.shared) * self.members
        loops = [s for s in self.block if isinstance(s, Loop)]
        return rows + sum(dtypes.itemsize(s.value.dtype) for loop in loops for s in sums_of(loop)) * self.meeting


def plans(bodies: tuple[Term, ...]) -> Iterator[Rows]:
    """Yield the ways to run bodies by rows: the axes of a row are those that folds bind, the last one, or none."""
    bodies = join_folds(bodies)
    folded = frozenset(t.attrs[1] for t in terms.walk(*bodies) if t.op == "fold")
    rank = len(bodies[0].shape)
    seen: set[frozenset[int]] = set()
    for axes in (folded, {-1}, set[int]()):
        inner = frozenset(axis for axis in axes if -axis <= rank and bodies[0].shape[axis] != 1)
        if inner not in seen:
            seen.add(inner)
            found = plan(bodies, inner)
            if found is not None:
                yield found


@lru_cache(maxsize=1024)
def plan(bodies: tuple[Term, ...], inner: frozenset[int]) -> Rows | None:
    """Return how to run bodies with `inner` as the axes of a row; None if no loop can be shared among lanes.

    All that two loops need lies in registers; if it does not fit, dear rows in shared memory; otherwise none are held.
    """
    for most_row_bytes, hold_units in ((_MOST_KEPT_BYTES, 1.0), (_MOST_ROW_BYTES, HOLD_UNITS), (0, HOLD_UNITS)):
        rows = _lowered(bodies, inner, most_row_bytes, hold_units)
        loops = [s for s in rows.block if isinstance(s, Loop)]
        if not loops or not all(map(is_shareable, loops)) or not _is_simple(rows.block):
            return None
        in_registers = most_row_bytes == _MOST_KEPT_BYTES
        if in_registers:
            keep_loads(rows.block, [row.array for row in rows.nest.rows()])
        rows = _split_columns(rows) if rows.columns else _split_rows(rows)
        while rows.shared_bytes > SHARED_BYTES and rows.members > 1 and rows.threads > WARP:
            rows = replace(rows, members=rows.members // 2)
        if rows.shared_bytes <= SHARED_BYTES and not (in_registers and rows.shared):
            return rows
    return None


def _lowered(bodies: tuple[Term, ...], inner: frozenset[int], most_row_bytes: int, hold_units: float) -> Rows:
    shape = shapes.concrete(bodies[0].shape)
    axes = {axis: shape[axis] for axis in range(-len(shape), 0)}
    outer = {axis: extent for axis, extent in axes.items() if axis not in inner}
    within = {axis: axes[axis] for axis in axes if axis in inner}
    extents = {ROW: prod(outer.values()), _INNER: prod(within.values())}
    index = {**split_index(ROW, outer), **split_index(_INNER, within)}
    opened = {name: extent for name, extent in extents.items() if extent > 1}
    nest = lower(bodies, Around(opened, index, most_row_bytes, hold_units=hold_units))
    block: list[Statement] = []
    for s in nest.body:
        block += s.body if isinstance(s, Loop) and s.var == ROW else [s]
    columns = -1 in outer and outer[-1] > 1
    return Rows(bodies, nest, deepcopy(block), extents[ROW], 1, 1, columns, unrolled=False)


def _widest(rows: Rows) -> int:
    return max(s.extent for s in rows.block if isinstance(s, Loop))


def _most_rounds(rows: Rows) -> int:
    """Return how many rounds of a loop a lane may have under way, so that it keeps at most `MOST_ROUNDS` values."""
    loops = [s for s in rows.block if isinstance(s, Loop) and is_plain(s)]
    kept = words_alive(rows.block, in_step(rows.block))
    return min([MOST_ROUNDS // max(1, kept), *(most_rounds(loop.body) for loop in loops)])


def _split_rows(rows: Rows) -> Rows:
    widest, most = _widest(rows), _most_rounds(rows)
    lanes = power_of_two(widest, WARP)
    if not all(is_plain(s) for s in rows.block if isinstance(s, Loop)):
        lanes = max(lanes, power_of_two(ceil_div(widest, FEW_ROUNDS), MOST_THREADS))
    while ceil_div(widest, lanes) > most and lanes < MOST_LANES:
        lanes *= 2
    unrolled = ceil_div(widest, lanes) <= most
    lanes = lanes if unrolled else MOST_THREADS
    while rows.count * lanes * 2 <= ENOUGH_THREADS and ceil_div(widest, lanes) > FEW_ROUNDS and lanes < MOST_LANES:
        lanes *= 2
    members = power_of_two(rows.count, max(1, MOST_THREADS // lanes))
    while members > 1 and ceil_div(rows.count, members) < MULTIPROCESSORS:
        members //= 2
    members = max(members, WARP // lanes)
    return replace(rows, members=members, lanes=lanes, unrolled=unrolled)


def _split_columns(rows: Rows) -> Rows:
    widest, most = _widest(rows), _most_rounds(rows)
    members = power_of_two(rows.count, _SIDE_BY_SIDE)
    while members > _SECTOR and ceil_div(rows.count, members) < MULTIPROCESSORS:
        members //= 2
    fewest = lanes = power_of_two(ceil_div(widest, FEW_ROUNDS), max(1, MOST_THREADS // members))
    while in_step(rows.block) and ceil_div(widest, lanes) > most and lanes * members < MOST_LANES:
        lanes *= 2
    unrolled = ceil_div(widest, lanes) <= most
    lanes = lanes if unrolled else fewest
    while rows.count * lanes * 2 <= ENOUGH_THREADS and widest > lanes * MOST_ROUNDS and lanes * members < MOST_LANES:
        lanes *= 2
    return replace(rows, members=members, lanes=lanes, unrolled=unrolled)


def _is_simple(block: list[Statement]) -> bool:
    """Whether there are only statements that are known here, and rows only in the block itself."""
    kinds = Assign | AssignIndex | Lookup | Accumulator | Accumulate | Store | Loop
    return all(isinstance(s, kinds) or (s in block and isinstance(s, Row)) for s in statements(block))


def is_shareable(loop: Loop) -> bool:
    """Whether a loop may run in any order: it reads no sum that it adds to, and no array that it writes elsewhere."""
    inner = list(statements(loop.body))
    made = {s.name for s in inner if isinstance(s, Accumulator)}
    sums = {s.name for s in inner if isinstance(s, Accumulate)} - made
    offset_by_array = {s.array: s.offset for s in inner if isinstance(s, Store)}
    for statement in inner:
        for value in values_of(statement):
            for part in parts(value):
                if isinstance(part, Local) and part.name in sums:
                    return False
                if isinstance(part, Load) and offset_by_array.get(part.array, part.offset) != part.offset:
                    return False
    return True


def sums_of(loop: Loop) -> list[Accumulate]:
    """Return the folds of a loop that go on behind it, one statement for each."""
    made = {s.name for s in statements(loop.body) if isinstance(s, Accumulator)}
    found: dict[str, Accumulate] = {}
    for s in statements(loop.body):
        if isinstance(s, Accumulate) and s.name not in made:
            found.setdefault(s.name, s)
    return list(found.values())


# ---- several folds over several axes ---------------------------------------------------------------------------------


def join_folds(bodies: tuple[Term, ...]) -> tuple[Term, ...]:
    """Make folds of folds one fold: fold(-1) of fold(-2) of e -> fold of e over an axis of its own, left of all."""

    def joined(term: Term, args: tuple[Term, ...]) -> Term:
        term = term if args == term.args else registry.make(term.op, term.sort, args, term.attrs)
        if term.op != "fold" or args[0].op != "fold" or args[0].attrs[0] != term.attrs[0]:
            return term
        (op, axis, extent), (_, inner_axis, inner_extent), e = term.attrs, args[0].attrs, args[0].args[0]
        return term if axis == inner_axis else _join(e, op, {axis: extent, inner_axis: inner_extent})

    return terms.rebuild_all(bodies, joined)


def _join(e: Term, op: str, extents: dict[int, int]) -> Term:
    rank = max(len(e.shape), *(-axis for axis in extents))
    shape = tuple(extents.get(axis, int(shapes.dim_at(e.shape, axis))) for axis in range(-rank, 0))  # type: ignore[arg-type]
    size = prod(extents.values())
    result = (size, *(1 if axis in extents else n for axis, n in zip(range(-rank, 0), shape, strict=True)))
    split = split_index(-rank - 1, extents)
    sources = tuple(split.get(axis, var(axis, n)) for axis, n in zip(range(-rank, 0), shape, strict=True))
    view = registry.element("reindex", e, map=IndexMap(shape, result, sources))
    return registry.element("fold", view, op=op, axis=-rank - 1, extent=size)
