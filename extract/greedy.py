"""The greedy choice: least tree cost for each class. Always valid; what is shared counts as often as it is used."""

from __future__ import annotations

import heapq

from frittata.extract import check
from frittata.extract.problem import Problem


def greedy(problem: Problem) -> set[int]:
    """Return a valid choice of candidates."""
    return check.needed(problem, least_trees(problem))


def least_trees(problem: Problem) -> dict[int, int]:
    """Knuth's generalization of Dijkstra: classes are settled in order of tree cost, so the choice has no cycle."""
    users: dict[int, list[int]] = {}
    waiting: list[int] = []
    total = [c.cost for c in problem.candidates]
    heap: list[tuple[float, int]] = []
    for number, candidate in enumerate(problem.candidates):
        waiting.append(len(candidate.loads))
        for class_ in candidate.loads:
            users.setdefault(class_, []).append(number)
        if not candidate.loads:
            heap.append((total[number], number))
    heapq.heapify(heap)
    choice: dict[int, int] = {}
    while heap:
        price, number = heapq.heappop(heap)
        for class_ in problem.candidates[number].produces:
            if class_ in choice:
                continue
            choice[class_] = number
            for user in users.get(class_, ()):
                waiting[user] -= 1
                total[user] += price
                if waiting[user] == 0:
                    heapq.heappush(heap, (total[user], user))
    return choice
