"""Operators of an order along an axis: places of extremes, running folds, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from frittata.egraph import shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.ops.elements import FOLDS, bound_extents, check_negative
from frittata.egraph.ops.reductions import reduced
from frittata.egraph.ops.registry import REQUIRED, Op, register
from frittata.egraph.ops.tensors import check_axis
from frittata.egraph.terms import ElementType, TensorType, Type

_SORT_UNITS = 200.0
"""What sorting by a library costs for each value, in additions; the logarithm of the length is left out."""

_SELECT_UNITS = 60.0
"""What finding the first in order by a library costs for each value: 3 in long rows, 400 where many are asked for."""


def _numbers(x: TensorType | ElementType, what: str) -> None:
    if x.dtype == "bool":
        raise ModelError(f"{what} of bool", do="cast to a number first")


def _scan(types: tuple[ElementType, ...], attrs: tuple[Any, ...]) -> Type:
    op, axis, extent = attrs
    check_negative(axis)
    if op not in FOLDS:
        raise ModelError(f"no scan {op!r}", do=f"use one of {', '.join(FOLDS)}")
    _numbers(types[0], "scan")
    others = bound_extents("scan", types[0].extents, axis, extent)
    return ElementType(shapes.strip(shapes.broadcast(others, (extent, *(1,) * (-axis - 1)))), types[0].dtype)


def _along(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    _numbers(types[0], "a running fold")
    check_axis(types[0].shape, attrs[0])
    return types[0]


def _accumulate(ufunc: Any) -> Callable[[Any, int], Any]:
    return lambda x, axis: ufunc.accumulate(x, axis=axis, dtype=np.asarray(x).dtype)


def _place(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    _numbers(types[0], "the place of an extreme")
    check_axis(types[0].shape, attrs[0])
    return TensorType(reduced(types[0].shape, attrs[0]), "i64")


def _sort(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    check_axis(types[0].shape, attrs[0])
    return types[0]


def _argsort(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    check_axis(types[0].shape, attrs[0])
    return TensorType(types[0].shape, "i64")


def argsort_numpy(x: Any, axis: int, descending: bool) -> Any:
    """Return the places of the values in order; equal ones keep theirs, and NaN is the greatest of all."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    turned = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - turned, axis)


def _argtopk(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    axis, count, _ = attrs
    (x,) = types
    check_axis(x.shape, axis)
    (extent,) = shapes.concrete((x.shape[axis],))
    if not 1 <= count <= extent:
        raise ModelError(f"the first {count} of {extent} values of {x}")
    shape = list(x.shape)
    shape[axis] = count
    return TensorType(tuple(shape), "i64")


def argtopk_numpy(x: Any, axis: int, count: int, descending: bool) -> Any:
    """Return the first `count` of what argsort returns: what is beyond the last of them, and as many of its equals."""
    rows = np.moveaxis(np.asarray(x), axis, -1)
    place = rows.shape[-1] - count if descending else count - 1
    last = np.partition(rows, place, -1)[..., place, None]
    number, last_number = rows == rows, last == last
    beyond = (rows > last) | (~number & last_number) if descending else (rows < last) | (number & ~last_number)
    equal = (rows == last) | ~(number | last_number)
    kept = beyond | (equal & (np.cumsum(equal, -1) <= count - np.sum(beyond, -1, keepdims=True)))
    places = np.nonzero(kept)[-1].reshape(*rows.shape[:-1], count)
    order = argsort_numpy(np.take_along_axis(rows, places, -1), -1, descending)
    return np.moveaxis(np.take_along_axis(places, order, -1), -1, axis)


def sort_numpy(x: Any, axis: int, descending: bool) -> Any:
    """Return the values in order."""
    return np.take_along_axis(x, argsort_numpy(x, axis, descending), axis)


register(
    Op(
        "scan",
        "element",
        (("e", "element"),),
        (("op", REQUIRED), ("axis", REQUIRED), ("extent", REQUIRED)),
        _scan,
        cost=2,
        doc="The fold over one axis from its start up to the index there, which is clamped to extent - 1.",
    )
)
for _name, _fold in (("cumsum", "sum"), ("cumprod", "prod"), ("cummax", "max"), ("cummin", "min")):
    register(
        Op(
            _name,
            "tensor",
            (("x", "tensor"),),
            (("axis", REQUIRED),),
            _along,
            _accumulate(FOLDS[_fold]),
            cost=2,
            doc=f"The running {_fold} along an axis, each value counted with those before it.",
        )
    )
for _name, _reference in (("argmax", np.argmax), ("argmin", np.argmin)):
    register(
        Op(
            _name,
            "tensor",
            (("x", "tensor"),),
            (("axis", REQUIRED),),
            _place,
            lambda x, axis, reference=_reference: np.expand_dims(reference(x, axis=axis), axis),
            cost=2,
            doc=f"Where the {_name[3:]} along an axis stands, the first of equal ones; NaN wins. The axis stays.",
        )
    )
for _name, _infer, _reference in (("sort", _sort, sort_numpy), ("argsort", _argsort, argsort_numpy)):
    register(
        Op(
            _name,
            "tensor",
            (("x", "tensor"),),
            (("axis", -1), ("descending", False)),
            _infer,
            _reference,
            cost=_SORT_UNITS,
            opaque=True,
            doc="Stable sorting along an axis, NaN as the greatest: the "
            + ("values." if _name == "sort" else "places of the values."),
        )
    )
register(
    Op(
        "argtopk",
        "tensor",
        (("x", "tensor"),),
        (("axis", REQUIRED), ("count", REQUIRED), ("descending", REQUIRED)),
        _argtopk,
        argtopk_numpy,
        cost=_SELECT_UNITS,
        opaque=True,
        doc="The first `count` places that argsort returns, found without sorting the others.",
    )
)
