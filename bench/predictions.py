"""What kernels are predicted to take beside what they take: `python -m bench.predictions [NAME ...] [--output FILE]`.

Runs the rows of `make bench` whose names contain one of the words, and times every kernel in place, among the others of
its program. Equal kernels count once for each row.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch

import frittata as ft
from bench.acceptance import THREADS, known_machine
from bench.machine import description
from bench.rows import ROWS, Row
from frittata.egraph.program import Kernel
from frittata.extract.prices import keys

RESULTS = Path(__file__).parent / "results"

LONG_S = 20e-6
"""Errors are counted over kernels that take at least so long."""

_REPEATS = 30


@dataclass(frozen=True)
class Timed:
    """A kernel of a row, with the number of kernels that are equal to it."""

    row: str
    template: str
    count: int
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """How far the prediction is off, as a share of what was measured."""
        return abs(self.predicted_s - self.measured_s) / self.measured_s


@torch.no_grad()
def timed(row: Row) -> Iterator[Timed]:
    """Visit the different kernels of a row's program; the time of equal ones is their median."""
    module, args = row.make()
    fast = ft.optimize(module, args, machine=known_machine())
    measured_s = fast.measure(repeats=_REPEATS)
    equal: dict[str, list[Kernel]] = {}
    for kernel, key in keys(fast.program):
        equal.setdefault(key, []).append(kernel)
    for kernels in equal.values():
        seconds = median(measured_s[kernel.name] for kernel in kernels)
        yield Timed(row.name, kernels[0].template, len(kernels), kernels[0].estimate.seconds, seconds)


def summary(kernels: Iterable[Timed]) -> dict[str, dict[str, float]]:
    """Return for each template, and for all, how many long kernels there are, and medians of error and of the ratio."""
    groups: dict[str, list[Timed]] = {}
    for kernel in kernels:
        if kernel.measured_s >= LONG_S:
            groups.setdefault(kernel.template, []).append(kernel)
            groups.setdefault("all", []).append(kernel)
    return {
        template: {
            "kernels": len(group),
            "median_error": median(kernel.error for kernel in group),
            "median_ratio": median(kernel.predicted_s / kernel.measured_s for kernel in group),
        }
        for template, group in sorted(groups.items(), key=lambda pair: (pair[0] == "all", pair[0]))
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the rows, print a table by template, write every kernel as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.predictions", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--output", type=Path, default=RESULTS / "predictions.json")
    given = parser.parse_args(arguments)
    torch.set_num_threads(THREADS)
    found: list[Timed] = []
    for row in ROWS.values():
        if not given.names or any(part in row.name for part in given.names):
            found.extend(timed(row))
            gc.collect()
            print(row.name, flush=True)
    table = summary(found)
    print(f"{'template':14} {'kernels':>8} {'median error':>13} {'predicted / measured':>21}")
    for template, entry in table.items():
        print(f"{template:14} {entry['kernels']:8.0f} {entry['median_error']:13.0%} {entry['median_ratio']:21.2f}")
    report = {"machine": {**description(), "profile": asdict(known_machine())}, "templates": table}
    given.output.write_text(json.dumps({**report, "kernels": [asdict(kernel) for kernel in found]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
