"""What else could have been chosen at a place, and what the whole program would then cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from frittata.egraph.errors import ExtractionError
from frittata.extract import check
from frittata.extract.candidates import Candidate
from frittata.extract.choose import ENOUGH, Extraction
from frittata.extract.exact import solve
from frittata.extract.greedy import greedy, least_trees
from frittata.extract.problem import Problem

_TIME_LIMIT_S = 0.5
_LARGEST_EXACT = 300
"""With more candidates than this a program is repaired around a forced choice, not optimized again."""


@dataclass(frozen=True, eq=False)
class Alternative:
    """Another candidate for a class. `program_s`: the cheapest program with it, in seconds; None if there is none."""

    number: int
    candidate: Candidate
    program_s: float | None


@dataclass
class Alternatives:
    """Prices choices that were not made, over one problem; each is priced once."""

    extraction: Extraction
    _price: dict[tuple[int, int], float | None] = field(default_factory=dict[tuple[int, int], "float | None"])

    @property
    def _problem(self) -> Problem[Candidate]:
        return self.extraction.problem

    def of(self, class_: int, chosen: int, limit: int) -> tuple[list[Alternative], int]:
        """Return the cheapest other candidates for a class by their own price, and how many more there are."""
        candidates = self._problem.candidates
        others = [n for n in self._problem.by_class.get(class_, ()) if n != chosen]
        others.sort(key=lambda n: candidates[n].cost)
        found = [Alternative(n, candidates[n], self.program_with(class_, n)) for n in others[:limit]]
        return found, max(0, len(others) - limit)

    def program_with(self, class_: int, number: int) -> float | None:
        """Return the seconds of the cheapest program found in which a candidate computes a class."""
        key = (class_, number)
        if key not in self._price:
            prices = [self._repaired(class_, number)]
            if len(self._problem.candidates) <= _LARGEST_EXACT:
                prices.append(self._optimized(class_, number))
            self._price[key] = min((price for price in prices if price is not None), default=None)
        return self._price[key]

    @cached_property
    def _choice(self) -> dict[int, int]:
        """For each class the chosen candidate, or that of least tree cost."""
        choice = least_trees(self._problem)
        for number in self.extraction.chosen:
            choice.update(dict.fromkeys(self._problem.candidates[number].produces, number))
        return choice

    def _repaired(self, class_: int, number: int) -> float | None:
        choice = {**self._choice, **dict.fromkeys(self._problem.candidates[number].produces, number)}
        forced = Problem(self._problem.roots | {class_}, self._problem.candidates, self._problem.by_class)
        needed = check.needed(forced, choice)
        return check.cost(forced, needed) if check.is_valid(forced, needed) else None

    def _optimized(self, class_: int, number: int) -> float | None:
        problem = self._problem
        others = set(problem.by_class[class_]) - {number}
        kept = [n for n in range(len(problem.candidates)) if n not in others]
        position = {n: i for i, n in enumerate(kept)}
        by_class = {c: [position[n] for n in numbers if n in position] for c, numbers in problem.by_class.items()}
        forced = Problem(problem.roots | {class_}, [problem.candidates[n] for n in kept], by_class)
        try:
            chosen = solve(forced, greedy(forced), _TIME_LIMIT_S, ENOUGH).chosen
            check.order(forced, chosen)
            return check.cost(forced, chosen)
        except (ExtractionError, KeyError):
            return None  # what this candidate loads has no other producer
