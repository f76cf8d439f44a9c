"""The search for the best choice: simplify, cut into regions, solve each as an integer program, improve the rest."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from frittata.extract import check
from frittata.extract.dominators import simplified
from frittata.extract.greedy import completed, greedy, least_sets
from frittata.extract.integer import GAP, Solution, minimize, simple_bound
from frittata.extract.neighbourhoods import improve
from frittata.extract.problem import Problem
from frittata.extract.regions import cut, necessary, solve_each

_SMALL = 2000
"""A region with at most so many candidates is given to the integer program at once."""

_FINE_SHARE = 0.6
"""Of the time, for regions that a cycle may run through; where one does, they are joined and solved again."""

_START_SHARE = 0.35
_LOCAL_SHARE = 0.3
_PATIENCE = 8
"""Before the integer program of a larger one, parts are improved as long as that succeeds: it has more to beat."""
_BRANCH_SHARE = 0.7
_LEAST_PACES = 5
"""So many times what the greedy choice takes is needed to write down the integer program and to look at it."""


def solve(problem: Problem[Any], start: Iterable[int], time_limit_s: float, enough: float = GAP) -> Solution:
    """Improve on a valid choice, region by region, until the gap is small enough; never return a worse one."""
    begun = time.thread_time()
    first = frozenset(start)
    cost = check.cost(problem, first)
    if time_limit_s <= 0:
        return Solution(first, cost, 0.0)
    small = simplified(problem, cost, begun + 0.2 * time_limit_s)
    fixed = necessary(small, begun + 0.3 * time_limit_s)
    fine, coarse = cut(small, fixed), cut(small, fixed, whole_cycles=True)
    chosen, bound = first, 0.0
    attempts = [(coarse, 1.0)] if len(fine) == len(coarse) else [(fine, _FINE_SHARE), (coarse, 1.0)]
    for regions, share in attempts:
        found = solve_each(regions, partial(_solve_region, enough=enough, near=chosen), begun + share * time_limit_s)
        bound = max(bound, found.bound)
        is_valid = check.is_valid(problem, found.chosen)
        answer = found.chosen if is_valid else frozenset(completed(small, found.chosen))
        if check.cost(problem, answer) < cost:
            chosen, cost = answer, check.cost(problem, answer)
        if is_valid and bound >= cost * (1 - enough):
            break
    return Solution(chosen, cost, min(bound, cost))


def _solve_region(region: Problem[Any], deadline: float, enough: float, near: frozenset[int]) -> Solution:
    """Solve one region by the integer program, and where that is too large by improving parts of the choice, too.

    The search begins at the cheapest of the greedy choices and the one next to `near`.
    """
    begun = time.thread_time()
    first = greedy(region)
    pace = time.thread_time() - begun
    second = least_sets(region, begun + _START_SHARE * (deadline - begun))
    starts = (first, second, completed(region, near))
    start = frozenset(min(starts, key=lambda chosen: check.cost(region, chosen)))
    if time.thread_time() + _LEAST_PACES * pace > deadline:
        return Solution(start, check.cost(region, start), simple_bound(region))
    found = Solution(start, check.cost(region, start), 0.0)
    now = time.thread_time()
    if len(region.numbers()) > _SMALL:
        found = improve(region, found, now + _LOCAL_SHARE * (deadline - now), enough, _PATIENCE)
        if found.is_within(enough):
            return found
    now = time.thread_time()
    found = minimize(region, found.chosen, now + _BRANCH_SHARE * (deadline - now), enough)
    return found if found.is_within(enough) else improve(region, found, deadline, enough)
