"""Turns: who is called how often, when it stops, and what is waited for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bench import timing


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still unless it is put forward."""
    now = [0.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


def test_ratios_are_those_of_single_turns(clock: list[float]) -> None:
    speed = 0.0

    def slow() -> None:
        nonlocal speed
        speed += 1.0
        clock[0] += speed

    def twice_as_slow() -> None:
        clock[0] += 2 * speed

    found = timing.paired({"slow": slow, "twice": twice_as_slow}, "slow", turns=7, turn_s=1.0)
    assert found["slow"].ratio == 1.0 and found["slow"].turns == 7
    assert found["twice"].ratio == pytest.approx(2.0, abs=0.3)


def test_the_budget_ends_the_turns(clock: list[float]) -> None:
    def call() -> None:
        clock[0] += 1.0

    assert timing.paired({"a": call}, "a", turns=40, turn_s=1.0, budget_s=10.0)["a"].turns == 11
    assert timing.paired({"a": call}, "a", turns=40, turn_s=1.0, budget_s=0.0)["a"].turns == 5
    assert timing.paired({"a": call}, "a", turns=3, turn_s=1.0, budget_s=0.0)["a"].turns == 3


@pytest.mark.parametrize(("busy_s", "limit_s", "waited_s"), [(0.2, 30.0, 0.2), (5.0, 1.0, 1.0), (0.0, 30.0, 0.0)])
def test_settling_waits_while_threads_use_the_processor(
    busy_s: float, limit_s: float, waited_s: float, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(timing.time, "process_time", lambda: min(clock[0], busy_s), raising=False)
    monkeypatch.setattr(timing.time, "sleep", sleep, raising=False)
    timing.settle(limit_s)
    assert waited_s <= clock[0] < waited_s + 0.1
