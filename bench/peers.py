"""Ours beside the compilers that a user could pick instead, row by row, each row in processes of its own.

python -m bench peers [NAME ...] [--contestant C ...] [--turns N] [--budget-s S] [--warm] [--output FILE]

Contestants that keep caches are first prepared one by one, each in a process with empty ones. Then one process prepares
them all, checks each against eager, and lets those that are right take turns; what the machine can do at the time is
measured in the same turns. Names narrow the rows: those that contain one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import standings
from bench.acceptance import THREADS
from bench.contestants import CONTESTANTS
from bench.machine import cores, description
from bench.rows import ROWS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
LIMIT_S = 900.0
"""After so long a process is given up."""

_PACKAGES = ("onnxruntime", "openvino", "jax", "jaxlib", "onnx", "onnxscript")


def main(arguments: Sequence[str]) -> None:
    """Run the rows, print a line for each and two tables at the end; write all that is known after every row."""
    parser = argparse.ArgumentParser(
        prog="python -m bench peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"part of one of: {'; '.join(ROWS)}")
    parser.add_argument("--contestant", choices=CONTESTANTS, action="append", help="all of them if none is given")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--budget-s", type=float, default=20.0, help="about how long the turns of a row may take")
    parser.add_argument("--warm", action="store_true", help="leave out the processes with empty caches")
    parser.add_argument("--output", type=Path, default=RESULTS / "peers.json")
    given = parser.parse_args(arguments)
    wanted = [name for name in ROWS if not given.names or any(part in name for part in given.names)]
    if not wanted:
        parser.error(f"no row's name contains {' or '.join(given.names)}")
    contestants = [name for name in CONTESTANTS if given.contestant is None or name in given.contestant]
    pace = ["--turns", str(given.turns), "--budget-s", str(given.budget_s)]
    given.output.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name in wanted:
        rows.append(_row(name, contestants, pace, given.warm))
        print(_line(rows[-1]), flush=True)
        given.output.write_text(json.dumps(_report(rows, pace), indent=1) + "\n")
    for ours in (name for name in standings.OURS if name in contestants):
        print(f"\n{ours}\n{standings.times_table(rows, ours)}\n{json.dumps(standings.summary(rows, ours))}")
    print(f"\n{standings.compile_table(rows)}\nwrote {given.output.name}")


def _report(rows: list[dict[str, Any]], pace: Sequence[str]) -> dict[str, Any]:
    return {
        "machine": description() | {"threads": THREADS, "packages": {name: _version(name) for name in _PACKAGES}},
        "settings": list(pace),
        "rows": rows,
        "summary": {name: standings.summary(rows, name) for name in standings.OURS},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _row(name: str, contestants: Sequence[str], pace: Sequence[str], warm: bool) -> dict[str, Any]:
    """Prepare those that keep caches alone, then let all that can take turns; if that ends badly, find out by whom."""
    start = time.perf_counter()
    given = [one for one in contestants if CONTESTANTS[one].takes(ROWS[name])]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        alone = {one: _alone(name, one, folder) for one in given if CONTESTANTS[one].keeps_cache and not warm}
        row = _child(name, _able(given, alone), folder, pace)
        if "failure" in row:
            alone |= {one: _alone(name, one, folder) for one in given if one not in alone}
            row = _child(name, _able(given, alone), folder, pace)
    together = row.get("contestants", {})
    able = _able(given, alone)
    cold = {one: {"cold": found} if one in able else found for one, found in alone.items()}
    row["contestants"] = {one: {**together.get(one, {}), **cold.get(one, {})} for one in given}
    return {"name": name, "at_least": ROWS[name].at_least, **row, "seconds": time.perf_counter() - start}


def _able(given: Sequence[str], alone: dict[str, dict[str, Any]]) -> list[str]:
    return [one for one in given if one not in alone or _is_right(alone[one])]


def _is_right(entry: dict[str, Any]) -> bool:
    return "prepare_s" in entry and "wrong" not in entry


def _alone(name: str, contestant: str, folder: str) -> dict[str, Any]:
    found = _child(name, [contestant], folder, [])
    return found["contestants"][contestant] if "contestants" in found else found


def _child(name: str, contestants: Sequence[str], folder: str, pace: Sequence[str]) -> dict[str, Any]:
    """Run contestants in a process on as many cores as there are threads, with caches in `folder`."""
    options = [option for contestant in contestants for option in ("--contestant", contestant)]
    command = [sys.executable, "-W", "ignore", "-m", "bench.contest", name, "--folder", folder, *options, *pace]
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "inductor")}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=environment,
            timeout=LIMIT_S,
            preexec_fn=_pin,
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"took more than {LIMIT_S:.0f} s"}
    if done.returncode:
        return {"failure": f"exit status {done.returncode}: {done.stderr[-2000:]}"}
    return json.loads(done.stdout.splitlines()[-1])


def _pin() -> None:
    chosen = cores(THREADS)
    if chosen:
        os.sched_setaffinity(0, chosen)


def _line(row: dict[str, Any]) -> str:
    head = f"{row['name']} ({row['seconds']:.0f} s)"
    if "failure" in row:
        return f"{head}: FAILED: {row['failure'].strip().splitlines()[-1]}"
    found, peer = standings.ratio(row), standings.fastest_peer(row)
    ratio = "no ratio" if found is None or peer is None else f"{found:.2f} times {peer}"
    problems = "".join(f"; {name} {word}" for name, word in standings.problems(row))
    return f"{head}: {ratio}{problems}"
