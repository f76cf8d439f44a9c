"""Cutting the problem at tensors that every solution must store.

A class is necessary if no root can be had without it. Once those are known to be stored, what lies between them falls
apart into regions that are solved one by one; equal regions (the layers of a network) are solved once.
"""

from __future__ import annotations

from dataclasses import dataclass

from frittata.extract.problem import Problem


@dataclass(frozen=True)
class Region:
    """A part of the problem: the classes it must produce, and the candidates it may choose from."""

    needed: tuple[int, ...]
    candidates: tuple[int, ...]
    classes: tuple[int, ...]


def necessary(problem: Problem) -> set[int]:
    """Return the classes that every solution stores: the dominators of the roots in the AND-OR graph.

    dom(c) = {c} with the intersection over c's candidates of the union over their loads l of dom(l), at its greatest
    fixpoint; sets are bits of an integer.
    """
    classes = sorted(problem.by_class)
    bit = {class_: 1 << i for i, class_ in enumerate(classes)}
    everything = (1 << len(classes)) - 1
    dominators = dict.fromkeys(classes, everything)
    users: dict[int, set[int]] = {}
    for class_ in classes:
        for number in problem.by_class[class_]:
            for load in problem.loads(number):
                users.setdefault(load, set()).add(class_)
    queue = list(classes)
    waiting = set(queue)
    while queue:
        class_ = queue.pop()
        waiting.discard(class_)
        common = everything
        for number in problem.by_class[class_]:
            reached = 0
            for load in problem.loads(number):
                reached |= dominators[load]
            common &= reached
        found = common | bit[class_]
        if found != dominators[class_]:
            dominators[class_] = found
            fresh = users.get(class_, set()) - waiting
            queue.extend(fresh)
            waiting |= fresh
    needed = 0
    for root in problem.roots:
        needed |= dominators[root]
    return {class_ for class_ in classes if needed & bit[class_]}


def cut(problem: Problem) -> list[Region]:
    """Return the regions of a problem."""
    fixed = necessary(problem)
    parent = {class_: class_ for class_ in problem.by_class}

    def find(class_: int) -> int:
        while parent[class_] != class_:
            parent[class_] = parent[parent[class_]]
            class_ = parent[class_]
        return class_

    for candidate in problem.candidates:
        produced = [c for c in candidate.produces if c in parent]
        for class_ in [*produced[1:], *(candidate.loads - fixed)]:
            parent[find(class_)] = find(produced[0])
    members: dict[int, list[int]] = {}
    for class_ in sorted(problem.by_class):
        members.setdefault(find(class_), []).append(class_)
    out: list[Region] = []
    for classes in members.values():
        needed = tuple(c for c in classes if c in fixed)
        if needed:
            numbers = tuple(sorted({n for c in classes for n in problem.by_class[c]}))
            out.append(Region(needed, numbers, tuple(classes)))
    return out


def signature(problem: Problem, region: Region) -> tuple[object, ...]:
    """Return what makes two regions equal: prices and structure, classes renamed in order."""
    rename = {class_: i for i, class_ in enumerate(region.classes)}
    rows = tuple(
        (
            problem.candidates[n].cost,
            tuple(sorted(rename[c] for c in problem.candidates[n].produces if c in rename)),
            tuple(sorted(rename[c] for c in problem.loads(n) if c in rename)),
        )
        for n in region.candidates
    )
    return tuple(rename[c] for c in region.needed), rows
