"""Operators that only move values: permute, channels_first, reshape, slice, expand."""

from __future__ import annotations

from typing import Any

import numpy as np

from frittata.egraph import indexing, shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.ops.registry import REQUIRED, Op, register
from frittata.egraph.ops.tensors import check_axis
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Sort, TensorType, Type


def _permute(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    (x,), (permutation,) = types, attrs
    if sorted(permutation) != list(range(len(x.shape))):
        what = f"{permutation} is no permutation of the axes of {x}"
        raise ModelError(what, do="name each axis once, from 0, the first")
    return TensorType(tuple(x.shape[p] for p in permutation), x.dtype)


def _channels_first(types: tuple[TensorType, ...], _attrs: tuple[Any, ...]) -> Type:
    (x,) = types
    if len(x.shape) < 3:
        raise ModelError(f"channels_first of {x}, which has no spatial axes")
    return TensorType((x.shape[0], x.shape[-1], *x.shape[1:-1]), x.dtype)


def _reshape(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    (x,), (shape,) = types, attrs
    indexing.reshape_map(x.shape, shape)
    return TensorType(shape, x.dtype)


def _slice(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    (x,), (axis, start, step, length) = types, attrs
    check_axis(x.shape, axis)
    extent = x.shape[axis]
    if isinstance(extent, Sym) or start < 0 or step < 1 or length < 1 or start + (length - 1) * step >= extent:
        raise ModelError(f"slice {start} : : {step} of length {length} on axis {axis} of {x}")
    return TensorType(indexing.slice_map(x.shape, axis, start, step, length).result, x.dtype)


def _slice_numpy(x: Any, axis: int, start: int, step: int, length: int) -> Any:
    index = [slice(None)] * x.ndim
    index[axis] = slice(start, start + (length - 1) * step + 1, step)
    return x[tuple(index)]


def _expand(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    (x,), (shape,) = types, attrs
    if shapes.broadcast(x.shape, shape) != shape:
        raise ModelError(f"cannot expand {x} to {shapes.fmt(shape)}")
    return TensorType(shape, x.dtype)


_X: tuple[tuple[str, Sort], ...] = (("x", "tensor"),)
register(
    Op(
        "permute",
        "tensor",
        _X,
        (("permutation", REQUIRED),),
        _permute,
        np.transpose,
        cost=0,
        doc="Axis i of the result is axis permutation[i] of x.",
        carries=True,
    )
)
register(
    Op(
        "channels_first",
        "tensor",
        _X,
        (),
        _channels_first,
        lambda x: np.moveaxis(x, -1, 1),
        cost=0,
        doc="(batch, *spatial, channels) as (batch, channels, *spatial).",
        carries=True,
    )
)
register(
    Op(
        "reshape",
        "tensor",
        _X,
        (("shape", REQUIRED),),
        _reshape,
        np.reshape,
        cost=0,
        doc="The same values in row-major order under another shape.",
        carries=True,
    )
)
register(
    Op(
        "slice",
        "tensor",
        _X,
        (("axis", REQUIRED), ("start", REQUIRED), ("step", REQUIRED), ("length", REQUIRED)),
        _slice,
        _slice_numpy,
        cost=0,
        doc="`length` values of one axis, from `start` in steps of `step`.",
        carries=True,
    )
)
register(
    Op(
        "expand",
        "tensor",
        _X,
        (("shape", REQUIRED),),
        _expand,
        np.broadcast_to,
        cost=0,
        doc="Broadcast to a shape.",
        carries=True,
    )
)
