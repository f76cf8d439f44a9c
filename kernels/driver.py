"""Running a program: one prebuilt function walks a table of kernels with all threads, without Python between kernels.

A step is a row (kernel address, argument-table address, chunk count). The threads claim chunks one by one and meet at
the end of each step; a chunk is claimed only by a thread that runs, so any number of threads makes progress. Which
thread runs a chunk changes nothing that is computed: results do not depend on the number of threads.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.core import config as numba_config
from numba.np.ufunc import parallel as numba_parallel
from numpy.typing import NDArray

_numba: Any = numba
_config: Any = numba_config
_layers: Any = numba_parallel
_intrinsic: Any = extending.intrinsic

Steps = NDArray[np.int64]
"""Shape (steps, 3): kernel address, argument-table address, chunk count."""

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_COUNTER_WORDS = 16  # two per step, each on a cache line of its own
_SPINS_BEFORE_YIELD = 20_000
_CLOCK = time.CLOCK_MONOTONIC

# The intrinsics stand in this file because numba's cache of compiled functions looks at no other.


def _symbol(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    known = builder.module.globals.get(name)
    if known is None:
        known = ir.Function(builder.module, ir.FunctionType(result, [a.type for a in arguments]), name=name)
    return builder.call(known, arguments)


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _I64.as_pointer())


@_intrinsic
def _call_kernel(_context: Any, kernel: Any, table: Any, chunk: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kernel_type = ir.FunctionType(ir.VoidType(), [_I64.as_pointer(), _I64])
        address, table, chunk = arguments
        function = builder.inttoptr(address, kernel_type.as_pointer())
        builder.call(function, [_pointer(builder, table), chunk])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@_intrinsic
def _claim(_context: Any, address: Any) -> Any:
    """Add one to a counter and return what it was."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, arguments[0]), _I64(1), "seq_cst")

    return types.int64(types.int64), generate


@_intrinsic
def _read(_context: Any, address: Any) -> Any:
    """Read a counter, and see all that was written before it was counted up."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_pointer(builder, arguments[0]), "acquire", 8)

    return types.int64(types.int64), generate


@_intrinsic
def _yield(_context: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        _symbol(builder, "sched_yield", _I32, [])
        return context.get_dummy_value()

    return types.void(), generate


@_intrinsic
def _pause(_context: Any) -> Any:
    """Tell the processor that this thread waits."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        name = "llvm.x86.sse2.pause" if "x86" in builder.module.triple else "llvm.donothing"
        _symbol(builder, name, ir.VoidType(), [])
        return context.get_dummy_value()

    return types.void(), generate


@_intrinsic
def _seconds(_context: Any) -> Any:
    """Read the monotonic clock."""

    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        time_type = ir.LiteralStructType([_I64, _I64])
        slot = cgutils.alloca_once(builder, time_type)
        _symbol(builder, "clock_gettime", _I32, [_I32(_CLOCK), slot])
        whole, nano = (builder.sitofp(builder.extract_value(builder.load(slot), i), ir.DoubleType()) for i in (0, 1))
        return builder.fadd(whole, builder.fmul(nano, ir.DoubleType()(1e-9)))

    return types.float64(), generate


def _compiled(**options: Any) -> Callable[[Any], Any]:
    """Compile with numba and keep the code on disk, if there is a place for it."""

    def compile_(function: Any) -> Any:
        try:
            return numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:
            return numba.njit(nogil=True, **options)(function)

    return compile_


@_compiled()
def _counters(steps: Any) -> Any:
    # not inlined into the parallel functions, which would set them to zero in a parallel region
    return np.zeros(steps * _COUNTER_WORDS, np.int64)


@_compiled()
def _meet(done: Any, chunks: Any) -> None:
    """Wait until all chunks are done."""
    spins = 0
    while _read(done) < chunks:
        _pause()
        spins += 1
        if spins > _SPINS_BEFORE_YIELD:
            _yield()


@_compiled()
def _walk(steps: Any, counters: Any) -> None:
    """Run every step as one of the threads that share `counters`."""
    base = counters.ctypes.data
    for i in range(len(steps)):
        claimed = base + i * (8 * _COUNTER_WORDS)
        done = claimed + 4 * _COUNTER_WORDS
        chunks = steps[i, 2]
        chunk = _claim(claimed)
        while chunk < chunks:
            _call_kernel(steps[i, 0], steps[i, 1], chunk)
            _claim(done)
            chunk = _claim(claimed)
        _meet(done, chunks)


@_compiled()
def _walk_timed(steps: Any, counters: Any, times: Any) -> None:
    """Like `_walk`; whoever claims the first chunk notes the start, and whoever ends the last one the end."""
    base = counters.ctypes.data
    for i in range(len(steps)):
        claimed = base + i * (8 * _COUNTER_WORDS)
        done = claimed + 4 * _COUNTER_WORDS
        chunks = steps[i, 2]
        chunk = _claim(claimed)
        while chunk < chunks:
            if chunk == 0:
                times[i, 0] = _seconds()
            _call_kernel(steps[i, 0], steps[i, 1], chunk)
            if _claim(done) == chunks - 1:
                times[i, 1] = _seconds()
            chunk = _claim(claimed)
        _meet(done, chunks)


@_compiled()
def _run_serial(steps: Any) -> None:
    for i in range(len(steps)):
        for chunk in range(steps[i, 2]):
            _call_kernel(steps[i, 0], steps[i, 1], chunk)


@_compiled(parallel=True)
def _run_parallel(steps: Any, threads: Any) -> None:
    counters = _counters(len(steps))
    for _ in numba.prange(threads):
        _walk(steps, counters)


@_compiled()
def _time_serial(steps: Any, times: Any) -> None:
    for i in range(len(steps)):
        times[i, 0] = _seconds()
        _run_serial(steps[i : i + 1])
        times[i, 1] = _seconds()


@_compiled(parallel=True)
def _time_parallel(steps: Any, threads: Any, times: Any) -> None:
    counters = _counters(len(steps))
    for _ in numba.prange(threads):
        _walk_timed(steps, counters, times)


@dataclass
class _Process:
    """What this process may do: a child forked from one that had threads must not start any."""

    single: bool = False
    lock: Lock = field(default_factory=Lock)


_process = _Process()


def _after_fork() -> None:
    # OpenMP's threads are gone in the child, and its runtime kills or hangs whoever asks for them
    _process.single = _process.single or _layers._is_initialized or "torch" in sys.modules
    _process.lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@cache
def _threading_layer() -> str:
    """Choose OpenMP unless the user has chosen, and return the layer that numba will use or uses."""
    if _layers._is_initialized:
        return _numba.threading_layer()
    if _config.THREADING_LAYER == "default":
        _config.THREADING_LAYER = "omp" if _has_openmp() else "workqueue"
    if _config.THREADING_LAYER == "workqueue":
        warnings.warn(
            "numba has no OpenMP here: each run takes 0.1 ms longer and concurrent runs wait for each other; "
            "install the OpenMP runtime (libgomp1 on Debian, libomp on macOS)",
            RuntimeWarning,
            stacklevel=3,
        )
    return _config.THREADING_LAYER


def _has_openmp() -> bool:
    try:
        import_module("numba.np.ufunc.omppool")
    except ImportError:
        return False
    return True


def _region() -> AbstractContextManager[Any]:
    """Return what to hold while threads run: numba's own work queue takes one caller at a time."""
    return _process.lock if _threading_layer() == "workqueue" else nullcontext()


def run(steps: Steps, serial: bool = False) -> None:
    """Run all steps, in order, with numba's number of threads; may be called from several threads at once.

    `serial`: no step has more than one chunk, so that waking threads would only cost time.
    """
    if serial:
        _run_serial(steps)
        return
    threads = thread_count()
    if threads == 1:
        _run_serial(steps)
    else:
        with _region():
            _run_parallel(steps, threads)


def run_timed(steps: Steps) -> NDArray[np.float64]:
    """Run all steps and return how long each took, in seconds, start of first chunk to end of last."""
    times, threads = np.zeros((len(steps), 2)), thread_count()
    if threads == 1:
        _time_serial(steps, times)
    else:
        with _region():
            _time_parallel(steps, threads, times)
    return times[:, 1] - times[:, 0]


def thread_count() -> int:
    """Return how many threads `run` uses in this process."""
    if _process.single:
        return 1
    _threading_layer()
    return numba.get_num_threads()
