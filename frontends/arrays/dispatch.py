"""Calls of numpy's functions: most have a row, and what of its arguments is no tensor has to be known."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np

from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Term
from frittata.frontends.arrays import fourier, functions_complex, numpy_calls
from frittata.frontends.arrays.constants import value_of
from frittata.frontends.arrays.functions import FUNCTIONS
from frittata.frontends.arrays.trees import leaves
from frittata.frontends.idioms_complex import Complex


def apply(function: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """Apply a function.

    Raises: UnsupportedOpError without a row, or one for such arguments, where numpy is not called; ModelError for
        arguments that it does not take.
    """
    given = {key: value for key, value in options.items() if value is not np._NoValue}  # pyright: ignore
    if function not in _ROWS:
        return numpy_calls.call(function, args, given)
    try:
        return _by_row(function, args, given)
    except UnsupportedOpError as error:
        return numpy_calls.in_place_of(error, function, args, given)


def _by_row(function: Any, args: Sequence[Any], given: dict[str, Any]) -> Any:
    of = getattr(function, "__self__", None)
    name = f"{f'numpy.{of.__name__}' if isinstance(of, np.ufunc) else function.__module__}.{function.__name__}"
    row = _ROWS[function]
    taken = signature(row)
    try:
        bound = taken.bind(*args, **given)
    except TypeError as error:
        raise UnsupportedOpError(f"{name}: {error}", do="leave the argument out") from error
    if bound.arguments.get("out") is not None:
        raise ModelError(f"{name} with out", do="take what it returns")
    for label in _STATIC.intersection(bound.arguments):
        value = bound.arguments[label] = _known(name, label, bound.arguments[label])
        several = isinstance(value, list | tuple) and str(taken.parameters[label].annotation).startswith("int")
        if several or (label in _INTEGERS and not all(_is_whole(leaf) for _, leaf in leaves(value))):
            raise ModelError(f"{name} with {label}={value!r}", do="give an integer" if several else "give integers")
    if function in FUNCTIONS and functions_complex.takes(bound):
        return functions_complex.apply(name, function, row, bound)
    return row(*bound.args, **bound.kwargs)


_ROWS = {**FUNCTIONS, **functions_complex.ROWS, **fourier.ROWS}
_INTEGERS = frozenset(
    (
        *("axis", "axis1", "axis2", "axes", "source", "destination", "shape", "k", "offset", "n", "s", "decimals"),
        *("repeats", "reps", "shift", "indices_or_sections", "pad_width"),
    )
)
_STATIC = _INTEGERS | {"ord", "ddof", "correction", "constant_values"}
"""The arguments that are no tensors: numpy's numbers and arrays are numbers and lists there."""


def _known(name: str, label: str, value: Any) -> Any:
    if isinstance(value, Term | Complex):
        array = value_of(value)
        if array is None:
            raise ModelError(f"{name} with a tensor as {label}", do="give numbers that are known")
        return array.tolist()
    if isinstance(value, list | tuple):
        return type(value)(_known(name, label, part) for part in value)  # pyright: ignore
    return tuple(value) if isinstance(value, range) else value


def _is_whole(value: Any) -> bool:
    return value is None or isinstance(value, Sym) or type(value) is int


def fold(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """Apply the `reduce` or `accumulate` of a universal function.

    Raises: as `apply`.
    """
    if (ufunc, method) not in WHOLE_BY_METHOD:
        raise numpy_calls.lacking(f"numpy.{ufunc.__name__}.{method}")
    return apply(WHOLE_BY_METHOD[ufunc, method], inputs, {"axis": 0, **options} if len(inputs) == 1 else options)


WHOLE_BY_METHOD: dict[tuple[np.ufunc, str], Any] = {
    (np.add, "reduce"): np.sum,
    (np.multiply, "reduce"): np.prod,
    (np.maximum, "reduce"): np.max,
    (np.minimum, "reduce"): np.min,
    (np.logical_and, "reduce"): np.all,
    (np.logical_or, "reduce"): np.any,
    (np.add, "accumulate"): np.cumsum,
    (np.multiply, "accumulate"): np.cumprod,
    **{(one, "accumulate"): one.accumulate for one in (np.maximum, np.minimum, np.logical_or, np.logical_and)},
}
"""The functions that fold by a universal one."""
