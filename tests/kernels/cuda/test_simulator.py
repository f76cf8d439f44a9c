"""Kernels and models for the CUDA target compute what the interpreter and torch compute, in numba's simulator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "support" / "simulated.py"


@pytest.mark.parametrize(
    ("arguments", "least", "most_large"),
    [(["cases", "0", "2"], 50, 30), (["cases", "1", "2"], 50, 30), (["launches"], 31, 0), (["models"], 13, 0)],
    ids=["cases-0", "cases-1", "launches", "models"],
)
def test_everything_agrees(arguments: list[str], least: int, most_large: int) -> None:
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    ledger = json.loads(done.stdout)
    assert ledger["wrong"] == {}
    assert len(ledger["ran"]) >= least
    assert len(ledger["large"]) <= most_large, ledger["large"]
