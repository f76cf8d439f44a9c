"""Functions that draw from the global generators of Python and numpy: traced, they would give one draw for ever."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager

import numpy as np

from frittata.egraph.errors import ModelError

_LEAST, _GREATEST = 0, 0x12DD9BB3
"""Words of a Mersenne twister's state from which it draws only zeros, and only ones."""


@contextmanager
def refused(what: str, is_same: Callable[[], bool] = lambda: False) -> Generator[None]:
    """Trace something, and refuse it if it moved a global generator.

    `is_same` may trace it again, and say whether it is what it was: draws change nothing if it is with the least
    numbers and with the greatest, as where layers are dropped if `random.random() < p and self.training`.

    Raises: ModelError.
    """
    before = _states()
    yield
    if _states() != before and not all(_holds(is_same, word) for word in (_LEAST, _GREATEST)):
        raise ModelError(
            f"{what} draws random numbers, by random or numpy.random: every call would have those of the import",
            do="give them as an argument; what is to be fixed comes from numpy.random.default_rng(seed)",
        )


def _holds(is_same: Callable[[], bool], word: int) -> bool:
    """Ask where the generators draw from this word, but not for ever: some draw again until a number fits."""
    python, arrays = random.getstate(), np.random.get_state(legacy=False)
    if arrays["bit_generator"] != "MT19937":
        return False
    words = [word] * 600 + [*range(24)]
    try:
        random.setstate((3, (*words, 0), None))
        np.random.set_state(("MT19937", np.array(words, np.uint32), 0, 0, 0.0))
        return is_same()
    finally:
        random.setstate(python)
        np.random.set_state(arrays)


def _states() -> bytes:
    return pickle.dumps((random.getstate(), np.random.get_state(legacy=False)))
