"""Atoms and binders of elements. Their meaning needs an index: see `interpret`."""

from __future__ import annotations

from typing import Any

import numpy as np

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.ops.registry import REQUIRED, Op, register
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import ElementType, Scalar, TensorType, Type, is_well_formed_body

CONTRACTIONS = frozenset({"dot", "window_dot", "winograd_dot", "attend"})
"""The element operators that sum products over axes of their own."""

FOLDS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
"""The ufunc of each fold operator."""


def fold_identity(op: str, dtype: str) -> Scalar:
    """Return the value of an empty fold."""
    if op in ("sum", "prod"):
        return Scalar.of(int(op == "prod"), dtype)
    if dtypes.is_float(dtype):
        return Scalar.of(float("-inf" if op == "max" else "inf"), dtype)
    if dtype == "bool":
        return Scalar.of(op == "min", dtype)
    info = np.iinfo(dtypes.to_numpy(dtype))
    return Scalar.of(info.min if op == "max" else info.max, dtype)


def _load(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    return ElementType(shapes.strip(types[0].shape), types[0].dtype)


def _const(types: tuple[Any, ...], attrs: tuple[Any, ...]) -> Type:
    return ElementType((), attrs[0].dtype)


def _iota(types: tuple[Any, ...], attrs: tuple[Any, ...]) -> Type:
    axis, extent, dtype = attrs
    check_negative(axis)
    return ElementType(shapes.strip((extent, *(1,) * (-axis - 1))), dtype)


def check_negative(axis: Any) -> None:
    """Raise ModelError unless an axis is a negative number."""
    if not isinstance(axis, int) or axis >= 0:
        raise ModelError(f"axis {axis} must be negative", do="count axes from the right: -1 is the last")


def unbind(extents: Shape, axis: int) -> Shape:
    """Return the extents once `axis` is bound."""
    if -axis > len(extents):
        return extents
    out = list(extents)
    out[axis] = 1
    return shapes.strip(tuple(out))


def bound_extents(what: str, extents: Shape, axis: int, extent: Any) -> Shape:
    """Return the extents of an element once a binder binds `axis`.

    Raises: ModelError if the element has another extent there.
    """
    found = shapes.dim_at(extents, axis)
    if found not in (1, extent):
        raise ModelError(f"{what} binds axis {axis} with extent {extent}, but the element has {found} there")
    return unbind(extents, axis)


def _fold(types: tuple[ElementType, ...], attrs: tuple[Any, ...]) -> Type:
    op, axis, extent = attrs
    check_negative(axis)
    if op not in FOLDS:
        raise ModelError(f"no fold {op!r}", do=f"use one of {', '.join(FOLDS)}")
    if types[0].dtype == "bool":
        raise ModelError("fold over bool", do="cast to a number first")
    return ElementType(bound_extents("fold", types[0].extents, axis, extent), types[0].dtype)


def _dot(types: tuple[ElementType, ...], attrs: tuple[Any, ...]) -> Type:
    left, right = types
    if left.dtype != right.dtype or left.dtype == "bool":
        raise ModelError(f"dot of {left.dtype} and {right.dtype}")
    outer = bound_extents("dot", left.extents, -1, attrs[0])
    extents = shapes.broadcast(outer, bound_extents("dot", right.extents, -2, attrs[0]))
    return ElementType(shapes.strip(extents), left.dtype)


def _attend(types: tuple[ElementType, ...], attrs: tuple[Any, ...]) -> Type:
    if not dtypes.is_float(types[0].dtype):
        raise ModelError(f"attend needs floats, got {types[0].dtype}")
    return _dot(types, attrs)


def window_extents(
    source: Shape, kernel: Shape, stride: Shape, padding: tuple[int, ...], dilation: Shape
) -> tuple[int, ...]:
    """Return the spatial extents of the result of a window: floor((n + 2p - d(k - 1) - 1) / s) + 1 on each axis."""
    axes = zip(*map(shapes.concrete, (source, kernel, stride)), padding, shapes.concrete(dilation), strict=True)
    out = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes)
    if any(extent < 1 for extent in out):
        raise ModelError(f"a window of {shapes.fmt(kernel)} does not fit into {shapes.fmt(source)}", do="add padding")
    return out


def _window_dot(types: tuple[ElementType, ...], attrs: tuple[Any, ...]) -> Type:
    left, right = types
    source, channels, kernel, stride, padding, dilation, groups = attrs
    rank = len(kernel)
    if left.dtype != right.dtype or left.dtype == "bool":
        raise ModelError(f"window_dot of {left.dtype} and {right.dtype}")
    outer = left.extents
    for axis in range(-rank - 1, 0):
        outer = bound_extents("window_dot", outer, axis, source[axis])
    weights = right.extents
    for axis, extent in zip(range(-rank - 1, 0), (source[0] // groups, *kernel), strict=True):
        weights = bound_extents("window_dot", weights, axis, extent)
    if shapes.dim_at(weights, -rank - 2) not in (1, channels) or len(weights) > rank + 2:
        raise ModelError(f"weights of window_dot have extents {shapes.fmt(weights)}, channels are {channels}")
    batch = outer[: max(0, len(outer) - rank - 1)]
    spatial = window_extents(source[1:], kernel, stride, padding, dilation)
    return ElementType(shapes.strip((*batch, channels, *spatial)), left.dtype)


def _reindex(types: tuple[ElementType, ...], attrs: tuple[Any, ...]) -> Type:
    (mapping,) = attrs
    given = types[0].extents
    rank = len(mapping.source)
    for axis in range(-max(len(given), rank), 0):
        if shapes.dim_at(given, axis) not in (1, shapes.dim_at(mapping.source, axis)):
            raise ModelError(f"reindex of {shapes.fmt(mapping.source)} on an element of {shapes.fmt(given)}")
    mentioned: set[Any] = set()
    for axis in range(-min(len(given), rank), 0):
        if given[axis] != 1:
            mentioned |= mapping.sources[axis].variables()
    result = mapping.result
    extents = tuple(dim if axis in mentioned else 1 for axis, dim in zip(range(-len(result), 0), result, strict=True))
    return ElementType(shapes.strip(extents), types[0].dtype)


def _build(types: tuple[ElementType, ...], attrs: tuple[Any, ...]) -> Type:
    shape = attrs[0]
    if not is_well_formed_body(shape, types[0]):
        raise ModelError(
            f"build of {shapes.fmt(shape)} from an element of extents {shapes.fmt(types[0].extents)}",
            do="narrow with an explicit reindex",
        )
    return TensorType(shape, types[0].dtype)


register(
    Op("load", "element", (("x", "tensor"),), (), _load, doc="The tensor's value at the clamped index.", carries=True)
)
register(
    Op(
        "const",
        "element",
        (),
        (("value", REQUIRED),),
        _const,
        cost=0,
        doc="The same value at every index.",
        carries=True,
    )
)
register(
    Op(
        "iota",
        "element",
        (),
        (("axis", REQUIRED), ("extent", REQUIRED), ("dtype", "i64")),
        _iota,
        doc="The index on one axis, clamped to extent - 1.",
    )
)
register(
    Op(
        "fold",
        "element",
        (("e", "element"),),
        (("op", REQUIRED), ("axis", REQUIRED), ("extent", REQUIRED)),
        _fold,
        doc="Reduce over one axis, which the result no longer mentions.",
    )
)
register(
    Op(
        "dot",
        "element",
        (("a", "element"), ("b", "element")),
        (("depth", REQUIRED),),
        _dot,
        cost=2,
        doc="Sum over k of a at (..., i, k) times b at (..., k, j).",
    )
)
register(
    Op(
        "window_dot",
        "element",
        (("a", "element"), ("b", "element")),
        tuple(
            (label, REQUIRED) for label in ("source", "channels", "kernel", "stride", "padding", "dilation", "groups")
        ),
        _window_dot,
        cost=2,
        doc="Convolution: sum over input channels and window offsets of a at the window times b; padding reads zero. "
        "`source` is (input channels, *spatial) of a; b has extents (channels, input channels / groups, *kernel).",
    )
)
register(
    Op(
        "attend",
        "element",
        (("s", "element"), ("v", "element")),
        (("keys", REQUIRED), ("safe", False)),
        _attend,
        cost=2,
        doc="Sum over j of softmax(s) at (..., i, j) times v at (..., j, e). A row of scores that are all -inf gives "
        "NaN, if `safe` zero.",
    )
)
register(
    Op(
        "reindex",
        "element",
        (("e", "element"),),
        (("map", REQUIRED),),
        _reindex,
        cost=0,
        doc="The element at another index: a view.",
        carries=True,
    )
)
register(
    Op(
        "build",
        "tensor",
        (("e", "element"),),
        (("shape", REQUIRED),),
        _build,
        cost=0,
        doc="The tensor whose value at each index is the element.",
        carries=True,
    )
)
register(
    Op(
        "part",
        "tensor",
        (("e", "element"),),
        (("shape", REQUIRED), ("at", REQUIRED)),
        _build,
        cost=0,
        doc="What `build` is, in a larger buffer: `at` tells, in terms of the axes, where each value is written.",
        carries=True,
    )
)
