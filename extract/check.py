"""The one checker of choices: complete, acyclic, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from frittata.egraph.errors import ExtractionError
from frittata.extract.problem import Problem, derive


def order(problem: Problem[Any], chosen: Iterable[int]) -> list[int]:
    """Return the chosen candidates so that each follows what it loads.

    Raises: ExtractionError if a class is missing or the choice is cyclic.
    """
    numbers = set(chosen)
    out = derive(problem, numbers)
    waiting = sorted(numbers.difference(out))
    if waiting:
        raise ExtractionError("the choice is cyclic or incomplete", f"candidates {waiting[:8]}")
    missing = problem.roots - {c for n in out for c in problem.candidates[n].produces}
    if missing:
        raise ExtractionError(f"the choice does not produce classes {sorted(missing)}")
    return out


def is_valid(problem: Problem[Any], chosen: Iterable[int]) -> bool:
    """Whether a choice is complete and acyclic."""
    try:
        order(problem, chosen)
    except ExtractionError:
        return False
    return True


def cost(problem: Problem[Any], chosen: Iterable[int]) -> float:
    """Return the price of a choice, each candidate once."""
    return sum(problem.cost(n) for n in sorted(set(chosen)))


def needed(problem: Problem[Any], choice_by_class: Mapping[int, int]) -> set[int]:
    """Return the candidates that the roots reach under one choice for each class."""
    out: set[int] = set()
    stack = list(problem.roots)
    seen: set[int] = set()
    while stack:
        class_ = stack.pop()
        if class_ in seen:
            continue
        seen.add(class_)
        number = choice_by_class[class_]
        if number not in out:
            out.add(number)
            stack.extend(problem.loads(number))
    return out
