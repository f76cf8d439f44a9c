"""Compiling many kernels: those found in the cache are loaded, the others compiled by forked processes."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, Protocol, TypeVar

from frittata.egraph.errors import CompileError
from frittata.kernels import driver
from frittata.kernels.cache import KernelCache
from frittata.kernels.compile import CompiledKernel, compile_kernel, find_kernel, kernel_digest

log = logging.getLogger(__name__)

_FEWEST_TO_FORK = 4
_PATIENCE_S = 60.0
_NUMBER_BYTES = 4


Compiled = TypeVar("Compiled", covariant=True)


class Compilable(Protocol[Compiled]):
    """Source that is compiled to something that a cache keeps under `digest`."""

    @property
    def source(self) -> str:
        """The text."""
        ...

    @property
    def digest(self) -> str:
        """The content key."""
        ...

    def find(self, cache: KernelCache | None) -> Compiled | None:
        """Return what this process or the cache has of it."""
        ...

    def compile(self, cache: KernelCache | None) -> Compiled:
        """Compile it in this process, unless it is found.

        Raises: CompileError.
        """
        ...


@dataclass(frozen=True)
class KernelSource:
    """What `compile_kernel` takes, to be compiled later."""

    source: str
    name: str
    namespace: Mapping[str, Any] = field(repr=False)
    key: str = ""

    @property
    def digest(self) -> str:
        """The content key of the kernel."""
        return kernel_digest(self.source, self.key)

    def find(self, cache: KernelCache | None) -> CompiledKernel | None:
        """Return the kernel that this process or the cache has."""
        return find_kernel(self.name, self.digest, cache)

    def compile(self, cache: KernelCache | None) -> CompiledKernel:
        """Compile it in this process, unless it is found."""
        return compile_kernel(self.source, self.name, self.namespace, key=self.key, cache=cache)


def compile_kernels(
    sources: Sequence[Compilable[Compiled]], cache: KernelCache | None = None, processes: int | None = None
) -> tuple[list[Compiled], int]:
    """Compile kernels, equal ones once, in as many processes as there are processors unless told.

    Return them, and how many were compiled because neither this process nor the cache had them.

    Raises: CompileError if a compiler refuses one of them.
    """
    if cache is None:
        with TemporaryDirectory(prefix="frittata-") as folder:
            return compile_kernels(sources, KernelCache(Path(folder)), processes)
    unique = {source.digest: source for source in sources}
    found = {digest: kernel for digest, source in unique.items() if (kernel := source.find(cache)) is not None}
    new = {digest: source for digest, source in unique.items() if digest not in found}
    count = min(processes or os.cpu_count() or 1, len(new))
    if count > 1 and len(new) >= _FEWEST_TO_FORK and _may_fork():
        _compile_in_children(list(new.values()), cache, count)
    # whatever a child has left undone is compiled here, and an error in it raised here
    found.update((digest, source.compile(cache)) for digest, source in new.items())
    return [found[source.digest] for source in sources], len(new)


def _compile_in_children(sources: Sequence[Compilable[Any]], cache: KernelCache, count: int) -> None:
    """Let children compile, each the next that none has begun, the longest first; this process keeps its memory."""
    order = sorted(range(len(sources)), key=lambda n: -len(sources[n].source))
    with TemporaryFile() as queue:  # after a fork all processes read on from one place
        queue.write(b"".join(n.to_bytes(_NUMBER_BYTES, "little") for n in order))
        queue.flush()
        os.lseek(queue.fileno(), 0, os.SEEK_SET)
        _wait([_compile_in_child(sources, cache, queue.fileno()) for _ in range(count)], queue.fileno())


def _may_fork() -> bool:
    """Whether a child can compile: a thread that is awake might hold a lock that would never be released in it."""
    return sys.platform == "linux" and threading.active_count() == 1 + driver.asleep()


def _compile_in_child(sources: Sequence[Compilable[Any]], cache: KernelCache, queue: int) -> int:
    with warnings.catch_warnings():
        # Python warns of threads that libraries have started; the child runs nothing but the compiler
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    gc.disable()  # what the parent has left to be freed is not the child's: memory on a device, for one
    try:
        while number := os.read(queue, _NUMBER_BYTES):
            sources[int.from_bytes(number, "little")].compile(cache)
    except CompileError:
        pass  # the parent meets the same error and raises it
    finally:
        os._exit(0)


def _wait(children: Sequence[int], queue: int) -> None:
    """Wait until all are done, or until no kernel was begun for long: the others are ended, as after an interrupt."""
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
            log.warning("compile: process %d is ended before it is done", child)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            _has_ended(child, 0)


def _has_ended(child: int, options: int) -> bool:
    """Whether a child has ended, or is gone since somebody else waited for it."""
    try:
        return os.waitpid(child, options) != (0, 0)
    except ChildProcessError:
        return True
