"""What is computed on every way to a class, be it stored or held: dominators of the whole e-graph.

A kernel that loads what is computed from x should not compute x again if that costs as much as it did to load it; and
where every program computes a contraction, one of its kernels does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from frittata.egraph.ops import registry
from frittata.egraph.ops.elements import CONTRACTIONS
from frittata.egraph.places import JOINS
from frittata.egraph.snapshot import Node, Snapshot
from frittata.extract.dominators import Dominators, dominators
from frittata.extract.layouts import layouts
from frittata.extract.problem import Problem, Way


def always_evaluated(snapshot: Snapshot, free: frozenset[int]) -> Dominators:
    """Return the classes that every derivation of a class evaluates; few or none if memory does not suffice.

    Layouts of the same values have one bit: it tells that some of them is evaluated. So have a contraction and another
    from which it can be computed: one of the two is.
    """
    layout_of = layouts(snapshot, _scaled(snapshot))
    problem: Problem[Way] = Problem(frozenset())
    for class_, nodes in enumerate(snapshot.nodes):
        own = layout_of(class_)
        for way in [Way((own,), frozenset())] if class_ in free else _ways(own, nodes, layout_of):
            problem.by_class.setdefault(own, []).append(len(problem.candidates))
            problem.candidates.append(way)
        problem.by_class.setdefault(own, [])
    found = dominators(problem) or Dominators({}, {})
    known = [c for c in range(len(snapshot.nodes)) if layout_of(c) in found.below]
    return Dominators({c: found.bit[layout_of(c)] for c in known}, {c: found.below[layout_of(c)] for c in known})


def _ways(own: int, nodes: list[Node], layout_of: Callable[[int], int]) -> list[Way]:
    needs = (frozenset(map(layout_of, node.args)) for node in nodes if _is_executed(node))
    return [Way((own,), loads) for loads in needs if own not in loads]


def _scaled(snapshot: Snapshot) -> Iterator[tuple[int, int]]:
    """Visit contractions with another that they are computed from point by point: weights have taken up a factor."""
    contracted = {c for c, nodes in enumerate(snapshot.nodes) if any(node.op in CONTRACTIONS for node in nodes)}
    for class_ in contracted:
        for node in snapshot.nodes[class_]:
            below = contracted.intersection(node.args)
            if node.op != "reindex" and node.op not in CONTRACTIONS and len(below) == 1:
                yield class_, below.pop()


def _is_executed(node: Node) -> bool:
    """Whether programs contain the node: tensor operators that have a definition stand for it."""
    return node.sort == "element" or node.op == "build" or node.op in JOINS or registry.get(node.op).opaque
