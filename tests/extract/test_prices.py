"""Predictions corrected by what kernels took: for equal kernels, whatever their operands are called."""

from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
from kernel_cases import build, element, load, reindex

from frittata.egraph.indexing import Affine, IndexMap, var
from frittata.egraph.machine import REFERENCE
from frittata.egraph.program import Estimate, Kernel, Program
from frittata.egraph.script import parse
from frittata.extract.choose import extract
from frittata.extract.prices import Prices, key_of, structure
from frittata.kernels.templates import TEMPLATES
from frittata.options import Options
from frittata.pipeline import choose_rules, saturate_model

TWICE = """
def main(x: f32[7, 33], y: f32[7, 33], z: f32[7, 34]) -> (f32[7, 33], f32[7, 33], f32[7, 34]):
    return softmax(x, axis=-1), softmax(y, axis=-1), softmax(z, axis=-1)
"""


def program(prices: Prices | None = None) -> Program:
    main = (model := parse(TWICE)).main
    found = saturate_model(model, choose_rules(Options()))
    args = (found.snapshot, main.inputs, main.outputs, TEMPLATES, REFERENCE, found.rule_names)
    return extract(*args, prices=prices).program


def split(found: Program) -> tuple[list[Kernel], Kernel]:
    """Return the two kernels that are equal, and the one for longer rows."""
    (other,) = (kernel for kernel in found.kernels if kernel.outputs[0].body.shape == (7, 34))
    return [kernel for kernel in found.kernels if kernel is not other], other


def test_equal_kernels_share_a_price_and_others_do_not() -> None:
    predicted = program()
    equal, other = split(predicted)
    prices = Prices()
    prices.note(predicted, {k.name: k.estimate.seconds * (1.5 if k in equal else 0.5) for k in predicted.kernels})
    assert sorted(prices.factor_by_key.values()) == pytest.approx([0.5, 1.5])
    assert prices.knows(predicted)
    corrected_equal, corrected_other = split(program(prices))
    assert [k.estimate.seconds for k in corrected_equal] == pytest.approx([1.5 * k.estimate.seconds for k in equal])
    assert corrected_other.estimate.seconds == pytest.approx(0.5 * other.estimate.seconds)
    bodies = tuple(output.body for output in other.outputs)
    asked = (("row", bodies, ()), ("row", bodies, ("z",)), ("nest", bodies, ()))
    assert len({key_of(*kernel) for kernel in asked}) == 3


def read(*places: int) -> tuple[Any, ...]:
    """The structure of a sum of rows of a tensor of 9 x 5."""
    x = load("x", 9, 5)
    rows = [reindex(x, IndexMap((9, 5), (5,), (Affine(place), var(-1, 5)))) for place in places]
    return structure((build(reduce(lambda a, b: element("add", element("exp", a), b), rows), 5),), lambda leaf: True)


def test_steps_that_read_other_rows_share_a_price() -> None:
    assert read(3, 4) == read(7, 5) == read(2, 8)
    assert len({read(3, 4), read(3, 3), read(0, 3), read(3, 0), read(3, 4, 5), read(3, 4, 3)}) == 6
    assert read(3, 9) != read(3, 8)  # outside of it


def test_of_equal_kernels_the_median_counts_and_of_several_times_the_least() -> None:
    predicted = program()
    equal, other = split(predicted)
    prices = Prices()
    prices.note(predicted, {equal[0].name: 2e-7, equal[1].name: 4e-7, other.name: 1e-7})
    found, longer = split(program(prices))
    assert [kernel.estimate.seconds for kernel in (*found, longer)] == pytest.approx([3e-7, 3e-7, 1e-7])
    prices.note(program(prices), {equal[0].name: 2e-7, equal[1].name: 2e-7, other.name: 9e-7})
    found, longer = split(program(prices))
    assert [kernel.estimate.seconds for kernel in (*found, longer)] == pytest.approx([2e-7, 2e-7, 1e-7])


def test_what_was_not_timed_keeps_its_prediction() -> None:
    predicted = program()
    kernel = predicted.kernels[0]
    prices = Prices({"other": 3.0})
    estimate = Estimate(1.0, 2.0, 3.0)
    bodies = tuple(output.body for output in kernel.outputs)
    assert prices.corrected(kernel.template, bodies, (), estimate) == estimate
    assert not prices.knows(predicted)
    known = Prices({key_of(kernel.template, bodies, ()): 3.0})
    assert known.corrected(kernel.template, bodies, (), estimate) == replace(estimate, seconds=3.0)
