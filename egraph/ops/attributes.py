"""What attributes may be: those of the package's operators by their labels, those of one's own what scripts can say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.errors import ModelError
from frittata.egraph.indexing import Affine, IndexMap
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Scalar


def plain(value: Any) -> Any:
    """Return numpy's numbers as Python's, and lists as tuples."""
    if isinstance(value, np.generic):
        return value.item()
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value  # pyright: ignore


def check(op: str, label: str, value: Any, is_built_in: bool) -> None:
    """Raise ModelError unless an attribute is of its kind."""
    wanted, fits = _BY_LABEL.get(label, _ANY) if is_built_in else _ANY
    if not fits(value):
        what = f"no dtype {value!r}" if label == "dtype" else f"attribute {label} of {op} is {value!r}"
        raise ModelError(what, do=f"{'use' if label == 'dtype' else 'give'} {wanted}")


def is_type(shape: Any, dtype: Any) -> bool:
    """Whether a type is of extents and a dtype."""
    return _SHAPE[1](shape) and _is_dtype(dtype)


def _is_integer(value: Any) -> bool:
    return type(value) is int


def _is_positive(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_extent(value: Any) -> bool:
    return isinstance(value, Sym) or (type(value) is int and value >= 0)


def _is_dtype(value: Any) -> bool:
    return isinstance(value, str) and value in dtypes.NAMES


def _all(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(fits, value))  # pyright: ignore[reportUnknownArgumentType]


def _a(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))  # pyright: ignore[reportUnknownArgumentType]
    return value is None or isinstance(value, bool | int | float | str | Scalar | Sym | IndexMap)


_Kind = tuple[str, Callable[[Any], bool]]
_ANY: _Kind = ("a number, a truth value, a string, None, a dim, a constant, or a tuple of these", _is_plain)
_INTEGER: _Kind = ("an integer", _is_integer)
_INTEGERS: _Kind = ("a tuple of integers", _all(_is_integer))
_POSITIVE: _Kind = ("a positive integer", _is_positive)
_POSITIVES: _Kind = ("a tuple of positive integers", _all(_is_positive))
_NUMBER: _Kind = ("a number", _is_number)
_BOOL: _Kind = ("True or False", _a(bool))
_TEXT: _Kind = ("a string", _a(str))
_EXTENT: _Kind = ("an extent", _is_extent)
_SHAPE: _Kind = ("a tuple of extents", _all(_is_extent))

_BY_LABEL: dict[str, _Kind] = {
    **dict.fromkeys(("axis", "channels", "count", "divisor", "length", "result", "start", "step"), _INTEGER),
    **dict.fromkeys(("high", "low", "output_padding", "padding", "permutation"), _INTEGERS),
    **dict.fromkeys(("dilation", "kernel", "steps", "stride"), _POSITIVES),
    **dict.fromkeys(("eps", "scale"), _NUMBER),
    **dict.fromkeys(("ceil", "count_include_pad", "descending", "safe"), _BOOL),
    **dict.fromkeys(("call", "name", "op", "reduce"), _TEXT),
    **dict.fromkeys(("depth", "extent", "keys"), _EXTENT),
    **dict.fromkeys(("shape", "source"), _SHAPE),
    "at": ("index arithmetic", _a(Affine)),
    "dtype": (f"one of {', '.join(dtypes.NAMES)}", _is_dtype),
    "map": ("a map of indices", _a(IndexMap)),
    "groups": _POSITIVE,
    "tile": _POSITIVE,
    "value": ("a constant", _a(Scalar)),
}
