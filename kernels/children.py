"""Work that forked processes do: kernels are compiled in them, and candidates priced."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from math import inf
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

log = logging.getLogger(__name__)

_PATIENCE_S = 60.0
_NAP_S = 0.005
"""Whoever sleeps for so long is asleep."""
_NUMBER_BYTES = 4


def spread(work: Callable[[int], Any], order: Sequence[int], processes: int | None = None) -> dict[int, Any]:
    """Let children do the work of each number, each the next that none has begun; this process keeps its memory.

    There are as many of them as processors in reach unless told. Return what they found. What is missing is the
    caller's to do: a child has met an error in it, or was ended, or there was none.
    """
    if not _may_fork():
        return {}
    count = min(processes or len(os.sched_getaffinity(0)), len(order))
    if count < 2:
        return {}
    found: dict[int, Any] = {}
    with suppress(OSError), ExitStack() as files:  # where no file can be had for it
        queue = files.enter_context(TemporaryFile())  # after a fork all processes read on from one place
        queue.write(b"".join(n.to_bytes(_NUMBER_BYTES, "little") for n in order))
        queue.flush()
        os.lseek(queue.fileno(), 0, os.SEEK_SET)
        answers = [files.enter_context(TemporaryFile()) for _ in range(count)]
        forked: list[int] = []
        with suppress(OSError):  # where there may be no more processes
            forked.extend(_forked(work, queue.fileno(), answer) for answer in answers)
        _wait(forked, queue.fileno())
        for answer in answers:
            answer.seek(0)
            with suppress(EOFError, pickle.UnpicklingError):
                found.update(pickle.load(answer))
    return found


def _may_fork() -> bool:
    """Whether a child can work: a thread that is awake might hold a lock that would never be released in it."""
    if sys.platform != "linux":
        return False
    others = [thread.native_id for thread in threading.enumerate() if thread is not threading.current_thread()]
    if not others:
        return True
    before = [*map(_sleep_of, others)]
    time.sleep(_NAP_S)
    return None not in before and before == [*map(_sleep_of, others)]


def _sleep_of(thread: int | None) -> list[str] | None:
    """Return how often a thread was put to sleep; None if it is awake."""
    try:
        lines = Path(f"/proc/self/task/{thread}/status").read_text().splitlines()
    except OSError:
        return None
    return [line for line in lines if "ctxt_switches" in line] if "State:\tS (sleeping)" in lines else None


def _forked(work: Callable[[int], Any], queue: int, answer: IO[bytes]) -> int:
    with warnings.catch_warnings():
        # Python warns of threads that libraries have started; the child runs nothing but the work
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    gc.disable()  # what the parent has left to be freed is not the child's: memory on a device, for one
    found: dict[int, Any] = {}
    try:
        while number := os.read(queue, _NUMBER_BYTES):
            found[int.from_bytes(number, "little")] = work(int.from_bytes(number, "little"))
    finally:
        try:
            pickle.dump(found, answer)
            answer.flush()
        finally:
            os._exit(0)  # the parent meets the same error and raises it


def _wait(children: Sequence[int], queue: int) -> None:
    """Wait until all are done, or until no work was begun for long: the others are ended, as after an interrupt."""
    waiting = set(children)
    begun, deadline = -1, inf
    try:
        while waiting and time.monotonic() < deadline:
            waiting = {child for child in waiting if not _has_ended(child, os.WNOHANG)}
            place = os.lseek(queue, 0, os.SEEK_CUR)
            if place != begun:
                begun, deadline = place, time.monotonic() + _PATIENCE_S
            time.sleep(0.002)
    finally:
        for child in waiting:
            log.warning("process %d is ended before it is done", child)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            _has_ended(child, 0)


def _has_ended(child: int, options: int) -> bool:
    """Whether a child has ended, or is gone since somebody else waited for it."""
    try:
        return os.waitpid(child, options) != (0, 0)
    except ChildProcessError:
        return True
