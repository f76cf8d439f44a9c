"""What a call takes beyond its kernels, and what steps and threads take; print the figures as JSON.

python -m bench.overhead
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import frittata as ft
from bench.machine import description
from frittata.egraph.machine import REFERENCE
from frittata.kernels import driver
from frittata.kernels.compile import compile_kernel

_CALLS, _TURNS, _STEPS = 50, 100, 1000


class Sum(nn.Module):
    """The sum of all arguments."""

    def forward(self, *args: Tensor) -> Tensor:
        """Add them."""
        return torch.stack(args).sum(0) if len(args) > 1 else args[0] + 1


def call_s(arguments: int, kind: str) -> float:
    """Return the processor time of a call whose kernel does next to nothing, the least of many."""
    tensors = tuple(torch.ones(16) for _ in range(arguments))
    fast = ft.optimize(Sum().eval(), tensors, machine=REFERENCE)
    given: tuple[Any, ...] = tensors if kind == "torch" else tuple(t.numpy() for t in tensors)
    return _least(lambda: fast(*given), time.thread_time, _CALLS)


def function_s() -> float:
    """Return the processor time of a call of a function of two arrays of numpy, the least of many."""
    arrays = np.ones(16), np.ones(16)
    fast = ft.optimize(lambda x, y: x + y, arrays, machine=REFERENCE)
    return _least(lambda: fast(*arrays), time.thread_time, _CALLS)


def step_s(chunks: int) -> float:
    """Return the time of a step of so many chunks that does nothing, all threads awake."""
    return _least(lambda: driver.run(_idle(_STEPS, chunks)), time.perf_counter, 1) / _STEPS


def region_s(idle_s: float) -> float:
    """Return the time of a run of one step that threads share, so long after the one before: the median."""
    steps, found = _idle(1, 2), list[float]()
    for _ in range(_TURNS):
        time.sleep(idle_s)
        start = time.perf_counter()
        driver.run(steps)
        found.append(time.perf_counter() - start)
    return float(np.median(found))


def _idle(count: int, chunks: int) -> driver.Steps:
    return driver.Steps([[_KERNEL.address, 0, chunks]] * count)


_KERNEL = compile_kernel("def idle(table, chunk):\n    pass\n", "idle", {})


def _least(call: Callable[[], object], clock: Callable[[], float], count: int) -> float:
    def turn() -> float:
        start = clock()
        for _ in range(count):
            call()
        return (clock() - start) / count

    return min(turn() for _ in range(_TURNS))


def main() -> None:
    """Measure and print."""
    rows = {f"a call with {n} {kind} arguments": call_s(n, kind) for kind in ("numpy", "torch") for n in (1, 10)}
    rows["a call of a function of two arrays"] = function_s()
    threads = driver.thread_count()
    rows |= {"a step": step_s(1), f"a step of {threads} chunks": step_s(threads)}
    rows |= {f"a shared run after {idle_s * 1e3:g} ms": region_s(idle_s) for idle_s in (0.0, 0.001, 0.02)}
    figures = {name: round(seconds * 1e6, 2) for name, seconds in rows.items()}
    print(json.dumps({"machine": description(), "microseconds": figures}, indent=1))


if __name__ == "__main__":
    main()
