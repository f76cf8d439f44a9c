"""What torch computes for host steps is what the operators' numpy references say, to the bit."""

from itertools import product

import numpy as np
import pytest

from frittata.egraph.ops import orders, registry
from frittata.kernels import host_library

SPECIAL = np.array([[3, -0.0, np.nan, 0.0, 3, -np.inf, 1], [np.nan, np.inf, 2, 2, -1, np.nan, 2]], np.float32)
VALUES = {
    "special": SPECIAL,
    "ties": np.random.default_rng(0).integers(0, 4, (5, 17)),
    "flat": np.array([2.0, 1.0, 2.0]),
    "one": np.zeros((1, 1), np.float32),
}


@pytest.mark.parametrize(("name", "descending", "op"), [*product(VALUES, (False, True), ("sort", "argsort"))])
def test_sorting_equals_its_reference(name: str, descending: bool, op: str) -> None:
    reference = registry.get(op).reference
    assert reference is not None
    computed = host_library.call_of(op, reference)
    assert computed is not reference
    for axis in range(-VALUES[name].ndim, 0):
        expected = reference(VALUES[name], axis, descending)
        np.testing.assert_array_equal(computed(VALUES[name], axis, descending), expected)


@pytest.mark.parametrize("reduce", ["set", "sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_scattering_equals_its_reference(reduce: str, dtype: type) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-9, 9, (5, 7, 3)).astype(dtype)
    reference = registry.get("scatter").reference
    assert reference is not None
    for axis in (-3, -2, -1):
        places = rng.integers(0, x.shape[axis], (4, 6, 2)).astype(np.int32)
        source = rng.integers(-9, 9, places.shape).astype(dtype)
        before = x.copy()
        found = host_library.call_of("scatter", reference)(x, places, source, axis, reduce)
        np.testing.assert_array_equal(found, reference(x, places, source, axis, reduce))
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("reduce", ["set", "sum", "prod", "max", "min"])
@pytest.mark.parametrize("shape", [(5, 7, 3), (200, 1, 130), (1, 60, 1), (3, 5, 0)])
def test_scattering_whole_slices_equals_its_reference_to_the_bit(reduce: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal(shape).astype(np.float32)
    reference = registry.get("scatter").reference
    assert reference is not None
    for axis in (-3, -2, -1):
        line = [1, 1, 1]
        line[axis] = count = 3 * shape[axis]
        places = rng.integers(0, max(1, shape[axis]), line)
        source = rng.standard_normal((*shape[: axis + 3], count, *shape[axis + 4 :])).astype(np.float32)
        found = host_library.call_of("scatter", reference)(x, places, source, axis, reduce)
        np.testing.assert_array_equal(found, reference(x, places, source, axis, reduce))


@pytest.mark.parametrize("reduce", ["set", "sum", "prod", "max", "min"])
@pytest.mark.parametrize(
    ("places", "source"),
    [
        ((1, 4, 1), (2, 4, 3)),
        ((1, 4, 1), (3, 4, 2)),
        ((1, 4, 1), (1, 4, 3)),
        ((2, 1, 1), (2, 4, 3)),
        ((1, 1, 1), (3, 4, 3)),
    ],
)
def test_parts_of_slices_and_shared_places_equal_their_reference(
    reduce: str, places: tuple[int, ...], source: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(3)
    x, values = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 5, 3), source))
    at = rng.permutation(5)[: places[1]].reshape(1, -1, 1) + np.zeros(places, np.int64)
    reference = registry.get("scatter").reference
    assert reference is not None
    expected = reference(x, at, values, -2, reduce)
    wide = np.broadcast_to(at, source)
    np.testing.assert_array_equal(expected, reference(x, wide, values, -2, reduce))
    np.testing.assert_array_equal(host_library.call_of("scatter", reference)(x, at, values, -2, reduce), expected)


@pytest.mark.parametrize(("name", "descending"), [*product(VALUES, (False, True))])
def test_the_first_places_are_those_of_all_sorted(name: str, descending: bool) -> None:
    x = VALUES[name]
    for axis in range(-x.ndim, 0):
        places = orders.argsort_numpy(x, axis, descending)
        for count in range(1, x.shape[axis] + 1):
            for compute in (orders.argtopk_numpy, host_library.call_of("argtopk", orders.argtopk_numpy)):
                found = compute(x, axis, count, descending)
                np.testing.assert_array_equal(found, np.take(places, range(count), axis))
