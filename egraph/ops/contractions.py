"""Matrix products and convolutions."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.ops.elements import window_extents
from frittata.egraph.ops.registry import Op, register
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import TensorType, Type


def _matmul(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    a, b = types
    if len(a.shape) < 2 or len(b.shape) < 2 or a.dtype != b.dtype or a.dtype == "bool":
        raise ModelError(f"matmul of {a} and {b}", do="give matrices of one numeric dtype, (..., m, k) and (..., k, n)")
    if a.shape[-1] != b.shape[-2]:
        raise ModelError(f"matmul of {a} and {b}: depths {a.shape[-1]} and {b.shape[-2]} differ")
    batch = shapes.broadcast(a.shape[:-2], b.shape[:-2])
    return TensorType((*batch, a.shape[-2], b.shape[-1]), a.dtype)


def _grouped_matmul(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    x, w, ends = types
    if len(x.shape) != 2 or len(w.shape) != 3 or x.dtype != w.dtype or x.dtype == "bool":
        raise ModelError(f"grouped_matmul of {x} and {w}", do="give (m, k) and (groups, k, n) of one numeric dtype")
    if x.shape[1] != w.shape[1] or ends.shape != w.shape[:1] or not dtypes.is_integer(ends.dtype):
        raise ModelError(f"grouped_matmul of {x} and {w} up to {ends}", do="give one integer for each matrix")
    return TensorType((x.shape[0], w.shape[2]), x.dtype)


def _grouped_matmul_numpy(x: Any, w: Any, ends: Any) -> Any:
    out = np.zeros((x.shape[0], w.shape[2]), x.dtype)
    start = 0
    for matrix, end in zip(w, ends.tolist(), strict=True):
        if end > start:
            np.matmul(x[start:end], matrix, out=out[start:end])
            start = end
    return out


def _linear(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    x, w, b = types
    if len(w.shape) != 2 or not x.shape or x.shape[-1] != w.shape[1] or b.shape != w.shape[:1]:
        raise ModelError(f"linear of {x} with weight {w} and bias {b}")
    if len({t.dtype for t in types}) != 1:
        raise ModelError(f"linear of {x} with weight {w} and bias {b}: dtypes differ")
    if x.dtype == "bool":
        raise ModelError("linear of bool", do="cast to a number first")
    return TensorType((*x.shape[:-1], w.shape[0]), x.dtype)


def _conv(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    x, w = types
    stride, padding, dilation, groups = attrs
    rank = len(stride)
    if len(x.shape) != rank + 2 or len(w.shape) != rank + 2 or x.dtype != w.dtype or x.dtype == "bool":
        raise ModelError(f"conv with {rank} spatial axes of {x} and {w}")
    channels, depth = shapes.concrete(w.shape[:2])
    if x.shape[1] != depth * groups or channels % groups:
        raise ModelError(f"conv of {x} and {w} with {groups} groups")
    spatial = window_extents(x.shape[2:], w.shape[2:], stride, padding, dilation)
    return TensorType((x.shape[0], channels, *spatial), x.dtype)


def _conv_last(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    x, w = types
    if not x.shape:
        raise ModelError(f"conv_last of {x} and {w}")
    first = TensorType((x.shape[0], *x.shape[-1:], *x.shape[1:-1]), x.dtype)
    found = _conv((first, w), (*attrs, 1))
    assert isinstance(found, TensorType)
    return TensorType((found.shape[0], *found.shape[2:], found.shape[1]), x.dtype)


def _conv_last_numpy(x: Any, w: Any, stride: Shape, padding: tuple[int, ...], dilation: Shape) -> Any:
    return np.moveaxis(window_dot_numpy(np.moveaxis(x, -1, 1), w, stride, padding, dilation, 1), 1, -1)


def contract(left: Any, right: Any) -> Any:
    """Sum the product over the trailing dimension, as a product of matrices where the index is a grid."""
    if left.ndim >= 3 and left.shape[-2] == 1 and right.ndim >= 2 and (right.ndim == 2 or right.shape[-3] == 1):
        columns = right if right.ndim == 2 else right[..., 0, :, :]
        return np.matmul(left[..., :, 0, :], np.swapaxes(columns, -1, -2))
    return np.einsum("...k,...k->...", left, right)


def window_dot_numpy(x: Any, w: Any, stride: Shape, padding: tuple[int, ...], dilation: Shape, groups: int) -> Any:
    """Convolve: one product of matrices for each offset of the window.

    Shapes: x (batch, inputs, *spatial), w (channels, inputs / groups, *kernel).
    """
    steps, gaps = shapes.concrete(stride), shapes.concrete(dilation)
    kernel = w.shape[2:]
    extents = window_extents(x.shape[2:], kernel, stride, padding, dilation)
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    batch, channels = x.shape[0], w.shape[0]
    inputs = x.shape[1] // groups
    out = np.zeros((batch, groups, channels // groups, int(np.prod(extents))), x.dtype)
    grouped = w.reshape(groups, channels // groups, inputs, *kernel)
    for offset in product(*map(range, kernel)):
        window = tuple(
            slice(o * d, o * d + (n - 1) * s + 1, s) for o, d, n, s in zip(offset, gaps, extents, steps, strict=True)
        )
        part = padded[(slice(None), slice(None), *window)].reshape(batch, groups, inputs, -1)
        out += grouped[(..., *offset)] @ part
    return out.reshape(batch, channels, *extents)


register(
    Op(
        "matmul",
        "tensor",
        (("a", "tensor"), ("b", "tensor")),
        (),
        _matmul,
        np.matmul,
        cost=2,
        doc="Matrix product, (*batch, m, k) by (*batch, k, n); batch axes broadcast.",
    )
)
register(
    Op(
        "grouped_matmul",
        "tensor",
        (("x", "tensor"), ("w", "tensor"), ("ends", "tensor")),
        (),
        _grouped_matmul,
        _grouped_matmul_numpy,
        cost=2,
        opaque=True,
        doc="Rows of x, each by the matrix of its group: group i of w ends before row ends[i]; others are zero.",
    )
)
register(
    Op(
        "linear",
        "tensor",
        (("x", "tensor"), ("weight", "tensor"), ("bias", "tensor")),
        (),
        _linear,
        lambda x, w, b: x @ w.T + b,
        cost=2,
        doc="x weight^T + bias; weight (outputs, inputs).",
    )
)
register(
    Op(
        "conv",
        "tensor",
        (("x", "tensor"), ("w", "tensor")),
        (("stride", (1, 1)), ("padding", (0, 0)), ("dilation", (1, 1)), ("groups", 1)),
        _conv,
        window_dot_numpy,
        cost=2,
        doc="Cross-correlation of (batch, inputs, *spatial) with (channels, inputs / groups, *kernel), zero padding.",
    )
)
register(
    Op(
        "conv_last",
        "tensor",
        (("x", "tensor"), ("w", "tensor")),
        (("stride", (1, 1)), ("padding", (0, 0)), ("dilation", (1, 1))),
        _conv_last,
        _conv_last_numpy,
        cost=2,
        doc="conv of (batch, *spatial, inputs), channels last: no groups, the same (channels, inputs, *kernel).",
    )
)
