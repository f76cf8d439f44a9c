"""Kernels that read and write inside of larger buffers: what they compute, and that they touch nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_cases import CASES, Case, assert_agrees, build, case_named, element, leaf, load

import frittata as ft
from frittata.egraph import shapes, terms
from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.registry import tensor
from frittata.egraph.places import find_places, placed_bodies
from frittata.egraph.program import Estimate, Join, Kernel, Output, Program, Step
from frittata.egraph.terms import Scalar, TensorType, Term
from frittata.kernels import runtime, templates

_BORDER = 3
_FREE = Estimate(0, 0, 0)


def copied(name: str, source: Term) -> Kernel:
    """Return a kernel that copies a buffer."""
    body = build(element("load", source), *shapes.concrete(source.shape))
    return Kernel(name, "nest", (Output(name, body),), (source.attrs[0],), _FREE)


def bordered(name: str, part: Term, low: int, high: int) -> Join:
    """Return a join in which a part has a border on every axis."""
    rank = len(part.shape)
    value = Scalar.of(_BORDER, part.dtype)
    return Join(name, tensor("pad", part, low=(low,) * rank, high=(high,) * rank, value=value))


def typed(name: str, like: Term) -> Term:
    return leaf(name, *shapes.concrete(like.shape), dtype=like.dtype)


def in_place(case: Case, template: str) -> Program:
    """Return a program that runs the bodies with operands and results inside of borders, and shows borders and all."""
    steps: list[Step] = []
    inside: dict[Term, Term] = {}
    for operand in case.operands:
        name = operand.attrs[0]
        inside[operand] = typed(f"{name}_part", operand)
        steps += [copied(f"{name}_part", operand), bordered(f"{name}_around", inside[operand], 1, 2)]
    bodies = [terms.substitute(body, inside) for body in case.bodies]
    outputs = tuple(Output(f"out{i}", body) for i, body in enumerate(bodies))
    names = tuple(part.attrs[0] for part in inside.values())
    steps.append(Kernel("tested", template, outputs, names, _FREE))
    for output in outputs:
        around = bordered(f"{output.name}_around", typed(output.name, output.body), 2, 1)
        steps += [around, copied(f"{output.name}_shown", typed(around.name, around.body))]
    inputs = {operand.attrs[0]: TensorType(operand.shape, operand.dtype) for operand in case.operands}
    return Program(inputs, {}, tuple(steps), tuple(f"{output.name}_shown" for output in outputs))


def takes(template: str, program: Program) -> bool:
    """Whether a template can run the tested kernel where its buffers lie."""
    (kernel,) = (k for k in program.kernels if k.name == "tested")
    bodies = placed_bodies(kernel, find_places(program))
    return templates.by_name(template).estimate(bodies, frozenset(), REFERENCE) is not None


def check(case: Case, template: str, runs: int = 2) -> None:
    """Run twice over the same memory, and compare with the law, borders included."""
    program = in_place(case, template)
    run = runtime.build(program, {})
    for seed in range(runs):
        values = case.values(seed)
        law = case.expected(values)
        for body, got, wanted in zip(case.bodies, run(*values), law, strict=True):
            inner = tuple(slice(2, -1) for _ in body.shape)
            assert_agrees(Case(case.name, (body,)), (got[inner],), (wanted,))
            outside = np.ones(got.shape, bool)
            outside[inner] = False
            assert (got[outside] == Scalar.of(_BORDER, body.dtype).value).all()


_TESTED = {
    "pointwise": ("add-f32", "exp-f64", "logic", "integers", "broadcast", "transpose", "heads", "clamped", "rows-i64"),
    "row": ("softmax-17", "softmax-130", "softmax-outer", "layer-norm", "fold-max", "fold-outer", "fold-i32"),
    "contraction": ("dot-7x33x17", "dot-64x40x48", "dot-batched", "linear-gelu", "dot-prologue", "dot-f64"),
    "convolution": ("window-3x3-s1-p1-d1-g1", "window-3x3-s2-p0-d1-g2", "window-7x7-s2-p3-d1-g1", "window-fused"),
    "channels": ("window-3x3-s1-p1-d1-g1", "window-4-s2-p1-d1-g1"),
    "stencil": ("pool-max", "pool-mean", "pool-lines"),
    "taps": ("pool-max", "pool-mean", "pool-lines"),
    "scan": ("scan-sum-1", "scan-max-2", "scan-line", "scan-i64"),
    "nest": ("softmax-7", "attention", "window-2x3x2-s1-p1-d1-g1", "dot-i64", "two-axes", "scan-both-ways", "ones"),
}


@pytest.mark.parametrize(("template", "name"), [(t, n) for t, names in _TESTED.items() for n in names])
def test_bodies_in_place_compute_what_they_mean(template: str, name: str) -> None:
    case = case_named(name)
    assert takes(template, in_place(case, template))
    check(case, template)


def test_every_template_that_takes_places_is_tested() -> None:
    tested = {*_TESTED, "winograd", "halves"}  # the last is a contraction of narrow values
    assert tested == {template.name for template in templates.TEMPLATES if templates.is_in_place(template.name)}


_TURNED = {
    "pointwise": ("add-f32", "broadcast", "transpose", "rows-i64"),
    "contraction": ("dot-7x33x17", "dot-64x40x48", "linear-gelu", "dot-f64"),
    "convolution": ("window-3x3-s1-p1-d1-g1", "window-3x3-s2-p0-d1-g2", "window-7x7-s2-p3-d1-g1", "window-fused"),
}


def check_turned(case: Case, template: str) -> None:
    """Run a body whose results lie with the axis of the rows last."""
    (body,) = case.bodies
    rank = len(body.shape)
    order = (0, 2, 3, 1) if rank == 4 else (*range(rank - 2), rank - 1, rank - 2)
    out = typed("out", body)
    turned = Join("turned", tensor("permute", out, permutation=order))
    operands = tuple(operand.attrs[0] for operand in case.operands)
    tested = Kernel("tested", template, (Output("out", body),), operands, _FREE)
    inputs = {operand.attrs[0]: TensorType(operand.shape, operand.dtype) for operand in case.operands}
    shown = copied("shown", typed("turned", turned.body))
    program = Program(inputs, {}, (tested, turned, shown), ("shown",), _FREE.seconds)
    values = case.values(0)
    (wanted,) = case.expected(values)
    (got,) = runtime.build(program, {})(*values)
    assert_agrees(case, (got.transpose(np.argsort(order)),), (wanted,))


@pytest.mark.parametrize(("template", "name"), [(t, n) for t, names in _TURNED.items() for n in names])
def test_results_are_stored_with_the_axis_of_the_rows_last(template: str, name: str) -> None:
    """Of a product as many of a column as stand in registers are stored at once; others go over their axes that way."""
    case = case_named(name)
    check_turned(replace(case, bodies=case.bodies[:1]), template)


@pytest.mark.parametrize("rows", [4, 16, 17, 32, 48])
@pytest.mark.parametrize("columns", [20, 64, 128])
def test_rows_side_by_side_end_with_their_batch(rows: int, columns: int) -> None:
    """A register tile reaches from one batch to the next, where what is stored side by side does not."""
    product = element("dot", load("x", 7, rows, 24), load("w", 24, columns), depth=24)
    check_turned(Case("turned", (build(product, 7, rows, columns),)), "contraction")


TILED = """
def main(
    x: f32[2, 6, 7, 16], param w: f32[16, 16, 3, 3], param v: f32[21, 16, 3, 3], param u: f32[8, 37, 3, 3]
) -> f32[2, 4, 5, 8]:
    a: f32[2, 6, 7, 16] = conv_winograd(x, w, padding=(1, 1), tile=2)
    b: f32[2, 6, 7, 21] = conv_winograd(x, v, padding=(1, 1), tile=2)
    c: f32[2, 6, 7, 37] = concat(a, b, axis=-1)
    y: f32[2, 4, 5, 8] = conv_winograd(c, u, padding=(0, 0), tile=2)
    return y
"""


def test_tiled_convolutions_write_channels_side_by_side() -> None:
    """Their weights are constants, which the program above has none of."""
    rng = np.random.default_rng(0)
    shape_by_name = {"w": (16, 16, 3, 3), "v": (21, 16, 3, 3), "u": (8, 37, 3, 3)}
    params = {name: rng.standard_normal(s).astype(np.float32) for name, s in shape_by_name.items()}
    model = replace(ft.parse(TILED), params=params)
    fast = ft.optimize(model, machine=REFERENCE)
    assert [kernel.template for kernel in fast.kernels] == ["winograd"] * 3
    x = rng.standard_normal((2, 6, 7, 16)).astype(np.float32)
    (expected,) = model.interpret(x)
    assert np.abs(fast(x) - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_template_that_cannot_write_in_place_says_so() -> None:
    case = case_named("dot-7x33x17")
    with pytest.raises(LoweringError, match="library"):
        runtime.lower_kernels(in_place(case, "library"))


def test_lines_that_are_not_in_one_piece_are_refused_by_vector_templates() -> None:
    column = Case("column", (build(element("exp", element("load", leaf("x", 5, 1))), 5, 1),))
    program = in_place(column, "pointwise")
    assert not takes("pointwise", program) and takes("nest", in_place(column, "nest"))


def test_no_case_is_taken_wrongly() -> None:
    for case in CASES:
        if len(case.bodies[0].shape) > 0:
            assert takes("nest", in_place(case, "nest"))
