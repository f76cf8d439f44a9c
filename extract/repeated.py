"""What kernels would compute again and again: there the results may be stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import inf, prod
from typing import TYPE_CHECKING

from frittata.egraph import shapes
from frittata.egraph.indexing import IndexMap
from frittata.egraph.ops import registry
from frittata.egraph.snapshot import Node, Snapshot
from frittata.extract.layouts import computed, ends
from frittata.extract.problem import components

if TYPE_CHECKING:
    import networkx as nx

DEAR = 16.0
"""In additions: values that take more are worth storing where others would compute each of them several times."""


def is_given(snapshot: Snapshot, tensor: int) -> bool:
    """Whether a tensor is an input or a param."""
    return any(not node.args for node in snapshot.nodes[tensor])


def arguments(snapshot: Snapshot) -> dict[int, set[int]]:
    """The element classes from which each element class is computed, but for what tensors store."""
    return {
        class_: {arg for node in nodes if node.op != "load" for arg in node.args}
        for class_, nodes in enumerate(snapshot.nodes)
        if snapshot.sorts[class_] == "element"
    }


def readers(snapshot: Snapshot) -> dict[tuple[int, int], list[Node]]:
    """Return, of a class and an element class, the nodes of the second that read the first."""
    found: dict[tuple[int, int], list[Node]] = {}
    for class_, nodes in enumerate(snapshot.nodes):
        for node in nodes if snapshot.sorts[class_] == "element" else ():
            for arg in set(node.args):
                found.setdefault((arg, class_), []).append(node)
    return found


def dear_classes(snapshot: Snapshot, loaded: Iterable[int]) -> set[int]:
    """The element classes whose values take much, if no more is loaded than must be."""
    return {class_ for class_, work in _work(snapshot, loaded).items() if work >= DEAR}


def _work(snapshot: Snapshot, loaded: Iterable[int]) -> dict[int, float]:
    """Return what a value of each element class takes at least, in additions, if no more is loaded than must be."""
    found = dict.fromkeys(loaded, 1.0)
    for members in components(arguments(snapshot)):
        changed = True
        while changed:
            changed = False
            for class_ in members:
                for node in snapshot.nodes[class_]:
                    is_load = node.op == "load"
                    if not (is_given(snapshot, node.args[0]) if is_load else all(arg in found for arg in node.args)):
                        continue
                    total = registry.get(node.op, "element").cost + sum(found.get(arg, 0.0) for arg in node.args)
                    if total < found.get(class_, inf):
                        found[class_], changed = total, True
    return found


def joined_under_folds(snapshot: Snapshot) -> set[int]:
    """Return the concatenations of which something is folded along the axis on which they are one.

    Each pass over a row would tell the parts apart, place by place.
    """
    axes: dict[int, frozenset[int]] = {}
    found: set[int] = set()
    for class_ in (c for members in reversed(components(arguments(snapshot))) for c in members):
        here = axes.get(class_, frozenset())
        for node in snapshot.nodes[class_]:
            if node.op == "load":
                joins = (other for other in snapshot.nodes[node.args[0]] if other.op == "concat")
                found |= {node.args[0] for join in joins if join.attrs[0] in here}
            elif node.op == "fold" or registry.get(node.op, "element").pointwise:
                over = here | {node.attrs[1]} if node.op == "fold" else here
                for arg in node.args:
                    axes[arg] = axes.get(arg, frozenset()) | over
    return found


def read_again(snapshot: Snapshot, graph: nx.DiGraph[int], extents: Mapping[int, shapes.Shape]) -> set[int]:
    """The element classes of which views, and what reads them as they are, read more places than there are."""
    read: dict[int, int] = {}
    viewed: set[int] = set()
    last = ends(snapshot)
    for class_, nodes in enumerate(snapshot.nodes):
        if snapshot.sorts[class_] != "element" or class_ not in graph:
            continue
        found: dict[int, int] = {}
        for node in computed(nodes, last):
            is_view = node.op == "reindex"
            viewed.update(node.args if is_view else ())
            for arg in node.args:
                places = _places_shown(node.attrs[0]) if is_view else _places(extents.get(arg, ()))
                found[arg] = max(places, found.get(arg, 0))
        for arg, places in found.items():
            read[arg] = read.get(arg, 0) + places
    return {class_ for class_ in viewed if read[class_] > _places(extents.get(class_, ()))}


def computed_again(snapshot: Snapshot, graph: nx.DiGraph[int], may: Collection[int], dear: Collection[int]) -> set[int]:
    """Return tensors of dear values beside those where kernels may end: what is computed from them is shown by views,
    all in all more than once.
    """
    last = ends(snapshot)
    elements = (c for c, sort in enumerate(snapshot.sorts) if sort == "element" and c in graph)
    nodes = {class_: computed(snapshot.nodes[class_], last) for class_ in elements}
    views: dict[int, frozenset[IndexMap]] = {}
    again: set[int] = set()
    for class_ in (c for members in reversed(components(arguments(snapshot))) for c in members if c in graph):
        shown = set[IndexMap]()
        for user in graph.successors(class_):
            for node in nodes.get(user, ()):
                if class_ in node.args:
                    shown |= {node.attrs[0]} if node.op == "reindex" else views.get(user, frozenset())
        tensors = {node.args[0] for node in snapshot.nodes[class_] if node.op == "load"}
        if class_ in dear and sum(map(_share_shown, shown)) > 1:
            again |= tensors
        views[class_] = frozenset(shown) if tensors.isdisjoint(again) and tensors.isdisjoint(may) else frozenset()
    return again


def _share_shown(view: IndexMap) -> float:
    return _places_shown(view) / max(1, _places(view.source))


def _places_shown(view: IndexMap) -> int:
    """Return how many places a view reads, those that it reads several times counted as often.

    What is beyond an axis is not read, but by what joins the parts of a whole, or makes a border.
    """
    extents: dict[int | str, shapes.Dim] = {}
    for source, dim in zip(view.sources, view.source, strict=True):
        for axis in source.variables():
            shown = shapes.dim_at(view.result, axis) if isinstance(axis, int) else 1
            is_shifted = source.factor_of(axis) == 1 and isinstance(dim, int) and isinstance(shown, int)
            extents[axis] = min(shown, dim) if is_shifted else shown
    return _places((*extents.values(),))


def _places(shape: shapes.Shape) -> int:
    return prod(dim for dim in shape if isinstance(dim, int))


