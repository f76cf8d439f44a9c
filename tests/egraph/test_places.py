"""Buffers in others: where they lie, and that programs over such memory mean what they mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import build, element, leaf, load, reindex
from placed_programs import planned, random_placed_program, run_over_memory

from frittata.egraph import interpret, shapes
from frittata.egraph.errors import LoweringError
from frittata.egraph.indexing import slice_map
from frittata.egraph.ops.registry import tensor
from frittata.egraph.places import find_places
from frittata.egraph.program import Estimate, Join, Kernel, Output, Program, Step, View
from frittata.egraph.terms import Scalar, TensorType, Term


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 100_000))
def test_a_program_over_its_memory_means_what_it_means(seed: int) -> None:
    program = random_placed_program(seed)
    rng = np.random.default_rng(seed)
    inputs = program.inputs.items()
    values = [[rng.standard_normal(shapes.concrete(t.shape)).astype(np.float32) for _, t in inputs] for _ in range(2)]
    found = run_over_memory(program, planned(program), values)
    for arguments, results in zip(values, found, strict=True):
        law = interpret.evaluate(program.to_terms(), dict(zip(program.inputs, arguments, strict=True)), "native")
        for ours, wanted in zip(results, law, strict=True):
            np.testing.assert_array_equal(ours, wanted)


def test_random_programs_have_joins_with_gaps_in_joins() -> None:
    deep = 0
    for seed in range(40):
        program = random_placed_program(seed)
        places = find_places(program)
        joins = {step.name for step in program.steps if isinstance(step, Join)}
        deep += any(places.by_name[j].join and not places.by_name[j].is_contiguous for j in joins)
    assert deep > 5


def kernel(name: str, *shape: int) -> Kernel:
    body = build(element("exp", element("load", leaf("x", *shape))), *shape)
    return Kernel(name, "nest", (Output(name, body),), ("x",), Estimate(0, 0, 0))


def concat(name: str, axis: int, *parts: Term) -> Join:
    return Join(name, tensor("concat", *parts, axis=axis))


def pad(name: str, part: Term, low: tuple[int, ...], high: tuple[int, ...]) -> Join:
    return Join(name, tensor("pad", part, low=low, high=high, value=Scalar.of(0, "f32")))


def program_of(*steps: Step, shape: tuple[int, ...] = (3, 4), outputs: tuple[str, ...] = ()) -> Program:
    weight = tensor("param", name="w", shape=shape, dtype="f32")
    return Program({"x": TensorType(shape, "f32")}, {"w": weight}, steps, outputs)


A, B, C = (leaf(name, 3, 4) for name in "abc")


def test_parts_of_inner_axes_have_gaps() -> None:
    places = find_places(program_of(kernel("a", 3, 4), kernel("b", 3, 4), concat("c", -1, A, B)))
    assert not places.wrong
    assert (places.by_name["b"].root, places.by_name["b"].offset, places.by_name["b"].strides) == ("c", 4, (8, 1))
    assert not places.by_name["b"].is_contiguous and places.by_name["c"].is_contiguous


def test_parts_of_the_outermost_axis_are_contiguous() -> None:
    places = find_places(program_of(kernel("a", 3, 4), kernel("b", 3, 4), concat("c", -2, A, B)))
    assert places.by_name["b"].is_contiguous and places.by_name["b"].offset == 12


def test_what_lies_in_a_part_lies_in_the_whole() -> None:
    steps = (kernel("a", 3, 4), kernel("b", 3, 4), concat("c", -1, A, B), pad("d", leaf("c", 3, 8), (1, 2), (0, 3)))
    places = find_places(program_of(*steps))
    place = places.by_name["b"]
    assert (place.root, place.offset, place.strides, place.join) == ("d", 13 + 2 + 4, (13, 1), "c")
    assert places.is_bordered("d") and list(places.border_by_join) == ["d"]


def test_views_of_a_part_are_views_of_its_memory() -> None:
    merged = View("v", "a", TensorType((12,), "f32"))
    places = find_places(program_of(kernel("a", 3, 4), kernel("b", 3, 4), concat("c", -1, A, B), merged))
    assert places.by_name["v"].strides is None  # from row to row it moves by more
    split = View("v", "a", TensorType((3, 2, 2), "f32"))
    places = find_places(program_of(kernel("a", 3, 4), kernel("b", 3, 4), concat("c", -1, A, B), split))
    assert places.by_name["v"].strides == (8, 2, 1)


def test_a_view_may_be_the_part() -> None:
    steps = (
        kernel("a", 3, 4),
        View("v", "a", TensorType((1, 3, 4), "f32")),
        pad("p", leaf("v", 1, 3, 4), (1, 0, 2), (0, 0, 0)),
    )
    place = find_places(program_of(*steps)).by_name["a"]
    assert (place.root, place.offset, place.strides) == ("p", 3 * 6 + 2, (6, 1))


WRONG = {
    "a part twice": (concat("c", -1, A, A),),
    "a part in two joins": (concat("c", -1, A, B), concat("d", -1, B, leaf("e", 3, 4))),
    "an argument": (concat("c", -1, A, leaf("x", 3, 4)),),
    "a constant": (concat("c", -1, A, leaf("w", 3, 4)),),
    "a part of a part": (View("v", "a", TensorType((2, 4), "f32")), pad("c", leaf("v", 2, 4), (0, 1), (0, 0))),
    "one memory twice": (View("v", "a", TensorType((3, 4), "f32")), concat("c", -1, A, leaf("v", 3, 4))),
}


@pytest.mark.parametrize("name", WRONG)
def test_joins_that_cannot_be(name: str) -> None:
    program = program_of(kernel("a", 3, 4), kernel("b", 3, 4), kernel("e", 3, 4), *WRONG[name])
    last = WRONG[name][-1].name
    assert find_places(program).wrong == {last}
    with pytest.raises(LoweringError, match=last):
        planned(program)


def test_memory_with_a_border_is_never_anything_else() -> None:
    steps = (kernel("a", 3, 4), pad("p", A, (1, 1), (1, 1)), *(kernel(f"k{i}", 3, 4) for i in range(5)))
    last = build(element("load", leaf("p", 5, 6)), 5, 6)
    shown = Kernel("shown", "nest", (Output("shown", last),), ("p",), Estimate(0, 0, 0))
    program = program_of(*steps, shown, outputs=("shown", "p"))
    plan = planned(program)
    assert plan.copied_outputs == (1,)
    (border,) = plan.borders
    assert border[0] == "p"
    first = plan.place_by_name["p"].offset
    others = [plan.place_by_name[f"k{i}"].offset for i in range(5)]
    assert all(not first <= offset < first + 128 for offset in others)


def test_buffers_with_the_same_border_share_memory_at_different_times() -> None:
    steps: list[Step] = []
    before = "x"
    for number in range(5):
        inner = build(element("tanh", element("load", leaf(before, 3, 4))), 3, 4)
        steps.append(Kernel(f"a{number}", "nest", (Output(f"a{number}", inner),), (before,), Estimate(0, 0, 0)))
        steps.append(pad(f"p{number}", leaf(f"a{number}", 3, 4), (1, 1), (1, 1)))
        part = reindex(load(f"p{number}", 5, 6), slice_map((5, 6), -1, 2, 1, 4))
        cut = build(reindex(part, slice_map((5, 4), -2, 0, 1, 3)), 3, 4)
        before = f"k{number}"
        steps.append(Kernel(before, "nest", (Output(before, cut),), (f"p{number}",), Estimate(0, 0, 0)))
    program = program_of(*steps, outputs=(before,))
    plan = planned(program)
    assert len({plan.place_by_name[f"p{number}"] for number in range(5)}) == 1
    values = [[np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)] for seed in range(2)]
    for (x,), (ours,) in zip(values, run_over_memory(program, plan, values), strict=True):
        (law,) = interpret.evaluate(program.to_terms(), {"x": x}, "native")
        np.testing.assert_array_equal(ours, law)
