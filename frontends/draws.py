"""Functions that draw from the global generators of Python and numpy: traced, they would give one draw for ever."""

from __future__ import annotations

import pickle
import random
from collections.abc import Generator
from contextlib import contextmanager

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
        raise ModelError(
            f"{what} draws random numbers, by random or numpy.random: every call would have those of the import",
            do="give them as an argument; what is to be fixed comes from numpy.random.default_rng(seed)",
        )


def _states() -> bytes:
    return pickle.dumps((random.getstate(), np.random.get_state(legacy=False)))
