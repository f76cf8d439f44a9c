"""Operators of computed indices: values looked up at, and written to, places that other tensors hold.

An index counts from 0; one outside of its axis is an error at run time. References and elements clamp it, so that they
are total functions, which rules need; `check_indices` and the guards in kernels are what refuses it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from frittata.egraph import dtypes, indexing, shapes
from frittata.egraph.errors import IndexRangeError, ModelError, NarrowError
from frittata.egraph.indexing import IndexMap
from frittata.egraph.ops.elements import bound_extents, check_negative
from frittata.egraph.ops.registry import REQUIRED, Op, register
from frittata.egraph.ops.tensors import check_axis
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import ElementType, TensorType, Type


def _check_integers(indices: TensorType | ElementType) -> None:
    if not dtypes.is_integer(indices.dtype):
        raise ModelError(f"indices must be integers, got {indices}", do="cast to i64 first")
    if dtypes.is_narrow(indices.dtype):
        raise NarrowError(f"indices of {indices.dtype}", do="cast to i32 first")


def _at(types: tuple[ElementType, ...], attrs: tuple[Any, ...]) -> Type:
    e, indices = types
    axis, extent = attrs
    check_negative(axis)
    _check_integers(indices)
    extents = shapes.broadcast(bound_extents("at", e.extents, axis, extent), indices.extents)
    return ElementType(shapes.strip(extents), e.dtype)


def _take(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    x, indices = types
    (axis,) = attrs
    check_axis(x.shape, axis)
    _check_integers(indices)
    at = axis + len(x.shape)
    return TensorType((*x.shape[:at], *indices.shape, *x.shape[at + 1 :]), x.dtype)


def take_source(shape: Shape, rank: int, axis: int) -> IndexMap:
    """Move `axis` of what `take` reads to the front, and make room for the `rank` axes of the indices in its place.

    Shapes: (2, 9, 5) with axis -2 and rank 2 -> (9, 2, 1, 1, 5).
    """
    at = axis + len(shape)
    result = (shape[at], *shape[:at], *(1,) * rank, *shape[at + 1 :])
    sources = [indexing.var(i + 1 - len(result), dim) for i, dim in enumerate(shape[:at])]
    sources.append(indexing.var(-len(result), shape[at]))
    sources += [indexing.var(i - len(shape), dim) for i, dim in enumerate(shape) if i > at]
    return IndexMap(shape, result, tuple(sources))


def take_numpy(x: Any, indices: Any, axis: int) -> Any:
    """Look up whole slices along an axis."""
    return np.take(x, indices, axis=axis, mode="clip")


def _gather(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    x, indices = types
    (axis,) = attrs
    check_axis(x.shape, axis)
    _check_integers(indices)
    if len(x.shape) != len(indices.shape):
        raise ModelError(f"gather from {x} at {indices}: ranks differ")
    at = axis + len(x.shape)
    others = (*x.shape[:at], 1, *x.shape[at + 1 :])
    return TensorType(shapes.broadcast(others, indices.shape), x.dtype)


def gather_numpy(x: Any, indices: Any, axis: int) -> Any:
    """Look up single values along an axis; the other axes broadcast."""
    return np.take_along_axis(x, np.clip(indices, 0, x.shape[axis] - 1), axis)


def check_indices(op: str, values: tuple[Any, ...], attrs: tuple[Any, ...]) -> None:
    """Refuse an index that lies outside of its axis.

    Raises: IndexRangeError.
    """
    if op in CHECKED:
        check_range(values[1], np.shape(values[0])[attrs[0]], op)


def check_range(given: Any, extent: int, where: str) -> None:
    """Refuse indices outside of 0 .. extent - 1.

    Raises: IndexRangeError.
    """
    indices = np.asarray(given)
    outside = indices[(indices < 0) | (indices >= extent)]
    if outside.size:
        raise out_of_range(int(outside.flat[0]), extent, where)


def out_of_range(index: int, extent: int, where: str) -> IndexRangeError:
    """Return the error that tells of an index outside of its axis."""
    return IndexRangeError(f"index {index} is outside of 0 .. {extent - 1}", where, "check the indices that are given")


SCATTERS: dict[str, Any] = {"set": None, "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
"""How `scatter` combines what is there with what is written: a ufunc, or None where the last one written stays."""


def _scatter(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    x, indices, source = types
    axis, reduce = attrs
    check_axis(x.shape, axis)
    _check_integers(indices)
    if reduce not in SCATTERS:
        raise ModelError(f"no scatter {reduce!r}", do=f"use one of {', '.join(SCATTERS)}")
    ranks = {len(type_.shape) for type_ in types}
    if x.dtype != source.dtype or len(ranks) > 1 or shapes.broadcast(indices.shape, source.shape) != source.shape:
        raise ModelError(f"scatter of {source} into {x} at {indices}")
    pairs = zip(shapes.concrete(x.shape), shapes.concrete(source.shape), strict=True)
    if any(given > there for i, (there, given) in enumerate(pairs) if i - len(x.shape) != axis):
        raise ModelError(f"scatter of {source} into {x} at {indices} on axis {axis}", do="only this axis may be longer")
    if x.dtype == "bool" and reduce != "set":
        raise ModelError("scatter that adds up bool", do="cast to a number first")
    if dtypes.is_narrow(x.dtype) and reduce != "set":
        raise NarrowError(f"scatter that adds up {x.dtype}", do=f"cast to {dtypes.wide(x.dtype)}, and back")
    return x


def scatter_numpy(x: Any, indices: Any, source: Any, axis: int, reduce: str) -> Any:
    """Write or combine values at places along an axis, in row-major order of the source; the indices broadcast."""
    out = np.array(x)
    places: list[Any] = list(np.indices(np.shape(source), sparse=True))
    places[axis] = np.broadcast_to(np.clip(indices, 0, out.shape[axis] - 1), np.shape(source))
    ufunc = SCATTERS[reduce]
    if ufunc is None:
        out[tuple(places)] = source
    else:
        ufunc.at(out, tuple(places), source)
    return out


CHECKED = frozenset({"take", "gather", "scatter"})
"""The tensor operators whose second operand holds indices, on the axis that their first attribute names."""

register(
    Op(
        "at",
        "element",
        (("e", "element"), ("i", "element")),
        (("axis", REQUIRED), ("extent", REQUIRED)),
        _at,
        cost=2,
        doc="The element with its index on one axis replaced by the integer element, clamped to extent - 1.",
        carries=True,
    )
)
register(
    Op(
        "take",
        "tensor",
        (("x", "tensor"), ("indices", "tensor")),
        (("axis", REQUIRED),),
        _take,
        take_numpy,
        doc="Slices of x along an axis, one for each index: an embedding is take(table, ids, axis=-2).",
        carries=True,
    )
)
register(
    Op(
        "gather",
        "tensor",
        (("x", "tensor"), ("indices", "tensor")),
        (("axis", REQUIRED),),
        _gather,
        gather_numpy,
        doc="Values of x along an axis, one for each index; the other axes broadcast (numpy.take_along_axis).",
        carries=True,
    )
)
register(
    Op(
        "scatter",
        "tensor",
        (("x", "tensor"), ("indices", "tensor"), ("source", "tensor")),
        (("axis", REQUIRED), ("reduce", "set")),
        _scatter,
        scatter_numpy,
        cost=8.0,
        opaque=True,
        doc="x with values of the source written at, or combined with what is at, indices (they broadcast) on an axis.",
        carries=True,
    )
)
