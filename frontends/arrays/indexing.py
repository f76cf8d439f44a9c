"""Indexing as numpy does it: numbers, slices, new axes, and tensors or lists of indices."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_indices
from frittata.frontends.arrays.constants import constant, value_of


def indexed(x: Term, key: Sequence[Any]) -> Term:
    """Return x[key]; tensors among the indices are terms.

    Raises: ModelError for an index outside of its axis; UnsupportedOpError for masks whose values are not known.
    """
    places = _full(key, len(x.shape))
    looks_up = any(isinstance(place, Term) for place in places)
    looked_up: list[Term | None] = []
    split = 0
    for place in places:
        axis = len(looked_up)
        match place:
            case None:
                x = idioms.unsqueeze(x, axis)
                looked_up.append(None)
            case slice():
                x = _sliced(x, axis, place)
                looked_up.append(None)
            case Term():
                looked_up.append(within(place, x, axis))
            case int() if looks_up:  # an index of its own, without axes
                looked_up.append(idioms.scalar(_checked(place, x, axis), "i64"))
            case int():
                x = idioms.select(x, axis, _checked(place, x, axis))
            case EllipsisType():  # which sets apart what stands before and after it, though it is for no axes
                split = axis
            case _:
                raise ModelError(f"a tensor is indexed by a {type(place).__name__}", do="give numbers, slices, tensors")
    are_apart = all(any(i is not None for i in part) for part in (looked_up[:split], looked_up[split:]))
    return idioms_indices.advanced(x, looked_up, are_apart) if looks_up else x


def _full(key: Sequence[Any], rank: int) -> list[Any]:
    """Return an index for each axis, and an ellipsis if it is for none."""
    places: list[Any] = []
    for part in key:
        known = np.asarray(part) if isinstance(part, list | np.bool_ | bool) else None
        if known is not None and known.dtype == np.bool_:
            raise UnsupportedOpError("a mask as an index", do="give the places where it holds: numpy.flatnonzero(mask)")
        place = int(part) if isinstance(part, int | np.integer) else part
        places.append(place if known is None else constant(known))
    taken = sum(place is not None and place is not Ellipsis for place in places)
    if taken > rank:
        raise ModelError(f"{taken} indices of a tensor with {rank} axes")
    if Ellipsis not in places:
        places.append(Ellipsis)
    if places.count(Ellipsis) > 1:
        raise ModelError("a tensor is indexed by two ellipses", do="write one of them as slices")
    at = places.index(Ellipsis)
    return [*places[:at], *([slice(None)] * (rank - taken) or [Ellipsis]), *places[at + 1 :]]


def _checked(index: int, x: Term, axis: int) -> int:
    extent = idioms.number(x.shape[axis])
    if not -extent <= index < extent:
        raise ModelError(f"index {index} of axis {axis} of {x.type}")
    return index % extent


def within(indices: Term, x: Term, axis: int) -> Term:
    """Return indices of an axis.

    Raises: ModelError if they are known, and one lies outside.
    """
    known = value_of(indices)
    if known is not None and known.dtype.kind == "i":
        for index in (known.min(), known.max()):
            _checked(int(index), x, axis)
    return indices


def _sliced(x: Term, axis: int, part: slice) -> Term:
    try:
        kept = range(*part.indices(idioms.number(x.shape[axis])))
    except TypeError as error:
        raise ModelError(f"axis {axis} of a tensor is cut by {part}: {error}", do="give integers") from error
    if kept.step > 0 or not kept:
        return idioms.take_slice(x, axis, kept.start, kept.step, len(kept))
    return idioms_indices.flip(_sliced(x, axis, slice(kept[-1], kept[0] + 1, -kept.step)), [axis])
