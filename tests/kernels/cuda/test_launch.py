"""Launches: what the driver is called with, and what becomes of its refusals. The driver's function is one of ours."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from frittata.egraph.errors import CompileError
from frittata.kernels.cache import KernelCache
from frittata.kernels.cuda import device, graphs, launch
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
    monkeypatch.setattr(launch, "address", {"cuLaunchKernel": ctypes.cast(function, ctypes.c_void_p).value}.__getitem__)
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


class NodeParameters(ctypes.Structure):
    """As `cuda.h` of CUDA 12 and 13 has it."""

    _fields_ = [
        ("func", ctypes.c_void_p),
        *((f"{name}Dim{axis}", ctypes.c_uint) for name in ("grid", "block") for axis in "XYZ"),
        ("sharedMemBytes", ctypes.c_uint),
        ("kernelParams", ctypes.POINTER(ctypes.POINTER(ctypes.c_int64))),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("ctx", ctypes.c_void_p),
    ]

    def told(self, words: int) -> tuple[Any, ...]:
        assert not (self.sharedMemBytes or self.extra or self.kern or self.ctx)
        sizes = [getattr(self, f"{name}Dim{axis}") for name in ("grid", "block") for axis in "XYZ"]
        return self.func, tuple(sizes), [self.kernelParams[n][0] for n in range(words)]


@pytest.fixture
def graphs_called(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the driver is asked of graphs: each kernel node has a number, graphs are 1000 and what they become 2000."""
    asked: list[Any] = []
    kinds = graphs._KIND_BY_NAME  # type: ignore[reportPrivateUsage]

    def written(place: int, value: int) -> int:
        ctypes.c_int64.from_address(place).value = value
        return 0

    def add(node: int, graph: int, before: int | None, count: int, parameters: int) -> int:
        after = ctypes.c_int64.from_address(before).value if before else None
        assert (graph, count) == (1000, int(after is not None))
        asked.append(("node", after, *NodeParameters.from_address(parameters).told(7)))
        return written(node, len(asked))

    def change(executable: int, node: int, parameters: int) -> int:
        asked.append(("change", executable, node, *NodeParameters.from_address(parameters).told(7)))
        return 700 if node == REFUSED else 0

    def noted(name: str) -> Any:
        return lambda *arguments: asked.append((name, *arguments)) or 0

    functions = {
        "cuGraphCreate": lambda place, flags: written(place, 1000),
        "cuGraphAddKernelNode": add,
        "cuGraphInstantiate": lambda place, graph, flags: written(place, 2000),
        "cuGraphExecKernelNodeSetParams": change,
        **{name: noted(name) for name in ("cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy")},
    }
    made = {name: ctypes.CFUNCTYPE(ctypes.c_int, *kinds[name])(function) for name, function in functions.items()}
    monkeypatch.setattr(graphs, "_function", made.__getitem__)
    yield asked


def test_many_kernels_in_a_row_are_a_graph_from_the_second_run_on(called: list[Any], graphs_called: list[Any]) -> None:
    # each reads what the one before wrote; the first reads memory 1, the last writes memory 2
    places = [(1, 0), (0, 0), (0, 64), (0, 128), (2, 0)]
    parts = [Part(*place, 16, 4) for place in places]
    launches = Launches([Launch(n, 10 + n, 32, (parts[n], parts[n + 1])) for n in range(4)])
    launches.point(np.array([1 << 20, 1 << 30, 1 << 40], np.int64))
    launches.run(0, 4, 7)
    assert len(called) == 4 and not graphs_called
    for _ in range(2):
        launches.run(0, 4, 7)
    nodes, (*runs,) = graphs_called[:4], graphs_called[4:]
    starts = [1 << 30, 1 << 20, (1 << 20) + 64, (1 << 20) + 128]
    assert nodes == [
        ("node", n or None, n or None, (10 + n, 1, 1, 32, 1, 1), [0, 0, 16, 4, starts[n], 16, 4]) for n in range(4)
    ]
    assert runs == [("cuGraphLaunch", 2000, 7)] * 2
    graphs_called.clear()
    launches.point(np.array([1 << 20, 1 << 31, 1 << 40], np.int64))  # another argument, the same result
    launches.run(0, 4, 8)
    first = (10, 1, 1, 32, 1, 1), [0, 0, 16, 4, 1 << 31, 16, 4]
    assert graphs_called == [("change", 2000, 1, None, *first), ("cuGraphLaunch", 2000, 8)]
    launches.run(0, 4, 8)
    assert graphs_called[2:] == [("cuGraphLaunch", 2000, 8)]
    assert len(called) == 4
    graphs_called.clear()
    del launches
    gc.collect()
    assert sorted(graphs_called) == [("cuGraphDestroy", 1000), ("cuGraphExecDestroy", 2000)]


def test_few_kernels_and_calls_of_cublas_are_launched_between_graphs(
    called: list[Any], graphs_called: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    multiplied: list[Any] = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)
    multiply = kind(lambda handle: multiplied.append((handle, len(called), len(graphs_called))) or 0)
    monkeypatch.setattr(launch.library, "gemm", lambda: ctypes.cast(multiply, ctypes.c_void_p).value)
    monkeypatch.setattr(launch.library, "handle", lambda device, stream: 5)
    part = Part(0, 0, 16, 4)
    kernel, product = Launch(3, 1, 32, (part, part)), Launch(0, 0, 0, (part,) * 3, (1,) * 16)
    launches = Launches([*[kernel] * 3, product, *[kernel] * 4, product])
    launches.point(np.array([64], np.int64))
    launches.run(0, 9, 7)
    assert [of_calls for _, *of_calls in multiplied] == [[3, 0], [7, 0]]
    del called[:], multiplied[:]
    launches.run(0, 9, 7)
    assert [name for name, *_ in graphs_called] == ["node"] * 4 + ["cuGraphLaunch"]
    assert [of_calls for _, *of_calls in multiplied] == [[3, 4], [3, 5]]
    assert len(called) == 3


def test_what_the_driver_refuses_of_a_graph_is_an_error(
    called: list[Any], graphs_called: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = SimpleNamespace(CUresult=status, cuGetErrorString=lambda status: (0, b"an illegal address"))
    monkeypatch.setattr(device, "driver", lambda: driver)
    launches = Launches([Launch(n, 1, 1, (Part(n, 0, 1, 4),) * 2) for n in range(REFUSED)])
    for _ in range(2):
        launches.run(0, REFUSED, 0)
    launches.point(np.array([0] * (REFUSED - 1) + [16], np.int64))
    with pytest.raises(CompileError, match=r"refuses a graph of launches: an illegal address \(CUDA_ERROR_700\)"):
        launches.run(0, REFUSED, 0)


def status(number: int) -> Any:
    return SimpleNamespace(name=f"CUDA_ERROR_{number}")


status.CUDA_SUCCESS = status(0)  # type: ignore[attr-defined]


def test_what_the_driver_refuses_ends_the_run(called: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    driver = SimpleNamespace(CUresult=status, cuGetErrorString=lambda status: (0, b"an illegal address"))
    monkeypatch.setattr(device, "driver", lambda: driver)
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
    monkeypatch.setattr(device, "driver", lambda: driver)
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
