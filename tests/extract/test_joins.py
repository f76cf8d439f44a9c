"""Concatenations are written in place where memory allows it, contiguous slices are parts of their source's memory."""

import numpy as np
import pytest

import frittata as ft
from frittata.egraph import shapes
from frittata.egraph.machine import REFERENCE
from frittata.egraph.program import Join, Kernel, View

X = "x: f32[4, 8]"
SUMS = """
    a: f32[4, 1] = reduce_sum(x, axis=-1)
    b: f32[4, 1] = reduce_max(x, axis=-1)
"""

CASES = {
    "both parts in place": (
        SUMS + "    c: f32[8, 1] = concat(a, b, axis=-2)\n    y: f32[8, 8] = matmul(c, reshape_1)\n    return y\n",
        "f32[8, 8]",
        ["Kernel", "Kernel", "Join", "Kernel"],
    ),
    "the join is the result": (
        SUMS + "    c: f32[8, 1] = concat(a, b, axis=-2)\n    return c\n",
        "f32[8, 1]",
        ["Kernel", "Kernel", "Join"],
    ),
    "a part is read elsewhere": (
        SUMS + "    c: f32[8, 1] = concat(a, b, axis=-2)\n    d: f32[4, 8] = sub(x, a)\n    return c, d\n",
        "f32[8, 1], f32[4, 8]",
        None,
    ),
    "a part is a result": (
        SUMS + "    c: f32[8, 1] = concat(a, b, axis=-2)\n    return a, c, b\n",
        "f32[4, 1], f32[8, 1], f32[4, 1]",
        ["Kernel", "Kernel", "Join"],
    ),
    "a part is a result and the whole is not": (
        SUMS + "    c: f32[8, 1] = concat(a, b, axis=-2)\n    y: f32[8, 8] = matmul(c, reshape_1)\n    return b, y\n",
        "f32[4, 1], f32[8, 8]",
        ["Kernel", "Kernel", "Join", "Kernel"],
    ),
    "nested": (
        SUMS + "    c: f32[8, 1] = concat(a, b, axis=-2)\n    p: f32[4, 1] = reduce_min(x, axis=-1)\n"
        "    d: f32[12, 1] = concat(p, c, axis=-2)\n    return d\n",
        "f32[12, 1]",
        ["Kernel", "Kernel", "Join", "Kernel", "Join"],
    ),
    "a part stands in two": (
        SUMS + "    c: f32[8, 1] = concat(a, b, axis=-2)\n    d: f32[8, 1] = concat(b, a, axis=-2)\n    return c, d\n",
        "f32[8, 1], f32[8, 1]",
        None,
    ),
    "a part twice": (
        SUMS + "    c: f32[8, 1] = concat(a, a, axis=-2)\n    return c, b\n",
        "f32[8, 1], f32[4, 1]",
        None,
    ),
    "a part is an argument": ("    c: f32[8, 8] = concat(x, x, axis=-2)\n    return c\n", "f32[8, 8]", ["Kernel"]),
    "not contiguous": (
        SUMS + "    c: f32[4, 2] = concat(a, b, axis=-1)\n    return c\n",
        "f32[4, 2]",
        None,
    ),
    "a contiguous slice": (
        "    e: f32[4, 8] = matmul(x, w)\n    s: f32[2, 8] = slice(e, axis=-2, start=1, step=1, length=2)\n"
        "    y: f32[2, 8] = matmul(s, w)\n    return s, y\n",
        "f32[2, 8], f32[2, 8]",
        ["Kernel", "View", "Kernel"],
    ),
    "a slice of an argument": (
        "    s: f32[2, 8] = slice(x, axis=-2, start=1, step=1, length=2)\n    y: f32[2, 8] = matmul(s, w)\n"
        "    return y\n",
        "f32[2, 8]",
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_parts_lie_where_they_end_up(case: str) -> None:
    body, results, steps = CASES[case]
    arguments = f"{X}, w: f32[8, 8]" + (", reshape_1: f32[1, 8]" if "reshape_1" in body else "")
    model = ft.parse(f"def main({arguments}) -> ({results}):\n{body}")
    fast = ft.optimize(model, machine=REFERENCE)
    program = fast.account.program
    assert all(isinstance(step, Kernel | View | Join) for step in program.steps)
    if steps is not None:
        assert sorted(type(step).__name__ for step in program.steps) == sorted(steps)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(shapes.concrete(t.shape)).astype(np.float32) for t in program.inputs.values()]
    expected = model.interpret(*args)
    for form in (fast, ft.optimize(model, machine=REFERENCE, form="plain")):
        got = form(*args)
        got = got if isinstance(got, tuple) else (got,)
        assert len({id(array) for array in got}) == len(got)
        for found, wanted in zip(got, expected, strict=True):
            assert np.allclose(found, wanted, rtol=1e-5, atol=1e-5), case
    for kernel in fast.kernels:
        assert fast.explain(kernel.name).boundaries is not None
    assert fast.graph().number_of_nodes() >= len(program.steps)
