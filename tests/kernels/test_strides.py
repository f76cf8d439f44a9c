"""Constants seen with other axes: the same values as the index gives, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from frittata.egraph.indexing import Affine, var
from frittata.kernels.strides import view_of

K, J = var("k", 12), var("j", 5)
EXTENTS = {"g": 2, "k": 12, "j": 5}

CASES: dict[str, tuple[NDArray[Any], tuple[Affine, ...]]] = {
    "as it lies": (np.arange(60).reshape(12, 5), (K, J)),
    "transposed": (np.arange(60).reshape(5, 12), (J, K)),
    "a view of the transpose": (np.arange(60).reshape(5, 12).T, (K, J)),
    "every second": (np.arange(240).reshape(24, 10)[::2, ::2], (K, J)),
    "a part": (np.arange(300).reshape(20, 15), (K + 3, J * 2 + 4)),
    "a part of a transpose": (np.arange(300).reshape(15, 20).T, (K + 3, J * 2 + 4)),
    "backwards": (np.arange(60).reshape(12, 5), (K * -1 + 11, J)),
    "in windows": (np.arange(60).reshape(5, 3, 2, 2), (J, K // 4, K // 2 % 2, K % 2)),
    "a scalar": (np.array(7), ()),
}


@pytest.mark.parametrize("name", CASES)
def test_a_view_has_the_values_of_the_index(name: str) -> None:
    array, index = CASES[name]
    seen = view_of(array, index, EXTENTS)
    assert seen is not None and seen.shape == (2, 12, 5)
    assert not seen.size or np.shares_memory(seen, array)
    grid = dict(zip(EXTENTS, np.indices((2, 12, 5)), strict=True))
    places = tuple(np.broadcast_to(at.evaluate(lambda key: grid[str(key)]), (2, 12, 5)) for at in index)
    np.testing.assert_array_equal(seen, array[places] if places else np.full((2, 12, 5), 7))


def test_what_lies_at_no_regular_distance_has_no_view() -> None:
    assert view_of(np.arange(60).reshape(3, 20), (K % 3, J), EXTENTS) is None
    windows = np.arange(60).reshape(2, 2, 3, 5).transpose(3, 2, 1, 0)
    assert view_of(windows, (J, K // 4, K // 2 % 2, K % 2), EXTENTS) is None
