"""Rows of ONNX operators that work value by value, or fold axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Scalar, Term
from frittata.frontends import aten_scalars, aten_views, idioms, idioms_linalg
from frittata.frontends.onnx.tables import DTYPE_BY_ONNX, Row, dtype_of


def _number(x: Term, value: float) -> Term:
    return idioms.scalar(value, x.dtype)


def _binary(op: str) -> Row:
    """Old opsets broadcast only where asked to, and from an axis of their own."""

    def row(x: Term, y: Term, axis: int | None = None, broadcast: int = 0) -> Term:
        if axis is not None:
            y = idioms.reshape(y, (*y.shape, *(1,) * (len(x.shape) - len(y.shape) - axis % len(x.shape))))
        return tensor(op, x, y)

    return Row(row)


def _unary(op: str) -> Row:
    return Row(lambda x: tensor(op, x))


def _div(x: Term, y: Term) -> Term:
    """Quotients of integers are rounded towards zero."""
    return tensor("div", x, y) if dtypes.is_float(x.dtype) else aten_scalars.divide(x, y, "trunc")


def _mod(x: Term, y: Term, fmod: int = 0) -> Term:
    """The remainder has the sign of y, with `fmod` that of x."""
    return aten_scalars.ROWS["aten.fmod.Tensor"](x, y) if fmod else tensor("mod", x, y)


def _pow(x: Term, y: Term) -> Term:
    """The result has the dtype of the base."""
    value = y.attrs[0] if y.op == "full" else None
    if not dtypes.is_float(x.dtype):
        return _power_of_integers(x, y)
    if isinstance(value, Scalar):
        return idioms.expand(idioms.power(x, value.value), shapes.broadcast(x.shape, y.shape))
    return tensor("pow", x, idioms.cast(y, x.dtype))


_BITS = 6
"""How many bits of an exponent are looked at: what is not 0, 1 or -1 is beyond all integers with 64."""


def _power_of_integers(x: Term, y: Term) -> Term:
    """Multiply repeated squares; powers of floats are computed as such, and rounded towards zero."""
    if dtypes.is_float(y.dtype):
        return idioms.cast(tensor("pow", idioms.cast(x, "f64"), idioms.cast(y, "f64")), x.dtype)
    odd = tensor("bitwise_and", y, _number(y, 1))
    out, square = _number(x, 1), x
    below, above = tensor("lt", y, _number(y, 0)), tensor("ge", y, _number(y, 2**_BITS))
    shortened = tensor("where", above, tensor("add", odd, _number(y, 2**_BITS - 2)), y)
    exponent = tensor("where", below, odd, shortened)
    for bit in range(_BITS):
        own = tensor("bitwise_and", tensor("right_shift", exponent, _number(y, bit)), _number(y, 1))
        out = tensor("mul", out, tensor("where", tensor("ne", own, _number(y, 0)), square, _number(x, 1)))
        square = tensor("mul", square, square)
    vanishes = tensor("and", below, tensor("ne", tensor("abs", x), _number(x, 1)))
    return tensor("where", vanishes, _number(x, 0), out)


def _bit_shift(x: Term, y: Term, direction: str) -> Term:
    return tensor(f"{direction.lower()}_shift", x, y)


def _many(op: str) -> Row:
    return Row(lambda *operands: reduce(lambda x, y: tensor(op, x, y), operands))


def _mean(*operands: Term) -> Term:
    total = reduce(lambda x, y: tensor("add", x, y), operands)
    return tensor("div", total, _number(total, len(operands)))


def _clip(x: Term, min: Any = None, max: Any = None) -> Term:
    low, high = (None if bound is None else idioms.typed(bound, x.dtype) for bound in (min, max))
    x = x if low is None else tensor("max", x, low)
    return x if high is None else tensor("min", x, high)


def _between(x: Term, low: float, high: float) -> Term:
    return tensor("min", tensor("max", x, _number(x, low)), _number(x, high))


def _gelu(x: Term, approximate: str = "none") -> Term:
    return tensor("gelu_tanh" if approximate == "tanh" else "gelu", x)


def _softplus(x: Term) -> Term:
    """log(1 + exp(x)) without overflow."""
    small = tensor("exp", tensor("neg", tensor("abs", x)))
    return tensor("add", tensor("max", x, _number(x, 0)), tensor("log1p", small))


def _hard_sigmoid(x: Term, alpha: float = 0.2, beta: float = 0.5) -> Term:
    return _between(tensor("add", tensor("mul", x, _number(x, alpha)), _number(x, beta)), 0, 1)


def _elu(x: Term, alpha: float = 1.0) -> Term:
    below = tensor("mul", tensor("expm1", x), _number(x, alpha))
    return tensor("where", tensor("gt", x, _number(x, 0)), x, below)


def _selu(x: Term, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Term:
    return tensor("mul", _elu(x, alpha), _number(x, gamma))


def _celu(x: Term, alpha: float = 1.0) -> Term:
    zero, scale = _number(x, 0), _number(x, alpha)
    below = tensor("mul", tensor("expm1", tensor("div", x, scale)), scale)
    return tensor("add", tensor("max", x, zero), tensor("min", below, zero))


def _prelu(x: Term, slope: Term) -> Term:
    return tensor("where", tensor("lt", x, _number(x, 0)), tensor("mul", x, slope), x)


def _prelu_of_channels(x: Term, slope: Term) -> Term:
    """Up to opset 6 there is one slope for a channel, or for all."""
    return _prelu(x, idioms.per_channel(slope, len(x.shape)) if len(slope.shape) == 1 else slope)


def _cast(x: Term, to: int, saturate: int = 1) -> Term:
    if to not in DTYPE_BY_ONNX:
        raise UnsupportedOpError(f"cast to dtype {to}")
    return idioms.cast(x, DTYPE_BY_ONNX[to])


def _bits(x: Term, to: int) -> Term:
    return aten_views.ROWS["aten.view.dtype"](x, dtype_of(to, "BitCast"))


def _isinf(x: Term, detect_negative: int = 1, detect_positive: int = 1) -> Term:
    infinite = _number(x, float("inf"))
    if detect_negative and detect_positive:
        return tensor("eq", tensor("abs", x), infinite)
    if not detect_negative and not detect_positive:
        return idioms.filled(False, x.shape, "bool")
    return tensor("eq", x if detect_positive else tensor("neg", x), infinite)


_IS_RANDOM, _EVAL = "dropout in training mode is random", "export the model in eval mode"


def _dropout_by_flag(x: Term, ratio: float = 0.5, is_test: int = 0) -> Term:
    """Up to opset 6 it drops values unless it is a test."""
    if not is_test:
        raise ModelError(_IS_RANDOM, do=_EVAL)
    return x


def _dropout(x: Term, ratio: Any = 0.5, training_mode: Any = None, seed: int = 0, results: int = 1) -> Any:
    if training_mode is not None and bool(training_mode.item()):
        raise ModelError(_IS_RANDOM, do=_EVAL)
    return (x, idioms.filled(True, x.shape, "bool"))[:results]


Fold = Callable[[Term, Sequence[int] | None, bool], Term]


def _reduction(fold: Fold) -> Row:
    """No axes mean all, unless `noop_with_empty_axes`."""

    def row(x: Term, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Term:
        chosen = None if axes is None else [int(axis) for axis in axes]
        if not chosen and noop_with_empty_axes:
            return fold(idioms.unsqueeze(x, -1), [-1], False)
        return fold(x, chosen or None, bool(keepdims))

    return Row(row, known=(1,))


def _fold(name: str) -> Fold:
    return lambda x, axes, keep: idioms.reduce(x, name, axes, keep)


def _extreme(name: str) -> Fold:
    """Bools are folded as integers."""

    def fold(x: Term, axes: Sequence[int] | None, keep: bool) -> Term:
        if x.dtype != "bool":
            return idioms.reduce(x, name, axes, keep)
        found = idioms.reduce(idioms.cast(x, "i32"), name, axes, keep)
        return tensor("ne", found, idioms.scalar(0, "i32"))

    return fold


def _log_sum_exp(x: Term, axes: Sequence[int] | None, keep: bool) -> Term:
    """Shift by the maximum, or by nothing where that is infinite."""
    top = idioms.reduce(x, "max", axes, True)
    finite = tensor("lt", tensor("abs", top), _number(x, float("inf")))
    shift = tensor("where", finite, top, _number(x, 0))
    total = tensor("log", idioms.reduce(tensor("exp", tensor("sub", x, shift)), "sum", axes, True))
    out = tensor("add", total, shift)
    return out if keep else idioms.squeeze(out, idioms.negative_axes(axes, len(x.shape)))


def _in_floats(fold: Fold) -> Row:
    """Return the row of a fold that integers leave; what it gives for them is rounded towards zero."""

    def rounded(x: Term, axes: Sequence[int] | None, keep: bool) -> Term:
        if dtypes.is_float(x.dtype):
            return fold(x, axes, keep)
        return idioms.cast(fold(idioms.cast(x, "f64"), axes, keep), x.dtype)

    return _reduction(rounded)


_UNARY = ("not", "neg", "abs", "sqrt", "reciprocal", "exp", "log", "tanh", "erf", "sigmoid", "sin", "cos", "atan")
_ROUNDING = ("floor", "ceil", "round", "sign")
_TRIGONOMETRY = ("tan", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh")

ROWS: dict[str, tuple[Row, ...]] = {
    **{name: (_binary(op),) for name, op in (("Add", "add"), ("Sub", "sub"), ("Mul", "mul"))},
    "Div": (Row(_div),),
    "Mod": (Row(_mod),),
    "Pow": (Row(_pow),),
    "BitShift": (Row(_bit_shift),),
    **{
        name: (_binary(op),)
        for name, op in (
            ("Less", "lt"),
            ("LessOrEqual", "le"),
            ("Greater", "gt"),
            ("GreaterOrEqual", "ge"),
            ("Equal", "eq"),
            ("And", "and"),
            ("Or", "or"),
            ("Xor", "ne"),
        )
    },
    **{
        f"Bitwise{name}": (Row(partial(idioms.bitwise, f"bitwise_{name.lower()}")),)
        for name in ("And", "Or", "Xor", "Not")
    },
    **{name.capitalize(): (_unary(name),) for name in (*_UNARY, *_ROUNDING)},
    **{name.capitalize(): (Row(aten_scalars.ROWS[f"aten.{name}.default"]),) for name in _TRIGONOMETRY},
    "Relu": (Row(lambda x: tensor("relu", x) if dtypes.is_float(x.dtype) else tensor("max", x, _number(x, 0))),),
    "Gelu": (Row(_gelu),),
    "Softplus": (Row(_softplus),),
    "HardSigmoid": (Row(_hard_sigmoid),),
    "HardSwish": (Row(lambda x: tensor("mul", x, _hard_sigmoid(x, 1 / 6))),),
    "Elu": (Row(_elu),),
    "Celu": (Row(_celu),),
    "Selu": (Row(_selu),),
    "LeakyRelu": (Row(lambda x, alpha=0.01: _prelu(x, _number(x, alpha))),),
    "PRelu": (Row(_prelu_of_channels), Row(_prelu, since=7)),
    "Clip": (Row(_clip),),
    "Max": (_many("max"),),
    "Min": (_many("min"),),
    "Sum": (_many("add"),),
    "Mean": (Row(_mean),),
    "Det": (Row(idioms_linalg.determinant),),
    "Where": (Row(lambda condition, x, y: tensor("where", condition, x, y)),),
    "Cast": (Row(_cast, by_value=True),),
    "BitCast": (Row(_bits, since=26),),
    "Identity": (Row(lambda x: x),),
    "Dropout": (
        Row(_dropout_by_flag),
        Row(lambda x, ratio=0.5: x, since=7),
        Row(_dropout, known=(1, 2), since=12),
    ),
    "IsNaN": (Row(lambda x: tensor("ne", x, x)),),
    "IsInf": (Row(_isinf),),
    "ReduceSum": (_reduction(_fold("sum")),),
    "ReduceProd": (_reduction(_fold("prod")),),
    "ReduceMax": (_reduction(_extreme("max")),),
    "ReduceMin": (_reduction(_extreme("min")),),
    "ReduceMean": (_in_floats(idioms.mean),),
    "ReduceL1": (_reduction(lambda x, axes, keep: idioms.reduce(tensor("abs", x), "sum", axes, keep)),),
    "ReduceL2": (
        _in_floats(lambda x, axes, keep: tensor("sqrt", idioms.reduce(tensor("square", x), "sum", axes, keep))),
    ),
    "ReduceSumSquare": (_reduction(lambda x, axes, keep: idioms.reduce(tensor("square", x), "sum", axes, keep)),),
    "ReduceLogSum": (_in_floats(lambda x, axes, keep: tensor("log", idioms.reduce(x, "sum", axes, keep))),),
    "ReduceLogSumExp": (_in_floats(_log_sum_exp),),
}
"""What each operator means, by opset."""
