"""Long formulas: which of their values may be stored, so that kernels are not too deep and compute little again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import reduce
from heapq import heapify, heappop, heappush
from math import inf
from operator import or_

from frittata.egraph import shapes
from frittata.egraph.ops import registry
from frittata.egraph.snapshot import Node, Snapshot
from frittata.extract.repeated import DEAR, is_given

_APART = 64
"""After so many operators a kernel may end."""


def now_and_then(snapshot: Snapshot, cut: Collection[int]) -> set[int]:
    """Return tensors beside those where kernels may end, so that no kernel is too deep on the shortest way."""
    since: dict[int, int] = {}
    found: set[int] = set()
    for class_, node in _shallowest(snapshot, cut):
        chain = 1 + max((since[arg] for arg in node.args), default=-1) if node.op != "load" else 0
        tensors = _tensors(snapshot, class_) if chain >= _APART else []
        found.update(tensors)
        since[class_] = 0 if tensors else chain
    return found


def dear_to_share(snapshot: Snapshot, shared: Collection[int], cut: Collection[int]) -> set[int]:
    """Return the tensors of `shared` element classes that take much to compute from what is stored or given.

    Of others each of several kernels can compute its own: they are few operators away from one tensor no larger.
    """
    sources: dict[int, frozenset[int]] = {}
    steps: dict[int, dict[int, float]] = {}
    found: set[int] = set()
    for class_, node in _shallowest(snapshot, cut):
        tensors = _tensors(snapshot, class_)
        if node.op == "load":
            sources[class_], steps[class_] = frozenset(node.args), {}
            continue
        row = registry.get(node.op, "element")
        cost = row.cost if row.pointwise or not node.args else inf
        sources[class_] = frozenset[int]().union(*(sources[arg] for arg in node.args))
        steps[class_] = reduce(or_, (steps[arg] for arg in node.args), {class_: cost})
        is_dear = sum(steps[class_].values()) >= DEAR
        if class_ in shared and (is_dear or _places(snapshot, sources[class_]) > _places(snapshot, tensors[:1])):
            found.update(tensors)
            sources[class_], steps[class_] = frozenset(tensors[:1]), {}
        elif is_dear:
            steps[class_] = {class_: inf}
    return found


def _shallowest(snapshot: Snapshot, cut: Collection[int]) -> Iterator[tuple[int, Node]]:
    """Visit element classes, each after what it is computed from in the fewest successive operators, and that node.

    What is stored is loaded.
    Source: Knuth, A generalization of Dijkstra's algorithm, 1977.
    """
    users: dict[int, list[tuple[int, Node]]] = {}
    ready: list[tuple[int, int, int, Node]] = []
    for class_, nodes in enumerate(snapshot.nodes):
        for node in nodes if snapshot.sorts[class_] == "element" else ():
            if not node.args or (node.op == "load" and (node.args[0] in cut or is_given(snapshot, node.args[0]))):
                ready.append((0, class_, len(ready), node))
            for arg in set(node.args) if node.op != "load" else ():
                users.setdefault(arg, []).append((class_, node))
    heapify(ready)
    depth: dict[int, int] = {}
    pushed = len(ready)
    while ready:
        deep, class_, _, node = heappop(ready)
        if class_ in depth:
            continue
        depth[class_] = deep
        yield class_, node
        for user, other in users.get(class_, ()):
            if user not in depth and all(arg in depth for arg in other.args):
                heappush(ready, (1 + max(depth[arg] for arg in other.args), user, pushed, other))
                pushed += 1


def _tensors(snapshot: Snapshot, class_: int) -> list[int]:
    return [node.args[0] for node in snapshot.nodes[class_] if node.op == "load"]


def _places(snapshot: Snapshot, tensors: Iterable[int]) -> float:
    return sum(shapes.size(snapshot.tensor_type(tensor).shape) for tensor in tensors)
