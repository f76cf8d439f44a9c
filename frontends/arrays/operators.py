"""The operators of the registry as functions of tensors: what numpy has no name for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from frittata.egraph.errors import ModelError
from frittata.egraph.ops import registry
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Scalar, Term
from frittata.frontends import idioms
from frittata.frontends.arrays.functions import filling
from frittata.frontends.arrays.tensor import Tensor, as_tensor, is_extent, real_term


def operator(name: str) -> Callable[..., Tensor]:
    """Return an operator as a function of its operands, then its attributes.

    Operands are tensors, terms, arrays, or numbers, which take the dtype of the first tensor. An axis, of the first
    operand, may be counted from the left too.

    Raises: UnsupportedOpError that names the nearest if there is none.
    """
    op = registry.get(name)
    count = len(op.operands)
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(label, kinds[0]) for label, _ in op.operands]
    parameters += [
        inspect.Parameter(label, kinds[0], default=inspect.Parameter.empty if value is registry.REQUIRED else value)
        for label, value in op.attrs
    ]
    signature = inspect.Signature(parameters)

    def call(*args: Any, **options: Any) -> Tensor:
        try:
            bound = signature.bind(*args, **options)
        except TypeError as error:
            raise ModelError(f"{name}{signature}: {error}", do="give its operands, then its attributes") from error
        bound.apply_defaults()
        given = [as_tensor(x) if isinstance(x, Term) else x for x in bound.arguments.values()]
        dtype = next((x.dtype for x in given[:count] if hasattr(x, "dtype")), np.dtype(np.float32))
        operands = [real_term(name, _number(name, x, dtype)) for x in given[:count]]
        rank = len(operands[0].shape) if operands else 0
        attrs = (
            _attribute(f"{name} with {label}", label, value, dtype, rank)
            for (label, _), value in zip(op.attrs, given[count:], strict=True)
        )
        made = registry.make(name, "tensor", tuple(operands), tuple(attrs))
        if not all(isinstance(dim, Sym) or is_extent(dim) for dim in made.shape):
            raise ModelError(f"{name} of shape {made.shape}", do="give extents that are integers, each at least 1")
        return Tensor(made)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = op.doc
    call.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return call


def _number(name: str, x: Any, dtype: np.dtype[Any]) -> Any:
    """Give a number a dtype that has it, or one as near as floats are."""
    if not isinstance(x, bool | int | float):
        return x
    kind = idioms.dtypes.from_numpy(dtype)
    fits = isinstance(x, bool) if kind == "bool" else idioms.dtypes.is_float(kind) or float(x).is_integer()
    if idioms.dtypes.is_integer(kind) and fits:
        fits = np.iinfo(dtype).min <= x <= np.iinfo(dtype).max
    if not fits:
        raise ModelError(f"{name} of {dtype} and {x!r}", do="convert the tensor before: x.astype(numpy.float32)")
    return dtype.type(x)


_NUMBERS = frozenset(("eps", "scale", "value"))
"""Attributes that are numbers, with or without a fraction."""


def _attribute(what: str, label: str, value: Any, dtype: np.dtype[Any], rank: int) -> Any:
    if label in _NUMBERS and not isinstance(value, Scalar | int | float | np.number):
        raise ModelError(f"{what} {value!r}", do="give a number")
    if label == "value" and not isinstance(value, Scalar):
        kind = idioms.dtypes.from_numpy(dtype)
        return Scalar.of(filling(value, kind), kind)
    if label == "axis" and isinstance(value, int | np.integer):
        return idioms.negative_axis(int(value), rank)
    return tuple(value) if isinstance(value, list) else value
