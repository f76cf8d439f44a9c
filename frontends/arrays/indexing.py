"""Indexing as numpy does it: numbers, slices, new axes, and tensors or lists of indices."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.errors import EmptyError, ModelError, UnsupportedOpError
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
            case Term() if place.dtype == "bool":
                looked_up.extend(_chosen(place, x, axis))
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
        place = int(part) if isinstance(part, int | np.integer) else part
        places.append(place if known is None else constant(known))
    taken = sum(map(_axes_taken, places))
    if taken > rank:
        raise ModelError(f"{taken} indices of a tensor with {rank} axes")
    if Ellipsis not in places:
        places.append(Ellipsis)
    if places.count(Ellipsis) > 1:
        raise ModelError("a tensor is indexed by two ellipses", do="write one of them as slices")
    at = places.index(Ellipsis)
    return [*places[:at], *([slice(None)] * (rank - taken) or [Ellipsis]), *places[at + 1 :]]


def _axes_taken(place: Any) -> int:
    if isinstance(place, Term) and place.dtype == "bool":
        return len(place.shape)
    return place is not None and place is not Ellipsis


def _chosen(mask: Term, x: Term, axis: int) -> list[Term]:
    """Return the indices for a mask of some axes.

    Raises: UnsupportedOpError if its values are not known; ModelError if it has other extents than the axes.
    """
    if not mask.shape:
        raise UnsupportedOpError("a truth value as an index", do="write None for an axis of extent 1")
    known = value_of(mask)
    if known is None:
        do = "compute all places, and choose among them: numpy.where(mask, x, y)"
        raise UnsupportedOpError("indexing by a mask, whose result has no static shape", do=do)
    masked = x.shape[axis : axis + len(mask.shape)]
    if masked != mask.shape:
        raise ModelError(f"a mask of shape {mask.shape} for axes of {masked}", do="give them the same extents")
    if not known.any():
        raise EmptyError(f"a mask that chooses nothing of {x.type}", do="tensors need at least one value")
    return [constant(places) for places in np.nonzero(known)]


def _checked(index: int, x: Term, axis: int) -> int:
    extent = idioms.number(x.shape[axis])
    if not -extent <= index < extent:
        raise ModelError(f"index {index} of axis {axis} of {x.type}")
    return index % extent


def within(indices: Term, x: Term, axis: int) -> Term:
    """Return indices of an axis, narrow ones widened.

    Raises: ModelError if they are known, and one lies outside.
    """
    known = value_of(indices)
    if known is not None and known.dtype.kind == "i":
        for index in (known.min(), known.max()):
            _checked(int(index), x, axis)
    return idioms.cast(indices, dtypes.wide(indices.dtype))


def _sliced(x: Term, axis: int, part: slice) -> Term:
    try:
        kept = range(*part.indices(idioms.number(x.shape[axis])))
    except TypeError as error:
        raise ModelError(f"axis {axis} of a tensor is cut by {part}: {error}", do="give integers") from error
    if kept.step > 0 or not kept:
        return idioms.take_slice(x, axis, kept.start, kept.step, len(kept))
    return idioms_indices.flip(_sliced(x, axis, slice(kept[-1], kept[0] + 1, -kept.step)), [axis])
