"""Meanings of operators on narrow tensors: what moves values takes them as they are, what computes takes wide ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from frittata.egraph import dtypes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import NarrowError
from frittata.egraph.terms import Term
from frittata.frontends import idioms


def applied(
    meaning: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any], wanted: Sequence[DType | None]
) -> Any:
    """Return what a meaning makes of its arguments.

    Where it would compute with narrow values, it is given wide ones, and results get the narrow dtypes that are wanted
    of them: they are rounded once, and integers wrap. `wanted` has the dtype of each result, None for any; the last
    holds for those that follow.
    """
    try:
        return meaning(*args, **keywords)
    except NarrowError:
        result = meaning(*map(_wide, args), **{name: _wide(value) for name, value in keywords.items()})
    if isinstance(result, tuple):
        return tuple(_narrow(*pair) for pair in zip(result, chain(wanted, repeat(wanted[-1])), strict=False))
    return _narrow(result, wanted[0])


def _wide(value: Any) -> Any:
    """Return an argument with wide tensors, and wide dtypes, in place of narrow ones."""
    if isinstance(value, Term):
        return idioms.cast(value, dtypes.wide(value.dtype))
    if isinstance(value, list | tuple):
        return type(value)(map(_wide, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return dtypes.wide(value) if isinstance(value, str) else value


def _narrow(result: Any, wanted: DType | None) -> Any:
    if isinstance(result, Term) and wanted is not None and result.dtype in (dtypes.wide(wanted), "bool"):
        return idioms.cast(result, wanted)
    return result
