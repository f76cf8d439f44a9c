"""Rows of operators of ONNX Runtime's own domain, those that its quantizer makes: bytes around an operator on floats.

Source: onnxruntime, docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms
from frittata.frontends.onnx import rows_layers
from frittata.frontends.onnx.rows_quantized import dequantized, quantized_to
from frittata.frontends.onnx.tables import Row


def _gemm(
    a: Term,
    a_scale: Term,
    a_zero: Term | None,
    b: Term,
    b_scale: Term,
    b_zero: Term | None,
    c: Term | None = None,
    y_scale: Term | None = None,
    y_zero: Term | None = None,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Term:
    left, right = dequantized(a, a_scale, a_zero, axis=0), dequantized(b, b_scale, b_zero, axis=1 - transB)
    product = idioms.matmul(_turned(left) if transA else left, _turned(right) if transB else right)
    if c is not None:
        scale = tensor("mul", a_scale, b_scale)
        product = tensor("add", product, tensor("mul", idioms.cast(c, scale.dtype), scale))
    if alpha != 1.0:
        product = tensor("mul", product, idioms.scalar(alpha, product.dtype))
    return product if y_scale is None else quantized_to(a.dtype, product, y_scale, y_zero)


def _turned(x: Term) -> Term:
    return tensor("permute", x, permutation=(1, 0))


def _between(operator: Callable[..., Term]) -> Callable[..., Term]:
    """Return an operator on two tensors of bytes, each with its scale and zero point."""

    def row(
        a: Term,
        a_scale: Term,
        a_zero: Term | None,
        b: Term,
        b_scale: Term,
        b_zero: Term | None,
        y_scale: Term,
        y_zero: Term | None = None,
    ) -> Term:
        found = operator(dequantized(a, a_scale, a_zero), dequantized(b, b_scale, b_zero))
        return quantized_to(a.dtype, found, y_scale, y_zero)

    return row


def _around(operator: Callable[..., Term]) -> Callable[..., Term]:
    """Return an operator on one tensor of bytes."""

    def row(
        x: Term, x_scale: Term, x_zero: Term | None, y_scale: Term, y_zero: Term | None = None, **attributes: Any
    ) -> Term:
        return quantized_to(x.dtype, operator(dequantized(x, x_scale, x_zero), **attributes), y_scale, y_zero)

    return row


def _global_mean(x: Term, channels_last: int = 0) -> Term:
    _check_channels_first(channels_last)
    return idioms.mean(x, rows_layers.spatial_axes(x), True)


def _mean(
    x: Term,
    x_scale: Term,
    x_zero: Term | None,
    y_scale: Term,
    y_zero: Term | None = None,
    channels_last: int = 0,
    **window: Any,
) -> Term:
    _check_channels_first(channels_last)
    found = rows_layers.avg_pool(dequantized(x, x_scale, x_zero), **window)
    return quantized_to(x.dtype, found, y_scale, y_zero)


def _check_channels_first(channels_last: int) -> None:
    if channels_last:
        raise UnsupportedOpError("channels_last")


def _concat(y_scale: Term, y_zero: Term | None, *parts: Term, axis: int = 1) -> Term:
    given = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    joined = tensor("concat", *(dequantized(*part) for part in given), axis=axis - len(parts[0].shape) * (axis >= 0))
    return quantized_to(parts[0].dtype, joined, y_scale, y_zero)


def _leaky_relu(x: Term, alpha: float = 0.01) -> Term:
    zero = idioms.scalar(0, x.dtype)
    return tensor("where", tensor("lt", x, zero), tensor("mul", x, idioms.scalar(alpha, x.dtype)), x)


ROWS: dict[str, tuple[Row, ...]] = {
    "QGemm": (Row(_gemm),),
    "QLinearAdd": (Row(_between(lambda a, b: tensor("add", a, b))),),
    "QLinearMul": (Row(_between(lambda a, b: tensor("mul", a, b))),),
    "QLinearSigmoid": (Row(_around(lambda x: tensor("sigmoid", x))),),
    "QLinearLeakyRelu": (Row(_around(_leaky_relu), forwards=_leaky_relu),),
    "QLinearGlobalAveragePool": (Row(_around(_global_mean), forwards=_global_mean),),
    "QLinearAveragePool": (Row(_mean, forwards=rows_layers.avg_pool),),
    "QLinearConcat": (Row(_concat),),
}
"""What each operator means."""
