"""The problem of choice: which candidates, so that every tensor that is loaded is produced, at least total cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from frittata.egraph.errors import ExtractionError
from frittata.extract.candidates import Candidate, Enumerator


@dataclass
class Problem:
    """Candidates of all tensor classes in reach of the roots; `by_class[c]` are the numbers of those that produce c."""

    roots: frozenset[int]
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    by_class: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    def loads(self, number: int) -> frozenset[int]:
        """Return the classes that a candidate needs produced."""
        return self.candidates[number].loads


def collect(enumerator: Enumerator, roots: Iterable[int]) -> Problem:
    """Enumerate the candidates of every class that some candidate loads, from the roots on."""
    problem = Problem(frozenset(roots) - enumerator.free)
    seen: set[int] = set()
    stack = sorted(problem.roots)
    while stack:
        class_ = stack.pop()
        if class_ in seen:
            continue
        seen.add(class_)
        for candidate in enumerator.candidates(class_):
            loads = candidate.loads - enumerator.free
            problem.candidates.append(
                Candidate(candidate.bodies, loads, candidate.template, candidate.estimate, candidate.rules)
            )
            stack.extend(loads - seen)
    problem.by_class = {class_: [] for class_ in seen}
    for number, candidate in enumerate(problem.candidates):
        for class_ in candidate.produces:
            if class_ in problem.by_class:
                problem.by_class[class_].append(number)
    return _solvable(problem, enumerator)


def _solvable(problem: Problem, enumerator: Enumerator) -> Problem:
    """Drop candidates that load what nothing can produce.

    Raises: ExtractionError if a root is lost.
    """
    done: set[int] = set()
    usable: set[int] = set()
    changed = True
    while changed:
        changed = False
        for number, candidate in enumerate(problem.candidates):
            if number not in usable and candidate.loads <= done:
                usable.add(number)
                done.update(candidate.produces)
                changed = True
    lost = problem.roots - done
    if lost:
        class_ = min(lost)
        nodes = ", ".join(map(repr, enumerator.snapshot.nodes[class_][:6]))
        raise ExtractionError(
            f"no kernel can compute a tensor of type {enumerator.snapshot.types[class_]}",
            f"e-class with nodes {nodes}",
            "its operators need legalization rules; were families disabled?",
        )
    kept = [c for number, c in enumerate(problem.candidates) if number in usable]
    by_class: dict[int, list[int]] = {class_: [] for class_ in problem.by_class if class_ in done}
    for number, candidate in enumerate(kept):
        for class_ in candidate.produces:
            if class_ in by_class:
                by_class[class_].append(number)
    return Problem(problem.roots, kept, by_class)
