"""The report of a tiny model: rows, totals, and what is printed."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_model import tiny

import frittata as ft
from frittata.egraph.machine import REFERENCE
from frittata.optimized import Optimized


def test_a_row_for_each_step_of_the_driver(fast: Optimized) -> None:
    report = fast.report
    assert len(report.kernels) == fast.compilation.executable.steps
    assert [row.name for row in report.kernels] == [kernel.name for kernel in fast.program.kernels]
    assert report.library == report.externs == ()


def test_totals_are_sums_of_rows(fast: Optimized) -> None:
    report = fast.report
    assert report.flops == pytest.approx(sum(row.flops for row in report.kernels))
    assert report.bytes == pytest.approx(sum(row.bytes for row in report.kernels))
    assert report.predicted_s == pytest.approx(sum(row.predicted_s for row in report.kernels))


def test_what_was_chosen_costs_no_more_than_what_it_is_compared_with(fast: Optimized) -> None:
    report = fast.report
    assert report.predicted_s <= report.greedy_s <= report.cost_before_s
    assert 0 <= report.gap < 0.01


def test_kernels_are_measured_when_asked(cache: Path) -> None:
    fast = ft.optimize(tiny(), machine=REFERENCE, cache=cache, library=False)
    assert all(row.measured_s is None for row in fast.report.kernels)
    assert fast.report.measure() is fast.report
    assert all(row.measured_s and row.measured_s > 0 for row in fast.kernels)
    assert fast.report.measured_s == pytest.approx(sum(row.measured_s or 0 for row in fast.kernels))
    assert fast.report.compile["found"] == fast.report.compile["distinct"] == 3
    assert "3 distinct kernels: 0 compiled, 3 found" in str(fast.report)


def test_measuring_takes_arguments(fast: Optimized) -> None:
    seconds = fast.measure(np.ones((4, 24), np.float32), repeats=2)
    assert list(seconds) == [row.name for row in fast.kernels]


def test_folded_constants_name_their_params_and_rules(fast: Optimized) -> None:
    (row,) = fast.report.folded
    assert row.params == ("v",)
    assert row.term == "mul(v, v)"


def test_rules_count_the_nodes_they_made(fast: Optimized) -> None:
    report = fast.report
    made = sum(row.nodes for row in report.rules)
    imported = sum(node.rule == 0 for nodes in fast.account.snapshot.nodes for node in nodes)
    assert made + imported == report.nodes
    assert any(row.name == "fusion/index-built" and row.matches for row in report.rules)


def test_phases_say_why_they_stopped(fast: Optimized) -> None:
    (phase,) = fast.report.phases
    assert phase.stop == "saturated"
    assert 0 < phase.between_rounds_s < phase.seconds
    assert set(fast.report.phase_seconds) >= {"import", "recall", "compile"}


def test_text_fits_a_page_and_names_every_kernel(fast: Optimized) -> None:
    text = str(fast.report)
    assert max(map(len, text.splitlines())) <= 100
    assert all(row.name in text for row in fast.kernels)
    assert "against the" in text


def test_report_is_json(fast: Optimized) -> None:
    data = json.loads(json.dumps(fast.report.to_dict()))
    assert [row["name"] for row in data["kernels"]] == [row.name for row in fast.kernels]
    assert data["gap_is_against"] == "the enumerated candidates"


def test_source_is_plain_numba(fast: Optimized) -> None:
    source = fast.kernel("softmax").source
    assert "@numba.njit(parallel=" in source
    compile(source, "softmax", "exec")


def test_a_kernel_is_found_by_an_operator_in_it(fast: Optimized) -> None:
    assert fast.kernel("relu").name == "matmul_relu"
    assert fast.kernel("matmul_2").name == fast.kernels[-1].name


def test_an_unknown_kernel_names_the_nearest(fast: Optimized) -> None:
    with pytest.raises(ft.FrittataError, match="did you mean softmax"):
        fast.kernel("sofmax")


def test_the_plain_form_is_not_timed_by_kernel(cache: Path) -> None:
    plain = ft.optimize(tiny(), machine=REFERENCE, cache=cache, form="plain")
    with pytest.raises(ft.FrittataError, match="plain form"):
        plain.measure()


def test_rules_take_time_and_no_more_than_their_phase(fast: Optimized) -> None:
    spent = sum(row.seconds for row in fast.report.rules)
    assert 1e-6 < spent < fast.report.phases[0].seconds


def test_a_compiled_model_says_in_short_what_it_is(fast: Optimized) -> None:
    assert repr(fast).startswith(f"Optimized(x: {len(fast.kernels)} kernels, ")
    assert repr(fast.report) == str(fast.report)
    assert repr(fast.kernels[0]).startswith(f"KernelView({fast.kernels[0].name}: {fast.kernels[0].template}, ")
