"""Bounds from chains: candidates each of which loads what the next produces are all paid."""

from __future__ import annotations

import heapq
from math import inf
from typing import Any

from frittata.extract.greedy import settled
from frittata.extract.problem import Problem


def affordable(problem: Problem[Any], cost: float) -> list[int]:
    """Return the candidates c with above(c) + cost(c) + below(c) <= cost, both of the cheapest chains through it.

    What is above a class and what is below it share nothing in a choice without cycles.
    """
    below = chains_below(problem)
    above = chains_above(problem)
    out: list[int] = []
    for number in problem.numbers():
        loads = problem.loads(number)
        start = min((above.get(c, inf) for c in problem.candidates[number].produces), default=inf)
        if start + problem.cost(number) + max((below[c] for c in loads), default=0.0) <= cost * (1 + 1e-9):
            out.append(number)
    return out


def chains_below(problem: Problem[Any]) -> dict[int, float]:
    """Return for each class the least cost of the dearest chain of candidates that it needs: a bound on its cost."""
    return {class_: cost for class_, (_, cost) in settled(problem, problem.cost, max).items()}


def chains_above(problem: Problem[Any]) -> dict[int, float]:
    """Return for each class the least cost of a chain of candidates from a root to it, without its own."""
    found = dict.fromkeys(problem.roots, 0.0)
    heap = [(0.0, class_) for class_ in problem.roots]
    heapq.heapify(heap)
    while heap:
        length, class_ = heapq.heappop(heap)
        if length > found[class_]:
            continue
        for number in problem.by_class[class_]:
            further = length + problem.cost(number)
            for load in problem.loads(number):
                if further < found.get(load, inf):
                    found[load] = further
                    heapq.heappush(heap, (further, load))
    return found
