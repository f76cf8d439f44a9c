"""Rows of aten operators at one value, in terms of fewer: quotients and remainders, activations, logarithms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from frittata.egraph import dtypes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.shapes import Dim
from frittata.egraph.terms import Scalar, Term
from frittata.frontends import idioms, idioms_indices
from frittata.frontends.idioms import Number, Operand

Row = Callable[..., Any]
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def _times(x: Term, factor: Number) -> Term:
    return x if factor == 1 else tensor("mul", x, idioms.like(x, factor))


def _plus(x: Term, value: Number) -> Term:
    return tensor("add", x, idioms.like(x, value))


def _below(x: Term, value: Number) -> Term:
    return tensor("lt", x, idioms.like(x, value))


def _above(x: Term, value: Number) -> Term:
    return tensor("gt", x, idioms.like(x, value))


# ---- quotients and remainders ----------------------------------------------------------------------------------------


def _divided(x: Operand, y: Operand) -> tuple[Term, ...]:
    """Return the operands of a whole quotient, of one dtype."""
    operands = idioms.promoted(x, y)
    if isinstance(y, int) and not y and not dtypes.is_float(operands[1].dtype):
        raise ModelError("integers are divided by zero", do="divide by another number, or convert to floats before")
    return operands


def _remainder(x: Operand, y: Operand) -> Term:
    """The remainder of a quotient that is rounded down; one of floats that is zero has the sign of x."""
    left, right = _divided(x, y)
    rest = tensor("mod", left, right)
    if not dtypes.is_float(rest.dtype):
        return rest
    return tensor("where", tensor("eq", rest, idioms.like(rest, 0)), tensor("mul", left, idioms.like(left, 0)), rest)


def _fmod(x: Operand, y: Operand) -> Term:
    """The remainder of a quotient that is rounded towards zero, exact, with the sign of x."""
    left, right = _divided(x, y)
    if dtypes.is_float(left.dtype):
        return _copysign(tensor("mod", tensor("abs", left), tensor("abs", right)), left)
    rest = tensor("mod", left, right)
    return tensor("where", _rounds_up(left, right, rest), tensor("sub", rest, right), rest)


def _rounds_up(x: Term, y: Term, rest: Term) -> Term:
    """Whether the quotient of two integers is less than what it is rounded to towards zero, by their `mod`.

    The least integer has no magnitude, so that quotients of magnitudes would be wrong.
    """
    differ = tensor("ne", _below(x, 0), _below(y, 0))
    return tensor("and", differ, tensor("ne", rest, idioms.like(rest, 0)))


def _floor_divide(x: Operand, y: Operand) -> Term:
    left, right = _divided(x, y)
    if not dtypes.is_half(left.dtype):
        return tensor("floordiv", left, right)
    kind, (left, right) = idioms.widened(left, right)
    if _is_single(y):
        return idioms.cast(tensor("floordiv", left, idioms.typed(y, left.dtype)), kind)
    return _floor_of_halves(left, right, kind)


def _is_single(y: Operand) -> bool:
    """Whether there is one divisor: torch rounds neither it nor what it computes of a quotient of halves then."""
    return not isinstance(y, Term) or all(dim == 1 for dim in y.shape)


def _floor_of_halves(x: Term, y: Term, kind: DType) -> Term:
    """Return what torch makes of halves: a quotient of roundings, one less where the rest has the other sign."""

    def rounded(op: str, left: Term, right: Term) -> Term:
        return idioms.cast(idioms.cast(tensor(op, left, right), kind), left.dtype)

    rest, exact = _fmod(x, y), tensor("div", x, y)
    quotient = rounded("div", rounded("sub", x, rest), y)
    differ = tensor("and", tensor("ne", rest, idioms.like(rest, 0)), tensor("ne", _below(rest, 0), _below(y, 0)))
    quotient = tensor("where", differ, rounded("sub", quotient, idioms.like(x, 1)), quotient)
    whole = tensor("floor", quotient)
    whole = tensor("where", _above(rounded("sub", quotient, whole), 0.5), _plus(whole, 1), whole)
    whole = tensor("where", tensor("eq", quotient, idioms.like(x, 0)), tensor("mul", exact, idioms.like(x, 0)), whole)
    return idioms.cast(tensor("where", tensor("eq", y, idioms.like(y, 0)), exact, whole), kind)


def truncate(x: Term) -> Term:
    """Round towards zero; integers stay."""
    if not dtypes.is_float(x.dtype):
        return x
    return tensor("where", tensor("lt", x, idioms.like(x, 0)), tensor("ceil", x), tensor("floor", x))


def _truncated_quotient(x: Operand, y: Operand) -> Term:
    left, right = _divided(x, y)
    if dtypes.is_half(left.dtype):
        kind, (left, right) = idioms.widened(left, right)
        if _is_single(y):
            return idioms.cast(truncate(tensor("div", left, idioms.typed(y, left.dtype))), kind)
        return idioms.cast(truncate(idioms.cast(idioms.cast(tensor("div", left, right), kind), left.dtype)), kind)
    if dtypes.is_float(left.dtype):
        return truncate(tensor("div", left, right))
    down = tensor("floordiv", left, right)
    return tensor("where", _rounds_up(left, right, tensor("mod", left, right)), _plus(down, 1), down)


def divide(x: Operand, y: Operand, rounding_mode: str | None = None) -> Term:
    """Divide; `rounding_mode` is that of torch."""
    match rounding_mode:
        case "floor":
            return _floor_divide(x, y)
        case "trunc":
            return _truncated_quotient(x, y)
        case _:
            return tensor("div", *idioms.promoted_floats(x, y))


# ---- logarithms, exponentials, trigonometry --------------------------------------------------------------------------


def _unary(build: Callable[[Term], Term]) -> Row:
    return lambda x: build(idioms.as_float(x))


def _logarithm(base: float) -> Row:
    return _unary(lambda x: _times(tensor("log", x), 1 / math.log(base)))


def _power_of(base: float) -> Row:
    return _unary(lambda x: tensor("pow", idioms.like(x, base), x))


def _tan(x: Term) -> Term:
    return tensor("div", tensor("sin", x), tensor("cos", x))


def _root_of_rest(x: Term) -> Term:
    """Return sqrt(1 - x^2) = sqrt((1 - x) (1 + x))."""
    return tensor("sqrt", tensor("mul", tensor("sub", idioms.like(x, 1), x), _plus(x, 1)))


def _asin(x: Term) -> Term:
    return tensor("atan", tensor("div", x, _root_of_rest(x)))


def _acos(x: Term) -> Term:
    """2 atan(sqrt((1 - x) / (1 + x)))."""
    ratio = tensor("div", tensor("sub", idioms.like(x, 1), x), _plus(x, 1))
    return _times(tensor("atan", tensor("sqrt", ratio)), 2)


def _atan2(y: Operand, x: Operand) -> Term:
    """The angle of the smaller over the larger of the two sizes, in (-1, 1), then of the octant."""
    height, width = idioms.promoted_floats(y, x)
    up, across = tensor("abs", height), tensor("abs", width)
    steep = tensor("gt", up, across)
    low = tensor("where", steep, across, up)
    high = tensor("where", steep, up, across)
    equal = tensor("and", tensor("eq", up, across), _above(up, 0))  # infinities among them
    ratio = tensor("where", equal, idioms.like(low, 1), tensor("div", low, high))
    none = tensor("eq", tensor("add", up, across), idioms.like(high, 0))  # neither is NaN
    angle = tensor("where", none, idioms.like(low, 0), tensor("atan", ratio))
    angle = tensor("where", steep, tensor("sub", idioms.like(low, math.pi / 2), angle), angle)
    angle = tensor("where", _is_negative(width), tensor("sub", idioms.like(low, math.pi), angle), angle)
    return tensor("where", _is_negative(height), tensor("neg", angle), angle)


def _is_negative(x: Term) -> Term:
    """Whether the sign bit is set; of NaN it says no."""
    below = tensor("lt", x, idioms.like(x, 0))
    zero = tensor("lt", tensor("reciprocal", x), idioms.like(x, 0))
    return tensor("or", below, zero)


def _sinh(x: Term) -> Term:
    """(e + q) (1 + e q / 2) with e = exp(|x| / 2) - 1 and q = e / (e + 1), and the sign of x; q is 1 far out.

    exp(|x|) would overflow before its half does.
    """
    e = tensor("expm1", _times(tensor("abs", x), 0.5))
    bound = tensor("min", e, idioms.like(x, 1e30))
    quotient = tensor("div", bound, _plus(bound, 1))
    return _signed(tensor("mul", tensor("add", e, quotient), _plus(_times(tensor("mul", e, quotient), 0.5), 1)), x)


def _cosh(x: Term) -> Term:
    """e e / 2 + 1 / (2 e e) with e = exp(|x| / 2)."""
    e = tensor("exp", _times(tensor("abs", x), 0.5))
    return tensor("add", *(tensor("mul", _times(part, 0.5), part) for part in (e, tensor("reciprocal", e))))


_FAR = 2.0**28
"""From here on what an inverse hyperbolic function is of is as good as its double, halved."""


def _asinh(x: Term) -> Term:
    """log(1 + a + a^2 / (1 + sqrt(1 + a^2))) with a = |x|, log(2 a) far out, and the sign of x."""
    a = tensor("abs", x)
    square = tensor("square", a)
    bend = tensor("div", square, _plus(tensor("sqrt", _plus(square, 1)), 1))
    size = tensor("where", _above(a, _FAR), _of_double(a), tensor("log1p", tensor("add", a, bend)))
    return _signed(size, x)


def _signed(size: Term, x: Term) -> Term:
    """Give a magnitude the sign of x, and zeros as they are."""
    signed = tensor("where", tensor("lt", x, idioms.like(x, 0)), tensor("neg", size), size)
    return tensor("where", tensor("eq", x, idioms.like(x, 0)), x, signed)


def _acosh(x: Term) -> Term:
    """log(1 + t + sqrt(t) sqrt(t + 2)) with t = x - 1, and log(2 x) far out."""
    t = _plus(x, -1)
    root = tensor("mul", tensor("sqrt", t), tensor("sqrt", _plus(t, 2)))
    return tensor("where", _above(x, _FAR), _of_double(x), tensor("log1p", tensor("add", t, root)))


def _of_double(x: Term) -> Term:
    return _plus(tensor("log", x), math.log(2))


def _atanh(x: Term) -> Term:
    """log(1 + 2 a / (1 - a)) / 2 with a = |x|, and the sign of x."""
    a = tensor("abs", x)
    size = _times(tensor("log1p", tensor("div", _times(a, 2), tensor("sub", idioms.like(x, 1), a))), 0.5)
    return _signed(size, x)


def _logaddexp(x: Term, y: Term) -> Term:
    """max + log1p(exp(-distance)); equal operands, infinite ones among them, are told apart."""
    x, y = idioms.promoted_floats(x, y)
    apart = tensor("log1p", tensor("exp", tensor("neg", tensor("abs", tensor("sub", x, y)))))
    spread = tensor("where", tensor("eq", x, y), idioms.like(x, math.log(2)), apart)
    return tensor("add", tensor("max", x, y), spread)


def _copysign(x: Term, y: Operand) -> Term:
    left, right = idioms.promoted_floats(x, y)
    size = tensor("abs", left)
    return tensor("where", _is_negative(right), tensor("neg", size), size)


def _hypot(x: Term, y: Term) -> Term:
    """m sqrt(1 + (n / m)^2) for the larger size m and the smaller one n; infinite beside NaN, too."""
    left, right = (tensor("abs", v) for v in idioms.promoted_floats(x, y))
    large, small = tensor("max", left, right), tensor("min", left, right)
    root = tensor("sqrt", _plus(tensor("square", tensor("div", small, large)), 1))
    size = tensor("where", tensor("eq", large, idioms.like(large, 0)), large, tensor("mul", large, root))
    infinite = tensor("or", *(tensor("eq", each, idioms.like(each, math.inf)) for each in (left, right)))
    return tensor("where", infinite, idioms.like(size, math.inf), size)


def _nan_to_num(x: Term, nan: float | None = None, high: float | None = None, low: float | None = None) -> Term:
    if not dtypes.is_float(x.dtype):
        return x
    kind, x = x.dtype, idioms.cast(x, dtypes.wide(x.dtype))
    greatest = float(dtypes.finfo(kind).max)
    out = tensor("where", tensor("ne", x, x), idioms.like(x, 0.0 if nan is None else nan), x)
    top, bottom = idioms.like(x, greatest if high is None else high), idioms.like(x, -greatest if low is None else low)
    out = tensor("where", tensor("eq", x, idioms.like(x, math.inf)), top, out)
    return idioms.cast(tensor("where", tensor("eq", x, idioms.like(x, -math.inf)), bottom, out), kind)


def _isfinite(x: Term) -> Term:
    if not dtypes.is_float(x.dtype):
        return idioms.filled(True, x.shape, "bool")
    return tensor("lt", tensor("abs", x), idioms.like(x, math.inf))


def _infinite(value: float) -> Row:
    def row(x: Term) -> Term:
        if not dtypes.is_float(x.dtype):
            return idioms.filled(False, x.shape, "bool")
        return tensor("eq", x, idioms.like(x, value))

    return row


def _rounded_to(x: Term, decimals: int) -> Term:
    if decimals < 0:
        return _times(tensor("round", tensor("div", x, idioms.like(x, 10.0**-decimals))), 10.0**-decimals)
    return tensor("div", tensor("round", _times(x, 10.0**decimals)), idioms.like(x, 10.0**decimals))


# ---- activations -----------------------------------------------------------------------------------------------------


def _elu(x: Term, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Term:
    low = _times(tensor("expm1", _times(x, input_scale)), alpha * scale)
    return tensor("where", _above(x, 0), _times(x, scale), low)


def _softplus(x: Term, beta: Number = 1, threshold: Number = 20) -> Term:
    scaled = _times(x, beta)
    soft = tensor("log1p", tensor("exp", scaled))
    soft = soft if beta == 1 else tensor("div", soft, idioms.like(x, beta))
    return tensor("where", _above(scaled, threshold), x, soft)


def _mish(x: Term) -> Term:
    return tensor("mul", x, tensor("tanh", tensor("log1p", tensor("exp", x))))


def _log_sigmoid(x: Term) -> Term:
    tail = tensor("log1p", tensor("exp", tensor("neg", tensor("abs", x))))
    return tensor("sub", tensor("min", x, idioms.like(x, 0)), tail)


def _glu(x: Term, axis: int = -1) -> Term:
    half = idioms.number(x.shape[axis]) // 2
    value, gate = idioms.split(x, [half, half], axis)
    return tensor("mul", value, tensor("sigmoid", gate))


def _prelu(x: Term, weight: Term) -> Term:
    rank = len(x.shape)
    slope = idioms.per_channel(weight, rank) if rank > 1 else idioms.reshape(weight, (1,) * rank)
    return tensor("where", _above(x, 0), x, tensor("mul", slope, x))


def _rrelu(x: Term, low: Number = 1 / 8, high: Number = 1 / 3, training: bool = False, _: Any = None) -> Term:
    if training:
        raise UnsupportedOpError("rrelu in training mode")
    return tensor("where", _above(x, 0), x, _times(x, (low + high) / 2))


def _softsign(x: Term) -> Term:
    return tensor("div", x, _plus(tensor("abs", x), 1))


def _softshrink(x: Term, most: Number = 0.5) -> Term:
    """Towards zero by `most`, at most up to zero; NaN stays."""
    low = tensor("where", tensor("lt", x, idioms.like(x, -most)), _plus(x, most), tensor("mul", x, idioms.like(x, 0)))
    return tensor("where", _above(x, most), tensor("sub", x, idioms.like(x, most)), low)


def _hardshrink(x: Term, most: Number = 0.5) -> Term:
    inside = tensor("and", tensor("ge", x, idioms.like(x, -most)), tensor("le", x, idioms.like(x, most)))
    return tensor("where", inside, idioms.like(x, 0), x)


def _threshold(x: Term, least: Number, value: Number) -> Term:
    """Torch compares halves with a float, integers with one of their dtype."""
    _, (wide,) = idioms.widened(x)
    bound = idioms.like(wide, least) if dtypes.is_float(x.dtype) else idioms.widened(idioms.like(x, least))[1][0]
    return tensor("where", tensor("le", wide, bound), idioms.like(x, value), x)


# ---- mixtures --------------------------------------------------------------------------------------------------------


def _addcmul(x: Term, y: Term, z: Term, value: Number = 1) -> Term:
    x, y, z = idioms.promoted(x, y, z)
    return tensor("add", x, tensor("mul", _times(y, value), z))


def _addcdiv(x: Term, y: Term, z: Term, value: Number = 1) -> Term:
    x, y, z = idioms.promoted_floats(x, y, z)
    return tensor("add", x, tensor("div", _times(y, value), z))


def _xor(x: Term, y: Term) -> Term:
    left, right = (v if v.dtype == "bool" else tensor("ne", v, idioms.like(v, 0)) for v in (x, y))
    return tensor("ne", left, right)


def _logsumexp(x: Term, axes: list[int], keepdim: bool = False) -> Term:
    """Shifted by the maximum where it is finite."""
    x = idioms.as_float(x)
    top = idioms.reduce(x, "max", axes, True)
    shift = tensor("where", tensor("lt", tensor("abs", top), idioms.like(x, math.inf)), top, idioms.like(x, 0))
    total = idioms.reduce(tensor("exp", tensor("sub", x, shift)), "sum", axes, True)
    out = tensor("add", tensor("log", total), shift)
    return out if keepdim else idioms.reduce(out, "sum", axes, False)


def _vector_norm(
    x: Term, order: Number = 2, axes: list[int] | None = None, keepdim: bool = False, dtype: str | None = None
) -> Term:
    x = idioms.cast(idioms.as_float(x), dtype or idioms.as_float(x).dtype)
    size = tensor("abs", x)
    match float(order):
        case 2.0:
            return tensor("sqrt", idioms.reduce(tensor("square", x), "sum", axes, keepdim))
        case 1.0:
            return idioms.reduce(size, "sum", axes, keepdim)
        case math.inf:
            return idioms.reduce(size, "max", axes, keepdim)
        case 0.0:
            counted = idioms.cast(tensor("ne", x, idioms.like(x, 0)), x.dtype)
            return idioms.reduce(counted, "sum", axes, keepdim)
        case power if power == -math.inf:
            return idioms.reduce(size, "min", axes, keepdim)
        case power:
            total = idioms.reduce(tensor("pow", size, idioms.like(x, power)), "sum", axes, keepdim)
            return tensor("pow", total, idioms.like(x, 1 / power))


def _distances(x: Term, y: Term, order: float, _mode: int | None = None) -> Term:
    """Return the norm of each difference of a row of x and a row of y; the largest passes over NaN, as in torch."""
    size = tensor("abs", tensor("sub", idioms.unsqueeze(x, -2), idioms.unsqueeze(y, -3)))
    if order == math.inf:
        size = tensor("where", tensor("eq", size, size), size, idioms.like(size, 0))
    return _distance(size, order)


def _distances_of_pairs(x: Term, order: float = 2) -> Term:
    """Return the norm of each difference of two rows, those of the first row with all that follow it first."""
    rows = idioms.number(x.shape[0])
    one, row = idioms.scalar(1, "i64"), idioms_indices.numbers(rows, -1)
    begins = tensor("right_shift", tensor("mul", row, tensor("sub", idioms.like(row, 2 * rows - 1), row)), one)
    pair = idioms_indices.numbers(rows * (rows - 1) // 2, -1)
    first = tensor("sub", idioms_indices.places_among(begins, pair, right=True), one)
    second = tensor("add", tensor("sub", pair, idioms_indices.take(begins, first, -1)), _plus(first, 1))
    difference = tensor("sub", *(idioms_indices.take(x, at, -2) for at in (first, second)))
    return _distance(tensor("abs", difference), order)


def _distance(size: Term, order: float) -> Term:
    if order == 0:
        return idioms.reduce(tensor("min", tensor("ceil", size), idioms.like(size, 1)), "sum", [-1])
    return _vector_norm(size, order, [-1])


# ---- creation --------------------------------------------------------------------------------------------------------


def _steps(start: Number, step: Number, extent: int, dtype: str) -> Term:
    """Return start + i * step for i in 0 .. extent - 1."""
    e = element("iota", axis=-1, extent=extent, dtype=dtype)
    if step != 1:
        e = element("mul", e, element("const", value=Scalar.of(step, dtype)))
    if start:
        e = element("add", e, element("const", value=Scalar.of(start, dtype)))
    return tensor("build", e, shape=(extent,))


def arange(*args: Number | Dim, dtype: str | None = None) -> Term:
    """arange(end), arange(start, end), arange(start, end, step)."""
    start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if not isinstance(end, int | float) and (start, step) == (0, 1):
        return tensor("build", element("iota", axis=-1, extent=end, dtype=dtype or "i64"), shape=(end,))
    values = [idioms.number(v) if not isinstance(v, float) else v for v in (start, end, step)]
    first, last, by = values
    kind = dtype or (idioms.float_dtype() if any(isinstance(v, float) for v in values) else "i64")
    extent = max(0, math.ceil((last - first) / by))
    return _steps(first, by, extent, kind)


def linspace(start: Number, end: Number, steps: int, dtype: str | None = None) -> Term:
    """Return so many numbers from start to end, both among them; of one step the start."""
    kind = dtype or idioms.float_dtype()
    if not dtypes.is_float(kind):
        return idioms.cast(_linspace_of_integers(int(start), int(end), steps), kind)
    return _steps(float(start), (end - start) / max(1, steps - 1), steps, kind)


def _linspace_of_integers(start: int, end: int, steps: int) -> Term:
    """Return what torch rounds towards zero: counted from the nearer end, in float64."""
    step = (end - start) / max(1, steps - 1)
    place = _steps(0, 1, steps, "f64")
    from_start = _plus(_times(place, step), start)
    if steps == 1:
        return from_start
    from_end = tensor("sub", idioms.like(place, end), _times(tensor("sub", idioms.like(place, steps - 1), place), step))
    return truncate(tensor("where", _below(place, steps // 2), from_start, from_end))


ROWS: dict[str, Row] = {
    **{f"aten.div.{kind}": divide for kind in ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")},
    **{f"aten.{name}.{kind}": divide for name in ("divide", "true_divide") for kind in ("Tensor", "Scalar")},
    **{f"aten.remainder.{kind}": _remainder for kind in ("Tensor", "Scalar", "Scalar_Tensor")},
    **{f"aten.fmod.{kind}": _fmod for kind in ("Tensor", "Scalar")},
    **{f"aten.floor_divide.{kind}": _floor_divide for kind in ("default", "Scalar")},
    **{f"aten.{name}.default": truncate for name in ("trunc", "fix")},
    "aten.frac.default": lambda x: tensor("sub", x, truncate(x)),
    "aten.round.decimals": lambda x, decimals: _rounded_to(x, decimals),
    **{f"aten.{name}.default": _unary(lambda x, n=name: tensor(n, x)) for name in ("log1p", "expm1", "atan")},
    "aten.log2.default": _logarithm(2),
    "aten.log10.default": _logarithm(10),
    "aten.exp2.default": _power_of(2),
    "aten.tan.default": _unary(_tan),
    "aten.asin.default": _unary(_asin),
    "aten.acos.default": _unary(_acos),
    "aten.atan2.default": _atan2,
    "aten.sinh.default": _unary(_sinh),
    "aten.cosh.default": _unary(_cosh),
    "aten.asinh.default": _unary(_asinh),
    "aten.acosh.default": _unary(_acosh),
    "aten.atanh.default": _unary(_atanh),
    "aten.logaddexp.default": _logaddexp,
    "aten.logsumexp.default": _logsumexp,
    "aten.copysign.Tensor": _copysign,
    "aten.copysign.Scalar": _copysign,
    "aten.signbit.default": lambda x: (
        _is_negative(x) if dtypes.is_float(x.dtype) else tensor("lt", x, idioms.like(x, 0))
    ),
    "aten.hypot.default": _hypot,
    "aten.nan_to_num.default": _nan_to_num,
    "aten.isfinite.default": _isfinite,
    "aten.isposinf.default": _infinite(math.inf),
    "aten.isneginf.default": _infinite(-math.inf),
    "aten.elu.default": _elu,
    "aten.selu.default": lambda x: _elu(x, _SELU_ALPHA, _SELU_SCALE),
    "aten.celu.default": lambda x, alpha=1: _elu(x, alpha, 1, 1 / alpha),
    "aten.softplus.default": _softplus,
    "aten.mish.default": _mish,
    "aten.log_sigmoid.default": _log_sigmoid,
    "aten.log_sigmoid_forward.default": lambda x: (_log_sigmoid(x), None),
    "aten.glu.default": _glu,
    "aten.prelu.default": _prelu,
    "aten._prelu_kernel.default": lambda x, weight: tensor("where", _above(x, 0), x, tensor("mul", weight, x)),
    "aten.rrelu.default": _rrelu,
    "aten.softsign.default": _softsign,
    "aten.softshrink.default": _softshrink,
    "aten.hardshrink.default": _hardshrink,
    "aten.threshold.default": _threshold,
    "aten.addcmul.default": _addcmul,
    "aten.addcdiv.default": _addcdiv,
    "aten.logical_xor.default": _xor,
    "aten.linalg_vector_norm.default": _vector_norm,
    "aten._cdist_forward.default": _distances,
    "aten._pdist_forward.default": _distances_of_pairs,
    **{f"aten.arange.{kind}": arange for kind in ("default", "start", "start_step")},
    "aten.linspace.default": linspace,
}
"""What each overload means."""
