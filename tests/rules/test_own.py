"""Functions of the caller's own, in conditions and attributes of rules."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frittata as ft
from frittata.egraph.errors import ModelError, RuleError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.terms import TensorType
from frittata.optimized import Optimized
from frittata.rules.facts import FUNCTIONS

MODEL = """
def main(x: f32[2, 3, 4]) -> f32[4, 2, 3]:
    v1: f32[3, 2, 4] = permute(x, (1, 0, 2))
    v2: f32[4, 2, 3] = permute(v1, (2, 1, 0))
    return v2
"""


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    before = dict(FUNCTIONS)
    yield
    FUNCTIONS.clear()
    FUNCTIONS.update(before)


def optimized(tmp_path: Path, rule: str) -> Optimized:
    (tmp_path / "mine.rules").write_text(rule + "\n")
    rules, cache = tmp_path / "mine.rules", tmp_path / "cache"
    return ft.optimize(ft.parse(MODEL), rules=rules, machine=REFERENCE, cache=cache)


TWICE = "twice: permute(permute(x, p), q) => permute(x, both(p, q)) if moves(p, shape(x))"


def both(first: tuple[int, ...], second: tuple[int, ...]) -> Any:
    return [np.int64(first[axis]) for axis in second]


def moves(axes: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    return axes != tuple(range(len(shape)))


def test_a_rule_calls_functions_in_its_guard_and_in_attributes(tmp_path: Path) -> None:
    ft.rule_function(both)
    assert ft.rule_function(moves) is moves
    fast, x = optimized(tmp_path, TWICE), np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert fast.explain_rule("mine/twice").matches == 1
    np.testing.assert_array_equal(fast(x), x.transpose(2, 0, 1))


def test_what_has_no_value_does_not_match_and_a_later_function_takes_the_place(tmp_path: Path) -> None:
    def refused(axes: tuple[int, ...], shape: tuple[int, ...]) -> bool:
        if shape == (2, 3, 4):
            raise ValueError("not here")
        return True

    refused.__name__ = "moves"
    ft.rule_function(both)
    for function, matches in ((refused, 0), (moves, 1)):
        ft.rule_function(function)
        fast = optimized(tmp_path, TWICE)
        assert fast.explain_rule("mine/twice").matches == matches and not fast.report.is_remembered


WRONG: dict[str, Callable[..., Any]] = {
    "AttributeError: 'tuple' object has no attribute 'rank'": lambda axes, shape: shape.rank,
    "TypeError: unhashable type: 'set'": lambda axes, shape: {*axes},
}


@pytest.mark.parametrize("message", WRONG)
def test_an_error_of_the_function_is_named(tmp_path: Path, message: str) -> None:
    wrong = WRONG[message]
    wrong.__name__ = "moves"
    ft.rule_function(both)
    ft.rule_function(wrong)
    with pytest.raises(RuleError, match=f"the function moves of a rule raised {message}"):
        optimized(tmp_path, TWICE)


@pytest.mark.parametrize("name", ["shape", "prod", "const", "relu", "exp", "<lambda>"])
def test_a_name_that_rules_know_is_refused(name: str) -> None:
    def function() -> bool:
        return True

    function.__name__ = name
    with pytest.raises(RuleError, match=f"cannot be named '{name}'"):
        ft.rule_function(function)


def test_a_function_that_nobody_has_defined_is_an_error_of_the_rule(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"unknown function 'wobbles'(.|\n)*rule_function"):
        optimized(tmp_path, "twice: permute(x, p) => permute(x, p) if wobbles(p)")


def itself(unknown: tuple[int, ...]) -> ft.ops.Op:
    """Return an operator that changes nothing, of tensors of any shape but one."""

    def infer(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> TensorType:
        if types[0].shape == unknown:
            raise ModelError("of no type")
        return types[0]

    return ft.ops.Op("itself", "tensor", (("x", "tensor"),), (), infer, lambda x: x, opaque=True)


def test_an_operator_that_is_defined_anew_is_what_rules_mean_by_it(tmp_path: Path) -> None:
    rule = "same: permute(x, p) => permute(itself(x), p) if p == (1, 0, 2) and dtype(x) == 'f32'"
    for unknown, matches in (((2, 3, 4), 0), ((), 1)):
        ft.ops.register(itself(unknown))
        try:
            assert optimized(tmp_path, rule).explain_rule("mine/same").matches == matches
        finally:
            ft.ops.unregister("itself")
