"""Measuring the machine: every figure comes from a kernel that ran."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from frittata.egraph.machine import BUSY, REFERENCE, Machine
from frittata.extract.machine import load_or_measure
from frittata.kernels import calibrate, driver
from frittata.kernels.processor import processor


def test_the_profile_is_of_this_machine() -> None:
    machine, _ = calibrate.measure()
    assert machine.threads == driver.thread_count()
    assert 1e8 < machine.scalar_per_s < 1e13 and 1e8 < machine.fma_f32_per_s < 1e14
    assert 1e8 < machine.memory_bytes_per_s < 1e13
    assert 0 < machine.launch_s <= 2e-6 and 0 <= machine.sync_s <= 2e-6
    assert (machine.launch_s, machine.sync_s) != (REFERENCE.launch_s, REFERENCE.sync_s)


def test_timing_goes_on_until_nothing_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_waited_s", lambda: 0.0)
    times = iter([5.0, 3.0, 2.99, 2.98, 1.0])
    assert calibrate.least_seconds({"kernel": lambda: next(times)}) == ({"kernel": 2.98}, 0.0)
    falling = iter(range(100, 0, -10))
    assert calibrate.least_seconds({"kernel": lambda: float(next(falling, 1))}) == ({"kernel": 1.0}, 0.0)


def test_timing_goes_on_while_threads_wait_for_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = iter([0.0, 1.0, 1.0, 2.0, 2.0, 3.0, *[3.0] * 6])  # before and after each round
    monkeypatch.setattr(calibrate, "_waited_s", lambda: next(waited))
    times = iter([5.0, 5.0, 5.0, 3.0, 3.0, 3.0])
    assert calibrate.least_seconds({"kernel": lambda: next(times)})[0] == {"kernel": 3.0}
    clock = count()
    monkeypatch.setattr(calibrate, "_waited_s", lambda: float(next(clock)))
    monkeypatch.setattr(calibrate, "_MOST_S", 0.01)
    seconds, share = calibrate.least_seconds({"kernel": lambda: 3.0})
    assert seconds == {"kernel": 3.0} and share > BUSY


def test_a_profile_is_kept_for_one_use_of_the_machine(tmp_path: Path) -> None:
    profiles = [replace(REFERENCE, name=name) for name in ("first", "second", "third")]
    made = iter(profiles)
    uses = ("16 registers", "32 registers", "16 registers")
    found = [load_or_measure(tmp_path, lambda: (next(made), 0.0), use) for use in uses]
    assert found == [profiles[0], profiles[1], profiles[0]]
    assert len(list(tmp_path.iterdir())) == 2
    assert str(processor()) in calibrate.use()


def test_what_a_busy_machine_told_is_measured_again_some_time_later(tmp_path: Path) -> None:
    made = iter([(replace(REFERENCE, name=f"waited {share}"), share) for share in (0.5, 0.3, 0.9, 0.0)])

    def found(minutes: float) -> str:
        for path in tmp_path.iterdir():
            os.utime(path, (0, time.time() - 60 * minutes))
        return load_or_measure(tmp_path, lambda: next(made), "use").name

    assert [found(0), found(9), found(11)] == ["waited 0.5", "waited 0.5", "waited 0.3"]
    assert [found(19), found(21)] == ["waited 0.3"] * 2  # the calmest
    assert [found(39), found(41)] == ["waited 0.3", "waited 0.0"]
    assert found(10**6) == "waited 0.0"


def test_a_calm_profile_that_came_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calm = replace(REFERENCE, name="calm")

    def busy() -> tuple[Machine, float]:
        load_or_measure(tmp_path, lambda: (calm, 0.0), "use")  # by another process
        return REFERENCE, 0.5

    assert load_or_measure(tmp_path, busy, "use") == calm
    assert load_or_measure(tmp_path, busy, "use") == calm
    assert load_or_measure(tmp_path, lambda: (REFERENCE, 0.5), "other") == REFERENCE
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    assert load_or_measure(tmp_path, lambda: pytest.fail("nothing could be kept"), "other") == REFERENCE


def test_a_profile_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: str | Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert load_or_measure(tmp_path, lambda: (REFERENCE, 0.0), "use") == REFERENCE
    assert not [*tmp_path.iterdir()]
