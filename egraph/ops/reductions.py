"""Reductions over one axis, which stays with extent 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from frittata.egraph import shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.ops.elements import FOLDS
from frittata.egraph.ops.registry import REQUIRED, Op, register
from frittata.egraph.ops.tensors import check_axis
from frittata.egraph.terms import TensorType, Type


def _reduce(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    (x,) = types
    check_axis(x.shape, attrs[0])
    if x.dtype == "bool":
        raise ModelError("reduction of bool", do="cast to a number first")
    axis = attrs[0] + len(x.shape)
    return TensorType((*x.shape[:axis], 1, *x.shape[axis + 1 :]), x.dtype)


def _reference(ufunc: Any) -> Callable[[Any, int], Any]:
    return lambda x, axis: ufunc.reduce(x, axis=axis, keepdims=True, dtype=np.asarray(x).dtype)


for _name, _ufunc in FOLDS.items():
    register(
        Op(
            f"reduce_{_name}",
            "tensor",
            (("x", "tensor"),),
            (("axis", REQUIRED),),
            _reduce,
            _reference(_ufunc),
            doc=f"The {_name} over one axis, kept with extent 1.",
        )
    )


def reduced(shape: shapes.Shape, axis: int) -> shapes.Shape:
    """Return the shape with the extent of `axis` set to 1."""
    axis += len(shape)
    return (*shape[:axis], 1, *shape[axis + 1 :])
