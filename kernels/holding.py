"""Inline or hold: whether a value that several inner loops need is computed again or kept in a row.

Units: additions of the scalar operators' `cost`, as in the cost model.
"""

from __future__ import annotations

from collections.abc import Set

from frittata.egraph import shapes
from frittata.egraph.attend import expanded
from frittata.egraph.ops import registry
from frittata.egraph.ops.winograd import as_window_dot
from frittata.egraph.terms import Term
from frittata.kernels.units import operator_cost

HOLD_UNITS = 6.0
"""What keeping a value in a row costs: a store, a load, and the cache they take."""
_LOAD_UNITS = 1.0


def is_worth_holding(element: Term, axes: Set[int], held: Set[Term] = frozenset()) -> bool:
    """Whether computing an element anew, at each step of a loop on which `axes` depend, costs more than a row of it."""
    return recompute_units(element, axes, held) > HOLD_UNITS


def recompute_units(element: Term, axes: Set[int], held: Set[Term] = frozenset()) -> float:
    """Return what one more value costs in a loop on which the element's `axes` depend; the rest is hoisted."""
    return _units(element, frozenset(axes), held, set())


def _units(e: Term, axes: frozenset[int], held: Set[Term], seen: set[tuple[Term, frozenset[int]]]) -> float:
    varying = frozenset(axis for axis in axes if shapes.dim_at(e.shape, axis) != 1)
    if not varying or (e, varying) in seen:
        return 0.0
    seen.add((e, varying))
    if e in held:
        return _LOAD_UNITS
    match e.op:
        case "load" | "iota" | "scan":
            return _LOAD_UNITS
        case "fold":
            return e.attrs[2] * (1 + _units(e.args[0], varying | {e.attrs[1]}, held, set()))
        case "dot":
            left = _units(e.args[0], (varying - {-1}) | {-1}, held, set())
            right = _units(e.args[1], (varying - {-2}) | {-2}, held, set())
            return e.attrs[0] * (2 + left + right)
        case "attend":
            return _units(expanded(e), axes, held, seen)
        case "window_dot":
            source, _, kernel, *_, groups = e.attrs
            return 4.0 * (source[0] // groups) * shapes.size(kernel)
        case "winograd_dot":
            return _units(as_window_dot(e), axes, held, seen)
        case "at":
            return _lookup_units(e, varying, held, seen)
        case "reindex":
            return _units(e.args[0], _mapped_axes(e, varying), held, seen)
        case _:
            return operator_cost(e) + sum(_units(arg, varying, held, seen) for arg in e.args)


def _lookup_units(e: Term, axes: frozenset[int], held: Set[Term], seen: set[tuple[Term, frozenset[int]]]) -> float:
    looked_up, indices = e.args
    moves = any(shapes.dim_at(indices.shape, axis) != 1 for axis in axes)
    inner = (axes - {e.attrs[0]}) | ({e.attrs[0]} if moves else set())
    own = registry.get("at", "element").cost + _units(indices, axes, held, seen) if moves else 0.0
    return own + _units(looked_up, inner, held, seen)


def _mapped_axes(e: Term, axes: frozenset[int]) -> frozenset[int]:
    sources = e.attrs[0].sources
    return frozenset(i - len(sources) for i, index in enumerate(sources) if index.variables() & axes)
