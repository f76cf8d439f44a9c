"""Maxima that leave NaN to a sum: results are those of the law, with NaN and infinities anywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kernel_cases import Case, assert_agrees, build, element, fold, load, number

from frittata.egraph.terms import Term
from frittata.kernels import runtime
from frittata.kernels.nans import blind_maxima
from frittata.kernels.templates.row import ROW

ROWS, LENGTH = 23, 37


def _top(e: Term) -> Term:
    return fold("max", e, -1, LENGTH)


def _softmax(e: Term) -> Term:
    power = element("exp", element("sub", e, _top(e)))
    return element("mul", power, element("reciprocal", fold("sum", power, -1, LENGTH)))


def _log_softmax(e: Term) -> Term:
    distance = element("sub", e, _top(e))
    return element("sub", distance, element("log", fold("sum", element("exp", distance), -1, LENGTH)))


def _normed(e: Term) -> Term:
    shares = _softmax(e)
    return element("sub", shares, fold("sum", shares, -1, LENGTH))


def _below(e: Term) -> Term:
    return element("exp", element("sub", e, _top(e)))


def _kept(e: Term) -> Term:
    """The sum does not reach every result."""
    return element("max", _softmax(e), number(0))


def _of_others(e: Term) -> Term:
    """The sum is of other values than the maximum."""
    other = load("y", ROWS, LENGTH)
    return element("mul", element("sub", e, _top(e)), fold("sum", other, -1, LENGTH))


def _clipped(e: Term) -> Term:
    """A NaN does not reach the sum."""
    low = element("max", e, number(0))
    return element("mul", element("sub", e, _top(e)), fold("sum", low, -1, LENGTH))


def _shown(e: Term) -> Term:
    """The sign of a maximum of zero decides that of an infinity."""
    return element("mul", element("mul", e, element("reciprocal", _top(e))), fold("sum", e, -1, LENGTH))


BLIND = [_softmax, _log_softmax, _normed]
SEEING = [_below, _kept, _of_others, _clipped, _shown]


@pytest.mark.parametrize("make", [*BLIND, *SEEING])
def test_results_are_those_of_the_law(make: Callable[[Term], Term]) -> None:
    body = build(make(load("x", ROWS, LENGTH)), ROWS, LENGTH)
    case = Case("rows", (body,), special=True)
    for seed in range(3):
        values = case.values(seed)
        values[0][:5] = 1.0  # some rows without
        values[0][1, 3] = float("nan")
        assert_agrees(case, runtime.build(case.program(ROW.name), {})(*values), case.expected(values))


@pytest.mark.parametrize("make", BLIND)
def test_a_maximum_is_blind_where_all_follows_from_the_sum(make: Callable[[Term], Term]) -> None:
    x = load("x", ROWS, LENGTH)
    assert blind_maxima([make(x)]) == {_top(x)}
    assert not blind_maxima([make(x), _below(x)])


@pytest.mark.parametrize("make", SEEING)
def test_others_are_not(make: Callable[[Term], Term]) -> None:
    assert not blind_maxima([make(load("x", ROWS, LENGTH))])
