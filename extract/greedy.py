"""Choices made at once, from the leaves up: least trees, least chains, and least sets of what each class needs."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Set
from operator import add
from typing import Any

import numpy as np

from frittata.extract import check
from frittata.extract.problem import Problem

_SET_BYTES = 1 << 28
"""The most memory that a set of classes for each class may take, in bytes."""


def greedy(problem: Problem[Any]) -> set[int]:
    """Return a valid choice, the cheaper of those of least trees and least chains."""
    return made_at_once(problem, problem.cost)


def completed(problem: Problem[Any], liked: Set[int]) -> set[int]:
    """Return a valid choice near one that is none: what is derived with the least that is added to it."""
    return made_at_once(problem, lambda n: 0.0 if n in liked else problem.cost(n))


def made_at_once(problem: Problem[Any], price: Callable[[int], float]) -> set[int]:
    """Return the cheaper of the choices of least trees and least chains where candidates have these prices."""
    choices = [check.needed(problem, found(problem, price)) for found in (least_trees, least_chains)]
    return min(choices, key=lambda chosen: check.cost(problem, chosen))


def least_trees(problem: Problem[Any], price: Callable[[int], float] | None = None) -> dict[int, int]:
    """Return the candidate of least tree cost for each class: what is shared counts as often as it is used.

    `price` gives other, non-negative costs of candidates. The choice lists classes in the order they are settled.
    """
    return {class_: number for class_, (number, _) in settled(problem, price or problem.cost, add).items()}


def least_chains(problem: Problem[Any], price: Callable[[int], float]) -> dict[int, int]:
    """Return the candidate for each class whose dearest chain costs least: nothing counts more than once.

    Where a deep graph is shared at every depth, trees count what is far below so often that to compute it again seems
    cheap beside loading it twice.
    """
    return {class_: number for class_, (number, _) in settled(problem, price, max).items()}


def settled(
    problem: Problem[Any], price: Callable[[int], float], joined: Callable[[float, float], float]
) -> dict[int, tuple[int, float]]:
    """Return a candidate for each class and what it costs with all that is below, of which `joined` makes one number.

    Classes are settled in order of that cost, so the choice has no cycle.
    Source: Knuth, A generalization of Dijkstra's algorithm, 1977.
    """
    counts, users = problem.awaited
    waiting = dict(counts)
    below = dict.fromkeys(waiting, 0.0)
    heap = [(price(number), number) for number, count in waiting.items() if not count]
    heapq.heapify(heap)
    found: dict[int, tuple[int, float]] = {}
    while heap:
        cost, number = heapq.heappop(heap)
        for class_ in problem.candidates[number].produces:
            if class_ in found:
                continue
            found[class_] = number, cost
            for user in users.get(class_, ()):
                waiting[user] -= 1
                below[user] = joined(below[user], cost)
                if not waiting[user]:
                    heapq.heappush(heap, (below[user] + price(user), user))
    return found


def least_sets(problem: Problem[Any], deadline: float) -> set[int]:
    """Return a valid choice near that where each class takes the candidate whose set of classes below costs least.

    Sets are bits of integers, classes numbered as least trees settle them. Where time or memory does not suffice,
    classes keep the candidate of least tree cost.
    Source: greedy-dag of the extraction-gym.
    """
    choice = {c: n for c, n in least_trees(problem).items() if c in problem.by_class}
    if sets_fit(len(choice)):
        _shrink_sets(problem, choice, deadline)
    liked = check.needed(problem, choice)
    return liked if check.is_valid(problem, liked) else completed(problem, liked)  # choices may wait for each other


def _shrink_sets(problem: Problem[Any], choice: dict[int, int], deadline: float) -> None:
    """Change choices until no set of classes shrinks or the time is up."""
    bit = {class_: 1 << i for i, class_ in enumerate(choice)}
    cost = np.array([problem.cost(number) for number in choice.values()])
    position = {class_: i for i, class_ in enumerate(choice)}
    users: dict[int, list[int]] = {}
    for class_, numbers in problem.by_class.items():
        for load in {load for number in numbers for load in problem.loads(number)}:
            users.setdefault(load, []).append(class_)
    below: dict[int, int] = {}
    total: dict[int, float] = {}
    queue = deque(choice)
    waiting = set(choice)
    while queue and time.thread_time() < deadline:
        class_ = queue.popleft()
        waiting.discard(class_)
        best = total.get(class_, np.inf) * (1 - 1e-12)
        improved = False
        for number in problem.by_class[class_]:
            loads = problem.loads(number)
            price = problem.cost(number)
            if any(load not in below for load in loads) or price + max(map(total.__getitem__, loads), default=0) > best:
                continue
            mask = 0
            for load in loads:
                mask |= below[load]
            sum_ = price + _weight(mask, cost)
            if not mask & bit[class_] and sum_ < best:
                best, improved = sum_, True
                choice[class_], total[class_], below[class_] = number, sum_, mask | bit[class_]
                cost[position[class_]] = price
        if improved:
            fresh = [user for user in users.get(class_, ()) if user not in waiting]
            queue.extend(fresh)
            waiting.update(fresh)


def sets_fit(count: int) -> bool:
    """Tell whether memory suffices for a set of classes for each class; half of the bits are above the class."""
    return count * count // 16 <= _SET_BYTES


def _weight(mask: int, cost: np.ndarray[Any, Any]) -> float:
    if not mask:
        return 0.0
    data = np.frombuffer(mask.to_bytes((mask.bit_length() + 7) // 8, "little"), np.uint8)
    bits = np.unpackbits(data, bitorder="little")
    count = min(len(bits), len(cost))
    return float(bits[:count] @ cost[:count])
