"""Rows of aten operators that compute indices: look-ups, scatters, extremes with their places, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.interpret import evaluate
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import aten_scalars, idioms, idioms_indices, idioms_windows
from frittata.frontends.idioms import Number, Operand

_REDUCE = {"add": "sum", "multiply": "prod", "sum": "sum", "prod": "prod", "amax": "max", "amin": "min", "mean": "mean"}


def _index(x: Term, indices: list[Term | None]) -> Term:
    _refuse_bytes(indices)
    return idioms_indices.advanced(x, indices)


def _index_put(x: Term, indices: list[Term | None], values: Term, accumulate: bool = False) -> Term:
    _refuse_bytes(indices)
    return idioms_indices.index_put(x, indices, values, "sum" if accumulate else "set")


def _masked_select(x: Term, mask: Term | list[Term]) -> Term:
    """The places of a mask that is known come in its stead."""
    return _index(x, [mask] if isinstance(mask, Term) else [*mask])


def _refuse_bytes(indices: list[Term | None]) -> None:
    if any(i is not None and i.dtype == "u8" for i in indices):
        raise UnsupportedOpError("indices of u8, which are a mask")


def _index_select(x: Term, axis: int, indices: Term) -> Term:
    vector = idioms.reshape(indices, (-1,))
    if not x.shape:
        return idioms.reshape(idioms_indices.take(idioms.reshape(x, (1,)), vector, 0), ())
    return idioms_indices.take(x, vector, axis)


def _take_along(x: Term, indices: Term, axis: int | None = None) -> Term:
    if axis is None:
        return tensor("gather", idioms.reshape(x, (-1,)), idioms.reshape(indices, (-1,)), axis=-1)
    axis = idioms.negative_axis(axis, len(x.shape))
    return tensor("gather", x, idioms_indices.wrapped(indices, x.shape[axis]), axis=axis)


def _take(x: Term, indices: Term) -> Term:
    flat = idioms.reshape(x, (-1,))
    return idioms_indices.take(flat, idioms_indices.wrapped(indices, flat.shape[0]), -1)


def _one_hot(indices: Term, classes: int = -1) -> Term:
    if classes < 0:
        raise UnsupportedOpError("one_hot without num_classes, which depends on the values")
    return idioms_indices.one_hot(indices, classes)


def _value_like(indices: Term, value: Operand, dtype: str) -> Term:
    return idioms.expand(idioms.typed(value, dtype), indices.shape)


def _scatter(x: Term, axis: int, indices: Term, source: Operand, reduce: str | None = None) -> Term:
    if not isinstance(source, Term):
        source = _value_like(indices, source, x.dtype)
    return idioms_indices.scatter(x, axis, indices, source, "set" if reduce is None else _REDUCE[reduce])


def _scatter_reduce(x: Term, axis: int, indices: Term, source: Term, reduce: str, include_self: bool = True) -> Term:
    return idioms_indices.scatter_reduce(x, axis, indices, source, _REDUCE[reduce], include_self)


def _index_reduce(
    x: Term, axis: int, indices: Term, source: Term, reduce: str, include_self: bool = True
) -> Term:
    """Combine slices of the source at the indices, a vector, along an axis."""
    shape = [1] * len(source.shape)
    if shape:
        shape[axis] = -1
    places = idioms.expand(idioms.reshape(indices, shape), source.shape)
    return _scatter_reduce(x, axis, places, source, reduce, include_self)


def _put(x: Term, indices: Term, source: Term, accumulate: bool = False) -> Term:
    """Write or add values at places of all of x in order."""
    flat = idioms.reshape(x, (-1,))
    places = idioms_indices.wrapped(idioms.reshape(indices, (-1,)), flat.shape[0])
    out = idioms_indices.scatter(flat, 0, places, idioms.reshape(source, (-1,)), "sum" if accumulate else "set")
    return idioms.reshape(out, x.shape)


def _index_add(x: Term, axis: int, indices: Term, source: Term, alpha: Number = 1) -> Term:
    times = "and" if source.dtype == "bool" else "mul"
    scaled = source if alpha == 1 else tensor(times, source, idioms.scalar(alpha, source.dtype))
    return idioms_indices.index_write(x, axis, indices, scaled, "sum")


def _index_fill(x: Term, axis: int, indices: Term, value: Operand) -> Term:
    extent = x.shape[axis] if x.shape else 1
    places = idioms_indices.wrapped(idioms.reshape(indices, (-1,)), extent)
    return idioms_indices.index_write(x, axis, places, idioms.typed(value, x.dtype))


def _slice_scatter(
    x: Term, source: Term, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Term:
    kept = range(*slice(start, end, step).indices(idioms.number(x.shape[axis])))
    return idioms_indices.slice_scatter(x, source, axis, kept.start, step) if len(kept) else x


def _select_scatter(x: Term, source: Term, axis: int, index: int) -> Term:
    extent = idioms.number(x.shape[axis])
    at = idioms.negative_axis(axis, len(x.shape))
    return idioms_indices.slice_scatter(x, idioms.unsqueeze(source, at), at, index % extent, 1)


def _as_strided(x: Term, size: list[int], strides: list[int], offset: int | None = None) -> Term:
    return idioms_indices.strided(x, size, strides, offset or 0)


def _as_strided_scatter(
    x: Term, source: Term, size: list[int], strides: list[int], offset: int | None = None
) -> Term:
    return idioms_indices.strided_scatter(x, source, size, strides, offset or 0)


def _repeat_interleave(x: Term, times: int, axis: int | None = None, output_size: int | None = None) -> Term:
    if axis is None:
        return idioms_indices.repeat_each(idioms.reshape(x, (-1,)), times, 0)
    return idioms_indices.repeat_each(x, times, axis)


def _eye(rows: int, columns: int | None = None, dtype: str | None = None) -> Term:
    return idioms_indices.eye(rows, rows if columns is None else columns, dtype or idioms.float_dtype())


def _place(fold: str) -> Callable[..., Term]:
    def row(x: Term, axis: int | None = None, keepdim: bool = False) -> Term:
        return idioms_indices.place(x, fold, axis, keepdim)

    return row


def _extreme(fold: str) -> Callable[..., tuple[Term, Term]]:
    def row(x: Term, axis: int, keepdim: bool = False) -> tuple[Term, Term]:
        return idioms.extreme(x, fold, axis, keepdim), idioms_indices.place(x, fold, axis, keepdim)

    return row


def _cross(x: Term, y: Term, dim: int = -1) -> Term:
    first, second = idioms.promoted(x, y)
    return idioms_indices.cross(first, second, dim)


def _cross_of_three(x: Term, y: Term, dim: int | None = None) -> Term:
    """Along the first axis of three, where none is given."""
    return _cross(x, y, x.shape.index(3) if dim is None else dim)


def _aminmax(x: Term, dim: int | None = None, keepdim: bool = False) -> tuple[Term, Term]:
    return idioms.extreme(x, "min", dim, keepdim), idioms.extreme(x, "max", dim, keepdim)


def _running(op: str) -> Callable[..., Term]:
    def row(x: Term, axis: int, dtype: str | None = None) -> Term:
        return idioms.within(dtype or idioms.summed_dtype(x), lambda wide: idioms_indices.running(wide, op, axis), x)

    return row


def _log_of_running_sums(x: Term, axis: int) -> Term:
    """Add exponentials in logarithms, those of twice as many values each time.

    Source: Hillis and Steele, Data Parallel Algorithms, CACM 29(12), 1986.
    """
    axis, step = idioms.negative_axis(axis, max(1, len(x.shape))), 1
    rest = (0,) * (-axis - 1)
    while x.shape and step < idioms.number(x.shape[axis]):
        before = idioms_windows.pad(x, (step, *rest), (-step, *rest), -math.inf)
        x, step = aten_scalars.ROWS["aten.logaddexp.default"](x, before), 2 * step
    return x


def _running_extreme(op: str) -> Callable[..., tuple[Term, Term]]:
    return lambda x, axis: idioms_indices.running_extreme(x, op, axis)


def _sort(x: Term, axis: int = -1, descending: bool = False) -> tuple[Term, Term]:
    return idioms_indices.ordered(x, axis, descending)


def _sort_stable(x: Term, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple[Term, Term]:
    return idioms_indices.ordered(x, dim, descending)


def _argsort(x: Term, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Term:
    return idioms_indices.ordered(x, dim, descending)[1]


def _topk(x: Term, count: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Term, Term]:
    return idioms_indices.first_of(x, count, axis, largest)


def _median(x: Term) -> Term:
    return idioms_indices.median(idioms.reshape(x, (-1,)), -1)[0]


def _nanmedian(x: Term) -> Term:
    return idioms_indices.median_of_numbers(idioms.reshape(x, (-1,)), -1)[0]


def _mode(x: Term, axis: int = -1, keepdim: bool = False) -> tuple[Term, Term]:
    return idioms_indices.mode(x, axis, keepdim)


def _histogram(x: Term, bins: int = 100, low: Number = 0, high: Number = 0) -> Term:
    """Count values in bins of one width, the last with its end; without ends from the least to the greatest.

    A quotient that is rounded down at once is exact: what lies at an end of bins counts in the upper one.
    """
    flat = idioms.reshape(x, (-1,))
    first, last = idioms.like(x, low), idioms.like(x, high)
    counts: Operand = 1
    if low == high:
        first, last = (idioms.reduce(flat, fold) for fold in ("min", "max"))
        apart = idioms.cast(tensor("eq", first, last), x.dtype)
        first, last = tensor("sub", first, apart), tensor("add", last, apart)
    else:
        inside = tensor("and", tensor("ge", flat, first), tensor("le", flat, last))
        flat, counts = tensor("where", inside, flat, first), inside
    share = tensor("mul", tensor("sub", flat, first), idioms.like(x, bins))
    place = tensor("floordiv", share, tensor("sub", last, first))
    places = idioms.cast(tensor("min", place, idioms.like(x, bins - 1)), "i64")
    return idioms_indices.index_write(
        idioms.filled(0, (bins,), x.dtype), 0, places, idioms.typed(counts, x.dtype), "sum"
    )


def _count_nonzero(x: Term, axes: Any = None) -> Term:
    truth = x if x.dtype == "bool" else tensor("ne", x, idioms.scalar(0, x.dtype))
    return idioms.reduce(idioms.cast(truth, "i64"), "sum", axes)


def _search_sorted(
    ordered: Term,
    x: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Term | None = None,
) -> Term:
    if sorter is not None:
        ordered = idioms_indices.gather(ordered, sorter, -1)
    ordered, values = idioms.promoted(ordered, x)
    places = idioms_indices.places_among(ordered, values, right or side == "right")
    return idioms.cast(places, "i32" if out_int32 else "i64")


def _bucketize(x: Operand, boundaries: Term, **keywords: Any) -> Term:
    return _search_sorted(boundaries, x, **keywords)


_BAGS = ("sum", "mean", "max")
"""How an embedding bag combines rows, by torch's number of it."""


def _embedding_bag(
    weight: Term,
    indices: Term,
    offsets: Term,
    _scale: bool = False,
    mode: int = 0,
    _sparse: bool = False,
    weights: Term | None = None,
    include_last: bool = False,
    padding: int = -1,
) -> tuple[Term, None, None, None]:
    """Combine rows of a table; as many for each bag is how torch writes a matrix of indices."""
    rows = idioms_indices.take(weight, indices, -2)
    if weights is not None:
        rows = tensor("mul", rows, idioms.unsqueeze(weights, -1))
    counted = None if padding < 0 else tensor("ne", indices, idioms.scalar(padding, indices.dtype))
    bags = idioms.number(offsets.shape[0]) - int(include_last)
    if _are_equal(offsets, bags, idioms.number(indices.shape[0]), include_last):
        return idioms_indices.bags(rows, counted, bags, _BAGS[mode]), None, None, None
    return idioms_indices.ragged_bags(rows, counted, offsets, bags, _BAGS[mode]), None, None, None


def _are_equal(offsets: Term, bags: int, total: int, include_last: bool) -> bool:
    """Whether bags are known to have all the same number of indices."""
    try:
        (begins,) = evaluate((offsets,), {})
    except ModelError:
        return False
    length = total // max(1, bags)
    return bags * length == total and begins.tolist() == [i * length for i in range(bags + include_last)]


ROWS: dict[str, Callable[..., Any]] = {
    "aten.embedding.default": lambda weight, indices, *_: idioms_indices.take(weight, indices, -2),
    "aten._embedding_bag.default": _embedding_bag,
    "aten._embedding_bag_forward_only.default": _embedding_bag,
    "aten.index_select.default": _index_select,
    "aten.gather.default": lambda x, axis, indices, sparse_grad=False: idioms_indices.gather(x, indices, axis),
    "aten.take_along_dim.default": _take_along,
    "aten.take.default": _take,
    "aten.index.Tensor": _index,
    "aten._unsafe_index.Tensor": _index,
    "aten.one_hot.default": _one_hot,
    **{f"aten.scatter.{kind}": _scatter for kind in ("src", "value", "reduce", "value_reduce")},
    "aten.scatter_add.default": lambda x, axis, i, source: idioms_indices.scatter(x, axis, i, source, "sum"),
    "aten.scatter_reduce.two": _scatter_reduce,
    "aten.index_add.default": _index_add,
    "aten.index_reduce.default": _index_reduce,
    "aten.put.default": _put,
    "aten.index_copy.default": idioms_indices.index_write,
    "aten.index_fill.int_Scalar": _index_fill,
    "aten.index_fill.int_Tensor": _index_fill,
    "aten.index_put.default": _index_put,
    "aten._unsafe_index_put.default": _index_put,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.select_scatter.default": _select_scatter,
    "aten.diagonal_scatter.default": idioms_indices.diagonal_scatter,
    "aten.as_strided.default": _as_strided,
    "aten.as_strided_scatter.default": _as_strided_scatter,
    "aten.copy.default": lambda x, source, *_: idioms.expand(idioms.cast(source, x.dtype), x.shape),
    "aten.flip.default": idioms_indices.flip,
    "aten.roll.default": lambda x, shifts, axes=(): idioms_indices.roll(x, shifts, axes),
    "aten.cross.default": _cross_of_three,
    "aten.linalg_cross.default": _cross,
    "aten.diagonal.default": idioms_indices.diagonal,
    "aten.repeat_interleave.self_int": _repeat_interleave,
    "aten.eye.default": lambda n, dtype=None: _eye(n, None, dtype),
    "aten.eye.m": _eye,
    "aten.argmax.default": _place("max"),
    "aten.argmin.default": _place("min"),
    "aten.max.dim": _extreme("max"),
    "aten.min.dim": _extreme("min"),
    "aten.aminmax.default": _aminmax,
    "aten.cumsum.default": _running("cumsum"),
    "aten.cumprod.default": _running("cumprod"),
    "aten.logcumsumexp.default": _log_of_running_sums,
    "aten.cummax.default": _running_extreme("cummax"),
    "aten.cummin.default": _running_extreme("cummin"),
    "aten.sort.default": _sort,
    "aten.sort.stable": _sort_stable,
    "aten.argsort.default": _argsort,
    "aten.argsort.stable": _argsort,
    "aten.topk.default": _topk,
    "aten.kthvalue.default": idioms_indices.nth,
    "aten.median.default": _median,
    "aten.median.dim": idioms_indices.median,
    "aten.nanmedian.default": _nanmedian,
    "aten.nanmedian.dim": idioms_indices.median_of_numbers,
    "aten.mode.default": _mode,
    "aten.histc.default": _histogram,
    "aten.msort.default": lambda x: _sort(x, 0)[0],
    "aten.count_nonzero.default": _count_nonzero,
    "aten.count_nonzero.dim_IntList": _count_nonzero,
    "aten.masked_select.default": _masked_select,
    "aten.masked_scatter.default": idioms_indices.masked_scatter,
    **{f"aten.searchsorted.{kind}": _search_sorted for kind in ("Tensor", "Scalar")},
    **{f"aten.bucketize.{kind}": _bucketize for kind in ("Tensor", "Scalar")},
}
"""What each overload means."""
