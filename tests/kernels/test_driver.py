"""The driver: chunks, threads, callers, forks and clocks."""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch
from llvmlite import ir

from frittata import collector
from frittata.kernels import driver
from frittata.kernels.compile import CompiledKernel, compile_kernel
from frittata.kernels.flow import for_range
from frittata.kernels.intrinsics import make_tile_intrinsic, table_pointer, table_value
from frittata.kernels.memory import load, store
from frittata.kernels.simd import Lane

Array = np.ndarray[Any, np.dtype[Any]]
CHUNKS = 7
LANE = Lane("f64")


@pytest.fixture(scope="module")
def affine() -> CompiledKernel:
    """Return a kernel that sets `data[i] = data[i] * scale + i` in its chunk of `size` elements."""

    def emit(builder: Any, table: Any, chunk: Any) -> None:
        data, scale = table_pointer(builder, table, 0, "f64"), table_pointer(builder, table, 1, "f64")
        size = table_value(builder, table, 2)
        factor = load(builder, LANE, scale)

        def body(i: Any, _: Any) -> list[Any]:
            scaled = builder.fmul(load(builder, LANE, data, i), factor)
            store(builder, builder.fadd(scaled, builder.sitofp(i, ir.DoubleType())), data, i)
            return []

        first = builder.mul(chunk, size)
        for_range(builder, first, builder.add(first, size), 1, [], body)

    source = "def affine(table, chunk):\n    body(table, chunk)\n"
    return compile_kernel(source, "affine", {"body": make_tile_intrinsic("body", emit, 1)})


class Chain:
    """A program of `length` steps over one buffer, and what it should compute."""

    def __init__(self, kernel: CompiledKernel, length: int = 50, size: int = 100) -> None:
        self.data = np.zeros(CHUNKS * size)
        self.scale = np.array([0.5])
        self.table = np.array([self.data.ctypes.data, self.scale.ctypes.data, size], np.int64)
        self.steps = driver.Steps([[kernel.address, self.table.ctypes.data, CHUNKS]] * length)
        self.expected = np.zeros_like(self.data)
        for _ in range(length):
            self.expected = self.expected * 0.5 + np.arange(len(self.data))

    def run(self) -> Array:
        self.data[:] = 0
        driver.run(self.steps)
        return self.data.copy()

    def agrees(self) -> bool:
        return bool((self.run() == self.expected).all())


def test_steps_run_in_order_and_every_chunk_once(affine: CompiledKernel) -> None:
    assert Chain(affine).agrees()


@pytest.mark.parametrize("size", [1, 10])
def test_steps_of_few_and_of_many_chunks_may_follow_each_other(affine: CompiledKernel, size: int) -> None:
    data, scale = np.zeros(24 * size), np.array([0.5])
    counts = [1, 2, 3, 4, 6, 8, 12, 24, 1, 1, 2]
    tables = [np.array([data.ctypes.data, scale.ctypes.data, len(data) // n], np.int64) for n in counts]
    rows = [[affine.address, table.ctypes.data, n] for table, n in zip(tables, counts, strict=True)]
    expected = np.zeros_like(data)
    for _ in counts:
        expected = expected * 0.5 + np.arange(len(data))
    driver.run(driver.Steps(rows))
    np.testing.assert_array_equal(data, expected)


@pytest.mark.parametrize(("chunks", "threads"), [(1, 1), (1, 4), (5, 2), (7, 3), (64, 8)])
def test_chunks_fall_into_queues_in_order(chunks: int, threads: int) -> None:
    found = driver.queues(chunks, threads)
    assert [chunk for queue in found for chunk in queue] == list(range(chunks))
    assert len(found) == min(threads, 4)
    assert chunks > 1 or len(found[0]) == 1


def test_a_program_may_have_no_steps() -> None:
    driver.run(driver.Steps([]))


@pytest.mark.parametrize("saved_s", [0, math.inf], ids=["alone", "shared"])
def test_the_caller_does_something_else_once_meanwhile(affine: CompiledKernel, saved_s: float) -> None:
    chain, calls = Chain(affine), list[int]()
    for _ in range(20):
        chain.data[:] = 0
        driver.run(chain.steps, saved_s, lambda: calls.append(1))
        np.testing.assert_array_equal(chain.data, chain.expected)
    assert len(calls) == 20


def test_what_has_begun_is_run_whatever_the_caller_meets_meanwhile(affine: CompiledKernel) -> None:
    chain = Chain(affine)

    def fail() -> None:
        raise KeyError("meanwhile")

    with pytest.raises(KeyError, match="meanwhile"):
        driver.run(chain.steps, math.inf, fail)
    np.testing.assert_array_equal(chain.data, chain.expected)
    assert chain.agrees()


@pytest.mark.parametrize("threads", [1, 2])
def test_results_do_not_depend_on_the_number_of_threads(affine: CompiledKernel, threads: int) -> None:
    chain, before = Chain(affine), numba.get_num_threads()
    numba.set_num_threads(min(threads, before))
    try:
        assert chain.agrees()
    finally:
        numba.set_num_threads(before)


@pytest.mark.parametrize("count", [2, 20])
def test_callers_in_several_threads_do_not_disturb_each_other(affine: CompiledKernel, count: int) -> None:
    good: list[bool] = []

    def work() -> None:
        chain = Chain(affine)
        good.append(all(chain.agrees() for _ in range(20)))

    callers = [threading.Thread(target=work) for _ in range(count)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert good == [True] * count


def test_small_programs_wake_no_workers_but_use_those_awake(affine: CompiledKernel) -> None:
    chain, small = Chain(affine), driver.WAKE_S / 2
    chain.run()
    deadline = time.monotonic() + 60
    while len(driver.workers().asleep) < workers() and time.monotonic() < deadline:
        time.sleep(2 * driver.BURST_S)
    assert driver.is_alone(small) == (workers() > 0)
    assert not driver.is_alone(2 * driver.WAKE_S)
    assert not driver.is_alone(small)  # one after the other: more will come
    assert chain.agrees()  # wakes them
    assert not driver.is_alone(small)
    assert driver.is_alone(driver.CALL_S / 2)  # little to gain even with workers that are awake


def test_torch_may_use_its_own_threads_between_runs(affine: CompiledKernel) -> None:
    chain, before = Chain(affine), torch.get_num_threads()
    x = torch.randn(200, 200)
    try:
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            for _ in range(5):
                product = x @ x
                assert chain.agrees()
                torch.testing.assert_close(x @ x, product)
    finally:
        torch.set_num_threads(before)


def workers() -> int:
    """Count the workers of this process."""
    return sum(thread.name.startswith("frittata") for thread in threading.enumerate())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
def test_a_forked_child_has_workers_of_its_own(affine: CompiledKernel) -> None:
    chain = Chain(affine)
    assert chain.agrees()
    context = multiprocessing.get_context("fork")
    results: Any = context.SimpleQueue()

    def work() -> None:
        agrees = all(chain.agrees() for _ in range(20))
        results.put((agrees, workers()))

    child = context.Process(target=work)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert results.get() == (True, workers())


def test_first_callers_at_the_same_moment_start_one_set_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    class Slow:
        def __init__(self, count: int) -> None:
            started.append(count)
            time.sleep(0.05)

        def end(self) -> None: ...

    monkeypatch.setattr(driver, "Workers", Slow)
    monkeypatch.setattr(driver, "_of_process", [])
    together = threading.Barrier(4)
    found: list[Any] = []

    def call() -> None:
        together.wait()
        found.append(driver.workers())

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(started) == len(set(found)) == 1


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> driver.Workers:
    """Return workers in the place of the process's own, none of which ever comes."""
    driver.workers()  # the code cannot be loaded before
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    found = driver.Workers(3)
    monkeypatch.setattr(driver, "workers", lambda: found)
    return found


@pytest.mark.usefixtures("idle")
def test_a_run_waits_for_no_worker_that_has_not_come(affine: CompiledKernel) -> None:
    assert Chain(affine).agrees()


def test_a_caller_beside_too_many_runs_alone(affine: CompiledKernel, idle: driver.Workers) -> None:
    vars(idle)["_memory"][:] = 1  # all places have a caller
    chain = Chain(affine)
    assert chain.agrees()
    start = time.monotonic()
    seconds = driver.run_timed(chain.steps)
    assert (seconds > 0).all() and seconds.sum() <= time.monotonic() - start


def test_code_on_disk_is_loaded_without_preparing_the_compiler(tmp_path: Path) -> None:
    program = """if True:
        import sys
        from frittata.kernels import driver

        driver.run(driver.Steps([]))
        print("numba.np.linalg" in sys.modules)
    """
    command, environment = [sys.executable, "-c", program], {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    answers = [subprocess.run(command, env=environment, capture_output=True, check=True).stdout for _ in range(2)]
    assert [answer.split() for answer in answers] == [[b"True"], [b"False"]]


DAMAGE: list[tuple[str, Callable[[bytes], bytes]]] = [("nbi", lambda _: b""), ("nbc", lambda code: bytes(len(code)))]


@pytest.mark.parametrize(("kind", "damaged"), DAMAGE, ids=["empty", "zeros"])
def test_damaged_code_on_disk_is_made_again(kind: str, damaged: Callable[[bytes], bytes], tmp_path: Path) -> None:
    run = "from frittata.kernels import driver; driver.run(driver.Steps([]))"
    fixed = "from numba.core.caching import IndexDataCacheFile\ndef flush(self): raise OSError\n"
    fixed += "IndexDataCacheFile.flush = flush\n"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", run], env=environment, check=True)
    before = {path: path.read_bytes() for path in tmp_path.rglob(f"*.{kind}")}
    for program in (fixed + run, run):
        for path, content in before.items():
            path.write_bytes(damaged(content))
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert before and all(path.read_bytes() != damaged(content) for path, content in before.items())


def callers() -> int:
    """Return how many runs hold a place that workers come to."""
    return ctypes.c_int64.from_address(driver.workers().offers + vars(driver)["_LINE_BYTES"]).value


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Let a timer interrupt what the test does, and no freeing of code meanwhile, which would keep llvmlite's lock."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    if not hasattr(signal, "setitimer"):
        pytest.skip("no timers on this system")
    before = signal.signal(signal.SIGALRM, interrupt)
    with collector.resting():
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("interrupts")
def test_what_interrupts_a_run_takes_no_place_from_others(affine: CompiledKernel) -> None:
    chain, caught = Chain(affine, 5), 0

    def nothing() -> None: ...

    def run_for(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            driver.run(chain.steps)
            driver.run(chain.steps, math.inf, nothing)

    driver.run(chain.steps)  # an interrupt while code is loaded would keep llvmlite's lock
    for seconds in np.random.default_rng(0).uniform(2e-4, 1e-3, 1500):
        try:
            run_for(seconds)
        except KeyboardInterrupt:
            caught += 1
    assert caught == 1500 and callers() == 0
    assert chain.agrees()


@pytest.mark.usefixtures("interrupts")
def test_what_interrupts_waking_leaves_nobody_asleep() -> None:
    workers = object.__new__(driver.Workers)
    locks = [threading.Lock() for _ in range(20_000)]
    for seconds in np.linspace(1e-4, 1e-3, 50):
        for lock in locks:
            lock.acquire(blocking=False)
        workers.asleep = locks.copy()
        with suppress(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, seconds)
            workers.wake()
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert all(lock.locked() for lock in workers.asleep)
        assert sum(lock.locked() for lock in locks) == len(workers.asleep)


def test_seconds_are_measured_for_each_step(affine: CompiledKernel) -> None:
    small, large = Chain(affine, 1, 10), Chain(affine, 1, 100_000)
    steps = driver.Steps(np.concatenate([chain.steps.rows for chain in (small, large, small)]))
    driver.run_timed(steps)
    seconds = driver.run_timed(steps)
    assert seconds.shape == (3,)
    assert (seconds >= 0).all()
    assert 1e-5 < seconds[1] < 1
    assert seconds[1] > 2 * min(seconds[0], seconds[2])


def test_the_time_of_a_step_begins_with_whichever_chunk_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks, each_s, before = 4, 0.01, numba.get_num_threads()
    if before < 2:
        pytest.skip("there are no workers")
    native, ended, all_ended = vars(driver)["_native"](), list[int](), threading.Event()

    def kernel(_table: int, chunk: int) -> None:
        time.sleep(each_s)
        ended.append(chunk)
        if len(ended) == chunks:
            all_ended.set()

    def late(*run: int) -> None:
        native.offer(*run)
        while not all_ended.wait(0.1):
            driver.workers().wake()  # what is offered just before one falls asleep it may not see
        native.join(*run)

    code = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(kernel)
    address = ctypes.cast(code, ctypes.c_void_p).value
    assert address is not None
    monkeypatch.setattr(driver, "_native", lambda: native._replace(shared=late))
    numba.set_num_threads(2)
    try:
        (seconds,) = driver.run_timed(driver.Steps([[address, 0, chunks]]))
    finally:
        numba.set_num_threads(before)
    assert seconds >= chunks * each_s


def test_a_worker_that_waits_for_python_takes_part_in_what_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    native, threads = vars(driver)["_native"](), set[int]()
    has_waited, offered, both = threading.Event(), threading.Event(), threading.Event()

    def serve(offers: int, number: int, seen: int, seconds: float) -> int:
        if has_waited.is_set():
            return native.serve(offers, number, seen, seconds)
        has_waited.set()
        offered.wait()
        return seen

    def kernel(_table: int, _chunk: int) -> None:
        threads.add(threading.get_ident())
        if len(threads) == 2:
            both.set()
        both.wait(10)

    code = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(kernel)
    address = ctypes.cast(code, ctypes.c_void_p).value
    assert address is not None
    monkeypatch.setattr(driver, "_native", lambda: native._replace(serve=serve))
    workers, steps = driver.Workers(1), driver.Steps([[address, 0, 2]])
    run = steps.first, steps.count, 0, steps.counters, workers.offers
    try:
        has_waited.wait()
        native.offer(*run)
        offered.set()
        native.join(*run)
        assert len(threads) == 2
    finally:
        offered.set()
        workers.end()
