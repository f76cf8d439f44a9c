"""Sizes that depend on values which are known at import: of what masks select, what is repeated, found or padded.

What an exported graph computes of the module's own tensors alone, where the size of a result depends on it, is computed
by torch at import. The size is a number then, and a mask is the places that it lets through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from frittata.frontends import aten

_SELECT = "aten.masked_select.default"
_PUTS = ("aten.index_put.default", "aten._unsafe_index_put.default")
_INDEXED = ("aten.index.Tensor", "aten._unsafe_index.Tensor", _SELECT, *_PUTS)
_InPlace = Mapping[torch.fx.Node, tuple[Any, list[torch.fx.Node]]]


@dataclass
class Known:
    """Reads a graph from its begin; `own` are tensors of the module that no call changes."""

    own: Mapping[torch.fx.Node, torch.Tensor]
    in_place: _InPlace
    results: dict[torch.fx.Node, Any] = field(default_factory=dict[torch.fx.Node, Any])
    """Of the calls whose sizes depend on values, and those that make the numbers which sizes depend on."""
    indices: dict[torch.fx.Node, list[Any]] = field(default_factory=dict[torch.fx.Node, list[Any]])
    """What calls that take masks for indices take in their place."""
    extents: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """By torch's symbols."""
    sources: set[torch.fx.Node] = field(default_factory=set[torch.fx.Node])
    """The tensors of the module that all this is made of."""
    _value: dict[torch.fx.Node, Any] = field(default_factory=dict[torch.fx.Node, Any])
    _made_of: dict[torch.fx.Node, set[torch.fx.Node]] = field(default_factory=dict[torch.fx.Node, set[torch.fx.Node]])

    @staticmethod
    def of(nodes: Sequence[torch.fx.Node], own: Mapping[torch.fx.Node, torch.Tensor], in_place: _InPlace) -> Known:
        """Return what is known of a graph."""
        found = Known(own, in_place)
        roots = {node for node in nodes if found._is_sized(node)}
        asked = set(roots)
        if roots:
            for node in reversed(nodes):
                if node in asked or node in in_place:
                    asked.update((node, *node.all_input_nodes))
            with torch.no_grad():
                for node in nodes:
                    if node in asked:
                        found._read(node, node in roots)
        return found

    def _read(self, node: torch.fx.Node, is_sized: bool) -> None:
        target, names = self.in_place.get(node, (node.target, []))
        told = node.meta.get("val")
        if node in self.own:
            self._value[node], self._made_of[node] = self.own[node], {node}
        elif node.op == "call_function":
            if self._value.keys() >= {*node.all_input_nodes} and is_pure(target):
                args, kwargs = pytree.tree_map_only(torch.fx.Node, self._value.get, (node.args, dict(node.kwargs)))
                self._value[node], self._made_of[node] = target(*args, **kwargs), self._sources(node.all_input_nodes)
            elif isinstance(told, torch.SymInt) and told.node.expr.free_symbols <= self.extents.keys():
                self._value[node], self._made_of[node] = int(told.node.expr.xreplace(self.extents)), set()
            if is_sized and self._takes_masks(node):
                self._index(node)
            elif node in self._value and (is_sized or isinstance(told, torch.SymInt)):
                self._note(node)
        for name in names:
            self._value.pop(name, None)
            if node in self._value:
                self._value[name], self._made_of[name] = self._value[node], self._made_of[node]

    def _note(self, node: torch.fx.Node) -> None:
        """Note what a call returns, and its sizes, or the number that it is."""
        self.results[node] = self._value[node]
        self.sources |= self._made_of[node]
        leaves = zip(*map(pytree.tree_leaves, (node.meta["val"], self._value[node])), strict=True)
        pairs: list[tuple[Any, int]] = []
        for told, value in leaves:
            pairs += zip(told.shape, value.shape, strict=True) if isinstance(value, torch.Tensor) else [(told, value)]
        found = ((dim.node.expr, extent) for dim, extent in pairs if free_unbacked_symbols(dim))
        self.extents |= {size: sympy.Integer(extent) for size, extent in found if size.is_Symbol}

    def _index(self, node: torch.fx.Node) -> None:
        """Note the places of the masks among the indices of a call, if these are known."""
        masks = [index for index in self._indices(node) if _is_mask(index)]
        if any(mask not in self._value for mask in masks):
            return
        places = {mask: self._value[mask].nonzero(as_tuple=True) for mask in masks}
        self.indices[node] = [at for index in self._indices(node) for at in places.get(index, (index,))]
        self.sources |= self._sources(masks)
        unknown = (sizes(node) if self._name(node) not in _PUTS else set[Any]()) - self.extents.keys()
        if len(unknown) == 1:
            self.extents[unknown.pop()] = sympy.Integer(len(places[masks[0]][0]))

    def _sources(self, nodes: Sequence[torch.fx.Node]) -> set[torch.fx.Node]:
        return set[torch.fx.Node]().union(*(self._made_of[node] for node in nodes))

    def _is_sized(self, node: torch.fx.Node) -> bool:
        """Whether the size of what a call returns depends on values, or it writes several where a mask holds.

        A call of no tensors that has no row counts, too.
        """
        if node.op != "call_function" or self._name(node) in _INDEXED:
            return self._takes_masks(node)
        if not node.all_input_nodes and isinstance(node.meta.get("val"), torch.Tensor):
            return str(node.target) not in aten.ROWS
        return bool(sizes(node)) or torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ())

    def _takes_masks(self, node: torch.fx.Node) -> bool:
        """Whether there are masks among the indices of a call, other than one alone that all places get the same by."""
        indices = self._indices(node)
        masks = [index for index in indices if _is_mask(index)]
        if not masks or self._name(node) not in _PUTS or len(indices) - indices.count(None) > 1:
            return bool(masks)
        x, mask, values = (_tensor(each) for each in (node.args[0], masks[0], node.args[2]))
        return values.ndim > x.ndim - indices.index(masks[0]) - mask.ndim

    def _indices(self, node: torch.fx.Node) -> list[Any]:
        """Return the indices of a call, if it takes them."""
        name = self._name(node)
        if name == _SELECT:
            return [node.args[1]] if _tensor(node.args[0]).shape == _tensor(node.args[1]).shape else []
        return [*node.args[1]] if name in _INDEXED else []  # type: ignore[misc]

    def _name(self, node: torch.fx.Node) -> str:
        return str(self.in_place.get(node, (node.target,))[0])


def sizes(node: torch.fx.Node) -> set[Any]:
    """Return the symbols of sizes that depend on values, in what a call returns."""
    tensors = [value for value in pytree.tree_leaves(node.meta.get("val")) if isinstance(value, torch.Tensor)]
    return {symbol for value in tensors for dim in value.shape for symbol in free_unbacked_symbols(dim)}


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.fx.Node) and _tensor(index).dtype == torch.bool


def _tensor(node: Any) -> torch.Tensor:
    """Return what torch says of a tensor."""
    return node.meta["val"]


def is_pure(target: Any) -> bool:
    """Whether a call gives the same each time, and changes nothing."""
    if getattr(target, "__module__", "") == "_operator":
        return True
    schema = getattr(target, "_schema", None)
    return schema is not None and not schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags
