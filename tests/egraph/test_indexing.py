"""Maps of views against numpy on random shapes."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frittata.egraph import indexing
from frittata.egraph.errors import ModelError
from frittata.egraph.indexing import Affine, IndexMap, var
from frittata.egraph.interpret import grid
from frittata.egraph.shapes import Sym

Array = np.ndarray[Any, np.dtype[Any]]
N, M = Sym("n"), Sym("m")


def read(mapping: IndexMap, x: Array) -> Array:
    """Apply a map at every place of its result."""
    index: Any = grid(tuple(int(str(d)) for d in mapping.result))
    found = tuple(np.asarray(source.evaluate(index.__getitem__)) for source in mapping.sources)
    return np.broadcast_to(x[found], mapping.result)  # type: ignore[arg-type]


@cache
def every_factoring(size: int) -> list[tuple[int, ...]]:
    """All shapes of `size` values, with at most one dim of 1."""
    proper = _proper(size)
    ones = [(*shape[:i], 1, *shape[i:]) for shape in proper for i in range(len(shape) + 1)]
    return [*proper, *ones]


def _proper(size: int) -> list[tuple[int, ...]]:
    return (
        [()] if size == 1 else [(d, *rest) for d in range(2, size + 1) if size % d == 0 for rest in _proper(size // d)]
    )


def factorings(size: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.sampled_from(every_factoring(size))


def reshapes() -> st.SearchStrategy[tuple[tuple[int, ...], tuple[int, ...]]]:
    sizes = st.sampled_from([1, 2, 6, 7, 12, 24, 60, 72])
    return sizes.flatmap(lambda size: st.tuples(factorings(size), factorings(size)))


@st.composite
def views(draw: st.DrawFn) -> tuple[Array, list[tuple[IndexMap, Array]]]:
    """A tensor and some views, each of the one before, with what numpy makes of them."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple))
    start: Array = np.arange(prod(shape)).reshape(shape)
    value, chain = start, list[tuple[IndexMap, Array]]()
    for kind in draw(st.lists(st.sampled_from(["reshape", "permute", "slice"]), min_size=2, max_size=4)):
        if kind == "reshape":
            wanted = draw(factorings(value.size))
            mapping, value = indexing.reshape_map(value.shape, wanted), value.reshape(wanted)
        elif kind == "permute":
            order = tuple(draw(st.permutations(range(value.ndim))))
            mapping, value = indexing.permute_map(value.shape, order), value.transpose(order)
        elif value.ndim:
            axis = draw(st.integers(-value.ndim, -1))
            first, step = draw(st.integers(0, value.shape[axis] - 1)), draw(st.integers(1, 3))
            length = draw(st.integers(1, len(range(first, value.shape[axis], step))))
            mapping = indexing.slice_map(value.shape, axis, first, step, length)
            value = np.take(value, range(first, first + (length - 1) * step + 1, step), axis)
        else:
            continue
        chain.append((mapping, value))
    return start, chain


@given(reshapes())
def test_reshape_reads_in_row_major_order(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    source, result = pair
    x = np.arange(prod(source)).reshape(source)
    mapping = indexing.reshape_map(source, result)
    assert (mapping.source, mapping.result) == pair
    np.testing.assert_array_equal(read(mapping, x), x.reshape(result))
    assert mapping.linear_offset() == 0


@given(reshapes())
def test_a_reshape_and_back_is_the_identity_in_normal_form(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    source, result = pair
    there, back = indexing.reshape_map(source, result), indexing.reshape_map(result, source)
    assert indexing.compose(back, there).sources == indexing.axes_of(source)


@given(views())
def test_each_view_and_their_composition_read_what_numpy_reads(
    case: tuple[Array, list[tuple[IndexMap, Array]]],
) -> None:
    start, chain = case
    value, whole = start, None
    for mapping, expected in chain:
        np.testing.assert_array_equal(read(mapping, value), expected)
        whole = mapping if whole is None else indexing.compose(mapping, whole)
        np.testing.assert_array_equal(read(whole, start), expected)
        value = expected


@given(views())
def test_a_linear_offset_says_where_a_view_lies_in_memory(case: tuple[Array, list[tuple[IndexMap, Array]]]) -> None:
    _, chain = case
    whole = None
    for mapping, expected in chain:
        whole = mapping if whole is None else indexing.compose(mapping, whole)
        offset = whole.linear_offset()
        first = expected.flat[0]  # `start` counts its values in memory order
        contiguous = np.array_equal(expected.ravel(), np.arange(first, first + expected.size))
        assert offset == (first if contiguous else None)


@pytest.mark.parametrize(("low", "high"), [(1, 0), (1, -1), (0, 1), (-1, 1)])
def test_where_an_index_is_clamped_there_is_no_offset(low: int, high: int) -> None:
    assert indexing.pad_map((4,), (low,), (high,)).linear_offset() is None


def test_reshapes_that_cut_across_each_other_are_a_view_in_the_end() -> None:
    across, back = indexing.reshape_map((5, 2, 2), (2, 2, 5)), indexing.reshape_map((2, 2, 5), (4, 5))
    assert indexing.compose(back, across).linear_offset() == 0


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 30), st.integers(-7, 7), st.integers(0, 9))
def test_quotients_and_remainders_are_those_of_python(a: int, b: int, by: int, factor: int, constant: int) -> None:
    value = var("i", a) * factor + var("j", b) * 3 + constant
    for i in range(a):
        for j in range(b):
            given_by_key: dict[int | str, int] = {"i": i, "j": j}
            number = i * factor + j * 3 + constant
            assert (value // by).evaluate(given_by_key.__getitem__) == number // by
            assert (value % by).evaluate(given_by_key.__getitem__) == number % by
    low, high = value.bounds()
    assert low <= constant <= high or a > 1


@given(st.integers(-9, 9), st.integers(-3, 3), st.integers(-9, 9), st.integers(1, 9))
def test_clamps_are_those_of_python(a: int, factor: int, constant: int, extent: int) -> None:
    at = var("a", 10) * factor + constant
    clamped = at.clamped(extent)
    low, high = clamped.bounds()
    for value in range(10):
        law = min(max(value * factor + constant, 0), extent - 1)
        assert clamped.evaluate(lambda _, value=value: value) == law
        assert clamped.substitute({"a": Affine(value)}) == Affine(law)
        assert low <= law <= high < extent
    values = np.arange(10)
    assert np.all(clamped.evaluate(lambda _: values) == np.clip(values * factor + constant, 0, extent - 1))
    assert (clamped + a).substitute({"a": var("b", 10)}) == at.substitute({"a": var("b", 10)}).clamped(extent) + a


def test_splitting_an_axis_and_merging_it_gives_the_axis() -> None:
    i = var("i", 12)
    assert (i // 4) * 4 + i % 4 == i
    assert ((i // 2) % 3) * 2 + i % 2 == i % 6
    assert (var("a", 3) * 4 + var("b", 4)) // 4 == var("a", 3)
    assert (var("a", 3) * 4 + var("b", 4)) % 4 == var("b", 4)


def test_a_variable_of_extent_1_is_zero() -> None:
    assert var("i", 1) == Affine()


def test_factor_of_tells_linear_from_other_dependence() -> None:
    i, j = var("i", 8), var("j", 8)
    assert (i * 3 + j).factor_of("i") == 3
    assert (j * 2).factor_of("i") == 0
    assert (i // 3).factor_of("i") is None


def test_a_symbolic_axis_is_kept_by_a_reshape() -> None:
    mapping = indexing.reshape_map((N, 6), (N, 2, 3))
    assert mapping.sources[0] == var(-3, N)
    assert indexing.reshape_map((4, N, 6), (2, 2, N, 3, 2)).sources[1] == var(-3, N)


@pytest.mark.parametrize(
    ("source", "result"), [((2, 3), (5,)), ((N, 6), (6, N)), ((N, 2), (N,)), ((N,), (M,)), ((6,), (N, 6)), ((2,), ())]
)
def test_a_reshape_that_changes_the_size_or_moves_a_symbol_is_refused(source: Any, result: Any) -> None:
    with pytest.raises(ModelError, match="cannot reshape"):
        indexing.reshape_map(source, result)


def test_a_reshape_of_rows_keeps_the_last_axis_and_the_order() -> None:
    rows = [((2, 5, 4), (10, 4)), ((10, 4), (2, 5, 1, 4)), ((6, 1), (2, 3, 1))]
    assert all(indexing.reshape_map(*shapes).reshapes_rows() for shapes in rows)
    others = [((2, 5, 4), (10, 2, 2)), ((1, 5, 4), (5, 4)), ((5, 4), (5, 4))]
    assert not any(indexing.reshape_map(*shapes).reshapes_rows() for shapes in others)
    unknown = IndexMap((N, 4), (N, 1, 4), (var(-3, N), var(-1, 4)))
    assert not unknown.reshapes_rows()
    assert not indexing.permute_map((2, 5, 4), (1, 0, 2)).reshapes_rows()
    assert not indexing.slice_map((6, 4), -2, 0, 1, 3).reshapes_rows()
