"""What every derivation of a class passes through, and the candidates that no optimum needs because of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from frittata.extract.chains import affordable
from frittata.extract.greedy import least_trees, sets_fit
from frittata.extract.problem import Problem, restricted

_ROUNDS = 4
_RIVALS = 64
"""With so many kept candidates of one class a new one is compared."""


@dataclass
class Dominators:
    """`below[c]` are the classes on every derivation of c, c included, as bits; `bit[c]` is that of c."""

    bit: dict[int, int]
    below: dict[int, int]

    def closure(self, problem: Problem[Any], number: int) -> int:
        """Return the classes that a candidate cannot do without."""
        out = 0
        for load in problem.loads(number):
            out |= self.below[load]
        return out

    def classes(self, mask: int) -> set[int]:
        """Return the classes of a set of bits."""
        return {class_ for class_, bit in self.bit.items() if mask & bit}


def dominators(problem: Problem[Any], deadline: float = float("inf")) -> Dominators | None:
    """Return the dominators of the AND-OR graph; None if time or memory does not suffice.

    dom(c) = {c} with the intersection over c's candidates of the union over their loads l of dom(l), at its greatest
    fixpoint. Classes are visited, and numbered, as least trees settle them, so that sets begin small.
    """
    order = [class_ for class_ in least_trees(problem) if class_ in problem.by_class]
    if not sets_fit(len(order)):
        return None
    found = Dominators({class_: 1 << i for i, class_ in enumerate(order)}, {})
    loads = {class_: [problem.loads(n) for n in problem.by_class[class_]] for class_ in order}
    users: dict[int, set[int]] = {}
    for class_, sets in loads.items():
        for load in set[int]().union(*sets):
            users.setdefault(load, set()).add(class_)
    below = found.below
    dirty = set(order)
    while dirty:
        for class_ in order:
            if class_ not in dirty:
                continue
            if time.thread_time() > deadline:
                return None
            dirty.discard(class_)
            common = -1
            for needed in loads[class_]:
                if all(load in below for load in needed):  # otherwise everything, as yet
                    reached = 0
                    for load in needed:
                        reached |= below[load]
                    common &= reached
            common |= found.bit[class_]
            if common != below.get(class_):
                below[class_] = common
                dirty |= users.get(class_, set())
    return found


def simplified(problem: Problem[Any], cost: float, deadline: float = float("inf")) -> Problem[Any]:
    """Drop candidates that no choice cheaper than `cost` needs.

    They cost more with a chain to a root and one to a leaf; or wait for their own class; or a cheaper one of the same
    class loads only what they cannot do without. The latter two are asked of candidates that produce one class.
    """
    problem = restricted(problem, affordable(problem, cost))
    for _ in range(_ROUNDS):
        found = dominators(problem, deadline)
        if found is None:
            return problem
        kept = {n for class_ in problem.by_class for n in _undominated(problem, found, class_)}
        if len(kept) == len(problem.numbers()):
            return problem
        problem = restricted(problem, kept)
    return problem


def _undominated(problem: Problem[Any], found: Dominators, class_: int) -> list[int]:
    kept: list[tuple[int, int]] = []
    out: list[int] = []
    for number in sorted(problem.by_class[class_], key=lambda n: (problem.cost(n), n)):
        if len(problem.candidates[number].produces) > 1:
            out.append(number)
            continue
        closure = found.closure(problem, number)
        if closure & found.bit[class_] or any(not loads & ~closure for _, loads in kept[:_RIVALS]):
            continue
        loads = 0
        for load in problem.loads(number):
            loads |= found.bit[load]
        kept.append((number, loads))
        out.append(number)
    return out
