"""The machine profile: measured once, kept on disk, keyed by the machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from frittata.egraph.machine import BUSY, Machine

_FORMAT = 5
_AGE_S = 600.0
"""A profile of a busy machine is measured again if it is asked for so long after the last time, then twice as long."""


def machine_key(use: str) -> str:
    """Return what identifies this machine, processor, cores in reach, interpreter's platform, and how it is used."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        kept = ("model name", "flags", "cache size")
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith(kept)]
        model = "\n".join(sorted(set(lines)))
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = f"{_FORMAT}|{platform.platform()}|{threads}|{model}|{use}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_or_measure(folder: Path, measure: Callable[[], tuple[Machine, float]], use: str) -> Machine:
    """Return the profile kept in a folder; measure and keep it if there is none that can be read.

    `measure` returns a profile and the share of the time that it waited for cores: what others held back is measured
    again another time, and the calmest profile stays. `use`: the registers and threads that kernels are compiled for,
    which a user may choose.
    """
    path = folder / f"machine-{machine_key(use)}.json"
    known = _read(path)
    if known is not None and (known.stands or not os.access(folder, os.W_OK)):
        return known.machine
    machine, waited = measure()
    made = _Profile(machine, waited, 1 + (known.attempts if known else 0), time.time())
    found = [profile for profile in (made, _read(path)) if profile is not None]  # another process may have been faster
    calmest = min(found, key=lambda profile: profile.waited)
    told = {"machine": calmest.machine.to_dict(), "waited": calmest.waited, "attempts": made.attempts}
    _write(path, json.dumps(told, indent=1))
    return calmest.machine


@dataclass(frozen=True)
class _Profile:
    """A profile, the share of the time that its measurement waited for cores, how often that was tried, and when."""

    machine: Machine
    waited: float
    attempts: int
    written: float

    @property
    def stands(self) -> bool:
        """Whether it is not to be measured again now."""
        return self.waited < BUSY or time.time() < self.written + _AGE_S * 2 ** (self.attempts - 1)


def _read(path: Path) -> _Profile | None:
    """Return the profile in a file, None if there is none that can be read."""
    try:
        data = json.loads(path.read_text())
        machine = Machine(**{field.name: data["machine"][field.name] for field in fields(Machine)})
        return _Profile(machine, float(data["waited"]), int(data["attempts"]), path.stat().st_mtime)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, text: str) -> None:
    """Write at once or not at all; a folder that cannot be written only costs the next measurement."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix="machine-", suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
