"""Time the compiled models beside torch eager, and the compiler itself; write the figures as JSON.

python -m bench [--output FILE] [--turns N]
python -m bench models ...    the model zoo: see bench/sweep.py
python -m bench peers ...     beside other compilers: see bench/peers.py
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import frittata as ft
from bench import peers, sweep, workloads
from bench.machine import description
from bench.timing import paired
from frittata.optimized import Optimized

RESULTS = Path(__file__).parent / "results"

WORKLOADS: dict[str, Callable[[], workloads.Workload]] = {
    "MLP 784-256-10, batch 64": workloads.mlp,
    "encoder layer d256 h4 ff1024, 2x128 tokens": workloads.encoder_layer,
    "ResNet basic block 64x56x56": workloads.basic_block,
}


def main() -> None:
    """Run everything and print a table."""
    if sys.argv[1:2] in (["models"], ["peers"]):
        {"models": sweep.main, "peers": peers.main}[sys.argv[1]](sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "vertical.json")
    parser.add_argument("--turns", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    rows = [_measure(name, make, arguments.turns) for name, make in WORKLOADS.items()]
    found = {"machine": description(), "models": rows, "compiler": _compiler()}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"wrote {arguments.output.name}")


def _measure(name: str, make: Callable[[], workloads.Workload], turns: int) -> dict[str, Any]:
    module, args = make()
    start = time.perf_counter()
    fast = ft.optimize(module, args)
    optimize_s = time.perf_counter() - start
    alone = ft.optimize(module, args, library=False)
    calls = {"eager": lambda: module(*args), "ours": lambda: fast(*args), "ours, no library": lambda: alone(*args)}
    times = paired(calls, "eager", turns)
    flops = sum(kernel.estimate.flops for kernel in fast.program.kernels)
    print(f"{name}  ({flops / 1e6:.0f} Mflop, {_at_our_rate_s(fast) * 1e6:.0f} us at the rate of our product)")
    for label, row in times.items():
        share = _at_our_rate_s(fast) / row.least_s
        line = f"  {label:18} {row.median_s * 1e6:9.1f} us  least {row.least_s * 1e6:9.1f}"
        ratios = f"ratio to eager {row.ratio:5.2f} (spread {row.spread:.2f}, of the least {row.least_ratio:.2f})"
        print(f"{line}  {ratios}  {share:4.0%} of that rate")
    kernels = _kernels(fast, args)
    return {
        "name": name,
        "flops": flops,
        "at_our_rate_s": _at_our_rate_s(fast),
        "optimize_s": optimize_s,
        "phase_seconds": fast.compilation.phase_seconds,
        "times": {label: asdict(row) for label, row in times.items()},
        "kernels": kernels,
    }


def _at_our_rate_s(fast: Optimized) -> float:
    """The flops of the chosen kernels at the profile's rate, that of a large product of ours: below the FMA peak."""
    rate = 2 * fast.compilation.machine.fma_f32_per_s
    return sum(kernel.estimate.flops for kernel in fast.program.kernels) / rate


def _kernels(fast: Optimized, args: tuple[torch.Tensor, ...]) -> list[dict[str, Any]]:
    measured = fast.compilation.executable.measure(*(a.numpy() for a in args), repeats=30)
    rows: list[dict[str, Any]] = []
    for kernel, seconds in zip(fast.program.kernels, measured, strict=True):
        predicted = kernel.estimate.seconds
        line = f"    {kernel.name:24} {kernel.template:12} {predicted * 1e6:8.1f} us predicted"
        print(f"{line}, {seconds * 1e6:.1f} measured")
        rows.append({"name": kernel.name, "template": kernel.template, "predicted_s": predicted, "measured_s": seconds})
    return rows


def _compiler() -> dict[str, Any]:
    """Saturation and extraction of twelve stacked layers, with a cache that remembers no program of them."""
    module, args = workloads.stacked_encoder(12)
    with TemporaryDirectory() as cache:
        done = ft.optimize(module, args, cache=Path(cache)).compilation
    seconds = done.phase_seconds
    total = seconds["saturate"] + seconds["extract"]
    gap = done.program.gap
    between = sum(phase.between_rounds_s for phase in done.saturation.phases)
    print(f"twelve encoder layers: saturation {seconds['saturate']:.2f} s, with extraction {total:.2f} s")
    print(f"  {between:.2f} s of it between rounds for guards and types; gap {gap:.2%}")
    return {"phase_seconds": seconds, "between_rounds_s": between, "gap": gap}


if __name__ == "__main__":
    main()
