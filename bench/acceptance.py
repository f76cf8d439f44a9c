"""One model of the zoo through the compiler: how far from eager, how fast, by which kernels, in how much memory."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import platformdirs
import torch
from torch.utils import _pytree as pytree

import frittata as ft
from bench.models import MODELS, Args, Variant
from bench.timing import paired
from frittata.egraph.machine import Machine
from frittata.optimized import Optimized

THREADS = 2


def relative_error(found: Any, expected: Any) -> float:
    """Return the largest difference relative to the largest value of the same output, the worst of all outputs.

    A NaN on one side only is an infinite error, and so is an infinity.
    """
    pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True)
    return max(_error(one.double(), other.double()) for one, other in pairs)


def _error(found: torch.Tensor, expected: torch.Tensor) -> float:
    assert found.shape == expected.shape
    equal = (found == expected) | (found.isnan() & expected.isnan())
    distance = torch.where(equal, 0.0, (found - expected).abs()).nan_to_num(nan=float("inf"))
    scale = expected[expected.isfinite()].abs().amax() if expected.isfinite().any() else torch.tensor(1.0)
    return float(distance.max() / scale.clamp_min(1e-30))


def kernels_by_template(fast: Optimized) -> dict[str, int]:
    """Count the steps of a program by the template that runs them."""
    return dict(Counter(kernel.template for kernel in fast.program.kernels).most_common())


def host_steps(fast: Optimized) -> list[str]:
    """Name the steps that leave the compiled program."""
    return [kernel.name for kernel in fast.program.kernels if kernel.template == "host"]


def compile_one(name: str, variant: Variant, library: bool, cache: Path) -> tuple[dict[str, Any], Optimized, Any, Args]:
    """Compile a model and compare it with eager: the row of a report, the compiled model, the module, its arguments."""
    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    module, args = MODELS[name].make(variant)
    expected = module(*args)
    machine = known_machine()
    before = _peak_bytes()
    start = time.perf_counter()
    fast = ft.optimize(module, args, library=library, cache=cache, machine=machine)
    seconds = time.perf_counter() - start
    after = _peak_bytes()
    done = fast.compilation
    row = {
        "name": name,
        "variant": variant,
        "library": library,
        "error": relative_error(fast(*args), expected),
        "optimize_s": seconds,
        "phase_seconds": done.phase_seconds,
        "is_remembered": done.is_remembered,
        "gap": fast.program.gap,
        "predicted_s": fast.program.cost_s,
        "kernels": kernels_by_template(fast),
        "externs": host_steps(fast),
        "parameter_bytes": sum(p.numel() * p.element_size() for p in module.parameters()),
        "peak_before_bytes": before,
        "peak_bytes": after,
    }
    if not done.is_remembered:  # otherwise it would be saturated for this
        row["extract_seconds"] = done.extraction.seconds
        row["e_nodes"] = max(phase.nodes for phase in done.saturation.phases)
        row["stop"] = [phase.stop.value for phase in done.saturation.phases]
    return row, fast, module, args


def compare_times(fast: Optimized, module: Any, args: Args, turns: int) -> dict[str, Any]:
    """Time a compiled model beside eager."""
    times = paired({"eager": lambda: module(*args), "ours": lambda: fast(*args)}, "eager", turns, turn_s=0.05)
    return {label: asdict(row) for label, row in times.items()}


def known_machine() -> Machine:
    """Return this machine's profile, which is measured once and kept in the user's cache folder."""
    from frittata.extract.machine import load_or_measure
    from frittata.kernels.calibrate import measure, use

    return load_or_measure(Path(platformdirs.user_cache_dir("frittata")), measure, use())


def _peak_bytes() -> int:
    """The most memory that this process has had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    """Compile one model in this process and print its row as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.acceptance", description=main.__doc__)
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--variant", choices=["full", "odd", "narrow"], default="full")
    parser.add_argument("--no-library", action="store_true")
    parser.add_argument("--turns", type=int, default=0, help="also time it beside eager, in so many turns")
    parser.add_argument("--cache", type=Path, required=True)
    given = parser.parse_args()
    row, fast, module, args = compile_one(given.name, given.variant, not given.no_library, given.cache)
    if given.turns:
        row["times"] = compare_times(fast, module, args, given.turns)
    print(json.dumps(row))


if __name__ == "__main__":
    main()
