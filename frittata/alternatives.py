"""What else could have been chosen at a place, and what the whole program would then cost."""

from __future__ import annotations

from dataclasses import dataclass

from frittata.egraph.errors import ExtractionError
from frittata.extract import check
from frittata.extract.candidates import Candidate
from frittata.extract.choose import Extraction
from frittata.extract.exact import solve
from frittata.extract.greedy import greedy
from frittata.extract.problem import Problem

TIME_LIMIT_S = 0.5
"""For each program that is priced again."""


@dataclass(frozen=True, eq=False)
class Alternative:
    """Another candidate for a class. `program_s`: the cheapest program with it, in seconds; None if there is none."""

    number: int
    candidate: Candidate
    program_s: float | None


def alternatives(extraction: Extraction, class_: int, chosen: int, limit: int) -> tuple[list[Alternative], int]:
    """Return the cheapest other candidates for a class by their own price, and how many more there are."""
    problem = extraction.problem
    numbers = sorted(
        (n for n in problem.by_class.get(class_, ()) if n != chosen), key=lambda n: problem.candidates[n].cost
    )
    found = [Alternative(n, problem.candidates[n], program_with(problem, class_, n)) for n in numbers[:limit]]
    return found, max(0, len(numbers) - limit)


def program_with(problem: Problem, class_: int, number: int) -> float | None:
    """Return the seconds of the cheapest program in which a candidate computes a class."""
    others = set(problem.by_class[class_]) - {number}
    kept = [n for n in range(len(problem.candidates)) if n not in others]
    position = {n: i for i, n in enumerate(kept)}
    by_class = {c: [position[n] for n in numbers if n in position] for c, numbers in problem.by_class.items()}
    forced = Problem(problem.roots | {class_}, [problem.candidates[n] for n in kept], by_class)
    try:
        start = greedy(forced)
        chosen = solve(forced, start, TIME_LIMIT_S).chosen
        check.order(forced, chosen)
        return check.cost(forced, chosen)
    except (ExtractionError, KeyError):
        return None  # what this candidate loads has no other producer
