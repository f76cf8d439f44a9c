"""Constants that a kernel reads packed: kept once, and in place too where something else reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_cases import build, element, load
from numpy.typing import NDArray

from frittata.egraph import interpret
from frittata.egraph.ops.registry import tensor
from frittata.egraph.program import Estimate, Kernel, Output, Program, View
from frittata.egraph.terms import TensorType, Term
from frittata.kernels import constants, runtime
from frittata.kernels.constants import Constants
from frittata.kernels.lowered import LoweredKernel, Operand, Unread
from frittata.kernels.shared import shared
from frittata.kernels.tables import Tables, address

SHAPE = (7, 7)
PRODUCT = element("dot", load("a", *SHAPE), load("w", *SHAPE), depth=7)


def program_of(body: Term) -> Program:
    weight = tensor("permute", tensor("param", name="p", shape=SHAPE, dtype="f32"), permutation=(1, 0))
    names = tuple(term.attrs[0] for term in (load("a", *SHAPE).args[0], load("w", *SHAPE).args[0]))
    kernel = Kernel("product", "contraction", (Output("out", build(body, *SHAPE)),), names, Estimate(0, 0, 0))
    return Program({"a": TensorType(SHAPE, "f32")}, {"w": weight}, (kernel,), ("out",))


@pytest.mark.parametrize(("body", "reads"), [(PRODUCT, 1), (element("add", PRODUCT, load("w", *SHAPE)), 2)])
def test_a_weight_has_an_address_only_where_it_is_read(body: Term, reads: int) -> None:
    rng = np.random.default_rng(0)
    a, weight = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
    program = program_of(body)
    executable = runtime.build(program, {"p": weight})
    (lowered,) = executable.lowered
    assert isinstance(lowered, LoweredKernel)
    assert sum(isinstance(argument, Operand) for argument in lowered.arguments) == reads
    assert sum(isinstance(argument, Unread) for argument in lowered.arguments) == 2 - reads
    (expected,) = interpret.evaluate(program.to_terms(), {"a": a, "p": weight})
    (found,) = executable(a)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_programs_share_packed_and_folded_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs with equal weights keep one array; those with others, and those that read params in place, their own."""
    shape = (64, 64)
    made: list[Tables] = []

    class Noted(Tables):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(runtime, "Tables", Noted)
    packs = build(element("dot", load("a", *shape), load("w", *shape), depth=64), *shape)
    reads = build(element("add", load("a", *shape), load("w", *shape)), *shape)
    param = tensor("param", name="p", shape=shape, dtype="f32")
    weight = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    changed = weight.copy()
    changed[3, 5] = 7

    def places(body: Term, constant: Term, value: NDArray[Any]) -> tuple[int, int]:
        template = "contraction" if body is packs else "pointwise"
        kernel = Kernel("product", template, (Output("out", body),), ("a", "w"), Estimate(0, 0, 0))
        program = Program({"a": TensorType(shape, "f32")}, {"w": constant}, (kernel,), ("out",))
        runtime.build(program, {"p": value})
        (found,) = made[-1].constant_memory
        return found

    for body, constant in ((packs, param), (reads, tensor("square", param))):
        assert places(body, constant, weight) == places(body, constant, weight.copy())
        assert places(body, constant, weight) != places(body, constant, changed)
    for value in (weight, weight.copy()):
        assert places(reads, param, value)[0] == address(value)


def test_arrays_of_equal_bytes_and_different_shapes_are_not_shared() -> None:
    """What one kernel reads in place another may pack, by its shape."""
    wide, tall = (shared(np.full(shape, 4.0), ()) for shape in ((64, 32), (32, 64)))
    assert wide.shape == (64, 32) and tall.shape == (32, 64)


def test_arrays_are_shared_wherever_numpy_has_put_them() -> None:
    memory = np.zeros((2, 4096 + 16), np.float32)
    memory[:] = np.arange(4096 + 16) % 8
    first, second, third = (shared(memory[row, start:][:4096], ()) for row, start in ((0, 0), (0, 8), (1, 16)))
    assert first is second is third
    assert address(first) % 64 == 0
    np.testing.assert_array_equal(first, memory[0, :4096])


def test_a_constant_is_computed_when_read_and_dropped_after_its_last_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers with folded weights: at no time are both unpacked."""
    alive: list[int] = []
    whole = constants.constant_value

    class Counted(Constants):
        def forget(self, terms: Any) -> None:
            alive.append(len(self._array_by_term))
            super().forget(terms)

    steps: list[Kernel] = []
    folded: dict[str, Term] = {}
    for number, (source, result) in enumerate((("a", "b"), ("b", "out"), ("out", "end"))):
        name = f"w{number % 2}"
        body = build(element("dot", load(source, *SHAPE), load(name, *SHAPE), depth=7), *SHAPE)
        steps.append(Kernel(result, "contraction", (Output(result, body),), (source, name), Estimate(0, 0, 0)))
        folded[name] = tensor("square", tensor("param", name=name, shape=SHAPE, dtype="f32"))
    program = Program({"a": TensorType(SHAPE, "f32")}, folded, tuple(steps), ("end",))
    monkeypatch.setattr(runtime, "Constants", Counted)
    computed: list[Term] = []
    monkeypatch.setattr(constants, "constant_value", lambda term, given: computed.append(term) or whole(term, given))
    rng = np.random.default_rng(0)
    a, w0, w1 = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(3))
    executable = runtime.build(program, {"w0": w0, "w1": w1})
    assert alive == [1, 2, 1]
    assert len(computed) == 2
    (expected,) = interpret.evaluate(program.to_terms(), {"a": a, "w0": w0, "w1": w1})
    (found,) = executable(a)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_views_of_constants_are_parts_of_them() -> None:
    weight = tensor("param", name="p", shape=(4, 6), dtype="f32")
    turned = tensor("permute", weight, permutation=(1, 0))
    views = (View("v", "w", TensorType((2, 4), "f32"), 8), View("u", "v", TensorType((4,), "f32"), 4))
    value = np.arange(24, dtype=np.float32).reshape(4, 6)
    found = Constants(Program({}, {"w": turned}, views, ("u",)), {"p": value})
    assert np.shares_memory(found["w"], value)
    np.testing.assert_array_equal(found["v"], value.T[2:4])
    np.testing.assert_array_equal(found["u"], value.T[3])
    assert found.term("u") is turned and "u" in found and "p" not in found
    assert len({found.identity(name) for name in "wvu"}) == 3
    assert found.contiguous("w") is found.contiguous("w")
    assert found["w"].flags.c_contiguous
