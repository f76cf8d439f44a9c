"""What a mask selects, `x[mask]`, where it goes back to the mask's places or is summed: computed at all places.

As many rows as there are places then stand for as many as the mask lets through, and what is computed of the others is
left out in the end. So this is done where every operator in between computes each row by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from frittata.egraph.errors import ModelError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_indices

_INDEX, _PUT = "aten.index.Tensor", ("aten.index_put.default", "aten._unsafe_index_put.default")
_SUMS = ("aten.sum.default", "aten.sum.dim_IntList", "aten.mean.default", "aten.mean.dim")
_POINTWISE = ("aten.to.dtype", "aten._to_copy.default", "aten.floor_divide.default")
"""Operators that torch does not say to be so."""


@dataclass(frozen=True)
class Selected:
    """A mask, and the symbols of how many places it lets through: one for each time that it is computed."""

    mask: torch.fx.Node
    symbols: frozenset[Any]

    @property
    def places(self) -> Any:
        """How many places it has."""
        return reduce(mul, map(sympy.sympify, self.mask.meta["val"].shape))


def selections(
    nodes: Iterable[torch.fx.Node], target_of: Callable[[torch.fx.Node], Any]
) -> dict[torch.fx.Node, Selected]:
    """Return the calls that take or give what a mask selects, of those masks where that can be done at all places.

    `nodes` are what is computed, `target_of` says which operators they call.
    """
    touched: dict[torch.fx.Node, set[Any]] = {}
    together: dict[Any, set[Any]] = {}  # symbols that meet in a call
    masks: dict[Any, torch.fx.Node] = {}
    for node in nodes:
        touched[node] = symbols = _symbols(node).union(*map(_symbols, node.all_input_nodes))
        joined = symbols.union(*(together.get(symbol, ()) for symbol in symbols))
        together.update(dict.fromkeys(joined, joined))
        mask = mask_of(node)
        if str(target_of(node)) == _INDEX and mask is not None and len(symbols) == 1:
            masks.setdefault(next(iter(symbols)), mask)
    found: dict[torch.fx.Node, Selected] = {}
    for symbol, mask in masks.items():
        selected = Selected(mask, frozenset(together[symbol]))
        touching = [node for node, symbols in touched.items() if symbols & selected.symbols]
        if found.keys().isdisjoint(touching) and all(_is_by_rows(n, target_of(n), selected) for n in touching):
            found.update(dict.fromkeys(touching, selected))
    return found


def extents(selected: Iterable[Selected], known: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return extents with those of what masks select, as if they selected all places."""
    return {**known, **{symbol: one.places.xreplace(known) for one in selected for symbol in one.symbols}}


def meaning(
    node: torch.fx.Node, row: Callable[..., Any], selected: Selected, mask: Term, masks: dict[Selected, Term]
) -> Callable[..., Any]:
    """Return what a call means on the rows of all places.

    `mask` is what the mask is now, that of the call if it has one; `masks` keeps what each was when it selected.

    Raises: ModelError where rows go back to the places of a mask that is another, or is another by then.
    """
    if mask_of(node) is not None and "val" in node.meta:
        if masks.setdefault(selected, mask) is not mask:
            what = "rows that a mask selects meet those, or the places, of another, and their number depends on values"
            raise ModelError(what, do="select by the same mask, or choose with torch.where")
        return _put if len(node.args) > 2 else _take
    if _symbols(node):
        return row
    after = _place(node.all_input_nodes[0], selected)
    assert after is not None
    kept, is_mean = masks[selected], "mean" in str(node.target)
    return lambda x, *rest, **named: _summed(row, kept, after, is_mean, x, *rest, **named)


def _is_by_rows(node: torch.fx.Node, target: Any, selected: Selected) -> bool:
    """Whether a call computes each row of what is selected by itself, puts all back, or adds them up."""
    name = str(target)
    given = [used for used in node.all_input_nodes if _symbols(used)]
    places = [_place(used, selected) for used in given]
    if node.op != "call_function" or None in places:
        return False
    if name == _INDEX or name in _PUT:
        mask = mask_of(node)  # `meaning` looks whether it is the same mask, which may be computed twice
        if mask is None or mask.meta["val"].shape != selected.mask.meta["val"].shape:
            return False
        if name == _INDEX:
            return not given and _place(node, selected) is not None
        at, rank, own = node.args[1].index(mask), mask.meta["val"].ndim, node.args[0].meta["val"]  # type: ignore[union-attr]
        is_row = all(used.meta["val"].ndim <= own.ndim - rank + 1 for used in given)
        return is_row and places == [own.ndim - at - rank]
    if not _symbols(node):
        return name in _SUMS
    place, tags = _place(node, selected), getattr(target, "tags", ())
    if name == "aten.unsqueeze.default" or torch.Tag.reduction in tags:
        return place is not None
    if name == "aten.linear.default":
        return place is not None and place > 0 and given == [node.args[0]]
    return (torch.Tag.pointwise in tags or name in _POINTWISE) and set(places) == {place}


def mask_of(node: torch.fx.Node) -> torch.fx.Node | None:
    """Return the mask, if a call has only that for an index."""
    indices = node.args[1] if len(node.args) > 1 else None
    if node.op != "call_function" or not isinstance(indices, list | tuple):
        return None
    given = [i for i in indices if isinstance(i, torch.fx.Node) and isinstance(i.meta.get("val"), torch.Tensor)]
    return given[0] if len(given) == 1 and given[0].meta["val"].dtype == torch.bool else None


def _symbols(node: torch.fx.Node) -> set[Any]:
    values: Any = pytree.tree_leaves(node.meta.get("val"))
    known = torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool
    return {symbol for value in values if isinstance(value, known) for symbol in free_unbacked_symbols(value)}


def _place(node: torch.fx.Node, selected: Selected) -> int | None:
    """Return how many axes stand after the rows of what is selected; None if it is something else."""
    value, symbols = node.meta.get("val"), _symbols(node)
    is_one = len(symbols) == 1 and symbols <= selected.symbols
    if not isinstance(value, torch.Tensor) or value.is_complex() or not is_one:
        return None
    (symbol,) = symbols
    counts = [sympy.sympify(dim).has(symbol) for dim in value.shape]
    if sum(counts) != 1 or sympy.sympify(value.shape[counts.index(True)]) != symbol:
        return None
    return len(counts) - 1 - counts.index(True)


def _take(x: Term, indices: list[Term | None]) -> Term:
    (at,) = (at for at, i in enumerate(indices) if i is not None)
    rank = len(indices[at].shape)  # type: ignore[union-attr]
    return idioms.reshape(x, (*x.shape[:at], -1, *x.shape[at + rank :]))


def _put(x: Term, indices: list[Term | None], values: Term, accumulate: bool = False) -> Term:
    """Write rows for all places where the mask lets them."""
    rows = idioms.expand(idioms.cast(values, x.dtype), _take(x, indices).shape)
    return idioms_indices.put_masked(x, indices, idioms.reshape(rows, x.shape), "sum" if accumulate else "set")


def _summed(
    row: Callable[..., Term], mask: Term, after: int, is_mean: bool, x: Term, *rest: Any, **named: Any
) -> Term:
    """Add up the rows that the mask lets through; a mean of all places counts those that it does not, too."""
    flat = idioms.reshape(mask, (-1,))
    spread = idioms.reshape(flat, (-1, *(1,) * after))
    total = row(tensor("where", spread, x, idioms.typed(False, x.dtype)), *rest, **named)
    if not is_mean:
        return total
    count = idioms.reduce(idioms.cast(flat, total.dtype), "sum", None)
    return tensor("mul", total, tensor("div", idioms.scalar(idioms.number(flat.shape[0]), total.dtype), count))
