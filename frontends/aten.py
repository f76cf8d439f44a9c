"""The aten operators and what each means in terms: one small row for each, keyed by overload.

A row takes what the operator takes, with terms for tensors and our names for dtypes, and returns a term, or a tuple
of terms for several results. Placement and memory arguments (device, layout, memory_format, ...) never reach a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.shapes import Dim
from frittata.egraph.terms import Term
from frittata.frontends import (
    aten_complex,
    aten_indices,
    aten_layers,
    aten_linalg,
    aten_quantized,
    aten_recurrent,
    aten_scalars,
    aten_special,
    aten_views,
    aten_windows,
    idioms,
)
from frittata.frontends.idioms import Number, Operand

Row = Callable[..., Any]


def _arithmetic(op: str) -> Row:
    return lambda x, y: tensor(op, *idioms.promoted(x, y))


def _add(op: str, logic: str) -> Row:
    def row(x: Operand, y: Operand, alpha: Number = 1) -> Term:
        kind, (left, right) = idioms.widened(x, y)
        if isinstance(alpha, float) and not dtypes.is_float(kind):
            raise ModelError(f"alpha={alpha} beside {kind}", do="give an integer, as torch asks for")
        if alpha != 1:
            factor = idioms.cast(idioms.scalar(alpha, kind), right.dtype)
            right = tensor("and" if kind == "bool" else "mul", right, factor)
        if kind == "bool" and logic:
            return tensor(logic, left, right)
        return idioms.cast(tensor(op, left, right), kind)

    return row


_sub = _add("sub", "")


def _mul(x: Operand, y: Operand) -> Term:
    return tensor("and" if idioms.promoted_dtype(x, y) == "bool" else "mul", *idioms.promoted(x, y))


def _pow(x: Term, exponent: Number) -> Term:
    """As aten does it: some exponents have forms of their own."""
    (x, _) = idioms.promoted(x, exponent)
    return idioms.power(x, exponent)


def _pow_of_both(x: Operand, y: Operand) -> Term:
    base, exponent = idioms.promoted(x, y)
    if not dtypes.is_float(base.dtype):
        raise UnsupportedOpError("an integer to the power of a tensor")
    return tensor("pow", base, exponent)


def _unary(op: str) -> Row:
    return lambda x: tensor(op, x)


def _rounding(op: str) -> Row:
    return lambda x: tensor(op, x) if dtypes.is_float(x.dtype) else x


def _float_unary(op: str) -> Row:
    return lambda x: tensor(op, idioms.as_float(x))


def _logic(op: str) -> Row:
    return lambda *operands: tensor(op, *(_truth(x) for x in operands))


def _bitwise(op: str) -> Row:
    return lambda *operands: idioms.bitwise(op, *idioms.promoted(*operands))


def _truth(x: Term) -> Term:
    return x if x.dtype == "bool" else tensor("ne", x, idioms.scalar(0, x.dtype))


def _extreme_of_both(op: str, logic: str) -> Row:
    def row(x: Operand, y: Operand) -> Term:
        left, right = idioms.promoted(x, y)
        return tensor(logic if left.dtype == "bool" else op, left, right)

    return row


_maximum, _minimum = _extreme_of_both("max", "or"), _extreme_of_both("min", "and")


def _unless_nan(row: Row) -> Row:
    """Return the larger or the smaller one, or the one that is a number."""

    def of_numbers(x: Term, y: Term) -> Term:
        left, right = idioms.promoted(x, y)
        if not dtypes.is_float(left.dtype):
            return row(left, right)
        is_nan, is_other_nan = tensor("ne", left, left), tensor("ne", right, right)
        return row(tensor("where", is_nan, right, left), tensor("where", is_other_nan, left, right))

    return of_numbers


def _clamp(x: Term, low: Operand | None = None, high: Operand | None = None) -> Term:
    bounds = [bound for bound in (low, high) if bound is not None]
    kind, (x, *others) = idioms.widened(x, *bounds)
    if low is not None:
        x = _maximum(x, others[0])
    return idioms.cast(x if high is None else _minimum(x, others[-1]), kind)


def _hardtanh(x: Term, low: Number = -1, high: Number = 1) -> Term:
    return _clamp(x, low, high) if dtypes.is_float(x.dtype) else _clamp(x, int(low), int(high))


def _where(condition: Term, x: Operand, y: Operand) -> Term:
    return tensor("where", _truth(condition), *idioms.promoted(x, y))


def _masked_fill(x: Term, mask: Term, value: Operand) -> Term:
    return tensor("where", mask, idioms.typed(value, x.dtype), x)


def _leaky_relu(x: Term, slope: Number = 0.01) -> Term:
    return tensor(
        "where", tensor("gt", x, idioms.scalar(0, x.dtype)), x, tensor("mul", x, idioms.scalar(slope, x.dtype))
    )


def _hardsigmoid(x: Term) -> Term:
    shifted = _clamp(tensor("add", x, idioms.scalar(3, x.dtype)), 0, 6)
    return tensor("div", shifted, idioms.scalar(6, x.dtype))


def _hardswish(x: Term) -> Term:
    shifted = _clamp(tensor("add", x, idioms.scalar(3, x.dtype)), 0, 6)
    return tensor("div", tensor("mul", x, shifted), idioms.scalar(6, x.dtype))


def _isinf(x: Term) -> Term:
    if not dtypes.is_float(x.dtype):
        return idioms.filled(False, x.shape, "bool")
    return tensor("eq", tensor("abs", x), idioms.scalar(float("inf"), x.dtype))


def _relu(x: Term) -> Term:
    return tensor("relu", x) if dtypes.is_float(x.dtype) else _clamp(x, 0)


def _sign(x: Term) -> Term:
    """The sign; of NaN torch says 0, and a truth value is its own."""
    return x if x.dtype == "bool" else tensor("where", tensor("eq", x, x), tensor("sign", x), idioms.scalar(0, x.dtype))


def _lerp(x: Term, y: Term, weight: Operand) -> Term:
    """As torch does it: from the nearer end."""
    step = tensor("sub", y, x)
    near = idioms.typed(weight, x.dtype)
    rest = tensor("sub", idioms.scalar(1, x.dtype), near)
    from_x, from_y = tensor("add", x, tensor("mul", near, step)), tensor("sub", y, tensor("mul", step, rest))
    if not isinstance(weight, Term):
        return from_x if abs(weight) < 0.5 else from_y
    return tensor("where", tensor("lt", tensor("abs", near), idioms.scalar(0.5, x.dtype)), from_x, from_y)


def _total(fold: str, of_truth: str) -> Row:
    def row(x: Term, axes: Any = None, keepdim: bool = False, dtype: str | None = None) -> Term:
        kind = dtype or idioms.summed_dtype(x)
        if kind == "bool":
            return _any(of_truth)(x, axes, keepdim)
        return idioms.within(kind, lambda wide: idioms.reduce(wide, fold, axes, keepdim), x)

    return row


_sum, _prod = _total("sum", "max"), _total("prod", "min")


def _mean(x: Term, axes: list[int] | None = None, keepdim: bool = False, dtype: str | None = None) -> Term:
    return idioms.mean(idioms.cast(x, dtype or x.dtype), axes, keepdim)


def _extreme(fold: str) -> Row:
    return lambda x, axes=None, keepdim=False: idioms.extreme(x, fold, axes, keepdim)


def _any(fold: str) -> Row:
    def row(x: Term, axes: Any = None, keepdim: bool = False) -> Term:
        is_over_none = isinstance(axes, list) and not axes  # which other reductions take for all
        return _truth(x) if is_over_none else idioms.extreme(_truth(x), fold, axes, keepdim)

    return row


def _var(x: Term, axes: list[int] | None = None, correction: float | None = 1, keepdim: bool = False) -> Term:
    return idioms.variance(x, axes, 1 if correction is None else float(correction), keepdim)


def _std(x: Term, axes: list[int] | None = None, correction: float | None = 1, keepdim: bool = False) -> Term:
    return tensor("sqrt", _var(x, axes, correction, keepdim))


def _var_mean(x: Term, axes: Any = None, correction: float | None = 1, keepdim: bool = False) -> tuple[Term, Term]:
    return _var(x, axes, correction, keepdim), idioms.mean(x, axes, keepdim)


def _unbiased(row: Row, without_axes: bool) -> Row:
    if without_axes:
        return lambda x, unbiased=True: row(x, None, float(unbiased))
    return lambda x, axes, unbiased=True, keepdim=False: row(x, axes, float(unbiased), keepdim)


def _to(x: Term | Number, dtype: str | None = None, *_: Any, copy: bool = False) -> Term:
    if isinstance(x, Term):
        return idioms.cast(x, dtype or x.dtype)
    return _full([], x, dtype)  # torch.func leaves numbers where tensors were


def _full(size: list[Dim], value: Number, dtype: str | None = None) -> Term:
    default = "bool" if isinstance(value, bool) else "i64" if isinstance(value, int) else idioms.float_dtype()
    return idioms.filled(value, tuple(size), dtype or default)


def _constant(value: int) -> Row:
    return lambda size, dtype=None: idioms.filled(value, tuple(size), dtype or idioms.float_dtype())


def _constant_like(value: int) -> Row:
    return lambda x, dtype=None: idioms.filled(value, x.shape, dtype or x.dtype)


def _new_constant(value: int) -> Row:
    return lambda x, size, dtype=None: idioms.filled(value, tuple(size), dtype or x.dtype)


def _identity(x: Term, *_: Any, **__: Any) -> Term:
    return x


def _refuse_training(x: Term, p: float, train: bool) -> Term:
    if train and p:
        do = "call model.eval() before the export, and give F.dropout training=self.training"
        raise ModelError("dropout in training mode is random", do=do)
    return x


ROWS: dict[str, Row] = {
    **{f"aten.add.{kind}": _add("add", "or") for kind in ("Tensor", "Scalar")},
    **{f"aten.sub.{kind}": _sub for kind in ("Tensor", "Scalar")},
    **{f"aten.rsub.{kind}": lambda x, y, alpha=1: _sub(y, x, alpha) for kind in ("Tensor", "Scalar")},
    **{f"aten.mul.{kind}": _mul for kind in ("Tensor", "Scalar")},
    "aten.pow.Tensor_Scalar": _pow,
    **{f"aten.pow.{kind}": _pow_of_both for kind in ("Tensor_Tensor", "Scalar")},
    "aten.maximum.default": _maximum,
    "aten.minimum.default": _minimum,
    "aten.fmax.default": _unless_nan(_maximum),
    "aten.fmin.default": _unless_nan(_minimum),
    "aten.max.other": _maximum,
    "aten.min.other": _minimum,
    **{
        f"aten.{name}.{kind}": _arithmetic(name)
        for name in ("lt", "le", "gt", "ge", "eq", "ne")
        for kind in ("Tensor", "Scalar")
    },
    **{f"aten.{name}.default": _unary(name) for name in ("neg", "abs")},
    "aten.square.default": lambda x: _pow(x, 2),
    **{
        f"aten.{name}.default": _float_unary(name)
        for name in ("sqrt", "rsqrt", "reciprocal", "exp", "log", "tanh", "erf", "sigmoid", "sin", "cos")
    },
    "aten.silu.default": _unary("silu"),
    **{f"aten.{name}.default": _rounding(name) for name in ("floor", "ceil", "round")},
    **{f"aten.{name}.default": _sign for name in ("sign", "sgn")},
    "aten.relu.default": _relu,
    "aten.gelu.default": lambda x, approximate="none": tensor("gelu_tanh" if approximate == "tanh" else "gelu", x),
    "aten.leaky_relu.default": _leaky_relu,
    "aten.hardtanh.default": _hardtanh,
    "aten.relu6.default": lambda x: _clamp(x, 0, 6),
    "aten.hardsigmoid.default": _hardsigmoid,
    "aten.hardswish.default": _hardswish,
    "aten.lerp.Scalar": _lerp,
    "aten.lerp.Tensor": _lerp,
    "aten.isnan.default": lambda x: tensor("ne", x, x),
    "aten.isinf.default": _isinf,
    **{f"aten.logical_{name}.default": _logic(name) for name in ("and", "or", "not")},
    **{
        f"aten.bitwise_{name}.{kind}": _bitwise(f"bitwise_{name}")
        for name in ("and", "or", "xor")
        for kind in ("Tensor", "Scalar", "Scalar_Tensor")
    },
    "aten.bitwise_not.default": _bitwise("bitwise_not"),
    **{
        f"aten.{name}.{kind}": _arithmetic(op)
        for op, short in (("left_shift", "__lshift__"), ("right_shift", "__rshift__"))
        for name, kinds in ((short, "Tensor Scalar"), (f"bitwise_{op}", "Tensor Tensor_Scalar Scalar_Tensor"))
        for kind in kinds.split()
    },
    "aten.clamp.default": _clamp,
    "aten.clamp.Tensor": _clamp,
    "aten.clamp_min.default": _clamp,
    "aten.clamp_min.Tensor": _clamp,
    "aten.clamp_max.default": lambda x, high: _clamp(x, None, high),
    "aten.clamp_max.Tensor": lambda x, high: _clamp(x, None, high),
    **{f"aten.where.{kind}": _where for kind in ("self", "ScalarSelf", "ScalarOther", "Scalar")},
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.masked_fill.Tensor": _masked_fill,
    "aten.sum.default": lambda x, dtype=None: _sum(x, None, False, dtype),
    "aten.sum.dim_IntList": _sum,
    "aten.prod.default": lambda x, dtype=None: _prod(x, None, False, dtype),
    "aten.prod.dim_int": _prod,
    "aten.mean.default": lambda x, dtype=None: _mean(x, None, False, dtype),
    "aten.mean.dim": _mean,
    "aten.amax.default": _extreme("max"),
    "aten.amin.default": _extreme("min"),
    "aten.max.default": _extreme("max"),
    "aten.min.default": _extreme("min"),
    **{f"aten.any.{kind}": _any("max") for kind in ("default", "dim", "dims")},
    **{f"aten.all.{kind}": _any("min") for kind in ("default", "dim", "dims")},
    **{
        f"aten.{name}.{kind}": form
        for name, row in (("var", _var), ("std", _std), ("var_mean", _var_mean))
        for kind, form in (("correction", row), ("dim", _unbiased(row, False)), ("default", _unbiased(row, True)))
    },
    "aten._to_copy.default": _to,
    "aten.to.dtype": _to,
    "aten.to.dtype_layout": _to,
    "aten.to.device": lambda x, device=None, dtype=None, *_: idioms.cast(x, dtype or x.dtype),
    "aten.to.other": lambda x, other, *_: idioms.cast(x, other.dtype),
    "prims.convert_element_type.default": idioms.cast,
    "aten.type_as.default": lambda x, other: idioms.cast(x, other.dtype),
    "aten.full.default": _full,
    "aten.full_like.default": lambda x, value, dtype=None: idioms.filled(value, x.shape, dtype or x.dtype),
    "aten.new_full.default": lambda x, size, value, dtype=None: idioms.filled(value, tuple(size), dtype or x.dtype),
    **{
        f"{space}.scalar_tensor.default": lambda value, dtype=None: _full([], value, dtype or idioms.float_dtype())
        for space in ("aten", "prims")
    },
    **{f"aten.{name}.default": _constant(value) for name, value in (("zeros", 0), ("ones", 1))},
    **{f"aten.empty.{kind}": _constant(0) for kind in ("default", "memory_format")},
    "aten.empty_permuted.default": lambda size, _order, dtype=None: _constant(0)(size, dtype),
    "aten.empty_strided.default": lambda size, _strides, dtype=None: _constant(0)(size, dtype),
    "aten.new_empty_strided.default": lambda x, size, _strides, dtype=None: _new_constant(0)(x, size, dtype),
    **{f"aten.{name}_like.default": _constant_like(value) for name, value in (("empty", 0), ("zeros", 0), ("ones", 1))},
    **{f"aten.new_{name}.default": _new_constant(value) for name, value in (("empty", 0), ("zeros", 0), ("ones", 1))},
    "aten.tril.default": lambda x, diagonal=0: idioms.triangle(x, "le", diagonal),
    "aten.triu.default": lambda x, diagonal=0: idioms.triangle(x, "ge", diagonal),
    "aten.dropout.default": _refuse_training,
    **{
        f"aten.{name}.default": _identity
        for name in ("clone", "contiguous", "detach", "detach_", "alias", "lift_fresh_copy", "lift_fresh")
    },
    **aten_views.ROWS,
    **aten_layers.ROWS,
    **aten_linalg.ROWS,
    **aten_windows.ROWS,
    **aten_quantized.ROWS,
    **aten_recurrent.ROWS,
    **aten_scalars.ROWS,
    **aten_special.ROWS,
    **aten_indices.ROWS,
    **aten_complex.ROWS,
}
"""What each overload means."""

MAY_DROP = frozenset({"device", "layout", "memory_format", "pin_memory", "non_blocking", "copy", "half_to_float"})
"""Keyword arguments about where and how values are stored, not about what they are."""

JOINS = frozenset(f"aten.{name}.default" for name in ("cat", "concat", "concatenate", "hstack", "vstack", "dstack"))
"""Operators of several tensors that pass over empty ones."""

READS_MEMORY = frozenset({"aten.as_strided.default", "aten.as_strided_scatter.default"})
"""Operators that look at how the values of their first operand lie in memory."""

SAYS_NOTHING = frozenset({"aten._assert_tensor_metadata.default", "aten._assert_scalar.default"})
"""Checks of what the import knows already: dtypes and extents."""

ROUNDS: dict[str, bool] = {
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod", "hardshrink", "pow"), True),
    **dict.fromkeys(("mul", "maximum", "minimum", "fmax", "fmin", "floor_divide"), False),
    **dict.fromkeys(("div.Tensor_mode", "div.Scalar_mode"), False),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), False),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__"), False),
}
"""Operators whose first two operands torch converts to one dtype; whether it rounds a number to a half, too."""


def rounds(name: str) -> bool | None:
    """Return what `ROUNDS` says of an overload, None if nothing."""
    _, operator, overload = name.split(".", 2)
    return ROUNDS.get(f"{operator}.{overload}", ROUNDS.get(operator))


_CONVERTED = frozenset((
    *("clamp", "clamp_max", "clamp_min", "constant_pad_nd", "fill", "full", "full_like", "hardtanh", "index_fill"),
    *("masked_fill", "new_full", "pad", "scalar_tensor", "scatter", "threshold", "where"),
))
"""Operators of which torch converts numbers to the dtype of the result, and raises where it has no such value."""

_AS_FLOATS = frozenset(("constant_pad_nd", "pad"))
"""Those to which torch gives numbers as floats."""


def check_numbers(name: str, values: Iterable[Any], dtype: DType | None) -> None:
    """Raise ModelError for a number beside which torch raises: one that it cannot convert, a negative power."""
    for value in values:
        if dtype is None or not isinstance(value, int | float):
            continue
        if name == "aten.pow.Tensor_Scalar" and dtypes.is_integer(dtype) and value < 0:
            raise ModelError(f"integers to the power of {value}", do="convert to floats before")
        operator = name.split(".")[1]
        if operator in _CONVERTED and not _holds(dtype, float(value) if operator in _AS_FLOATS else value):
            raise ModelError(f"{value} is no value of {dtype}", do="give a number that the tensor can hold")


def _holds(dtype: DType, value: Number) -> bool:
    """Whether torch converts a number to `dtype`: one up to the largest; to unsigned ones integers of either sign."""
    if dtypes.is_float(dtype):
        return not float(dtypes.finfo(dtype).max) < abs(value) < math.inf
    if dtype == "bool":
        return True
    limits = np.iinfo(dtypes.to_numpy(dtype))
    least = limits.min or (0 if isinstance(value, float) else -limits.max)
    return least <= value <= limits.max
