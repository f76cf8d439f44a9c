"""Leaves of tensor terms and composite operators that keep their names: normalizations, activations, attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.ops.registry import REQUIRED, Op, find, register
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import TensorType, Type


def _leaf(types: tuple[Any, ...], attrs: tuple[Any, ...]) -> Type:
    return TensorType(attrs[1], attrs[2])


def _full(types: tuple[Any, ...], attrs: tuple[Any, ...]) -> Type:
    return TensorType(attrs[1], attrs[0].dtype)


def _floating(x: TensorType) -> None:
    if not dtypes.is_float(x.dtype):
        raise ModelError(f"needs a floating-point tensor, got {x}", do="cast first")


def _activation(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    _floating(types[0])
    return types[0]


def _softmax(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    _floating(types[0])
    check_axis(types[0].shape, attrs[0])
    return types[0]


def check_axis(shape: Shape, axis: Any) -> None:
    """Raise ModelError unless `axis` is a negative axis of `shape`."""
    if not isinstance(axis, int) or not -len(shape) <= axis < 0:
        what = f"axis {axis} is not one of -{len(shape)} .. -1 of {shapes.fmt(shape)}"
        raise ModelError(what, do="count axes from the right: -1 is the last")


def _vector_of(types: tuple[TensorType, ...], extent: Any) -> None:
    for type_ in types:
        if type_.shape != (extent,):
            raise ModelError(f"needs vectors of length {extent}, got {type_}")


def _layer_norm(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    _floating(types[0])
    if not types[0].shape:
        raise ModelError("layer_norm of a scalar")
    _vector_of(types[1:], types[0].shape[-1])
    return types[0]


def _batch_norm(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    _floating(types[0])
    if len(types[0].shape) < 2:
        raise ModelError(f"batch_norm needs (batch, channels, ...), got {types[0]}")
    _vector_of(types[1:], types[0].shape[1])
    return types[0]


def _relu(x: Any) -> Any:
    return np.maximum(x, 0)


def _gelu(x: Any) -> Any:
    erf = find("erf", "element")
    assert erf is not None and erf.reference is not None
    return x * 0.5 * (1 + erf.reference(x * np.sqrt(0.5).astype(x.dtype)))


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x**3)))


def _silu(x: Any) -> Any:
    sigmoid = find("sigmoid", "element")
    assert sigmoid is not None and sigmoid.reference is not None
    return x * sigmoid.reference(x)


def softmax_numpy(x: Any, axis: int) -> Any:
    """Softmax along an axis, shifted by the maximum."""
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)


def _layer_norm_numpy(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + np.asarray(eps, x.dtype)) * weight + bias


def _batch_norm_numpy(x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float) -> Any:
    mean, var, weight, bias = (v.reshape(-1, *(1,) * (x.ndim - 2)) for v in (mean, var, weight, bias))
    return (x - mean) / np.sqrt(var + np.asarray(eps, x.dtype)) * weight + bias


def _group_norm(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    _floating(types[0])
    if len(types[0].shape) < 2:
        raise ModelError(f"group_norm needs (batch, channels, ...), got {types[0]}")
    (channels,) = shapes.concrete(types[0].shape[1:2])
    if attrs[0] < 1 or channels % attrs[0]:
        raise ModelError(f"group_norm of {types[0]} in {attrs[0]} groups")
    _vector_of(types[1:], channels)
    return types[0]


def _group_norm_numpy(x: Any, weight: Any, bias: Any, groups: int, eps: float) -> Any:
    rows = x.reshape(x.shape[0], groups, x.shape[1] // groups, -1)
    count = np.asarray(rows[0, 0].size, x.dtype)
    d = rows - rows.sum(-1, keepdims=True).sum(-2, keepdims=True) / count
    variance = (d * d).sum(-1, keepdims=True).sum(-2, keepdims=True) / count
    out = (d / np.sqrt(variance + np.asarray(eps, x.dtype))).reshape(x.shape)
    return out * weight.reshape(-1, *(1,) * (x.ndim - 2)) + bias.reshape(-1, *(1,) * (x.ndim - 2))


def _rms_norm(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    _floating(types[0])
    if not types[0].shape:
        raise ModelError("rms_norm of a scalar")
    _vector_of(types[1:], types[0].shape[-1])
    return types[0]


def _rms_norm_numpy(x: Any, weight: Any, eps: float) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.asarray(eps, x.dtype)) * weight


def _attention(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    q, k, v = types
    _floating(q)
    if min(len(t.shape) for t in types) < 2:
        raise ModelError(f"attention needs (..., length, depth), got {q}, {k}, {v}")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ModelError(f"attention of {q}, {k}, {v}")
    batch = shapes.broadcast(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    return TensorType((*batch, q.shape[-2], v.shape[-1]), q.dtype)


def _attention_numpy(q: Any, k: Any, v: Any, scale: float) -> Any:
    return softmax_numpy(q @ np.swapaxes(k, -1, -2) * np.asarray(scale, q.dtype), -1) @ v


def _masked_attention(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    q, k, v, mask = types
    result = _attention((q, k, v), attrs)
    scores = (*shapes.broadcast(q.shape[:-2], k.shape[:-2]), q.shape[-2], k.shape[-2])
    if mask.dtype not in ("bool", q.dtype) or shapes.broadcast(scores, mask.shape) != scores:
        raise ModelError(f"a mask {mask} of scores {q.dtype}[{shapes.fmt(scores)}]", do="expand the keys first")
    return result


def _masked_attention_numpy(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) * np.asarray(scale, q.dtype)
    nothing = np.asarray(-np.inf, q.dtype)
    scores = np.where(mask, scores, nothing) if np.asarray(mask).dtype == bool else scores + mask
    blind = scores.max(-1, keepdims=True) == nothing
    return np.where(blind, np.asarray(0, q.dtype), softmax_numpy(scores, -1)) @ v


def _causal_attention_numpy(q: Any, k: Any, v: Any, scale: float) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) * np.asarray(scale, q.dtype)
    visible = np.tri(q.shape[-2], k.shape[-2], dtype=bool)
    return softmax_numpy(np.where(visible, scores, np.asarray(-np.inf, q.dtype)), -1) @ v


def _tensors(*labels: str) -> tuple[tuple[str, Any], ...]:
    return tuple((label, "tensor") for label in labels)


_LEAF = (("name", REQUIRED), ("shape", REQUIRED), ("dtype", REQUIRED))
register(Op("input", "tensor", (), _LEAF, _leaf, doc="An argument of the function.", carries=True))
register(
    Op(
        "param",
        "tensor",
        (),
        _LEAF,
        _leaf,
        doc="A frozen tensor, known by name; its values stay outside of the terms.",
        carries=True,
    )
)
register(
    Op(
        "full",
        "tensor",
        (),
        (("value", REQUIRED), ("shape", REQUIRED)),
        _full,
        lambda value, shape: np.full(shape, value.value),
        doc="One value everywhere.",
        carries=True,
    )
)
for _name, _reference, _doc in (
    ("relu", _relu, "max(x, 0)"),
    ("gelu", _gelu, "x * Phi(x), by erf. Source: Hendrycks and Gimpel, 2016."),
    ("gelu_tanh", _gelu_tanh, "The tanh approximation of gelu."),
    ("silu", _silu, "x * sigmoid(x)"),
):
    register(Op(_name, "tensor", _tensors("x"), (), _activation, _reference, doc=_doc))
_doc = "exp(x) divided by its sum along an axis; the largest is subtracted before."
register(Op("softmax", "tensor", _tensors("x"), (("axis", -1),), _softmax, softmax_numpy, doc=_doc))
register(
    Op(
        "layer_norm",
        "tensor",
        _tensors("x", "weight", "bias"),
        (("eps", 1e-5),),
        _layer_norm,
        _layer_norm_numpy,
        doc="Normalize over the last axis. Source: Ba, Kiros and Hinton, 2016.",
    )
)
register(
    Op(
        "batch_norm",
        "tensor",
        _tensors("x", "mean", "var", "weight", "bias"),
        (("eps", 1e-5),),
        _batch_norm,
        _batch_norm_numpy,
        doc="Inference form, channels on axis 1 of (batch, channels, ...).",
    )
)
register(
    Op(
        "group_norm",
        "tensor",
        _tensors("x", "weight", "bias"),
        (("groups", REQUIRED), ("eps", 1e-5)),
        _group_norm,
        _group_norm_numpy,
        doc="Normalize groups of channels, axis 1 of (batch, channels, ...). Source: Wu and He, 2018.",
    )
)
register(
    Op(
        "rms_norm",
        "tensor",
        _tensors("x", "weight"),
        (("eps", 1e-5),),
        _rms_norm,
        _rms_norm_numpy,
        doc="Divide the last axis by its root mean square. Source: Zhang and Sennrich, 2019.",
    )
)
register(
    Op(
        "attention",
        "tensor",
        _tensors("q", "k", "v"),
        (("scale", REQUIRED),),
        _attention,
        _attention_numpy,
        doc="softmax(q k^T scale) v; shapes (*batch, length, depth).",
    )
)
register(
    Op(
        "masked_attention",
        "tensor",
        _tensors("q", "k", "v", "mask"),
        (("scale", REQUIRED),),
        _masked_attention,
        _masked_attention_numpy,
        doc="Attention under a mask that broadcasts to the scores: a bool one tells the keys seen, another is added. "
        "A query that sees no key gives zero.",
    )
)
register(
    Op(
        "causal_attention",
        "tensor",
        _tensors("q", "k", "v"),
        (("scale", REQUIRED),),
        _attention,
        _causal_attention_numpy,
        doc="Attention in which query i sees keys 0 .. i.",
    )
)
