"""Scalar operators: each is an element operator, and point by point, with broadcasting, a tensor operator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from frittata.egraph import dtypes, shapes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import ModelError
from frittata.egraph.ops.registry import REQUIRED, Op, register
from frittata.egraph.terms import ElementType, Sort, TensorType, Type

DtypeRule = Callable[[tuple[DType, ...], tuple[Any, ...]], DType]


def _same(given: tuple[DType, ...], attrs: tuple[Any, ...]) -> DType:
    if len(set(given)) != 1:
        raise ModelError(f"operands have dtypes {', '.join(given)}", do="cast them to one dtype")
    return given[0]


def _number(given: tuple[DType, ...], attrs: tuple[Any, ...]) -> DType:
    if "bool" in given:
        raise ModelError("arithmetic on bool", do="cast to a number first")
    return _same(given, attrs)


def _floating(given: tuple[DType, ...], attrs: tuple[Any, ...]) -> DType:
    if not all(map(dtypes.is_float, given)):
        raise ModelError(f"needs floating-point operands, got {', '.join(given)}", do="cast first")
    return _same(given, attrs)


def _compare(given: tuple[DType, ...], attrs: tuple[Any, ...]) -> DType:
    _same(given, attrs)
    return "bool"


def _logic(given: tuple[DType, ...], attrs: tuple[Any, ...]) -> DType:
    if set(given) != {"bool"}:
        raise ModelError(f"needs bool operands, got {', '.join(given)}", do="compare first")
    return "bool"


def _integer(given: tuple[DType, ...], attrs: tuple[Any, ...]) -> DType:
    if not dtypes.is_integer(given[0]):
        raise ModelError(f"needs integer operands, got {', '.join(given)}", do="cast first")
    return _same(given, attrs)


def _where(given: tuple[DType, ...], attrs: tuple[Any, ...]) -> DType:
    _logic(given[:1], attrs)
    return _same(given[1:], attrs)


def _cast(given: tuple[DType, ...], attrs: tuple[Any, ...]) -> DType:
    return attrs[0]


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.asarray(x).dtype])(x)


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(np.asarray(x).dtype)


def _cast_numpy(x: Any, dtype: DType) -> Any:
    """Casts between floats keep the precision in which the interpreter computes; those to narrow integers wrap."""
    x = np.asarray(x)
    if dtypes.is_float(dtype) and x.dtype == np.float64:
        return x
    with np.errstate(invalid="ignore"):
        return x.astype(dtypes.to_numpy(dtypes.wide(dtype))).astype(dtypes.to_numpy(dtype))


def _scalar(
    name: str,
    arity: int,
    reference: Callable[..., Any],
    dtype_rule: DtypeRule,
    cost: float,
    attrs: tuple[tuple[str, Any], ...] = (),
    doc: str = "",
) -> None:
    def infer_tensor(types: tuple[TensorType, ...], given: tuple[Any, ...]) -> Type:
        dtype = dtype_rule(tuple(t.dtype for t in types), given)
        return TensorType(shapes.broadcast(*(t.shape for t in types)), dtype)

    def infer_element(types: tuple[ElementType, ...], given: tuple[Any, ...]) -> Type:
        dtype = dtype_rule(tuple(t.dtype for t in types), given)
        return ElementType(shapes.strip(shapes.broadcast(*(t.extents for t in types))), dtype)

    labels = ("condition", "x", "y") if name == "where" else ("x", "y", "z")[:arity]
    rows: tuple[tuple[Sort, Any], ...] = (("tensor", infer_tensor), ("element", infer_element))
    for sort, infer in rows:
        operands: tuple[tuple[str, Sort], ...] = tuple((label, sort) for label in labels)
        carries = name in ("where", "cast")
        register(Op(name, sort, operands, attrs, infer, reference, cost, pointwise=True, doc=doc, carries=carries))


def _pow(x: Any, y: Any) -> Any:
    """Return a power; where numpy sees one exponent for all, or one value, it rounds some in another way."""
    x, y = np.broadcast_arrays(x, y)
    longer = (np.append(part, part.dtype.type(1)) for part in (x, y))
    return np.power(*longer)[:-1].reshape(x.shape)


def _fma(x: Any, y: Any, z: Any) -> Any:
    """Return x * y + z, rounded once; in float64 as near to that as the machine's widest float."""
    x = np.asarray(x)
    wide = np.float64 if x.dtype == np.float32 else np.longdouble
    return (x.astype(wide) * y + z).astype(x.dtype)


_ROWS: tuple[tuple[str, int, Callable[..., Any], DtypeRule, float], ...] = (
    ("add", 2, np.add, _number, 1),
    ("sub", 2, np.subtract, _number, 1),
    ("mul", 2, np.multiply, _number, 1),
    ("div", 2, np.divide, _floating, 4),
    ("mod", 2, np.mod, _number, 20),
    ("floordiv", 2, np.floor_divide, _number, 20),
    ("max", 2, np.maximum, _number, 1),
    ("min", 2, np.minimum, _number, 1),
    ("pow", 2, _pow, _floating, 170),
    ("fma", 3, _fma, _floating, 1),
    ("neg", 1, np.negative, _number, 1),
    ("abs", 1, np.abs, _number, 1),
    ("sign", 1, np.sign, _number, 2),
    ("square", 1, np.square, _number, 1),
    ("sqrt", 1, np.sqrt, _floating, 5),
    ("rsqrt", 1, lambda x: 1 / np.sqrt(x), _floating, 9),
    ("reciprocal", 1, lambda x: 1 / x, _floating, 4),
    ("exp", 1, np.exp, _floating, 10),
    ("log", 1, np.log, _floating, 18),
    ("log1p", 1, np.log1p, _floating, 22),
    ("expm1", 1, np.expm1, _floating, 13),
    ("atan", 1, np.arctan, _floating, 15),
    ("tanh", 1, np.tanh, _floating, 18),
    ("erf", 1, _erf, _floating, 18),
    ("sigmoid", 1, _sigmoid, _floating, 16),
    ("sin", 1, np.sin, _floating, 16),
    ("cos", 1, np.cos, _floating, 16),
    ("floor", 1, np.floor, _floating, 1),
    ("ceil", 1, np.ceil, _floating, 1),
    ("round", 1, np.round, _floating, 1),
    ("lt", 2, np.less, _compare, 1),
    ("le", 2, np.less_equal, _compare, 1),
    ("gt", 2, np.greater, _compare, 1),
    ("ge", 2, np.greater_equal, _compare, 1),
    ("eq", 2, np.equal, _compare, 1),
    ("ne", 2, np.not_equal, _compare, 1),
    ("and", 2, np.logical_and, _logic, 1),
    ("or", 2, np.logical_or, _logic, 1),
    ("not", 1, np.logical_not, _logic, 1),
    ("bitwise_and", 2, np.bitwise_and, _integer, 1),
    ("bitwise_or", 2, np.bitwise_or, _integer, 1),
    ("bitwise_xor", 2, np.bitwise_xor, _integer, 1),
    ("left_shift", 2, np.left_shift, _integer, 1),
    ("right_shift", 2, np.right_shift, _integer, 1),
    ("where", 3, np.where, _where, 1),
)

_FORMULAS = {
    "pow": "x ** y",
    "fma": "x * y + z, rounded once",
    "rsqrt": "1 / sqrt(x)",
    "reciprocal": "1 / x",
    "erf": "The error function",
    "sigmoid": "1 / (1 + exp(-x))",
}

for _row in _ROWS:
    _formula = _FORMULAS.get(_row[0]) or f"numpy.{_row[2].__name__}"
    _scalar(*_row, doc=f"{_formula}, value by value, with broadcasting.")
_scalar(
    "cast",
    1,
    _cast_numpy,
    _cast,
    1,
    (("dtype", REQUIRED),),
    doc="Convert to another dtype; floats truncate to integers.",
)
