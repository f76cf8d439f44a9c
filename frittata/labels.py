"""Short names for e-classes and e-nodes, as a person would say them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import frittata.tables as tables
from frittata.account import Account
from frittata.egraph.indexing import IndexMap
from frittata.egraph.snapshot import Node
from frittata.egraph.terms import Scalar

_ATTR_WIDTH = 34


@dataclass
class Labels:
    """Names over one account: buffers by name, constants by value, anything else by the operator at its head."""

    account: Account
    here: Mapping[int, Node] = field(default_factory=dict[int, Node])
    """Nodes chosen at the place that is named, before those of other kernels."""

    @cached_property
    def _chosen(self) -> dict[int, Node]:
        steps = self.account.program.steps
        return {c: node for step in reversed(steps) for c, node in self.account.placement.part(step.name).nodes.items()}

    def tensor(self, class_: int) -> str:
        """Name a tensor class: its buffer, its param, or its operator as imported, or any."""
        name = self.account.placement.buffer_by_class.get(class_)
        if name is not None:
            return name
        nodes = [node for node in self.account.snapshot.nodes[class_] if node.op != "build"]
        nodes.sort(key=lambda node: node.rule)
        if not nodes:
            return "build"
        return str(nodes[0].attrs[0]) if nodes[0].op in ("param", "input", "full") else nodes[0].op

    def element(self, class_: int) -> str:
        """Name an element class after its chosen node: a number, the tensor that it loads, or an operator."""
        nodes = self.account.snapshot.nodes[class_]
        node = (
            self.here.get(class_)
            or self._chosen.get(class_)
            or next((n for n in nodes if n.op in ("const", "load")), nodes[0])
        )
        if node.op == "const":
            return number(node.attrs[0])
        return self.tensor(node.args[0]) if node.op == "load" else node.op

    def of(self, class_: int) -> str:
        """Name a class of either sort."""
        return self.tensor(class_) if self.account.snapshot.sorts[class_] == "tensor" else self.element(class_)

    def node(self, node: Node) -> str:
        """Write a node over the names of its arguments: fma(mul, norm1_weight, norm1_bias)."""
        if node.op == "const":
            return str(node.attrs[0])
        return f"{node.op}({', '.join([*map(self.of, node.args), *map(attr, node.attrs)])})"


def number(value: Scalar) -> str:
    """Write a constant without its dtype: f32(0.5) -> 0.5."""
    return str(value).partition("(")[2].removesuffix(")")


def attr(value: Any) -> str:
    """Write an attribute shortly: an index map by its shapes."""
    if isinstance(value, IndexMap):
        sides = ("x".join(map(str, side)) or "()" for side in (value.source, value.result))
        return " to ".join(sides)
    if isinstance(value, tuple):
        return tables.shortened(f"({', '.join(map(str, value))})", _ATTR_WIDTH)  # pyright: ignore[reportUnknownArgumentType]
    return tables.shortened(str(value), _ATTR_WIDTH)
