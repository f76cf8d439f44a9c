"""Running a program: one prebuilt function walks a table of kernels with all threads, without Python between kernels.

A step is a row (kernel address, argument-table address, chunk count). The threads claim chunks one by one and meet at
the end of each step; a chunk is claimed only by a thread that runs, so any number of threads makes progress. A thread
starts with chunks of its own, the same ones in every run, so that what they read may still lie in its cache; then it
helps the others. Which thread runs a chunk changes nothing that is computed: results do not depend on their number.

The caller is one of the threads; the others are workers, which wait for steps to be offered, first awake, then asleep.
No run waits for a worker that has not come: where other threads hold the cores, those of torch's last operator for one,
the caller does all by itself. (A region of OpenMP ends only when every thread of it has been there. A thread that waits
awake for another on its own core waits until the system takes the core from it: 4 to 8 ms, measured.)

To wake workers takes longer than a small program, and to share with those that are awake takes time as well. `run`
is told what sharing the steps is predicted to save, and shares them where that is worth it.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import pairwise
from math import inf
from operator import methodcaller
from pickle import UnpicklingError
from threading import Lock, Thread
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils, registry
from numba.core.caching import NullCache
from numba.core.runtime.nrt import rtsys
from numpy.typing import ArrayLike, NDArray

from frittata.egraph.errors import CompileError
from frittata.egraph.exporting import BUILTINS

log = logging.getLogger(__name__)

_numba: Any = numba
_intrinsic: Any = extending.intrinsic
_registry: Any = registry
_rtsys: Any = rtsys


_I32, _I64 = ir.IntType(32), ir.IntType(64)
_LINE_BYTES = 64
_WORD_BYTES = 8
_MOST_QUEUES = 4
"""The parts that the chunks of a step are cut into, at most; threads beyond share them."""
_NOTED_BYTES = (_MOST_QUEUES + 1) * _WORD_BYTES
"""What is noted of a step: when each queue began, and when the last chunk ended."""
_SPINS = 8
"""So often a thread pauses before it looks again whether it may go on; after some looks it lets others run."""
_LOOKS_BEFORE_YIELD = 64
_CLOCK = time.CLOCK_MONOTONIC

WAKE_S = 50e-6
"""What waking workers takes. Measured on two cores of virtual machines: 10 to 30 us with Zen 3, 80 us with Zen 5."""
CALL_S = 2e-6
"""What sharing a run takes with workers that are awake: what each core has to fetch from the cache of the other."""
BURST_S = 2e-3
"""How long workers stay awake after a run for the next one."""

_DAMAGED = (UnpicklingError, EOFError, ValueError, LookupError, TypeError, AttributeError, ImportError, RuntimeError)
"""What numba raises for files of its own that cannot be read."""

_MOST_RUNS = 8
"""So many runs are shared at a time; further callers run theirs alone."""
_RUN_BYTES = 2 * _LINE_BYTES
_CLOSED, _OPEN = 0, 1
"""Whether a run's place in memory is open to workers. Its words: state, workers inside, seats taken, seats; then the
address and number of steps, the address of counters, the number of queues, where times are noted, or 0, and whether a
caller has the place. Before the places are, each in a line, how many offers were made, and how many callers have one.

Nothing of a run is in the hands of Python alone: what it has taken it could lose where an interrupt arrives."""


class Steps:
    """Rows of (kernel address, argument-table address, chunk count), and where the `count` of them begin in memory.

    They are run by one caller at a time: beside them are the counters of a run, and before these the address of the
    place where it is shared, or 0.
    """

    __slots__ = ("_counters", "count", "counters", "first", "rows")

    def __init__(self, rows: ArrayLike) -> None:
        self.rows = np.ascontiguousarray(rows, np.int64).reshape(-1, 3)
        self.first, self.count = self.rows.ctypes.data, len(self.rows)
        words = (1 + self.count * (_MOST_QUEUES + 1)) * (_LINE_BYTES // _WORD_BYTES)
        self._counters = np.zeros(words, np.int64)
        self.counters = self._counters.ctypes.data + _LINE_BYTES


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
def _add(_context: Any, address: Any, number: Any) -> Any:
    """Add to a counter and return what it was."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, arguments[0]), arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@_intrinsic
def _put(_context: Any, address: Any, number: Any) -> Any:
    """Write a word, after all that was written before it, and return what it was."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("xchg", _pointer(builder, arguments[0]), arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@_intrinsic
def _read(_context: Any, address: Any) -> Any:
    """Read a word, and see all that was written before it was."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_pointer(builder, arguments[0]), "seq_cst", _WORD_BYTES)

    return types.int64(types.int64), generate


@_intrinsic
def _thread_count(_context: Any) -> Any:
    """Ask numba how many threads the calling thread may use; numba must have been asked before."""

    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        return _symbol(builder, "get_num_threads", _I64, [])

    return types.int64(), generate


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


def _now(builder: Any) -> Any:
    """Read the monotonic clock, in seconds."""
    time_type = ir.LiteralStructType([_I64, _I64])
    slot = cgutils.alloca_once(builder, time_type)
    _symbol(builder, "clock_gettime", _I32, [_I32(_CLOCK), slot])
    whole, nano = (builder.sitofp(builder.extract_value(builder.load(slot), i), ir.DoubleType()) for i in (0, 1))
    return builder.fadd(whole, builder.fmul(nano, ir.DoubleType()(1e-9)))


@_intrinsic
def _seconds(_context: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        return _now(builder)

    return types.float64(), generate


@_intrinsic
def _note_seconds(_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        builder.store(_now(builder), builder.inttoptr(arguments[0], ir.DoubleType().as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64), generate


@_intrinsic
def _clear(_context: Any, address: Any, size: Any) -> Any:
    """Set so many bytes to 0."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        cgutils.memset(builder, _pointer(builder, arguments[0]), arguments[1], 0)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


_functions: list[Any] = []


def compiled(function: Any) -> Any:
    """Compile with numba and keep the code on disk, if there is a place for it.

    Raises: CompileError if numba is told to compile nothing.
    """
    if _numba.config.DISABLE_JIT:
        raise CompileError("numba is told to compile nothing", where="NUMBA_DISABLE_JIT", do="take it out")
    try:
        found = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:
        found = numba.njit(nogil=True)(function)
    _functions.append(found)
    return found


@compiled
def _wait(looks: Any) -> None:
    """Let some time go by before the next look at what another thread does."""
    for _ in range(_SPINS):
        _pause()
    if looks % _LOOKS_BEFORE_YIELD == _LOOKS_BEFORE_YIELD - 1:
        _yield()


@compiled
def _first(queue: Any, queues: Any, chunks: Any) -> Any:
    """Return the first chunk of a queue; a single chunk is in the first queue."""
    return (queue * chunks + queues - 1) // queues


def queues(chunks: int, threads: int) -> list[range]:
    """Return the chunks of each queue in order; thread i begins with queue number i, and helps with those after it."""
    count = min(threads, _MOST_QUEUES)
    starts = [_first.py_func(queue, count, chunks) for queue in range(count + 1)]
    return [range(*each) for each in pairwise(starts)]


@compiled
def _walk(steps: Any, count: Any, counters: Any, queues: Any, own: Any, times: Any) -> None:
    """Run every step as one of the threads that share `counters`, starting with queue number `own`.

    Counters are apart by a cache line: for each step, what was claimed of each queue, then what is done. Where `times`
    are wanted, who claims the first chunk of a queue notes when that was, and who ends the last one of all the end.
    """
    for i in range(count):
        noted = times + i * _NOTED_BYTES
        kernel, table, chunks = _read(steps + 24 * i), _read(steps + 24 * i + 8), _read(steps + 24 * i + 16)
        done = counters + (i * (queues + 1) + queues) * _LINE_BYTES
        for turn in range(queues):
            queue = (own + turn) % queues
            claimed = counters + (i * (queues + 1) + queue) * _LINE_BYTES
            low, high = _first(queue, queues, chunks), _first(queue + 1, queues, chunks)
            while low < high:
                chunk = low + _add(claimed, 1)
                if chunk >= high:
                    break
                if times != 0 and chunk == low:
                    _note_seconds(noted + queue * _WORD_BYTES)
                _call_kernel(kernel, table, chunk)
                if _add(done, 1) == chunks - 1 and times != 0:
                    _note_seconds(noted + _MOST_QUEUES * _WORD_BYTES)
        looks = 0
        while _read(done) < chunks:
            _wait(looks)
            looks += 1


@compiled
def _run_alone(steps: Any, count: Any, times: Any) -> None:
    for i in range(count):
        kernel, table, chunks = _read(steps + 24 * i), _read(steps + 24 * i + 8), _read(steps + 24 * i + 16)
        noted = times + i * _NOTED_BYTES
        if times != 0:
            _note_seconds(noted)
        for chunk in range(chunks):
            _call_kernel(kernel, table, chunk)
        if times != 0:
            _note_seconds(noted + _MOST_QUEUES * _WORD_BYTES)


@compiled
def _offer(steps: Any, count: Any, times: Any, counters: Any, offers: Any) -> None:
    """Let workers begin with a run, at a place that no other caller has, if there is one; note it before `counters`."""
    _put(counters - _LINE_BYTES, 0)
    for i in range(_MOST_RUNS):
        place = offers + (1 + i) * _RUN_BYTES
        if _put(place + 72, 1) != 0:
            continue
        threads = max(1, _thread_count() // (_add(offers + _LINE_BYTES, 1) + 1))
        queues = min(threads, _MOST_QUEUES)
        _clear(counters, count * (queues + 1) * _LINE_BYTES)
        _put(place + 16, 0)
        _put(place + 24, threads - 1)
        _put(place + 32, steps)
        _put(place + 40, count)
        _put(place + 48, counters)
        _put(place + 56, queues)
        _put(place + 64, times)
        _put(counters - _LINE_BYTES, place)
        _put(place, _OPEN)
        _add(offers, 1)
        break


@compiled
def _join(steps: Any, count: Any, times: Any, counters: Any, offers: Any) -> None:
    """Run what was offered together with the workers that come to its place, or alone without one, to the end."""
    place = _put(counters - _LINE_BYTES, 0)
    if place == 0:
        _run_alone(steps, count, times)
        return
    _walk(steps, count, counters, _read(place + 56), 0, times)
    _put(place, _CLOSED)
    looks = 0
    while _read(place + 8) > 0:  # a worker may still read the counters
        _wait(looks)
        looks += 1
    _add(offers + _LINE_BYTES, -1)
    _put(place + 72, 0)


@compiled
def _run_shared(steps: Any, count: Any, times: Any, counters: Any, offers: Any) -> None:
    """Offer a run and join it at once."""
    _offer(steps, count, times, counters, offers)
    _join(steps, count, times, counters, offers)


@compiled
def _serve(offers: Any, number: Any, seen: Any, awake_s: Any) -> Any:
    """Work as a worker until there was nothing to do for so long; return how many offers were seen."""
    until, looks = _seconds() + awake_s, 0
    while True:
        now = _read(offers)
        if now == seen:
            if looks % _LOOKS_BEFORE_YIELD == 0 and _seconds() > until:
                return seen
            _wait(looks)
            looks += 1
            continue
        seen = now
        for i in range(_MOST_RUNS):
            place = offers + (1 + i) * _RUN_BYTES
            if _read(place) != _OPEN:
                continue
            _add(place + 8, 1)
            if _read(place) == _OPEN and _add(place + 16, 1) < _read(place + 24):
                queues = _read(place + 56)
                steps, count, counters, times = (
                    _read(place + 32),
                    _read(place + 40),
                    _read(place + 48),
                    _read(place + 64),
                )
                _walk(steps, count, counters, queues, number % queues, times)
            _add(place + 8, -1)
        until, looks = _seconds() + awake_s, 0


class _Native(NamedTuple):
    """What of the above Python calls."""

    alone: Callable[[int, int, int], None]
    offer: Callable[[int, int, int, int, int], None]
    join: Callable[[int, int, int, int, int], None]
    shared: Callable[[int, int, int, int, int], None]
    serve: Callable[[int, int, int, float], int]


@cache
def _native() -> _Native:
    one, real = types.int64, types.float64
    numba.get_num_threads()  # launches numba's own threads, without which there is none of what tells how many
    return _Native(
        _entry(_run_alone, one, one, one),
        _entry(_offer, *[one] * 5),
        _entry(_join, *[one] * 5),
        _entry(_run_shared, *[one] * 5),
        _entry(_serve, one, one, one, real),
    )


def _entry(function: Any, *arguments: Any) -> Any:
    """Return the code for these types; what lies damaged on disk is made again."""
    try:
        return _from_disk(function, arguments) or _made(function, arguments)
    except _DAMAGED as error:
        log.warning("driver: what numba has kept cannot be read and will be made again: %s", error)
    for kept in _functions:
        try:
            kept._cache.flush()
        except OSError:
            kept._cache = NullCache()
    return _made(function, arguments)


def _from_disk(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Return the code if it is there, without what numba does before, 0.3 to 0.6 s.

    To load a function numba prepares to compile any other. All that the code needs is symbols of its memory management.
    """
    load = getattr(function._cache, "_load_overload", None)  # not in every numba; nor is there always a cache
    if load is None:
        return None
    context = _registry.cpu_target.target_context
    _rtsys.initialize(context)
    with suppress(OSError):
        found = load(arguments, context)
        return found and found.entry_point


def _made(function: Any, arguments: tuple[Any, ...]) -> Any:
    with BUILTINS:
        function.compile(arguments)
    return function.overloads[arguments].entry_point


class Workers:
    """The workers of a process, which live as long as it does, and the memory that they and callers share.

    That begins at `offers`. `asleep` has what wakes each worker that sleeps. `last_s` is when a small run found them
    asleep.
    """

    def __init__(self, count: int) -> None:
        self._memory = np.zeros((1 + _MOST_RUNS) * _RUN_BYTES // _WORD_BYTES + 16, np.int64)
        self.offers = self._memory.ctypes.data + -self._memory.ctypes.data % _RUN_BYTES
        self.asleep: list[Lock] = []
        self.last_s = -inf
        self._ended = False
        self._threads = [
            Thread(target=self._work, args=(1 + i,), name=f"frittata-{1 + i}", daemon=True) for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Let all workers look for runs again; one that falls asleep between this and an offer may miss it.

        No code of Python is between taking one and waking it: an interrupt there would leave it asleep for ever.
        """
        with suppress(IndexError):  # there are no more
            deque(map(methodcaller("release"), iter(self.asleep.pop, None)), maxlen=0)

    def _work(self, number: int) -> None:
        seen, wakes, serve = 0, Lock(), _native().serve
        wakes.acquire()
        while not self._ended:
            seen = serve(self.offers, number, seen, BURST_S)
            self.asleep.append(wakes)
            before, seen = seen, serve(self.offers, number, seen, 0.0)
            if seen != before:  # offered while Python kept this thread waiting: nobody could tell that it slept
                self.wake()
            wakes.acquire()

    def end(self) -> None:
        """End the threads before the interpreter does."""
        self._ended = True
        for thread in self._threads:
            while thread.is_alive():
                self.wake()
                thread.join(BURST_S)


_of_process: list[Workers] = []
_starting = Lock()


def workers() -> Workers:
    """Return the workers of this process, as many as numba would have threads beside the caller's."""
    if not _of_process:
        _start()
    return _of_process[0]


def _start() -> None:
    with _starting:
        if not _of_process:  # another caller may have been faster
            _native()  # before all workers ask for it at once
            found = Workers(_numba.config.NUMBA_NUM_THREADS - 1)
            atexit.register(found.end)
            _of_process.append(found)


def _begin_anew() -> None:
    """Forget the threads of the process that this one is a copy of: they do not survive a fork."""
    global _starting
    _starting = Lock()  # that of the other process may be taken
    _of_process.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def run(steps: Steps, saved_s: float = inf, meanwhile: Callable[[], None] | None = None) -> None:
    """Run all steps, in order, with numba's number of threads; may be called from several threads at once.

    Callers divide the threads between them.

    `saved_s`: what sharing them is predicted to save. The calling thread runs alone if that is less than sharing takes,
    or less than waking workers does where they sleep, unless a run follows another.
    `meanwhile`: what the calling thread does first; workers may begin before it has ended. The steps are run whatever
    it raises, if they have begun.
    """
    if is_alone(saved_s):
        if meanwhile is not None:
            meanwhile()
        _native().alone(steps.first, steps.count, 0)
    else:
        _share(steps, 0, meanwhile)


def is_alone(saved_s: float) -> bool:
    """Whether a run is for the calling thread alone that takes so much longer then; notes that there was one.

    Sleeping workers are woken for a small one that follows another: more will come.
    """
    if saved_s >= WAKE_S:
        return False
    if saved_s < CALL_S:
        return True
    found = workers()
    if not found.asleep:
        return False
    now = time.monotonic()
    since, found.last_s = now - found.last_s, now
    return since > BURST_S


def run_timed(steps: Steps) -> NDArray[np.float64]:
    """Run all steps and return the seconds that each took, from the start of the first chunk to the end of the last.

    What has no chunks takes 0.
    """
    times = np.full((steps.count, _MOST_QUEUES + 1), np.nan)
    _share(steps, times.ctypes.data, None)
    starts, ends = times[:, :-1], times[:, -1]
    return np.nan_to_num(ends - np.fmin.reduce(starts, axis=1))


def _share(steps: Steps, times: int, meanwhile: Callable[[], None] | None) -> None:
    """Run steps together with the workers, unless too many callers do."""
    found, native = workers(), _native()
    if found.asleep:
        found.wake()
    run = steps.first, steps.count, times, steps.counters, found.offers
    if meanwhile is None:
        native.shared(*run)
        return
    try:
        native.offer(*run)
        meanwhile()
    finally:
        native.join(*run)


def thread_count() -> int:
    """Return how many threads `run` uses at most: those of numba, as the calling thread has set them."""
    return numba.get_num_threads()
