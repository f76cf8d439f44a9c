"""Numbers that an exported program makes of values: `x.max().item()`, an index without axes, what is computed of them.

They are terms without axes, in the precision of Python's numbers, and take part where a shape does not depend on them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from frittata.egraph import dtypes
from frittata.egraph.errors import ModelError
from frittata.egraph.terms import TensorType, Term
from frittata.frontends import aten, idioms
from frittata.frontends.torch_dims import made_of_values
from frittata.frontends.torch_dtypes import dtype_of

_ITEM = ("aten.item.default", "aten._local_scalar_dense.default")
_ARITHMETIC: dict[Any, str] = {
    **{operator.add: "add.Tensor", operator.sub: "sub.Tensor", operator.mul: "mul.Tensor", operator.neg: "neg.default"},
    **{operator.truediv: "div.Tensor", operator.floordiv: "floor_divide.default", operator.mod: "remainder.Tensor"},
    **{operator.pow: "pow.Tensor_Tensor", torch.sym_max: "maximum.default", torch.sym_min: "minimum.default"},
}
"""What Python and torch compute with them, as operators of aten."""
_FILL = ("full", "full_like", "new_full", "scalar_tensor", "fill")
_BESIDE = {
    *("add", "sub", "rsub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "maximum", "minimum"),
    *("lt", "le", "gt", "ge", "eq", "ne", "where", "masked_fill", "clamp", "clamp_min", "clamp_max", "lerp"),
}
"""Operators that take a tensor without axes where they take a number."""

_MASKS = (torch.bool, torch.uint8)
"""Dtypes of indices that are of as many axes as they have."""


@dataclass(frozen=True)
class Number:
    """A number that is known when the program runs, as a term of f64 or i64 without axes; whether it was a byte."""

    term: Term
    is_byte: bool = False


def computed(node: torch.fx.Node, read: Callable[[Any], Any]) -> Any:
    """Return the number that a node computes; what it says of itself, if that is a dim or nothing that is done here.

    `read` gives the value of an argument.
    """
    told = node.meta["val"]
    if not isinstance(told, torch.SymInt | torch.SymFloat):
        return told
    dtype = "i64" if isinstance(told, torch.SymInt) else "f64"
    try:
        given = [read(value) for value in node.args]
    except ModelError:  # a dim without a number
        return told
    if str(node.target) in _ITEM and isinstance(given[0], Term):
        return Number(idioms.cast(idioms.reshape(given[0], ()), dtype), given[0].dtype == "u8")
    name = "" if node.target is torch.sym_float else _ARITHMETIC.get(node.target)
    is_known = all(isinstance(value, Number | int | float) for value in given)
    if name is None or not is_known or not any(isinstance(value, Number) for value in given):
        return told
    terms = [idioms.typed(value.term if isinstance(value, Number) else value, dtype) for value in given]
    return Number(aten.ROWS[f"aten.{name}"](*terms) if name else terms[0])


def are_taken(node: torch.fx.Node, value_by_node: Mapping[torch.fx.Node, Any]) -> bool:
    """Whether an operator is given such numbers.

    Raises: ModelError if it may not take a tensor in their place.
    """
    numbers = {used for used in node.all_input_nodes if isinstance(value_by_node[used], Number)}
    if not numbers:
        return False
    name = _name(node)
    is_complex = any(tensor.is_complex() for tensor in (node.meta["val"], *_tensors(node)) if _is_tensor(tensor))
    is_known = name in _FILL or name in _PLACES or (name in _BESIDE and not numbers & set(node.kwargs.values()))
    if is_complex or not is_known:
        raise made_of_values()
    return True


def meaning(
    node: torch.fx.Node, row: aten.Row, arguments: Sequence[Any], type_of: Callable[[torch.Tensor], TensorType]
) -> tuple[aten.Row, list[Any]]:
    """Return a row of `aten.ROWS`, and what it takes: terms for the numbers among the arguments."""
    name, out = _name(node), type_of(node.meta["val"])
    if name in _FILL:
        (number,) = (used.term for used in arguments if isinstance(used, Number))
        return lambda *_, **__: idioms.expand(idioms.cast(number, out.dtype), out.shape), list(arguments)
    if name in _PLACES:
        return _PLACES[name], list(arguments)
    known = aten.ROWS["aten.pow.Tensor_Tensor"] if name == "pow" else row
    terms = [_beside(node, value) for value in arguments]
    return lambda *given, **named: idioms.cast(known(*given, **named), out.dtype), terms


def put(x: torch.Tensor, index: Any, value: Any) -> None:
    """Write `x[index] = value`, where indices without axes stay tensors: torch would read them."""
    torch.Tensor.__setitem__(*_placed(x, index), value)


def got(x: torch.Tensor, index: Any) -> torch.Tensor:
    """Return `x[index]`, where indices without axes stay tensors."""
    return torch.Tensor.__getitem__(*_placed(x, index))


def _placed(x: torch.Tensor, index: Any) -> tuple[torch.Tensor, Any]:
    """Take what indices without axes say, one axis each, before the others count; return those others, too."""
    items = index if isinstance(index, tuple) else (index,)
    if not any(map(_is_place, items)):
        return x, index
    rest: list[Any] = []
    for at, item in enumerate(items):
        if _is_place(item):
            is_behind = any(each is Ellipsis for each in rest)
            x = x.select(x.ndim - _axes(items[at:]) if is_behind else _axes(rest), item.item())
        else:
            rest.append(item)
    return x, tuple(rest)


def _axes(items: Sequence[Any]) -> int:
    """Count the axes that indices are of."""
    one = (item for item in items if not (item is None or item is Ellipsis or isinstance(item, bool)))
    return sum(item.ndim if _is_tensor(item) and item.dtype in _MASKS else 1 for item in one)


def _is_place(item: Any) -> bool:
    """Whether an index is a tensor without axes of integers; a byte is a mask to torch."""
    is_integer = _is_tensor(item) and not (item.is_floating_point() or item.is_complex())
    return is_integer and item.ndim == 0 and item.dtype.is_signed


def _name(node: torch.fx.Node) -> str:
    library, _, rest = str(node.target).partition(".")
    return rest.partition(".")[0] if library == "aten" else ""


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _tensors(node: torch.fx.Node) -> list[Any]:
    return [value for used in node.all_input_nodes if _is_tensor(value := used.meta.get("val"))]


def _beside(node: torch.fx.Node, value: Any) -> Any:
    """Return a number in the dtype that torch gives it beside the tensors of a call: halves compute in f32."""
    if not isinstance(value, Number):
        return value
    dtype = node.meta["val"].dtype
    if dtype == torch.bool:
        dtype = torch.result_type(_tensors(node)[0], 1.0 if dtypes.is_float(value.term.dtype) else 1)
    wanted = dtype_of(dtype, str(node.target))
    return idioms.cast(value.term, "f32" if dtypes.is_float(wanted) and dtypes.is_narrow(wanted) else wanted)


def _select(x: Term, axis: int, index: Number) -> Term:
    """Index an axis at a number: (a, b, c) at axis 1 -> (a, c)."""
    return aten.ROWS["aten.index.Tensor"](x, _places(x, axis, index))


def _select_scatter(x: Term, values: Term, axis: int, index: Number) -> Term:
    """Replace what `_select` reads."""
    return aten.ROWS["aten.index_put.default"](x, _places(x, axis, index), values)


def _places(x: Term, axis: int, index: Number) -> list[Term | None]:
    """Return the indices that are a number at one axis.

    Raises: ModelError for a byte.
    """
    if index.is_byte:
        raise ModelError("an index of uint8, which is a mask to torch", do="convert it to int64 before")
    return [*[None] * (axis % len(x.shape)), index.term]


_PLACES: dict[str, aten.Row] = {"select": _select, "select_scatter": _select_scatter}
"""Operators that take a number for a place."""
