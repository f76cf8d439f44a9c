"""Interchange: sums down the columns of an array become sums of its rows, which are read in order.

    for j in range(n):                          for j in range(n): row[j] = 0
        total = 0                               for k in range(m):
        for k in range(m):               ->         for j in range(n): row[j] += a[k] * b[k*n + j]
            total += a[k] * b[k*n + j]          for j in range(n):
        out[j] = total                              total = row[j]; out[j] = total

Each sum keeps its order, so results stay the same bit for bit.
"""

from __future__ import annotations

from itertools import count

from frittata.egraph.indexing import var
from frittata.egraph.ops.elements import fold_identity
from frittata.kernels.loops import (
    Accumulate,
    Accumulator,
    Apply,
    Assign,
    Constant,
    Load,
    Loop,
    Row,
    Statement,
    Store,
    parts,
    reads,
    statements,
    substitute_indices,
    values_of,
    writes,
)

_LEAST_COLUMNS = 8
_MOST_COLUMNS = 1 << 13
_STEP_BY_FOLD = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def interchange(body: list[Statement]) -> None:
    """Rewrite every loop over columns in a block, in place."""
    names = count(1 + sum(1 for _ in statements(body)))
    _block(body, names)


def _block(body: list[Statement], names: count[int]) -> None:
    for position, statement in reversed(list(enumerate(body))):
        if isinstance(statement, Loop):
            inner = _column_sum(statement)
            if inner is not None:
                body[position : position + 1] = _interchanged(statement, inner, names)
                continue
        if isinstance(statement, Loop):
            _block(statement.body, names)


def _column_sum(outer: Loop) -> Loop | None:
    """Return the only loop in a loop if it sums down columns."""
    loops = [s for s in outer.body if isinstance(s, Loop)]
    if outer.parallel or len(loops) != 1 or not _LEAST_COLUMNS <= outer.extent <= _MOST_COLUMNS:
        return None
    inner = loops[0]
    if any(isinstance(s, Row) for s in outer.body) or not _is_flat(inner):
        return None
    sums = {s.name for s in inner.body if isinstance(s, Accumulate)}
    made_before = {name for s in outer.body[: outer.body.index(inner)] for name in writes(s)} - sums
    if made_before & set(reads(inner)):
        return None
    return inner if _reads_columns(inner, outer.var) else None


def _is_flat(loop: Loop) -> bool:
    return all(isinstance(s, Assign | Accumulate) for s in loop.body)


def _reads_columns(inner: Loop, column: str) -> bool:
    """Whether every load is along the columns or constant, and one jumps from step to step."""
    loads = {part for s in inner.body for value in values_of(s) for part in parts(value) if isinstance(part, Load)}
    jumps = False
    for load in loads:
        along, down = load.offset.factor_of(column), load.offset.factor_of(inner.var)
        if along not in (0, 1):
            return False
        jumps |= along == 1 and (down is None or abs(down) > 1)
    return jumps


def _interchanged(outer: Loop, inner: Loop, names: count[int]) -> list[Statement]:
    row_by_sum = {s.name: f"row{next(names)}" for s in inner.body if isinstance(s, Accumulate)}
    accumulators = [s for s in outer.body if isinstance(s, Accumulator) and s.name in row_by_sum]
    first = _columns(outer, names)
    made: list[Statement] = []
    for s in accumulators:
        made.append(Row(row_by_sum[s.name], s.dtype, outer.extent))
        start = Constant(fold_identity(s.fold, s.dtype))
        first.body.append(Store(row_by_sum[s.name], var(first.var, first.extent), start))
    last = [_read_back(s, row_by_sum, outer) for s in outer.body if s is not inner]
    return [*made, first, _by_rows(outer, inner, row_by_sum, names), Loop(outer.var, outer.extent, last)]


def _columns(outer: Loop, names: count[int]) -> Loop:
    return Loop(f"k{next(names)}", outer.extent)


def _by_rows(outer: Loop, inner: Loop, row_by_sum: dict[str, str], names: count[int]) -> Loop:
    """Return the loop over rows around that over columns; what does not depend on the column stays outside of it."""
    columns = _columns(outer, names)
    at = var(columns.var, columns.extent)
    moving = {outer.var}
    fixed: list[Statement] = []
    for s in inner.body:
        if isinstance(s, Accumulate):
            row = Load(row_by_sum[s.name], at, s.value.dtype)
            step = Apply(_STEP_BY_FOLD[s.fold], (row, s.value), s.value.dtype)
            columns.body.append(Store(row.array, at, step))
        elif moving & set(reads(s)):
            moving |= set(writes(s))
            columns.body.append(s)
        else:
            fixed.append(s)
    substitute_indices(columns.body, {outer.var: at})
    return Loop(inner.var, inner.extent, [*fixed, columns])


def _read_back(statement: Statement, row_by_sum: dict[str, str], outer: Loop) -> Statement:
    if isinstance(statement, Accumulator) and statement.name in row_by_sum:
        row = Load(row_by_sum[statement.name], var(outer.var, outer.extent), statement.dtype)
        return Assign(statement.name, row)
    return statement
