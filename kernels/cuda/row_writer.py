"""Source of rows: their loops in rounds over the lanes, and folds that meet.

    max0 = -inf                                 max0 = -inf
    for k0 in range(768):                  ->   for h in range(24):
        max0 = max(max0, x[i*768 + k0])             held0[h] = x[i*768 + lane + h*32]; max0 = max(max0, held0[h])
                                                for half in (16, 8, 4, 2, 1):
                                                    max0 = max(max0, cuda.shfl_xor_sync(0xffffffff, max0, half))

Folds meet in the lanes of a warp; those of several warps then go through shared memory, one value of each warp, or, of
those down columns, one of each column in a warp. All are combined in a fixed order, the same in every lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace

from frittata.egraph.indexing import Affine, var
from frittata.egraph.terms import Term
from frittata.kernels import source, spelling
from frittata.kernels.cuda.kernel import CudaKernel, cuda_kernel
from frittata.kernels.cuda.rows import ROW, Rows, sums_of
from frittata.kernels.cuda.unroll import UNROLLED, is_plain, moved, rounds
from frittata.kernels.cuda.warps import WARP
from frittata.kernels.cuda.writing import name_quotients, spell_out, writer_for
from frittata.kernels.loops import (
    Accumulate,
    Apply,
    Assign,
    Expression,
    Load,
    Local,
    Loop,
    Row,
    Statement,
    Store,
    map_values,
    statements,
    substitute_indices,
)

LANE = "lane"
_STEP_BY_FOLD = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


@dataclass
class _Lanes(Loop):
    """A loop that lanes share as it is, for what is in it."""


@dataclass
class _Meet(Loop):
    """What follows a loop: its folds meet, and what it has stored is there for all lanes."""

    sums: list[tuple[str, Accumulate]] = field(default_factory=list[tuple[str, Accumulate]])
    """With the array in shared memory where each meets."""
    stores: bool = False


def write_rows(name: str, bodies: tuple[Term, ...], rows: Rows) -> CudaKernel:
    """Write the kernel of bodies, planned as `rows`."""
    return _RowWriter(rows).kernel(name, bodies)


class _RowWriter:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._writer = writer_for(rows.bodies, [UNROLLED])
        self._private = {row.array for row in rows.private}
        self._extent_by_shared = {row.array: row.extent for row in rows.shared}
        self._trees: list[tuple[str, str]] = []
        self._thread = var("thread" if rows.members > 1 else LANE, rows.threads)
        self._member = var("member", rows.members)

    def kernel(self, name: str, bodies: tuple[Term, ...]) -> CudaKernel:
        rows, body = self._rows, deepcopy(self._rows.block)
        spell_out(body)
        if rows.members > 1:
            self._spread(body)
        split: list[Statement] = []
        for statement in body:
            split += self._split(statement)
        split = name_quotients(split, (ROW, "member", LANE))
        lines = [*self._head(), *source.write(split, self._special, 0)]
        note = f"{rows.count} rows, {rows.members} in each block, {rows.lanes} lanes for each"
        indented = [source.INDENT + line for line in lines]
        return cuda_kernel(name, bodies, rows.blocks, rows.threads, indented, [note], rows.nest.status_words)

    def _spread(self, body: list[Statement]) -> None:
        """Make room for the rows of all members of a block."""
        member, members = self._member, self._rows.members

        def placed(array: str, offset: Affine) -> Affine:
            if array not in self._extent_by_shared:
                return offset
            return offset * members + member if self._rows.columns else offset + member * self._extent_by_shared[array]

        def change(value: Expression) -> Expression:
            return replace(value, offset=placed(value.array, value.offset)) if isinstance(value, Load) else value

        map_values(body, change)
        for statement in statements(body):
            if isinstance(statement, Store):
                statement.offset = placed(statement.array, statement.offset)

    def _head(self) -> Iterator[str]:
        rows = self._rows
        for tree, dtype in self._trees:
            yield f"{tree} = cuda.shared.array({rows.meeting}, {spelling.memory_dtype(dtype)})"
        for row in rows.shared:
            yield f"{row.array} = cuda.shared.array({rows.members * row.extent}, {spelling.memory_dtype(row.dtype)})"
        if rows.members == 1:
            yield f"{LANE} = cuda.threadIdx.x"
            if rows.count > 1:
                yield f"{ROW} = cuda.blockIdx.x"
            return
        yield "thread = cuda.threadIdx.x"
        yield f"member = thread {'%' if rows.columns else '//'} {rows.members if rows.columns else rows.lanes}"
        yield f"{LANE} = thread {'//' if rows.columns else '%'} {rows.members if rows.columns else rows.lanes}"
        at = f"cuda.blockIdx.x*{rows.members} + member"
        # rows beyond the last are the last once more, so that all threads meet
        yield f"{ROW} = min({at}, {rows.count - 1})" if rows.count % rows.members else f"{ROW} = {at}"

    # ---- loops -------------------------------------------------------------------------------------------------------

    def _split(self, statement: Statement) -> Iterator[Statement]:
        rows = self._rows
        match statement:
            case Row(array=array, dtype=dtype, extent=extent):
                if array in self._private:
                    yield Row(array, dtype, -(-extent // rows.lanes))
            case Loop():
                whole = _Lanes(statement.var, statement.extent, statement.body)
                yield from self._rounds(statement) if is_plain(statement) else [whole]
                stores = [s for s in statements(statement.body) if isinstance(s, Store)]
                meet = _Meet("", 0, stores=any(s.array in self._extent_by_shared for s in stores))
                for fold in sums_of(statement):
                    meet.sums.append((f"tree{len(self._trees)}", fold))
                    self._trees += [(f"tree{len(self._trees)}", fold.value.dtype)] if self._shares_folds else []
                yield meet
            case Store() if rows.lanes > 1:
                yield Loop(LANE, 1, [statement])
            case _:
                yield statement

    @property
    def _shares_folds(self) -> bool:
        """Whether folds meet in shared memory."""
        return self._rows.meeting > 0

    def _rounds(self, loop: Loop) -> Iterator[Statement]:
        """Yield a loop in rounds: those that all lanes take part in, unrolled or in chunks, and a last one."""
        full, left = divmod(loop.extent, self._rows.lanes)
        yield from rounds(lambda number: self._round(loop, number), full, self._rows.nest.results)
        if left:
            yield Loop(LANE, left, self._round(loop, Affine(full)))

    def _round(self, loop: Loop, number: Affine) -> list[Statement]:
        body = deepcopy(loop.body)
        moved(body, self._private, number)
        substitute_indices(body, {loop.var: number * self._rows.lanes + var(LANE, self._rows.lanes)})
        return body

    # ---- lines -------------------------------------------------------------------------------------------------------

    def _special(self, statement: Statement) -> list[str] | None:
        match statement:
            case _Meet():
                return list(self._meet(statement))
            case Loop(var=name, extent=extent) if name == LANE:
                return [f"if {LANE} == 0:" if extent == 1 else f"if {LANE} < {extent}:"]
            case _Lanes(var=name, extent=extent):
                return [f"for {name} in range({LANE}, {extent}, {self._rows.lanes}):"]
            case _:
                return self._writer.lines(statement)

    def _meet(self, meet: _Meet) -> Iterator[str]:
        rows, sums = self._rows, meet.sums
        columns, apart = rows.columns, rows.members if rows.columns else 1
        if sums and rows.among > 1:
            yield from self._shuffled(sums, rows.among, apart)
        if sums and self._shares_folds:
            at, store, lane = self._thread, "", self._thread // apart
            if rows.among > 1:
                yield f"if {spelling.index(lane)} % {rows.among} == 0:"
                at, store = (lane // rows.among * apart + self._member if columns else lane // WARP), source.INDENT
            for tree, fold in sums:
                yield from (store + line for line in self._lines(Store(tree, at, Local(fold.name, fold.value.dtype))))
        if meet.stores or (sums and self._shares_folds):
            yield "cuda.syncthreads()"
        if not sums or not self._shares_folds:
            return
        member, parts = self._member, rows.lanes // rows.among
        for tree, fold in sums:
            first = member if columns else member * parts + var(LANE, rows.lanes) % parts
            yield from self._lines(Assign(fold.name, Load(tree, first, fold.value.dtype)))
        if not columns:
            yield from self._shuffled(sums, parts)
            return
        yield f"for half in range(1, {parts}):"
        for tree, fold in sums:
            other = Load(tree, var("half", parts) * rows.members + member, fold.value.dtype)
            yield from (source.INDENT + line for line in self._combined(fold, other))

    def _shuffled(self, sums: list[tuple[str, Accumulate]], among: int, apart: int = 1) -> Iterator[str]:
        """Combine folds among so many lanes, `apart` threads from one to the next."""
        distances = [(among >> n) * apart for n in range(1, among.bit_length())]
        yield f"for half in ({', '.join(map(str, distances))}{',' * (len(distances) == 1)}):"
        for _, fold in sums:
            other = Apply("shuffle", (Local(fold.name, fold.value.dtype),), fold.value.dtype)
            yield from (source.INDENT + line for line in self._combined(fold, other))

    def _combined(self, fold: Accumulate, other: Expression) -> list[str]:
        dtype = fold.value.dtype
        step = Apply(_STEP_BY_FOLD[fold.fold], (Local(fold.name, dtype), other), dtype)
        body: list[Statement] = [Assign(fold.name, step)]
        spell_out(body)
        return self._writer.write(body, 0)

    def _lines(self, statement: Statement) -> list[str]:
        return self._writer.write([statement], 0)
