"""Choosing by measurement: the kernels of the best program are timed in it, and the choice is made again.

A kernel that takes longer than predicted gives way to others that are still predicted to be faster, and these are timed
in their turn, until a choice has no kernel that was not. What was learnt is kept on disk for the models that follow.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from math import inf

from frittata.egraph.program import Program
from frittata.extract.choose import Extraction
from frittata.extract.prices import Prices
from frittata.kernels.cache import KernelCache

log = logging.getLogger("frittata")

_MOST_ROUNDS = 8

TimesOf = Callable[[Program], Mapping[str, float]]
"""Runs a program and returns the seconds of each kernel by name."""


def tune(
    found: Extraction, choose: Callable[[Prices], Extraction], times_of: TimesOf, prices: Prices
) -> Extraction:
    """Return the fastest choice met from the first on; add to `prices` what its kernels and those of others took."""
    best: tuple[float, Extraction] | None = None
    for turn in range(_MOST_ROUNDS):
        is_last = prices.knows(found.program) or turn == _MOST_ROUNDS - 1
        seconds = times_of(found.program)
        prices.note(found.program, seconds)
        total = sum(seconds.values())
        log.info("tuning: %.3f ms predicted, %.3f ms measured", found.program.cost_s * 1e3, total * 1e3)
        if best is None or total < best[0]:
            best = total, found
        if is_last:
            break
        found = choose(prices)
    assert best is not None
    return best[1]


def load(folder: KernelCache, key: str) -> Prices:
    """Return what was learnt before, nothing if that cannot be read."""
    stored = folder.load(key)
    if stored is None:
        return Prices()
    try:
        factors = {str(name): float(factor) for name, factor in json.loads(stored).items()}
    except (ValueError, TypeError, AttributeError) as error:
        log.warning("cache: prices %s cannot be read and will be learnt again: %s", key, error)
        return Prices()
    return Prices({name: factor for name, factor in factors.items() if 0 < factor < inf})


def store(folder: KernelCache, key: str, prices: Prices) -> None:
    """Keep what was learnt."""
    folder.store(key, json.dumps(prices.factor_by_key).encode())
