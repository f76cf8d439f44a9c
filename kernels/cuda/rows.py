"""A group of threads for each row: the loops of a row are shared among its lanes, and folds meet in shared memory.

    max0 = -inf                                 max0 = -inf
    for k0 in range(768):                  ->   for k0 in range(lane, 768, 256):
        max0 = max(max0, x[i*768 + k0])             max0 = max(max0, x[i*768 + k0])
                                                tree0[thread] = max0; halve until one is left; max0 = tree0[first]

A block has several rows if they are short. Where the last axis numbers rows, as in sums down columns, neighbouring
threads have neighbouring rows, so that loads stay coalesced.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from frittata.egraph import dtypes, shapes, terms
from frittata.egraph.indexing import Affine, IndexMap, var
from frittata.egraph.ops import registry
from frittata.egraph.terms import Term
from frittata.kernels import source, spelling
from frittata.kernels.contractions import split_index
from frittata.kernels.cuda.kernel import MOST_THREADS, SHARED_BYTES, CudaKernel, ceil_div, cuda_kernel, power_of_two
from frittata.kernels.cuda.writing import Writer, name_quotients, spell_out, unknown, writer_for
from frittata.kernels.loops import (
    Accumulate,
    Accumulator,
    Apply,
    Assign,
    AssignIndex,
    Expression,
    Load,
    Local,
    Lookup,
    Loop,
    Nest,
    Row,
    Statement,
    Store,
    map_values,
    parts,
    statements,
    values_of,
)
from frittata.kernels.lower import Around, lower

ROW = "i"
_INNER = "j"
_MOST_ROW_BYTES = 16 << 10
_MOST_SIDE_BY_SIDE = 32
_STEP_BY_FOLD = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


@dataclass(frozen=True, eq=False)
class Rows:
    """How bodies are split among blocks: `members` rows in each, `lanes` threads for each row."""

    bodies: tuple[Term, ...]
    nest: Nest
    count: int
    members: int
    lanes: int
    columns: bool
    """Whether neighbouring threads have neighbouring rows, not neighbouring lanes."""

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return ceil_div(self.count, self.members)

    @property
    def block(self) -> list[Statement]:
        """What is done for one row."""
        body: list[Statement] = []
        for s in self.nest.body:
            body += s.body if isinstance(s, Loop) and s.var == ROW else [s]
        return body


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
    """Return how to run bodies with `inner` as the axes of a row; None if no loop can be shared among lanes."""
    for most_row_bytes in (_MOST_ROW_BYTES, 0):
        found = _plan(bodies, inner, most_row_bytes)
        if found is not None and _shared_bytes(found) <= SHARED_BYTES:
            return found
    return None


def _plan(bodies: tuple[Term, ...], inner: frozenset[int], most_row_bytes: int) -> Rows | None:
    shape = shapes.concrete(bodies[0].shape)
    axes = {axis: shape[axis] for axis in range(-len(shape), 0)}
    outer = {axis: extent for axis, extent in axes.items() if axis not in inner}
    within = {axis: axes[axis] for axis in axes if axis in inner}
    extents = {ROW: prod(outer.values()), _INNER: prod(within.values())}
    index = {**split_index(ROW, outer), **split_index(_INNER, within)}
    around = Around({name: extent for name, extent in extents.items() if extent > 1}, index, most_row_bytes)
    count = extents[ROW]
    rows = Rows(bodies, lower(bodies, around), count, 1, 1, columns=False)
    loops = [s for s in rows.block if isinstance(s, Loop)]
    if not loops or not all(map(is_shareable, loops)) or not _is_simple(rows.block):
        return None
    widest = max(loop.extent for loop in loops)
    columns = -1 in outer and outer[-1] > 1
    if columns:
        members = power_of_two(count, _MOST_SIDE_BY_SIDE)
        lanes = power_of_two(ceil_div(widest, 4), MOST_THREADS // members)
    else:
        lanes = max(power_of_two(ceil_div(widest, 4), MOST_THREADS), power_of_two(widest, 32))
        members = power_of_two(count, MOST_THREADS // lanes)
    rows = replace(rows, members=members, lanes=lanes, columns=columns)
    while rows.members > 1 and _shared_bytes(rows) > SHARED_BYTES:
        rows = replace(rows, members=rows.members // 2)
    return rows


def _shared_bytes(rows: Rows) -> int:
    held = sum(row.extent * dtypes.itemsize(row.dtype) for row in rows.nest.rows())
    trees = sum(dtypes.itemsize(dtype) for _, dtype in _trees(rows)) * rows.members * rows.lanes
    return held * rows.members + trees


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


def _trees(rows: Rows) -> list[tuple[str, str]]:
    """Return the names and dtypes of the arrays in which folds meet."""
    dtypes_needed: list[str] = []
    for loop in rows.block:
        if isinstance(loop, Loop):
            needed = [s.value.dtype for s in sums_of(loop)]
            for dtype in dict.fromkeys(needed):
                dtypes_needed += [dtype] * (needed.count(dtype) - dtypes_needed.count(dtype))
    return [(f"tree{i}", dtype) for i, dtype in enumerate(dtypes_needed)]


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


# ---- source ----------------------------------------------------------------------------------------------------------


def write_rows(name: str, bodies: tuple[Term, ...], rows: Rows) -> CudaKernel:
    """Write the kernel of bodies, planned as `rows`."""
    return _RowWriter(rows).kernel(name, bodies)


class _RowWriter:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._body = deepcopy(rows.block)
        self._writer: Writer = writer_for((*rows.nest.operands, *rows.nest.results))
        self._extent_by_row = {row.array: row.extent for row in rows.nest.rows()}
        self._threads = rows.members * rows.lanes
        self._thread = unknown("thread" if rows.members > 1 else "lane")

    def kernel(self, name: str, bodies: tuple[Term, ...]) -> CudaKernel:
        rows, body = self._rows, self._body
        spell_out(body)
        if rows.members > 1:
            self._spread(body)
        body = name_quotients(body, (ROW, "member"))
        lines = [source.INDENT + line for line in self._head()]
        for statement in body:
            lines += self._statement(statement)
        note = f"{rows.count} rows, {rows.members} in each block, {rows.lanes} lanes for each"
        return cuda_kernel(name, bodies, rows.blocks, self._threads, lines, [note], rows.nest.status_words)

    def _spread(self, body: list[Statement]) -> None:
        """Make room for the rows of all members of a block."""
        member, members = unknown("member"), self._rows.members

        def moved(array: str, offset: Affine) -> Affine:
            if array not in self._extent_by_row:
                return offset
            return offset * members + member if self._rows.columns else offset + member * self._extent_by_row[array]

        def change(value: Expression) -> Expression:
            return replace(value, offset=moved(value.array, value.offset)) if isinstance(value, Load) else value

        map_values(body, change)
        for statement in statements(body):
            if isinstance(statement, Store):
                statement.offset = moved(statement.array, statement.offset)

    def _head(self) -> Iterator[str]:
        rows = self._rows
        for tree, dtype in _trees(rows):
            yield f"{tree} = cuda.shared.array({self._threads}, {spelling.memory_dtype(dtype)})"
        for row in rows.nest.rows():
            yield f"{row.array} = cuda.shared.array({rows.members * row.extent}, {spelling.memory_dtype(row.dtype)})"
        if rows.members == 1:
            yield "lane = cuda.threadIdx.x"
            if rows.count > 1:
                yield f"{ROW} = cuda.blockIdx.x"
            return
        yield "thread = cuda.threadIdx.x"
        yield f"member = thread {'%' if rows.columns else '//'} {rows.members if rows.columns else rows.lanes}"
        yield f"lane = thread {'//' if rows.columns else '%'} {rows.members if rows.columns else rows.lanes}"
        at = f"cuda.blockIdx.x*{rows.members} + member"
        # rows beyond the last are the last once more, so that all threads meet
        yield f"{ROW} = min({at}, {rows.count - 1})" if rows.count % rows.members else f"{ROW} = {at}"

    def _statement(self, statement: Statement) -> Iterator[str]:
        indent, rows = source.INDENT, self._rows
        match statement:
            case Row():
                return
            case Loop(var=name, extent=extent, body=body):
                yield f"{indent}for {name} in range(lane, {extent}, {rows.lanes}):"
                yield from self._writer.write(body, 2)
                yield from (indent + line for line in self._meet(statement))
            case Store() if rows.lanes > 1:
                yield f"{indent}if lane == 0:"
                yield from self._writer.write([statement], 2)
            case _:
                yield from self._writer.write([statement])

    def _meet(self, loop: Loop) -> Iterator[str]:
        """Combine the lanes' folds after a loop, and make its rows visible to all of them."""
        sums = sums_of(loop)
        if not sums or self._rows.lanes == 1:
            if any(isinstance(s, Store) and s.array in self._extent_by_row for s in statements(loop.body)):
                yield "cuda.syncthreads()"
            return
        trees = self._trees_for(sums)
        at, half = self._thread, unknown("half") * (self._rows.members if self._rows.columns else 1)
        for tree, fold in zip(trees, sums, strict=True):
            yield from self._lines(Store(tree, at, Local(fold.name, fold.value.dtype)))
        yield "cuda.syncthreads()"
        yield f"half = {self._rows.lanes // 2}"
        yield "while half > 0:"
        yield f"{source.INDENT}if lane < half:"
        for tree, fold in zip(trees, sums, strict=True):
            dtype = fold.value.dtype
            pair = (Load(tree, at, dtype), Load(tree, at + half, dtype))
            step = Store(tree, at, Apply(_STEP_BY_FOLD[fold.fold], pair, dtype))
            yield from (source.INDENT * 2 + line for line in self._lines(step))
        yield f"{source.INDENT}cuda.syncthreads()"
        yield f"{source.INDENT}half //= 2"
        for tree, fold in zip(trees, sums, strict=True):
            yield from self._lines(Assign(fold.name, Load(tree, self._first(), fold.value.dtype)))
        yield "cuda.syncthreads()"

    def _first(self) -> Affine:
        """Return the number of the thread that is lane 0 of a row."""
        if self._rows.members == 1:
            return Affine()
        return unknown("member") * (1 if self._rows.columns else self._rows.lanes)

    def _trees_for(self, sums: list[Accumulate]) -> list[str]:
        free = _trees(self._rows)
        out: list[str] = []
        for fold in sums:
            found = next(tree for tree in free if tree[1] == fold.value.dtype)
            free.remove(found)
            out.append(found[0])
        return out

    def _lines(self, statement: Statement) -> list[str]:
        return self._writer.write([statement], 0)
