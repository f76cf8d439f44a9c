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


def status(number: int) -> Any:
    return SimpleNamespace(name=f"CUDA_ERROR_{number}")


status.CUDA_SUCCESS = status(0)  # type: ignore[attr-defined]


def test_what_the_driver_refuses_ends_the_run(called: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
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
    cache = KernelCache(tmp_path)
    hopper, ampere = PtxSource(KERNEL, (9, 0)), PtxSource(KERNEL, (8, 0))
    found = [source.compile(cache) for source in (hopper, ampere, hopper)]
    assert asked == [(9, 0), (8, 0)]
    assert found[0] == found[2]
    assert hopper.entry(found[0]) == "_ZNdoubleE"


def test_ptx_that_is_newer_than_the_driver_is_refused_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(ptx: bytes, count: int, options: list[str], values: list[Any]) -> tuple[Any, ...]:
        assert (ptx, count, options) == (b"ptx\0", 2, ["log", "bytes"])
        log, size = values
        assert len(log) == size
        log[:14] = b"line 9: fatal\n"
        return SimpleNamespace(name="CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), None

    options = SimpleNamespace(CU_JIT_ERROR_LOG_BUFFER="log", CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES="bytes")
    driver = SimpleNamespace(CUjit_option=options, CUresult=status, cuModuleLoadDataEx=load)
    driver.cuGetErrorString = lambda status: (0, b"the PTX is too new")
    monkeypatch.setattr(launch, "_driver", lambda: driver)
    with pytest.raises(CompileError) as raised:
        launch.loaded(PtxSource(KERNEL, (9, 0)), b"ptx", 0)
    assert raised.value.what.startswith("CUDA's driver refuses kernel double: the PTX is too new")
    assert raised.value.where == "line 9: fatal"
    assert "no newer than the driver" in raised.value.do


def test_each_version_of_the_compiler_has_its_own_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(toolkit: tuple[int, int] | None, **version_by_name: str) -> str:
        def installed(name: str) -> list[Any]:
            return [SimpleNamespace(version=version_by_name[name])] if name in version_by_name else []

        monkeypatch.setattr(launch.metadata, "distributions", installed)
        monkeypatch.setattr(device, "toolkit", lambda: toolkit)
        launch._versions.cache_clear()  # type: ignore[reportPrivateUsage]
        return PtxSource(KERNEL, (9, 0)).digest

    both = {"numba-cuda": "0.30"}, {"numba-cuda": "0.30", "nvidia-nvvm": "13.0.88"}
    ways = [(toolkit, each) for toolkit in (None, (13, 0), (13, 1)) for each in (*both, {"nvidia-nvvm": "13.1.80"})]
    digests = [digest(toolkit, **each) for toolkit, each in ways]
    assert len({*digests}) == len(ways)
    assert digests == [digest(toolkit, **each) for toolkit, each in ways]
    launch._versions.cache_clear()  # type: ignore[reportPrivateUsage]
