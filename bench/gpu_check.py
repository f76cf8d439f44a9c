"""The one command for a machine with a GPU: are the CUDA kernels right there, and how fast beside torch.

python -m bench.gpu_check [--output FILE]

First every kernel case by every template against the interpreter, then small models against torch; then
timings of single kernels, interleaved with torch's, with the time that their bytes and flops take at least.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import frittata as ft
from bench import workloads
from bench.machine import description
from frittata.egraph.machine import REFERENCE_GPU
from frittata.kernels.cuda import device

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "gpu.json"
TURNS = 30


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


def main() -> int:
    """Check, time, print and write; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_check", description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if device.state() != "device" or not torch.cuda.is_available():
        print(
            f"No GPU: numba offers {device.state()!r}, torch.cuda.is_available() is {torch.cuda.is_available()}. "
            "Nothing was checked. This needs an NVIDIA GPU, numba-cuda with the CUDA toolkit, and torch built for CUDA."
        )
        return 1
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    wrong = {**_cases(), **_roundings(), **_models()}
    for name, what in wrong.items():
        print(f"WRONG {name}: {what}")
    copy_bytes_per_s = _copy_rate()
    rows = [_timed(workload, copy_bytes_per_s) for workload in WORKLOADS]
    found = {
        "machine": description() | {"gpu": torch.cuda.get_device_name(), "copy_bytes_per_s": copy_bytes_per_s},
        "wrong": wrong,
        "kernels": rows,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(wrong)} wrong; wrote {arguments.output.name}")
    return 1 if wrong else 0


# ---- right or wrong --------------------------------------------------------------------------------------------------


def _cases() -> dict[str, str]:
    """Compare every case by every template with the interpreter; return what went wrong by name."""
    sys.path.append(str(ROOT / "tests" / "support"))
    from kernel_cases import CASES, RANDOM_CASES, assert_agrees

    from frittata.kernels.cuda import runtime, templates

    wrong: dict[str, str] = {}
    count = 0
    for case in (*CASES, *RANDOM_CASES):
        values = case.values()
        expected = case.expected(values)
        for template in templates.TEMPLATES:
            if template.estimate(case.bodies, frozenset(), REFERENCE_GPU) is None:
                continue
            count += 1
            try:
                assert_agrees(case, runtime.build(case.program(template.name), {})(*values), expected)
            except Exception as error:
                wrong[f"{case.name} {template.name}"] = f"{type(error).__name__}: {error}"[:500]
    print(f"{count} kernels compared with the interpreter")
    return wrong


def _roundings() -> dict[str, str]:
    """Round to halves numbers at, between and beside all that there are, and compare bit for bit with numpy."""
    low = [0, 1, 0xFFF, 0x1000, 0x1001, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xF000, 0xFFFF]
    bits = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16 | np.array(low, np.uint32)
    x = bits.reshape(-1).view(np.float32)
    model = ft.parse(f"""
def main(x: f32[{x.size}]) -> (bf16[{x.size}], f16[{x.size}]):
    v1: bf16[{x.size}] = cast(x, dtype="bf16")
    v2: f16[{x.size}] = cast(x, dtype="f16")
    return v1, v2
""")
    wrong: dict[str, str] = {}
    for found in ft.optimize(model, target="cuda")(x):
        with np.errstate(over="ignore", invalid="ignore"):
            law = x.astype(found.dtype)
        differ = (found.view(np.uint16) != law.view(np.uint16)) & ~(np.isnan(found) & np.isnan(law))
        if differ.any():
            wrong[f"rounding to {found.dtype}"] = f"{differ.sum()} of {x.size} differ, the first at {x[differ][0]!r}"
    return wrong


def _models() -> dict[str, str]:
    """Compare the small models with torch on the device, their arguments and results there as well."""
    wrong: dict[str, str] = {}
    made = {"mlp": workloads.mlp(), "encoder layer": workloads.encoder_layer(), "basic block": workloads.basic_block()}
    made["encoder layer, bfloat16"] = workloads.encoder_layer(dtype=torch.bfloat16)
    for name, (module, args) in made.items():
        module, args = module.cuda(), tuple(arg.cuda() for arg in args)
        expected = module(*args)
        found = ft.optimize(module, args, target="cuda")(*args)
        error = float((found - expected).abs().max() / expected.abs().max())
        print(f"{name}: largest difference from torch {error:.1e}")
        if not found.is_cuda or not error < (1e-4 if found.dtype is torch.float32 else 2e-2):
            wrong[name] = f"differs from torch by {error:.1e}, on {found.device}"
    return wrong


# ---- timings ---------------------------------------------------------------------------------------------------------


def _copy_rate() -> float:
    """Return the rate at which torch copies a large tensor, read plus write, in bytes/s."""
    x = torch.empty(1 << 28, device="cuda")
    y = torch.empty_like(x)
    return 2 * x.nbytes / statistics.median(_seconds({"copy": lambda: y.copy_(x)})["copy"])


def _timed(workload: Workload, copy_bytes_per_s: float) -> dict[str, Any]:
    fast = ft.optimize(ft.parse(workload.script), target="cuda")
    args = [torch.randn(shape, device="cuda", dtype=workload.dtype) for shape in workload.shapes]
    expected = workload.eager(*args)
    error = float((fast(*args) - expected).abs().max() / expected.abs().max())
    times = _seconds({"torch": lambda: workload.eager(*args), "ours": lambda: fast(*args)})
    ratio = statistics.median(a / b for a, b in zip(times["ours"], times["torch"], strict=True))
    moved = sum(tensor.nbytes for tensor in (*args, expected))
    ours_s = statistics.median(times["ours"])
    row: dict[str, Any] = {
        "name": workload.name,
        "templates": [kernel.template for kernel in fast.kernels],
        "ours_s": ours_s,
        "torch_s": statistics.median(times["torch"]),
        "ratio": ratio,
        "predicted_s": fast.report.predicted_s,
        "bytes_floor_s": moved / copy_bytes_per_s,
        "tflop_per_s": workload.flops / ours_s / 1e12,
        "largest_difference": error,
    }
    print(
        f"{workload.name}: ours {ours_s * 1e3:.3f} ms, torch {row['torch_s'] * 1e3:.3f} ms, ratio {ratio:.2f},"
        f" bytes need {row['bytes_floor_s'] * 1e3:.3f} ms, {row['tflop_per_s']:.1f} TFLOP/s, difference {error:.1e}"
    )
    return row


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


if __name__ == "__main__":
    sys.exit(main())
