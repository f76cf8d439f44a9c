"""Rows of aten operators that are layers: products, convolutions, normalizations, attention, a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from frittata.egraph import dtypes
from frittata.egraph.errors import ModelError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import aten_windows, idioms, idioms_indices, idioms_windows
from frittata.frontends.einsum import einsum, sums_alone


def _scaled(x: Term, factor: float) -> Term:
    return x if factor == 1 else tensor("mul", x, idioms.scalar(factor, x.dtype))


def _added(multiply: Callable[[Term, Term], Term]) -> Callable[..., Term]:
    """Return what adds a product to a tensor."""

    def row(x: Term, a: Term, b: Term, beta: float = 1, alpha: float = 1) -> Term:
        product = _scaled(multiply(a, b), alpha)
        return product if beta == 0 else tensor("add", _scaled(x, beta), product)

    return row


def _bilinear(x: Term, y: Term, weight: Term, bias: Term | None = None) -> Term:
    """(*batch, n), (*batch, m), (outputs, n, m) -> (*batch, outputs)."""
    out = einsum("...i,...j,oij->...o", (x, y, weight))
    return out if bias is None else tensor("add", out, bias)


def _outer(a: Term, b: Term) -> Term:
    first, second = idioms.promoted(idioms.unsqueeze(a, -1), b)
    return tensor("and" if first.dtype == "bool" else "mul", first, second)


def _pair(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    given = [value] if isinstance(value, int) else list(value)
    return tuple(given * rank if len(given) == 1 else given)


def _conv(rank: int) -> Callable[..., Term]:
    def row(
        x: Term,
        weight: Term,
        bias: Term | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Term:
        steps, gaps = _pair(stride, rank), _pair(dilation, rank)
        batched = x if len(x.shape) == rank + 2 else idioms.reshape(x, (1, *x.shape))
        if isinstance(padding, str):
            padded, pads = _named_padding(padding, batched, weight, gaps)
        else:
            padded, pads = batched, _pair(padding, rank)
        out = idioms.convolution(padded, weight, bias, steps, pads, gaps, groups)
        return out if batched is x else idioms.reshape(out, out.shape[1:])

    return row


def _named_padding(padding: str, x: Term, weight: Term, dilation: tuple[int, ...]) -> tuple[Term, tuple[int, ...]]:
    """Return the input, with one more zero at the end where both sides cannot have as many, and the padding."""
    kernel = [idioms.number(dim) for dim in weight.shape[2:]]
    totals = [gap * (k - 1) if padding == "same" else 0 for gap, k in zip(dilation, kernel, strict=True)]
    odd = idioms_windows.pad(x, [0] * len(totals), [total % 2 for total in totals])
    return odd, tuple(total // 2 for total in totals)


def _convolution(
    x: Term,
    w: Term,
    bias: Term | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Term:
    rank = len(w.shape) - 2
    if transposed:
        return aten_windows.conv_transpose(rank)(x, w, bias, stride, padding, output_padding, groups, dilation)
    return _conv(rank)(x, w, bias, stride, padding, dilation, groups)


def _layer_norm(
    x: Term, axes: list[int], weight: Term | None = None, bias: Term | None = None, eps: float = 1e-5, *_: Any
) -> Term:
    """Several normalized axes are one axis first."""
    extent = prod(idioms.number(dim) for dim in axes)
    lead = x.shape[: len(x.shape) - len(axes)]
    scale = idioms.filled(1, (extent,), x.dtype) if weight is None else idioms.reshape(weight, (extent,))
    shift = idioms.filled(0, (extent,), x.dtype) if bias is None else idioms.reshape(bias, (extent,))
    out = tensor("layer_norm", idioms.reshape(x, (*lead, extent)), scale, shift, eps=float(eps))
    return idioms.reshape(out, x.shape)


def _native_layer_norm(x: Term, axes: list[int], weight: Term | None, bias: Term | None, eps: float) -> Any:
    out = _layer_norm(x, axes, weight, bias, eps)
    if dtypes.is_narrow(x.dtype):  # of which torch has the statistics in another dtype
        return out, None, None
    last = list(range(-len(axes), 0))
    spread = tensor("add", idioms.variance(x, last, 0, keep=True), idioms.scalar(float(eps), x.dtype))
    return out, idioms.mean(x, last, keep=True), tensor("rsqrt", spread)


def _flash_attention(
    q: Term, k: Term, v: Term, dropout: float = 0.0, causal: bool = False, attn_mask: Any = None, scale: Any = None
) -> Any:
    """The second result, logarithms of sums, is another in torch's decomposition: there it is the weights."""
    return _attention(q, k, v, attn_mask, dropout, causal, scale=scale), None


def _einsum(subscripts: str, operands: Sequence[Term], path: Sequence[int] | None = None) -> Term:
    """Integers of which there is a sum without a product become ones of 64 bits, as of other sums."""
    if not dtypes.is_float(operands[0].dtype) and sums_alone(subscripts, [len(x.shape) for x in operands]):
        operands = [idioms.cast(x, "i64") for x in operands]
    return einsum(subscripts, operands, path, drops_batch=True)


def _batch_norm_inference(
    x: Term, weight: Term | None, bias: Term | None, mean: Term, var: Term, momentum: float, eps: float
) -> Term:
    scale = idioms.filled(1, mean.shape, x.dtype) if weight is None else weight
    shift = idioms.filled(0, mean.shape, x.dtype) if bias is None else bias
    return tensor("batch_norm", x, mean, var, scale, shift, eps=float(eps))


def _batch_norm(
    x: Term,
    weight: Term | None,
    bias: Term | None,
    mean: Term | None,
    var: Term | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool = False,
) -> Term:
    if mean is None or var is None:  # without running statistics, those of the batch
        others = [axis for axis in range(len(x.shape)) if axis != 1]
        mean, var = idioms.mean(x, others), idioms.variance(x, others, correction=0)
    elif training:
        do = "call model.eval() before the export; F.batch_norm with training=True takes None for running statistics"
        raise ModelError("batch norm changes its running statistics", do=do)
    return _batch_norm_inference(x, weight, bias, mean, var, momentum, eps)


def _softmax(x: Term, axis: int, dtype: str | bool | None = None) -> Term:
    def meaning(x: Term) -> Term:
        if not x.shape:
            return idioms.reshape(tensor("softmax", idioms.reshape(x, (1,)), axis=-1), ())
        return tensor("softmax", x, axis=idioms.negative_axis(axis, len(x.shape)))

    kind = dtype if isinstance(dtype, str) else x.dtype
    return idioms.within(kind if dtypes.is_float(kind) else idioms.float_dtype(), meaning, x)


def _log_softmax(x: Term, axis: int, dtype: str | bool | None = None) -> Term:
    kind = dtype if isinstance(dtype, str) else x.dtype
    return idioms.within(kind, lambda wide: idioms.log_softmax(wide, axis), x)


def _attention(
    q: Term,
    k: Term,
    v: Term,
    mask: Term | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Term:
    if dropout_p:
        raise ModelError("attention with dropout is random", do="call model.eval() before the export")
    factor = float(scale) if scale is not None else idioms.number(q.shape[-1]) ** -0.5
    groups = idioms.number(q.shape[-3]) // idioms.number(k.shape[-3]) if enable_gqa else 1
    return idioms_indices.attention(q, k, v, factor, mask, is_causal, groups)


def _multilabel_margin_loss(x: Term, labels: Term, reduction: int = 1) -> Term:
    """Add max(0, 1 - x[label] + x[other]) over labels and classes that are none, and divide by the classes.

    Labels behind the first that is negative do not count.
    """
    if not x.shape:
        x, labels = idioms.unsqueeze(x, 0), idioms.unsqueeze(labels, 0)
    classes = idioms.number(x.shape[-1])
    place = idioms_indices.numbers(classes, -1)
    begun = tensor("where", tensor("lt", labels, idioms.like(labels, 0)), place, idioms.like(place, classes))
    is_label = tensor("lt", place, idioms.reduce(begun, "min", [-1], True))
    at = tensor("where", is_label, labels, idioms.like(labels, 0))
    is_meant = tensor("and", tensor("eq", idioms.unsqueeze(at, -1), place), idioms.unsqueeze(is_label, -1))
    is_other = tensor("not", idioms.unsqueeze(idioms.extreme(is_meant, "max", [-2]), -2))
    scores = tensor("sub", idioms.like(x, 1), idioms_indices.gather(x, at, -1))
    margin = tensor("add", idioms.unsqueeze(scores, -1), idioms.unsqueeze(x, -2))
    counts = tensor("and", idioms.unsqueeze(is_label, -1), is_other)
    counts = tensor("and", counts, tensor("gt", margin, idioms.like(x, 0)))
    total = idioms.reduce(tensor("where", counts, margin, idioms.like(x, 0)), "sum", [-2, -1])
    loss = tensor("div", total, idioms.like(x, classes))
    return loss if not reduction else idioms.mean(loss) if reduction == 1 else idioms.reduce(loss, "sum")


ROWS: dict[str, Callable[..., Any]] = {
    "aten.linear.default": lambda x, weight, bias=None: idioms.linear(x, weight, bias),
    **{f"aten.{name}.default": idioms.matmul for name in ("matmul", "mm", "bmm", "mv", "dot")},
    "aten.einsum.default": _einsum,
    **{f"aten.{name}.default": _added(idioms.matmul) for name in ("addmm", "baddbmm", "addmv")},
    "aten.addbmm.default": _added(lambda a, b: einsum("bij,bjk->ik", (a, b))),
    "aten.bilinear.default": _bilinear,
    "aten.outer.default": _outer,
    **{f"aten.conv{rank}d.{kind}": _conv(rank) for rank in (1, 2, 3) for kind in ("default", "padding")},
    "aten.convolution.default": _convolution,
    "aten.layer_norm.default": _layer_norm,
    "aten.native_layer_norm.default": _native_layer_norm,
    "aten.batch_norm.default": _batch_norm,
    "aten._native_batch_norm_legit_no_training.default": lambda *args: (_batch_norm_inference(*args), None, None),
    "aten.softmax.int": _softmax,
    "aten._softmax.default": _softmax,
    "aten.log_softmax.int": _log_softmax,
    "aten._log_softmax.default": _log_softmax,
    "aten.scaled_dot_product_attention.default": _attention,
    "aten.multilabel_margin_loss.default": _multilabel_margin_loss,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _flash_attention,
}
"""What each overload means."""
