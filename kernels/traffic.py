"""How many bytes kernels move: each result and each operand once, but of what a view or a look-up shows only that."""

from __future__ import annotations

from math import inf

from frittata.egraph import program
from frittata.egraph.terms import Term, size_bytes


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
            stack.append((term.args[0], min(most, size_bytes(term))))
        else:
            stack += [(arg, most) for arg in term.args]
    return read


def constant_bytes(bodies: tuple[Term, ...], constants: frozenset[str]) -> float:
    """Return the size of the operands whose values are known before run time."""
    return sum(size_bytes(leaf) for leaf in program.operands_of(*bodies) if leaf.attrs[0] in constants)
