"""Running one kernel of a template on bodies, some of whose operands are constants."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_cases import TOLERANCE, Array, Case

from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.registry import tensor
from frittata.egraph.program import Estimate, Kernel, Output, Program
from frittata.egraph.terms import TensorType
from frittata.kernels import runtime, templates


def executable(case: Case, template: str, constants: dict[str, Array]) -> runtime.Executable:
    """Compile the bodies with a template; `constants` has the operands known before run time."""
    names = [leaf.attrs[0] for leaf in case.operands]
    outputs = tuple(Output(f"out{i}", body) for i, body in enumerate(case.bodies))
    kernel = Kernel("kernel", template, outputs, tuple(names), Estimate(1, 0, 0))
    types = {leaf.attrs[0]: TensorType(leaf.shape, leaf.dtype) for leaf in case.operands}
    inputs = {name: type_ for name, type_ in types.items() if name not in constants}
    params = {name: tensor("param", name=name, shape=types[name].shape, dtype=types[name].dtype) for name in constants}
    program = Program(inputs, params, (kernel,), tuple(output.name for output in outputs))
    return runtime.build(program, constants)


def run(case: Case, values: list[Array], template: str, constants: tuple[str, ...] = ()) -> tuple[Array, ...]:
    """Run the bodies with a template that must take them."""
    assert templates.by_name(template).estimate(case.bodies, frozenset(constants), REFERENCE) is not None
    names = [leaf.attrs[0] for leaf in case.operands]
    known = {name: value for name, value in zip(names, values, strict=True) if name in constants}
    rest = [value for name, value in zip(names, values, strict=True) if name not in constants]
    return executable(case, template, known)(*rest)


def assert_close(case: Case, got: tuple[Array, ...], values: list[Array]) -> None:
    """Compare with the law: relative to the largest value, not finite ones exactly."""
    for body, ours, law in zip(case.bodies, got, case.expected(values), strict=True):
        assert ours.shape == body.shape
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(law))
        np.testing.assert_array_equal(np.isinf(ours), np.isinf(law))
        finite = np.isfinite(law)
        scale: Any = np.abs(law[finite]).max(initial=1.0)
        assert np.abs(ours[finite] - law[finite]).max(initial=0.0) <= TOLERANCE[body.dtype] * scale


def check(case: Case, template: str, constants: tuple[str, ...] = ()) -> None:
    """Run random operands and compare."""
    values = case.values()
    assert_close(case, run(case, values, template, constants), values)
