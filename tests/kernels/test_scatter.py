"""The scatter template: values sent to the places of an axis, with what they are computed from and what follows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from kernel_cases import Array, Case, assert_agrees, at, build, element, fold, load, number, reindex, transposed, within
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import IndexRangeError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.elements import fold_identity
from frittata.egraph.ops.indices import take_source
from frittata.egraph.terms import Term
from frittata.kernels import runtime
from frittata.kernels.templates.scatter import SCATTER


def run(body: Term, special: bool = False, chunks: int = 1) -> tuple[Array, ...]:
    case = Case("case", (body,), special)
    built = runtime.build(case.program("scatter"), {})
    assert built.lowered[0].chunks >= chunks  # type: ignore[union-attr]
    values = case.values()
    got = built(*values)
    assert_agrees(case, got, case.expected(values))
    return got


def in_front(e: Term, shape: tuple[int, ...], axis: int) -> Term:
    return reindex(e, take_source(shape, 1, axis))


def sent(
    shape: tuple[int, ...],
    axis: int,
    count: int,
    value: Term | None = None,
    *,
    dtype: str = "f32",
    places: str = "i64",
    op: str = "sum",
) -> Term:
    """Return the fold of `count` slices of a tensor like the result, each sent to a place that is looked up."""
    source = (*shape[:axis], count, *shape[len(shape) + axis + 1 :])
    along = (*(1,) * (len(shape) + axis), count, *(1,) * (-axis - 1))
    place = in_front(within(load("i", *along, dtype=places), shape[axis]), along, axis)
    numbers = element("iota", axis=axis, extent=shape[axis])
    is_there = element("eq", at(numbers, place, axis, shape[axis]), numbers)
    value = in_front(load("s", *source, dtype=dtype) if value is None else value, source, axis)
    nothing = element("const", value=fold_identity(op, dtype))
    return fold(op, element("where", is_there, value, nothing), -1 - len(shape), count)


@pytest.mark.parametrize("columns", [1, 2, 7, 16, 17, 64, 67, 131])
@pytest.mark.parametrize("count", [1, 2, 13])
def test_every_width_of_columns(columns: int, count: int) -> None:
    run(build(sent((5, columns), -2, count), 5, columns), special=True)


@pytest.mark.parametrize(
    ("shape", "axis"), [((7,), -1), ((3, 7), -1), ((3, 7, 5), -2), ((7, 3, 5), -3), ((2, 7, 3, 5), -3)]
)
def test_every_axis(shape: tuple[int, ...], axis: int) -> None:
    run(build(sent(shape, axis, 11), *shape))


@pytest.mark.parametrize("places", ["i32", "i64"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_every_fold_of_every_dtype(op: str, dtype: str, places: str) -> None:
    run(build(sent((6, 19), -2, 23, dtype=dtype, places=places, op=op), 6, 19), special=dtype[0] == "f")


def test_what_is_sent_is_computed_on_the_way_and_so_is_what_follows() -> None:
    looked_up = at(in_front(load("x", 9, 21), (9, 21), -2), within(load("j", 13, 1, dtype="i64"), 9), -3, 9)
    total = sent((5, 21), -2, 13, element("max", looked_up, number(0)))
    body = element("exp", element("mul", element("add", load("y", 5, 21), total), load("z", 5, 1)))
    run(build(body, 5, 21))


def test_places_outside_of_the_axis_that_are_not_looked_up_take_nothing() -> None:
    numbers = element("iota", axis=-2, extent=5)
    index = in_front(load("i", 40, 1, dtype="i64"), (40, 1), -2)
    beyond = at(element("iota", axis=-2, extent=9), index, -2, 9)
    value = in_front(load("s", 40, 3), (40, 3), -2)
    for place in (index, beyond):
        is_there = element("eq", numbers, place)
        run(build(fold("sum", element("where", is_there, value, number(0)), -3, 40), 5, 3))


def test_blocks_places_and_wide_rows_fall_into_chunks_and_narrow_rows_do_not() -> None:
    run(build(sent((8, 64, 96), -2, 300), 8, 64, 96), chunks=8)
    run(build(sent((3, 4096), -2, 40), 3, 4096), chunks=6)
    run(build(sent((67, 259), -2, 900), 67, 259), chunks=4)
    run(build(sent((2, 67, 3, 259), -3, 300, op="max"), 2, 67, 3, 259), chunks=4)
    narrow = build(sent((64, 9), -2, 9000), 64, 9)
    assert runtime.build(Case("case", (narrow,)).program("scatter"), {}).lowered[0].chunks == 1  # type: ignore[union-attr]


def test_places_are_guarded() -> None:
    numbers = element("iota", axis=-1, extent=4)
    place = in_front(load("i", 3, dtype="i64"), (3,), -1)
    is_there = element("eq", element("at", numbers, place, axis=-1, extent=4), numbers)
    body = build(fold("sum", element("where", is_there, number(1), number(0)), -2, 3), 4)
    built = runtime.build(Case("case", (body,)).program("scatter"), {})
    for index in (-1, 4):
        with pytest.raises(IndexRangeError, match=f"index {index} is outside of 0 .. 3"):
            built(np.array([1, index, 1]))
        np.testing.assert_array_equal(built(np.array([1, 3, 1])), [[0, 2, 0, 1]])


def other(shape: tuple[int, ...], op: str = "sum", otherwise: float = 0, moves: bool = False) -> Term:
    numbers = element("iota", axis=-2, extent=shape[0])
    is_there = element("eq", numbers, in_front(load("i", 6, 1, dtype="i64"), (6, 1), -2))
    value = element("add", in_front(load("s", 6, 3), (6, 3), -2), load("t", *shape)) if moves else load("u", 3)
    return fold(op, element("where", is_there, value, number(otherwise)), -3, 6)


def test_other_bodies_are_left_to_other_templates() -> None:
    def is_taken(*bodies: Term) -> bool:
        return SCATTER.estimate(bodies, frozenset(), REFERENCE) is not None

    body = build(other((5, 3)), 5, 3)
    assert is_taken(body) and not is_taken(body, body)
    others = [other((5, 3), otherwise=value) for value in (1, -0.0)]
    for wrong in (*others, other((5, 3), "max"), other((5, 3), moves=True), load("x", 5, 3)):
        assert not is_taken(build(wrong, 5, 3))
    assert not is_taken(build(element("add", other((5, 3)), fold("sum", load("x", 6, 5, 3), -3, 6)), 5, 3))
    assert not is_taken(build(element("cast", other((5, 3)), dtype="f64"), 5, 3))
    assert not is_taken(build(transposed(other((3, 3))), 3, 3))


@pytest.mark.parametrize(
    ("condition", "otherwise"),
    [
        (element("lt", load("i", 6, 1, 1, dtype="i64"), element("iota", axis=-2, extent=5)), number(0)),
        (element("eq", load("i", 6, 1, 1, dtype="i64"), element("iota", axis=-2, extent=5)), load("o", 1)),
        (element("eq", load("i", 6, 1, 1), element("iota", axis=-2, extent=5, dtype="f32")), number(0)),
        (element("eq", load("i", 6, 5, 1, dtype="i64"), element("iota", axis=-2, extent=5)), number(0)),
        (element("eq", load("i", 6, 1, 3, dtype="i64"), element("iota", axis=-2, extent=5)), number(0)),
        (element("eq", load("i", 5, 1, dtype="i64"), element("iota", axis=-3, extent=6)), number(0)),
    ],
    ids=["another comparison", "another value", "fractions", "a place", "a column", "the axis of the fold"],
)
def test_what_is_not_sent_to_places_of_whole_rows_is_left_to_other_templates(condition: Term, otherwise: Term) -> None:
    folded = fold("sum", element("where", condition, load("u", 3), otherwise), -3, 6)
    assert SCATTER.estimate((build(folded, 5, 3),), frozenset(), REFERENCE) is None


def test_a_fold_of_an_axis_of_the_result_is_left_to_other_templates() -> None:
    numbers = element("iota", axis=-3, extent=5)
    is_there = element("eq", load("i", 6, 1, dtype="i64"), numbers)
    body = build(fold("sum", element("where", is_there, load("s", 6, 3), number(0)), -2, 6), 5, 1, 3)
    assert SCATTER.estimate((body,), frozenset(), REFERENCE) is None


class Mean(nn.Module):
    """The mean of what neighbours send, of those that have any."""

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Map (nodes, d), with the ends of each edge, to the same shape."""
        total = torch.zeros_like(x).index_add(0, target, torch.tanh(x[source]))
        count = torch.zeros(len(x)).index_add(0, target, torch.ones(len(target)))
        return total / count.clamp(min=1)[:, None]


@pytest.mark.parametrize(("nodes", "edges", "width"), [(1, 1, 1), (17, 101, 7), (64, 400, 96)])
def test_a_layer_of_a_graph_network_is_two_kernels(nodes: int, edges: int, width: int, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(nodes)
    source, target = (torch.randint(0, nodes, (edges,), generator=generator) for _ in range(2))
    x = torch.randn(nodes, width, generator=generator)
    fast = ft.optimize(Mean().eval(), (x, source, target), machine=REFERENCE, cache=tmp_path)
    torch.testing.assert_close(fast(x, source, target), Mean()(x, source, target), rtol=1e-5, atol=1e-6)
    if nodes > 1:
        assert [kernel.template for kernel in fast.program.kernels] == ["scatter", "scatter"]
    with pytest.raises(IndexRangeError, match=f"index {nodes} is outside"):
        fast(x, source, target.clone().index_fill_(0, torch.tensor([0]), nodes))
