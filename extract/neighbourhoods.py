"""Improving a choice part by part: most classes keep what they have, those around one class are solved anew.

Source: large neighbourhood search, Shaw, CP 1998.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np

from frittata.extract import check
from frittata.extract.greedy import least_trees
from frittata.extract.integer import Solution, minimize
from frittata.extract.problem import Problem, derive, restricted
from frittata.extract.regions import cut, forced, solve_each

_FIRST_SIZE = 150
"""Candidates to choose among."""
_LEAST_SIZE = 50
_STEP_S = 2.0
"""What one neighbourhood may take; one that is solved much faster grows."""


def improve(
    problem: Problem[Any], found: Solution, deadline: float, enough: float, patience: int | None = None
) -> Solution:
    """Improve on a valid choice until its gap is small enough, the time is up, or `patience` steps in a row failed.

    A neighbourhood that is all of the problem has a bound for it.
    """
    rng = np.random.default_rng(0)
    near = _neighbours(problem)
    size, most = _FIRST_SIZE, sum(map(len, problem.by_class.values()))
    second = _second_best(problem, found)
    longest, failed = 0.0, 0
    while failed != patience and not found.is_within(enough) and (now := time.thread_time()) + longest < deadline:
        active = _active(problem, found)
        ball = _ball(problem, near, list(active)[int(rng.integers(len(active)))], size)
        around = _solved_around(problem, {**second, **active}, ball, min(deadline, now + _STEP_S))
        chosen, cost = around.chosen, check.cost(problem, around.chosen)
        bound = max(found.bound, around.bound if len(ball) == len(problem.by_class) else 0.0)
        failed += 1
        if cost < found.cost and check.is_valid(problem, chosen):
            failed = 0
            found = Solution(chosen, cost, bound)
            second = _second_best(problem, found)
        found = replace(found, bound=bound)
        spent = time.thread_time() - now
        longest = max(longest, spent)
        size = int(np.clip(size * (1.3 if spent < _STEP_S / 3 else 0.7), _LEAST_SIZE, most))
    return found


def _solved_around(
    problem: Problem[Any], choice_by_class: dict[int, int], ball: set[int], deadline: float
) -> Solution:
    """Choose anew in the ball, with no other candidates outside than those of the choice."""
    numbers = {n for class_ in ball for n in problem.by_class[class_]}
    numbers.update(choice_by_class.values())
    part = restricted(problem, numbers)
    regions = cut(part, forced(part))

    def solve(region: Problem[Any], limit: float) -> Solution:
        return minimize(region, check.needed(region, choice_by_class), limit)

    return solve_each(regions, solve, deadline)


def _active(problem: Problem[Any], found: Solution) -> dict[int, int]:
    """Return the chosen candidate of each class that has one: of several the first that can be computed.

    A later one may need what the first produces.
    """
    active: dict[int, int] = {}
    for number in derive(problem, found.chosen):
        for class_ in problem.candidates[number].produces:
            if class_ in problem.by_class:
                active.setdefault(class_, number)
    return active


def _second_best(problem: Problem[Any], found: Solution) -> dict[int, int]:
    """Return for each class how to have it most cheaply once the choice is paid."""
    return least_trees(problem, lambda number: 0.0 if number in found.chosen else problem.cost(number))


def _neighbours(problem: Problem[Any]) -> dict[int, set[int]]:
    near: dict[int, set[int]] = {class_: set() for class_ in problem.by_class}
    for class_, numbers in problem.by_class.items():
        for number in numbers:
            for load in problem.loads(number):
                near[class_].add(load)
                near[load].add(class_)
    return near


def _ball(problem: Problem[Any], near: dict[int, set[int]], centre: int, size: int) -> set[int]:
    """Return the classes nearest to one of them that have so many candidates together, or more."""
    out = {centre}
    queue, count = deque([centre]), len(problem.by_class[centre])
    while queue and count < size:
        for other in near[queue.popleft()]:
            if other not in out:
                out.add(other)
                count += len(problem.by_class[other])
                queue.append(other)
    return out
