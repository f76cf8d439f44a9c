"""Launches: what the driver is called with, and what becomes of its refusals. The driver's function is one of ours."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from frittata.egraph.errors import CompileError
from frittata.kernels.cache import KernelCache
from frittata.kernels.cuda import device, launch
from frittata.kernels.cuda.kernel import CudaKernel
from frittata.kernels.cuda.launch import Launch, Launches, Part, PtxSource

REFUSED = 9
KERNEL = CudaKernel("double", "# source", 4, 32, ("f32", "f32"))


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What `cuLaunchKernel` is called with: function, grid, block, shared memory, stream, and words of two arrays."""
    calls: list[Any] = []

    def record(function: int, *rest: Any) -> int:
        *sizes, stream, parameters, _ = rest
        pointers = ctypes.cast(parameters, ctypes.POINTER(ctypes.POINTER(ctypes.c_int64)))
        calls.append((function, tuple(sizes), stream, [pointers[i][0] for i in range(14)]))
        return 700 if function == REFUSED else 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, *[ctypes.c_uint] * 7, *[ctypes.c_int64] * 3)
    function = kind(record)
    monkeypatch.setattr(launch, "_launcher", lambda: ctypes.cast(function, ctypes.c_void_p).value)
    yield calls


def test_the_driver_gets_functions_sizes_the_stream_and_addresses_of_pointers(called: list[Any]) -> None:
    here, there = Part(0, 0, 5, 4), Part(2, 16, 7, 8)
    launches = Launches([Launch(5, 300_000, 256, (here, there)), Launch(0, 0, 0, ()), Launch(6, 7, 32, (there, here))])
    launches.point(np.array([1 << 40, 2000, 3000], np.int64))
    launches.run(0, 1, 77)
    launches.run(2, 1, 0)
    words = [0, 0, 5, 4, 1 << 40, 5, 4], [0, 0, 7, 8, 3016, 7, 8]
    assert called == [
        (5, (300_000, 1, 1, 256, 1, 1, 0), 77, [*words[0], *words[1]]),
        (6, (7, 1, 1, 32, 1, 1, 0), 0, [*words[1], *words[0]]),
    ]
    launches.point(np.array([0, 0, 64], np.int64))
    launches.run(2, 1, 0)
    assert called[-1][-1][4] == 80


def test_what_the_driver_refuses_ends_the_run(called: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def status(number: int) -> Any:
        return SimpleNamespace(name=f"CUDA_ERROR_{number}")

    status.CUDA_SUCCESS = status(0)  # type: ignore[attr-defined]
    driver = SimpleNamespace(CUresult=status, cuGetErrorString=lambda status: (0, b"an illegal address"))
    monkeypatch.setattr(launch, "_driver", lambda: driver)
    launches = Launches([Launch(n, 1, 1, (Part(0, 0, 1, 4),) * 2) for n in (1, REFUSED, 2)])
    with pytest.raises(CompileError, match=r"refuses a launch: an illegal address \(CUDA_ERROR_700\)"):
        launches.run(0, 3, 0)
    assert [function for function, *_ in called] == [1, REFUSED]


def test_ptx_is_compiled_once_for_each_capability_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    asked: list[tuple[int, int]] = []

    def ptx(kernel: CudaKernel, capability: tuple[int, int]) -> str:
        asked.append(capability)
        return f".version 9.0\n.visible .entry _ZN{kernel.name}E(\n.param"

    monkeypatch.setattr(device, "ptx", ptx)
    monkeypatch.setattr(launch.metadata, "version", lambda name: "1")
    cache = KernelCache(tmp_path)
    hopper, ampere = PtxSource(KERNEL, (9, 0)), PtxSource(KERNEL, (8, 0))
    found = [source.compile(cache) for source in (hopper, ampere, hopper)]
    assert asked == [(9, 0), (8, 0)]
    assert found[0] == found[2]
    assert hopper.entry(found[0]) == "_ZNdoubleE"
