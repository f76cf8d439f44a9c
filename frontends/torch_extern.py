"""Calls of aten operators that have no row, as opaque terms: torch itself runs them, between kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from frittata.egraph.errors import EmptyError, ModelError, UnsupportedOpError
from frittata.egraph.ops import externs
from frittata.egraph.terms import TensorType, Term
from frittata.frontends.torch_dtypes import COMPLEX, dtype_of

_PLACEMENT = frozenset({"device", "layout", "pin_memory", "memory_format"})
"""Keyword arguments about where values are stored."""

_REASON_BY_TAG = {
    torch.Tag.nondeterministic_seeded: "it draws random numbers",
    torch.Tag.dynamic_output_shape: "the shape of its result depends on values",
    torch.Tag.data_dependent_output: "its result is a number that depends on values",
}

_DO_BY_TAG = {
    torch.Tag.dynamic_output_shape: "in place of a size that depends on values keep all places, and choose with "
    "torch.where or weigh with a mask; or compute this part outside of the model",
}


def is_left_to_torch(node: torch.fx.Node) -> bool:
    """Whether torch's own decomposition of a call gives other results than the call: cubic interpolation of bytes."""
    _, operator, _ = f"{node.target}..".split(".", 2)
    return operator == "upsample_bicubic2d" and not node.all_input_nodes[0].meta["val"].is_floating_point()


def extern(
    node: torch.fx.Node,
    target: Any,
    read: Callable[[torch.fx.Node], Any],
    type_of: Callable[[torch.Tensor, str], TensorType],
) -> Any:
    """Return the call as terms, a tuple of them for several results; those that have no element type are None.

    `target` is the node's, or its functional counterpart; `read` gives the value of a node, `type_of` the type of a
    tensor or a ModelError.

    Raises: UnsupportedOpError that says why torch cannot be called for it; EmptyError if its result is empty.
    """
    _refuse_impure(target)
    operands: dict[Term, int] = {}

    def text(value: Any) -> str:
        given = read(value) if isinstance(value, torch.fx.Node) else value
        if isinstance(given, Term):
            return f"x{operands.setdefault(given, len(operands))}"
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(text, value))}]"
        if isinstance(given, torch.dtype) and given not in COMPLEX:
            dtype_of(given, "an argument")  # torch tells another dtype of a quantized result
        return externs.show_argument(given)

    try:
        parts = [text(value) for value in node.args]
        parts += [f"{name}={text(value)}" for name, value in node.kwargs.items() if name not in _PLACEMENT]
    except ModelError as error:
        raise UnsupportedOpError(error.what) from error
    if not operands:
        raise UnsupportedOpError("it takes no tensor")
    call = f"{target}({', '.join(parts)})"
    value: Any = node.meta.get("val")

    def result(number: int, tensor: Any) -> Term | None:
        if not isinstance(tensor, torch.Tensor):
            return None
        return externs.extern(call, tuple(operands), number, type_of(tensor, f"result {number} of {target}"))

    if isinstance(value, torch.Tensor):
        try:
            return result(0, value)
        except EmptyError:
            raise
        except ModelError as error:
            raise UnsupportedOpError(error.what) from error
    if not isinstance(value, list | tuple):
        raise UnsupportedOpError("it returns no tensor")
    return tuple(_or_none(result, number, part) for number, part in enumerate(value))


def _or_none(result: Callable[[int, Any], Term | None], number: int, part: Any) -> Term | None:
    """A result that has no element type matters only if it is used."""
    try:
        return result(number, part)
    except ModelError:
        return None


def _refuse_impure(target: Any) -> None:
    schema = getattr(target, "_schema", None)
    if schema is None:
        raise UnsupportedOpError("it is no operator of torch")
    if schema.is_mutable:
        raise UnsupportedOpError("it changes its arguments")
    for tag, reason in _REASON_BY_TAG.items():
        if tag in target.tags:
            raise UnsupportedOpError(reason, do=_DO_BY_TAG.get(tag, ""))
