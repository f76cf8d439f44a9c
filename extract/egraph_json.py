"""E-graphs as JSON, in the format of the extraction-gym, and the answer to one.

    {"nodes": {id: {"op": ..., "children": [ids], "eclass": id, "cost": number}}, "root_eclasses": [ids]}

A child is a node whose class is meant. The cost of a choice counts each chosen node once.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import Any

from frittata.egraph.errors import ExtractionError
from frittata.extract import check
from frittata.extract.exact import solve
from frittata.extract.greedy import greedy
from frittata.extract.problem import Problem, restricted

_TIDY_SHARE = 0.03
"""Of the time limit, what is left for checking and printing."""


@dataclass(frozen=True, slots=True)
class ENode:
    """A node of a class; `loads` are the classes of its children."""

    name: str
    cost: float
    produces: tuple[int, ...]
    loads: frozenset[int]


@dataclass(frozen=True)
class EGraph:
    """The problem of choice of an e-graph, and the names of its classes by number."""

    problem: Problem[ENode]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """A choice: the node of each class in reach of the roots, its cost, how far it may be from the best, the time."""

    dag_cost: float
    gap: float
    seconds: float
    choice: dict[str, str]
    greedy_cost: float

    def to_dict(self) -> dict[str, Any]:
        """Return what `frittata extract` prints."""
        return {"dag_cost": self.dag_cost, "gap": self.gap, "seconds": self.seconds, "choice": self.choice}


def extract_file(path: Path, time_limit_s: float, begun: float | None = None) -> Answer:
    """Choose from the e-graph in a file; the time counts from `begun`, a reading of `time.perf_counter`.

    Raises: ExtractionError if the file is not such an e-graph, or a root has no finite derivation.
    """
    start = time.perf_counter() if begun is None else begun
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ExtractionError(f"cannot open the e-graph: {error.strerror}", str(path)) from None
    except ValueError as error:
        raise ExtractionError(f"this is no JSON: {error}", str(path)) from None
    try:
        return extract_egraph(from_dict(data), time_limit_s, start)
    except ExtractionError as error:
        error.where = error.where or str(path)
        raise


def extract_egraph(egraph: EGraph, time_limit_s: float, begun: float | None = None) -> Answer:
    """Choose from an e-graph; the time counts from `begun`."""
    start = time.perf_counter() if begun is None else begun
    problem = egraph.problem
    first = greedy(problem)
    left = start + time_limit_s * (1 - _TIDY_SHARE) - time.perf_counter()
    solution = solve(problem, first, left)
    choice: dict[str, str] = {}
    for number in check.order(problem, solution.chosen):
        node = problem.candidates[number]
        choice[egraph.classes[node.produces[0]]] = node.name
    seconds = time.perf_counter() - start
    return Answer(solution.cost, solution.gap, seconds, choice, check.cost(problem, first))


def from_dict(data: Any) -> EGraph:
    """Read an e-graph from its JSON value. Nodes of infinite cost cannot be chosen.

    Raises: ExtractionError that names the first part that is wrong.
    """
    if not isinstance(data, dict) or not isinstance(data.get("nodes"), dict):
        raise ExtractionError("an e-graph is an object with `nodes` and `root_eclasses`")
    nodes: dict[str, Any] = data["nodes"]
    number_by_class: dict[str, int] = {}
    class_by_node: dict[str, int] = {}
    for name, node in nodes.items():
        if not isinstance(node, dict) or not isinstance(node.get("eclass"), str):
            raise ExtractionError(f"node {name!r} names no `eclass`")
        class_by_node[name] = number_by_class.setdefault(node["eclass"], len(number_by_class))
    candidates: list[ENode] = []
    by_class: dict[int, list[int]] = {number: [] for number in number_by_class.values()}
    for name, node in nodes.items():
        cost = _cost(name, node)
        class_ = class_by_node[name]
        try:
            loads = frozenset(class_by_node[child] for child in node.get("children", ()))
        except (KeyError, TypeError) as error:
            raise ExtractionError(f"node {name!r} has a child that is no node: {error}") from None
        if cost < inf and class_ not in loads:
            by_class[class_].append(len(candidates))
            candidates.append(ENode(name, cost, (class_,), loads))
    classes = tuple(number_by_class)
    roots = _roots(data, number_by_class)
    problem = restricted(Problem(roots, candidates, by_class), range(len(candidates)))
    for root in sorted(roots):
        if not problem.by_class[root]:
            raise ExtractionError(
                f"root class {classes[root]!r} has no finite derivation",
                do="give one of its nodes a finite cost, and children that do not lead back to it",
            )
    return EGraph(problem, classes)


def _cost(name: str, node: dict[str, Any]) -> float:
    cost = node.get("cost", 1.0)
    if isinstance(cost, str) or cost is None:  # infinity is no JSON number; some writers quote it, some write null
        cost = inf if cost is None else _number(name, cost)
    if isinstance(cost, bool) or not isinstance(cost, int | float) or isnan(cost) or cost < 0:
        raise ExtractionError(f"node {name!r} has cost {cost!r}", do="costs are numbers of at least 0")
    return float(cost)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ExtractionError(f"node {name!r} has cost {text!r}", do="costs are numbers of at least 0") from None


def _roots(data: dict[str, Any], number_by_class: dict[str, int]) -> frozenset[int]:
    names = data.get("root_eclasses")
    if not isinstance(names, list) or not names:
        raise ExtractionError("`root_eclasses` names no class")
    unknown = [name for name in names if name not in number_by_class]
    if unknown:
        raise ExtractionError(f"root class {unknown[0]!r} has no node")
    return frozenset(number_by_class[name] for name in names)
