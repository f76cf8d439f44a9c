"""Paired timings: the contestants take turns within one run, and ratios are formed turn by turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Call = Callable[[], object]


@dataclass(frozen=True)
class Paired:
    """Times of one contestant beside a baseline. Units: seconds a call; `ratio` is the median of the paired ratios."""

    median_s: float
    least_s: float
    ratio: float
    least_ratio: float
    spread: float


def paired(call_by_name: dict[str, Call], baseline: str, turns: int = 40, turn_s: float = 0.02) -> dict[str, Paired]:
    """Let every contestant run for about `turn_s` a turn, one after the other, and compare turn by turn."""
    counts = {name: _calls_in(call, turn_s) for name, call in call_by_name.items()}
    times: dict[str, list[float]] = {name: [] for name in call_by_name}
    for _ in range(turns):
        for name, call in call_by_name.items():
            times[name].append(_seconds(call, counts[name]))
    base = times[baseline]
    return {name: _paired(found, base) for name, found in times.items()}


def _paired(found: list[float], base: list[float]) -> Paired:
    ratios = sorted(ours / theirs for ours, theirs in zip(found, base, strict=True))
    quarter = len(ratios) // 4
    return Paired(
        statistics.median(found),
        min(found),
        statistics.median(ratios),
        min(found) / min(base),
        ratios[-1 - quarter] - ratios[quarter],
    )


def _calls_in(call: Call, seconds: float) -> int:
    call()
    return max(1, int(seconds / max(1e-7, min(_seconds(call, 1) for _ in range(3)))))


def _seconds(call: Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count
