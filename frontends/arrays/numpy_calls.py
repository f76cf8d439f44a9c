"""Calls of numpy's functions that have no row, as opaque terms: numpy itself runs them, between kernels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.model import Array
from frittata.egraph.ops import externs
from frittata.egraph.terms import TensorType, Term
from frittata.frontends.arrays import trees
from frittata.frontends.arrays.constants import value_of
from frittata.frontends.arrays.trees import Path
from frittata.frontends.idioms_complex import Complex

_IS_ALLOWED: ContextVar[bool] = ContextVar("is_allowed", default=False)
_EXAMPLES = ("random", "wide", "ones", "gaps")
"""The values with which a function is tried: what it returns has one shape, or it depends on values."""
_MOST_S = 1.0
"""After so long it is tried no more: results of other shapes are errors when it runs."""


@contextmanager
def allowed(is_allowed: bool) -> Generator[None]:
    """Say whether functions without a row become calls of numpy."""
    token = _IS_ALLOWED.set(is_allowed)
    try:
        yield
    finally:
        _IS_ALLOWED.reset(token)


def lacking(name: str, why: str = "") -> UnsupportedOpError:
    """Return the error for a function without a row."""
    what = f"{name} has no row" + (f", and numpy cannot be called for it: {why}" if why else "")
    return UnsupportedOpError(what, do="write it with other functions, or call it with frittata.extern")


def call(function: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Return a call as terms, nested as its results are.

    Raises: UnsupportedOpError if calls are not allowed, or if what the function returns is not arrays of one shape.
    """
    name = f"{getattr(function, '__module__', None) or 'numpy'}.{function.__name__}"
    if not _IS_ALLOWED.get():
        raise lacking(name)
    if _named(name) is not function:
        raise lacking(name, "it is none of its pure functions")
    for label in ("out", "where") if isinstance(function, np.ufunc) else ("out",):
        if options.get(label) is not None:
            raise ModelError(f"{name} with {label}", do="take what it returns")
    operands: dict[Term, int] = {}
    try:
        parts = [_text(value, operands) for value in args]
        parts += [f"{key}={_text(value, operands)}" for key, value in options.items()]
        text = f"{name}({', '.join(parts)})"
        found, types = _tried(text, tuple(operands))
    except ModelError as error:
        raise lacking(name, error.what) from error
    numbers = {path: number for number, path in enumerate(types)}
    return trees.rebuilt(found, lambda path, _: externs.extern(text, tuple(operands), numbers[path], types[path]))


def in_place_of(error: ModelError, function: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Return a call of a function whose row does not take such arguments, as its error says.

    Raises: the error, where numpy cannot be called either.
    """
    try:
        return call(function, args, options)
    except ModelError:
        raise error from None


def _named(name: str) -> Any:
    try:
        return externs.of_numpy(name)
    except AttributeError:
        return None


def _text(value: Any, operands: dict[Term, int]) -> str:
    """Write an argument; tensors are named by their place among the operands.

    Raises: ModelError for what has no text.
    """
    match value:
        case Term():
            return f"x{operands.setdefault(value, len(operands))}"
        case Complex() | complex():
            raise ModelError("it would be given complex numbers")
        case tuple():
            return f"({''.join(f'{_text(part, operands)}, ' for part in value)})"  # pyright: ignore[reportUnknownVariableType]
        case list() | range():
            return f"[{', '.join(_text(part, operands) for part in value)}]"  # pyright: ignore[reportUnknownVariableType]
        case type() | np.dtype():
            return repr(np.dtype(value).name)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return externs.show_argument(value)


def _tried(text: str, operands: Sequence[Term]) -> tuple[Any, dict[Path, TensorType]]:
    """Return what a call returns for example values of its operands, and the type of each array in it.

    Raises: ModelError if it takes none of them, or if the types of results depend on them.
    """
    results: list[Any] = []
    refused = ModelError("it takes no tensor")
    end = time.perf_counter() + _MOST_S
    for kind in _EXAMPLES:
        if results and time.perf_counter() > end:
            break
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                results.append(externs.called(text, [_example(term, kind) for term in operands]))
        except ModelError as error:
            refused = error
    if not results or not operands:
        raise refused
    types = [{path: _type(leaf) for path, leaf in trees.leaves(result)} for result in results]
    if any(others != types[0] for others in types):
        raise ModelError("the shape or dtype of its result depends on values")
    return results[0], types[0]


def _example(term: Term, kind: str) -> Array:
    """Return values for an operand: its own if they are known, else matrices that are positive definite, if may be."""
    shape, dtype = shapes.concrete(term.shape), dtypes.to_numpy(term.dtype)
    known = value_of(term)
    if known is not None:
        return np.asarray(known, dtype)
    if kind == "ones":
        return np.ones(shape, dtype)
    rng = np.random.default_rng(0)
    is_float, most = dtypes.is_float(term.dtype), 7 if kind == "wide" else 2
    values = rng.uniform(0.5, 0.5 * most, shape) if is_float else rng.integers(0, most, shape)
    if kind == "gaps":
        values = values * (np.arange(values.size).reshape(shape) % 2)
    if is_float and len(shape) > 1 and shape[-1] == shape[-2]:
        values = values + most * shape[-1] * np.eye(shape[-1])
    return values.astype(dtype)


def _type(found: Any) -> TensorType:
    """Return the type of a result.

    Raises: ModelError if it is no array of numbers, or empty.
    """
    if not isinstance(found, np.ndarray | np.generic | bool | int | float):
        raise ModelError(f"it returns a {type(found).__name__}")
    array = np.asarray(found)
    if not array.size:
        raise ModelError("its result is empty, at least for some values")
    return TensorType(array.shape, dtypes.from_numpy(array.dtype))
