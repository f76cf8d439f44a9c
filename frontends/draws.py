"""Functions that draw from the global generators of Python and numpy: traced, they would give one draw for ever."""

from __future__ import annotations

import gc
import pickle
import random
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from frittata.egraph.errors import ModelError


@contextmanager
def refused(what: str) -> Generator[None]:
    """Trace something, and refuse it if it moved a global generator.

    Raises: ModelError.
    """
    before = _states()
    yield
    if _states() != before:
        raise _refusal(what)


_BOUNDS = {
    **{(random, "random"): 0, (random, "uniform"): 2},
    **{(np.random, "random"): 0, (np.random, "rand"): 0, (np.random, "uniform"): 2},
}
"""Functions that draw one number, given at most so many arguments."""

_LOOKS = {*vars(float)} - {"__new__", "__getattribute__", "__doc__"}
"""Whatever there is to do with a number."""


@contextmanager
def unseen(what: str) -> Generator[None]:
    """Trace something in this thread that may draw numbers and not look at them, as layers dropped in training only.

    Raises: ModelError if it looks at one, or keeps it.
    """
    thread, seen = threading.get_ident(), list[bool]()

    def looked(*_: Any) -> Any:
        seen.append(True)
        raise _refusal(what)

    number = type("random number", (), dict.fromkeys(_LOOKS, looked))()
    held = sys.getrefcount(number)

    def instead(draw: Callable[..., Any], most: int) -> Callable[..., Any]:
        def drawn(*args: Any, **kwargs: Any) -> Any:
            is_one = threading.get_ident() == thread and len(args) <= most and not kwargs
            return number if is_one else draw(*args, **kwargs)

        return drawn

    with ExitStack() as stack:
        for (module, name), most in _BOUNDS.items():
            stack.enter_context(patch.object(module, name, instead(getattr(module, name), most)))
        yield
    if sys.getrefcount(number) > held:
        gc.collect()
    if seen or sys.getrefcount(number) > held:  # the model went on, or has kept one
        raise _refusal(what)


def _refusal(what: str) -> ModelError:
    return ModelError(
        f"{what} draws random numbers, by random or numpy.random: every call would have those of the import",
        do="give them as an argument; what is to be fixed comes from numpy.random.default_rng(seed)",
    )


def _states() -> bytes:
    return pickle.dumps((random.getstate(), np.random.get_state(legacy=False)))
