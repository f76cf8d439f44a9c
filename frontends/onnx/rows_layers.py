"""Rows of ONNX operators that are layers: products, convolutions, pools, normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

from frittata.egraph import shapes
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.ops.elements import fold_identity
from frittata.egraph.ops.registry import tensor
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import Term
from frittata.frontends import aten_scalars, idioms, idioms_indices, idioms_windows
from frittata.frontends.einsum import einsum
from frittata.frontends.onnx.tables import Row

Ints = tuple[int, ...]


def _gemm(
    a: Term, b: Term, c: Term | None = None, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> Term:
    left = idioms.swap(a) if transA else a
    outputs = b.shape[0 if transB else 1]
    if alpha == beta == 1 and transB and c is not None and c.shape == (outputs,):
        return idioms.linear(left, b, c)
    product = _scaled(idioms.matmul(left, idioms.swap(b) if transB else b), alpha)
    return product if c is None or beta == 0 else tensor("add", product, _scaled(c, beta))


def _scaled(x: Term, factor: float) -> Term:
    return x if factor == 1 else tensor("mul", x, idioms.scalar(factor, x.dtype))


def _padding(
    x: Term, kernel: Ints, stride: Ints, dilation: Ints, pads: Sequence[int] | None, auto_pad: str
) -> tuple[Ints, Ints]:
    """Return how much is padded before and after each spatial axis; `pads` do not count under another `auto_pad`."""
    rank = len(kernel)
    if auto_pad in ("NOTSET", ""):
        given = tuple(pads or (0,) * (2 * rank))
        return given[:rank], given[rank:]
    if auto_pad == "VALID":
        return (0,) * rank, (0,) * rank
    totals: list[int] = []
    for dim, k, s, d in zip(x.shape[-rank:], kernel, stride, dilation, strict=True):
        extent = idioms.number(dim)
        totals.append(max(0, (-(-extent // s) - 1) * s + d * (k - 1) + 1 - extent))
    less, more = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (less, more) if auto_pad == "SAME_UPPER" else (more, less)


def conv(
    x: Term,
    w: Term,
    bias: Term | None = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Term:
    rank = len(w.shape) - 2
    stride, dilation = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    kernel = tuple(map(idioms.number, w.shape[2:]))
    low, high = _padding(x, kernel, stride, dilation, pads, auto_pad)
    if low != high:
        x, low = idioms_windows.pad(x, low, high), (0,) * rank
    return idioms.convolution(x, w, bias, stride, low, dilation, group)


def _conv_transpose(
    x: Term,
    w: Term,
    bias: Term | None = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Term:
    """What is padded is cut off: of a result without padding where that differs between the sides."""
    rank = len(w.shape) - 2
    stride, dilation = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    extra = tuple(output_padding or (0,) * rank)
    spans = [d * (idioms.number(k) - 1) + 1 for d, k in zip(dilation, w.shape[2:], strict=True)]
    whole = [s * (idioms.number(n) - 1) + span for s, n, span in zip(stride, x.shape[2:], spans, strict=True)]
    if output_shape is not None or auto_pad.startswith("SAME"):
        wanted = output_shape or [idioms.number(n) * s for n, s in zip(x.shape[2:], stride, strict=True)]
        totals = [n + e - out for n, e, out in zip(whole, extra, wanted[-rank:], strict=True)]
        halves = tuple(t // 2 for t in totals)
        rests = tuple(t - t // 2 for t in totals)
        low, high = (halves, rests) if auto_pad == "SAME_UPPER" else (rests, halves)
    else:
        low, high = _padding(x, (1,) * rank, stride, dilation, pads, "NOTSET")
    padding = tuple(max(0, min(a, b)) for a, b in zip(low, high, strict=True))
    fits = all(e < max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True))
    attrs = {"stride": stride, "dilation": dilation, "groups": group}
    inner = extra if fits else (0,) * rank
    out = tensor("conv_transpose", x, w, padding=padding, output_padding=inner, **attrs)
    rest = tuple(0 if fits else e for e in extra)
    before = tuple(p - a for p, a in zip(padding, low, strict=True))
    after = tuple(p - b + r for p, b, r in zip(padding, high, rest, strict=True))
    out = idioms_windows.pad(out, before, after)
    return out if bias is None else tensor("add", out, idioms.per_channel(bias, rank + 2))


def _pooled(
    x: Term,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return what windows are like, with defaults filled in: kernel, stride, dilation, padding before and after."""
    kernel, ones = tuple(kernel_shape), (1,) * len(kernel_shape)
    stride, dilation = tuple(strides or ones), tuple(dilations or ones)
    return kernel, stride, dilation, *_padding(x, kernel, stride, dilation, pads, auto_pad)


def _max_pool(
    x: Term,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    results: int = 1,
) -> Term | tuple[Term, Term]:
    kernel, stride, dilation, low, high = _pooled(x, kernel_shape, strides, dilations, pads, auto_pad)
    rank = len(kernel)
    fits = low == high and all(2 * p <= d * (k - 1) + 1 for p, k, d in zip(low, kernel, dilation, strict=True))
    if results == 1 and fits:
        return idioms_windows.max_pool(x, kernel, stride, low, dilation, bool(ceil_mode))
    high = idioms_windows.reached(x, kernel, stride, dilation, low, high, bool(ceil_mode))
    nothing = fold_identity("max", x.dtype).value
    every = idioms_windows.windows(x, kernel, stride, dilation, low, high, nothing)
    found = idioms.reduce(every, "max", list(range(-rank, 0)))
    if results == 1:
        return found
    place = idioms_windows.max_pool_places(x, found, kernel, stride, dilation, low, high)
    return found, _in_memory(place, x.shape, bool(storage_order))


def _in_memory(place: Term, shape: Shape, by_columns: bool) -> Term:
    """Return where a tensor of this shape has the values at places of its planes, whose axes may be stored reversed."""
    batch, channels, *extents = map(idioms.number, shape)
    rank, plane = len(extents), prod(extents)
    if by_columns:
        rest, place, stride = place, idioms.scalar(0, "i64"), plane
        for extent in reversed(extents):
            stride //= extent
            axis = tensor("mod", rest, idioms.scalar(extent, "i64"))
            place = tensor("add", place, tensor("mul", axis, idioms.scalar(stride, "i64")))
            rest = tensor("floordiv", rest, idioms.scalar(extent, "i64"))
    number = idioms.reshape(idioms_indices.numbers(batch * channels, -1), (batch, channels, *(1,) * rank))
    return tensor("add", place, tensor("mul", number, idioms.scalar(plane, "i64")))


def _max_unpool(
    x: Term,
    places: Term,
    output_shape: Any = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Term:
    """Write values to their places in zeros, those of the whole tensor in order."""
    kernel, stride, _, low, high = _pooled(x, kernel_shape, strides, None, pads, "NOTSET")
    sides = zip(map(idioms.number, x.shape[2:]), kernel, stride, low, high, strict=True)
    shape = (*map(idioms.number, x.shape[:2]), *((n - 1) * s + k - a - b for n, k, s, a, b in sides))
    if output_shape is not None and tuple(output_shape) != shape:
        raise UnsupportedOpError(f"the output_shape {tuple(map(int, output_shape))}, which is not {shape}")
    flat = idioms.filled(0, (prod(shape),), x.dtype)
    found = idioms_indices.scatter(flat, 0, idioms.reshape(places, (-1,)), idioms.reshape(x, (-1,)))
    return idioms.reshape(found, shape)


def _col2im(
    x: Term,
    image_shape: Any,
    block_shape: Any,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Term:
    extents, kernel = ([int(extent) for extent in shape] for shape in (image_shape, block_shape))
    _, stride, dilation, low, high = _pooled(x, kernel, strides, dilations, pads, "NOTSET")
    return idioms_windows.folded(x, extents, tuple(kernel), stride, dilation, low, high)


def _sums(x: Term, kernel: Ints, stride: Ints, dilation: Ints, low: Ints, high: Ints) -> Term:
    """Sum windows, which zeros fill up."""
    every = idioms_windows.windows(x, kernel, stride, dilation, low, high, 0)
    return idioms.reduce(every, "sum", list(range(-len(kernel), 0)))


def avg_pool(
    x: Term,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Term:
    kernel, stride, dilation, low, high = _pooled(x, kernel_shape, strides, dilations, pads, auto_pad)
    rank = len(kernel)
    plain = low == high and set(dilation) == {1} and all(2 * p <= k for p, k in zip(low, kernel, strict=True))
    if plain:
        return idioms_windows.avg_pool(x, kernel, stride, low, bool(ceil_mode), bool(count_include_pad))
    reached = idioms_windows.reached(x, kernel, stride, dilation, low, high, bool(ceil_mode))
    ones = idioms.filled(1, (1,) * (len(x.shape) - rank) + x.shape[-rank:], x.dtype)
    before, after = low, reached
    if count_include_pad:
        ones = idioms_windows.pad(ones, low, tuple(map(min, high, reached)), 1)
        before, after = (0,) * rank, tuple(max(0, r - h) for r, h in zip(reached, high, strict=True))
    counts = _sums(ones, kernel, stride, dilation, before, after)
    return tensor("div", _sums(x, kernel, stride, dilation, low, reached), counts)


def _lp_pool(
    x: Term,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    p: float = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Term:
    kernel, stride, dilation, low, high = _pooled(x, kernel_shape, strides, dilations, pads, auto_pad)
    high = idioms_windows.reached(x, kernel, stride, dilation, low, high, bool(ceil_mode))
    total = _sums(idioms.power(tensor("abs", x), p), kernel, stride, dilation, low, high)
    return idioms.power(total, 1 / p)


def spatial_axes(x: Term) -> list[int]:
    """Return the axes after batch and channels.

    Raises: ModelError if there are none.
    """
    if len(x.shape) < 3:
        raise ModelError(f"a pool of {x.type}", do="give it axes after batch and channels")
    return list(range(2 - len(x.shape), 0))


def _global_lp_pool(x: Term, p: float = 2) -> Term:
    return _norm(x, spatial_axes(x), p)


def _norm(x: Term, axes: list[int], p: float) -> Term:
    return aten_scalars.ROWS["aten.linalg_vector_norm.default"](x, p, axes, True)


def _lp_normalization(x: Term, axis: int = -1, p: int = 2) -> Term:
    """Zeros stay zeros."""
    norm, zero = _norm(x, [axis], p), idioms.scalar(0, x.dtype)
    return tensor("where", tensor("eq", norm, zero), zero, tensor("div", x, norm))


def _global(fold: str) -> Row:
    def row(x: Term) -> Term:
        axes = spatial_axes(x)
        return idioms.mean(x, axes, True) if fold == "mean" else idioms.reduce(x, fold, axes, True)

    return Row(row)


def _batch_norm(
    x: Term,
    scale: Term,
    shift: Term,
    mean: Term,
    var: Term,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> tuple[Term, ...]:
    """With the statistics of the batch, if the mode asks for them: then the running ones are results, too."""
    if not training_mode:
        return (tensor("batch_norm", x, mean, var, scale, shift, eps=epsilon),)
    others = [axis for axis in range(len(x.shape)) if axis != 1]
    batch = idioms.mean(x, others), idioms.variance(x, others, correction=0)
    running = (_mixed(new, old, momentum) for new, old in zip(batch, (mean, var), strict=True))
    return tensor("batch_norm", x, *batch, scale, shift, eps=epsilon), *running


def _mixed(x: Term, y: Term, share: float) -> Term:
    """Return x with that share of y."""
    parts = ((x, 1 - share), (y, share))
    return tensor("add", *(tensor("mul", part, idioms.scalar(factor, part.dtype)) for part, factor in parts))


def _batch_norm_by_flag(*operands: Term, is_test: int = 0, results: int = 1, **options: Any) -> tuple[Term, ...]:
    """Up to opset 6 an attribute asks for the statistics of the batch, too, where it is left out."""
    return _batch_norm_by_results(*operands, results=max(results, 1 + (not is_test)), **options)


def _batch_norm_by_results(
    *operands: Term, epsilon: float = 1e-5, momentum: float = 0.9, spatial: int = 1, results: int = 1
) -> tuple[Term, ...]:
    """Up to opset 13 it is the number of results that asks for the statistics of the batch."""
    if not spatial:
        raise UnsupportedOpError("spatial=0")
    if results > 1:
        raise ModelError("batch norm with the statistics of the batch", do="export the model in eval mode")
    return _batch_norm(*operands, epsilon=epsilon)


def _instance_norm(x: Term, scale: Term, shift: Term, epsilon: float = 1e-5) -> Term:
    return tensor("group_norm", x, scale, shift, groups=idioms.number(x.shape[1]), eps=epsilon)


def _group_norm(x: Term, scale: Term, shift: Term, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1) -> Term:
    return tensor("group_norm", x, scale, shift, groups=num_groups, eps=epsilon)


def _group_norm_of_groups(x: Term, scale: Term, shift: Term, num_groups: int, epsilon: float = 1e-5) -> Term:
    """Up to opset 20 there is one weight for a group."""
    each = idioms.number(x.shape[1]) // num_groups
    weight, bias = (idioms_indices.repeat_each(w, each, 0) for w in (scale, shift))
    return _group_norm(x, weight, bias, num_groups, epsilon)


def _normalized(x: Term, axis: int) -> tuple[int, tuple[Any, ...]]:
    """Return the size of the axes from `axis` on, and the shape in which they are one."""
    at = idioms.negative_axis(axis, len(x.shape)) + len(x.shape)
    extent = prod(map(idioms.number, x.shape[at:]))
    return extent, (*x.shape[:at], extent)


def _layer_norm(
    x: Term,
    scale: Term,
    shift: Term | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    results: int = 1,
) -> Any:
    extent, shape = _normalized(x, axis)
    inner = x.shape[axis:]
    weights = (idioms.filled(0, (extent,), x.dtype) if w is None else _vector(w, inner) for w in (scale, shift))
    out = idioms.reshape(tensor("layer_norm", idioms.reshape(x, shape), *weights, eps=epsilon), x.shape)
    if results == 1:
        return out
    axes = range(axis % len(x.shape) - len(x.shape), 0)
    deviation = tensor("add", idioms.variance(x, axes, 0, True), idioms.scalar(epsilon, x.dtype))
    return out, idioms.mean(x, axes, True), tensor("rsqrt", deviation)


def _vector(weight: Term, shape: Shape) -> Term:
    """Return a weight as it is spread over the axes that are normalized, as one axis."""
    lead, own = weight.shape[: -len(shape)], weight.shape[-len(shape) :]
    if any(dim != 1 for dim in lead):
        raise UnsupportedOpError(f"a weight of {weight.type} for values of shape {shapes.fmt(shape)}")
    return idioms.reshape(idioms.expand(idioms.reshape(weight, own), shape), (-1,))


def _rms_norm(x: Term, scale: Term, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Term:
    _, shape = _normalized(x, axis)
    out = tensor("rms_norm", idioms.reshape(x, shape), _vector(scale, x.shape[axis:]), eps=epsilon)
    return idioms.reshape(out, x.shape)


def _response_norm(x: Term, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Term:
    """Divide by a power of the mean of squares over neighbouring channels; those beyond the ends are zeros."""
    channels, rest = idioms.number(x.shape[1]), (0,) * (len(x.shape) - 2)
    low = (size - 1) // 2
    squares = idioms_windows.pad(tensor("square", x), (low, *rest), (size - 1 - low, *rest))
    shifted = (idioms.take_slice(squares, 1, at, 1, channels) for at in range(size))
    total = reduce(lambda a, b: tensor("add", a, b), shifted)
    base = tensor("add", _scaled(total, alpha / size), idioms.scalar(bias, x.dtype))
    return tensor("div", x, idioms.power(base, beta))


def _log_softmax(x: Term, axis: int = -1) -> Term:
    return idioms.log_softmax(x, axis)


def _softmax(x: Term, axis: int = -1) -> Term:
    return tensor("softmax", x, axis=idioms.negative_axis(axis, len(x.shape)))


def _hardmax(x: Term, axis: int = -1) -> Term:
    """Return one where the first of the largest values along an axis stands."""
    at = idioms.negative_axis(axis, len(x.shape))
    numbers = idioms_indices.numbers(idioms.number(x.shape[at]), at)
    return idioms.cast(tensor("eq", numbers, tensor("argmax", x, axis=at)), x.dtype)


def _einsum(*operands: Term, equation: str) -> Term:
    return einsum(equation, operands)


def _over_rest(row: Any) -> Any:
    """Up to opset 12 all axes from `axis` on are one."""

    def old(x: Term, axis: int = 1) -> Term:
        _, shape = _normalized(x, axis)
        return idioms.reshape(row(idioms.reshape(x, shape), -1), x.shape)

    return old


ROWS: dict[str, tuple[Row, ...]] = {
    "MatMul": (Row(idioms.matmul),),
    "Gemm": (Row(_gemm),),
    "Einsum": (Row(_einsum),),
    "Conv": (Row(conv),),
    "ConvTranspose": (Row(_conv_transpose),),
    "MaxPool": (Row(_max_pool),),
    "AveragePool": (Row(avg_pool),),
    "LpPool": (Row(_lp_pool),),
    "GlobalLpPool": (Row(_global_lp_pool),),
    "GlobalAveragePool": (_global("mean"),),
    "GlobalMaxPool": (_global("max"),),
    "Col2Im": (Row(_col2im, known=(1, 2)),),
    "MaxUnpool": (Row(_max_unpool, known=(2,)),),
    "BatchNormalization": (
        Row(_batch_norm_by_flag, forwards=_batch_norm_by_results),
        Row(_batch_norm_by_results, since=7),
        Row(_batch_norm, since=14),
    ),
    "InstanceNormalization": (Row(_instance_norm),),
    "GroupNormalization": (Row(_group_norm_of_groups), Row(_group_norm, since=21)),
    "LayerNormalization": (Row(_layer_norm),),
    "LRN": (Row(_response_norm),),
    "LpNormalization": (Row(_lp_normalization),),
    "RMSNormalization": (Row(_rms_norm),),
    "Hardmax": (Row(_over_rest(_hardmax)), Row(_hardmax, since=13)),
    "Softmax": (Row(_over_rest(_softmax)), Row(_softmax, since=13)),
    "LogSoftmax": (Row(_over_rest(_log_softmax)), Row(_log_softmax, since=13)),
}
"""What each operator means, by opset."""
