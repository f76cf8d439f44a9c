"""Transforms replace before saturation, and may change what a model means."""

import pytest

from frittata.egraph.errors import RuleError
from frittata.egraph.model import Function, Model
from frittata.egraph.ops.registry import make, tensor
from frittata.egraph.terms import Term
from frittata.rules.matching import match_rule
from frittata.rules.parse import parse_family
from frittata.rules.pattern import Rule
from frittata.rules.transform import apply_transforms

X = make("input", "tensor", (), ("x", (3, 4), "f32"))
W = make("param", "tensor", (), ("w", (4, 4), "f32"))


def model(*outputs: Term) -> Model:
    return Model({"main": Function((X,), outputs)})


def rules(text: str) -> tuple[Rule, ...]:
    return parse_family(text, "my.rules").rules


def test_replaces_everywhere() -> None:
    before = model(tensor("relu", tensor("matmul", tensor("relu", X), W)))
    after = apply_transforms(before, rules("a: relu(x) ~> gelu(x)"))
    assert after.main.outputs == (tensor("gelu", tensor("matmul", tensor("gelu", X), W)),)


def test_equations_are_left_alone() -> None:
    before = model(tensor("relu", tensor("relu", X)))
    assert apply_transforms(before, rules("a: relu(relu(x)) => relu(x)")) == before


def test_a_node_is_offered_once_to_each_transform() -> None:
    swap = rules("a: relu(x) ~> gelu(x)\nb: gelu(x) ~> relu(x)")
    assert apply_transforms(model(tensor("relu", X)), swap).main.outputs == (tensor("relu", X),)
    assert apply_transforms(model(tensor("gelu", X)), swap).main.outputs == (tensor("relu", X),)


def test_guard_is_asked() -> None:
    only_wide = rules("a: relu(x) ~> gelu(x) if shape(x)[-1] > 4")
    before = model(tensor("relu", X))
    assert apply_transforms(before, only_wide) == before


def test_constant_guard_knows_params() -> None:
    (rule,) = rules("a: matmul(x, w) ~> w * 2 if const(w) and not shape(x) == (3, 4)")
    assert match_rule(rule, tensor("matmul", X, W)) is None
    (rule,) = rules("a: matmul(x, w) ~> x if const(w)")
    assert match_rule(rule, tensor("matmul", X, W)) is not None
    assert match_rule(rule, tensor("matmul", X, tensor("matmul", W, tensor("softmax", W)))) is not None


def test_attributes_and_repeated_variables_must_agree() -> None:
    (rule,) = rules("a: softmax(x, axis=-1) + x ~> x")
    assert match_rule(rule, tensor("add", tensor("softmax", X, axis=-1), X)) is not None
    assert match_rule(rule, tensor("add", tensor("softmax", X, axis=-2), X)) is None
    assert match_rule(rule, tensor("add", tensor("softmax", X, axis=-1), tensor("relu", X))) is None


def test_another_type_is_refused() -> None:
    with pytest.raises(RuleError, match=r"(?s)replaces relu .* my\.rules:1:1"):
        apply_transforms(model(tensor("relu", X)), rules("a: relu(x) ~> reduce_sum(x, -1)"))
