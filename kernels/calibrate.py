"""Measuring a machine: what its cores compute and its memories move, by small kernels of the kind that will run."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf, sqrt
from pathlib import Path
from statistics import median
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba.core import config as numba_config

from frittata.egraph import shapes
from frittata.egraph.indexing import slice_map
from frittata.egraph.machine import BUSY, REFERENCE, Machine
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.program import Estimate, Kernel, Output, Program, operands_of
from frittata.egraph.terms import TensorType, Term
from frittata.kernels import driver, runtime, templates
from frittata.kernels.compile import compile_kernel
from frittata.kernels.processor import processor
from frittata.kernels.templates.library import LIBRARY

_config: Any = numba_config

_REPEATS = 25
_CALM_ROUNDS, _MOST_S = 2, 10.0
_CALM = 0.97
"""The least of so many runs counts, in rounds until nothing has been faster for a while and no thread has waited for a
core: a busy machine looks slow, and what runs on one core while another is taken looks half as fast."""
_IDLE_STEPS = 200
"""So many steps that do nothing make the start of a run, once for all, too small to count."""
_MOST_STEP_S = 2e-6
"""More than this a step takes only while other processes hold the cores."""
_MOST_ADDITIONS = 2.0
"""Additions for each multiply-add that a core can do in the same time: more comes of figures from busy phases."""
_ROWS = (1024, 768)
_SLOWEST, _FASTEST, _HALVINGS = 1e6, 1e15, 60
"""Where rates are searched, each time between a half that is too slow and one that is too fast."""
_FLOATS_IN_L3 = 1 << 19
_FLOATS_IN_L2 = 1 << 18
"""Results of a kernel that stay in the caches of the cores that wrote them."""
_LEAST_SHARE = 0.5
"""What kernels in a program at least have of the rate at which cores read again what they wrote themselves. Half of it
comes from the caches of others; a virtual machine whose cores lie far apart for some seconds would tell less."""
_FLOATS_IN_MEMORY = 1 << 24


def use() -> str:
    """Return what of this machine kernels are compiled for: a profile holds for that alone."""
    return f"{processor()} {llvm.get_host_cpu_name()} {_config.CPU_NAME} {_config.NUMBA_NUM_THREADS}"


def measure() -> tuple[Machine, float]:
    """Return the profile of this machine, and how long its threads waited for cores meanwhile, as a share of the time.

    Takes a few seconds, half of them compiling; ten more on a machine that others use at the same time.

    Rates of arithmetic are those at which the predictions for some kernels are what these kernels take: peaks that no
    kernel reaches would tell nothing.
    """
    threads, found = driver.thread_count(), processor()
    vector_code, product = _vector_code(), _product(384, 512, 512)
    timers = {
        "resident": _timer(_copy(_FLOATS_IN_L3)),
        "exchanged": _timer(_copy(_FLOATS_IN_L2), _swapped(_FLOATS_IN_L2)),
        "streaming": _timer(_copy(_FLOATS_IN_MEMORY)),
        "launch": _step_timer(1),
        "shared": _step_timer(threads),
        "product": _timer(product),
        **{f"vector {n}": _timer(body) for n, body in enumerate(vector_code)},
    }
    if LIBRARY.estimate((product,), frozenset(), REFERENCE) is not None:
        timers["library"] = _timer(product, template="library")
    seconds, waited = least_seconds(timers)
    caches = _cache_bytes()
    machine = Machine(
        name=f"{platform.machine()}-{llvm.get_host_cpu_name()}-{threads}",
        threads=threads,
        lanes_f32=found.width // 4,
        registers=found.registers,
        fma_f32_per_s=REFERENCE.fma_f32_per_s,
        scalar_per_s=REFERENCE.scalar_per_s,
        memory_bytes_per_s=8 * _FLOATS_IN_MEMORY / seconds["streaming"],
        l3_bytes_per_s=8 * _FLOATS_IN_L3 / seconds["resident"],
        l1_bytes=caches.get(1, REFERENCE.l1_bytes),
        l2_bytes=caches.get(2, REFERENCE.l2_bytes),
        l3_bytes=caches.get(3, REFERENCE.l3_bytes),
        launch_s=min(_MOST_STEP_S, seconds["launch"]),
        sync_s=min(_MOST_STEP_S, max(0.0, seconds["shared"] - seconds["launch"])),
        library_gemm_share=REFERENCE.library_gemm_share,
    )
    rates = (_rate(machine, "scalar_per_s", body, seconds[f"vector {n}"]) for n, body in enumerate(vector_code))
    machine = replace(machine, scalar_per_s=median(rates))
    machine = replace(machine, fma_f32_per_s=_rate(machine, "fma_f32_per_s", product, seconds["product"]))
    machine = replace(machine, scalar_per_s=min(machine.scalar_per_s, _MOST_ADDITIONS * machine.fma_f32_per_s))
    share = seconds["product"] / seconds["library"] if "library" in seconds else REFERENCE.library_gemm_share
    resident, exchanged = machine.l3_bytes_per_s, 16 * _FLOATS_IN_L2 / seconds["exchanged"]
    l3_bytes_per_s = min(resident, max(exchanged, _LEAST_SHARE * resident))
    return replace(machine, library_gemm_share=min(1.0, share), l3_bytes_per_s=l3_bytes_per_s), waited


def least_seconds(timers: Mapping[str, Callable[[], float]]) -> tuple[dict[str, float], float]:
    """Return the least time of each, once rounds in which nothing waits find none that is clearly less.

    Then comes the share of the time that this process's threads waited for cores in the last round, as the median over
    the timers: a library's own threads make others wait.
    """
    seconds, waited = dict.fromkeys(timers, inf), 0.0
    calm, end = 0, time.perf_counter() + _MOST_S
    while calm < _CALM_ROUNDS and time.perf_counter() < end:
        found, shares = dict(seconds), list[float]()
        for name, timer in timers.items():
            start, before = time.perf_counter(), _waited_s()
            found[name] = min(seconds[name], timer())
            shares.append(max(0.0, _waited_s() - before) / (time.perf_counter() - start))  # threads may have ended
        waited = median(shares)
        is_calm = waited < BUSY and all(found[name] > _CALM * seconds[name] for name in timers)
        calm = calm + 1 if is_calm else 0
        seconds = found
    return seconds, waited


def _waited_s() -> float:
    """Return how long threads of this process could have run but had no core, where Linux tells; else 0."""
    waited = 0.0
    for told in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError, IndexError):  # a thread that has ended
            waited += int(told.read_text().split()[1]) * 1e-9
    return waited


def _rate(machine: Machine, name: str, body: Term, seconds: float) -> float:
    """Return the rate of this name at which so many seconds are predicted for a body."""
    template = templates.by_name(_cheapest(body))

    def is_slower(rate: float) -> bool:
        predicted = template.estimate((body,), frozenset(), replace(machine, **{name: rate}))
        return predicted is not None and predicted.seconds > seconds

    low, high = _SLOWEST, _FASTEST
    for _ in range(_HALVINGS):
        middle = sqrt(low * high)
        low, high = (middle, high) if is_slower(middle) else (low, middle)
    return low


def _step_timer(chunks: int) -> Callable[[], float]:
    """Return what times a step of so many chunks that does nothing, among others and with all threads awake."""
    kernel = compile_kernel("def idle(table, chunk):\n    pass\n", "idle", {})
    steps = driver.Steps([[kernel.address, 0, chunks]] * _IDLE_STEPS)

    def once() -> float:
        start = time.perf_counter()
        driver.run(steps)
        return time.perf_counter() - start

    return lambda: min(once() for _ in range(_REPEATS)) / _IDLE_STEPS


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


def _copy(count: int) -> Term:
    shape = (2, count // 2)
    return tensor("build", element("neg", element("load", _input("x", *shape))), shape=shape)


def _swapped(count: int) -> Term:
    """Return a copy of a result of which each half of the threads reads what the other has written."""
    shape = (2, count // 2)
    source = element("reindex", element("load", _input("y0", *shape)), map=slice_map(shape, -2, 1, -1, 2))
    return tensor("build", element("neg", source), shape=shape)


def _vector_code() -> list[Term]:
    """Kernels on elements by themselves and on rows, with dear and with cheap operators, in the last cache."""
    x = element("load", _input("x", *_ROWS))
    gated = element("mul", element("tanh", x), element("max", element("sigmoid", x), x))
    shifted = element("exp", element("sub", x, _folded("max", x)))
    softmax = element("div", shifted, _folded("sum", shifted))
    centred = element("sub", x, _folded("sum", x))
    scaled = element("mul", centred, _folded("sum", element("mul", centred, centred)))
    return [tensor("build", e, shape=_ROWS) for e in (gated, softmax, scaled)]


def _folded(op: str, e: Term) -> Term:
    return element("fold", e, op=op, axis=-1, extent=_ROWS[-1])


def _product(m: int, n: int, k: int) -> Term:
    a, b = _input("x", m, k), _input("w", k, n)
    return tensor("build", element("dot", element("load", a), element("load", b), depth=k), shape=(m, n))


def _cheapest(body: Term) -> str:
    return templates.cheapest((body,), frozenset(), REFERENCE)


def _timer(*bodies: Term, template: str = "") -> Callable[[], float]:
    """Return what times kernels, one after the other, that read inputs or y0, y1, ..., results of those before.

    The reference profile names the template if the caller does not.
    """
    leaves = {leaf.attrs[0]: TensorType(leaf.shape, leaf.dtype) for leaf in operands_of(*bodies)}
    results = [f"y{i}" for i in range(len(bodies))]
    types = {name: type_ for name, type_ in leaves.items() if name not in results}
    none = Estimate(0.0, 0.0, 0.0)
    kernels = tuple(
        Kernel(f"probe_{name}", template or _cheapest(body), (Output(name, body),), (), none)
        for name, body in zip(results, bodies, strict=True)
    )
    executable = runtime.build(Program(types, {}, kernels, (results[-1],)), {})
    values = [np.full(shapes.concrete(type_.shape), 0.5, np.float32) for type_ in types.values()]
    return lambda: float(executable.measure(*values, repeats=_REPEATS).sum())
