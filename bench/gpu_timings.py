"""Timings on a GPU: single kernels and whole models, interleaved with torch's, beside what bytes and flops need."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

import frittata as ft
from bench.models import MODELS

TURNS = 30
TIMED = (
    ("ResNet-50", 1),
    ("ResNet-50", 32),
    ("MobileNetV2", 1),
    ("ViT-B/16", 1),
    ("BERT-base", 1),
    ("BERT-base", 16),
    ("GPT-2, cached", 1),
    ("LSTM, 16 steps", 1),
)
"""Models of the zoo, and how many samples."""


@dataclass(frozen=True)
class Workload:
    """One kernel: a model as script, the same in torch, the shapes of its arguments, and its flops."""

    name: str
    script: str
    eager: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    flops: float = 0.0
    dtype: torch.dtype = torch.float32


def _gelu_chain(x: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x + b) + r


WORKLOADS = (
    Workload(
        "bias, gelu, residual 16384x4096",
        """
def main(x: f32[16384, 4096], b: f32[4096], r: f32[16384, 4096]) -> f32[16384, 4096]:
    v1: f32[16384, 4096] = add(x, b)
    v2: f32[16384, 4096] = gelu(v1)
    v3: f32[16384, 4096] = add(v2, r)
    return v3
""",
        _gelu_chain,
        ((16384, 4096), (4096,), (16384, 4096)),
    ),
    Workload(
        "softmax 65536x1024",
        """
def main(x: f32[65536, 1024]) -> f32[65536, 1024]:
    v1: f32[65536, 1024] = softmax(x, axis=-1)
    return v1
""",
        lambda x: torch.softmax(x, -1),
        ((65536, 1024),),
    ),
    Workload(
        "layer norm 65536x1024",
        """
def main(x: f32[65536, 1024], w: f32[1024], b: f32[1024]) -> f32[65536, 1024]:
    v1: f32[65536, 1024] = layer_norm(x, w, b, eps=1e-05)
    return v1
""",
        lambda x, w, b: torch.nn.functional.layer_norm(x, (1024,), w, b, 1e-5),
        ((65536, 1024), (1024,), (1024,)),
    ),
    Workload(
        "matmul 4096x4096x4096",
        """
def main(a: f32[4096, 4096], b: f32[4096, 4096]) -> f32[4096, 4096]:
    v1: f32[4096, 4096] = matmul(a, b)
    return v1
""",
        torch.matmul,
        ((4096, 4096), (4096, 4096)),
        2.0 * 4096**3,
    ),
    Workload(
        "matmul 4096x4096x4096, bfloat16",
        """
def main(a: bf16[4096, 4096], b: bf16[4096, 4096]) -> bf16[4096, 4096]:
    v1: f32[4096, 4096] = cast(a, dtype="f32")
    v2: f32[4096, 4096] = cast(b, dtype="f32")
    v3: f32[4096, 4096] = matmul(v1, v2)
    v4: bf16[4096, 4096] = cast(v3, dtype="bf16")
    return v4
""",
        torch.matmul,
        ((4096, 4096), (4096, 4096)),
        2.0 * 4096**3,
        torch.bfloat16,
    ),
    Workload(
        "convolution 32x64x56x56, 64 of 3x3",
        """
def main(x: f32[32, 64, 56, 56], w: f32[64, 64, 3, 3]) -> f32[32, 64, 56, 56]:
    v1: f32[32, 64, 56, 56] = conv(x, w, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)
    return v1
""",
        lambda x, w: torch.nn.functional.conv2d(x, w, padding=1),
        ((32, 64, 56, 56), (64, 64, 3, 3)),
        2.0 * 32 * 56 * 56 * 64 * 64 * 9,
    ),
)


def copy_rate() -> float:
    """Return the rate at which torch copies a large tensor, read plus write, in bytes/s."""
    x = torch.empty(1 << 28, device="cuda")
    y = torch.empty_like(x)
    return 2 * x.nbytes / statistics.median(_seconds({"copy": lambda: y.copy_(x)})["copy"])


def timed_kernel(workload: Workload, copy_bytes_per_s: float) -> dict[str, Any]:
    """Time one kernel beside torch; print and return what was found."""
    fast = ft.optimize(ft.parse(workload.script), target="cuda")
    alone = ft.optimize(ft.parse(workload.script), target="cuda", library=False)
    args = [torch.randn(shape, device="cuda", dtype=workload.dtype) for shape in workload.shapes]
    expected = workload.eager(*args)
    error = float((fast(*args) - expected).abs().max() / expected.abs().max())
    times = _seconds(
        {"torch": lambda: workload.eager(*args), "ours": lambda: fast(*args), "alone": lambda: alone(*args)}
    )
    ratio = statistics.median(a / b for a, b in zip(times["ours"], times["torch"], strict=True))
    moved = sum(tensor.nbytes for tensor in (*args, expected))
    ours_s = statistics.median(times["ours"])
    row: dict[str, Any] = {
        "name": workload.name,
        "templates": [kernel.template for kernel in fast.kernels],
        "ours_s": ours_s,
        "alone_s": statistics.median(times["alone"]),
        "torch_s": statistics.median(times["torch"]),
        "ratio": ratio,
        "predicted_s": fast.report.predicted_s,
        "bytes_floor_s": moved / copy_bytes_per_s,
        "tflop_per_s": workload.flops / ours_s / 1e12,
        "largest_difference": error,
    }
    print(
        f"{workload.name}: ours {ours_s * 1e3:.3f} ms, without library {row['alone_s'] * 1e3:.3f},"
        f" torch {row['torch_s'] * 1e3:.3f}, ratio {ratio:.2f}, bytes need {row['bytes_floor_s'] * 1e3:.3f} ms,"
        f" {row['tflop_per_s']:.1f} TFLOP/s, difference {error:.1e}"
    )
    return row


def prepare(name: str, batch: int) -> float:
    """Optimize a model of the zoo as if for the first time; return how long that took, with others beside it."""
    return _optimized(name, batch)[-1]


def timed_model(name: str, batch: int, first_s: float) -> dict[str, Any]:
    """Time a model of the zoo beside torch, parameters and arguments on the device; print and return what was found.

    It was prepared before, in `first_s`: what was chosen and compiled lies in the cache.
    """
    module, args, fast, prepared_s = _optimized(name, batch)
    found, expected = (pytree.tree_leaves(call(*args)) for call in (fast, module))
    differences = (float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, expected, strict=True))
    times = _seconds({"torch": lambda: module(*args), "ours": lambda: fast(*args)})
    row: dict[str, Any] = {
        "name": f"{name}, batch {batch}",
        "kernels": len(fast.kernels),
        "ours_s": statistics.median(times["ours"]),
        "torch_s": statistics.median(times["torch"]),
        "ratio": statistics.median(a / b for a, b in zip(times["ours"], times["torch"], strict=True)),
        "kernels_s": sum(fast.measure().values()),
        "predicted_s": fast.report.predicted_s,
        "first_s": first_s,
        "prepared_s": prepared_s,
        "largest_difference": max(differences),
    }
    print(
        f"{row['name']}: ours {row['ours_s'] * 1e3:.3f} ms, torch {row['torch_s'] * 1e3:.3f} ms, ratio"
        f" {row['ratio']:.2f}, kernels {row['kernels_s'] * 1e3:.3f} ms, predicted {row['predicted_s'] * 1e3:.3f} ms,"
        f" {row['kernels']} kernels prepared in {first_s:.1f} and {prepared_s:.1f} s,"
        f" difference {row['largest_difference']:.1e}",
        flush=True,
    )
    return row


def _optimized(name: str, batch: int) -> tuple[torch.nn.Module, Any, Any, float]:
    """Return a model of the zoo, its arguments, its program, and how long that took to prepare, in seconds."""
    of_module, of_inputs = MODELS[name].sizes["full"]
    entry = replace(MODELS[name], sizes={"full": (of_module, {**of_inputs, "batch": batch})})
    module, args = entry.make()
    module, args = module.cuda(), pytree.tree_map(lambda arg: arg.cuda(), args)
    start = time.perf_counter()
    fast = ft.optimize(module, args, target="cuda")
    return module, args, fast, time.perf_counter() - start


def _seconds(call_by_name: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Time calls in turns, by the device's clock."""
    times: dict[str, list[float]] = {name: [] for name in call_by_name}
    for turn in range(TURNS + 3):
        for name, call in call_by_name.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            end.synchronize()
            if turn >= 3:  # the first ones compile and warm up
                times[name].append(start.elapsed_time(end) / 1e3)
    return times
