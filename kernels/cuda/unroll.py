"""Loops of a few rounds, all of which a thread has under way at once: every load comes before the first store.

The compiler cannot move a load over a store, which might write what is loaded. So values are kept in registers first,
an array whose indices are constants once the loop is unrolled:

    for h in range(4):                                    for h in range(4):
        out[first + h*256] = exp(x[first + h*256])   ->       value0[h] = exp(x[first + h*256])
                                                          for h in range(4):
                                                              out[first + h*256] = value0[h]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from frittata.egraph.indexing import var
from frittata.kernels.loops import Array, Load, Loop, Row, Statement, Store, parts, statements, values_of

UNROLLED = "h"
"""The variable of unrolled loops."""


def apart(body: list[Statement], rounds: int, results: Iterable[Array]) -> Iterator[Statement]:
    """Yield the loops over `rounds` of a body, what it stores to results in one of its own."""
    names = {array.name for array in results}
    stores = [s for s in body if isinstance(s, Store) and s.array in names]
    within = [s for loop in body if isinstance(loop, Loop) for s in statements(loop.body)]
    if not stores or any(isinstance(s, Store) and s.array in names for s in within):
        yield Loop(UNROLLED, rounds, body)
        return
    h = var(UNROLLED, rounds)
    kept: list[Statement] = []
    later: list[Statement] = []
    for statement in body:
        if statement in stores and isinstance(statement, Store):
            name, dtype = f"value{len(later)}", statement.value.dtype
            yield Row(name, dtype, rounds)
            kept.append(Store(name, h, statement.value))
            later.append(Store(statement.array, statement.offset, Load(name, h, dtype)))
        else:
            kept.append(statement)
    yield Loop(UNROLLED, rounds, kept)
    yield Loop(UNROLLED, rounds, later)


def loads_in(body: list[Statement]) -> set[Load]:
    """Return the distinct loads of a block and all in it."""
    found = (part for s in statements(body) for value in values_of(s) for part in parts(value))
    return {part for part in found if isinstance(part, Load)}
