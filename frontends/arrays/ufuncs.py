"""What numpy's universal functions mean in terms: operands and results have the dtypes that numpy says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from frittata.egraph import dtypes, shapes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Scalar, Term
from frittata.frontends import aten, aten_scalars, idioms, narrow
from frittata.frontends.arrays import numpy_calls, ufuncs_complex
from frittata.frontends.arrays.constants import constant, dtype_of, part_dtype
from frittata.frontends.idioms_complex import Complex, parts
from frittata.frontends.idioms_complex import truth as truth_of_complex

Row = Callable[..., Any]


# ---- dtypes ----------------------------------------------------------------------------------------------------------


def _kind(x: Any) -> Any:
    """Return what numpy promotes by: a dtype, or the type of a Python number, which is weak.

    Raises: ModelError for what is neither a tensor nor a number.
    """
    if isinstance(x, Term | Complex):
        return dtype_of(x)
    if not isinstance(x, bool | int | float | complex):
        kind = f"{type(x).__module__}.{type(x).__name__}".removeprefix("builtins.")
        raise ModelError(f"arithmetic with a {kind}", do="give tensors, arrays and numbers: numpy.asarray(x)")
    return type(x) if type(x) in _WEAK else np.result_type(x)


_WEAK = (int, float, complex)
"""The types of Python's numbers: they take the dtype of what they meet."""


def promoted(*operands: Any) -> list[Term]:
    """Return operands, numbers and lists among them, as tensors of the dtype that numpy promotes to."""
    given = _arrays(operands)
    weak: list[Any] = [x if type(x) in _WEAK else _kind(x) for x in given]
    dtype = dtypes.from_numpy(np.result_type(*weak))
    return [idioms.typed(x, dtype) for x in given]


def _arrays(operands: Sequence[Any]) -> list[Any]:
    """Return operands with constants for lists, which are arrays to numpy."""
    return [constant(x) if isinstance(x, list | tuple) else x for x in operands]


def converted(x: Any, dtype: Any) -> Any:
    """Convert to a numpy dtype, None for none; what is complex and becomes real loses its imaginary part."""
    part = part_dtype(dtype)
    if dtype is None:
        return x
    if part is not None:
        return Complex(*(idioms.cast(one, part) for one in parts(x)))
    kind = dtypes.from_numpy(dtype)
    if isinstance(x, Complex):
        return truth(x) if kind == "bool" else idioms.cast(x.real, kind)
    return idioms.cast(x, kind)


def floats(x: Term) -> Term:
    return x if dtypes.is_float(x.dtype) else idioms.cast(x, "f64")


def summed(x: Term) -> Term:
    """Convert to the dtype in which numpy sums.

    Raises: UnsupportedOpError where that is unsigned.
    """
    if x.dtype in ("u8", "u16"):
        raise UnsupportedOpError(f"numpy sums {x.dtype} in uint64", do="convert to a signed dtype before")
    return x if dtypes.is_float(x.dtype) else idioms.cast(x, "i64")


def truth(x: Complex | Term) -> Term:
    if isinstance(x, Complex):
        return truth_of_complex(x)
    return x if x.dtype == "bool" else tensor("ne", x, idioms.scalar(0, x.dtype))


# ---- ufuncs ----------------------------------------------------------------------------------------------------------


def apply(ufunc: np.ufunc, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """Apply a universal function.

    Raises: UnsupportedOpError without a row, or one for such arguments, where numpy is not called; ModelError for
        arguments that it does not take.
    """
    if ufunc not in UFUNCS:
        return numpy_calls.call(ufunc, inputs, options)
    try:
        return _by_row(ufunc, inputs, options)
    except UnsupportedOpError as error:
        return numpy_calls.in_place_of(error, ufunc, inputs, options)


def _by_row(ufunc: np.ufunc, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    if options:
        what = f"numpy.{ufunc.__name__} with {', '.join(options)}"
        raise UnsupportedOpError(what, do="leave it out, and convert the result")
    inputs = _arrays(inputs)
    loop = ufunc.resolve_dtypes((*map(_kind, inputs), *(None,) * ufunc.nout))
    if any(isinstance(x, Complex | complex) for x in inputs):
        return ufuncs_complex.apply(ufunc, inputs, loop)
    *wanted, result = map(dtypes.from_numpy, loop)
    for x, dtype in zip(inputs, wanted, strict=True):
        if type(x) is int and dtypes.is_integer(dtype) and not fits(x, dtype):
            if ufunc in _COMPARISONS:  # all that the tensor can hold lies on one side
                (shape,) = (one.shape for one in inputs if isinstance(one, Term))
                return idioms.filled(bool(ufunc(*(one if one is x else 0 for one in inputs))), shape, "bool")
            raise ModelError(
                f"numpy.{ufunc.__name__} of {dtype} and {x}", do="convert the tensor to a wider dtype before"
            )
    operands = (idioms.typed(x, dtype) for x, dtype in zip(inputs, wanted, strict=True))
    return idioms.cast(narrow.applied(UFUNCS[ufunc], tuple(operands), {}, lambda: [result]), result)


_COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


def fits(number: int, dtype: DType) -> bool:
    """Whether an integer is a value of a dtype of integers."""
    info = np.iinfo(dtypes.to_numpy(dtype))
    return info.min <= number <= info.max


def _op(name: str) -> Row:
    return lambda *operands: tensor(name, *operands)


def _of_bools(name: str, logic: str) -> Row:
    return lambda x, y: tensor(logic if x.dtype == "bool" else name, x, y)


def _logic(name: str) -> Row:
    return lambda *operands: tensor(name, *map(truth, operands))


def _bits(name: str) -> Row:
    return lambda *operands: idioms.bitwise(name, *operands)


_POWERS = (-1, 0, 0.5, 1, 2, 3)
"""The exponents that have forms of their own, numpy's among them."""


def _power(x: Term, y: Term) -> Term:
    number = y.args[0] if y.op == "cast" and dtypes.is_narrow(y.args[0].dtype) else y
    value = number.attrs[0].value if number.op == "full" and isinstance(number.attrs[0], Scalar) else None
    if dtypes.is_float(x.dtype) and value not in _POWERS:
        return tensor("pow", x, y)
    if value is None or (value < 0 and not dtypes.is_float(x.dtype)):
        raise UnsupportedOpError("powers of integers", do="convert to floats, or give the exponent as a number >= 0")
    return idioms.expand(idioms.power(x, value), shapes.broadcast(x.shape, y.shape))


def _unless_nan(whole: np.ufunc) -> Row:
    """Return the larger or smaller one, or the one that is a number."""

    def row(x: Term, y: Term) -> Term:
        if not dtypes.is_float(x.dtype):
            return UFUNCS[whole](x, y)
        return UFUNCS[whole](tensor("where", tensor("ne", x, x), y, x), tensor("where", tensor("ne", y, y), x, y))

    return row


def _heaviside(x: Term, y: Term) -> Term:
    zero = idioms.scalar(0, x.dtype)
    step = tensor("cast", tensor("gt", x, zero), dtype=x.dtype)
    found = tensor("where", tensor("eq", x, zero), y, step)
    return tensor("where", tensor("ne", x, x), x, found)


def _of_numbers(name: str) -> Row:
    """Bools stay what they are."""
    return lambda x: x if x.dtype == "bool" else tensor(name, x)


def _of_floats(name: str, of_integers: Row) -> Row:
    return lambda x: tensor(name, x) if dtypes.is_float(x.dtype) else of_integers(x)


def _scaled(factor: float) -> Row:
    return lambda x: tensor("mul", x, idioms.scalar(factor, x.dtype))


def _is_infinite(x: Term) -> Term:
    if not dtypes.is_float(x.dtype):
        return idioms.filled(False, x.shape, "bool")
    return tensor("eq", tensor("abs", x), idioms.scalar(np.inf, x.dtype))


def aten_row(name: str) -> Row:
    return aten.ROWS[f"aten.{name}"]


UFUNCS: dict[np.ufunc, Row] = {
    np.add: _of_bools("add", "or"),
    np.subtract: _op("sub"),
    np.multiply: _of_bools("mul", "and"),
    np.divide: _op("div"),
    np.floor_divide: _op("floordiv"),
    np.remainder: _op("mod"),
    np.fmod: aten_row("fmod.Tensor"),
    np.power: _power,
    np.float_power: _op("pow"),
    np.maximum: _of_bools("max", "or"),
    np.minimum: _of_bools("min", "and"),
    np.fmax: _unless_nan(np.maximum),
    np.fmin: _unless_nan(np.minimum),
    np.arctan2: aten_row("atan2.default"),
    np.logaddexp: aten_row("logaddexp.default"),
    np.copysign: aten_row("copysign.Tensor"),
    np.heaviside: _heaviside,
    np.matmul: idioms.matmul,
    np.equal: _op("eq"),
    np.not_equal: _op("ne"),
    np.less: _op("lt"),
    np.less_equal: _op("le"),
    np.greater: _op("gt"),
    np.greater_equal: _op("ge"),
    np.logical_and: _logic("and"),
    np.logical_or: _logic("or"),
    np.logical_xor: lambda x, y: tensor("ne", truth(x), truth(y)),
    np.logical_not: _logic("not"),
    np.bitwise_and: _bits("bitwise_and"),
    np.bitwise_or: _bits("bitwise_or"),
    np.bitwise_xor: _bits("bitwise_xor"),
    np.invert: _bits("bitwise_not"),
    np.left_shift: _op("left_shift"),
    np.right_shift: _op("right_shift"),
    np.negative: _op("neg"),
    np.positive: lambda x: x,
    np.absolute: _of_numbers("abs"),
    np.fabs: _op("abs"),
    np.conjugate: lambda x: x,
    np.sign: _op("sign"),
    np.square: _op("square"),
    np.sqrt: _op("sqrt"),
    np.reciprocal: _of_floats("reciprocal", lambda x: aten_scalars.divide(1, x, "trunc")),
    np.exp: _op("exp"),
    np.exp2: aten_row("exp2.default"),
    np.expm1: _op("expm1"),
    np.log: _op("log"),
    np.log2: aten_row("log2.default"),
    np.log10: aten_row("log10.default"),
    np.log1p: _op("log1p"),
    np.sin: _op("sin"),
    np.cos: _op("cos"),
    np.tan: aten_row("tan.default"),
    np.arcsin: aten_row("asin.default"),
    np.arccos: aten_row("acos.default"),
    np.arctan: _op("atan"),
    np.sinh: aten_row("sinh.default"),
    np.cosh: aten_row("cosh.default"),
    np.arcsinh: aten_row("asinh.default"),
    np.arccosh: aten_row("acosh.default"),
    np.arctanh: aten_row("atanh.default"),
    np.tanh: _op("tanh"),
    np.deg2rad: _scaled(np.pi / 180),
    np.radians: _scaled(np.pi / 180),
    np.rad2deg: _scaled(180 / np.pi),
    np.degrees: _scaled(180 / np.pi),
    np.floor: _of_floats("floor", lambda x: x),
    np.ceil: _of_floats("ceil", lambda x: x),
    np.rint: _of_floats("round", lambda x: x),
    np.trunc: aten_row("trunc.default"),
    np.isnan: lambda x: tensor("ne", x, x),
    np.isinf: _is_infinite,
    np.isfinite: aten_row("isfinite.default"),
    np.signbit: aten_row("signbit.default"),
}
"""What each universal function means; its operands have the dtypes of numpy's loop."""
