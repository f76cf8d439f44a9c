"""Programs in which one kernel is wrong, a little: what a test of results must notice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from frittata.egraph import dtypes
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.program import Kernel, Output, Program
from frittata.egraph.terms import Scalar, Term


def perturbed(program: Program, kernel: Kernel) -> Program:
    """Make one kernel's outputs wrong by one percent of their size, element by element; integers by one, bools all."""

    def wrong(step: Any) -> Any:
        if step is not kernel:
            return step
        return replace(step, template="nest", outputs=tuple(Output(o.name, _wrong(o.body)) for o in step.outputs))

    return replace(program, steps=tuple(map(wrong, program.steps)))


def _wrong(body: Term) -> Term:
    value = body.args[0]
    if body.dtype == "bool":
        return tensor("build", element("not", value), shape=body.shape)
    if not dtypes.is_float(body.dtype):
        one_less = element("max", element("sub", value, _number(1, body)), _number(0, body))
        return tensor("build", one_less, shape=body.shape)
    at = element("iota", axis=-1, extent=body.shape[-1], dtype=body.dtype)
    sign = element("cos", element("mul", at, at))
    factor = element("add", element("mul", sign, _number(0.01, body)), _number(1.0, body))
    return tensor("build", element("mul", value, factor), shape=body.shape)


def _number(value: float, like: Term) -> Term:
    return element("const", value=Scalar.of(value, like.dtype))
