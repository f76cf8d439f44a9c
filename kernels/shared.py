"""Memory that programs share: folded and packed constants of equal bytes are one array while any program holds it.

A model with dims that are not known has a program for each size, and all have its weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from frittata.kernels.lowered import ALIGNMENT_BYTES

Array = NDArray[Any]

_LEAST_BYTES = 1 << 12
"""Smaller arrays are not worth looking for."""

_SAMPLES = 256

_held: WeakValueDictionary[tuple[Any, ...], Array] = WeakValueDictionary()
"""Arrays by dtype, size, whether they begin at a line of memory, and some bytes: the last one of those that agree."""


def shared(array: Array, made_of: Iterable[Array]) -> Array:
    """Return a contiguous array, or one of the same bytes that a program holds; nobody may write to it from now on.

    What is still in memory that it was made of, which is not ours, stays as it is.
    """
    if array.nbytes < _LEAST_BYTES or any(np.may_share_memory(array, other) for other in made_of):
        return array
    found = array.reshape(-1).view(np.uint8)
    is_at_line = array.__array_interface__["data"][0] % ALIGNMENT_BYTES == 0
    key = (array.dtype, found.size, is_at_line, found[:: found.size // _SAMPLES].tobytes())
    held = _held.get(key)
    if held is not None and (held is array or np.array_equal(held.reshape(-1).view(np.uint8), found)):
        return held
    _held[key] = array
    return array
