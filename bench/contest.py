"""One row in one process: prepare the contestants, compare their results with eager's, and time them turn by turn.

python -m bench.contest ROW --folder FOLDER --contestant NAME ... [--turns N] [--budget-s S]
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bench import ceilings
from bench.acceptance import THREADS, known_machine, relative_error
from bench.contestants import CONTESTANTS, Case, Missing, Prepared
from bench.floors import Work, work_of
from bench.machine import forget_peak, memory_bytes
from bench.rows import ROWS
from bench.timing import Call, least_s, paired
from frittata.egraph.machine import Machine

TOLERANCE = 1e-4
"""Of the largest value of an output: a contestant that is further from eager than this is wrong, and is not timed."""

_REST_S = 0.2
_FMA, _TRAFFIC = "ceiling: multiply-adds", "ceiling: traffic"
_COLD_SHARE, _WARM_SHARE = 4.0, 0.25
"""Of the third-level cache: what is read from memory, and what is read from the cache."""
_REPEATS = 10

Entry = dict[str, Any]


@dataclass(frozen=True)
class Pace:
    """How long to time: so many turns, of about `turn_s` for each contestant, but not much longer than `budget_s`."""

    turns: int
    budget_s: float
    turn_s: float = 0.05


@torch.no_grad()
def contest(case: Case, names: Sequence[str], pace: Pace) -> dict[str, Any]:
    """Run a row; with no turns, only prepare the contestants, each from what the folder of the case holds."""
    module, args = case.workload
    expected = module(*args)
    entries: dict[str, Entry] = {}
    ready: dict[str, Prepared] = {}
    for name in names:
        if name == "ours, no library" and "ours" in ready and "library" not in entries["ours"]["kernels"]:
            entries[name] = {"same_as": "ours"}
            continue
        entries[name], prepared = _prepare(name, case, expected)
        if prepared is not None:
            ready[name] = prepared
    found: dict[str, Any] = {
        "name": case.row.name,
        "at_least": case.row.at_least,
        "parameter_bytes": sum(p.numel() * p.element_size() for p in module.parameters()),
        "contestants": entries,
    }
    if pace.turns:
        found.update(_timed(entries, ready, pace))
    return found


def _prepare(name: str, case: Case, expected: Any) -> tuple[Entry, Prepared | None]:
    """Make a contestant ready; what fails in it is its result, and no end of the run."""
    contestant = CONTESTANTS[name]
    try:
        contestant.load(case)
        gc.collect()
        forget_peak()
        before = memory_bytes()
        start = time.perf_counter()
        prepared = contestant.prepare(case)
        output = prepared.call()
        seconds = time.perf_counter() - start
        after = memory_bytes()
        error = relative_error(list(prepared.tensors(output)), expected)
    except Missing as missing:
        return {"missing": str(missing)}, None
    except Exception as problem:  # its text alone: where it was raised names paths of this machine
        return {"failure": "".join(traceback.format_exception_only(problem))[-2000:]}, None
    entry: Entry = {"prepare_s": seconds, "error": error, **prepared.facts}
    entry.update({f"{key}_bytes": after[key] - before["resident"] for key in after})
    if not error <= TOLERANCE:
        return {**entry, "wrong": True}, None
    return entry, prepared


def _timed(entries: dict[str, Entry], ready: dict[str, Prepared], pace: Pace) -> dict[str, Any]:
    """Time all that are right, and beside them what the machine can do; ratios are to ours if ours is right."""
    machine = known_machine()
    program = ready["ours"].program if "ours" in ready else None
    near_bytes = machine.threads * (machine.l1_bytes + machine.l2_bytes)
    works = work_of(program, near_bytes) if program is not None else ()
    limits = {_FMA: ceilings.multiply_adds(machine)}
    if works:
        limits[_TRAFFIC] = ceilings.traffic(
            sum(work.read_bytes for work in works), sum(work.written_bytes for work in works), machine
        )
    rates = _bandwidths(machine)
    calls: dict[str, Call] = {name: prepared.call for name, prepared in ready.items()}
    calls.update({name: ceiling.call for name, ceiling in limits.items()})
    gc.collect()
    gc.freeze()
    baseline = "ours" if "ours" in ready else next(iter(calls))
    times = paired(calls, baseline, pace.turns, pace.turn_s, rest_s=_REST_S, budget_s=pace.budget_s)
    rate = {name: ceiling.amount / times[name].median_s for name, ceiling in limits.items()}
    floor = _floor(works, rate[_FMA], rate[_TRAFFIC], rates["l3_read_bytes_per_s"]) if works else None
    for name in ready:
        entries[name]["times"] = asdict(times[name])
        if floor is not None:
            entries[name]["share_of_floor"] = floor["seconds"] / times[name].median_s
    return {"baseline": baseline, "floor": floor, "ceilings": {"fma_flop_per_s": rate[_FMA], **rates}}


def _floor(works: Sequence[Work], flop_per_s: float, bytes_per_s: float, far_bytes_per_s: float) -> dict[str, Any]:
    """Flops over the peak or bytes over the bandwidth, whichever takes longer, kernel by kernel.

    A kernel begins when those before it have ended, so that no time for bytes hides behind another's products.
    """
    again_per_s = max(bytes_per_s, far_bytes_per_s)
    compute = [work.flops / flop_per_s for work in works]
    moving = [(w.read_bytes + w.written_bytes) / bytes_per_s + w.again_bytes / again_per_s for w in works]
    bound_s = {"compute": 0.0, "bytes": 0.0}
    for flops_s, bytes_s in zip(compute, moving, strict=True):
        bound_s["compute" if flops_s > bytes_s else "bytes"] += max(flops_s, bytes_s)
    return {
        **{field: sum(asdict(work)[field] for work in works) for field in asdict(works[0])},
        "bytes_per_s": bytes_per_s,
        "compute_s": sum(compute),
        "bytes_s": sum(moving),
        "bound": max(bound_s, key=bound_s.__getitem__),
        "seconds": sum(bound_s.values()),
    }


def _bandwidths(machine: Machine) -> dict[str, float]:
    """Measure reading from memory, copying in memory, and reading from the third-level cache."""
    cold, warm = _COLD_SHARE * machine.l3_bytes, _WARM_SHARE * machine.l3_bytes
    sizes = {"memory_read": (cold, 0.0), "memory_copy": (cold / 2, cold / 2), "l3_read": (warm, 0.0)}
    found = {name: ceilings.traffic(*size, machine) for name, size in sizes.items()}
    return {f"{name}_bytes_per_s": c.amount / least_s(c.call, _REPEATS) for name, c in found.items()}


def main() -> None:
    """Run one row in this process and print it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.contest", description=main.__doc__)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--contestant", choices=CONTESTANTS, action="append", required=True)
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--budget-s", type=float, default=20.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(THREADS)
    print(json.dumps(contest(Case(ROWS[given.row], given.folder), given.contestant, Pace(given.turns, given.budget_s))))


if __name__ == "__main__":
    main()
