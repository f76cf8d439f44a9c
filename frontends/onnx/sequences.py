"""Operators of ONNX on sequences and optional values, which the import resolves: no program has them.

How long a sequence is, and which of its tensors is meant, has to be known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_windows
from frittata.frontends.onnx.values import Value, is_foldable, late

AsTerm = Callable[[Value, str], Term]


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Return what a node says of itself, by name; a graph, say."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _items(value: Value) -> tuple[Value, ...]:
    if value.items is None:
        raise ModelError("a tensor in the place of a sequence", do="check the model with onnx.checker")
    return value.items


def _place(value: Value, count: int, last: int) -> int:
    """Return a place of a sequence of `count` tensors, counted from the left, which is `last` at the most.

    Raises: LateError if it is computed at run time, ModelError if there is no such place.
    """
    if value.array is None:
        raise late("which tensor of a sequence is meant is computed at run time", value)
    at = int(value.array.item())
    if not -count <= at <= last:
        raise ModelError(f"place {at} of a sequence of {count}", do="check the model with onnx.checker")
    return at + count if at < 0 else at


def _at(node: NodeProto, values: Sequence[Value], as_term: AsTerm) -> Value:
    items = _items(values[0])
    return items[_place(values[1], len(items), len(items) - 1)]


def _insert(node: NodeProto, values: Sequence[Value], as_term: AsTerm) -> Value:
    items = _items(values[0])
    at = _place(values[2], len(items), len(items)) if len(values) > 2 else len(items)
    return Value(items=(*items[:at], values[1], *items[at:]))


def _erase(node: NodeProto, values: Sequence[Value], as_term: AsTerm) -> Value:
    items = _items(values[0])
    at = _place(values[1], len(items), len(items) - 1) if len(values) > 1 else len(items) - 1
    return Value(items=(*items[:at], *items[at + 1 :]))


def _split(node: NodeProto, values: Sequence[Value], as_term: AsTerm) -> Value:
    """Cut one axis into parts of given lengths, of one length, or of one value each, which may then drop the axis."""
    given = attributes_of(node)
    whole, lengths = values[0], values[1] if len(values) > 1 else Value()
    shape = whole.array.shape if whole.array is not None else as_term(whole, node.input[0]).shape
    axis = idioms.negative_axis(given.get("axis", 0), len(shape)) + len(shape)
    extent = idioms.number(shape[axis])
    if lengths.is_absent:
        sizes = [1] * extent
    elif lengths.array is None:
        raise late("the lengths of parts are computed at run time", lengths)
    elif lengths.array.ndim:
        sizes = lengths.array.tolist()
    else:
        by = int(lengths.array)
        sizes = [min(by, extent - start) for start in range(0, extent, by)]
    is_dropped = lengths.is_absent and not given.get("keepdims", 1)
    if is_foldable(whole) and whole.array is not None:
        parts = np.split(whole.array, np.cumsum(sizes)[:-1], axis)
        return Value(items=tuple(Value(part.squeeze(axis) if is_dropped else part) for part in parts))
    cut = idioms.split(as_term(whole, node.input[0]), sizes, axis)
    return Value(items=tuple(Value(term=idioms.squeeze(part, [axis]) if is_dropped else part) for part in cut))


def _concat(node: NodeProto, values: Sequence[Value], as_term: AsTerm) -> Value:
    given, items = attributes_of(node), _items(values[0])
    if not items:
        raise UnsupportedOpError("a sequence without tensors")
    return joined(items, node.input[0], given["axis"], bool(given.get("new_axis", 0)), as_term)


def joined(items: Sequence[Value], name: str, axis: int, is_new: bool, as_term: AsTerm) -> Value:
    """Join tensors along an axis that they have, or along a new one."""
    arrays = [item.array for item in items if item.array is not None and is_foldable(item)]
    if len(arrays) == len(items):
        return Value(np.stack(arrays, axis) if is_new else np.concatenate(arrays, axis))
    terms = [as_term(item, name) for item in items]
    return Value(term=idioms_windows.concat([idioms.unsqueeze(x, axis) for x in terms] if is_new else terms, axis))


def _get(node: NodeProto, values: Sequence[Value], as_term: AsTerm) -> Value:
    if values[0].is_absent:
        raise ModelError("an optional value that is none", do="check the model with onnx.checker")
    return values[0]


Meaning = Callable[[NodeProto, Sequence[Value], AsTerm], Value]

OPERATORS: dict[str, Meaning] = {
    "SequenceEmpty": lambda node, values, as_term: Value(items=()),
    "SequenceConstruct": lambda node, values, as_term: Value(items=tuple(values)),
    "SequenceLength": lambda node, values, as_term: Value(np.array(len(_items(values[0])), np.int64)),
    "SequenceAt": _at,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SplitToSequence": _split,
    "ConcatFromSequence": _concat,
    "Optional": lambda node, values, as_term: values[0] if values else Value(),
    "OptionalHasElement": lambda node, values, as_term: Value(np.array(bool(values) and not values[0].is_absent)),
    "OptionalGetElement": _get,
}
"""What each means: a result for a node and the values of its operands."""
