"""Index set splitting: ranges of the last axis have bodies of their own, which compute what the whole does there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_cases import Case, assert_agrees, build, element, load, number, reindex

import frittata as ft
from frittata.egraph import interpret
from frittata.egraph.errors import IndexRangeError
from frittata.egraph.indexing import IndexMap, var
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops import registry
from frittata.egraph.program import operands_of
from frittata.egraph.terms import Term, walk
from frittata.kernels import runtime
from frittata.kernels.index_sets import over, ranges_of
from frittata.kernels.templates.pointwise import POINTWISE
from frittata.optimized import Optimized

X, Y = np.arange(21.0, dtype=np.float32).reshape(3, 7) - 9, np.ones((3, 4), np.float32)

CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, int]]]] = {
    "concatenation": (lambda x, y: np.concatenate([x, y], 1) * 2, [(0, 7), (7, 11)]),
    "three parts": (lambda x, y: np.concatenate([y, x + 1, y], 1), [(0, 4), (4, 11), (11, 15)]),
    "border": (lambda x, y: np.pad(x, ((0, 0), (2, 3)), constant_values=5) + 1, [(0, 2), (2, 9), (9, 12)]),
    "half turned": (lambda x, y: x * 2 + np.concatenate([-x[:, 3:], x[:, :3]], 1), [(0, 4), (4, 7)]),
    "turned rows": (lambda x, y: np.concatenate([y, x[::-1] * 2], 1) + 1, [(0, 4), (4, 11)]),
    "roll": (lambda x, y: x + np.roll(x, 2, 1), [(0, 2), (2, 7)]),
    "rolls both ways": (lambda x, y: np.roll(x, 1, 1) * np.roll(x, -1, 1), [(0, 1), (1, 6), (6, 7)]),
    "roll of a border": (lambda x, y: np.roll(np.pad(y, ((0, 0), (1, 2))) + 1, 3, 1), [(0, 3), (3, 7)]),
    "narrow border": (lambda x, y: np.pad(x, ((0, 0), (1, 1))) * 2, [(0, 1), (1, 8), (8, 9)]),
    "a column of a whole": (lambda x, y: x.reshape(-1)[4] * y[:, 1] + np.roll(y, 1, 0)[:, 2], []),
    "no comparison": (lambda x, y: x + 1, []),
    "the other axis": (lambda x, y: np.concatenate([x, x * 2]), []),
}


@pytest.fixture
def optimize(tmp_path: Path) -> Callable[..., Optimized]:
    def optimized(function: Callable[..., Any], *args: Any) -> Optimized:
        return ft.optimize(function, args, machine=REFERENCE, cache=tmp_path)

    return optimized


def bodies_of(fast: Optimized) -> tuple[Term, ...]:
    (kernel,) = fast.compilation.program.kernels
    return tuple(output.body for output in kernel.outputs)


def values_of(bodies: tuple[Term, ...], arrays: dict[str, np.ndarray[Any, Any]]) -> tuple[Any, ...]:
    """Compute bodies over what they read: a part's values, wherever it writes them."""
    built = [registry.tensor("build", body.args[0], shape=body.shape) for body in bodies]
    return interpret.evaluate(tuple(built), {leaf.attrs[0]: arrays[leaf.attrs[0]] for leaf in operands_of(*built)})


@pytest.mark.parametrize("name", CASES)
def test_ranges_have_bodies_of_their_own(name: str, optimize: Callable[..., Optimized]) -> None:
    function, ranges = CASES[name]
    bodies = bodies_of(optimize(function, X, Y))
    assert ranges_of(bodies) == ranges
    (whole,) = values_of(bodies, {"x": X, "y": Y})
    for start, stop in ranges:
        (part,) = values_of(over(bodies, start, stop), {"x": X, "y": Y})
        np.testing.assert_array_equal(part, whole[..., start:stop])


def iota(extent: int) -> Term:
    return element("iota", axis=-1, extent=extent, dtype="f32")


def moved(e: Term, extent: int, by: int, result: int) -> Term:
    return reindex(e, IndexMap((3, extent), (3, result), (var(-2, 3), var(-1, result) + by)))


PLACE, VALUE = element("iota", axis=-1, extent=7, dtype="i64"), load("x", 3, 7)
FIRST, SMALL, LARGE = (
    element(op, e, number(limit, dtype))
    for op, e, limit, dtype in (("lt", PLACE, 3, "i64"), ("lt", VALUE, 4, "f32"), ("gt", VALUE, -4, "f32"))
)
NUMBERED = element("add", element("mul", load("x", 3, 4), number(2)), iota(4))
HAND_MADE = {
    "both conditions": element("where", element("and", SMALL, LARGE), element("where", FIRST, VALUE, number(1)), VALUE),
    "one of three": element("where", element("and", element("and", FIRST, SMALL), LARGE), VALUE, number(1)),
    "either": element("where", element("or", element("or", FIRST, SMALL), LARGE), VALUE, number(1)),
    "the last decides": element("where", element("and", SMALL, FIRST), VALUE, number(1)),
    "both are decided": element("where", element("or", FIRST, FIRST), VALUE, number(1)),
    "clamped at the end": element("where", FIRST, number(1), moved(NUMBERED, 4, 0, 7)),
    "clamped at the beginning": element("where", FIRST, moved(NUMBERED, 4, -2, 7), number(1)),
    "clamped throughout": element("where", FIRST, number(1), moved(NUMBERED, 4, -2, 7)),
}


@pytest.mark.parametrize("name", HAND_MADE)
def test_what_is_not_decided_in_a_range_or_clamped_there_stays(name: str) -> None:
    body = build(HAND_MADE[name], 3, 7)
    assert ranges_of((body,)) == [(0, 3), (3, 7)]
    arrays = {leaf.attrs[0]: X[:, : leaf.attrs[1][-1]] for leaf in operands_of(body)}
    (whole,) = values_of((body,), arrays)
    for start, stop in ranges_of((body,)):
        (part,) = values_of(over((body,), start, stop), arrays)
        np.testing.assert_array_equal(part, whole[..., start:stop])


def test_in_a_range_nothing_is_compared_and_no_index_is_clamped(optimize: Callable[..., Optimized]) -> None:
    bodies = bodies_of(optimize(CASES["three parts"][0], X, Y))
    for start, stop in ranges_of(bodies):
        (body,) = over(bodies, start, stop)
        assert not {"where", "lt", "ge", "iota"} & {term.op for term in walk(body)}
        views = [term.attrs[0] for term in walk(body) if term.op == "reindex"]
        inside = [at.bounds() for view in views for at in view.sources]
        assert all(low >= 0 for low, _ in inside) and all(view.source == view.result for view in views)


@pytest.mark.parametrize("rows", [1, 3, 40, 3000])
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_function(name: str, rows: int, optimize: Callable[..., Optimized]) -> None:
    function = CASES[name][0]
    x, y = (np.random.default_rng(rows).standard_normal((rows, n)).astype(np.float32) for n in (7, 4))
    np.testing.assert_allclose(optimize(function, x, y)(x, y), function(x, y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["roll", "rolls both ways", "narrow border"])
def test_ranges_of_a_roll_or_a_border_are_cheaper_than_the_whole(
    name: str, optimize: Callable[..., Optimized]
) -> None:
    x, y = (np.ones((96, 257), np.float32) for _ in "xy")
    bodies = bodies_of(optimize(CASES[name][0], x, y))
    found = POINTWISE.estimate(bodies, frozenset(), REFERENCE)
    plain = POINTWISE.estimate(bodies_of(optimize(CASES["no comparison"][0], x, y)), frozenset(), REFERENCE)
    assert found is not None and plain is not None and found.seconds < 3 * plain.seconds


def test_a_long_row_falls_into_chunks_of_each_range(optimize: Callable[..., Optimized]) -> None:
    x = np.random.default_rng(0).standard_normal((1, 90_001))
    fast = optimize(lambda x: np.concatenate([np.exp(x), x[:, 7:]], 1), x)
    np.testing.assert_allclose(fast(x), np.concatenate([np.exp(x), x[:, 7:]], 1), rtol=1e-12)


def test_an_index_is_checked_in_its_range(optimize: Callable[..., Optimized]) -> None:
    places = np.array([[0, 2], [1, 1], [2, 0]])
    fast = optimize(lambda x, i: np.concatenate([x, np.take_along_axis(x, i, 1) * 2], 1), X, places)
    assert ranges_of(bodies_of(fast)) == [(0, 7), (7, 9)]
    np.testing.assert_array_equal(fast(X, places), np.concatenate([X, np.take_along_axis(X, places, 1) * 2], 1))
    with pytest.raises(IndexRangeError):
        fast(X, places + 6)


def test_loads_of_a_range_are_priced_as_what_they_are(optimize: Callable[..., Optimized]) -> None:
    x, y = np.ones((200, 64), np.float32), np.ones((200, 64), np.float32)
    joined, added = (
        POINTWISE.estimate(bodies_of(optimize(function, x, y)), frozenset(), REFERENCE)
        for function in (lambda x, y: np.concatenate([x * 2, y * 2], 1), lambda x, y: np.concatenate([x, y], 0) * 2)
    )
    assert joined is not None and added is not None and joined.flops < 2 * added.flops


def test_what_views_of_views_read_is_written_once() -> None:
    """Each of many steps reads the one before at two places: as few terms as before, where a tree had 2 ** 40."""
    whole = load("x", 9, 40)
    for _ in range(40):
        views = [IndexMap((9, 40), (9, 40), ((var(-2, 9) + by) % 9, var(-1, 40))) for by in (1, 2)]
        whole = element("add", *(reindex(whole, view) for view in views))
    (part,) = over((build(whole, 9, 40),), 3, 17)
    assert part.shape == (9, 14) and sum(1 for _ in walk(part)) < 2 * sum(1 for _ in walk(whole))


def column(*, op: str, at: int) -> Term:
    return element(op, element("iota", axis=-1, extent=7, dtype="i32"), number(at, "i32"))


SELECTIONS = {
    "one place": (column(op="eq", at=3), [(0, 3), (3, 4), (4, 7)]),
    "all but one": (column(op="ne", at=0), [(0, 1), (1, 7)]),
    "up to": (column(op="le", at=3), [(0, 4), (4, 7)]),
    "from": (column(op="gt", at=3), [(0, 4), (4, 7)]),
    "outside": (column(op="lt", at=-3), []),
    "either": (element("or", column(op="lt", at=2), column(op="ge", at=5)), [(0, 2), (2, 5), (5, 7)]),
    "both": (element("and", column(op="ge", at=2), column(op="lt", at=5)), [(0, 2), (2, 5), (5, 7)]),
    "and another": (element("and", load("m", 3, 7, dtype="bool"), column(op="lt", at=5)), [(0, 5), (5, 7)]),
    "or another": (element("or", column(op="lt", at=5), load("m", 3, 7, dtype="bool")), [(0, 5), (5, 7)]),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_selections_by_the_index(name: str) -> None:
    condition, ranges = SELECTIONS[name]
    index = element("cast", element("iota", axis=-1, extent=7, dtype="i32"), dtype="f32")
    case = Case(
        "case", (build(element("where", condition, element("add", load("x", 3, 7), index), load("y", 7)), 3, 7),)
    )
    assert ranges_of(case.bodies) == ranges
    values = case.values()
    assert_agrees(case, runtime.build(case.program("pointwise"), {})(*values), case.expected(values))


def test_many_ranges_are_none() -> None:
    index = element("iota", axis=-1, extent=40, dtype="i32")
    steps = [element("lt", index, number(n, "i32")) for n in range(1, 20)]
    assert ranges_of((build(reduce(partial(element, "or"), steps), 40),)) == []
