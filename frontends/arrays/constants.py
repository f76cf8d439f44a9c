"""Arrays in terms: a param, named after its content, whose value is known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from frittata.egraph import dtypes, terms
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import EmptyError, ModelError
from frittata.egraph.model import Array
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms
from frittata.frontends.calls import complex_of
from frittata.frontends.idioms_complex import Complex, terms_of

_ARRAY_BY_PARAM: WeakKeyDictionary[Term, Array] = WeakKeyDictionary()


PART_BY_DTYPE = {np.dtype(np.complex64): "f32", np.dtype(np.complex128): "f64"}
"""The dtype of the parts by numpy's complex dtype."""


def constant(value: Any) -> Any:
    """Return a copy of an array, or a numpy number, as a term; equal arrays are one term. A complex one is a pair.

    >>> constant(np.float32(2)).op
    'full'

    Raises: ModelError if it is none, or there is no element type for its dtype; EmptyError if it has no values.
    """
    if isinstance(value, np.matrix | np.ma.MaskedArray):
        raise ModelError(f"a constant is a {type(value).__name__}", do="give a plain array: numpy.asarray(x)")
    array: Any = np.array(np.asarray(value))  # torch has no `__array__` that takes `copy`
    if array.dtype == object:
        raise ModelError(f"a {type(value).__name__} is no tensor: {value!r:.80}", do="give tensors, arrays and numbers")
    if array.dtype in PART_BY_DTYPE:
        return Complex(constant(array.real), constant(array.imag))
    dtype = dtypes.from_numpy(array.dtype)
    if not array.size:
        what = f"an array of shape {array.shape}, which is empty, meets a tensor"
        raise EmptyError(what, do="give arrays with values, join them, or compute this of arrays that are all empty")
    if not array.ndim:
        return idioms.scalar(array.item(), dtype)
    content = hashlib.sha256(f"{dtype}{array.shape}".encode() + array.tobytes()).hexdigest()[:16]
    param = tensor("param", name=f"constant_{content}", shape=array.shape, dtype=dtype)
    _ARRAY_BY_PARAM.setdefault(param, array)
    return param


def term_of(x: Any) -> Any:
    """Return a number, which has numpy's own dtype here, or a list, as a tensor."""
    return x if isinstance(x, Term | Complex) else constant(x)


def value_of(term: Complex | Term) -> Array | None:
    """Return the array that a term, or a pair, is a constant of, None if it is none."""
    if isinstance(term, Complex):
        real, imag = map(value_of, terms_of(term))
        return None if real is None or imag is None else complex_of(np.stack((real, imag), -1))
    if term.op == "full" and not term.shape:
        return np.asarray(term.attrs[0].value)
    return _ARRAY_BY_PARAM.get(term)


def values_in(roots: Iterable[Term]) -> dict[str, Array]:
    """Return the values of the constants that terms are computed from, by name."""
    params = (term for term in terms.walk(*roots) if term in _ARRAY_BY_PARAM)
    return {term.attrs[0]: _ARRAY_BY_PARAM[term] for term in params}


def dtype_of(x: Complex | Term) -> np.dtype[Any]:
    """Return numpy's dtype of a tensor."""
    if isinstance(x, Term):
        return dtypes.to_numpy(x.dtype)
    return np.result_type(dtypes.to_numpy(x.real.dtype), np.complex64)


def part_dtype(dtype: Any) -> DType | None:
    """Return the dtype of the parts if one of numpy's is complex, None if it is real, or none."""
    try:
        return PART_BY_DTYPE.get(np.dtype(dtype))
    except TypeError:
        return None
