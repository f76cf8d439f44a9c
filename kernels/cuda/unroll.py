"""Loops of a few rounds, all of which a thread has under way at once, and what it keeps in registers for them.

The compiler cannot move a load over a store, which might write what is loaded. So values are kept first, in an array
whose indices are constants once the loop is unrolled:

    for h in range(4):                                    for h in range(4):
        out[first + h*256] = exp(x[first + h*256])   ->       out_value[h] = exp(x[first + h*256])
                                                          for h in range(4):
                                                              out[first + h*256] = out_value[h]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy

from frittata.egraph import dtypes
from frittata.egraph.indexing import Affine, var
from frittata.kernels.loops import (
    Array,
    Assign,
    AssignIndex,
    Expression,
    Load,
    Local,
    Lookup,
    Loop,
    Row,
    Statement,
    Store,
    map_values,
    parts,
    statements,
    substitute_indices,
    values_of,
)

UNROLLED = "h"
"""The variable of unrolled loops."""
CHUNK = "g"
"""The variable of loops around them."""
MOST_ROUNDS = 32
"""The rounds of an unrolled loop, at most."""
_CHUNK_ROUNDS = 8
"""Those of a loop that has too many of them."""
_MOST_EXPRESSIONS = 1024
"""What an unrolled loop may evaluate, all rounds together."""
_K = "k"


def most_rounds(body: list[Statement]) -> int:
    """Return how many rounds of a body may be unrolled; at least one."""
    evaluated = sum(1 for s in statements(body) for value in values_of(s) for _ in parts(value))
    return min(MOST_ROUNDS, max(1, _MOST_EXPRESSIONS // max(1, evaluated)))


def rounds(body: Callable[[Affine], list[Statement]], count: int, results: tuple[Array, ...]) -> Iterator[Statement]:
    """Yield loops over `count` rounds of a body, given by the number of the round: unrolled, in chunks if need be."""
    most = most_rounds(body(Affine()))
    size = count if count <= most else min(_CHUNK_ROUNDS, most)
    chunks = count // size if count > size else 0
    if chunks:
        inner = apart(body(var(CHUNK, chunks) * size + var(UNROLLED, size)), size, results)
        yield Loop(CHUNK, chunks, list(inner))
    left = count - chunks * size
    if left:
        yield from apart(body(var(UNROLLED, left) + chunks * size), left, results)


def in_rounds(body: list[Statement], results: tuple[Array, ...]) -> list[Statement]:
    """Put every innermost loop of a block in rounds."""
    out: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop) and is_plain(statement):
            out += rounds(lambda number, loop=statement: _at(loop, number), statement.extent, results)
        elif isinstance(statement, Loop):
            out.append(Loop(statement.var, statement.extent, in_rounds(statement.body, results)))
        else:
            out.append(statement)
    return out


def _at(loop: Loop, number: Affine) -> list[Statement]:
    body = deepcopy(loop.body)
    substitute_indices(body, {loop.var: number})
    return body


def apart(body: list[Statement], rounds: int, results: Iterable[Array]) -> Iterator[Statement]:
    """Yield the loops over `rounds` of a body, what it stores to results in one of its own."""
    names = {array.name for array in results}
    stored = [s for s in statements(body) if isinstance(s, Store) and s.array in names]
    if not stored or any(s not in body for s in stored):
        yield Loop(UNROLLED, rounds, body)
        return
    h = var(UNROLLED, rounds)
    kept: list[Statement] = []
    later: list[Statement] = []
    for statement in body:
        if isinstance(statement, Store) and statement.array in names:
            name, dtype = f"{statement.array}_value", statement.value.dtype
            yield Row(name, dtype, rounds)
            kept.append(Store(name, h, statement.value))
            later.append(Store(statement.array, statement.offset, Load(name, h, dtype)))
        else:
            kept.append(statement)
    yield Loop(UNROLLED, rounds, kept)
    yield Loop(UNROLLED, rounds, later)


def unwrapped(body: list[Statement], variables: Iterable[str]) -> tuple[list[Statement], list[Statement]]:
    """Return what lies in the loops of a nest over `variables`, outermost first, and what lies in the last of them."""
    outer: list[Statement] = []
    for name in variables:
        loop = next((s for s in body if isinstance(s, Loop) and s.var == name), None)
        if loop is not None:
            outer += [s for s in body if s is not loop]
            body = loop.body
    return outer, body


def is_plain(loop: Loop) -> bool:
    """Whether a loop has no others in it."""
    return not any(isinstance(s, Loop | Row) for s in loop.body)


# ---- what several loops of a block use -------------------------------------------------------------------------------


def keep_loads(block: list[Statement], rows: Iterable[str]) -> None:
    """Hold what several plain loops of one extent load at the same places in rows, in place; `rows` are such already.

    x[i*1024 + k0] in one loop and x[i*1024 + k1] in a later one   ->   held0[k0] = t; held0[k1]
    """
    loops = [s for s in block if isinstance(s, Loop) and is_plain(s)]
    held_already = set(rows)
    users: dict[tuple[Load, int], list[Loop]] = {}
    for loop in loops:
        own = {s.name for s in loop.body if isinstance(s, AssignIndex | Lookup)}
        for load in dict.fromkeys(loads_in(loop.body)):
            at = load.offset.variables()
            if load.array not in held_already and loop.var in at and not own & at:
                users.setdefault((_at_k(load, loop), loop.extent), []).append(loop)
    repeated = {key: found for key, found in users.items() if len(found) > 1}
    for number, ((load, extent), found) in enumerate(repeated.items()):
        name, first = f"held{number}", found[0]
        value = Local(f"{name}_value", load.dtype)
        for loop in found:
            k = var(loop.var, extent)
            there = Load(load.array, load.offset.substitute({_K: k}), load.dtype)
            _replace(loop.body, there, value if loop is first else Load(name, k, load.dtype))
            if loop is first:
                loop.body[:0] = [Assign(value.name, there), Store(name, k, value)]
        block.insert(0, Row(name, load.dtype, extent))


def loads_in(body: list[Statement]) -> Iterator[Load]:
    """Visit the loads of a block and all in it."""
    for statement in statements(body):
        for value in values_of(statement):
            yield from (part for part in parts(value) if isinstance(part, Load))


def _at_k(load: Load, loop: Loop) -> Load:
    return Load(load.array, load.offset.substitute({loop.var: var(_K, loop.extent)}), load.dtype)


def _replace(body: list[Statement], old: Load, new: Expression) -> None:
    map_values(body, lambda value: new if value == old else value)


def in_step(block: list[Statement]) -> list[Row]:
    """Return the rows that plain loops of their extent alone use, each at the index where it is: lanes share none."""
    out: list[Row] = []
    loops = [s for s in block if isinstance(s, Loop)]
    outside = _arrays([s for s in block if not isinstance(s, Loop)])
    for row in block:
        if isinstance(row, Row) and row.array not in outside:
            using = [loop for loop in loops if row.array in _arrays(loop.body)]
            if all(is_plain(loop) and _is_in_step(row, loop) for loop in using):
                out.append(row)
    return out


def _arrays(body: list[Statement]) -> set[str]:
    """Return the arrays that a block reads or writes."""
    stored = {s.array for s in statements(body) if isinstance(s, Store)}
    return stored | {load.array for load in loads_in(body)}


def _is_in_step(row: Row, loop: Loop) -> bool:
    own = var(loop.var, loop.extent)
    places = [load.offset for load in loads_in(loop.body) if load.array == row.array]
    places += [s.offset for s in loop.body if isinstance(s, Store) and s.array == row.array]
    return loop.extent == row.extent and all(place == own for place in places)


def words_alive(block: list[Statement], rows: list[Row]) -> int:
    """Return how many values of four bytes are kept between two loops, for each round, at most."""
    loops = [s for s in block if isinstance(s, Loop)]
    users = {row.array: [n for n, loop in enumerate(loops) if row.array in _arrays(loop.body)] for row in rows}
    most = 0
    for number in range(len(loops)):
        alive = [row for row in rows if users[row.array] and users[row.array][0] <= number < users[row.array][-1]]
        most = max(most, sum(-(-dtypes.itemsize(row.dtype) // 4) for row in alive))
    return most


def moved(body: list[Statement], rows: set[str], at: Affine) -> None:
    """Read and write `rows` at `at`, in place."""
    map_values(body, lambda value: Load(value.array, at, value.dtype) if _is_of(value, rows) else value)  # type: ignore[union-attr]
    for statement in body:
        if isinstance(statement, Store) and statement.array in rows:
            statement.offset = at


def _is_of(value: Expression, rows: set[str]) -> bool:
    return isinstance(value, Load) and value.array in rows
