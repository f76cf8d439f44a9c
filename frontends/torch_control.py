"""Torch's operators that have graphs: both branches are imported, and what goes over slices is unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule

from frittata.egraph.ops.registry import tensor
from frittata.frontends import idioms, idioms_windows
from frittata.frontends.idioms_complex import each

Run = Callable[[GraphModule, Sequence[Any]], Sequence[Any]]
"""Imports a graph for the values of its inputs and returns those of its outputs."""


def _cond(run: Run, condition: Any, yes: GraphModule, no: GraphModule, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Both branches, and their results value by value."""
    if isinstance(condition, bool):
        return tuple(run(yes if condition else no, operands))
    chosen = idioms.reshape(condition, ())
    pairs = zip(run(yes, operands), run(no, operands), strict=True)
    return tuple(each(lambda a, b: tensor("where", chosen, a, b), *pair) for pair in pairs)


def _scan(run: Run, body: GraphModule, state: Sequence[Any], xs: Sequence[Any], others: Sequence[Any]) -> Any:
    """The body for each slice along the first axis, after the one before."""
    carried, collected = list(state), list[Sequence[Any]]()
    for step in _steps(xs):
        results = run(body, [*carried, *step, *others])
        carried = list(results[: len(state)])
        collected.append(results[len(state) :])
    return *carried, *map(_stacked, zip(*collected, strict=True))


def _map(run: Run, body: GraphModule, xs: Sequence[Any], others: Sequence[Any]) -> Any:
    """The body for each slice along the first axis."""
    return tuple(map(_stacked, zip(*(run(body, [*step, *others]) for step in _steps(xs)), strict=True)))


def _steps(xs: Sequence[Any]) -> list[list[Any]]:
    count = idioms.number(xs[0].shape[0])
    idioms.check_steps(count)
    return [[each(lambda x, at=at: idioms.select(x, 0, at), x) for x in xs] for at in range(count)]


def _stacked(parts: Sequence[Any]) -> Any:
    return each(lambda *terms: idioms_windows.concat([idioms.unsqueeze(x, 0) for x in terms], 0), *parts)


OPERATORS: dict[str, Callable[..., Any]] = {"cond": _cond, "scan": _scan, "map_impl": _map}
"""What each means, given how a graph is imported and its arguments."""
