"""Classes stay consistent, and programs right, where indices are computed and folds run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from consistency import inconsistencies

from frittata.egraph import interpret
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.registry import tensor
from frittata.egraph.phases import Phase
from frittata.egraph.program import Program
from frittata.egraph.saturate import saturate
from frittata.egraph.terms import Term, walk
from frittata.extract.choose import extract
from frittata.kernels.templates import select
from frittata.rules.compile import compile_families
from frittata.rules.library import builtin_families


def leaf(name: str, *shape: int, dtype: str = "f64", op: str = "input") -> Term:
    return tensor(op, name=name, shape=shape, dtype=dtype)


def embedded() -> Term:
    words = tensor("take", leaf("w", 9, 6, op="param"), leaf("ids", 2, 5, dtype="i64"), axis=-2)
    placed = tensor("add", words, tensor("take", leaf("p", 7, 6, op="param"), leaf("at", 5, dtype="i32"), axis=-2))
    return tensor("layer_norm", placed, leaf("g", 6, op="param"), leaf("b", 6, op="param"), eps=1e-5)


def gathered() -> Term:
    x = tensor("exp", leaf("x", 3, 6))
    top = tensor("argmax", x, axis=-1)
    return tensor("mul", tensor("gather", x, top, axis=-1), tensor("gather", x, leaf("i", 3, 4, dtype="i64"), axis=-1))


def running() -> Term:
    x = leaf("x", 4, 5)
    across = tensor("cumsum", tensor("relu", x), axis=-1)
    return tensor("add", tensor("softmax", across, axis=-1), tensor("cummax", across, axis=-2))


def attended(op: str, *masks: Term) -> Term:
    q, k, v = leaf("q", 2, 4, 3), leaf("k", 2, 5, 3), leaf("v", 2, 5, 3)
    return tensor(op, tensor("relu", q), k, v, *masks, scale=0.5)


def scattered() -> Term:
    x, i = leaf("x", 4, 5), leaf("i", 4, 3, dtype="i64")
    written = tensor("scatter", tensor("exp", x), i, tensor("take", x, leaf("j", 3, dtype="i32"), axis=-1), axis=-1)
    return tensor("add", written, tensor("sort", x, axis=-1))


ROOTS = {
    "embedding": embedded,
    "gather at an argmax": gathered,
    "running folds": running,
    "causal attention": lambda: attended("causal_attention"),
    "attention under a mask": lambda: attended("masked_attention", leaf("m", 4, 5, dtype="bool")),
    "attention with a bias": lambda: attended("masked_attention", leaf("m", 2, 1, 5)),
    "scatter and sort": scattered,
}


def values_of(root: Term) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    out: dict[str, Any] = {}
    for term in walk(root):
        if term.op in ("input", "param"):
            draws = {"bool": lambda s: rng.random(s) < 0.6, "i32": lambda s: rng.integers(0, 4, s)}
            draws |= {"i64": lambda s: rng.integers(0, 4, s), "f64": lambda s: rng.standard_normal(s)}
            out[term.attrs[0]] = draws[term.dtype](term.shape)
    return out


def chosen(root: Term) -> tuple[Program, Any]:
    families = builtin_families()
    phase = Phase("all", tuple(family.name for family in families), node_limit=5000)
    found = saturate((root,), compile_families(families), (phase,), lambda term: term.op == "param")
    inputs = tuple(term for term in walk(root) if term.op == "input")
    program = extract(found.snapshot, inputs, (root,), select("fast", True), REFERENCE, found.rule_names).program
    return program, found.snapshot


@pytest.mark.parametrize("name", ROOTS)
def test_all_nodes_of_all_classes_agree_and_the_program_is_right(name: str) -> None:
    root = ROOTS[name]()
    program, snapshot = chosen(root)
    values = values_of(root)
    assert not inconsistencies(snapshot, values)
    expected, got = (interpret.evaluate(terms, values)[0] for terms in ((root,), program.to_terms()))
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_look_ups_are_fused_with_what_follows_them() -> None:
    program, _ = chosen(embedded())
    assert [kernel.template for kernel in program.kernels] == ["row"]


def test_what_is_looked_up_is_computed_where_that_is_cheaper() -> None:
    few = tensor("take", tensor("exp", leaf("x", 5000, 64)), leaf("i", 3, dtype="i64"), axis=-2)
    many = tensor("take", tensor("exp", leaf("x", 5, 64)), leaf("i", 4000, dtype="i64"), axis=-2)
    assert len(chosen(few)[0].kernels) == 1
    assert len(chosen(many)[0].kernels) == 2


def test_a_sum_of_running_folds_along_two_axes_takes_two_kernels() -> None:
    x = leaf("x", 64, 64)
    program, _ = chosen(tensor("add", tensor("cumsum", x, axis=-1), tensor("cumsum", x, axis=-2)))
    assert len(program.kernels) == 2
