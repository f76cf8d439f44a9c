"""Measuring the machine: every figure comes from a kernel that ran."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from frittata.egraph.machine import REFERENCE
from frittata.extract.machine import load_or_measure
from frittata.kernels import calibrate, driver
from frittata.kernels.processor import processor


def test_the_profile_is_of_this_machine() -> None:
    machine = calibrate.measure()
    assert machine.threads == driver.thread_count()
    assert 1e8 < machine.scalar_per_s < 1e13 and 1e8 < machine.fma_f32_per_s < 1e14
    assert 1e8 < machine.memory_bytes_per_s < 1e13
    assert 0 < machine.launch_s <= 2e-6 and 0 <= machine.sync_s <= 2e-6
    assert (machine.launch_s, machine.sync_s) != (REFERENCE.launch_s, REFERENCE.sync_s)


def test_timing_goes_on_until_nothing_is_faster() -> None:
    times = iter([5.0, 3.0, 2.99, 2.98, 1.0])
    assert calibrate.least_seconds({"kernel": lambda: next(times)}) == {"kernel": 2.98}
    busy = iter(range(100, 0, -10))
    assert calibrate.least_seconds({"kernel": lambda: float(next(busy, 1))}) == {"kernel": 1.0}


def test_a_profile_is_kept_for_one_use_of_the_machine(tmp_path: Path) -> None:
    profiles = [replace(REFERENCE, name=name) for name in ("first", "second", "third")]
    made = iter(profiles)
    uses = ("16 registers", "32 registers", "16 registers")
    found = [load_or_measure(tmp_path, lambda: next(made), use) for use in uses]
    assert found == [profiles[0], profiles[1], profiles[0]]
    assert len(list(tmp_path.iterdir())) == 2
    assert str(processor()) in calibrate.use()
