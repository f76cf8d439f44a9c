"""The problem of choice: which candidates, so that every class that is loaded is produced, at least total cost.

It is an AND-OR problem: a candidate needs all of the classes that it loads, a class needs one of its candidates, and no
class may wait for itself. Kernels over tensors are one kind of candidate, nodes of any e-graph are another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar


class Item(Protocol):
    """What can be chosen."""

    @property
    def cost(self) -> float:
        """Its price, paid once however often its products are loaded."""
        ...

    @property
    def produces(self) -> tuple[int, ...]:
        """The classes that it computes."""
        ...

    @property
    def loads(self) -> frozenset[int]:
        """The classes that it needs produced."""
        ...


@dataclass(frozen=True, slots=True)
class Way:
    """A node of an e-graph as a way to have its class."""

    produces: tuple[int, ...]
    loads: frozenset[int]
    cost: float = 0.0


C = TypeVar("C", bound=Item)


@dataclass
class Problem(Generic[C]):
    """Candidates and the classes in reach of the roots.

    `by_class[c]` are the numbers of those that may produce c. Only the classes `inside` need
    producers, all of them if it is None. `covers` are sets of candidates of which every choice takes one at least.
    """

    roots: frozenset[int]
    candidates: list[C] = field(default_factory=list[C])
    by_class: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    inside: frozenset[int] | None = None
    covers: tuple[frozenset[int], ...] = ()

    def loads(self, number: int) -> frozenset[int]:
        """Return the classes that a candidate needs produced."""
        loads = self.candidates[number].loads
        return loads if self.inside is None else loads & self.inside

    def cost(self, number: int) -> float:
        """Return the price of a candidate."""
        return self.candidates[number].cost

    def numbers(self) -> list[int]:
        """Return the candidates that may be chosen, in order."""
        return sorted({number for numbers in self.by_class.values() for number in numbers})

    @cached_property
    def awaited(self) -> tuple[dict[int, int], dict[int, list[int]]]:
        """What `awaited` returns of all candidates that may be chosen, once there will be no more of them."""
        return awaited(self, self.numbers())


def awaited(problem: Problem[Any], numbers: Iterable[int]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Return how many classes each candidate waits for, and the candidates that wait for each class."""
    waiting: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    for number in numbers:
        loads = problem.loads(number)
        waiting[number] = len(loads)
        for class_ in loads:
            users.setdefault(class_, []).append(number)
    return waiting, users


def derive(problem: Problem[Any], numbers: Iterable[int]) -> list[int]:
    """Return those of the candidates that can be computed from others of them, each after what it loads."""
    waiting, users = awaited(problem, numbers)
    ready = [number for number, count in waiting.items() if not count]
    out: list[int] = []
    done: set[int] = set()
    while ready:
        ready.sort()
        out.extend(ready)
        fresh = {c for number in ready for c in problem.candidates[number].produces} - done
        done |= fresh
        ready = []
        for class_ in fresh:
            for user in users.get(class_, ()):
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
    return out


def restricted(problem: Problem[Any], numbers: Iterable[int]) -> Problem[Any]:
    """Return the problem with no other candidates than these, without what cannot be derived or reached with them."""
    usable = set(derive(problem, numbers))
    by_class: dict[int, list[int]] = {}
    stack = sorted(problem.roots)
    while stack:
        class_ = stack.pop()
        if class_ in by_class:
            continue
        by_class[class_] = [n for n in problem.by_class[class_] if n in usable]
        for number in by_class[class_]:
            stack.extend(problem.loads(number))
    left = frozenset(n for numbers in by_class.values() for n in numbers)
    covers = tuple(cover & left for cover in problem.covers)
    return Problem(problem.roots, problem.candidates, by_class, problem.inside, covers)


def edges(problem: Problem[Any]) -> dict[int, set[int]]:
    """Return for each class the classes that some candidate for it loads."""
    return {c: {load for n in numbers for load in problem.loads(n)} for c, numbers in problem.by_class.items()}


def components(edges: Mapping[int, Collection[int]]) -> list[list[int]]:
    """Return the strongly connected components of a graph, those that are pointed to first. Source: Tarjan, 1972."""
    low: dict[int, int] = {}
    place: dict[int, int] = {}
    path: list[int] = []
    out: list[list[int]] = []
    for start in edges:
        if start in low:
            continue
        stack: list[tuple[int, int, Iterator[int]]] = []
        fresh = [start]
        while stack or fresh:
            for vertex in fresh:
                low[vertex] = len(low)
                place[vertex] = len(path)
                path.append(vertex)
                stack.append((vertex, low[vertex], iter(edges[vertex])))
            fresh = []
            vertex, index, rest = stack[-1]
            for other in rest:
                if other in edges and other not in low:
                    fresh = [other]
                    break
                if other in place:
                    low[vertex] = min(low[vertex], low[other])
            if fresh:
                continue
            stack.pop()
            if stack:
                above = stack[-1][0]
                low[above] = min(low[above], low[vertex])
            if low[vertex] == index:
                out.append(path[place[vertex] :])
                del path[place[vertex] :]
                for member in out[-1]:
                    del place[member]
    return out
