"""All models of the zoo, each in a process of its own, so that memory and caches are clean.

python -m bench models [NAME ...] [--check] [--variant V ...] [--turns N] [--output FILE]

Without `--check`: time the full models beside eager, with and without library calls. With it: compare results of the
full and the odd variants, from an empty cache, and once more from the one that this filled.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from bench.machine import description
from bench.models import MODELS

TOLERANCE = 1e-4
RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str]) -> None:
    """Run the sweep, print a line for each model, write all rows; exit with 1 if a result is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench models", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--check", action="store_true", help="compare results instead of timing")
    parser.add_argument("--variant", choices=["full", "odd", "narrow"], action="append")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args(arguments)
    unknown = set(given.names) - set(MODELS)
    if unknown:
        parser.error(f"no model is called {', '.join(sorted(unknown))}")
    variants = given.variant or (["full", "odd"] if given.check else ["full"])
    output = given.output or RESULTS / ("models.json" if given.check else "timing.json")
    output.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for row in _rows(given.names or MODELS, variants, 0 if given.check else given.turns):
        print(_line(row), flush=True)
        rows.append(row)
        output.write_text(json.dumps({"machine": description(), "rows": rows}, indent=1) + "\n")
    bad = [row for row in rows if not row.get("error", 1) <= TOLERANCE]
    print(f"wrote {output.name}; {len(bad)} of {len(rows)} rows are not within {TOLERANCE}")
    sys.exit(bool(bad))


def _rows(names: Iterable[str], variants: Iterable[str], turns: int) -> Iterator[dict[str, Any]]:
    for library, variant, name in product((True, False), variants, names):
        yield _row(name, variant, library, turns)


def _row(name: str, variant: str, library: bool, turns: int) -> dict[str, Any]:
    """Compile from an empty cache, then from the full one; time the second, whose process compiled little."""
    with tempfile.TemporaryDirectory() as cache:
        options = [name, "--variant", variant, "--cache", cache, *([] if library else ["--no-library"])]
        cold = _child(options)
        if "failure" in cold:
            return {"name": name, "variant": variant, "library": library, **cold}
        warm = _child([*options, "--turns", str(turns)])
        if "failure" in warm:
            return {**cold, **warm}
    return {**warm, "error": max(warm["error"], cold["error"]), "cold": cold}


def _child(options: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", "bench.acceptance", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode:
        return {"failure": done.stderr[-2000:]}
    return json.loads(done.stdout.splitlines()[-1])


def _line(row: dict[str, Any]) -> str:
    head = f"{row['name']:20} {row['variant']:6} {'library' if row['library'] else 'alone  '}"
    if "failure" in row:
        return f"{head} FAILED: {row['failure'].strip().splitlines()[-1]}"
    seconds = row["cold"]["phase_seconds"]
    solving = seconds["saturate"] + seconds["extract"]
    grown = (row["cold"]["peak_bytes"] - row["cold"]["peak_before_bytes"]) / 2**20
    parts = [
        head,
        f"error {row['error']:.1e}",
        f"gap {row['gap']:.2%}",
        f"saturate+extract {solving:5.1f} s, cold {row['cold']['optimize_s']:5.1f}, warm {row['optimize_s']:5.1f}",
        f"+{grown:5.0f} MiB for {row['parameter_bytes'] / 2**20:.0f} of params",
    ]
    if "times" in row:
        ours, eager = row["times"]["ours"], row["times"]["eager"]
        parts.append(f"{ours['median_s'] * 1e3:.2f} ms, eager {eager['median_s'] * 1e3:.2f}, ratio {ours['ratio']:.2f}")
    parts.append(" ".join(f"{name} {count}" for name, count in row["kernels"].items()))
    return "  ".join(parts + [f"host: {', '.join(row['externs'])}"] * bool(row["externs"]))
