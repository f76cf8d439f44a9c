"""Cutting the problem at classes that every solution must have.

A class is necessary if no root can be had without it. Once those are known to be produced, what lies between them falls
apart into regions, problems of their own; equal regions (the layers of a network) are solved once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from frittata.extract import check
from frittata.extract.dominators import dominators
from frittata.extract.integer import Solution
from frittata.extract.problem import Problem, components, edges

_LEAST_SHARE = 0.1
"""Of the time left, what even the smallest region may take."""


def necessary(problem: Problem[Any], deadline: float = float("inf")) -> set[int]:
    """Return classes that every solution produces: the dominators of the roots, or a part of them if time is short."""
    found = dominators(problem, deadline) if time.thread_time() < deadline else None
    if found is None:
        return forced(problem)
    mask = 0
    for root in problem.roots:
        mask |= found.below[root]
    return found.classes(mask)


def forced(problem: Problem[Any]) -> set[int]:
    """Return the classes that follow from the roots step by step: what all candidates of a needed class load."""
    out: set[int] = set()
    stack = list(problem.roots)
    while stack:
        class_ = stack.pop()
        if class_ not in out:
            out.add(class_)
            stack.extend(frozenset[int].intersection(*map(problem.loads, problem.by_class[class_])))
    return out


def cut(problem: Problem[Any], fixed: set[int], *, whole_cycles: bool = False) -> list[Problem[Any]]:
    """Return the regions of a problem between classes that are known to be needed.

    A cycle may run through several regions unless `whole_cycles` keeps those on one together.
    """
    parent = {class_: class_ for class_ in problem.by_class}

    def find(class_: int) -> int:
        while parent[class_] != class_:
            parent[class_] = parent[parent[class_]]
            class_ = parent[class_]
        return class_

    for number in problem.numbers():
        produced = [c for c in problem.candidates[number].produces if c in parent]
        for class_ in [*produced[1:], *(problem.loads(number) - fixed)]:
            parent[find(class_)] = find(produced[0])
    if whole_cycles:
        for members in components(edges(problem)):
            for class_ in members[1:]:
                parent[find(class_)] = find(members[0])
    members_by_top: dict[int, list[int]] = {}
    for class_ in sorted(problem.by_class):
        members_by_top.setdefault(find(class_), []).append(class_)
    out: list[Problem[Any]] = []
    covers_by_top: dict[int, list[frozenset[int]]] = {}
    for cover in problem.covers:
        tops = {find(c) for n in cover for c in problem.candidates[n].produces if c in parent}
        if len(tops) == 1:
            covers_by_top.setdefault(tops.pop(), []).append(cover)
    for top, members in members_by_top.items():
        inside = frozenset(members)
        if inside & fixed:
            by_class = {c: problem.by_class[c] for c in members}
            covers = tuple(covers_by_top.get(top, ()))
            out.append(Problem(inside & fixed, problem.candidates, by_class, inside, covers))
    return out


def solve_each(
    regions: list[Problem[Any]], solve: Callable[[Problem[Any], float], Solution], deadline: float
) -> Solution:
    """Solve regions up to a deadline, small ones first, equal ones once; time is shared out by size."""
    chosen: set[int] = set()
    cost = bound = 0.0
    solved: dict[object, tuple[list[int], Solution]] = {}
    sized = sorted((len(region.numbers()), i) for i, region in enumerate(regions))
    left = sum(size for size, _ in sized)
    for size, i in sized:
        region = regions[i]
        numbers = region.numbers()
        if size == len(region.by_class) == len(region.roots):  # nothing to choose
            part = Solution(frozenset(numbers), check.cost(region, numbers), check.cost(region, numbers))
        else:
            key = signature(region)
            if key not in solved:
                now = time.thread_time()
                share = max(size / left, _LEAST_SHARE)
                solved[key] = numbers, solve(region, now + share * max(0.0, deadline - now))
            same = dict(zip(solved[key][0], numbers, strict=True))
            part = solved[key][1]
            part = Solution(frozenset(same[n] for n in part.chosen), part.cost, part.bound)
        chosen |= part.chosen
        cost += part.cost
        bound += part.bound
        left -= size
    return Solution(frozenset(chosen), cost, bound)


def signature(region: Problem[Any]) -> tuple[object, ...]:
    """Return what makes two regions equal: prices and structure, classes renamed in order."""
    rename = {class_: i for i, class_ in enumerate(sorted(region.by_class))}
    rows = tuple(
        (
            region.cost(n),
            tuple(sorted(rename[c] for c in region.candidates[n].produces if c in rename)),
            tuple(sorted(rename[c] for c in region.loads(n))),
        )
        for n in region.numbers()
    )
    position = {n: i for i, n in enumerate(region.numbers())}
    covers = tuple(sorted(tuple(sorted(position[n] for n in cover)) for cover in region.covers))
    return tuple(sorted(rename[c] for c in region.roots)), rows, covers
