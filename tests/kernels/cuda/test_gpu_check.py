"""The command for machines with a GPU: it says when there is none, and its scripts say what its torch functions do."""

from __future__ import annotations

import pytest
import torch

import frittata as ft
from bench import gpu_check, gpu_timings
from frittata.egraph.errors import CompileError
from frittata.kernels.cuda import device


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: the command itself is the test")
def test_without_a_gpu_it_fails_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert device.state() != "simulator"
    monkeypatch.setattr("sys.argv", ["gpu_check"])
    assert gpu_check.main() == 1
    assert "No GPU" in capsys.readouterr().out


def test_what_is_wrong_names_no_path_of_the_machine_that_checked() -> None:
    def refuse() -> None:
        raise CompileError("no such kernel", where=f"{gpu_check.ROOT / 'bench' / 'models.py'}:3")

    assert "where: bench" in gpu_check._noted({"a check": refuse})["a check"]  # type: ignore[reportPrivateUsage]


@pytest.mark.parametrize("workload", gpu_timings.WORKLOADS, ids=lambda workload: workload.name)
def test_both_sides_of_a_timing_take_and_give_the_same(workload: gpu_timings.Workload) -> None:
    model = ft.parse(workload.script)
    assert tuple(term.shape for term in model.main.inputs) == workload.shapes
    found = workload.eager(*(torch.empty(shape, device="meta") for shape in workload.shapes))
    assert [term.shape for term in model.main.outputs] == [tuple(found.shape)]


def test_the_programs_that_are_called_in_many_ways_compute_what_torch_does() -> None:
    x, i = torch.randn(33, 130), torch.tensor([3, 0, 32, 3, 7])
    taken, sums = ft.optimize(ft.parse(gpu_check.LOOK_UP))(x, i)
    torch.testing.assert_close(taken, torch.softmax(x, -1)[i])
    torch.testing.assert_close(sums, x.sum(1, keepdim=True))
    y = torch.randn(64, 256)
    torch.testing.assert_close(ft.optimize(ft.parse(gpu_check.CHAIN))(y), gpu_check.smooth(y))
