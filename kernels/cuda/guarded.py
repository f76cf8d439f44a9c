"""Loads that a condition guards: an index that it keeps inside of its axis need not be clamped.

    at0 = min(max(i - 1, 0), 55)
    t = x[at0] if 1 <= i and i < 57 else 0        ->      t = x[i - 1] if 1 <= i and i < 57 else 0

Only the arm that a condition chooses is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf

from frittata.egraph import dtypes
from frittata.egraph.indexing import Affine
from frittata.kernels.loops import (
    Apply,
    Assign,
    AssignIndex,
    Constant,
    Expression,
    Load,
    Local,
    Position,
    Statement,
    map_values,
    reads,
)

Limits = dict[Affine, tuple[float, float]]
"""Between what an index lies, without its constant."""


def unclamp(body: list[Statement]) -> list[Statement]:
    """Return a block without loops where guarded loads have their own index, and positions have no names.

    What was clamped for such loads alone is dropped.
    """
    positions = {s.name: s.value for s in body if isinstance(s, Assign) and isinstance(s.value, Position)}
    body = [s for s in body if not (isinstance(s, Assign) and s.name in positions)]
    map_values(body, lambda value: positions.get(value.name, value) if isinstance(value, Local) else value)
    value_by_name = {s.name: s.value for s in body if isinstance(s, Assign)}
    clamped = {s.name: s for s in body if isinstance(s, AssignIndex) and s.clamp is not None}

    def freed(value: Expression) -> Expression:
        if not isinstance(value, Apply) or value.op != "where":
            return value
        condition, yes, no = value.args
        return replace(value, args=(condition, _freed(yes, _limits(condition, value_by_name), clamped), no))

    map_values(body, freed)
    read = {name for s in body for name in reads(s)}
    return [s for s in body if not (isinstance(s, AssignIndex) and s.name in clamped and s.name not in read)]


def _freed(value: Expression, limits: Limits, clamped: Mapping[str, AssignIndex]) -> Expression:
    match value:
        case Apply(args=args):
            return replace(value, args=tuple(_freed(arg, limits, clamped) for arg in args))
        case Load(offset=offset):
            index_by_name: dict[int | str, Affine] = {
                key: clamped[key].index
                for key in offset.variables()
                if isinstance(key, str) and key in clamped and _is_inside(clamped[key], limits)
            }
            return replace(value, offset=offset.substitute(index_by_name)) if index_by_name else value
        case _:
            return value


def _is_inside(at: AssignIndex, limits: Limits) -> bool:
    assert at.clamp is not None
    low, high = limits.get(_without_constant(at.index), (-inf, inf))
    return low + at.index.constant >= 0 and high + at.index.constant < at.clamp


def _limits(condition: Expression, value_by_name: Mapping[str, Expression]) -> Limits:
    """Return between what indices lie where a condition holds."""
    limits: Limits = {}
    for index, low, high in _bounds(condition, value_by_name):
        key = _without_constant(index)
        known = limits.get(key, (-inf, inf))
        limits[key] = max(known[0], low - index.constant), min(known[1], high - index.constant)
    return limits


def _bounds(
    condition: Expression, value_by_name: Mapping[str, Expression]
) -> Iterator[tuple[Affine, float, float]]:
    match condition:
        case Local(name=name) if name in value_by_name:
            yield from _bounds(value_by_name[name], value_by_name)
        case Apply(op="and", args=args):
            for arg in args:
                yield from _bounds(arg, value_by_name)
        case Apply(op=op, args=(Position(index=index, dtype=dtype), Constant(value=limit))) if dtypes.is_integer(dtype):
            number = float(limit.value)
            low = {"ge": number, "gt": number + 1, "eq": number}.get(op, -inf)
            high = {"le": number, "lt": number - 1, "eq": number}.get(op, inf)
            yield index, low, high
        case _:
            return


def _without_constant(at: Affine) -> Affine:
    return at + -at.constant
