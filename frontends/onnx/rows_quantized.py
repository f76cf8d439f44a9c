"""Rows of ONNX operators on integers that stand for reals: (integer - zero point) * scale."""

from __future__ import annotations

from typing import Any

from frittata.egraph import dtypes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.elements import fold_identity
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms
from frittata.frontends.onnx import rows_layers
from frittata.frontends.onnx.tables import DTYPE_BY_ONNX, Row


def _along(values: Term, x: Term, axis: int, block: int = 0) -> Term:
    """Return values as they are spread over x: one for all, one for each place on an axis, or for each block of it."""
    if block:
        at = axis % len(x.shape)
        before, count, after = values.shape[:at], values.shape[at], values.shape[at + 1 :]
        blocks = idioms.expand(idioms.reshape(values, (*before, count, 1, *after)), (*before, count, block, *after))
        every = idioms.reshape(blocks, (*before, idioms.number(count) * block, *after))
        return idioms.take_slice(every, at - len(x.shape), 0, 1, idioms.number(x.shape[at]))
    if len(values.shape) != 1 or values.shape[0] == 1:
        return idioms.reshape(values, ()) if values.shape == (1,) else values
    return idioms.reshape(values, (*values.shape, *(1,) * (len(x.shape) - 1 - axis % len(x.shape))))


def _dtype(number: int) -> DType:
    if number not in DTYPE_BY_ONNX:
        raise UnsupportedOpError(f"output_dtype {number}")
    return DTYPE_BY_ONNX[number]


def _wide(x: Term) -> Term:
    return idioms.cast(x, dtypes.wide(x.dtype))


def dequantized(
    x: Term,
    scale: Term,
    zero: Term | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Term:
    factor = _wide(_along(scale, x, axis, block_size))
    kind = factor.dtype if dtypes.is_narrow(x.dtype) else "i32"  # float32 holds integers of 17 bits
    result = _scaled(_centred(x, zero, axis, block_size, kind), factor)
    return idioms.cast(result, _dtype(output_dtype) if output_dtype else scale.dtype)


def _centred(x: Term, zero: Term | None, axis: int, block: int = 0, kind: DType = "i32") -> Term:
    """Return x - zero point, in a wide dtype unless the zero point is 0."""
    if zero is None or (zero.op == "full" and not zero.attrs[0].value):
        return x
    if zero.op == "full":
        return tensor("sub", idioms.cast(x, kind), idioms.scalar(zero.attrs[0].value, kind))
    return tensor("sub", idioms.cast(x, kind), idioms.cast(_along(zero, x, axis, block), kind))


def quantized(
    x: Term,
    scale: Term,
    zero: Term | None = None,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
) -> Term:
    if precision:
        raise UnsupportedOpError("precision")
    return quantized_to(_dtype(output_dtype) if output_dtype else "u8", x, scale, zero, axis, block_size)


def quantized_to(
    default: DType, x: Term, scale: Term, zero: Term | None, axis: int = 1, block_size: int = 0
) -> Term:
    """Quantize to the dtype of the zero point, or to another one without it."""
    kind = default if zero is None else zero.dtype
    wide = dtypes.wide(idioms.promoted_dtype(idioms.as_float(x), scale))
    quotient = tensor("div", idioms.cast(x, wide), idioms.cast(_along(scale, x, axis, block_size), wide))
    return _saturated(quotient, None if zero is None else _along(zero, x, axis, block_size), kind)


def _saturated(x: Term, zero: Term | None, kind: DType) -> Term:
    """Round to the nearest integer, ties to even, add a zero point, and bound the sum to what the dtype holds."""
    if not dtypes.is_integer(kind) or not dtypes.is_narrow(kind):
        raise UnsupportedOpError(f"quantization to {kind}")
    rounded = tensor("round", x)
    shifted = rounded if zero is None else tensor("add", rounded, idioms.cast(zero, x.dtype))
    low, high = (idioms.scalar(fold_identity(op, kind).value, x.dtype) for op in ("max", "min"))
    return idioms.cast(tensor("min", tensor("max", shifted, low), high), kind)


def _matmul_integer(a: Term, b: Term, a_zero: Term | None = None, b_zero: Term | None = None) -> Term:
    return idioms.matmul(idioms.cast(_centred(a, a_zero, -2), "i32"), idioms.cast(_centred(b, b_zero, -1), "i32"))


def _conv_integer(x: Term, w: Term, x_zero: Term | None = None, w_zero: Term | None = None, **window: Any) -> Term:
    image, weights = (idioms.cast(_centred(*given), "i32") for given in ((x, x_zero, 1), (w, w_zero, 0)))
    return rows_layers.conv(image, weights, **window)


def _linear_matmul(
    a: Term,
    a_scale: Term,
    a_zero: Term,
    b: Term,
    b_scale: Term,
    b_zero: Term,
    y_scale: Term,
    y_zero: Term,
) -> Term:
    product = _matmul_integer(a, b, a_zero, b_zero)
    scale = tensor("mul", _wide(_along(a_scale, a, -2)), _wide(_along(b_scale, b, -1)))
    factor = tensor("div", scale, _wide(_along(y_scale, product, -2)))
    return _saturated(_scaled(product, factor), _along(y_zero, product, -2), y_zero.dtype)


def _linear_conv(
    x: Term,
    x_scale: Term,
    x_zero: Term,
    w: Term,
    w_scale: Term,
    w_zero: Term,
    y_scale: Term,
    y_zero: Term,
    bias: Term | None = None,
    **window: Any,
) -> Term:
    product = _conv_integer(x, w, x_zero, w_zero, **window)
    if bias is not None:
        product = tensor("add", product, _along(bias, product, 1))
    factor = tensor("div", tensor("mul", _wide(x_scale), _wide(w_scale)), _wide(y_scale))
    return _saturated(_scaled(product, _along(factor, product, 1)), y_zero, y_zero.dtype)


def _scaled(product: Term, factor: Term) -> Term:
    return tensor("mul", idioms.cast(product, factor.dtype), factor)


ROWS: dict[str, tuple[Row, ...]] = {
    "DequantizeLinear": (Row(dequantized, by_value=True),),
    "QuantizeLinear": (Row(quantized),),
    "MatMulInteger": (Row(_matmul_integer),),
    "ConvInteger": (Row(_conv_integer, forwards=rows_layers.conv),),
    "QLinearMatMul": (Row(_linear_matmul),),
    "QLinearConv": (Row(_linear_conv, forwards=rows_layers.conv),),
}
"""What each operator means, by opset."""
