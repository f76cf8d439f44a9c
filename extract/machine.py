"""The machine profile: measured once, kept on disk, keyed by the machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from frittata.egraph.machine import Machine

_FORMAT = 4


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


def load_or_measure(folder: Path, measure: Callable[[], Machine], use: str) -> Machine:
    """Return the profile kept in a folder; measure and keep it if there is none that can be read.

    `use`: the registers and threads that kernels are compiled for, which a user may choose.
    """
    path = folder / f"machine-{machine_key(use)}.json"
    try:
        data = json.loads(path.read_text())
        return Machine(**{field.name: data[field.name] for field in fields(Machine)})
    except (OSError, ValueError, KeyError, TypeError):
        machine = measure()
        _write(path, json.dumps(machine.to_dict(), indent=1))
        return machine


def _write(path: Path, text: str) -> None:
    """Write at once or not at all; a folder that cannot be written only costs the next measurement."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError:
        return
