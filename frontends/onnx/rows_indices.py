"""Rows of ONNX operators on computed indices: look-ups, scatters, orders."""

from __future__ import annotations

from typing import Any

import numpy as np

from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_indices, idioms_windows
from frittata.frontends.onnx.tables import Row


def _gather(x: Term, indices: Any, axis: int = 0) -> Term:
    if not isinstance(indices, Term):
        return idioms.select(x, axis, indices)
    return idioms_indices.take(x, idioms_indices.wrapped(indices, x.shape[axis]), axis)


def _gather_elements(x: Term, indices: Term, axis: int = 0) -> Term:
    return idioms_indices.gather(x, idioms_indices.wrapped(indices, x.shape[axis]), axis)


def _gathered(x: Any, indices: Any, axis: int = 0) -> Any:
    """The law of known operands: ONNX's reference wraps indices around that are out of range."""
    own = axis % x.ndim
    kept = x[tuple(slice(None if at == own else extent) for at, extent in enumerate(indices.shape))]
    return np.take_along_axis(kept, indices, axis)


_REDUCE = {"none": "set", "add": "sum", "mul": "prod", "max": "max", "min": "min"}


def _scatter_elements(x: Term, indices: Term, updates: Term, axis: int = 0, reduction: str = "none") -> Term:
    places = idioms_indices.wrapped(indices, x.shape[axis])
    return idioms_indices.scatter(x, axis, places, updates, _REDUCE[reduction])


def _gather_nd(x: Term, indices: Term, batch_dims: int = 0) -> Term:
    return idioms_indices.advanced(x, [*_batches(indices, batch_dims), *_by_axis(indices)])


def _batches(indices: Term, count: int) -> list[Term]:
    """Return the numbers along the first axes, each against the other axes of the indices but their last."""
    rank = len(indices.shape) - 1
    return [idioms_indices.numbers(idioms.number(indices.shape[at]), at - rank) for at in range(count)]


def _by_axis(indices: Term) -> list[Term]:
    """Return the indices of each axis, which stand side by side."""
    return [idioms.select(indices, -1, at) for at in range(idioms.number(indices.shape[-1]))]


def _scatter_nd(x: Term, indices: Term, updates: Term, reduction: str = "none") -> Term:
    return idioms_indices.index_put(x, _by_axis(indices), updates, _REDUCE[reduction])


def _tensor_scatter(past: Term, update: Term, starts: Term | None = None, axis: int = -2, mode: str = "linear") -> Term:
    """Write steps into each sequence of a batch from a place of its own on; `circular` goes on at the begin."""
    at = idioms.negative_axis(axis, len(past.shape))
    cache, new = (idioms.swap(x, at, 1) for x in (past, update))
    batch, steps, extent = idioms.number(new.shape[0]), idioms.number(new.shape[1]), cache.shape[1]
    place = idioms_indices.numbers(steps, -1)
    if starts is not None:
        place = tensor("add", idioms.reshape(idioms.cast(starts, "i64"), (batch, 1)), place)
    if mode == "circular":
        place = tensor("mod", place, idioms.scalar(idioms.number(extent), "i64"))
    return idioms.swap(idioms_indices.index_put(cache, [idioms_indices.numbers(batch, -2), place], new), at, 1)


def _reverse_sequence(x: Term, lengths: Term, batch_axis: int = 1, time_axis: int = 0) -> Term:
    """Turn around the first so many steps of each sequence; the two axes are the first two."""
    steps, batch = (idioms.number(x.shape[axis]) for axis in (time_axis, batch_axis))
    step, number = idioms_indices.numbers(steps, time_axis - 2), idioms_indices.numbers(batch, batch_axis - 2)
    length = idioms.reshape(idioms.cast(lengths, "i64"), number.shape)
    last = tensor("sub", length, idioms.scalar(1, "i64"))
    source = tensor("where", tensor("le", step, last), tensor("sub", last, step), step)
    return idioms_indices.looked_up(x, {time_axis: source, batch_axis: number})


def _arg(op: str) -> Row:
    def row(x: Term, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Term:
        at = idioms.negative_axis(axis, len(x.shape))
        found = tensor(op, idioms_indices.flip(x, [at]) if select_last_index else x, axis=at)
        if select_last_index:
            found = tensor("sub", idioms.scalar(idioms.number(x.shape[at]) - 1, "i64"), found)
        return found if keepdims else idioms.squeeze(found, [at])

    return Row(row)


def _running(op: str, nothing: int) -> Row:
    """Return the row of a running fold; `exclusive` folds what is before each value, at first nothing."""

    def row(x: Term, axis: Any, exclusive: int = 0, reverse: int = 0) -> Term:
        at = idioms.negative_axis(int(np.asarray(axis).item()), len(x.shape))
        out = idioms_indices.flip(x, [at]) if reverse else x
        out = tensor(op, out, axis=at)
        if exclusive:
            rest = (0,) * (-at - 1)
            out = idioms_windows.pad(out, (1, *rest), (-1, *rest), nothing)
        return idioms_indices.flip(out, [at]) if reverse else out

    return Row(row, known=(1,))


def _top_k(x: Term, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Term, Term]:
    return idioms_indices.first_of(x, int(np.asarray(k).item()), axis, bool(largest))


def _one_hot(indices: Term, depth: Any, values: Term, axis: int = -1) -> Term:
    """Compare with 0, 1, ... along a new axis; negative indices count from the end, others outside give no one."""
    count, rank = int(np.asarray(depth).item()), len(indices.shape) + 1
    at = idioms.negative_axis(axis, rank)
    places = idioms.unsqueeze(idioms_indices.wrapped(idioms.cast(indices, "i64"), count), at)
    same = tensor("eq", places, idioms_indices.numbers(count, at))
    return tensor("where", same, idioms.select(values, 0, 1), idioms.select(values, 0, 0))


ROWS: dict[str, tuple[Row, ...]] = {
    "Gather": (Row(_gather, numbers=(1,)),),
    "GatherElements": (Row(_gather_elements, law=_gathered),),
    "ScatterElements": (Row(_scatter_elements),),
    "Scatter": (Row(_scatter_elements),),
    "TensorScatter": (Row(_tensor_scatter),),
    "GatherND": (Row(_gather_nd),),
    "ScatterND": (Row(_scatter_nd),),
    "ReverseSequence": (Row(_reverse_sequence),),
    "ArgMax": (_arg("argmax"),),
    "ArgMin": (_arg("argmin"),),
    "TopK": (Row(_top_k, known=(1,)),),
    "CumSum": (_running("cumsum", 0),),
    "CumProd": (_running("cumprod", 1),),
    "OneHot": (Row(_one_hot, known=(1,)),),
}
"""What each operator means, by opset."""
