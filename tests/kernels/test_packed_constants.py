"""Constants that a kernel reads packed: kept once, and in place too where something else reads them."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_cases import build, element, load

from frittata.egraph import interpret
from frittata.egraph.ops.registry import tensor
from frittata.egraph.program import Estimate, Kernel, Output, Program
from frittata.egraph.terms import TensorType, Term
from frittata.kernels import runtime
from frittata.kernels.lowered import LoweredKernel, Operand, Unread

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
