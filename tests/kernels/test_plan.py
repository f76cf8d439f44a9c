"""Buffers: no two that are in use at once share memory, and dead ones are reused."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import build, element, leaf
from random_programs import SHAPE, random_program

from frittata.egraph.errors import ModelError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.program import Estimate, Kernel, Output, Program, View
from frittata.egraph.terms import Scalar, TensorType
from frittata.kernels.lowered import ALIGNMENT_BYTES
from frittata.kernels.plan import (
    InArena,
    InArgument,
    InConstant,
    InOutput,
    Life,
    Plan,
    assign_offsets,
    constant_values,
    evaluate_constants,
    plan_buffers,
    size_bytes,
)


def chain(length: int, outputs: tuple[str, ...], views: tuple[View, ...] = ()) -> Program:
    """Return a program in which each kernel reads what the one before wrote."""
    names = ["a", *(f"v{i}" for i in range(length))]
    kernels = tuple(
        Kernel(
            after,
            "nest",
            (Output(after, build(element("exp", element("load", leaf(before, *SHAPE))), *SHAPE)),),
            (before,),
            Estimate(0, 0, 0),
        )
        for before, after in pairwise(names)
    )
    return Program({"a": TensorType(SHAPE, "f32")}, {}, (*kernels, *views), outputs)


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 20), st.integers(0, 6)), max_size=30))
def test_lives_that_meet_get_disjoint_aligned_slices(drawn: list[tuple[int, int, int]]) -> None:
    lives = [Life(i, size, first, first + more) for i, (size, first, more) in enumerate(drawn)]
    offsets, total = assign_offsets(lives)
    for life in lives:
        assert offsets[life.name] % ALIGNMENT_BYTES == 0
        assert offsets[life.name] + life.size_bytes <= total
    for i, one in enumerate(lives):
        for other in lives[:i]:
            if one.meets(other):
                low, high = sorted((one, other), key=lambda life: offsets[life.name])
                assert offsets[low.name] + low.size_bytes <= offsets[high.name]


def check_no_live_buffer_is_overwritten(program: Program, plan: Plan) -> None:
    """Walk the program with the owner of each byte of the arena written down."""
    owner: dict[int, str] = {}
    types = program.types()

    def span(name: str) -> range:
        place = plan.place_by_name[name]
        if not isinstance(place, InArena):
            return range(0)
        return range(place.offset, place.offset + size_bytes(types[name]))

    alias: dict[str, str] = {}
    for step in program.steps:
        if isinstance(step, View):
            alias[step.name] = alias.get(step.source, step.source)
            continue
        assert isinstance(step, Kernel)
        written = [byte for output in step.outputs for byte in span(output.name)]
        assert len(written) == len(set(written))
        for output in step.outputs:
            owner.update({byte: output.name for byte in span(output.name)})
        # read after writing: an operand must not lie where the step itself writes
        for name in step.operands:
            assert all(owner[byte] == alias.get(name, name) for byte in span(name)), name


@given(st.integers(0, 10_000))
def test_a_live_buffer_is_never_overwritten(seed: int) -> None:
    program = random_program(seed)
    check_no_live_buffer_is_overwritten(program, plan_buffers(program, {}))


def test_memory_of_dead_buffers_is_used_again() -> None:
    plan = plan_buffers(chain(10, ("v9",)), {})
    assert plan.arena_bytes == 2 * 128


def test_outputs_are_written_in_place_once_and_copied_where_they_alias() -> None:
    view = View("w", "v1", TensorType((24,), "f32"))
    plan = plan_buffers(chain(2, ("v1", "w", "a"), (view,)), {})
    assert plan.place_by_name["v1"] == InOutput(0)
    assert plan.place_by_name["w"] == InOutput(0)
    assert plan.place_by_name["a"] == InArgument(0)
    assert plan.copied_outputs == (1, 2)


def test_an_output_that_is_a_part_of_a_buffer_is_copied() -> None:
    part = View("w", "v1", TensorType((6,), "f32"), 12)
    plan = plan_buffers(chain(2, ("w",), (part,)), {})
    whole, place = plan.place_by_name["v1"], plan.place_by_name["w"]
    assert isinstance(whole, InArena)
    assert place == InArena(whole.offset + 12 * 4)
    assert plan.copied_outputs == (0,)


def test_scratch_lives_beside_the_buffers_of_its_step() -> None:
    plan = plan_buffers(chain(3, ("v2",)), {(1, 2): 256})
    (scratch,) = plan.scratch.values()
    first = plan.place_by_name["v0"]
    assert isinstance(first, InArena)
    assert scratch >= first.offset + 128 or scratch + 256 <= first.offset


def test_each_operator_of_a_constant_is_computed_in_float64_and_rounded() -> None:
    weight = tensor("param", name="w", shape=(1000,), dtype="f32")
    total = tensor("reduce_sum", weight, axis=-1)
    program = Program({}, {"c": total, "d": total, "e": weight}, (), ("c",))
    value = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    constants = evaluate_constants(program, {"w": value})
    assert constants["c"].dtype == np.float32
    assert constants["c"][0] == np.float32(value.astype(np.float64).sum())
    assert constants["c"] is constants["d"]
    assert constants["e"] is value


def test_the_next_operator_of_a_constant_sees_what_was_rounded() -> None:
    tenth, one = (tensor("full", value=Scalar.of(value, "f32"), shape=(1,)) for value in (0.1, 1.0))
    ten = tensor("param", name="ten", shape=(1,), dtype="f32")
    left = tensor("sub", tensor("mul", tenth, ten), one)  # 0.1 as f32 is more than a tenth
    program = Program({}, {"c": left}, (), ("c",))
    constants = evaluate_constants(program, {"ten": np.array([10], np.float32)})
    assert constants["c"][0] == 0


def test_what_only_moves_a_param_is_a_view_of_it() -> None:
    weight = tensor("param", name="w", shape=(3, 4), dtype="f32")
    moved = tensor("permute", weight, permutation=(1, 0))
    scaled = tensor("square", moved)
    program = Program({}, {"m": moved, "s": scaled}, (), ("m",))
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = constant_values(program, {"w": value})
    assert np.shares_memory(found["m"], value) and not np.shares_memory(found["s"], value)
    np.testing.assert_array_equal(found["m"], value.T)
    assert evaluate_constants(program, {"w": value})["m"].flags.c_contiguous


def test_constants_are_found_by_name() -> None:
    weight = tensor("param", name="w", shape=SHAPE, dtype="f32")
    plan = plan_buffers(Program({}, {"c": weight}, (), ("c",)), {})
    assert plan.place_by_name["c"] == InConstant("c")


def test_a_param_without_a_value_is_an_error() -> None:
    program = Program({}, {"c": tensor("param", name="w", shape=(3,), dtype="f32")}, (), ("c",))
    with pytest.raises(ModelError, match="no value for param 'w'"):
        evaluate_constants(program, {})
