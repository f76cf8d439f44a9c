"""Memory that programs share: folded and packed constants of equal bytes are one array while any program holds it.

A model with dims that are not known has a program for each size, and all have its weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from frittata.kernels.packing import aligned_zeros
from frittata.kernels.tiles import CACHE_LINE_BYTES

Array = NDArray[Any]

_LEAST_BYTES = 1 << 12
"""Smaller arrays are not worth looking for."""

_SAMPLES = 256

_held: WeakValueDictionary[tuple[Any, ...], Array] = WeakValueDictionary()
"""Arrays by dtype, shape and some bytes: the last one of those that agree. All begin at a line of memory."""


def shared(array: Array, made_of: Iterable[Array]) -> Array:
    """Return a contiguous array, or one of the same bytes that a program holds; nobody may write to it from now on.

    What is still in memory that it was made of, which is not ours, stays as it is.
    """
    if array.nbytes < _LEAST_BYTES or any(np.may_share_memory(array, other) for other in made_of):
        return array
    found = array.reshape(-1).view(np.uint8)
    key = (array.dtype, array.shape, found[:: found.size // _SAMPLES].tobytes())
    held = _held.get(key)
    if held is not None and (held is array or np.array_equal(held.reshape(-1).view(np.uint8), found)):
        return held
    if array.ctypes.data % CACHE_LINE_BYTES:
        moved = aligned_zeros(array.shape, array.dtype)
        moved[...] = array
        array = moved
    _held[key] = array
    return array
