"""Concatenations and borders are written in place where it pays, contiguous slices are parts of their source."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frittata as ft
from frittata.egraph import shapes
from frittata.egraph.machine import REFERENCE, Machine
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.program import Estimate, Join, Kernel, Output, Program, View
from frittata.egraph.terms import Scalar, TensorType, Term
from frittata.extract import choose
from frittata.extract.exact import solve
from frittata.extract.integer import Solution
from frittata.extract.joins import Settler
from frittata.extract.problem import Problem
from frittata.kernels import runtime, templates

X = "x: f32[4, 8]"
SUMS = """
    a: f32[4, 1] = reduce_sum(x, axis=-1)
    b: f32[4, 1] = reduce_max(x, axis=-1)
"""

CASES = {
    "both parts in place": (
        SUMS + "    c: f32[8, 1] = concat(a, b, axis=-2)\n    y: f32[8, 8] = matmul(c, reshape_1)\n    return y\n",
        "f32[8, 8]",
        ["Kernel", "Join", "Kernel"],
    ),
    "the join is the result": (
        SUMS + "    c: f32[8, 1] = concat(a, b, axis=-2)\n    return c\n",
        "f32[8, 1]",
        ["Kernel", "Join"],
    ),
    "parts by two kernels": (
        "    a: f32[4, 1] = reduce_sum(x, axis=-1)\n    b: f32[8, 1] = reduce_max(w, axis=-1)\n"
        "    c: f32[12, 1] = concat(a, b, axis=-2)\n    return c\n",
        "f32[12, 1]",
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
        ["Kernel", "Join"],
    ),
    "a part is a result and the whole is not": (
        SUMS + "    c: f32[8, 1] = concat(a, b, axis=-2)\n    y: f32[8, 8] = matmul(c, reshape_1)\n    return b, y\n",
        "f32[4, 1], f32[8, 8]",
        ["Kernel", "Join", "Kernel"],
    ),
    "nested": (
        SUMS + "    c: f32[8, 1] = concat(a, b, axis=-2)\n    p: f32[4, 1] = reduce_min(x, axis=-1)\n"
        "    d: f32[12, 1] = concat(p, c, axis=-2)\n    return d\n",
        "f32[12, 1]",
        ["Kernel", "Join", "Join"],
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
        "    e: f32[4, 8] = matmul(x, w)\n    s: f32[3, 8] = slice(e, axis=-2, start=1, step=1, length=3)\n"
        "    y: f32[3, 8] = matmul(s, w)\n    return s, y\n",
        "f32[3, 8], f32[3, 8]",
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


def test_no_result_lies_in_a_border_nor_where_none_can_be_copied_from() -> None:
    x = tensor("input", name="x", shape=(3, 4), dtype="f32")
    a, b = (tensor("input", name=name, shape=(3, 4), dtype="f32") for name in "ab")
    body = tensor("build", element("exp", element("load", x)), shape=(3, 4))
    kernels = [Kernel(name, "nest", (Output(name, body),), ("x",), Estimate(0, 0, 0)) for name in "ab"]
    joined = Join("c", tensor("concat", a, b, axis=-1))
    bordered = Join("p", tensor("pad", a, low=(1, 1), high=(1, 1), value=Scalar.of(0, "f32")))
    line, halves = (View("v", "a", TensorType(shape, "f32")) for shape in ((12,), (3, 2, 2)))
    turned = Join("t", tensor("permute", a, permutation=(1, 0)))

    def wrong(result: str, *joins: Join | View) -> frozenset[str]:
        program = Program({"x": TensorType((3, 4), "f32")}, {}, (*kernels, *joins), (result,))
        return Settler(templates.TEMPLATES, REFERENCE).settle(program).wrong

    assert wrong("p", bordered) == {"p"}
    assert not wrong("a", bordered)
    assert wrong("v", joined, line) == {"c"}
    assert not wrong("v", joined, halves)
    assert wrong("a", turned) == {"t"}
    assert not wrong("t", turned)


def test_choices_that_are_made_anew_share_the_time_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limits: list[float] = []

    def noted(problem: Problem[Any], start: Iterable[int], time_limit_s: float, enough: float) -> Solution:
        limits.append(time_limit_s)
        return solve(problem, start, time_limit_s, enough)

    monkeypatch.setattr(choose, "solve", noted)
    body, results, _ = CASES["a part stands in two"]
    model = ft.parse(f"def main({X}) -> ({results}):\n{body}")
    ft.optimize(model, machine=REFERENCE, time_limit_s=60.0, cache=tmp_path)
    assert limits[0] == pytest.approx(24)  # what is left is for those after it
    assert len(limits) > 1
    assert max(limits[1:]) < 31


def test_late_choices_take_no_new_joins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offered: list[set[int]] = []
    taken: list[set[int]] = []

    def joins(problem: Problem[Any], numbers: Iterable[int]) -> set[int]:
        return {number for number in numbers if problem.candidates[number].template == choose.JOIN}

    def noted(problem: Problem[Any], *rest: Any) -> Solution:
        found = solve(problem, *rest)
        offered.append(joins(problem, problem.numbers()))
        taken.append(joins(problem, found.chosen))
        return found

    monkeypatch.setattr(choose, "solve", noted)
    monkeypatch.setattr(choose, "_SHARE_FREE", 0.0)
    model = ft.parse("""
def main(x: f32[1, 4, 9, 9], v: f32[8, 4, 3, 3], w: f32[8, 4, 3, 3]) -> (f32[1, 16, 9, 9], f32[1, 16, 9, 9]):
    a: f32[1, 8, 9, 9] = conv(x, v, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)
    b: f32[1, 8, 9, 9] = conv(x, w, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)
    c: f32[1, 16, 9, 9] = concat(a, b, axis=-3)
    d: f32[1, 16, 9, 9] = concat(b, a, axis=-3)
    return c, d
""")
    ft.optimize(model, machine=REFERENCE, cache=tmp_path)
    assert offered[0] > taken[0] and len(offered) > 1
    assert all(later <= chosen for chosen, later in zip(taken, offered[1:], strict=False))


def test_the_greedy_choice_bears_what_its_joins_cost(tmp_path: Path) -> None:
    model = ft.parse("""
def main(x: f64[5, 8, 1]) -> f64[2, 1, 5]:
    a: f64[5, 1, 8] = channels_first(x)
    b: f64[5, 1, 8] = sin(a)
    c: f64[2, 1, 5] = max_pool(b, kernel=(2, 3, 3), stride=(3, 1, 2), padding=(0, 2, 1), dilation=(2, 2, 1), ceil=True)
    return c
""")
    report = ft.optimize(model, machine=REFERENCE, cache=tmp_path).report
    assert report.predicted_s == pytest.approx(report.greedy_s)
    assert report.predicted_s <= report.greedy_s


@dataclass
class Priced:
    """A template with a price for what lies apart; what has memory of its own takes 4 seconds."""

    name: str
    apart: float | None
    in_place: bool = True

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        seconds = self.apart if bodies[0].op == "part" else 4.0
        return None if seconds is None else Estimate(seconds, 0.0, 0.0)


def _two_rows(op: str) -> Program:
    """Two kernels of one structure, each of which writes its half of the columns of a concatenation."""
    x, rows = tensor("input", name="x", shape=(4, 3), dtype="f32"), ("a", "b")
    body = tensor("build", element(op, element("load", x)), shape=(4, 3))
    parts = [tensor("input", name=name, shape=(4, 3), dtype="f32") for name in rows]
    kernels = [Kernel(name, "own", (Output(name, body),), ("x",), Estimate(5.0, 0.0, 0.0)) for name in rows]
    steps = (*kernels, Join("c", tensor("concat", *parts, axis=-1)))
    return Program({"x": TensorType((4, 3), "f32")}, {}, steps, ("c",))


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        (Priced("own", 4.0), 1.0, ("own", 5.0)),
        (Priced("own", 3.0), 1.0, ("own", 5.0)),
        (Priced("own", 7.0), 6.0, ("other", 7.0)),
        (Priced("own", 7.0), 8.0, ("own", 8.0)),
        (Priced("own", 7.0), None, ("own", 8.0)),
        (Priced("own", None), 2.0, ("other", 5.0)),
        (Priced("own", 4.0, in_place=False), 6.0, ("other", 7.0)),
        (Priced("own", None), None, None),
    ],
)
def test_a_kernel_that_writes_apart_costs_what_its_template_or_a_better_one_takes_more(
    own: Priced, other: float | None, expected: tuple[str, float] | None
) -> None:
    program = _two_rows("exp")
    found = Settler((Priced("never", 0.0, in_place=False), own, Priced("other", other)), REFERENCE).settle(program)
    if expected is None:
        assert found.wrong == {"c"} and not found.kernel_by_name
        return
    template, seconds = expected
    assert not found.wrong and found.extra_by_join == {"c": pytest.approx(2 * (seconds - 5.0))}
    for kernel in program.kernels:
        again = replace(kernel, template=template, estimate=replace(kernel.estimate, seconds=seconds))
        assert found.kernel_by_name[kernel.name] == again


def test_kernels_of_one_structure_are_priced_once_in_all_programs_of_an_extraction() -> None:
    asked: list[tuple[Term, ...]] = []

    class Noting(Priced):
        def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
            asked.append(bodies)
            return super().estimate(bodies, constants, machine)

    settler = Settler((Noting("own", 4.0),), REFERENCE)
    found = [settler.settle(_two_rows("exp")) for _ in range(2)]
    assert len(asked) == 2 and found[0] == found[1]  # as it was, and in place
    settler.settle(_two_rows("log"))
    assert len(asked) == 4


PRODUCTS = """
    a: f32[3, 5, 17] = matmul(x, w)
    b: f32[3, 5, 7] = matmul(x, v)
"""
CONCAT = PRODUCTS + "    c: f32[3, 5, 24] = concat(a, b, axis=-1)\n"
BORDER = "    p: f32[3, 8, 26] = pad(c, low=(0, 1, 1), high=(0, 2, 1), value=f32(0.5))\n"
GAPS = {
    "parts of an inner axis": (
        CONCAT + "    y: f32[3, 5, 6] = matmul(c, u)\n    return y\n",
        "f32[3, 5, 6]",
        ["Join", "Kernel", "Kernel", "Kernel"],
    ),
    "a part is read before the whole": (
        PRODUCTS + "    d: f32[3, 5, 17] = softmax(a, axis=-1)\n    e: f32[3, 5, 24] = concat(a, b, axis=-1)\n"
        "    f: f32[3, 5, 41] = concat(e, d, axis=-1)\n    return f\n",
        "f32[3, 5, 41]",
        None,
    ),
    "parts are results": (CONCAT + "    return b, c, a\n", "f32[3, 5, 7], f32[3, 5, 24], f32[3, 5, 17]", None),
    "a concatenation in a border": (
        CONCAT + BORDER + "    y: f32[3, 8, 6] = matmul(p, t)\n    return y\n",
        "f32[3, 8, 6]",
        ["Join", "Join", "Kernel", "Kernel", "Kernel"],
    ),
    "a border in a concatenation": (
        PRODUCTS + "    p: f32[3, 5, 9] = pad(b, low=(0, 0, 1), high=(0, 0, 1), value=f32(-0.5))\n"
        "    c: f32[3, 5, 26] = concat(p, a, axis=-1)\n    y: f32[3, 5, 6] = matmul(c, t)\n    return y\n",
        "f32[3, 5, 6]",
        ["Join", "Join", "Kernel", "Kernel", "Kernel"],
    ),
    "a border is a result": (CONCAT + BORDER + "    return p\n", "f32[3, 8, 26]", None),
    "what has a border is a result": (
        CONCAT + BORDER + "    y: f32[3, 8, 6] = matmul(p, t)\n    return c, y\n",
        "f32[3, 5, 24], f32[3, 8, 6]",
        None,
    ),
    "a permuted product is a result": (
        "    a: f32[3, 5, 17] = matmul(x, w)\n    r: f32[5, 17, 3] = permute(a, permutation=(1, 2, 0))\n    return r\n",
        "f32[5, 17, 3]",
        None,
    ),
    "heads": (
        "    a: f32[3, 5, 16] = matmul(x, h)\n    s: f32[3, 5, 2, 8] = reshape(a, shape=(3, 5, 2, 8))\n"
        "    r: f32[3, 2, 5, 8] = permute(s, permutation=(0, 2, 1, 3))\n    return r\n",
        "f32[3, 2, 5, 8]",
        ["Join", "Kernel", "View"],
    ),
    "a product and its transpose are results": (
        "    a: f32[3, 5, 17] = matmul(x, w)\n    r: f32[3, 17, 5] = permute(a, permutation=(0, 2, 1))\n"
        "    return a, r\n",
        "f32[3, 5, 17], f32[3, 17, 5]",
        ["Kernel", "Kernel"],
    ),
    "a host step reads a part": (
        CONCAT + "    s: i64[3, 5, 7] = argsort(b, axis=-1, descending=False)\n"
        "    y: f32[3, 5, 6] = matmul(c, u)\n    return s, y\n",
        "i64[3, 5, 7], f32[3, 5, 6]",
        None,
    ),
}


@pytest.mark.parametrize("case", GAPS)
def test_parts_with_gaps_compute_what_they_mean(case: str) -> None:
    body, results, steps = GAPS[case]
    arguments = "x: f32[3, 5, 8], w: f32[8, 17], v: f32[8, 7], u: f32[24, 6], t: f32[26, 6], h: f32[8, 16]"
    model = ft.parse(f"def main({arguments}) -> ({results}):\n{body}")
    fast = ft.optimize(model, machine=REFERENCE, library=False)
    program = fast.account.program
    if steps is not None:
        assert sorted(type(step).__name__ for step in program.steps) == steps
    assert fast.report.predicted_s == pytest.approx(sum(kernel.predicted_s for kernel in fast.kernels))
    for seed in range(2):
        rng = np.random.default_rng(seed)
        args = [rng.standard_normal(shapes.concrete(t.shape)).astype(np.float32) for t in program.inputs.values()]
        for form in (fast.compilation.executable, lambda *given: runtime.run_plain(program, {}, given)):
            for found, wanted in zip(form(*args), model.interpret(*args), strict=True):
                assert found.flags.c_contiguous and np.allclose(found, wanted, rtol=1e-5, atol=1e-5), case
