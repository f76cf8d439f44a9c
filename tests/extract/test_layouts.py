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
from frittata.rules.parse import parse_family

PUSHES = """
relu: permute(relu(x), p) => relu(permute(x, p))
add:  permute(x + y, p)   => permute(x, p) + permute(y, p)    if rank(x) == rank(y)
"""


def chosen(root: Term, rules: str = "") -> Program:
    """Extract a program with further rules."""
    families = (*builtin_families(), *((parse_family(rules, "push.rules", "push"),) if rules else ()))
    levels = ("exact", "reassoc")
    families = tuple(replace(f, rules=tuple(r for r in f.rules if r.level.kind in levels)) for f in families)
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


def test_a_chain_of_wide_convolutions_is_computed_by_tiles() -> None:
    """Nothing goes on with channels last beside `r`: permutations stand at both ends, those in the middle together."""
    program = chosen(layers(2))
    assert [k.template for k in program.kernels] == ["pointwise", "winograd", "pointwise", "winograd", "pointwise"]


def test_what_follows_can_go_on_in_the_kernel_once_it_is_pushed_behind_the_permutation() -> None:
    program = chosen(layers(2), PUSHES)
    bodies = [output.body for kernel in program.kernels for output in kernel.outputs if kernel.template == "winograd"]
    fused = [body for body in bodies if body.args[0].op != "winograd_dot"]
    assert fused and all({"winograd_dot", "max"} <= {term.op for term in walk(body)} for body in fused)
