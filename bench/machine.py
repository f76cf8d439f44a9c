"""What a measurement ran on."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
import torch


def description() -> dict[str, Any]:
    """Return the facts that a number needs beside it."""
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "numba": numba.__version__,
        "python": platform.python_version(),
    }


def memory_bytes() -> dict[str, int]:
    """Return the memory of this process, now and at most since `forget_peak`, where Linux tells."""
    status = Path("/proc/self/status")
    if not status.exists():
        return {}
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return {key: int(lines[field].split()[0]) << 10 for key, field in (("resident", "VmRSS"), ("peak", "VmHWM"))}


def forget_peak() -> None:
    """Start to look for the peak of memory anew, where Linux lets a process do so."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def cores(count: int) -> set[int]:
    """Return processors that this process may use, of `count` different cores if there are as many."""
    if not hasattr(os, "sched_getaffinity"):
        return set()
    core_by_processor = {number: _core(number) for number in sorted(os.sched_getaffinity(0), reverse=True)}
    first = sorted({core: number for number, core in core_by_processor.items()}.values())
    return set(first[:count])


def _core(processor: int) -> str:
    path = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    return path.read_text() if path.exists() else str(processor)
