"""Convolutions that leave their results with channels last: what goes on in their kernels, what stands between them."""

from __future__ import annotations

from dataclasses import replace

from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.registry import tensor
from frittata.egraph.phases import Phase
from frittata.egraph.program import Program
from frittata.egraph.saturate import saturate
from frittata.egraph.terms import Term, walk
from frittata.extract.choose import extract
from frittata.kernels.templates import TEMPLATES
from frittata.rules.compile import compile_families
from frittata.rules.library import builtin_families


def chosen(root: Term) -> Program:
    """Extract a program."""
    levels = ("exact", "reassoc")
    admitted = (replace(f, rules=tuple(r for r in f.rules if r.level.kind in levels)) for f in builtin_families())
    families = tuple(admitted)
    phase = Phase("all", tuple(family.name for family in families))
    found = saturate((root,), compile_families(families), (phase,), lambda term: term.op == "param")
    inputs = tuple(term for term in walk(root) if term.op == "input")
    return extract(found.snapshot, inputs, (root,), TEMPLATES, REFERENCE, found.rule_names).program


def layers(count: int) -> Term:
    """Return so many layers conv(x) + r, relu."""
    x = tensor("input", name="x", shape=(1, 48, 24, 24), dtype="f32")
    r = tensor("input", name="r", shape=(1, 48, 24, 24), dtype="f32")
    for layer in range(count):
        w = tensor("param", name=f"w{layer}", shape=(48, 48, 3, 3), dtype="f32")
        x = tensor("relu", tensor("add", tensor("conv", x, w, padding=(1, 1)), r))
    return x


def test_what_stands_beside_convolutions_goes_where_their_channels_are_last() -> None:
    """`x` and `r` are permuted once each; what follows a convolution goes on in its kernel."""
    program = chosen(layers(3))
    names = ["pointwise", "pointwise", "winograd", "winograd", "winograd", "pointwise"]
    assert sorted(k.template for k in program.kernels) == sorted(names)
    bodies = [output.body for kernel in program.kernels for output in kernel.outputs if kernel.template == "winograd"]
    assert all({"winograd_dot", "add", "max"} <= {term.op for term in walk(body)} for body in bodies)
