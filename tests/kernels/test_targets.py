"""Targets: what there is, and that a third party can add one."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frittata as ft
from frittata.egraph.errors import CompileError, FrittataError
from frittata.egraph.machine import REFERENCE, REFERENCE_GPU
from frittata.kernels import targets

MODEL = ft.parse("""
def main(x: f32[4, 8]) -> f32[4, 8]:
    v1: f32[4, 8] = softmax(x, axis=-1)
    return v1
""")


def test_the_cpu_is_what_is_compiled_for() -> None:
    fast = ft.optimize(MODEL, machine=REFERENCE)
    assert fast.compilation.options.target == "cpu"
    assert "@numba.njit" in fast.kernels[0].source


def test_a_target_that_is_not_there_is_named() -> None:
    with pytest.raises(FrittataError, match=r"no target 'tpu'(?s:.*)cpu, cuda"):
        ft.optimize(MODEL, target="tpu", machine=REFERENCE)


def test_a_third_party_adds_a_target(tmp_path: Path) -> None:
    mine = replace(targets.CPU, name="mine", machine=replace(REFERENCE, name="mine"), source=lambda kernel: kernel.name)
    targets.register(mine)
    try:
        fast = ft.optimize(MODEL, target="mine", cache=tmp_path)
        assert fast.compilation.machine.name == "mine"
        assert fast.kernels[0].source == "softmax"
        x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
        np.testing.assert_allclose(fast(x).sum(-1), 1, rtol=1e-6)
        with pytest.raises(FrittataError, match="exists already"):
            targets.register(mine)
    finally:
        targets.unregister("mine")
    with pytest.raises(FrittataError, match="no target 'mine'"):
        targets.by_name("mine")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": ""}, "cannot be named ''"),
        ({"name": 3}, "cannot be named 3"),
        ({"templates": ()}, "target 'mine' with templates="),
        ({"build": None}, "target 'mine' with build=None"),
    ],
)
def test_a_target_has_a_name_and_functions(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(FrittataError, match=message):
        targets.register(replace(targets.CPU, **{"name": "mine", **wrong}))
    none: Any = "mine"
    with pytest.raises(FrittataError, match="a target that is a str"):
        targets.register(none)


def test_what_a_target_builds_can_tell_of_itself(tmp_path: Path) -> None:
    class Half:
        program, lowered, steps = None, (), 1

        def __call__(self, *arrays: Any) -> tuple[Any, ...]:
            return arrays

    given: dict[str, Any] = {"name": "half", "machine": REFERENCE, "build": lambda *_: Half()}
    targets.register(replace(targets.CPU, **given))
    try:
        lacks = "a Half without distinct_kernels, newly_compiled, measure"
        with pytest.raises(FrittataError, match=f"target 'half' built {lacks}"):
            ft.optimize(MODEL, target="half", cache=tmp_path)
    finally:
        targets.unregister("half")


@pytest.mark.parametrize("wrong", [np.zeros(2), np.zeros((1, 1)), ["soon"], None])
def test_a_target_measures_each_kernel(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = ft.optimize(MODEL, machine=REFERENCE)
    monkeypatch.setattr(fast.compilation.executable, "measure", lambda *_, **__: wrong)
    with pytest.raises(FrittataError, match=r"Executable.measure returned (?s:.*) for a program of 1 kernels"):
        fast.measure()


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_targets_of_the_package_stay(name: str) -> None:
    with pytest.raises(FrittataError, match="comes with the package"):
        targets.unregister(name)
    with pytest.raises(FrittataError, match=r"give it another name$"):
        targets.register(replace(targets.CPU, name=name))
    assert targets.by_name(name)


def test_cuda_has_no_plain_form() -> None:
    with pytest.raises(FrittataError, match="no form 'plain'"):
        ft.optimize(MODEL, target="cuda", form="plain")


def test_cuda_is_priced_by_a_gpu() -> None:
    assert targets.CUDA.machine is REFERENCE_GPU


def test_a_device_is_offered_what_it_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from frittata.kernels.cuda import device, library

    def offered(capability: tuple[int, int]) -> list[str]:
        monkeypatch.setattr(device, "capability", lambda: capability)
        return [template.name for template in targets.CUDA.templates("fast", True)]

    monkeypatch.setattr(device, "state", lambda: "device")
    monkeypatch.setattr(library, "gemm", lambda: 1)
    ampere, turing = offered((8, 0)), offered((7, 5))
    assert "tensor" in ampere and ampere.count("library") == 3
    assert "tensor" not in turing and turing.count("library") == 2
    monkeypatch.setattr(device, "state", lambda: "compiler")
    assert "tensor" in offered((7, 5)) and "library" not in offered((7, 5))


@pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is not None, reason="there is a CUDA compiler")
def test_without_a_device_the_error_says_what_to_do() -> None:
    from frittata.kernels.cuda import device

    if device.state() != "none":
        pytest.skip("there is a device")
    with pytest.raises(CompileError, match="NUMBA_ENABLE_CUDASIM=1"):
        ft.optimize(MODEL, target="cuda")
