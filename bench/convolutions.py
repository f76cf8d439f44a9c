"""Time the ways to compute a 3 x 3 convolution with bias and relu, on one thread, by its processor time.

python -m bench.convolutions [EXTENT,INPUTS,OUTPUTS ...] [--turns N]

Each way gets the image in the layout that it reads: permutations are kernels of their own. Errors are the largest
differences from torch in float64.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.program import Estimate, Kernel, Output, Program
from frittata.egraph.terms import Scalar, TensorType, Term
from frittata.kernels import runtime, templates

Array = NDArray[np.float32]

LAYERS = ("56,64,64", "28,128,128", "14,256,256", "7,512,512", "112,64,128", "32,16,16", "224,3,64")
_TILES = {"tiles of 2 x 2": 2, "tiles of 4 x 4": 4}


def main() -> None:
    """Time the layers and print a line for each way."""
    parser = argparse.ArgumentParser(prog="python -m bench.convolutions", description=__doc__)
    parser.add_argument("layers", nargs="*", default=LAYERS)
    parser.add_argument("--turns", type=int, default=30)
    given = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    for layer in given.layers:
        _time(*map(int, layer.split(",")), turns=given.turns)


def _time(extent: int, inputs: int, outputs: int, turns: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, inputs, extent, extent, generator=generator)
    w = torch.randn(outputs, inputs, 3, 3, generator=generator) / (9 * inputs) ** 0.5
    b = torch.randn(outputs, generator=generator)
    law = torch.relu(torch.conv2d(x.double(), w.double(), b.double(), padding=1)).numpy()
    values = {"x": x.numpy(), "w": w.numpy(), "b": b.numpy().reshape(-1, 1, 1)}
    beside = {**values, "x": x.permute(0, 2, 3, 1).contiguous().numpy(), "b": b.numpy()}
    direct, direct_s = _direct(values)
    calls: dict[str, Callable[[], Any]] = {
        "torch eager": lambda: torch.relu(torch.conv2d(x, w, b, padding=1)).numpy(),
        "direct": lambda: direct(values["x"])[0],
    }
    predicted_s = {"direct": direct_s}
    for name, tile in _TILES.items():
        tiled, predicted_s[name] = _tiled(beside, tile)
        calls[name] = lambda tiled=tiled: tiled(beside["x"])[0].transpose(0, 3, 1, 2)
    least = dict.fromkeys(calls, float("inf"))
    found = {name: call() for name, call in calls.items()}
    for _ in range(turns):
        for name, call in calls.items():
            start = time.thread_time()
            call()
            least[name] = min(least[name], time.thread_time() - start)
    for name, seconds in least.items():
        flops = 18 * extent**2 * inputs * outputs
        error = float(np.abs(found[name] - law).max())
        guess = f"{predicted_s[name] * 1e3:7.3f}" if name in predicted_s else "      -"
        print(
            f"{extent:4} x {inputs:3} to {outputs:3}  {name:15} {seconds * 1e3:7.3f} ms, predicted {guess}; "
            f"{flops / seconds / 1e9:4.0f} Gflop/s of the direct sum; {least['direct'] / seconds:4.2f} x direct; "
            f"error {error:.1e}",
            flush=True,
        )


def _direct(values: dict[str, Array]) -> tuple[runtime.Executable, float]:
    _, inputs, lines, pixels = values["x"].shape
    outputs = len(values["w"])
    product = element(
        "window_dot", *(_load(name, values) for name in "xw"), source=(inputs, lines, pixels), channels=outputs,
        kernel=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1,
    )  # fmt: skip
    return _executable("convolution", product, (1, outputs, lines, pixels), values)


def _tiled(values: dict[str, Array], tile: int) -> tuple[runtime.Executable, float]:
    _, lines, pixels, inputs = values["x"].shape
    outputs = len(values["w"])
    product = element(
        "winograd_dot", *(_load(name, values) for name in "xw"), source=(lines, pixels, inputs), channels=outputs,
        padding=(1, 1), tile=tile,
    )  # fmt: skip
    return _executable("winograd", product, (1, lines, pixels, outputs), values)


def _load(name: str, values: dict[str, Array]) -> Term:
    return element("load", tensor("input", name=name, shape=values[name].shape, dtype="f32"))


def _executable(
    template: str, product: Term, shape: tuple[int, ...], values: dict[str, Array]
) -> tuple[runtime.Executable, float]:
    """Compile relu(product + b) and return it with the time that one thread is predicted to take."""
    zero = element("const", value=Scalar.of(0, "f32"))
    body = tensor("build", element("max", element("add", product, _load("b", values)), zero), shape=shape)
    known = ("w", "b")
    estimate = templates.by_name(template).estimate((body,), frozenset(known), REFERENCE)
    assert estimate is not None
    kernel = Kernel("layer", template, (Output("out", body),), ("x", *known), Estimate(0, 0, 0))
    params = {name: tensor("param", name=name, shape=values[name].shape, dtype="f32") for name in known}
    inputs = {"x": TensorType(values["x"].shape, "f32")}
    program = Program(inputs, params, (kernel,), ("out",))
    return runtime.build(program, {name: values[name] for name in known}), REFERENCE.threads * estimate.seconds


if __name__ == "__main__":
    main()
