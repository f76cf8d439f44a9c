"""Tensors that are parts of others, so that to have them is no work."""

from __future__ import annotations

from frittata.egraph import shapes
from frittata.egraph.ops import registry
from frittata.egraph.shapes import Shape
from frittata.egraph.snapshot import Node, Snapshot
from frittata.egraph.terms import Term


def leaf_of(snapshot: Snapshot, tensor: int) -> Term:
    """Return the buffer of a tensor class as bodies read it."""
    type_ = snapshot.tensor_type(tensor)
    return registry.make("input", "tensor", (), (f"c{tensor}", type_.shape, type_.dtype))


def is_view(built: Term) -> bool:
    """Whether a body is a contiguous part of its operand."""
    return view_offset(built) is not None


def view_offset(built: Term) -> int | None:
    """Return where in its operand a body begins that is a contiguous part of it, None for other bodies."""
    element = built.args[0]
    if element.op == "load":
        return 0 if shapes.size(element.args[0].shape) == shapes.size(built.shape) else None
    if element.op != "reindex" or element.args[0].op != "load":
        return None
    mapping = element.attrs[0]
    if mapping.source != element.args[0].args[0].shape or mapping.result != built.shape:
        return None
    return mapping.linear_offset()


class Views:
    """Knows of which tensors those of a snapshot are parts."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[int, frozenset[int]] = {}

    def shown(self, tensor: int) -> frozenset[int]:
        """Return the tensors of which one is a part."""
        if tensor not in self._known:
            nodes, shape, found = self._snapshot.nodes, self._snapshot.tensor_type(tensor).shape, set[int]()
            for build in (node for node in self._snapshot.builds(tensor) if node.attrs[0] == shape):
                for node in nodes[build.args[0]]:
                    found.update(other for other in self._loaded_by(node) if self._is_part(node, other, shape))
            self._known[tensor] = frozenset(found - {tensor})
        return self._known[tensor]

    def _loaded_by(self, node: Node) -> list[int]:
        """Return the tensors that a node loads, or shows if they are loaded."""
        nodes = [node] if node.op == "load" else self._snapshot.nodes[node.args[0]] if node.op == "reindex" else []
        return [n.args[0] for n in nodes if n.op == "load"]

    def _is_part(self, node: Node, tensor: int, shape: Shape) -> bool:
        element = registry.make("load", "element", (leaf_of(self._snapshot, tensor),), ())
        if node.op == "reindex":
            if not shapes.fits(element.shape, node.attrs[0].source):
                return False
            element = registry.make("reindex", "element", (element,), node.attrs)
        return shapes.fits(element.shape, shape) and is_view(registry.make("build", "tensor", (element,), (shape,)))
