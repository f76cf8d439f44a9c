"""What makes the fusion equation sound: the counterexamples of the design, and consistency of all classes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from consistency import inconsistencies

from bench import workloads
from frittata.egraph import indexing, interpret
from frittata.egraph.errors import ModelError, SaturationError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.phases import Phase
from frittata.egraph.saturate import Saturation, saturate
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Scalar, Term, walk
from frittata.extract.choose import extract
from frittata.frontends.torch_export import from_module
from frittata.kernels.templates import TEMPLATES
from frittata.rules.compile import compile_families
from frittata.rules.library import builtin_families
from frittata.rules.parse import parse_family


def leaf(name: str, *shape: int, op: str = "input") -> Term:
    return tensor(op, name=name, shape=shape, dtype="f64")


def saturated(*roots: Term, extra: str = "", levels: tuple[str, ...] = ("exact", "reassoc")) -> Saturation:
    families = builtin_families() + ((parse_family(extra, "extra"),) if extra else ())
    families = tuple(replace(f, rules=tuple(r for r in f.rules if r.level.kind in levels)) for f in families)
    phase = Phase("all", tuple(family.name for family in families), node_limit=5000)
    return saturate(roots, compile_families(families), (phase,), lambda term: term.op == "param")


def values_of(*roots: Term, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    leaves = [t for t in walk(*roots) if t.op in ("input", "param")]
    return {t.attrs[0]: np.abs(rng.standard_normal(t.shape)) + 0.1 for t in leaves}  # type: ignore[arg-type]


SMALL = {
    "mlp": lambda: workloads.mlp(7, 5, 3, batch=4, dtype=torch.float64),
    "encoder": lambda: workloads.encoder_layer(8, 2, 12, tokens=5, batch=2, dtype=torch.float64),
    "block": lambda: workloads.basic_block(3, 5, batch=1, dtype=torch.float64),
}


@pytest.mark.parametrize("name", SMALL)
def test_all_nodes_of_all_classes_agree(name: str) -> None:
    model = from_module(*SMALL[name]()).model
    found = saturated(*model.main.outputs)
    inputs = values_of(*model.main.inputs)
    params = {k: v + 3 if "var" in k else v for k, v in model.params.items()}
    assert not inconsistencies(found.snapshot, {**params, **inputs})


def test_a_wrong_rule_makes_classes_inconsistent() -> None:
    x = leaf("x", 3, 4)
    found = saturated(tensor("relu", x), extra="wrong: relu(x) => gelu(x)")
    assert inconsistencies(found.snapshot, {"x": np.random.default_rng(0).standard_normal((3, 4))})


def test_two_constants_in_one_class_raise_an_alarm_that_names_the_rule() -> None:
    x = leaf("x", 3)
    with pytest.raises(SaturationError, match="extra/"):
        saturated(
            tensor(
                "build", element("add", element("load", x), element("const", value=Scalar.of(1.0, "f64"))), shape=(3,)
            ),
            extra='sort element\nconfuse: const(c) => const(scalar(value(c) + 1, "f64")) if value(c) < 3',
        )


def test_iota_is_not_its_remainder_though_they_agree_on_three_elements() -> None:
    three = element("iota", axis=-1, extent=3)
    six = element("iota", axis=-1, extent=6)
    with pytest.raises(ModelError, match="extents"):
        tensor("build", three, shape=(6,))
    found = saturated(tensor("build", three, shape=(3,)), tensor("build", six, shape=(6,))).snapshot
    assert found.class_by_term[three] != found.class_by_term[six]


def test_a_comparison_true_everywhere_in_one_shape_stays_a_comparison() -> None:
    def banded(n: int) -> Term:
        i, j = element("iota", axis=-2, extent=n), element("iota", axis=-1, extent=n)
        return element("lt", element("sub", i, j), element("const", value=Scalar.of(4, "i64")))

    small, large = banded(4), banded(8)
    roots = (tensor("build", small, shape=(4, 4)), tensor("build", large, shape=(8, 8)))
    found = saturated(*roots).snapshot
    assert found.class_by_term[small] != found.class_by_term[large]
    assert interpret.evaluate((roots[0],), {})[0].all()
    assert not interpret.evaluate((roots[1],), {})[0].all()


def test_equal_as_functions_is_not_yet_legal_to_compute() -> None:
    """expand(v, (4, 3)) equals v at every index, but no kernel of shape (6, 3) may read it."""
    v = leaf("v", 3)
    four = tensor("exp", tensor("expand", v, shape=(4, 3)))
    six = tensor("exp", tensor("expand", v, shape=(6, 3)))
    found = saturated(four, six)
    chosen = extract(found.snapshot, (v,), (four, six), TEMPLATES, REFERENCE, found.rule_names).program
    value = np.array([0.5, -1.0, 2.0])
    expected = np.exp(value)
    for result, rows in zip(interpret.evaluate(chosen.to_terms(), {"v": value}), (4, 6), strict=True):
        np.testing.assert_allclose(result, np.broadcast_to(expected, (rows, 3)))


def test_symbolic_dims_never_broadcast() -> None:
    x = tensor("input", name="x", shape=(Sym("n"), 3), dtype="f32")
    y = tensor("input", name="y", shape=(4, 3), dtype="f32")
    with pytest.raises(ModelError, match="broadcast"):
        tensor("add", x, y)


def test_negative_zero_is_not_zero() -> None:
    x = leaf("x", 3)
    plus = tensor(
        "build", element("add", element("load", x), element("const", value=Scalar.of(0.0, "f64"))), shape=(3,)
    )
    minus = tensor(
        "build", element("add", element("load", x), element("const", value=Scalar.of(-0.0, "f64"))), shape=(3,)
    )
    found = saturated(plus, minus, x, levels=("exact",)).snapshot
    assert found.class_by_term[minus] == found.class_by_term[x]
    assert found.class_by_term[plus] != found.class_by_term[x]


def test_a_guarded_read_stays_under_its_guard() -> None:
    """Padding reads zero wherever the guard says so, whatever the clamped read would give there."""
    x = leaf("x", 3)
    inside = element("lt", element("iota", axis=-1, extent=5), element("const", value=Scalar.of(3, "i64")))
    shifted = indexing.IndexMap((3,), (5,), (indexing.var(-1, 5),))
    read = element("log", element("reindex", element("load", x), map=shifted))
    padded = tensor("build", element("where", inside, read, element("const", value=Scalar.of(0.0, "f64"))), shape=(5,))
    found = saturated(padded)
    chosen = extract(found.snapshot, (x,), (padded,), TEMPLATES, REFERENCE, found.rule_names).program
    (result,) = interpret.evaluate(chosen.to_terms(), {"x": np.array([1.0, np.e, 0.0])})
    np.testing.assert_allclose(result, [0.0, 1.0, -np.inf, 0.0, 0.0])
    assert not inconsistencies(found.snapshot, {"x": np.array([1.0, np.e, 2.0])})
