"""The one checker of choices: complete, acyclic, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable

from frittata.egraph.errors import ExtractionError
from frittata.extract.problem import Problem


def order(problem: Problem, chosen: Iterable[int]) -> list[int]:
    """Return the chosen candidates so that each follows what it loads.

    Raises: ExtractionError if a tensor is missing or the choice is cyclic.
    """
    numbers = sorted(set(chosen))
    done: set[int] = set()
    out: list[int] = []
    waiting = numbers
    while waiting:
        ready = [n for n in waiting if problem.loads(n) <= done]
        if not ready:
            raise ExtractionError("the choice is cyclic or incomplete", f"candidates {waiting[:8]}")
        for number in ready:
            done.update(problem.candidates[number].produces)
        out.extend(ready)
        waiting = [n for n in waiting if n not in set(ready)]
    missing = problem.roots - done
    if missing:
        raise ExtractionError(f"the choice does not produce classes {sorted(missing)}")
    return out


def is_valid(problem: Problem, chosen: Iterable[int]) -> bool:
    """Whether a choice is complete and acyclic."""
    try:
        order(problem, chosen)
    except ExtractionError:
        return False
    return True


def cost(problem: Problem, chosen: Iterable[int]) -> float:
    """Return the seconds of a choice, each kernel once."""
    return sum(problem.candidates[n].cost for n in set(chosen))


def needed(problem: Problem, choice_by_class: dict[int, int]) -> set[int]:
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
        out.add(number)
        stack.extend(problem.loads(number))
    return out
