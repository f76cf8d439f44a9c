"""Random models over all operators: what is extracted, and what is compiled, computes what the model means.

`make fuzz` tries 3,000.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from random_models import Sample, models, operators

import frittata as ft
from frittata.egraph import interpret
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops import registry
from frittata.egraph.saturate import StopReason
from frittata.extract.choose import extract
from frittata.kernels import templates
from frittata.options import Options
from frittata.pipeline import choose_rules, saturate_model

PARTS = 6
"""Each part has its seed, so that they can run side by side."""

ALL_CHECKS: list[HealthCheck] = [*HealthCheck]  # type: ignore[list-item]

Array = np.ndarray[Any, np.dtype[Any]]
Try = Callable[..., None]


@pytest.fixture
def try_models(request: pytest.FixtureRequest) -> Try:
    """Return a function that checks its share of the random models."""

    def run(check: Callable[[Sample], None], part: int, **options: Any) -> None:
        examples, first = (request.config.getoption(name) for name in ("--examples", "--first-seed"))
        assert isinstance(examples, int) and isinstance(first, int)
        count = -(-examples // PARTS)
        tried = settings(max_examples=count, suppress_health_check=ALL_CHECKS, report_multiple_bugs=False)
        seed(first * PARTS + part)(tried(given(sample=models(**options))(check)))()

    return run


def agree(found: tuple[Array, ...], sample: Sample, tolerance: float) -> None:
    """Compare with the model as imported, relative to the largest of all values in it."""
    expected = sample.model.interpret(*sample.args)
    assert len(found) == len(expected)
    for ours, law in zip(found, expected, strict=True):
        assert ours.shape == law.shape
        np.testing.assert_allclose(ours, law, rtol=0, atol=tolerance * sample.scale)


@pytest.mark.parametrize("part", range(PARTS))
def test_extracted_programs_mean_what_the_models_mean(try_models: Try, part: int) -> None:
    families = choose_rules(Options())

    def check(sample: Sample) -> None:
        main = sample.model.main
        found = saturate_model(sample.model, families)
        assert all(phase.stop is StopReason.SATURATED for phase in found.phases)
        chosen = templates.select("fast", True)
        result = extract(found.snapshot, main.inputs, main.outputs, chosen, REFERENCE, found.rule_names)
        assert result.solution.cost <= result.greedy_cost_s * (1 + 1e-12)
        values = {t.attrs[0]: value for t, value in zip(main.inputs, sample.args, strict=True)}
        terms = result.program.to_terms()
        agree(interpret.evaluate(terms, {**sample.model.params, **values}), sample, 1e-10)

    try_models(check, part, most_operators=30, dtype="f64")


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_models_compute_what_the_models_mean(try_models: Try, part: int, tmp_path: Path) -> None:
    def check(sample: Sample) -> None:
        got = ft.optimize(sample.model, machine=REFERENCE, cache=tmp_path)(*sample.args)
        agree(tuple(map(np.asarray, got)) if isinstance(got, tuple) else (np.asarray(got),), sample, 1e-4)

    try_models(check, part, most_operators=4, dtype="f32")


def test_every_operator_can_be_drawn() -> None:
    rows = {name for name in registry.names("tensor") if registry.get(name).operands}
    drawn = {name for dtype in ("f64", "f32", "bool", "i64") for name in operators(dtype)}
    assert rows - drawn - {"argtopk"} == {"build", "part"}  # what slices of argsort become is seldom drawn


def test_a_failure_prints_the_model_as_script() -> None:
    @seed(0)
    @settings(max_examples=200, phases=[Phase.generate, Phase.shrink], suppress_health_check=ALL_CHECKS)
    @given(sample=models(most_operators=6))
    def wrong(sample: Sample) -> None:
        assert all(term.op != "add" for term in sample.model.main.walk())

    with pytest.raises(AssertionError) as raised:
        wrong()
    (text,) = (note for note in raised.value.__notes__ if "def main(" in note)
    script = text[text.index("def main(") :].rstrip().rstrip(",)").rstrip()
    assert "add(" in script and script.count("add(") == 1
