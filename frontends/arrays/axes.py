"""What arguments of numpy's functions say of axes and extents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from frittata.egraph import shapes
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.terms import Term
from frittata.frontends import idioms


def over(x: Term, axis: Any) -> Any:
    """Return the axes of a reduction, None for all.

    Raises: ModelError for what are none; UnsupportedOpError for no axes.
    """
    if axis is None or isinstance(axis, int):
        return axis
    if not isinstance(axis, tuple):
        raise ModelError(f"axis {axis!r}", do="give an integer or a tuple of integers")
    if not axis:
        raise UnsupportedOpError("a reduction over no axes")
    return distinct(axis, len(x.shape))  # pyright: ignore


def extent_of(x: Term, axis: int) -> int:
    """Return the extent of an axis.

    Raises: ModelError if there is no such axis.
    """
    return idioms.number(x.shape[distinct([axis], len(x.shape))[0]])


def distinct(axes: Sequence[int], rank: int) -> list[int]:
    """Return axes counted from the left.

    Raises: ModelError if there is no such axis, or one is there twice.
    """
    if axes and not rank:
        raise ModelError(f"axis {axes[0]} of a tensor without axes", do="give it axes, by numpy.atleast_1d")
    found = [idioms.negative_axis(axis, rank) + rank for axis in axes]
    if len(set(found)) < len(found):
        raise ModelError(f"axes {tuple(axes)}, one of them twice", do="give each axis once")
    return found


def ints(value: Any) -> tuple[int, ...]:
    """Return the integers that are given, one or several."""
    return (int(value),) if isinstance(value, int | np.integer) else tuple(map(int, shapes.concrete(value)))
