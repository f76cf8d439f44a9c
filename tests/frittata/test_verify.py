"""Verification finds a wrong result, and what made it wrong: a kernel, a rule, or how kernels run together."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from perturbation import perturbed
from torch import nn

import frittata as ft
from frittata.egraph.errors import VerificationError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Array
from frittata.egraph.program import Program
from frittata.kernels import runtime, targets
from frittata.kernels.cache import KernelCache
from frittata.optimized import Optimized

X = torch.linspace(-2, 2, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8).sin()


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5), nn.Softmax(-1))
    return nn.Sequential(*layers).eval()


@pytest.fixture
def wrong() -> Iterator[dict[str, str]]:
    """Give a target whose kernel of a name is wrong; the name is for the test to set."""
    chosen: dict[str, str] = {}

    def build(program: Program, values: Mapping[str, Array], cache: KernelCache) -> Any:
        kernel = next((k for k in program.kernels if k.name == chosen.get("name")), None)
        return runtime.build(program if kernel is None else perturbed(program, kernel), values, cache)

    targets.register(replace(targets.CPU, name="wrong", build=build))
    yield chosen
    targets.unregister("wrong")


def test_a_wrong_kernel_is_found(wrong: dict[str, str], tmp_path: Path) -> None:
    options: dict[str, Any] = {"machine": REFERENCE, "cache": tmp_path, "target": "wrong"}
    names = [kernel.name for kernel in ft.optimize(network(), (X,), verify=True, **options).kernels]
    assert len(names) > 2
    for name in names:
        wrong["name"] = name
        with pytest.raises(VerificationError, match=f"kernel {name}"):
            ft.optimize(network(), (X,), verify=True, **options)
        found = ft.optimize(network(), (X,), **options).verify()
        assert [one.name for one in found.kernels if not one.is_right] == [name]
        assert f"wrong: kernel {name}" in str(found)


def test_a_wrong_rule_is_found(tmp_path: Path) -> None:
    fast = ft.optimize(network(), (X,), machine=REFERENCE, cache=tmp_path)
    done = fast.compilation
    other = perturbed(done.program, done.program.kernels[0])
    spoiled = replace(
        done,
        choice=replace(done.choice, program=other),
        executable=runtime.build(other, done.model.params),
    )
    found = Optimized(spoiled, (X,)).verify()
    assert found.culprit == "a rule"
    assert not found.terms[0].is_right and all(one.is_right for one in found.kernels)


OWN = {
    "relu": ("abs(x)", "a rule; of your own took part: mine/swap"),
    "sigmoid": ("exp(x) / (exp(x) + 1)", "a rule, by how it rounds or overflows; of your own took part: mine/swap"),
}


@pytest.mark.parametrize("name", OWN)
def test_a_rule_of_ones_own_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, culprit = OWN[name]
    monkeypatch.setattr("frittata.rules.audit.check", lambda family: ())  # the gate would refuse it
    (tmp_path / "mine.rules").write_text(f"swap: {name}(x) => {right} [reassoc]")
    options: dict[str, Any] = {"machine": REFERENCE, "cache": tmp_path, "rules": tmp_path / "mine.rules"}
    x = X.numpy() * 200
    fast = ft.optimize(getattr(ft.ops, name), (x,), disable=[f"legalize/build-{name}"], **options)
    found = fast.verify()
    assert found.culprit == culprit
    with pytest.raises(VerificationError, match=r"disable=\['mine/swap'\]"):
        found.check()


def test_a_wrong_reference_is_its_users_mistake(tmp_path: Path) -> None:
    def running(x: Array, result: Array) -> None:
        np.cumsum(x, out=result)

    def called(x: Any) -> Any:
        return ft.extern(running, (x * 2,), out=(x.shape, x.dtype), reference=lambda x: x) + 1

    fast = ft.optimize(called, (np.ones(8, np.float32),), machine=REFERENCE, cache=tmp_path)
    try:
        with pytest.raises(VerificationError, match=r"kernel running(.|\n)*see that what it runs and its reference="):
            fast.verify().check()
    finally:
        ft.ops.unregister("running")


def test_what_is_right_is_right(tmp_path: Path) -> None:
    options: dict[str, Any] = {"machine": REFERENCE, "cache": tmp_path}
    found = ft.optimize(network(), (X,), **options).verify(X * 3)
    assert found.is_right and found.culprit == "nothing" and not found.kernels
    found.check()
    assert ft.optimize(network(), (X,), form="plain", **options).verify().is_right
    assert ft.optimize(network(), (X,), freeze=False, **options).verify().is_right

    def special(x: Any, i: Any) -> Any:
        return np.log(x), x / 0, np.sort(i), i > 1, x * 1e38 * 1e38

    values = np.array([-np.inf, -1, -0.0, 0, 1e-45, 3, np.inf, np.nan], np.float32)
    assert ft.optimize(special, (values, np.arange(8)), verify=True, **options).verify().is_right


TENTHS = (np.arange(-3000, 3000) / 10).astype(np.float32)
TIES = np.random.default_rng(0).integers(-3, 4, (300, 40)).astype(np.float32) / np.float32(10)

JUMPS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "floor": (lambda x: np.floor(x * 3 * np.float32(0.1)), (TENTHS,)),
    "a quotient's floor": (lambda x: np.floor(x / np.float32(0.1)), (TENTHS,)),
    "round": (lambda x: np.round(x * 5), (TENTHS,)),
    "an integer": (lambda x: (x * 10).astype(np.int32), (TENTHS,)),
    "a comparison with a sum": (lambda x: x > x.mean(-1, keepdims=True), (TIES,)),
    "a sign": (lambda x: x @ x[:40].T @ x[:40] > 0, (TIES,)),
    "the largest of equal ones": (lambda x, y: ((x + y) * np.float32(0.1)).argmax(-1), (TIES, TIES[::-1].copy())),
    "a number or none": (lambda x: np.sqrt(x * np.float32(0.3) * 3 - x * np.float32(0.9)), (TENTHS,)),
}


@pytest.mark.parametrize("name", JUMPS)
def test_where_a_rounding_decides_either_is_right(name: str, wrong: dict[str, str], tmp_path: Path) -> None:
    function, args = JUMPS[name]
    options: dict[str, Any] = {"machine": REFERENCE, "cache": tmp_path, "target": "wrong"}
    fast = ft.optimize(function, args, verify=True, **options)
    for kernel in fast.kernels:
        wrong["name"] = kernel.name
        assert ft.optimize(function, args, **options).verify().culprit == f"kernel {kernel.name}"
