"""Time convolutions with the channels last and with blocks of channels, (batch, block, height, width, channels of it).

python -m bench.layouts [EXTENT,INPUTS,OUTPUTS,KERNEL ...] [--turns N]

Both are products whose rows are windows, read in place, by the same template; weights are packed and margins are there.
Blocks are one and two vectors of channels wide. Prints the median rate of each on all threads, turn by turn.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator

import numpy as np

from frittata.egraph import indexing
from frittata.egraph.indexing import IndexMap, axes_of, reshape_map
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.program import Estimate, Kernel, Output, Program, operands_of
from frittata.egraph.terms import Scalar, TensorType, Term
from frittata.kernels import runtime
from frittata.kernels.gemm_emitters import lanes_of

LAYERS = ("58,64,64,3", "30,128,128,3", "16,256,256,3", "9,512,512,3", "56,256,64,1", "28,256,512,1", "14,1024,256,1")
_REPEATS = 8


def main() -> None:
    """Time the layers and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m bench.layouts", description=__doc__)
    parser.add_argument("layers", nargs="*", default=LAYERS)
    parser.add_argument("--turns", type=int, default=20)
    given = parser.parse_args()
    for layer in given.layers:
        extent, inputs, outputs, kernel = map(int, layer.split(","))
        ways = dict(_ways(extent, inputs, outputs, kernel))
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(given.turns):
            for name, (executable, image) in ways.items():
                found[name].append(float(executable.measure(image, repeats=_REPEATS)[0]))
        flops = 2 * (extent - kernel + 1) ** 2 * inputs * outputs * kernel**2
        rates = (f"{name} {flops / statistics.median(seconds) / 1e9:.0f}" for name, seconds in found.items())
        print(f"{layer}: Gflop/s {', '.join(rates)}", flush=True)


def _ways(
    extent: int, inputs: int, outputs: int, kernel: int
) -> Iterator[tuple[str, tuple[runtime.Executable, np.ndarray]]]:
    shape = (1, extent, extent, inputs)
    windows = indexing.patches_map(shape, (kernel, kernel), (1, 1), (1, 1))
    depth, side = inputs * kernel**2, extent - kernel + 1
    weights = _load("w", depth, outputs)
    yield "channels last", _executable(shape, windows, weights, (1, side, side, outputs))
    for vectors in (1, 2):
        block = vectors * lanes_of("f32")
        if inputs % block == 0 and outputs % block == 0:
            blocked = (1, inputs // block, extent, extent, block)
            by_block = (outputs // block, 1, depth, block)
            split = element("reindex", weights, map=_in_blocks(depth, outputs, by_block))
            results = (1, outputs // block, side, side, block)
            yield f"blocks of {block}", _executable(blocked, _windows(blocked, kernel), split, results)


def _windows(shape: tuple[int, int, int, int, int], kernel: int) -> IndexMap:
    """Read each window of a blocked image as a row: (1, block, height, width, channel) -> (1, 1, y, x, elements)."""
    _, blocks, extent, _, block = shape
    side, depth = extent - kernel + 1, blocks * kernel**2 * block
    result = (1, 1, side, side, depth)
    batch, _, y, x, _ = axes_of(result)
    b, dy, dx, channel = reshape_map((blocks, kernel, kernel, block), (depth,)).sources
    return IndexMap(shape, result, (batch, b, y + dy, x + dx, channel))


def _in_blocks(depth: int, outputs: int, by_block: tuple[int, ...]) -> IndexMap:
    number, _, k, channel = axes_of(by_block)
    return IndexMap((depth, outputs), by_block, (k, number * by_block[-1] + channel))


def _load(name: str, *shape: int) -> Term:
    return element("load", tensor("input", name=name, shape=shape, dtype="f32"))


def _executable(
    shape: tuple[int, ...], windows: IndexMap, weights: Term, results: tuple[int, ...]
) -> tuple[runtime.Executable, np.ndarray]:
    rows = element("reindex", _load("x", *shape), map=windows)
    depth = windows.result[-1]
    product = element("dot", rows, weights, depth=depth)
    body = tensor("build", element("max", product, element("const", value=Scalar.of(0, "f32"))), shape=results)
    kernel = Kernel("layer", "contraction", (Output("out", body),), ("x", "w"), Estimate(0, 0, 0))
    (leaf,) = (leaf for leaf in operands_of(body) if leaf.attrs[0] == "w")
    param = tensor("param", name="w", shape=leaf.shape, dtype="f32")
    program = Program({"x": TensorType(shape, "f32")}, {"w": param}, (kernel,), ("out",))
    rng = np.random.default_rng(0)
    executable = runtime.build(program, {"w": rng.standard_normal(param.shape, dtype=np.float32)})
    return executable, rng.standard_normal(shape, dtype=np.float32)


if __name__ == "__main__":
    main()
