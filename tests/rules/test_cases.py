"""Each built-in rule has a before/after pair, which it makes equal and which is not equal without it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rule_cases import Case, read_cases

from frittata.egraph import terms
from frittata.egraph.interpret import Interpreter
from frittata.egraph.phases import Phase
from frittata.egraph.saturate import saturate
from frittata.egraph.terms import Term
from frittata.rules.compile import compile_families
from frittata.rules.library import builtin_families
from frittata.rules.pattern import Family, Rule
from frittata.rules.values import draw_values

CASES = [case for file in sorted((Path(__file__).parent / "cases").glob("*.txt")) for case in read_cases(file)]
RULES = {rule.full_name: rule for family in builtin_families() for rule in family.rules}


def name_of(case: Case) -> str:
    return f"{case.family}/{case.name}"


def admitted(rule: Rule, level: str) -> bool:
    return rule.level.kind == "exact" or rule.level.kind == level


def makes_equal(case: Case, without: str = "") -> bool:
    level = RULES[name_of(case)].level.kind
    families = tuple(
        replace(family, rules=tuple(r for r in family.rules if admitted(r, level) and r.full_name != without))
        for family in builtin_families()
        if family.name in case.families
    )
    return are_equal_under(families, case.before, case.after)


def are_equal_under(families: tuple[Family, ...], before: Term, after: Term) -> bool:
    phase = Phase("case", tuple(family.name for family in families), node_limit=2000)
    programs = compile_families(families)
    found = saturate((before, after), programs, (phase,), lambda term: term.op == "param").snapshot.class_by_term
    return found[before] == found[after]


def test_every_rule_has_a_case() -> None:
    assert sorted(map(name_of, CASES)) == sorted(RULES)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_rule_makes_its_pair_equal(case: Case) -> None:
    assert makes_equal(case)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_pair_is_not_equal_without_its_rule(case: Case) -> None:
    assert not makes_equal(case, without=name_of(case))


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_pair_computes_the_same(case: Case) -> None:
    rng = np.random.default_rng(7)
    leaves = tuple(term for term in terms.walk(case.before, case.after) if term.op in ("input", "param"))
    interpreter = Interpreter(draw_values(leaves, rng, "plain"))
    if case.before.sort == "tensor":
        before, after = interpreter.tensor(case.before), interpreter.tensor(case.after)
    else:
        at = {axis: rng.integers(-1, 6, 40) for axis in range(-4, 0)}
        before, after = (interpreter.element_at(side, at) for side in (case.before, case.after))
    np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6)
