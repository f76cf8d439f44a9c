"""The class-consistency check: every node of a class has one value at random indices, in range and out of range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from frittata.egraph import terms
from frittata.egraph.interpret import Interpreter
from frittata.egraph.snapshot import Node, Snapshot
from frittata.egraph.terms import ElementType, Term

AXES = 5
POINTS = 48


def inconsistencies(
    snapshot: Snapshot, value_by_name: Mapping[str, Any], seed: int = 0, rtol: float = 1e-9
) -> list[str]:
    """Return a line for each node that differs from its class.

    The first node of a class that can be computed from classes settled before stands for the class.
    """
    rng = np.random.default_rng(seed)
    index = {axis: rng.integers(-3, 24, POINTS) for axis in range(-AXES, 0)}
    interpreter = Interpreter(value_by_name)
    chosen = representatives(snapshot)
    wrong: list[str] = []
    for class_, nodes in enumerate(snapshot.nodes):
        if class_ not in chosen:
            continue
        expected = _value(interpreter, chosen[class_], index)
        for node in nodes:
            if any(arg not in chosen for arg in node.args):
                continue
            found = _value(interpreter, _term(snapshot, class_, node, chosen), index)
            scale = np.max(np.abs(expected[np.isfinite(expected)]), initial=1e-30)
            if not np.allclose(found, expected, rtol=rtol, atol=rtol * scale, equal_nan=True):
                wrong.append(f"class {class_} rule {node.rule}: {node!r} is not {chosen[class_]!r}")
    return wrong


def representatives(snapshot: Snapshot) -> dict[int, Term]:
    """Return one term for each class, of least depth, so that cycles do no harm."""
    chosen: dict[int, Term] = {}
    changed = True
    while changed:
        changed = False
        for class_, nodes in enumerate(snapshot.nodes):
            if class_ in chosen:
                continue
            for node in nodes:
                if all(arg in chosen for arg in node.args):
                    chosen[class_] = _term(snapshot, class_, node, chosen)
                    changed = True
                    break
    return chosen


def _term(snapshot: Snapshot, class_: int, node: Node, chosen: Mapping[int, Term]) -> Term:
    """Apply a node without looking at extents: an element is a total function."""
    type_ = snapshot.types[class_]
    args = tuple(chosen[arg] for arg in node.args)
    return terms.intern(
        node.op, node.sort, args, node.attrs, ElementType((), type_) if node.sort == "element" else type_
    )


def _value(interpreter: Interpreter, term: Term, index: Mapping[int, Any]) -> Any:
    value = interpreter.tensor(term) if term.sort == "tensor" else interpreter.element_at(term, index)
    return np.broadcast_to(np.asarray(value, np.float64), np.shape(value) or (1,))
