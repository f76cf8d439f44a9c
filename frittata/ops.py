"""The operators: each by its name as a function of tensors, and the registry that they come from.

>>> from frittata import ops
>>> ops.softmax(ops.input("x", (3, 4)), axis=-1)
Tensor(f32[3, 4])
"""

from __future__ import annotations

from typing import Any

from frittata.egraph.errors import MissingAttributeError, UnsupportedOpError
from frittata.egraph.ops import Op, get, names, nearest, register, unregister
from frittata.frontends.arrays.operators import operator
from frittata.frontends.arrays.tensor import input

__all__ = ["Op", "get", "input", "names", "nearest", "register", "unregister"]


def __getattr__(name: str) -> Any:
    """Return an operator, those that are registered later among them, as a function."""
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return operator(name.removesuffix("_"))
    except UnsupportedOpError as error:
        raise MissingAttributeError(error.what, do=error.do or "frittata.ops.names() lists them") from error


def __dir__() -> list[str]:
    return sorted({*__all__, *names()})
