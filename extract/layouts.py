"""Layouts of the same values: element classes that are views of each other and computed in each order of the axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache

from frittata.egraph import indexing
from frittata.egraph.indexing import Affine, IndexMap
from frittata.egraph.shapes import Dim, Shape
from frittata.egraph.snapshot import Node, Snapshot

MOVES = ("reindex", "at")


def computed(nodes: Sequence[Node], ends: Collection[int] = ()) -> list[Node]:
    """Return what computes an element class: no loads; if it is computed, no other layouts of it but those of `ends`.

    Such views are no reason to store what they read, which has uses of its own. Rows of a larger product are no layout
    of it: they are another way to have the values.
    """
    inline = [node for node in nodes if node.op != "load"]
    if not _is_computed(inline):
        return inline
    return [node for node in inline if not _shows_all(node) or node.args[0] in ends]


def ends(snapshot: Snapshot) -> frozenset[int]:
    """Return the element classes that are computed, and that only views read.

    Nothing goes on in this order of the axes: without the views nothing would use what is computed in it.
    """
    elements = [node for nodes in snapshot.nodes for node in nodes if node.sort == "element"]
    read = {arg for node in elements for arg in node.args}
    used = {arg for node in elements if node.op != "reindex" for arg in node.args}
    return frozenset(class_ for class_ in read - used if _is_computed(snapshot.nodes[class_]))


def layouts(snapshot: Snapshot, same: Iterable[tuple[int, int]] = ()) -> Callable[[int], int]:
    """Join the element classes that are several layouts of the same values; return which of them stands for each.

    The pairs `same` are joined as well.
    """
    parent = list(range(len(snapshot.nodes)))

    def find(class_: int) -> int:
        while parent[class_] != class_:
            parent[class_] = parent[parent[class_]]
            class_ = parent[class_]
        return class_

    for class_, nodes in enumerate(snapshot.nodes):
        if _is_computed(nodes):
            for node in filter(_shows_all, nodes):
                parent[find(node.args[0])] = find(class_)
    for class_, other in same:
        parent[find(other)] = find(class_)
    return find


def _is_computed(nodes: Sequence[Node]) -> bool:
    return any(node.op not in ("load", *MOVES) for node in nodes)


def _shows_all(node: Node) -> bool:
    """Whether a node is a view that shows each value once: another order of the axes."""
    return node.op == "reindex" and _moves_all(node.attrs[0])


@lru_cache(maxsize=4096)
def _moves_all(mapping: IndexMap) -> bool:
    return _long(indexing.axes_of(mapping.result), mapping.result) == _long(mapping.sources, mapping.source)


def _long(indices: Sequence[Affine], extents: Shape) -> Counter[tuple[Affine, Dim]]:
    """Return indices with the extents that they run over, in any order, but those that can only be 0."""
    return Counter((index, extent) for index, extent in zip(indices, extents, strict=True) if extent != 1)
