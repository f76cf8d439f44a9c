"""What numpy's universal functions mean of complex tensors; Python's numbers stay numbers among the operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import aten, aten_scalars, idioms, idioms_complex
from frittata.frontends.arrays.constants import part_dtype, value_of
from frittata.frontends.idioms_complex import Complex, compared, each, multilinear, parts

Row = Callable[..., Any]


def apply(ufunc: np.ufunc, inputs: Sequence[Any], loop: Sequence[np.dtype[Any]]) -> Any:
    """Apply a universal function to operands with complex tensors or numbers among them; `loop` is numpy's.

    Raises: UnsupportedOpError without a meaning.
    """
    if ufunc not in UFUNCS:
        raise lacking(f"numpy.{ufunc.__name__}")
    part = part_dtype(loop[0])  # none where only truth is asked for
    found = UFUNCS[ufunc](*(_typed(x, part) if part else x for x in inputs))
    return Complex(*parts(found)) if part_dtype(loop[-1]) else found


def lacking(name: str) -> UnsupportedOpError:
    """Return the error for a function that has no meaning of complex numbers."""
    do = "compute it of their parts, x.real and x.imag, or of their sizes, numpy.abs(x)"
    return UnsupportedOpError(f"{name} of complex numbers", do=do)


def _typed(x: Any, dtype: DType) -> Any:
    """Give the parts of a tensor a dtype; numbers stay, and tensors without axes that are known stay known."""
    if isinstance(x, Complex):
        return each(partial(_typed, dtype=dtype), x)
    known = value_of(x) if isinstance(x, Term) and not x.shape else None
    if known is not None:
        return idioms.scalar(known.item(), dtype)
    return idioms.cast(x, dtype) if isinstance(x, Term) else x


def _power(z: Any, exponent: Any) -> Complex:
    known = value_of(exponent) if isinstance(exponent, Term) and not exponent.shape else None
    number = exponent if known is None else known.item()
    if isinstance(z, Complex) and isinstance(number, int | float):
        return idioms_complex.power(z, number)
    return idioms_complex.power_by(z, exponent)


def _matmul(x: Any, y: Any) -> Any:
    return multilinear(lambda *chosen: idioms.matmul(*idioms.promoted(*chosen)), (x, y))


def _truth(x: Any) -> Term:
    if isinstance(x, Complex):
        return idioms_complex.truth(x)
    if not isinstance(x, Term):
        return idioms.scalar(bool(x), "bool")
    wide = idioms.cast(x, dtypes.wide(x.dtype))
    return tensor("ne", wide, idioms.like(wide, 0))


def _logic(name: str) -> Row:
    return lambda *operands: tensor(name, *map(_truth, operands))


def _equal(op: str, join: str) -> Row:
    return partial(compared, join, lambda x, y: tensor(op, *idioms.promoted(x, y)))


UFUNCS: dict[np.ufunc, Row] = {
    np.add: idioms_complex.added,
    np.subtract: lambda x, y: idioms_complex.added(x, y, "sub"),
    np.multiply: idioms_complex.times,
    np.divide: lambda x, y: idioms_complex.divided(x, y, aten_scalars.divide),
    np.power: _power,
    np.float_power: _power,
    np.matmul: _matmul,
    np.equal: _equal("eq", "and"),
    np.not_equal: _equal("ne", "or"),
    np.logical_and: _logic("and"),
    np.logical_or: _logic("or"),
    np.logical_xor: _logic("ne"),
    np.logical_not: _logic("not"),
    np.negative: lambda z: each(partial(tensor, "neg"), z),
    np.positive: lambda z: z,
    np.absolute: idioms_complex.size,
    np.conjugate: idioms_complex.conjugate,
    np.sign: idioms_complex.sign,
    np.square: lambda z: idioms_complex.times(z, z),
    np.reciprocal: idioms_complex.reciprocal,
    np.sqrt: idioms_complex.root,
    np.exp: idioms_complex.exp,
    np.log: idioms_complex.log,
    np.log2: lambda z: idioms_complex.log(z, 2),
    np.log10: lambda z: idioms_complex.log(z, 10),
    np.sin: idioms_complex.sin,
    np.cos: idioms_complex.cos,
    np.sinh: idioms_complex.sinh,
    np.cosh: idioms_complex.cosh,
    np.tan: idioms_complex.tan,
    np.tanh: idioms_complex.tanh,
    np.isnan: partial(compared, "or", lambda part: tensor("ne", part, part)),
    np.isinf: partial(compared, "or", aten.ROWS["aten.isinf.default"]),
    np.isfinite: partial(compared, "and", aten.ROWS["aten.isfinite.default"]),
}
"""What each universal function means."""
