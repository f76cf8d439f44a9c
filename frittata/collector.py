"""Python's collector of garbage, which rests while modules are loaded and a model is compiled."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def resting() -> Generator[None]:
    """Let the collector rest, unless it does already.

    What the stages make is kept to the end or freed at once; to look through it, again and again, took a tenth of their
    time. To look once through all that torch has made takes as long as to load our modules.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
