"""Calls of Python functions and libraries that say nothing of what they compute: opaque operators, between kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.errors import ModelError
from frittata.egraph.model import Array
from frittata.egraph.ops import registry
from frittata.egraph.ops.registry import REQUIRED, Op
from frittata.egraph.terms import Sort, TensorType
from frittata.frontends.arrays.tensor import Tensor, as_extents, dtype_named, real_term

_ATTRS = (("shape", REQUIRED), ("dtype", REQUIRED), ("given", REQUIRED))

Destination = Callable[..., Any]
"""Takes arrays, which it must not change, and last the array that it writes its result to."""


def extern(
    function: Destination,
    args: Sequence[Any],
    out: tuple[Sequence[int] | int, Any],
    reference: Callable[..., Array] | None = None,
    cost: float = 8.0,
) -> Tensor:
    """Call `function(*arrays, result)`, which writes a result of the shape and dtype in `out`.

    The function must be pure: the same arrays give the same result, and nothing else changes. `reference` returns the
    same in numpy, for the interpreter and the audit of rules; without it they ask the function. `cost` is what one
    value costs, in additions, for prices. The operator has the function's name, by which rules and scripts know it.

    >>> def twice(x, result):
    ...     np.multiply(x, 2, out=result)
    >>> extern(twice, [np.ones(3)], out=((3,), "f64"))
    Tensor(f64[3])

    Raises: ModelError if there is another operator of that name; if `out` is not the shape and dtype of a result.
    """
    operands = tuple(real_term("extern", arg) for arg in args)
    if not isinstance(out, tuple) or len(out) != 2:  # pyright: ignore
        raise ModelError(f"extern with out={out!r}", do='give shape and dtype of the result: ((3, 4), "f32")')
    shape, dtype = as_extents("extern", out[0]), dtype_named(out[1])
    name = _registered(function, len(operands), reference, cost)
    given = " ".join(operand.dtype for operand in operands)
    return Tensor(registry.make(name, "tensor", operands, (shape, dtype, given)))


def _registered(function: Destination, count: int, reference: Callable[..., Array] | None, cost: float) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    found = registry.find(name, "tensor")
    if found is not None:
        if found.writes is not function or len(found.operands) != count:
            own = f", or call frittata.ops.unregister({name!r}) before" if registry.is_own(name) else ""
            raise ModelError(f"there is another operator {name!r}", do=f"give the function another __name__{own}")
        return name
    operands: tuple[tuple[str, Sort], ...] = tuple((f"x{i}", "tensor") for i in range(count))

    def meaning(*values: Any) -> Array:
        *arrays, shape, dtype, given = values
        if reference is not None:
            return np.asarray(reference(*arrays))
        result = np.empty(shape, dtypes.to_numpy(dtype))
        typed = (x.astype(dtypes.to_numpy(kind)) for x, kind in zip(arrays, given.split(), strict=True))
        registry.write(function, typed, result)  # which may know no other dtypes than those it was declared with
        return result

    doc = (function.__doc__ or "").strip().partition("\n")[0]
    registry.register(Op(name, "tensor", operands, _ATTRS, _type, meaning, cost, opaque=True, doc=doc, writes=function))
    return name


def _type(types: tuple[Any, ...], attrs: tuple[Any, ...]) -> TensorType:
    return TensorType(attrs[0], attrs[1])
