"""Rules over the reals are left out where they make constants that no dtype holds of weights that it does."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import frittata as ft
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Function, Model
from frittata.egraph.ops.registry import make, tensor
from frittata.optimized import Optimized

HUGE, LITTLE = torch.full((12,), 1e30), torch.full((12,), 1e-30)
NEAR_ZERO = torch.tensor([1e-40, 1.0, 2.0] * 4)
MASK = torch.tensor([0.0, -math.inf] * 6)


def optimized(model: Callable[..., torch.Tensor], x: torch.Tensor) -> Optimized:
    with torch.no_grad():
        fast = ft.optimize(model, (x,), machine=REFERENCE)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=0.0)
    return fast


def dense(weight: float) -> nn.Linear:
    layer = nn.Linear(12, 12, bias=False).eval()
    nn.init.constant_(layer.weight, weight)
    return layer


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (lambda x: x * HUGE * HUGE, 1e-30),
        (lambda x: x * LITTLE * LITTLE, 1e30),
        (lambda x: x * torch.where(MASK == 0, HUGE, MASK) * HUGE, 1e-30),  # others are infinite by themselves
        (lambda x: x / NEAR_ZERO, 1e-30),
        (nn.Sequential(dense(1e25), dense(1e25)).eval(), 1e-30),
        (nn.Sequential(dense(1e-25), dense(1e-25)).eval(), 1e30),
    ],
)
def test_constants_that_leave_their_range_are_not_made(
    model: Callable[..., torch.Tensor], size: float
) -> None:
    fast = optimized(model, torch.rand(8, 12) * size)
    assert fast.compilation.options.numerics == "exact"
    assert any("leaves the range of its dtype" in note for note in fast.report.notes)


@pytest.mark.skipif(np.finfo(np.longdouble).minexp >= np.finfo(np.float64).minexp, reason="no float is wider here")
def test_what_float64_loses_is_seen_where_a_wider_float_is_there() -> None:
    little = torch.full((12,), 1e-200, dtype=torch.float64)
    fast = optimized(lambda x: x * little * little, torch.rand(8, 12, dtype=torch.float64) * 1e200)
    assert fast.compilation.options.numerics == "exact"


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x * HUGE * LITTLE,
        lambda x: x + torch.log(NEAR_ZERO > 1) + NEAR_ZERO,
        lambda x: x.masked_fill(NEAR_ZERO > 1, -math.inf),
        lambda x: (x + MASK) * HUGE.log(),
        lambda x: x / (NEAR_ZERO > 1),
        lambda x: x * (1 / (NEAR_ZERO > 1)) * 3,
        lambda x: x * (NEAR_ZERO * 1e-10),
        lambda x: x * torch.zeros(12) * HUGE,
    ],
)
def test_constants_of_the_model_are_what_they_are(model: Callable[..., torch.Tensor]) -> None:
    fast = optimized(model, torch.rand(8, 12))
    assert fast.compilation.options.numerics == "reassoc"
    assert not any("leaves the range" in note for note in fast.report.notes)


def test_a_factor_after_a_convolution_is_moved_unless_it_would_be_infinite() -> None:
    layer, norm = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
    model = nn.Sequential(layer, norm).eval()
    x = torch.rand(1, 4, 6, 6) * 1e-30
    for var, weight in ((1.0, 1.0), (1e-12, 1e36)):
        assert norm.running_var is not None and layer.bias is not None
        norm.running_var.fill_(var)
        nn.init.constant_(layer.weight, weight)
        nn.init.zeros_(layer.bias)
        optimized(model, x if weight > 1 else x * 1e30)


def test_a_saved_program_keeps_what_it_was_chosen_without(tmp_path: object) -> None:
    x = torch.rand(8, 12) * 1e-30
    fast = optimized(lambda x: x * HUGE * HUGE, x)
    loaded = ft.load(fast.save(f"{tmp_path}/model.frt"))
    assert loaded.compilation.options.numerics == "exact"
    np.testing.assert_array_equal(loaded(x), fast(x))


def test_an_operator_that_a_rule_over_the_reals_defines_keeps_its_program(tmp_path: Path) -> None:
    ft.ops.register(replace(ft.ops.get("tanh"), name="halved", reference=lambda x: x / 2))
    rules = tmp_path / "halved.rules"
    rules.write_text("define-halved: halved(x) => x * 0.5 [reassoc]\n")
    x = make("input", "tensor", (), ("x", (3,), "f32"))
    w = tensor("param", name="w", shape=(3,), dtype="f32")
    scaled = tensor("mul", tensor("mul", tensor("halved", x), w), w)
    model = Model({"main": Function((x,), (scaled,))}, {"w": np.full(3, 1e30, np.float32)})
    try:
        fast = ft.optimize(model, rules=rules, machine=REFERENCE)
    finally:
        ft.ops.unregister("halved")
    assert any("there is no program without rules over the reals" in note for note in fast.report.notes)
