"""Running a program: one prebuilt function walks a table of kernels with all threads, without Python between kernels.

A step is a row (kernel address, argument-table address, chunk count). The threads claim chunks one by one and meet at
the end of each step; a chunk is claimed only by a thread that runs, so any number of threads makes progress. A thread
starts with chunks of its own, the same ones in every run, so that what they read may still lie in its cache; then it
helps the others. Which thread runs a chunk changes nothing that is computed: results do not depend on their number.

To wake threads that sleep takes longer than a small program, and to call those that are awake takes time as well. `run`
is told what sharing the steps is predicted to save, and shares them where that is worth it.
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
from math import inf
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
_LINE_BYTES = 64
_MOST_QUEUES = 4
"""The parts that the chunks of a step are cut into, at most; threads beyond share them."""
_SPINS_BEFORE_YIELD = 20_000
_CLOCK = time.CLOCK_MONOTONIC

WAKE_S = 30e-6
"""What waking the other threads takes, once they sleep. Measured on two Zen 3 cores, OpenMP: 10 to 30 us."""
CALL_S = 10e-6
"""What sharing a run takes with threads that are awake: 3 to 5 us to begin and to end, and what each core then has to
fetch from the cache of the other."""
BURST_S = 1e-3
"""How long after a call the others are awake for the next one: OpenMP's threads wait actively for some milliseconds."""

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


@_intrinsic
def _thread_count(_context: Any) -> Any:
    """Ask numba how many threads the calling thread may use. The threads must have been launched."""

    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        return _symbol(builder, "get_num_threads", _I64, [])

    return types.int64(), generate


@_intrinsic
def _set_thread_count(_context: Any, count: Any) -> Any:
    """Tell numba how many threads the calling thread may use."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        _symbol(builder, "set_num_threads", ir.VoidType(), [builder.trunc(arguments[0], _I32)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _compiled(**options: Any) -> Callable[[Any], Any]:
    """Compile with numba and keep the code on disk, if there is a place for it."""

    def compile_(function: Any) -> Any:
        try:
            return numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:
            return numba.njit(nogil=True, **options)(function)

    return compile_


@_compiled()
def _counters(steps: Any, queues: Any) -> Any:
    # not inlined into the parallel functions, which would set them to zero in a parallel region
    return np.zeros(steps * (queues + 1) * (_LINE_BYTES // 8), np.int64)


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
def _first(queue: Any, queues: Any, chunks: Any) -> Any:
    """Return the first chunk of a queue; a single chunk is in the first queue."""
    return (queue * chunks + queues - 1) // queues


@_compiled()
def _walk(steps: Any, counters: Any, queues: Any, own: Any) -> None:
    """Run every step as one of the threads that share `counters`, starting with queue number `own`.

    Counters are apart by a cache line: for each step, what was claimed of each queue, then what is done.
    """
    base = counters.ctypes.data
    for i in range(len(steps)):
        done = base + (i * (queues + 1) + queues) * _LINE_BYTES
        chunks = steps[i, 2]
        for turn in range(queues):
            queue = (own + turn) % queues
            claimed = base + (i * (queues + 1) + queue) * _LINE_BYTES
            low, high = _first(queue, queues, chunks), _first(queue + 1, queues, chunks)
            while low < high:
                chunk = low + _claim(claimed)
                if chunk >= high:
                    break
                _call_kernel(steps[i, 0], steps[i, 1], chunk)
                _claim(done)
        _meet(done, chunks)


@_compiled()
def _walk_timed(steps: Any, counters: Any, times: Any) -> None:
    """Like `_walk` with one queue; who claims the first chunk notes the start, and who ends the last one the end."""
    base = counters.ctypes.data
    for i in range(len(steps)):
        claimed = base + 2 * i * _LINE_BYTES
        done = claimed + _LINE_BYTES
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
def _run_parallel(steps: Any, callers: Any) -> None:
    every = _thread_count()
    threads = max(1, every // callers)
    queues = min(threads, _MOST_QUEUES)
    counters = _counters(len(steps), queues)
    _set_thread_count(threads)
    for thread in numba.prange(threads):
        _walk(steps, counters, queues, np.int64(thread))
    _set_thread_count(every)


@_compiled()
def _time_serial(steps: Any, times: Any) -> None:
    for i in range(len(steps)):
        times[i, 0] = _seconds()
        _run_serial(steps[i : i + 1])
        times[i, 1] = _seconds()


@_compiled(parallel=True)
def _time_parallel(steps: Any, times: Any) -> None:
    counters = _counters(len(steps), 1)
    for _ in numba.prange(_thread_count()):
        _walk_timed(steps, counters, times)


@dataclass
class _Process:
    """What this process may do: a child forked from one that had threads must not start any.

    `last_call_s` is when the last run began that could have been shared; `running` has an entry for each shared run.
    """

    single: bool = False
    lock: Lock = field(default_factory=Lock)
    running: list[None] = field(default_factory=list[None])
    last_call_s: float = -inf


_process = _Process()


def _after_fork() -> None:
    # OpenMP's threads are gone in the child, and its runtime kills or hangs whoever asks for them
    _process.single = _process.single or _layers._is_initialized or "torch" in sys.modules
    _process.lock = Lock()
    _process.running = []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@cache
def _threading_layer() -> str:
    """Launch numba's threads and return their layer: OpenMP unless the user has chosen another."""
    if not _layers._is_initialized and _config.THREADING_LAYER == "default":
        _config.THREADING_LAYER = "omp" if _has_openmp() else "workqueue"
    numba.get_num_threads()
    layer = _numba.threading_layer()
    if layer == "workqueue":
        warnings.warn(
            "numba has no OpenMP here: each run takes 0.1 ms longer and concurrent runs wait for each other; "
            "install the OpenMP runtime (libgomp1 on Debian, libomp on macOS)",
            RuntimeWarning,
            stacklevel=3,
        )
    return layer


def _has_openmp() -> bool:
    try:
        import_module("numba.np.ufunc.omppool")
    except ImportError:
        return False
    return True


def _region() -> AbstractContextManager[Any]:
    """Return what to hold while threads run: numba's own work queue takes one caller at a time."""
    return _process.lock if _threading_layer() == "workqueue" else nullcontext()


def run(steps: Steps, saved_s: float = inf) -> None:
    """Run all steps, in order, with numba's number of threads; may be called from several threads at once.

    Callers divide the threads between them.

    `saved_s`: what sharing them is predicted to save. The calling thread runs alone if that is less than calling others
    takes, or waking them where they are not awake from a call just before.
    """
    if is_alone(saved_s):
        _run_serial(steps)
        return
    region, running = _region(), _process.running
    running.append(None)
    try:
        with region:
            _run_parallel(steps, len(running))
    finally:
        running.pop()


def is_alone(saved_s: float) -> bool:
    """Whether a run is for the calling thread alone that takes so much longer then; notes that there was one."""
    if saved_s < CALL_S or _process.single:
        return True
    now = time.monotonic()
    since, _process.last_call_s = now - _process.last_call_s, now
    return saved_s < WAKE_S and since > BURST_S


def run_timed(steps: Steps) -> NDArray[np.float64]:
    """Run all steps and return how long each took, in seconds, start of first chunk to end of last."""
    times = np.zeros((len(steps), 2))
    if thread_count() == 1:
        _time_serial(steps, times)
    else:
        with _region():
            _time_parallel(steps, times)
    return times[:, 1] - times[:, 0]


def thread_count() -> int:
    """Return how many threads `run` uses at most in this process."""
    if _process.single:
        return 1
    _threading_layer()
    return numba.get_num_threads()
