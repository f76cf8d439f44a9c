"""Guards and attributes: what the functions compute, and that expressions cannot do more than that."""

import ast
from typing import Any

import numpy as np
import pytest

from frittata.egraph import indexing
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Scalar, TensorType
from frittata.rules import facts
from frittata.rules.facts import ElementFacts, NotApplicable
from frittata.rules.pattern import Expression

X = TensorType((2, 3, 4), "f32")


def expression(text: str) -> Expression:
    return Expression(text, ast.parse(text, mode="eval").body, ())


def value(text: str, **env: Any) -> Any:
    return facts.evaluate(expression(text), env)


def test_arithmetic_of_dims() -> None:
    assert value("(1, *shape(x)[1:], shape(x)[0] * 2 - 1)", x=X) == (1, 3, 4, 3)
    assert value("prod(shape(x)) // 5 if rank(x) == 3 else 0", x=X) == 4
    assert value("(1,) * (rank(x) - 1)", x=X) == (1, 1)


def test_guards_compare_and_combine() -> None:
    assert facts.holds(expression("rank(x) == 3 and not dtype(x) == 'f64' and 1 < shape(x)[0] <= 2"), {"x": X})
    assert not facts.holds(expression("shape(x)[5] == 1"), {"x": X})  # no such axis: not true


@pytest.mark.parametrize(
    "text", ["shape(x)[7]", "1 // 0", "shape(x) - 1", "x.shape", "(1,) * 1000000", "'a' * 9", "[1]"]
)
def test_an_expression_without_a_value_does_not_apply(text: str) -> None:
    with pytest.raises(NotApplicable):
        value(text, x=X)


def test_a_symbol_has_no_number() -> None:
    x = TensorType((Sym("n"), 4), "f32")
    assert value("shape(x)[0] == shape(x)[0]", x=x)
    with pytest.raises(NotApplicable):
        value("scalar(shape(x)[0], dtype(x))", x=x)


def test_permutations_compose_as_numpy_does() -> None:
    x = np.arange(24).reshape(2, 3, 4)
    p, q = (1, 2, 0), (2, 0, 1)
    np.testing.assert_array_equal(x.transpose(p).transpose(q), x.transpose(facts.compose(p, q)))
    assert facts.compose(p, facts.inverse(p)) == (0, 1, 2)
    assert facts.swap_last(3) == (0, 2, 1)


def test_maps_compose_where_one_follows_the_other() -> None:
    first = indexing.slice_map((6, 4), -2, 1, 2, 2)
    then = indexing.permute_map((2, 4), (1, 0))
    assert facts.compose_maps(first, then) == indexing.compose(then, first)
    with pytest.raises(NotApplicable):
        value("compose_maps(m, n)", m=then, n=then)


def test_folding_rounds_to_the_dtype() -> None:
    a, b = Scalar.of(0.1, "f32"), Scalar.of(0.2, "f32")
    assert facts.fold_constants("add", a, b).value == float(np.float32(0.1) + np.float32(0.2))
    assert facts.fold_constants("lt", a, b) == Scalar.of(True, "bool")
    assert facts.fold_constants("cast", Scalar.of(2.7, "f64"), "i32") == Scalar.of(2, "i32")


def test_folded_nan_has_one_pattern() -> None:
    a = Scalar.of(-1.0, "f32")
    assert facts.fold_constants("sqrt", a) == Scalar.of(float("nan"), "f32")


def test_powers_of_two_whose_reciprocal_is_exact() -> None:
    assert facts.is_power_of_two(Scalar.of(-0.25, "f32"))
    assert not facts.is_power_of_two(Scalar.of(3.0, "f32"))
    assert not facts.is_power_of_two(Scalar.of(0.0, "f32"))
    assert not facts.is_power_of_two(Scalar.of(2.0**-140, "f32"))  # its reciprocal overflows
    assert not facts.is_power_of_two(Scalar.of(2, "i32"))


def test_channels() -> None:
    assert facts.channel_shape(TensorType((2, 3, 4, 5), "f32")) == (3, 1, 1)
    assert facts.is_per_channel(TensorType((3, 1, 1), "f32"), 4)
    assert facts.is_per_channel(TensorType((), "f32"), 4)
    assert not facts.is_per_channel(TensorType((3, 1), "f32"), 4)
    assert not facts.is_per_channel(TensorType((1, 1, 3, 1, 1), "f32"), 4)


def test_axes_that_nobody_knows_are_not_promised() -> None:
    assert value("mentions(e, -1)", e=ElementFacts("f32", frozenset({-1})))
    assert not facts.holds(expression("not mentions(e, -1)"), {"e": ElementFacts("f32")})
