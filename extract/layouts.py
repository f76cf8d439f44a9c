"""Layouts of the same values: element classes that are views of each other and computed in each order of the axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frittata.egraph import indexing
from frittata.egraph.indexing import IndexMap
from frittata.egraph.snapshot import Node, Snapshot

MOVES = ("reindex", "at")


def computed(nodes: Sequence[Node]) -> list[Node]:
    """Return what computes an element class: no loads; no views if it is computed otherwise.

    Such views are other layouts of the same values: no reason to store what they read, which has uses of its own.
    """
    inline = [node for node in nodes if node.op != "load"]
    return [node for node in inline if node.op not in MOVES] or inline


def layouts(snapshot: Snapshot) -> Callable[[int], int]:
    """Join the element classes that are several layouts of the same values; return which of them stands for each."""
    parent = list(range(len(snapshot.nodes)))

    def find(class_: int) -> int:
        while parent[class_] != class_:
            parent[class_] = parent[parent[class_]]
            class_ = parent[class_]
        return class_

    for class_, nodes in enumerate(snapshot.nodes):
        if any(node.sort == "element" and node.op not in ("load", *MOVES) for node in nodes):
            for node in nodes:
                if node.op == "reindex" and _moves_all(node.attrs[0]):
                    parent[find(node.args[0])] = find(class_)
    return find


def _moves_all(mapping: IndexMap) -> bool:
    """Whether a view shows each value once: another order of the axes."""
    axes = {axis for axis in indexing.axes_of(mapping.result) if axis.terms}
    return sorted(map(repr, axes)) == sorted(repr(source) for source in mapping.sources if source.terms)
