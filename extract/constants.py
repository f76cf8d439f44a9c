"""Constant folding: for a class known before run time, the term over params that computes it.

That is one which the model has, if there is any: what rules make of it may round otherwise, and where a comparison or
an integer follows it would be another value than the framework's. Of terms of the model that a rule made one, w and
(w + 0.1) - 0.1, it is the cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from frittata.egraph.errors import ExtractionError, ModelError
from frittata.egraph.ops import registry
from frittata.egraph.snapshot import Node, Snapshot
from frittata.egraph.terms import Term
from frittata.extract.greedy import least_trees
from frittata.extract.problem import Problem, Way

_MADE_COST = 1e4
"""What a node that a rule made costs more than one of the model."""

_BUILD_COST = 20.0
"""What a definition by elements costs more than a named operator, which numpy computes at once."""


@dataclass
class Folder:
    """Finds the cheapest terms of classes, each once: of constant ones, and of all if it `reads_inputs`."""

    snapshot: Snapshot
    reads_inputs: bool = False
    _term_by_class: dict[int, Term] = field(default_factory=dict[int, Term])

    def __post_init__(self) -> None:
        nodes: list[Node] = []
        problem: Problem[Way] = Problem(frozenset())
        for class_, found in enumerate(self.snapshot.nodes):
            for node in _fitting(found):
                if node.op != "input" or self.reads_inputs:
                    problem.by_class.setdefault(class_, []).append(len(nodes))
                    problem.candidates.append(Way((class_,), frozenset(node.args), _cost(node)))
                    nodes.append(node)
        self._best = {class_: nodes[number] for class_, number in least_trees(problem).items()}

    def classes(self) -> frozenset[int]:
        """Return the tensor classes that need no input."""
        return frozenset(c for c in self._best if self.snapshot.sorts[c] == "tensor")

    def term(self, class_: int) -> Term:
        """Return the cheapest term of a class.

        Raises: ExtractionError if the class is not constant.
        """
        stack = [class_]
        while stack:
            current = stack[-1]
            if current in self._term_by_class:
                stack.pop()
                continue
            node = self._best.get(current)
            if node is None:
                raise ExtractionError(f"class {current} is not constant")
            missing = [arg for arg in node.args if arg not in self._term_by_class]
            if missing:
                stack.extend(missing)
                continue
            args = tuple(self._term_by_class[arg] for arg in node.args)
            try:
                self._term_by_class[current] = registry.make(node.op, node.sort, args, node.attrs)
            except ModelError as error:
                raise ExtractionError(f"cannot fold {node}", do=str(error)) from error
            stack.pop()
        return self._term_by_class[class_]


def _fitting(nodes: list[Node]) -> list[Node]:
    """Return the nodes of a class that fit wherever it stands: of a number that is also read from a tensor, or shown by
    a view, itself. It has the extents of all of those at once.
    """
    numbers = [node for node in nodes if node.op == "const"]
    return numbers if any(node.op in ("load", "reindex") for node in nodes) and numbers else nodes


def _cost(node: Node) -> float:
    return 1.0 + _MADE_COST * (node.rule != 0) + (_BUILD_COST if node.op == "build" else 0.0)
