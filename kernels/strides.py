"""Arrays seen with other axes where that takes no copy: an index that moves by the same distance at every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from frittata.egraph import indexing
from frittata.egraph.indexing import Affine

Array = NDArray[Any]


def view_of(array: Array, index: Sequence[Affine], extents: Mapping[str, int]) -> Array | None:
    """Return `array[index]` with an axis for each of `extents`, as a view; None if there is none.

    `index` has an expression of the keys of `extents` for each axis of the array, within its extent.

    >>> import numpy as np
    >>> from frittata.egraph.indexing import var
    >>> view_of(np.arange(6).reshape(2, 3), (var("i", 2), var("j", 3)), {"j": 3, "i": 2})
    array([[0, 3],
           [1, 4],
           [2, 5]])
    """
    found = _steps(index, array.strides, extents)
    if found is None and array.flags.c_contiguous:  # k // 9 and k % 9 go on regularly from line to line
        found = _steps((indexing.flatten(tuple(index), array.shape),), (array.itemsize,), extents)
    if found is None:
        return None
    first, steps = found
    inside = array.reshape(-1)[first // array.itemsize :] if array.flags.c_contiguous else _from(array, index)
    return as_strided(inside, tuple(extents.values()), steps, writeable=False)


def _steps(
    index: Sequence[Affine], strides: Sequence[int], extents: Mapping[str, int]
) -> tuple[int, tuple[int, ...]] | None:
    """Return the bytes to the first element and those from one to the next along each key."""
    steps: list[int] = []
    for key in extents:
        factors = [at.factor_of(key) for at in index]
        if any(factor is None for factor in factors):
            return None
        steps.append(sum(factor * stride for factor, stride in zip(factors, strides, strict=True) if factor))
    return sum(at.constant * stride for at, stride in zip(index, strides, strict=True)), tuple(steps)


def _from(array: Array, index: Sequence[Affine]) -> Array:
    """Return the part of an array that begins where all keys are zero."""
    return array[tuple(slice(at.constant, None) for at in index)]
