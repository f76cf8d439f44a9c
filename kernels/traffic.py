"""How many bytes kernels move: each result and each operand once, but of what a view or a look-up shows only that."""

from __future__ import annotations

from functools import lru_cache
from math import inf

from frittata.egraph import dtypes, indexing, program, shapes
from frittata.egraph.indexing import IndexMap
from frittata.egraph.ops.elements import CONTRACTIONS
from frittata.egraph.terms import Term, size_bytes
from frittata.kernels.tiles import CACHE_LINE_BYTES


def moved_bytes(bodies: tuple[Term, ...]) -> float:
    """Return the bytes that `build` terms read and write."""
    written = sum(size_bytes(body) for body in bodies)
    return written + sum(read_bytes(bodies).values())


def read_bytes(bodies: tuple[Term, ...]) -> dict[Term, float]:
    """Return the bytes that `build` terms read of each operand."""
    read: dict[Term, float] = dict.fromkeys(program.operands_of(*bodies), 0.0)
    seen: set[tuple[Term, float]] = set()
    stack = [(body.args[0], inf) for body in bodies]
    while stack:
        term, most = stack.pop()
        if (term, most) in seen:
            continue
        seen.add((term, most))
        if term.op == "load":
            (leaf,) = term.args
            read[leaf] = min(read[leaf] + most, size_bytes(leaf))
        elif term.op == "at":
            looked_up, indices = term.args
            stack += [(looked_up, min(most, size_bytes(term))), (indices, most)]
        elif term.op == "reindex":
            (viewed,) = term.args
            is_memory = viewed.op == "load" and most >= size_bytes(term)
            shown = _lines(term.attrs[0], dtypes.itemsize(term.dtype)) if is_memory else size_bytes(term)
            stack.append((viewed, min(most, shown)))
        else:
            stack += [(arg, inf if term.op in CONTRACTIONS else most) for arg in term.args]
    return read


@lru_cache(maxsize=4096)
def _lines(view: IndexMap, itemsize: int) -> float:
    """Return the bytes of the cache lines that a view of memory touches; what it shows where that is not regular."""
    shape, result = shapes.concrete(view.source), shapes.concrete(view.result)
    offset = indexing.flatten(view.sources, shape)
    steps = [offset.factor_of(axis - len(result)) for axis in range(len(result))]
    if None in steps:
        return float(shapes.size(result) * itemsize)
    span, runs = itemsize, 1
    for step, extent in sorted((abs(step or 0) * itemsize, extent) for step, extent in zip(steps, result, strict=True)):
        if step <= max(span, CACHE_LINE_BYTES):
            span += step * (extent - 1)
        else:
            runs *= extent
    return float(runs * max(span, CACHE_LINE_BYTES))


def constant_bytes(bodies: tuple[Term, ...], constants: frozenset[str]) -> float:
    """Return the size of the operands whose values are known before run time."""
    return sum(size_bytes(leaf) for leaf in program.operands_of(*bodies) if leaf.attrs[0] in constants)
