"""Measuring a machine: what its cores compute and its memories move, by small kernels of the kind that will run."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from frittata.egraph.machine import REFERENCE, Machine
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.program import Estimate, Kernel, Output, Program, operands_of
from frittata.egraph.terms import TensorType, Term
from frittata.kernels import driver, runtime, templates
from frittata.kernels.compile import compile_kernel
from frittata.kernels.templates.library import LIBRARY

_REPEATS = 25
"""The least of so many runs counts: a machine that is busy while it is measured looks slow."""

_IDLE_STEPS = 200
"""So many steps that do nothing make the start of a run, once for all, too small to count."""
_MOST_STEP_S = 2e-6
"""More than this a step takes only while other processes hold the cores."""
_FLOATS_IN_L3 = 1 << 19
_FLOATS_IN_MEMORY = 1 << 24


def measure() -> Machine:
    """Return the profile of this machine. Takes a few seconds, most of them compiling."""
    threads = driver.thread_count()
    lanes = _lanes()
    resident = _seconds(*_copy(_FLOATS_IN_L3))
    streaming = _seconds(*_copy(_FLOATS_IN_MEMORY))
    work, additions = _additions(1 << 18)
    product, fmas = _product(384, 512, 512)
    launch_s, shared_s = _step_s(1), _step_s(threads)
    fma_per_s = fmas / _seconds(*product)
    library_s = _seconds(*product, template="library") if _has_library(product[0]) else None
    caches = _cache_bytes()
    return Machine(
        name=f"{platform.machine()}-{llvm.get_host_cpu_name()}-{threads}",
        threads=threads,
        lanes_f32=lanes,
        registers=32 if lanes == 16 else 16,
        fma_f32_per_s=fma_per_s,
        scalar_per_s=additions / _seconds(*work),
        memory_bytes_per_s=8 * _FLOATS_IN_MEMORY / streaming,
        l3_bytes_per_s=8 * _FLOATS_IN_L3 / resident,
        l1_bytes=caches.get(1, REFERENCE.l1_bytes),
        l2_bytes=caches.get(2, REFERENCE.l2_bytes),
        l3_bytes=caches.get(3, REFERENCE.l3_bytes),
        launch_s=launch_s,
        sync_s=max(0.0, shared_s - launch_s),
        library_gemm_share=min(1.0, fmas / library_s / fma_per_s) if library_s else REFERENCE.library_gemm_share,
    )


def _step_s(chunks: int) -> float:
    """Return what a step of so many chunks that does nothing takes, among others and with all threads awake."""
    kernel = compile_kernel("def idle(table, chunk):\n    pass\n", "idle", {})
    steps = np.array([[kernel.address, 0, chunks]] * _IDLE_STEPS, np.int64)

    def once() -> float:
        start = time.perf_counter()
        driver.run(steps)
        return time.perf_counter() - start

    return min(_MOST_STEP_S, min(once() for _ in range(_REPEATS)) / _IDLE_STEPS)


def _lanes() -> int:
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 16
    return 8 if features.get("avx2") and features.get("fma") else 4


def _has_library(body: Term) -> bool:
    return LIBRARY.estimate((body,), frozenset(), REFERENCE) is not None


def _cache_bytes() -> dict[int, int]:
    """Return the size of a data cache by level, where Linux tells."""
    out: dict[int, int] = {}
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            out[int(level)] = int(size[:-1]) << 10
    return out


def _input(name: str, *shape: int) -> Term:
    return tensor("input", name=name, shape=shape, dtype="f32")


def _copy(count: int) -> tuple[Term, list[Any]]:
    x = element("load", _input("x", count))
    return tensor("build", element("neg", x), shape=(count,)), [np.ones(count, np.float32)]


def _additions(count: int) -> tuple[tuple[Term, list[Any]], float]:
    """A chain of dependent subtractions (LLVM makes them of x - y) on each element, long enough to hide the memory."""
    length = 32
    x = element("load", _input("x", count))
    chain = x
    for _ in range(length):
        chain = element("add", element("neg", chain), x)
    return (tensor("build", chain, shape=(count,)), [np.ones(count, np.float32)]), float(length * count)


def _product(m: int, n: int, k: int) -> tuple[tuple[Term, list[Any]], float]:
    a, b = _input("x", m, k), _input("w", k, n)
    body = tensor("build", element("dot", element("load", a), element("load", b), depth=k), shape=(m, n))
    return (body, [np.ones((m, k), np.float32), np.ones((k, n), np.float32)]), float(m) * n * k


def _seconds(body: Term, values: list[Any], template: str = "") -> float:
    """Return the least time of one kernel; the reference profile names the template if the caller does not."""
    names = tuple(leaf.attrs[0] for leaf in operands_of(body))
    chosen = template or templates.cheapest((body,), frozenset(), REFERENCE)
    kernel = Kernel("probe", chosen, (Output("y", body),), names, Estimate(0.0, 0.0, 0.0))
    types = {leaf.attrs[0]: TensorType(leaf.shape, leaf.dtype) for leaf in operands_of(body)}
    program = Program(types, {}, (kernel,), ("y",))
    executable = runtime.build(program, {})
    return float(executable.measure(*values, repeats=_REPEATS)[0])
