"""The model zoo, narrowed, at odd sizes: results, agreement of all classes, and tests that a small error would fail."""

from __future__ import annotations

from functools import cache as remembered
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch
from consistency import inconsistencies
from perturbation import perturbed
from torch.utils import _pytree as pytree

import frittata as ft
from bench.acceptance import host_steps, relative_error
from bench.models import MODELS
from frittata import pipeline
from frittata.egraph.interpret import Interpreter
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Model
from frittata.egraph.program import Program
from frittata.egraph.saturate import Saturation, StopReason
from frittata.kernels import driver
from frittata.options import Options

TOLERANCE = 1e-5
"""Tighter than what full models are held to: narrow ones round less."""

each_model = pytest.mark.parametrize("name", MODELS, scope="module")
"""All that is asked of a model, one after the other: it is made, saturated and compiled once."""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@remembered
def made(name: str) -> tuple[torch.nn.Module, Any, Any]:
    module, args = MODELS[name].make("narrow")
    with torch.no_grad():
        return module, args, module(*args)


@remembered
def saturated(name: str) -> tuple[Model, dict[str, Any], Saturation]:
    """The model in float64, in which numbers that rules compute are not rounded away; values of all its leaves."""
    module, args = MODELS[name].make("narrow")
    wide = pytree.tree_map(lambda x: x.double() if x.is_floating_point() else x, args)
    _, model = pipeline.import_model(module.double(), wide, "error")
    leaves = [leaf.numpy() for leaf in pytree.tree_leaves(wide)]
    values = {term.attrs[0]: value for term, value in zip(model.main.inputs, leaves, strict=True)}
    return model, {**model.params, **values}, pipeline.saturate_model(model, pipeline.choose_rules(Options()))


@each_model
def test_results_are_eagers(name: str, cache: Path) -> None:
    module, args, expected = made(name)
    fast = ft.optimize(module, args, machine=REFERENCE, cache=cache)
    assert relative_error(fast(*args), expected) < TOLERANCE
    assert not host_steps(fast)


@each_model
def test_no_bit_depends_on_the_run_or_on_the_number_of_threads(
    name: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "is_alone", lambda saved_s: False)  # small models would not be shared at all
    module, args, _ = made(name)
    fast = ft.optimize(module, args, machine=REFERENCE, cache=cache)
    first, again = fast(*args), fast(*args)
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        alone = fast(*args)
    finally:
        numba.set_num_threads(before)
    assert bits(first) == bits(again) == bits(alone)


def bits(outputs: Any) -> list[bytes]:
    return [output.numpy().tobytes() for output in pytree.tree_leaves(outputs)]


@each_model
def test_activations_keep_their_size(name: str) -> None:
    _, _, expected = made(name)
    for output in pytree.tree_leaves(expected):
        assert 0.1 < float(output.std(correction=0)) < 3


@each_model
def test_all_nodes_of_all_classes_agree(name: str) -> None:
    _, values, found = saturated(name)
    assert [phase.stop for phase in found.phases] == [StopReason.SATURATED]
    assert not inconsistencies(found.snapshot, values)


@each_model
def test_one_percent_in_any_kernel_would_be_noticed(name: str) -> None:
    model, values, found = saturated(name)
    program = pipeline.extract_model(model, found, REFERENCE, Options()).program
    interpreter = Interpreter(values, "f64")
    expected = evaluated(interpreter, program)
    for kernel in program.kernels:
        wrong = relative_error(evaluated(interpreter, perturbed(program, kernel)), expected)
        assert wrong > 5 * TOLERANCE, kernel.name


def evaluated(interpreter: Interpreter, program: Program) -> list[torch.Tensor]:
    return [torch.from_numpy(np.asarray(interpreter.tensor(term))) for term in program.to_terms()]
