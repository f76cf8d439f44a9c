"""The soundness gate: the built-in rules pass, wrong ones are refused with a counterexample."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rule_mutants import is_right, mutants

from frittata.egraph.errors import ModelError, RuleError
from frittata.egraph.ops import registry
from frittata.rules import facts
from frittata.rules.audit import LEAST_INSTANCES, THOROUGH, AuditResult, audit, check
from frittata.rules.library import builtin_families
from frittata.rules.parse import parse_family
from frittata.rules.pattern import Expression, Family, Rule

PARTS = 8
RULES = [rule for family in builtin_families() for rule in family.rules]


def audited(text: str, **limits: int) -> AuditResult:
    (rule,) = parse_family(text, "my.rules").rules
    return audit(rule, **limits)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.full_name)
def test_built_in_rule_is_sound(rule: Rule) -> None:
    found = audit(rule, seed=1)
    assert not found.failure, found.failure
    assert found.instances >= LEAST_INSTANCES


def test_no_built_in_rule_changes_a_meaning() -> None:
    """Programs from the cache are found by the transformed model, and built-in rules are not read to transform it."""
    assert "transform" not in {rule.kind for rule in RULES}


@pytest.mark.parametrize(
    "text",
    [
        "a: relu(x) => gelu(x)",
        "a: x * 0 => x - x",
        "sort element\na: x * 0 => 0",
        "sort element\na: x * 0 => 0 [reassoc]",  # a NaN must stay
        "sort element\na: x + 0 => x",  # -0.0 + 0.0 is 0.0
        "sort element\na: x + const(a) + const(b) => x + const(fold_constants('add', a, b))",  # only reassoc
        "a: x - x => full(scalar(0, dtype(x)), shape(x)) [reassoc]",
        "a: (x + y) + z => x + (y + z)",
        "a: softmax(x, k) => softmax(x, -1)",
        "a: reduce_sum(x, k) => build(fold(load(x), 'sum', k - 1, shape(x)[k]))",
        "a: permute(permute(x, p), q) => permute(x, compose(q, p))",
        "a: matmul(x, y) => matmul(y, x) if shape(x) == shape(y)",
        "a: div(x, y) => mul(x, reciprocal(y))",
        "a: expand(x, s) => x",
        "sort element\na: load(build(e, s)) => neg(e)",
        "a: gelu(x) => gelu_tanh(x) [approx(1e-6)]",
        "a: x * 0 => full(scalar(0, dtype(x)), shape(x)) [loose]",
        "a: conv_winograd(x, w, p, 2) => conv_winograd(x, w, p, 4) [reassoc]",  # a NaN spreads to the whole tile
        "a: floor(x + 0.5) => round(x) [reassoc]",
        "a: round(x) => floor(x + 0.5) [reassoc]",
        "a: min(relu(x), 100.0) => relu(x) [reassoc]",
        "a: relu(x) => min(relu(x), 100.0) [reassoc]",
        "a: sigmoid(x) => min(sigmoid(x), 0.99995) [reassoc]",
        "a: floor(x * 0.001) => floor(x * 0.00100001) [reassoc]",
        "a: relu(x) => gelu(x) if shape(x)[-1] == 768",
        "a: exp(x) + round(x) => exp(x) + floor(x + 0.5) if shape(x)[-1] % 64 == 0 [reassoc]",
        # Constants and thresholds of any size, and computed ones.
        "sort element\na: pow(x, const(c)) => square(x) if value(c) > 1.9 and value(c) < 2.9 [reassoc]",
        "sort element\na: min(x, const(c)) => x if value(c) > 5000 [reassoc]",
        "a: max(min(x, 65504), -65504) => x [reassoc]",
        "a: min(x, 1e30) => x if is_float(dtype(x)) [reassoc]",
        "a: min(x, full(scalar(100 * 100, dtype(x)), ())) => x [reassoc]",
        # Integers overflow, at any level; floats only if it is exact.
        "a: right_shift(left_shift(x, 3), 3) => x [reassoc]",
        "a: lt(x * 2, y * 2) => lt(x, y) [reassoc]",
        'a: cast(cast(x, "i8"), d) => x if dtype(x) == d and d == "i32" [reassoc]',
        "a: abs(square(x)) => square(x) if is_integer(dtype(x)) [reassoc]",
        "a: sqrt(square(x)) => abs(x)",
        "a: sqrt(x * 4) => sqrt(x) * 2",
        # In float32 an exponential overflows.
        "a: softmax(x, a) => exp(x) / reduce_sum(exp(x), a) [reassoc]",
        "a: sigmoid(x) => exp(x) / (exp(x) + 1) [reassoc]",
        "a: log(softmax(x, a)) => x - log(reduce_sum(exp(x), a)) [reassoc]",
        # One rounding in the place of two.
        "a: x * y + z => fma(x, y, z) if is_float(dtype(x))",
        "a: fma(x, y, z) => x * y + z",
        # To leave out a rounding to a half is [loose].
        'a: cast(cast(x, "bf16"), d) => x if dtype(x) == d and is_float(d) [reassoc]',
        'a: cast(cast(x, "f16"), d) => x if dtype(x) == d and is_float(d) [reassoc]',
        # So is float32 in the place of float64.
        'a: exp(x) => cast(exp(cast(x, "f32")), dtype(x)) if is_float(dtype(x)) [reassoc]',
        # Pads, windows and extents beyond the usual.
        "a: conv(pad(x, l, h, v), w, s, p, d, g) => conv(x, w, s, added(p, l[2:]), d, g)"
        " if l == h and min(l) >= 0 and max(l[:2]) == 0 [reassoc]",
        "a: slice(x, a, i, s, n) => slice(x, a, i, min(s, 2), n)",
        # What is scattered may be shorter along the other axes.
        'a: scatter(x, i, s, -1, "max") => scatter(x, i, expand(s, (*shape(x)[:-1], shape(s)[-1])), -1, "max")',
        "a: conv(x, w, s, p, d, g) => conv(x, w, (min(s[0], 2), *s[1:]), p, d, g) [reassoc]",
        "a: max_pool(x, k, s, p, d, c) => max_pool(x, (min(k[0], 3), *k[1:]), s, p, d, c)",
        "a: exp(x) => exp(x) * full(scalar(max(1, shape(x)[-1] - 14), dtype(x)), ()) [reassoc]",
        # The widths of two products may differ.
        "a: p = matmul(x, v), q = matmul(x, w) => y = matmul(x, concat(v, w, -1)), p = slice(y, -1, 0, 1, shape(v)[1]),"
        " q = slice(y, -1, shape(v)[1], 1, shape(v)[1]) if const(v, w) and rank(v) == 2 and rank(w) == 2 [reassoc]",
        # Reading p from the right side would bring a NaN of w into it, and from the left side lose it.
        "a: p = matmul(x, v), q = matmul(x, w) => y = matmul(x, v + w), p = y - q if shape(v) == shape(w) [reassoc]",
    ],
)
def test_wrong_rule_is_refused_with_a_counterexample(text: str) -> None:
    found = audited(text)
    assert found.counterexample is not None
    assert "is wrong" in found.failure


@pytest.mark.parametrize(
    "text",
    [
        "a: gelu(x) => gelu_tanh(x) [approx(1e-3)]",
        "a: (x + y) + z => x + (y + z) [reassoc]",
        "a: conv_winograd(x, w, p, 2) => conv_winograd(x, w, p, 4) [loose]",
        "sort element\na: max(x, 0) => where(gt(x, 0), x, 0) if is_integer(dtype(x))",
        "a: p = exp(x), q = neg(x) => y = neg(q), p = exp(y)",
        "a: relu(relu(x)) => relu(x) if shape(x)[-1] % 32 == 0 and shape(x)[-1] >= 64",
        "a: matmul(matmul(x, v), w) => matmul(x, matmul(v, w)) if shape(v) == (768, 3) [reassoc]",
        "a: relu(relu(x)) => relu(x) if rank(x) == 6",
        "a: sqrt(square(x)) => abs(x) if is_float(dtype(x)) [reassoc]",
        'a: cast(cast(x, "bf16"), d) => x if dtype(x) == d and is_float(d) [loose]',
        'a: exp(x) => cast(exp(cast(x, "f32")), dtype(x)) if dtype(x) == "f32" [reassoc]',
        "a: exp(x) * exp(y) => exp(x + y) [reassoc]",
        "a: argmax(exp(x), a) => argmax(x, a) [reassoc]",
        "a: max_pool(x, k, s, p, d, False) => max_pool(neg(neg(x)), k, s, p, d, False)",
        "a: pow(x, y) => pow(expand(x, shape(x)), y) if is_float(dtype(x))",
    ],
)
def test_right_rule_passes(text: str) -> None:
    found = audited(text)
    assert not found.failure, found.failure


def test_counterexample_shows_sides_inputs_place_and_values() -> None:
    shown = audited("a: relu(x) => gelu(x)").failure
    assert "my/a [exact] is wrong" in shown
    assert "left:  relu(x)" in shown and "right: gelu(x)" in shown
    assert "x: float" in shown and "at (" in shown and ": left " in shown


def test_counterexample_of_an_element_shows_the_index() -> None:
    found = audited("sort element\na: x - y => y - x").counterexample
    assert found is not None and found.place is not None


def test_ill_typed_right_side_is_a_counterexample() -> None:
    assert "ill-typed" in audited("a: matmul(x, y) => matmul(y, x) if shape(x)[-2] != shape(y)[-1]").failure


def test_why_a_right_side_has_no_type_is_one_line() -> None:
    failure = audited("a: x * x * x => pow(x, 3)  [reassoc]").failure
    assert "  right: ill-typed: pow(i64[], i64[]) with {}: needs floating-point operands, got i64, i64 (cast" in failure


def test_why_no_left_side_has_a_type_is_what_is_wrong_of_most() -> None:
    """An axis of one scatter that the other does not have is by chance."""
    failure = audited('a: scatter(scatter(x, i, s, a, "add"), i, t, a, "add") => x', attempts=8000).failure
    assert "the left side has no type: no scatter 'add'" in failure


def test_a_part_of_a_guard_that_is_never_true_is_named_with_what_it_met() -> None:
    text = "a: max_pool(x, k, s, p, d, c) => x if rank(x) == 4 and p == ((0, 0), (0, 0))"
    failure = audited(text, attempts=8000).failure
    assert re.search(r"50 are needed; p == \(\(0, 0\), \(0, 0\)\) was never true, as with p = \(\d", failure)


@pytest.mark.parametrize("bounds", [("% 64 == 0", "% 32 == 0"), ("> 64", "> 64"), ("% 64 == 0", "== shape(x)[-1]")])
def test_a_guard_may_ask_for_large_extents_on_two_axes(bounds: tuple[str, str]) -> None:
    text = "a: relu(x) => x if shape(x)[-1] {} and shape(x)[-2] {}".format(*bounds)
    assert "is wrong" in audited(text).failure
    assert not audited(text.replace("=> x", "=> relu(relu(x))")).failure


def test_a_guard_that_nothing_satisfies_is_given_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    tested: list[object] = []
    holds = facts.holds

    def counted(expression: Expression, env: Mapping[str, Any]) -> bool:
        tested.append(expression)
        return holds(expression, env)

    monkeypatch.setattr(facts, "holds", counted)
    (rule,) = parse_family("a: relu(x) => relu(x) if rank(x) > 90", "my.rules").rules
    assert audit(rule, attempts=800).failure and 100 <= len(tested) <= 400


@pytest.mark.parametrize(
    "text",
    [
        "a: concat(x, x, a) * concat(y, y, a) => concat(y, y, a) * concat(x, x, a)",
        "a: max_pool(x, k, s, p, d, c) * max_pool(y, k, s, p, d, c)"
        " => max_pool(y, k, s, p, d, c) * max_pool(x, k, s, p, d, c)",
        "a: concat(conv(x, v, s, p), conv(y, w, s, p), b) => concat(conv(x, v, s, p), conv(y, w, s, p), b)",
    ],
)
def test_attributes_that_operands_share_are_drawn_again_where_they_do_not_fit(text: str) -> None:
    found = audited(text + " [reassoc]")
    assert not found.failure, found.failure


@pytest.mark.parametrize(
    "text",
    [
        "a: reduce_sum(permute(x, p), p) => x",
        "a: slice(pad(x, l, h, v), l, i, s, m) => x",
        "a: concat(x, permute(y, a), a) => x",
    ],
)
def test_attribute_that_is_an_axis_and_a_tuple_fits_nothing(text: str) -> None:
    (rule,) = parse_family(text, "my.rules").rules
    assert audit(rule, attempts=3000).instances == 0


def test_right_side_without_a_value_is_a_counterexample() -> None:
    text = 'a: reduce_max(x, -1) => build(fold(load(x), "max", -1, shape(x)[-1] - 1)) if shape(x)[-1] == 1'
    assert "has no value: zero-size array" in audited(text).failure


def test_left_side_without_a_value_is_told() -> None:
    found = audited('sort element\na: fold(x, "max", -1, 0) => x')
    assert "only 0 instances" in found.failure and "has no value: zero-size array" in found.failure


@pytest.fixture
def rows() -> Iterator[Callable[..., None]]:
    """Register rows of one operand, which are taken out again."""
    added: list[str] = []

    def add(name: str, reference: Callable[..., Any], **given: Any) -> None:
        row = replace(registry.get("tanh"), name=name, pointwise=False, reference=reference)
        registry.register(replace(row, **given))
        added.append(name)

    yield add
    for name in added:
        registry.unregister(name)


def test_reference_that_fails_or_gives_another_shape_is_named(rows: Callable[..., None]) -> None:
    rows("failing", lambda x: 1 / 0)
    rows("shrinking", lambda x: x.reshape(-1)[:0])
    assert "the left side failing(x) has no value: division by zero" in audited("a: failing(x) => x").failure
    rows("first", lambda x: x.reshape(-1)[:1])  # which has the shape of x at times
    assert "the reference of first gave shape (1,)" in audited("a: first(x) => x").failure
    assert "the reference of shrinking gave shape (0,) in place of" in audited("a: shrinking(x) => x").failure
    assert "failing(x) has no value: division by zero" in audited("a: tanh(x) => failing(x)").failure


def test_type_rule_that_fails_or_gives_no_type_is_named(rows: Callable[..., None]) -> None:
    rows("raising", lambda x: x, infer=lambda types, attrs: 1 / 0)
    rows("tupled", lambda x: x, infer=lambda types, attrs: (4, 8))
    x = registry.tensor("input", name="x", shape=(4, 8), dtype="f32")
    with pytest.raises(ModelError, match="the type rule of raising raised ZeroDivisionError: division by zero"):
        registry.tensor("raising", x)
    with pytest.raises(ModelError, match=r"(?s)the type rule of tupled gave \(4, 8\).*return a TensorType"):
        registry.tensor("tupled", x)


@pytest.mark.parametrize("name", ["my abs", "lambda", "3d", ""])
def test_operator_name_that_cannot_be_written_is_refused(name: str) -> None:
    row = registry.get("tanh")
    with pytest.raises(ModelError, match="an operator cannot be named"):
        registry.register(replace(row, name=name))


@pytest.mark.parametrize("default", [2.0, 1, True, (1, 2), registry.REQUIRED])
def test_attributes_of_a_row_of_ones_own_are_drawn(rows: Callable[..., None], default: Any) -> None:
    rows("scaled", lambda x, k: x * np.sum(k), attrs=(("k", default),))
    assert "is wrong" in audited("a: scaled(x, k) => x * 2 [reassoc]").failure
    assert "is wrong" in audited("a: scaled(x, k) => x [reassoc]").failure
    assert not audited("a: neg(scaled(x, k)) => scaled(neg(x), k) [reassoc]").failure


def test_verdict_does_not_depend_on_the_name() -> None:
    text = "conv(x, w, s, p, d, g) => conv(x, w, s, p, (min(d[0], 2), *d[1:]), g) [reassoc]"
    found = [audited(f"{name}: {text}", most=THOROUGH) for name in ("a", "b", "c", "d")]
    shown = {str(each.counterexample).partition("\n")[2] for each in found}
    assert len(shown) == 1 and "left:" in shown.pop()


def test_check_looks_longer_than_an_audit() -> None:
    family = parse_family("a: relu(relu(x)) => relu(x)", "my.rules")
    assert [found.instances for found in check(family)] == [300]


def test_row_that_is_not_there_is_not_taken_out() -> None:
    with pytest.raises(ModelError, match="no tensor operator 'zzz' is registered"):
        registry.unregister("zzz")


def test_guard_that_is_hardly_ever_true_fails_the_audit() -> None:
    (rule,) = parse_family("a: relu(relu(x)) => relu(x) if shape(x) == (2, 3, 5, 4)", "my.rules").rules
    found = audit(rule, attempts=20_000)
    assert found.counterexample is None
    assert "instances satisfy the guard" in found.failure


@pytest.mark.parametrize("guard", ["shape(x)[9] == 2", "rank(x) // 0 == 1"])
def test_guard_that_never_has_a_value_says_why(guard: str) -> None:
    family = parse_family(f"a: relu(relu(x)) => relu(x) if {guard}", "my.rules")
    with pytest.raises(RuleError, match=r"only 0 instances .*; .*(out of range|by zero)[^$]*loosen the guard"):
        check(family, attempts=5000)


@pytest.mark.parametrize("text", ["softmax(x, 1) => x", "reduce_sum(x, 5) => x", "slice(x, 0, 0, 1, 2) => x"])
def test_axis_that_is_not_negative_is_told(text: str) -> None:
    (rule,) = parse_family(f"a: {text}", "my.rules").rules
    assert "count axes from the right: -1 is the last" in audit(rule, attempts=1000).failure


def test_guard_on_constants_that_are_not_drawn_says_what_is() -> None:
    family = parse_family("sort element\na: x * const(c) => x if value(c) * 3 == 1", "my.rules")
    with pytest.raises(RuleError, match="constants from halves up to 10, powers of two up to 65536, and at and beside"):
        check(family, attempts=1000)


def test_check_names_the_place_of_a_wrong_rule() -> None:
    family: Family = parse_family("ok: relu(relu(x)) => relu(x)\nbad: relu(x) => gelu(x)", "my.rules")
    with pytest.raises(RuleError, match=r"my\.rules:2:1"):
        check(family)


@pytest.mark.parametrize("part", range(PARTS))
def test_mutants_are_caught(part: int) -> None:
    """At least 95 of 100; those that never apply (an attribute became nonsense) are left out, on both sides."""
    caught = 0
    survivors: list[str] = []
    for rule in RULES[part::PARTS]:
        for what, mutant in mutants(rule):
            for attempts in (500, 2000, 8000):
                found = audit(mutant, attempts=attempts)
                never_applies = not found.instances and (found.skipped >= 10 or attempts > 500)
                if found.counterexample or found.instances >= LEAST_INSTANCES or never_applies:
                    break
            if found.counterexample:
                caught += 1
            elif found.instances >= LEAST_INSTANCES and not is_right(what):
                survivors.append(what)
    assert caught >= 25
    assert len(survivors) <= 0.05 * (caught + len(survivors)), "\n".join(survivors)
