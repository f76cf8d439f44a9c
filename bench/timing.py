"""Paired timings: the contestants take turns within one run, and ratios are formed turn by turn."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Call = Callable[[], object]

_LEAST_TURNS = 5
_SLICE_S = 0.02
"""Several ticks of the system's clock, 4 ms as a rule: only then is the time of threads that run counted."""
_IDLE_SHARE = 0.2


@dataclass(frozen=True)
class Paired:
    """Times of one contestant beside a baseline. Units: seconds a call; `ratio` is the median of the paired ratios."""

    median_s: float
    least_s: float
    ratio: float
    least_ratio: float
    spread: float
    turns: int


def paired(
    call_by_name: dict[str, Call],
    baseline: str,
    turns: int = 40,
    turn_s: float = 0.02,
    *,
    rest_s: float = 0.0,
    budget_s: float = math.inf,
) -> dict[str, Paired]:
    """Let every contestant run for about `turn_s` a turn, one after the other, and compare turn by turn.

    The order is turned round from one turn to the next. `rest_s`: how long to wait, at most, before each contestant
    for threads that others have left spinning; it then gets one call that does not count, to wake its own.
    `budget_s`: no turn starts after so long, but a few always do.
    """
    counts = {name: _calls_in(call, turn_s, rest_s) for name, call in call_by_name.items()}
    times: dict[str, list[float]] = {name: [] for name in call_by_name}
    start = time.perf_counter()
    for turn in range(turns):
        if turn >= _LEAST_TURNS and time.perf_counter() - start > budget_s:
            break
        for name in list(call_by_name)[:: 1 if turn % 2 == 0 else -1]:
            if rest_s:
                settle(rest_s)
                call_by_name[name]()
            times[name].append(_seconds(call_by_name[name], counts[name]))
    base = times[baseline]
    return {name: _paired(found, base) for name, found in times.items()}


def settle(limit_s: float) -> None:
    """Wait until no thread of this process runs, `limit_s` at most."""
    deadline = time.perf_counter() + limit_s
    while time.perf_counter() < deadline:
        start, used = time.perf_counter(), time.process_time()
        time.sleep(_SLICE_S)
        if time.process_time() - used < _IDLE_SHARE * (time.perf_counter() - start):
            return


def least_s(call: Call, repeats: int) -> float:
    """Return the least time of single calls, after one that does not count."""
    call()
    return min(_seconds(call, 1) for _ in range(repeats))


def _paired(found: list[float], base: list[float]) -> Paired:
    ratios = sorted(ours / theirs for ours, theirs in zip(found, base, strict=True))
    quarter = len(ratios) // 4
    return Paired(
        statistics.median(found),
        min(found),
        statistics.median(ratios),
        min(found) / min(base),
        ratios[-1 - quarter] - ratios[quarter],
        len(ratios),
    )


def _calls_in(call: Call, seconds: float, rest_s: float) -> int:
    if rest_s:
        settle(rest_s)
    return max(1, int(seconds / max(1e-7, least_s(call, 3))))


def _seconds(call: Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count
