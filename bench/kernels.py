"""Time single operators beside torch eager, and their predictions; write the figures as JSON.

python -m bench.kernels [--output FILE] [--turns N] [NAME ...]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import frittata as ft
from bench.blocks import Function
from bench.machine import description
from bench.timing import paired
from frittata.egraph.machine import REFERENCE

RESULTS = Path(__file__).parent / "results"
Case = tuple[nn.Module, tuple[Tensor, ...]]


def _conv(
    inputs: int, outputs: int, size: int, kernel: int | tuple[int, int], stride: int = 1, groups: int = 1
) -> Callable[[], Case]:
    def make() -> Case:
        sides = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        padding = tuple(side // 2 for side in sides)
        module = nn.Conv2d(inputs, outputs, sides, stride, padding, groups=groups)
        return module, (torch.randn(1, inputs, size, size),)

    return make


def _depthwise(channels: int, size: int, kernel: int = 3, stride: int = 1) -> Callable[[], Case]:
    return _conv(channels, channels, size, kernel, stride, channels)


def _module(module: nn.Module, *shape: int) -> Callable[[], Case]:
    return lambda: (module, (torch.randn(shape),))


def _call(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> Callable[[], Case]:
    return lambda: (Function(function), tuple(torch.randn(shape) for shape in shapes))


def _chain(x: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Ten point-wise operators with broadcasting."""
    y = functional.gelu(x * row + column)
    return torch.tanh(y - x) * torch.sigmoid(y) + torch.exp(-torch.abs(x))


def _softmax_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x.softmax(-1), (1024,), weight, bias)


def _attention(queries: int, keys: int, *, causal: bool = False) -> Callable[[], Case]:
    shapes = ((1, 12, queries, 64), (1, 12, keys, 64), (1, 12, keys, 64))
    return _call(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=causal), *shapes)


def _packed_attention(x: Tensor) -> Tensor:
    """Twelve heads of a packed projection, merged again."""
    batch, length, width = x.shape
    q, k, v = x.view(batch, length, 3, 12, width // 36).permute(2, 0, 3, 1, 4)
    result = functional.scaled_dot_product_attention(q, k, v)
    return result.transpose(1, 2).reshape(batch, length, width // 3)


CASES: dict[str, Callable[[], Case]] = {
    "depthwise 3x3, 32 x 112": _depthwise(32, 112),
    "depthwise 3x3 stride 2, 96 x 112": _depthwise(96, 112, stride=2),
    "depthwise 3x3, 144 x 56": _depthwise(144, 56),
    "depthwise 3x3, 192 x 28": _depthwise(192, 28),
    "depthwise 3x3, 384 x 14": _depthwise(384, 14),
    "depthwise 3x3 stride 2, 576 x 14": _depthwise(576, 14, stride=2),
    "depthwise 3x3, 960 x 7": _depthwise(960, 7),
    "depthwise 5x5, 240 x 28": _depthwise(240, 28, 5),
    "depthwise 7x7, 96 x 56": _depthwise(96, 56, 7),
    "32 groups of 4, 3x3, 56": _conv(128, 128, 56, 3, groups=32),
    "32 groups of 8, 3x3 stride 2, 56": _conv(256, 256, 56, 3, 2, 32),
    "32 groups of 32, 3x3, 7": _conv(1024, 1024, 7, 3, groups=32),
    "stem 7x7 stride 2, 3 to 64, 224": _conv(3, 64, 224, 7, 2),
    "stem 3x3 stride 2, 3 to 32, 224": _conv(3, 32, 224, 3, 2),
    "conv 3x3, 64, 56": _conv(64, 64, 56, 3),
    "conv 3x3, 512, 7": _conv(512, 512, 7, 3),
    "conv 1x1, 2048 to 512, 7": _conv(2048, 512, 7, 1),
    "conv 1x1 stride 2, 1024 to 2048, 14": _conv(1024, 2048, 14, 1, 2),
    "conv 1x1, 960 to 240, 1": _conv(960, 240, 1, 1),
    "conv 1x7, 160 to 192, 17": _conv(160, 192, 17, (1, 7)),
    "max pool 3x3 stride 2, 64 x 112": _module(nn.MaxPool2d(3, 2, 1), 1, 64, 112, 112),
    "max pool 2x2, 64 x 112": _module(nn.MaxPool2d(2), 1, 64, 112, 112),
    "average pool 3x3, 256 x 35": _module(nn.AvgPool2d(3, 1, 1), 1, 256, 35, 35),
    "group norm 32, 256 x 28": _module(nn.GroupNorm(32, 256), 1, 256, 28, 28),
    "heads apart, 128 x 12 x 64": _call(lambda x: x.permute(0, 2, 1, 3).contiguous(), (1, 128, 12, 64)),
    "channels last, 64 x 56": _call(lambda x: x.permute(0, 2, 3, 1).contiguous(), (1, 64, 56, 56)),
    "transpose, 1024 x 1024": _call(lambda x: x.t().contiguous(), (1024, 1024)),
    "12 products 128 x 64 x 128": _call(torch.matmul, (12, 128, 64), (12, 64, 128)),
    "attention, 12 heads, 128 tokens": _attention(128, 128),
    "attention, 12 heads, 512 tokens": _attention(512, 512),
    "causal attention, 12 heads, 512 tokens": _attention(512, 512, causal=True),
    "attention, 12 packed heads, 128 tokens": _call(_packed_attention, (1, 128, 2304)),
    "attention, 12 packed heads, 197 tokens": _call(_packed_attention, (1, 197, 2304)),
    "attention, 12 heads, 1 query, 1024 keys": _attention(1, 1024),
    "linear 768 to 3072, 1 row": _module(nn.Linear(768, 3072), 1, 768),
    "linear 768 to 3072, 8 rows": _module(nn.Linear(768, 3072), 8, 768),
    "chain of ten, 4 M": _call(_chain, (4096, 1024), (1024,), (4096, 1)),
    "softmax, 4096 x 1024": _call(lambda x: x.softmax(-1), (4096, 1024)),
    "layer norm, 4096 x 1024": _module(nn.LayerNorm(1024), 4096, 1024),
    "softmax then layer norm, 4096 x 1024": _call(_softmax_norm, (4096, 1024), (1024,), (1024,)),
    "softmax, 128 x 768": _call(lambda x: x.softmax(-1), (128, 768)),
    "sum of the first axis, 64 x 256 x 256": _call(lambda x: x.sum(0), (64, 256, 256)),
    "sum of the middle axis, 64 x 256 x 256": _call(lambda x: x.sum(1), (64, 256, 256)),
    "sum of the last axis, 64 x 256 x 256": _call(lambda x: x.sum(2), (64, 256, 256)),
    "sum of columns, 65536 x 64": _call(lambda x: x.sum(0), (65536, 64)),
    "largest of rows, 4096 x 1024": _call(lambda x: x.amax(-1), (4096, 1024)),
    "place of the largest, 4096 x 1024": _call(lambda x: x.argmax(-1), (4096, 1024)),
    "running sum of rows, 4096 x 1024": _call(lambda x: x.cumsum(-1), (4096, 1024)),
    "running sum of columns, 4096 x 1024": _call(lambda x: x.cumsum(0), (4096, 1024)),
    "gelu, 4 M": _call(functional.gelu, (4096, 1024)),
    "relu, 4 M": _call(torch.relu, (4096, 1024)),
    "transpose, 4096 x 1024": _call(lambda x: x.t().contiguous(), (4096, 1024)),
    "heads apart, 8 x 512 x 12 x 64": _call(lambda x: x.permute(0, 2, 1, 3).contiguous(), (8, 512, 12, 64)),
    "sum of rows, 1024 x 1024": _call(lambda x: x.sum(-1), (1024, 1024)),
    "sum of columns, 1024 x 1024": _call(lambda x: x.sum(0), (1024, 1024)),
    "sum of all, 2048 x 2048": _call(lambda x: x.sum((0, 1)), (2048, 2048)),
}


def main() -> None:
    """Run all cases, or those whose names contain one of the arguments, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.kernels", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--output", type=Path, default=RESULTS / "kernels.json")
    parser.add_argument("--turns", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    wanted = [name for name in CASES if not arguments.names or any(part in name for part in arguments.names)]
    rows = [_measure(name, CASES[name], arguments.turns) for name in wanted]
    arguments.output.write_text(json.dumps({"machine": description(), "operators": rows}, indent=1) + "\n")


def _measure(name: str, make: Callable[[], Case], turns: int) -> dict[str, Any]:
    module, args = make()
    module = module.eval()
    fast = ft.optimize(module, args, machine=REFERENCE)
    times = paired({"eager": lambda: module(*args), "ours": lambda: fast(*args)}, "eager", turns, 0.01)
    measured = fast.compilation.executable.measure(*(a.numpy() for a in args), repeats=30)
    kernels = [
        {
            "template": kernel.template,
            "predicted_s": kernel.estimate.seconds,
            "measured_s": seconds,
            "floor_s": _floor_s(kernel.estimate.flops, kernel.estimate.bytes),
        }
        for kernel, seconds in zip(fast.program.kernels, measured, strict=True)
    ]
    ours = times["ours"]
    line = f"{name:38} eager {times['eager'].least_s * 1e6:8.1f} us  ours {ours.least_s * 1e6:8.1f}"
    parts = (
        f"{k['template']} {k['predicted_s'] * 1e6:.0f} us predicted, {k['measured_s'] * 1e6:.0f} measured, "
        f"{k['floor_s'] / k['measured_s']:.0%} of the floor"
        for k in kernels
    )
    print(f"{line}  ratio {ours.ratio:5.2f} (least {ours.least_ratio:.2f})  {'; '.join(parts)}", flush=True)
    return {"name": name, "times": {label: asdict(row) for label, row in times.items()}, "kernels": kernels}


def _floor_s(flops: float, moved: float) -> float:
    """The least time by the reference profile: all flops as multiply-adds, or all bytes from cache or memory."""
    return max(flops / (2 * REFERENCE.fma_f32_per_s), REFERENCE.transfer_s(moved))


if __name__ == "__main__":
    main()
