"""Meanings of operators on narrow tensors: what moves values takes them as they are, what computes takes wide ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from frittata.egraph import dtypes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import NarrowError
from frittata.egraph.terms import Scalar, Term
from frittata.frontends import idioms


def applied(
    meaning: Callable[..., Any],
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    wanted: Callable[[], Sequence[DType | None]],
) -> Any:
    """Return what a meaning makes of its arguments.

    Where it would compute with narrow values, it is given wide ones, and results get the narrow dtypes that are wanted
    of them: they are rounded once, and integers wrap. `wanted` gives the dtype of each result, None for any; the
    last holds for those that follow.
    """
    try:
        return meaning(*args, **keywords)
    except NarrowError:
        result = meaning(*map(_wide, args), **{name: _wide(value) for name, value in keywords.items()})
    kinds = wanted()
    if isinstance(result, tuple):
        return tuple(_narrow(*pair) for pair in zip(result, chain(kinds, repeat(kinds[-1])), strict=False))
    return _narrow(result, kinds[0])


def promoted(x: Any, y: Any, is_rounded: bool) -> tuple[Any, Any]:
    """Return the first two operands of an operator that promotes, of one dtype if they meet in a narrow one.

    What has no axes, numbers among them, is converted only if it `is_rounded`, or to an integer, which wraps.
    """
    if not all(isinstance(v, Term | bool | int | float) for v in (x, y)):
        return x, y
    common = idioms.promoted_dtype(x, y)
    if not dtypes.is_narrow(common):
        return x, y

    def met(value: Any) -> Any:
        has_axes = isinstance(value, Term) and value.shape
        if not has_axes and not is_rounded and dtypes.is_float(common):
            return value
        return idioms.cast(value, common) if isinstance(value, Term) else Scalar.of(value, common).value

    return met(x), met(y)


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
