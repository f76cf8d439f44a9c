"""Calls of programs: on which device they run, what they share, what no graph captures. No kernel runs here."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kernel_cases import Case, build, element, fold, load
from random_programs import SHAPE, random_program

from frittata.egraph.errors import CompileError, ModelError
from frittata.egraph.program import Program
from frittata.kernels.cuda import device, library, runtime
from frittata.kernels.cuda.device import Stream
from frittata.kernels.cuda.runtime import CudaExecutable

ADDED = Case("add", (build(element("add", load("a", *SHAPE), load("b", *SHAPE)), *SHAPE),))
PRODUCT = Case("product", (build(element("dot", load("a", 7, 13), load("b", 13, 5), depth=13), 7, 5),))


class Placed(np.ndarray[Any, Any]):
    """An array that says it lies on a device of torch's."""

    number: int


def placed(number: int, shape: tuple[int, ...] = SHAPE) -> Placed:
    found = np.zeros(shape, np.float32).view(Placed)
    found.number = number
    return found


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make host memory that of devices, with number 2 the current one; the numbers of those that calls enter."""
    entered: list[int] = []

    def on(number: int) -> Any:
        entered.append(number)
        return nullcontext()

    monkeypatch.setattr(device, "state", lambda: "simulator")
    monkeypatch.setattr(device, "simulated", lambda kernel: lambda *arrays: None)
    monkeypatch.setattr(device, "number_of", lambda value: getattr(value, "number", None))
    monkeypatch.setattr(device, "current", lambda: 2)
    monkeypatch.setattr(device, "on", on)
    return entered


def made(program: Program | None = None) -> CudaExecutable:
    return runtime.build(program or ADDED.program("pointwise"), {"w": np.ones(SHAPE, np.float32)})


def test_a_program_runs_where_its_first_arguments_lie_whatever_is_current(entered: list[int]) -> None:
    run, host = made(), np.zeros(SHAPE, np.float32)
    run(host, placed(1))
    run(host, host)
    assert entered == [1, 1]
    with pytest.raises(ModelError, match=r"argument 'a' is on cuda:0, the program runs on cuda:1(?s:.*)to cuda:1, or"):
        run(placed(0), placed(1))


def test_arguments_on_the_host_go_to_the_current_device(entered: list[int]) -> None:
    run, host = made(), np.zeros(SHAPE, np.float32)
    with pytest.raises(ModelError, match=r"must be float32\[4, 6\]"):
        run(np.zeros(SHAPE), placed(0))  # which decides nothing
    run(host, host)
    assert entered == [0, 2]


def test_arguments_on_two_devices_are_refused_at_the_first_call(entered: list[int]) -> None:
    with pytest.raises(ModelError, match="argument 'b' is on cuda:1, the program runs on cuda:0"):
        made()(placed(0), placed(1))


def test_a_device_that_is_older_than_the_one_compiled_for_is_refused(
    entered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ADDED.program("pointwise")
    steps, source = runtime.written(program), SimpleNamespace(capability=(9, 0))
    monkeypatch.setattr(device, "capability", lambda: (8, 6))
    run = CudaExecutable(program, steps, {}, {steps[0]: (source, b"")}, 1)  # type: ignore[dict-item]
    with pytest.raises(CompileError, match=r"compute capability 9\.0, (?s:.*) has 8\.6(?s:.*)that device is the curr"):
        run(placed(1), placed(1))


def test_first_calls_at_once_share_one_copy_of_the_constants(
    entered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, copies = made(random_program(0)), []
    upload = run._uploaded  # type: ignore[reportPrivateUsage]

    def slowly(number: int) -> list[Any]:
        copies.append(upload(number))
        time.sleep(0.05)
        return copies[-1]

    monkeypatch.setattr(run, "_uploaded", slowly)
    host = np.zeros(SHAPE, np.float32)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: run(host, host), range(2)))
    assert len(copies) == 1


def captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "stream_of", lambda like: Stream(7, is_captured=True))


def test_a_first_call_cannot_be_captured(entered: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    captured(monkeypatch)
    with pytest.raises(CompileError, match="never called"):
        made()(placed(0), placed(0))


def test_numpy_arrays_cannot_be_captured(entered: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    run, host = made(), np.zeros(SHAPE, np.float32)
    run(host, host)
    captured(monkeypatch)
    monkeypatch.setattr(device, "upload", None)
    with pytest.raises(CompileError, match=r"takes torch tensors(?s:.*)before the capture"):
        run(host, host)


def test_steps_in_python_cannot_be_captured(entered: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(Case("order", (build(element("exp", load("x", 3, 5)), 3, 5),)).program("nest"))
    run(placed(0, (3, 5)))
    captured(monkeypatch)
    run.lowered = (runtime.HostStep("order", lambda operands, results: None),)
    with pytest.raises(CompileError, match="a step in Python, order, cannot be captured"):
        run(placed(0, (3, 5)))


def test_a_threads_first_call_of_the_library_cannot_be_captured(
    entered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = placed(0, (7, 13)), placed(0, (13, 5))
    run = made(PRODUCT.program("contraction"))
    run(*given)
    captured(monkeypatch)
    monkeypatch.setattr(device, "is_torch", lambda value: isinstance(value, Placed))
    run.lowered = (library.LIBRARY.call("product", PRODUCT.bodies),)
    with pytest.raises(CompileError, match=r"first call of cuBLAS in a thread(?s:.*)in the thread that captures"):
        run(*given)


def test_programs_without_arguments_run_on_the_current_device(entered: list[int]) -> None:
    total = build(fold("sum", load("w", *SHAPE), -1, SHAPE[1]), SHAPE[0], 1)
    program = Case("total", (total,)).program("row")
    program = Program({}, {"w": random_program(0).constants["d"]}, program.steps, program.outputs)
    made(program)()
    assert entered == [2]
