"""What kernels read of a part of a buffer they read from where that part begins."""

from math import prod

import numpy as np
import pytest

from frittata.egraph import interpret, shapes
from frittata.egraph.indexing import Affine, IndexMap, axes_of, permute_map, resample_map, slice_map
from frittata.egraph.ops.registry import element, make, tensor
from frittata.egraph.slices import sliced
from frittata.egraph.terms import Term

X = make("input", "tensor", (), ("x", (6, 4, 5), "f32"))


def shown(*views: IndexMap) -> Term:
    """Return the sum of some views of x."""
    first, *others = (element("reindex", element("load", X), map=view) for view in views)
    for other in others:
        first = element("add", first, other)
    return tensor("build", first, shape=views[0].result)


def nothing(_: Term) -> bool:
    return False


def part(axis: int, start: int, length: int = 1) -> IndexMap:
    return slice_map((6, 4, 5), axis - 3, start, 1, length)


def agrees(body: Term) -> tuple[int, tuple[int, ...]]:
    """Compare with the law, and return where the part begins, and its shape."""
    x = np.arange(120, dtype=np.float32).reshape(6, 4, 5)
    (new,), starts = sliced((body,), nothing)
    (leaf,) = {term for load in new.args for term in _leaves(load)}
    shape = shapes.concrete(leaf.shape)
    values = x.reshape(-1)[starts[X] :][: prod(shape)].reshape(shape)
    (got,), (law,) = (interpret.evaluate((b,), {"x": v}, "f64") for b, v in ((new, values), (body, x)))
    np.testing.assert_array_equal(got, law)
    return starts[X], shape


def _leaves(term: Term) -> list[Term]:
    return [term] if term.op == "input" else [leaf for arg in term.args for leaf in _leaves(arg)]


@pytest.mark.parametrize(
    ("axis", "start", "length", "first", "shape"),
    [(0, 3, 1, 60, (1, 4, 5)), (0, 1, 2, 20, (2, 4, 5)), (1, 2, 1, 10, (105,)), (2, 4, 1, 4, (116,))],
)
def test_a_slice_begins_with_its_first_element(
    axis: int, start: int, length: int, first: int, shape: tuple[int, ...]
) -> None:
    assert agrees(shown(part(axis, start, length))) == (first, shape)


def test_several_slices_are_read_from_the_first_on() -> None:
    assert agrees(shown(part(0, 4), part(0, 2), part(0, 3))) == (40, (3, 4, 5))


def test_several_columns_are_read_from_the_first_on() -> None:
    assert agrees(shown(part(1, 3), part(1, 1))) == (5, (115,))
    assert agrees(shown(part(2, 2), part(2, 3), part(2, 1))) == (1, (118,))
    (one,), _ = sliced((shown(part(1, 1), part(1, 2)),), nothing)
    (other,), _ = sliced((shown(part(1, 2), part(1, 3)),), nothing)
    assert one == other


def test_only_the_first_axes_are_cut() -> None:
    assert agrees(shown(IndexMap((6, 4, 5), (2, 3), (Affine(2), *(at + 1 for at in axes_of((2, 3))))))) == (
        45,
        (1, 2, 5),
    )
    body = shown(part(1, 1, 2))
    assert sliced((body,), nothing) == ((body,), {})


def test_equal_reads_of_other_parts_are_equal() -> None:
    (one,), _ = sliced((shown(part(0, 2), part(0, 3)),), nothing)
    (other,), _ = sliced((shown(part(0, 4), part(0, 5)),), nothing)
    (apart,), _ = sliced((shown(part(0, 2), part(0, 5)),), nothing)
    assert one == other != apart


def test_what_is_read_in_all_stays() -> None:
    whole = element("load", X)
    turned = element("reindex", whole, map=permute_map((6, 4, 5), (2, 1, 0)))
    sum_of_both = element("add", element("reindex", whole, map=part(0, 3)), whole)
    for body in (tensor("build", turned, shape=(5, 4, 6)), tensor("build", sum_of_both, shape=(6, 4, 5))):
        assert sliced((body,), nothing) == ((body,), {})
    body = shown(part(0, 3))
    assert sliced((body,), lambda leaf: leaf == X) == ((body,), {})


def test_an_index_out_of_range_stays_where_it_is_clamped() -> None:
    body = shown(resample_map((6, 4, 5), -3, 3, -1, 1, 1))
    assert sliced((body,), nothing) == ((body,), {})
