"""What is computed on every way to a class, be it stored or held: dominators of the whole e-graph.

A kernel that loads what is computed from x should not compute x again if that costs as much as it did to load it; and
where every program computes a contraction, one of its kernels does.
"""

from __future__ import annotations

from dataclasses import dataclass

from frittata.egraph.ops import registry
from frittata.egraph.snapshot import Node, Snapshot
from frittata.extract.dominators import Dominators, dominators
from frittata.extract.problem import Problem


@dataclass(frozen=True, slots=True)
class _Step:
    """A node as a way to have its class."""

    produces: tuple[int, ...]
    loads: frozenset[int]
    cost: float = 0.0


def always_evaluated(snapshot: Snapshot, free: frozenset[int]) -> Dominators:
    """Return the classes that every derivation of a class evaluates; few or none if memory does not suffice."""
    problem: Problem[_Step] = Problem(frozenset())
    for class_, nodes in enumerate(snapshot.nodes):
        steps = [_Step((class_,), frozenset())] if class_ in free else _steps(class_, nodes)
        problem.by_class[class_] = [len(problem.candidates) + i for i in range(len(steps))]
        problem.candidates.extend(steps)
    return dominators(problem) or Dominators({}, {})


def _steps(class_: int, nodes: list[Node]) -> list[_Step]:
    return [_Step((class_,), frozenset(node.args)) for node in nodes if _is_executed(node)]


def _is_executed(node: Node) -> bool:
    """Whether programs contain the node: tensor operators that have a definition stand for it."""
    return node.sort == "element" or node.op in ("build", "concat", "pad", "permute") or registry.get(node.op).opaque
