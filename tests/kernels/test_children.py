"""Work is done by forked processes; what one of them leaves undone is left to the caller."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from frittata.kernels import children, driver
from frittata.kernels.children import spread

of_children = pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux alone")
PARENT = os.getpid()


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_may_fork", lambda: True)


def squared(number: int) -> tuple[int, bool]:
    return number * number, os.getpid() == PARENT


ALL = {n: (n * n, False) for n in range(9)}


@of_children
@pytest.mark.usefixtures("forking")
def test_children_find_all() -> None:
    assert spread(squared, range(9), 3) == ALL


@of_children
@pytest.mark.usefixtures("forking")
def test_a_child_does_the_next_that_none_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is given up at once: the other does all."""
    begun, forked = os.fork, list[int]()

    def fork() -> int:
        child = begun()
        if not child and forked:
            os._exit(1)
        forked.append(child)
        return child

    monkeypatch.setattr(os, "fork", fork)
    assert spread(squared, range(9), 2) == ALL
    assert len(forked) == 2


@of_children
@pytest.mark.usefixtures("forking")
@pytest.mark.parametrize("most", [0, 1])
def test_where_there_may_be_no_more_processes_those_that_are_there_do_all(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, forked = os.fork, list[int]()

    def fork() -> int:
        if len(forked) == most:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        child = begun()
        forked.append(child)
        return child

    monkeypatch.setattr(os, "fork", fork)
    assert spread(squared, range(9), 2) == (ALL if most else {})


@of_children
@pytest.mark.usefixtures("forking")
def test_without_files_the_work_is_left_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(children, "TemporaryFile", none)
    assert spread(squared, range(9), 2) == {}


def test_one_piece_of_work_is_left_to_the_caller() -> None:
    assert spread(squared, [4], 2) == {} == spread(squared, range(9), 1)


@of_children
@pytest.mark.usefixtures("forking")
def test_an_error_ends_a_child_and_what_was_done_before_is_kept() -> None:
    def work(number: int) -> int:
        if number >= 2:
            raise ValueError(f"not {number}")
        return number

    assert spread(work, range(9), 2) == {0: 0, 1: 1}


@of_children
@pytest.mark.usefixtures("forking")
def test_an_answer_that_cannot_be_sent_is_missing() -> None:
    assert spread(lambda number: threading.Lock() if number else 0, range(3), 2).keys() <= {0}


@of_children
def test_a_process_whose_other_threads_sleep_may_fork() -> None:
    driver.workers()
    deadline = time.monotonic() + 60
    may_fork: Any = vars(children)["_may_fork"]
    ends = threading.Event()

    def compute() -> None:
        while not ends.is_set():
            pass

    threads = [threading.Thread(target=ends.wait), threading.Thread(target=compute)]
    threads[0].start()
    try:
        while not may_fork() and time.monotonic() < deadline:  # as soon as our own workers sleep
            time.sleep(2 * driver.BURST_S)
        assert time.monotonic() < deadline
        threads[1].start()
        assert not may_fork()
    finally:
        ends.set()
    for thread in threads:
        thread.join()


@of_children
@pytest.mark.usefixtures("forking")
def test_a_child_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_PATIENCE_S", 0.2)
    assert spread(lambda _: time.sleep(60), range(4), 2) == {}


def wait_for_any(*_: Any) -> None:
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@of_children
@pytest.mark.usefixtures("forking")
@pytest.mark.parametrize("handler", [signal.SIG_IGN, wait_for_any], ids=["nobody", "others"])
def test_children_for_which_others_wait_are_no_error(handler: Any) -> None:
    before = signal.signal(signal.SIGCHLD, handler)
    try:
        assert spread(squared, range(9), 2) == ALL
    finally:
        signal.signal(signal.SIGCHLD, before)


@of_children
@pytest.mark.usefixtures("forking")
def test_an_interrupt_leaves_no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    whole = vars(children)["_forked"]

    def noted(*given: Any) -> int:
        found.append(whole(*given))
        return found[-1]

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    class Clock:
        monotonic, sleep = time.monotonic, staticmethod(interrupt)

    monkeypatch.setattr(children, "_forked", noted)
    monkeypatch.setattr(children, "time", Clock)
    with pytest.raises(KeyboardInterrupt):
        spread(lambda _: time.sleep(60), range(4), 2)
    assert len(found) == 2
    for child in found:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
