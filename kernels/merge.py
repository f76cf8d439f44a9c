"""Tidying a loop nest: neighbouring loops of one extent become one, equal values are shared, single uses inlined.

    for k0 in range(n): row[k0] = exp(x[k0])        for k0 in range(n):
    for k1 in range(n): total += row[k1]      ->        t = exp(x[k0]); row[k0] = t; total += t
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from frittata.egraph.indexing import Affine, Var, var
from frittata.kernels.interchange import interchange
from frittata.kernels.loops import (
    Accumulate,
    Accumulator,
    Apply,
    Assign,
    AssignIndex,
    Constant,
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
    reads,
    statements,
    substitute_indices,
    values_of,
    writes,
)

_MOST_PARTS_IN_LINE = 9
_UNKNOWN = 1 << 62


def tidy(nest: Nest, *, interchanges: bool = True) -> Nest:
    """Merge loops, share values, drop rows that nothing reads, read columns by rows, inline single uses."""
    _merge_loops(nest.body)
    _forward_rows(nest.body)
    _drop_rows(nest)
    _share(nest.body)
    if interchanges:
        interchange(nest.body)
    _inline(nest.body)
    _renumber(nest.body)
    return nest


# ---- loops -----------------------------------------------------------------------------------------------------------


def _merge_loops(body: list[Statement]) -> None:
    start = 0
    while start < len(body):
        first = body[start]
        if isinstance(first, Loop):
            start += _merge_into(body, start)
            _merge_loops(first.body)
        start += 1


def _merge_into(body: list[Statement], start: int) -> int:
    """Merge later loops of the block into that at `start`; return by how much that has moved down."""
    first = body[start]
    assert isinstance(first, Loop)
    blocked = set(writes(first))
    stored, stored_later = _stored(first), set[str]()
    before: list[Statement] = []
    after: list[Statement] = []
    for statement in body[start + 1 :]:
        if blocked & set(reads(statement)) or stored_later & _loaded(statement):
            mergeable = False
        elif isinstance(statement, Loop):
            alike = (statement.extent, statement.parallel) == (first.extent, first.parallel)
            mergeable = alike and _reads_in_step(statement, stored)
        else:
            mergeable = not stored & _loaded(statement)
        if mergeable and isinstance(statement, Loop):
            substitute_indices(statement.body, {statement.var: var(first.var, first.extent)})
            first.body.extend(statement.body)
            blocked |= set(writes(statement))
            stored |= _stored(statement)
        elif mergeable and isinstance(statement, Assign | AssignIndex | Lookup | Accumulator | Row):
            before.append(statement)
        else:
            after.append(statement)
            blocked |= set(writes(statement))
            stored_later |= _stored(statement)
    body[start:] = [*before, first, *after]
    return len(before)


def _reads_in_step(loop: Loop, stored: set[str]) -> bool:
    """Whether a loop reads the rows `stored` by loops before it only at its own index."""
    own = var(loop.var, loop.extent)
    loads = [part for s in statements(loop.body) for value in values_of(s) for part in parts(value)]
    return all(part.offset == own for part in loads if isinstance(part, Load) and part.array in stored)


def _stored(statement: Statement) -> set[str]:
    return {s.array for s in statements([statement]) if isinstance(s, Store)}


def _loaded(statement: Statement) -> set[str]:
    return {
        part.array
        for s in statements([statement])
        for value in values_of(s)
        for part in parts(value)
        if isinstance(part, Load)
    }


# ---- rows ------------------------------------------------------------------------------------------------------------


def _forward_rows(body: list[Statement]) -> None:
    """Read a row's element from the local that was just stored to it."""
    stored: dict[tuple[str, Affine], Expression] = {}

    def forward(value: Expression) -> Expression:
        return stored.get((value.array, value.offset), value) if isinstance(value, Load) else value

    for statement in body:
        map_values([statement], forward)
        if isinstance(statement, Store) and isinstance(statement.value, Local | Constant):
            stored[statement.array, statement.offset] = statement.value
        elif isinstance(statement, Loop):
            _forward_rows(statement.body)


def _drop_rows(nest: Nest) -> None:
    """Drop the rows that nothing reads any more."""
    read = set[str]().union(*map(_loaded, nest.body))
    unread = {row.array for row in nest.rows()} - read

    def clean(body: list[Statement]) -> None:
        body[:] = [s for s in body if not (isinstance(s, Row | Store) and s.array in unread)]
        for statement in body:
            if isinstance(statement, Loop):
                clean(statement.body)

    clean(nest.body)


# ---- values ----------------------------------------------------------------------------------------------------------


def _share(body: list[Statement]) -> None:
    """Compute equal expressions of a block once."""
    name_by_value: dict[Expression, Local] = {}
    new_by_name: dict[str, Local] = {}

    def renamed(value: Expression) -> Expression:
        return new_by_name.get(value.name, value) if isinstance(value, Local) else value

    kept: list[Statement] = []
    for statement in body:
        map_values([statement], renamed)
        if isinstance(statement, Assign):
            known = name_by_value.setdefault(statement.value, Local(statement.name, statement.value.dtype))
            if known.name != statement.name:
                new_by_name[statement.name] = known
                continue
        elif isinstance(statement, Loop):
            _share(statement.body)
        kept.append(statement)
    body[:] = kept


def _inline(body: list[Statement]) -> None:
    """Put the value of a local in the place of its only use, if that is in the same block and the line stays short."""
    counts = Counter(_local_uses(body))
    _inline_block(body, counts)


def _local_uses(body: list[Statement]) -> list[str]:
    uses: list[str] = []
    for statement in statements(body):
        for value in values_of(statement):
            uses.extend(part.name for part in parts(value) if isinstance(part, Local))
    return uses


def _inline_block(body: list[Statement], counts: Counter[str]) -> None:
    pending: dict[str, Expression] = {}
    kept: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop):
            _inline_block(statement.body, counts)
        elif isinstance(statement, Assign | Lookup | Accumulate | Store):
            statement.value = _filled(statement.value, pending)
        if isinstance(statement, Assign) and counts[statement.name] <= 1 and _is_short(statement.value):
            pending[statement.name] = statement.value
        kept.append(statement)
    used_here = {
        part.name for s in kept for value in values_of(s) for part in parts(value) if isinstance(part, Local)
    }
    elsewhere = set(_local_uses([s for s in kept if isinstance(s, Loop)]))
    body[:] = [
        s
        for s in kept
        if not (isinstance(s, Assign) and s.name in pending and s.name not in used_here and s.name not in elsewhere)
    ]


def _filled(value: Expression, pending: dict[str, Expression]) -> Expression:
    if isinstance(value, Local):
        return pending.get(value.name, value)
    if isinstance(value, Apply):
        return replace(value, args=tuple(_filled(arg, pending) for arg in value.args))
    return value


def _is_short(value: Expression) -> bool:
    return sum(1 for _ in parts(value)) <= _MOST_PARTS_IN_LINE


# ---- names -----------------------------------------------------------------------------------------------------------


def _renumber(body: list[Statement]) -> None:
    """Number the names that are left in the order in which they appear."""
    counts: Counter[str] = Counter()
    new_by_name: dict[str, str] = {}
    new_by_index: dict[int | str, Affine] = {}

    def name_anew(name: str) -> str:
        stem = name.rstrip("0123456789")
        new_by_name[name] = f"{stem}{counts[stem]}"
        counts[stem] += 1
        return new_by_name[name]

    for statement in statements(body):
        if isinstance(statement, Loop) and statement.var[-1].isdigit():
            old, statement.var = statement.var, name_anew(statement.var)
            new_by_index[old] = var(statement.var, statement.extent)
        elif isinstance(statement, AssignIndex | Lookup):
            old, statement.name = statement.name, name_anew(statement.name)
            # the extent has done its work: it decided where to clamp
            new_by_index[old] = Affine(0, ((Var(statement.name, _UNKNOWN), 1),))
        elif isinstance(statement, Assign | Accumulator):
            statement.name = name_anew(statement.name)
        elif isinstance(statement, Row):
            statement.array = name_anew(statement.array)
    substitute_indices(body, new_by_index)

    def rename(value: Expression) -> Expression:
        if isinstance(value, Local):
            return replace(value, name=new_by_name.get(value.name, value.name))
        if isinstance(value, Load):
            return replace(value, array=new_by_name.get(value.array, value.array))
        return value

    map_values(body, rename)
    for statement in statements(body):
        if isinstance(statement, Accumulate):
            statement.name = new_by_name[statement.name]
        elif isinstance(statement, Store):
            statement.array = new_by_name.get(statement.array, statement.array)
