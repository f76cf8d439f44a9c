"""Errors of the vector functions over the whole range of floats, and their speed beside torch eager on one thread.

python -m bench.functions [--step N] [--output FILE] [NAME ...]

float32: every N-th bit pattern, 1024 unless told, against float64. float64: all exponents at random, against mpmath.
Errors are in units of the last place of the result. Times are the least of many runs over 65,536 values.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mpmath
import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

import frittata as ft
from bench.machine import description
from frittata.egraph.machine import REFERENCE
from frittata.optimized import Optimized

RESULTS = Path(__file__).parent / "results"
Array = NDArray[Any]
_TIMED = 1 << 16
_erf, _erfc = (np.vectorize(function, otypes=[np.float64]) for function in (math.erf, math.erfc))


@dataclass(frozen=True)
class Function:
    """A function: what it is in float64 and to any precision, in torch, and where its results may be far off in ulps.

    `tail`: below it, results are small differences of large numbers and only absolutely good.
    """

    wide: Callable[..., Array]
    exact: Callable[..., Any]
    torch: Callable[..., Any]
    tail: float = -math.inf
    arguments: int = 1


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _gelu_tanh_argument(x: Any) -> Any:
    return (x + x * x * x * 0.044715) * math.sqrt(8 / math.pi)


FUNCTIONS: Mapping[str, Function] = {
    "exp": Function(np.exp, mpmath.exp, torch.exp),
    "log": Function(np.log, mpmath.log, torch.log),
    "log1p": Function(np.log1p, mpmath.log1p, torch.log1p),
    "expm1": Function(np.expm1, mpmath.expm1, torch.expm1),
    "tanh": Function(np.tanh, mpmath.tanh, torch.tanh),
    "erf": Function(_erf, mpmath.erf, torch.erf),
    "sigmoid": Function(_sigmoid, lambda x: 1 / (1 + mpmath.exp(-x)), torch.sigmoid),
    "sin": Function(np.sin, mpmath.sin, torch.sin),
    "cos": Function(np.cos, mpmath.cos, torch.cos),
    "atan": Function(np.arctan, mpmath.atan, torch.atan),
    "sqrt": Function(np.sqrt, mpmath.sqrt, torch.sqrt),
    "rsqrt": Function(lambda x: 1 / np.sqrt(x), lambda x: 1 / mpmath.sqrt(x), torch.rsqrt),
    "pow": Function(np.power, mpmath.power, torch.pow, arguments=2),
    "gelu": Function(
        lambda x: 0.5 * x * _erfc(-x * math.sqrt(0.5)),
        lambda x: x * mpmath.erfc(-x * mpmath.sqrt(0.5)) / 2,
        functional.gelu,
        tail=-1.0,
    ),
    "gelu_tanh": Function(
        lambda x: x * _sigmoid(_gelu_tanh_argument(x)),
        lambda x: x / (1 + mpmath.exp(-_gelu_tanh_argument(x))),
        lambda x: functional.gelu(x, approximate="tanh"),
        tail=-1.0,
    ),
    "silu": Function(lambda x: x * _sigmoid(x), lambda x: x / (1 + mpmath.exp(-x)), functional.silu, tail=-87.0),
}


@dataclass(frozen=True)
class Row:
    """What was found of one function: ulps, the worst absolute error in the tail, and times in seconds."""

    name: str
    ulps_f32: float
    tail_error_f32: float
    ulps_f64: float
    eager_s: float
    ours_s: float


def main() -> None:
    """Measure all functions, or those that are named, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.functions", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--step", type=int, default=1024)
    parser.add_argument("--output", type=Path, default=RESULTS / "functions.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    print(f"{'':10} {'f32':>6} {'tail':>8} {'f64':>6} {'eager':>9} {'ours':>9}  eager / ours")
    rows = [_measure(name, arguments.step) for name in arguments.names or FUNCTIONS]
    found = {"machine": description(), "step": arguments.step, "functions": [asdict(row) for row in rows]}
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")


def _measure(name: str, step: int) -> Row:
    ulps, tail = errors_f32(name, step)
    row = Row(name, ulps, tail, errors_f64(name), *_seconds(name))
    times = f"{row.eager_s * 1e6:6.1f} us {row.ours_s * 1e6:6.1f} us  {row.eager_s / row.ours_s:.2f}"
    print(f"{name:10} {ulps:6.2f} {tail:8.1e} {row.ulps_f64:6.2f} {times}", flush=True)
    return row


def compiled(name: str, count: int, dtype: str) -> Optimized:
    """Return a model of one function of vectors."""
    names = ["x", "y"][: FUNCTIONS[name].arguments]
    parameters = ", ".join(f"{n}: {dtype}[{count}]" for n in names)
    call = f"{name}({', '.join(names)})"
    script = f"def main({parameters}) -> {dtype}[{count}]:\n    v1: {dtype}[{count}] = {call}\n    return v1\n"
    return ft.optimize(ft.parse(script), machine=REFERENCE)


def errors_f32(name: str, step: int) -> tuple[float, float]:
    """Return the worst error in ulps over every `step`-th float32, and the worst absolute one in the tail."""
    x = np.arange(0, 1 << 32, step).astype(np.uint32).view(np.float32)
    args = [x, np.random.default_rng(1).permutation(x)][: FUNCTIONS[name].arguments]
    result = np.asarray(compiled(name, len(x), "f32")(*args))
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name].wide(*(a.astype(np.float64) for a in args))
        ulps = error_in_ulps(result, exact)
    tail = x < FUNCTIONS[name].tail
    absolute = np.abs(result[tail] - exact[tail])
    return float(ulps[~tail].max()), float(absolute[np.isfinite(exact[tail])].max(initial=0.0))


def error_in_ulps(result: Array, exact: Array) -> Array:
    """Return how far results are off, in units of the last place; infinite where a special value is not the same."""
    limits = np.finfo(result.dtype)
    rounded = exact.astype(result.dtype)
    with np.errstate(all="ignore"):
        unit = np.spacing(np.clip(np.abs(rounded), limits.smallest_subnormal, limits.max))
        error = np.abs(result.astype(exact.dtype) - exact) / unit
    same = (result == rounded) | (np.isnan(result) & np.isnan(rounded))
    return np.where(same, np.minimum(np.nan_to_num(error, nan=0.0), 1.0), np.nan_to_num(error, nan=np.inf))


def errors_f64(name: str, count: int = 2048) -> float:
    """Return the worst error in ulps over float64 of all magnitudes and of those at which functions bend."""
    generator = np.random.default_rng(2)
    patterns = generator.integers(0, 1 << 63, count, np.uint64).view(np.float64)
    x = np.concatenate([patterns, -patterns, *(generator.uniform(-w, w, count) for w in (1e-3, 1.0, 5.0, 30.0, 700.0))])
    args = [x, generator.permutation(x)][: FUNCTIONS[name].arguments]
    result = np.asarray(compiled(name, len(x), "f64")(*args))
    worst = 0.0
    with mpmath.workdps(40):
        for values, got in zip(zip(*args, strict=True), result, strict=True):
            if values[0] >= FUNCTIONS[name].tail and math.isfinite(got) and got != 0.0:
                exact = FUNCTIONS[name].exact(*map(mpmath.mpf, map(float, values)))
                worst = max(worst, float(abs(mpmath.mpf(float(got)) - exact) / mpmath.mpf(float(np.spacing(abs(got))))))
    return worst


def _seconds(name: str) -> tuple[float, float]:
    """Return the least time of a call of torch eager, and of our kernel alone."""
    arrays = [np.random.default_rng(i).uniform(0.1, 4.0, _TIMED).astype(np.float32) for i in range(2)]
    args = arrays[: FUNCTIONS[name].arguments]
    executable = compiled(name, _TIMED, "f32").compilation.executable
    tensors = [torch.from_numpy(array) for array in args]
    eager = ours = math.inf
    for _ in range(40):
        ours = min(ours, float(executable.measure(*args, repeats=20)[0]))
        for _ in range(20):
            start = time.perf_counter()
            FUNCTIONS[name].torch(*tensors)
            eager = min(eager, time.perf_counter() - start)
    return eager, ours


if __name__ == "__main__":
    main()
