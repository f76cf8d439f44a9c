"""Between which integers the values of an element lie, as far as its operators and dtypes tell."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.terms import Term

Interval = tuple[int, int]
"""The least and the greatest value."""


@lru_cache(maxsize=4096)
def interval(element: Term) -> Interval | None:
    """Return bounds of an element of integers; None if it holds something else."""
    if not dtypes.is_integer(element.dtype):
        return None
    found, every = _computed(element), of_dtype(element.dtype)
    return found if found is not None and lies_in(found, every) else every


def of_dtype(dtype: str) -> Interval:
    """Return the bounds of a dtype of integers."""
    info = np.iinfo(dtypes.to_numpy(dtype))
    return int(info.min), int(info.max)


def lies_in(inner: Interval, outer: Interval) -> bool:
    """Whether one interval is a part of another."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _computed(element: Term) -> Interval | None:
    """Return bounds of what an operator gives, before it wraps around; None where its operands tell nothing."""
    if element.op == "const":
        value = int(element.attrs[0].value)
        return value, value
    given = [interval(arg) for arg in element.args if arg.dtype != "bool"]
    match element.op, given:
        case "reindex" | "cast", [(low, high)]:
            return low, high
        case "neg", [(low, high)]:
            return -high, -low
        case "add", [(low, high), (least, most)]:
            return low + least, high + most
        case "sub", [(low, high), (least, most)]:
            return low - most, high - least
        case "max", [(low, high), (least, most)]:
            return max(low, least), max(high, most)
        case "min", [(low, high), (least, most)]:
            return min(low, least), min(high, most)
        case "where", [(low, high), (least, most)]:
            return min(low, least), max(high, most)
        case _:
            return None
