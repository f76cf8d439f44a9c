"""What is another while torch exports a module: locks that each export holds, and what would find it so in a thread."""

import os
import threading

MODULES = threading.RLock()
"""Held by what reads a module's tensors: there are stand-ins, and copies of its buffers."""

BUILTINS = threading.RLock()
"""Held while numba compiles: `max`, `min` and `math.pow` are torch's own, in the whole process."""


def _begin() -> None:
    BUILTINS.acquire()
    MODULES.acquire()


def _end() -> None:
    MODULES.release()
    BUILTINS.release()


if hasattr(os, "register_at_fork"):  # a child has no thread that would end an export
    os.register_at_fork(before=_begin, after_in_parent=_end, after_in_child=_end)
