"""Fusion groups: what a rule file marks is one kernel, whatever its price, or an error."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import ExtractionError, RuleError
from frittata.egraph.machine import REFERENCE
from frittata.optimized import Optimized
from frittata.rules.parse import parse_family

TWO_USES = """
def main(x: f32[64, 32], w: f32[32, 48], b: f32[48], v: f32[48, 8]) -> (f32[64, 8], f32[64, 48]):
    v1: f32[64, 48] = matmul(x, w)
    v2: f32[64, 48] = add(v1, b)
    v3: f32[64, 48] = exp(v2)
    v4: f32[64, 8] = matmul(v3, v)
    v5: f32[64, 48] = tanh(v2)
    return v4, v5
"""

SHOWN = """
def main(x: f32[64, 32]) -> (f32[64, 32], f32[2048]):
    v1: f32[64, 32] = exp(x)
    v2: f32[2048] = reshape(v1, shape=(2048,))
    return v1, v2
"""

Optimize = Callable[..., Optimized]


class Residual(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.stem(x))
        return torch.relu(self.norm(self.conv(y)) + y)


@pytest.fixture
def optimize(tmp_path: Path) -> Optimize:
    """Optimize a model under a text of rules, and compare its results."""

    def optimized(text: str, source: Any = None, *args: Any) -> Optimized:
        path = tmp_path / "mine.rules"
        path.write_text(text)
        model = ft.parse(TWO_USES) if source is None else source
        return ft.optimize(model, args, rules=path, machine=REFERENCE, cache=tmp_path / "cache", verify=True)

    return optimized


def marked(fast: Optimized) -> list[str]:
    """What the kernels that hold a group compute."""
    return [kernel.op for kernel in fast.kernels if any(rule.startswith("mine/") for rule in kernel.rules)]


def test_what_is_cheaper_apart_is_one_kernel(optimize: Optimize) -> None:
    assert all("dot(exp(" not in kernel.op for kernel in optimize("").kernels)
    (body,) = marked(optimize("a: matmul(exp(x), w)  [one kernel]"))
    assert "dot(exp(" in body


def test_what_is_used_beside_a_group_is_stored_and_the_group_does_not_read_it(optimize: Optimize) -> None:
    fast = optimize("a: exp(matmul(x, w) + b)  [one kernel]")
    (body,) = marked(fast)
    assert "exp(add(dot(load(x), load(w), 32), load(b)))" in body
    assert any("tanh(load(" in kernel.op for kernel in fast.kernels)


def test_a_group_may_be_a_view_of_what_its_kernel_stores(optimize: Optimize) -> None:
    fast = optimize("a: reshape(exp(x), s)  [one kernel]", ft.parse(SHOWN))
    assert len(fast.kernels) == 1


def test_the_first_rule_has_what_two_groups_want(optimize: Optimize) -> None:
    (body,) = marked(optimize("a: tanh(x + b)  [one kernel]\nb: exp(x + b)  [one kernel]"))
    assert "tanh(" in body


@pytest.mark.parametrize("size", [4, 20])
def test_a_group_may_lie_in_any_layout_and_hold_operators_of_one_s_model(optimize: Optimize, size: int) -> None:
    text = "a: relu(add(batch_norm(conv(x, w, s, p, d, g), m, v, k, c, e), y))  [one kernel]"
    fast = optimize(text, Residual().eval(), torch.randn(2, 3, size, size))
    (body,) = marked(fast)
    assert "max(" in body and body.count("_dot(") == 1


def test_weights_are_computed_before_and_are_in_no_group(optimize: Optimize) -> None:
    text = "a: relu(linear(x, w, b))  [one kernel]"
    (body,) = marked(optimize(text, nn.Sequential(nn.Linear(7, 5), nn.ReLU()).eval(), torch.randn(3, 7)))
    assert "max(add(dot(" in body


def test_a_guard_is_asked(optimize: Optimize) -> None:
    assert marked(optimize("a: matmul(exp(x), w)  if shape(w)[1] == 8  [one kernel]"))
    assert not marked(optimize("a: matmul(exp(x), w)  if shape(w)[1] == 9  [one kernel]"))


def test_a_program_that_was_remembered_has_its_groups(optimize: Optimize) -> None:
    first, again = (optimize("a: matmul(exp(x), w)  [one kernel]") for _ in range(2))
    assert again.compilation.is_remembered and marked(again) == marked(first)


def test_what_no_kernel_can_compute_is_an_error_that_names_the_rule(optimize: Optimize) -> None:
    text = "fine: tanh(x)  [one kernel]\ntwo: matmul(exp(matmul(x, w) + b), v)  [one kernel]"
    with pytest.raises(ExtractionError, match=r"(?s)mine/two marks.*f32\[64, 8\].*opt_level"):
        optimize(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: relu(x) => x  [one kernel]", "fusion group 'a' has an arrow"),
        ("a: x  [one kernel]", "matches everything"),
        ("a: p = relu(x), q = exp(x)  [one kernel]", "a group has one pattern"),
        ("a: relu(x)", "no arrow"),
    ],
)
def test_ill_formed_groups_are_refused(text: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        parse_family(text, "mine.rules")
