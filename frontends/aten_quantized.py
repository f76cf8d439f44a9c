"""Rows of operators on integers that stand for reals: what exported quantized models say, and fake quantization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms
from frittata.frontends.idioms import Operand

_PER_TENSOR = ("default", "tensor", "tensor2")
"""Overloads by whether the scale and the zero point, and the bounds as well, are numbers or tensors of one value."""


def _one(value: Operand) -> Operand:
    return idioms.reshape(value, ()) if isinstance(value, Term) else value


def _along(values: Term, x: Term, axis: int) -> Term:
    return idioms.reshape(values, (*values.shape, *(1,) * (len(x.shape) - 1 - axis % len(x.shape))))


def _inverse(scale: Operand) -> Term:
    if not isinstance(scale, Term):
        return idioms.scalar(1 / scale, "f32")
    wide = idioms.cast(scale, dtypes.wide(scale.dtype))
    return tensor("div", idioms.scalar(1, wide.dtype), wide)


def _bounded(x: Term, inverse: Term, zero: Operand, low: Operand, high: Operand) -> Term:
    """Return the integers, as floats, that stand for x."""
    scaled = tensor("mul", *idioms.promoted(idioms.cast(x, dtypes.wide(x.dtype)), inverse))
    shifted = tensor("add", tensor("round", scaled), idioms.typed(zero, scaled.dtype))
    above = tensor("max", shifted, idioms.typed(low, scaled.dtype))
    return tensor("min", above, idioms.typed(high, scaled.dtype))


def _centred(x: Term, zero: Operand, kind: DType) -> Term:
    """Return x less a zero point as floats; what a float does not hold is subtracted as integers."""
    if isinstance(zero, int | float) and not zero:
        return idioms.cast(x, kind)
    if not dtypes.is_narrow(x.dtype) and dtypes.is_integer(x.dtype):
        return idioms.cast(tensor("sub", *idioms.promoted(x, zero)), kind)
    return tensor("sub", idioms.cast(x, kind), idioms.typed(zero, kind))


def _quantize(x: Term, scale: Operand, zero: Operand, low: Operand, high: Operand, dtype: DType) -> Term:
    inverse = idioms.cast(_inverse(_one(scale)), "f32")
    return idioms.cast(_bounded(x, inverse, *map(_one, (zero, low, high))), dtype)


def _quantize_channels(x: Term, scales: Term, zeros: Term, axis: int, low: int, high: int, dtype: DType) -> Term:
    inverse = _inverse(_along(scales, x, axis))
    return idioms.cast(_bounded(x, inverse, _along(zeros, x, axis), low, high), dtype)


def _dequantize(
    x: Term, scale: Operand, zero: Operand, _low: Any, _high: Any, _dtype: DType, out_dtype: DType | None = None
) -> Term:
    out = out_dtype or "f32"
    kind = dtypes.wide(out)
    factor = idioms.typed(_one(scale), kind)
    if zero and not dtypes.is_narrow(x.dtype):
        x = idioms.cast(x, "i64")  # torch subtracts as floats, which do not wrap
    return idioms.cast(tensor("mul", _centred(x, _one(zero), kind), factor), out)


def _dequantize_channels(
    x: Term,
    scales: Term,
    zeros: Term | None,
    axis: int,
    _low: int,
    _high: int,
    _dtype: DType,
    out_dtype: DType | None = None,
) -> Term:
    factor = _along(scales, x, axis)
    factor = idioms.cast(factor, dtypes.wide(factor.dtype))
    centred = _centred(x, 0 if zeros is None else _along(zeros, x, axis), factor.dtype)
    return idioms.cast(tensor("mul", centred, factor), out_dtype or "f32")


def _fake(x: Term, scale: Operand, zero: Operand, low: int, high: int) -> Term:
    """Quantize and dequantize: the kernel takes the scale, and its inverse, in float32."""
    if isinstance(zero, Term) and dtypes.is_float(zero.dtype):
        raise UnsupportedOpError("zero points that are floats")
    factor = idioms.cast(scale, "f32") if isinstance(scale, Term) else idioms.scalar(float(np.float32(scale)), "f32")
    integers = _bounded(x, tensor("div", idioms.scalar(1, "f32"), factor), zero, low, high)
    centred = tensor("sub", integers, idioms.typed(zero, integers.dtype))
    return idioms.cast(tensor("mul", *idioms.promoted(centred, factor)), x.dtype)


def _fake_tensor(x: Term, scale: Operand, zero: Operand, low: int, high: int) -> Term:
    return _fake(x, _one(scale), _one(zero), low, high)


def _fake_channels(x: Term, scale: Term, zero: Term, axis: int, low: int, high: int) -> Term:
    return _fake(x, _along(scale, x, axis), _along(zero, x, axis), low, high)


def _with_mask(row: Callable[..., Term]) -> Callable[..., tuple[Term, None]]:
    """Return a row without its second result, which gradients are for."""
    return lambda *given: (row(*given), None)


def _integer_product(a: Term, b: Term) -> Term:
    return idioms.matmul(idioms.cast(a, "i32"), idioms.cast(b, "i32"))


ROWS: dict[str, Callable[..., Any]] = {
    **{f"quantized_decomposed.quantize_per_tensor.{kind}": _quantize for kind in _PER_TENSOR},
    **{f"quantized_decomposed.dequantize_per_tensor.{kind}": _dequantize for kind in _PER_TENSOR},
    "quantized_decomposed.quantize_per_channel.default": _quantize_channels,
    "quantized_decomposed.dequantize_per_channel.default": _dequantize_channels,
    **{f"aten.fake_quantize_per_tensor_affine.{kind}": _fake_tensor for kind in ("default", "tensor_qparams")},
    "aten.fake_quantize_per_tensor_affine_cachemask.default": _with_mask(_fake_tensor),
    "aten.fake_quantize_per_channel_affine.default": _fake_channels,
    "aten.fake_quantize_per_channel_affine_cachemask.default": _with_mask(_fake_channels),
    "aten._int_mm.default": _integer_product,
}
"""What each overload means."""
