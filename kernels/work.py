"""How much a loop nest computes, with hoisting and sharing counted, without lowering it.

Units: additions, as in the registry's `cost`. An element is counted once for each index on the axes that it mentions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from frittata.egraph import shapes, terms
from frittata.egraph.attend import expanded
from frittata.egraph.ops import registry
from frittata.egraph.ops.winograd import as_window_dot
from frittata.egraph.terms import Term
from frittata.kernels.loops import Apply, Expression, Load, Loop, Statement, parts, values_of
from frittata.kernels.scans import scanned_axes
from frittata.kernels.units import scalar_cost

_PRODUCT_UNITS = 4.0
"""A multiplication and a dependent addition: scalar code waits for the sum of the step before."""
_ROW_PRODUCT_UNITS = 1.0
"""The same along a row of sums, which LLVM makes vector code of: where there are rows to go around that loop."""
_COLUMN_PRODUCT_UNITS = 10.0
"""The same down a column of the right side, each element in another cache line, for a single row. Measured on Zen 5."""


def work_units(bodies: tuple[Term, ...]) -> float:
    """Return what computing `build` terms of one shape in one nest takes."""
    seen: set[tuple[Term, float]] = set()
    units = sum(_work(body.args[0], 1.0, seen) + shapes.size(body.shape) for body in bodies)
    return units * _repeats(bodies)


def units_without(bodies: tuple[Term, ...], axis: int) -> float:
    """Return what those folds take, with all in them, that are the same everywhere along an axis of the results."""
    seen: set[tuple[Term, float]] = set()
    visited: set[Term] = set()
    units = 0.0
    stack = [body.args[0] for body in bodies]
    while stack:
        e = stack.pop()
        if e in visited:
            continue
        visited.add(e)
        if shapes.dim_at(e.shape, axis) == 1:
            units += _work(e, 1.0, seen) if any(term.op == "fold" for term in terms.walk(e)) else 0.0
        elif e.op not in ("load", "reindex"):
            stack += e.args
    return units


def _repeats(bodies: tuple[Term, ...]) -> float:
    """Return how often a nest runs scans again: one axis is its innermost loop, others are not."""
    scanned = scanned_axes(*bodies)
    extents = (shapes.size((shapes.dim_at(bodies[0].shape, axis),)) for axis in scanned)
    return float(max(extents)) if len(scanned) > 1 else 1.0


def _work(e: Term, times: float, seen: set[tuple[Term, float]]) -> float:
    """Count an element that is computed `times` for each of its own indices."""
    if (e, times) in seen:
        return 0.0
    seen.add((e, times))
    count = shapes.size(e.shape) * times
    match e.op:
        case "const" | "iota":
            return 0.0
        case "load":
            return count
        case "reindex":
            (inner,) = e.args
            each = count / shapes.size(inner.shape)
            return _work(inner, each, seen) if inner.op == "load" else each * _shown_units(inner)
        case "scan":
            return count * registry.get("scan", "element").cost + _work(e.args[0], times, seen)
        case "at":
            looked_up, indices = e.args
            own = registry.get("at", "element").cost
            each = count / shapes.size(looked_up.shape)
            return count * own + _work(indices, times, seen) + _work(looked_up, each, seen)
        case "fold":
            return count * e.attrs[2] + _work(e.args[0], times, seen)
        case "dot":
            if e.args[1].op == "load":
                each = _ROW_PRODUCT_UNITS if shapes.size(e.shape[:-1]) > 1 else _COLUMN_PRODUCT_UNITS
                return count * e.attrs[0] * each + _work(e.args[0], times, seen)
            # the right operand is computed anew for each row: rows are held, tables are not
            left, right = _work(e.args[0], times, seen), _work(e.args[1], times * _rows(e), seen)
            return count * e.attrs[0] * _PRODUCT_UNITS + left + right
        case "attend":
            return _work(expanded(e), times, seen)
        case "window_dot":
            steps = count * (e.attrs[0][0] // e.attrs[-1]) * shapes.size(e.attrs[2])
            return steps * _PRODUCT_UNITS + sum(_work(arg, steps / shapes.size(arg.shape), seen) for arg in e.args)
        case "winograd_dot":
            return _work(as_window_dot(e), times, seen)
        case _:
            return count * scalar_cost(e) + sum(_work(arg, times, seen) for arg in e.args)


@lru_cache(maxsize=4096)
def _shown_units(e: Term) -> float:
    """Count an element that a view shows: what is computed is computed anew for each view of it."""
    return _work(e, 1.0, set())


def evaluated_units(block: Iterable[Statement]) -> float:
    """Return what the statements of a block take, those in loops as often as they run, the least for each.

    The least is that of vector code, a product and a sum in one.
    """
    return sum(
        statement.extent * evaluated_units(statement.body)
        if isinstance(statement, Loop)
        else sum(map(_value_units, values_of(statement)))
        for statement in block
    )


def _value_units(value: Expression) -> float:
    every = (registry.get(part.op, "element").cost for part in parts(value) if isinstance(part, Apply))
    return sum(every, 1.0 if isinstance(value, Load) else 0.0)


def _rows(dot: Term) -> int:
    return shapes.size((shapes.dim_at(dot.shape, -2),))
