"""What torch computes for host steps faster than numpy does, to the same bit; numpy where torch is not installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph.ops import orders
from frittata.egraph.ops.indices import scatter_numpy
from frittata.egraph.torch_arrays import array_of, tensor_of

Array = NDArray[Any]
_REDUCTION = {"sum": "sum", "prod": "prod", "max": "amax", "min": "amin"}


def call_of(op: str, reference: Callable[..., Any]) -> Callable[..., Any]:
    """Return what computes an opaque operator: called with its operands as arrays, then its attributes."""
    return _CALLS.get(op, reference) if find_spec("torch") else reference


def _argsort(x: Array, axis: int, descending: bool) -> Array:
    return _tensor(x).sort(dim=axis, descending=descending, stable=True).indices.numpy()


def _sort(x: Array, axis: int, descending: bool) -> Array:
    return _tensor(x).sort(dim=axis, descending=descending, stable=True).values.numpy()


def _argtopk(x: Array, axis: int, count: int, descending: bool) -> Array:
    """Ask torch for one more, which leaves equal values in any order: rows that have some are left to the reference."""
    rows = np.moveaxis(x, axis, -1)
    found = _tensor(rows).topk(min(count + 1, rows.shape[-1]), -1, largest=descending)
    values, places = found.values.numpy(), found.indices.numpy()[..., :count]
    tied = np.any(values[..., 1:] == values[..., :-1], -1) | np.any(values != values, -1)
    if tied.any():
        places[tied] = orders.argtopk_numpy(rows[tied], -1, count, descending)
    return np.moveaxis(places, -1, axis)


def _scatter(x: Array, places: Array, source: Array, axis: int, reduce: str) -> Array:
    if x.dtype == np.uint16:  # torch writes none
        return scatter_numpy(x, places, source, axis, reduce)
    out, at, values = _tensor(np.array(x)), _tensor(places.astype(np.int64, copy=False)), _tensor(source)
    at = at.expand(values.shape)
    if reduce == "set":
        return array_of(out.scatter_(axis, at, values))
    return array_of(out.scatter_reduce_(axis, at, values, _REDUCTION[reduce]))


def _tensor(array: Array) -> Any:
    return tensor_of(array if array.flags.writeable else array.copy())


_CALLS: Mapping[str, Callable[..., Any]] = {
    "argsort": _argsort,
    "argtopk": _argtopk,
    "scatter": _scatter,
    "sort": _sort,
}
