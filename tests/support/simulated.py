"""Runs kernels and models in numba's CUDA simulator, which has to be chosen before numba is imported: as a process.

    python simulated.py cases 0 2      the first half of all cases, by every template that takes them, in small blocks
    python simulated.py launches       products with every kind of tile, rows and flat loops in blocks as on a device
    python simulated.py models         three small models through optimize(target="cuda")

Prints JSON: what ran, what was too large to simulate, and what went wrong, by name.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
warnings.simplefilter("ignore")  # numpy's scalars, of which simulated threads are made, warn of every overflow
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

import numpy as np  # noqa: E402
from kernel_cases import (  # noqa: E402
    CASES,
    RANDOM_CASES,
    Case,
    assert_agrees,
    build,
    case_named,
    element,
    fold,
    load,
    reindex,
    softmax,
)
from numba.cuda.simulator import kernel as simulator  # noqa: E402
from random_programs import SHAPE, random_program  # noqa: E402

from frittata.egraph import interpret  # noqa: E402
from frittata.egraph.errors import CompileError, IndexRangeError  # noqa: E402
from frittata.egraph.indexing import permute_map  # noqa: E402
from frittata.egraph.machine import REFERENCE_GPU  # noqa: E402
from frittata.egraph.terms import Term  # noqa: E402
from frittata.kernels.cuda import device, flat, rows, runtime, templates, tiles  # noqa: E402
from frittata.kernels.cuda.tensor_tiles import TENSOR_TILES, TensorTile  # noqa: E402
from frittata.kernels.cuda.tiles import Tile  # noqa: E402

MOST_UNITS = 60_000
MOST_BLOCKS = 40
np.seterr(all="ignore")


class AbandonedError(RuntimeError):
    """Another thread of the block failed, for which this one waits."""


class Meeting:
    """Where the threads of a block wait for each other; the simulator's own way is to ask each over and over."""

    def __init__(self, threads: int) -> None:
        self._changed = threading.Condition()
        self._present, self._waiting, self._turn, self._failed = threads, 0, 0, False

    def wait(self) -> None:
        """Go on when all that are present wait."""
        with self._changed:
            self._waiting += 1
            turn = self._turn
            self._go_on()
            self._changed.wait_for(lambda: self._turn != turn or self._failed)
            if self._failed:
                raise AbandonedError

    def leave(self, *, failed: bool) -> None:
        """Be waited for no longer."""
        with self._changed:
            self._present -= 1
            self._failed |= failed
            self._go_on()

    def _go_on(self) -> None:
        if self._waiting == self._present or self._failed:
            self._waiting = 0
            self._turn += 1
            self._changed.notify_all()


class BlockThread(simulator.BlockThread):
    """One thread of a block."""

    def run(self) -> None:
        super().run()
        self._manager.meeting.leave(failed=self.exception is not None)

    def syncthreads(self) -> None:
        self._manager.meeting.wait()


class BlockManager(simulator.BlockManager):
    """Runs the threads of a block."""

    def run(self, grid_point: Any, *args: Any) -> None:
        points = list(np.ndindex(*self._block_dim))
        self.meeting = Meeting(len(points))
        threads = [BlockThread(lambda: self._f(*args), self, grid_point, point, self._debug) for point in points]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wrong = sorted((t.exception for t in threads if t.exception), key=lambda e: isinstance(e[0], AbandonedError))
        for error, trace in wrong[:1]:
            raise error.with_traceback(trace)


simulator.BlockManager = BlockManager


class Ledger:
    """What ran, what did not, and how it ended."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.large: list[str] = []
        self.wrong: dict[str, str] = {}

    def run(self, name: str, work: Callable[[], None]) -> None:
        """Run one thing and note how it ended."""
        self.ran.append(name)
        try:
            work()
        except Exception as error:
            self.wrong[name] = f"{type(error).__name__}: {error}"


def small_launches() -> None:
    """Make blocks small: the simulator spends a thread of the operating system on each of theirs."""
    _small_blocks()
    templates.choose_tile = lambda work, machine: Tile(4, 4, 4, 4, 16)  # type: ignore[assignment]
    templates.choose_tensor_tile = lambda *given: TensorTile(1, 1, 1, 2, 32, 3)  # type: ignore[assignment]


def _small_blocks() -> None:
    """Long rows have two warps, and all flat loops several rounds."""
    flat.MOST_THREADS = rows.MOST_THREADS = 32  # type: ignore[misc]
    flat.ENOUGH_THREADS = 1  # type: ignore[misc]
    rows.MOST_LANES = 64  # type: ignore[misc]
    rows._SIDE_BY_SIDE = 8  # type: ignore[misc]


def check(case: Case, template: str) -> None:
    """Compare one kernel with the interpreter."""
    values = case.values()
    assert_agrees(case, runtime.build(case.program(template), {})(*values), case.expected(values))


def cases(ledger: Ledger, part: int, parts: int) -> None:
    """Run every `parts`-th case by every template that takes it."""
    small_launches()
    for case in (*CASES, *RANDOM_CASES)[part::parts]:
        for template in templates.TEMPLATES:
            estimate = template.estimate(case.bodies, frozenset(), REFERENCE_GPU)
            if estimate is None:
                continue
            name = f"{case.name} {template.name}"
            kernel = template.write(case.name, case.bodies)
            if estimate.flops > MOST_UNITS or kernel.blocks > MOST_BLOCKS:
                ledger.large.append(name)
            else:
                ledger.run(name, lambda case=case, template=template: check(case, template.name))


def launches(ledger: Ledger) -> None:
    """Run ragged products with each kind of tile that prices choose from, and rows of several kinds."""
    single, quads = (
        Case("tiles", (build(element("tanh", element("dot", load("a", m, k), load("b", k, n), depth=k)), m, n),))
        for m, k, n in ((5, 18, 7), (20, 36, 12))
    )
    for tile in tiles.TILES:
        templates.choose_tile = lambda work, machine, tile=tile: tile  # type: ignore[assignment]
        if tile.teams == 1:  # teams load as others do
            ledger.run(f"single {tile}", lambda: check(single, "contraction"))
        ledger.run(f"quads {tile}", lambda: check(quads, "contraction"))
    templates.choose_tile = lambda work, machine: Tile(4, 4, 4, 4, 16, 3)  # type: ignore[assignment]
    for name in ("dot-f64", "dot-batched", "dot-i64", "dot-windows-8", "dot-windows-6"):
        ledger.run(f"{name} by teams", lambda name=name: check(case_named(name), "contraction"))
    for name in ("window-3x3-s1-p1-d1-g1", "window-fused"):
        ledger.run(f"{name} by teams", lambda name=name: check(case_named(name), "convolution"))
    for number in (2, 4):
        templates.choose_tensor_tile = lambda *given, number=number: TENSOR_TILES[number]  # type: ignore[assignment]
        for name in ("halves-bf16", "halves-turned-f16", "halves-computed"):
            ledger.run(f"{name} {TENSOR_TILES[number]}", lambda name=name: check(case_named(name), "tensor"))
    device._scope(None)["is_aligned"] = lambda array: False  # type: ignore[reportPrivateUsage]
    for name in ("halves-bf16", "halves-turned-f16", "halves-ragged"):
        ledger.run(f"{name} from anywhere in memory", lambda name=name: check(case_named(name), "tensor"))
    for name, template in (
        ("fold-outer", "row"),
        ("softmax-17", "row"),
        ("dot-f64", "row"),
        ("broadcast", "pointwise"),
    ):
        ledger.run(name, lambda name=name, template=template: check(case_named(name), template))
    _small_blocks()
    for name, template, body in _shapes():
        ledger.run(name, lambda name=name, template=template, body=body: check(Case(name, (body,)), template))


def _shapes() -> Iterator[tuple[str, str, Term]]:
    """Yield outputs that fit into blocks of several rounds and some that do not, squares, and rows of several kinds."""

    def added(*shape: int, row: tuple[int, ...]) -> Term:
        return build(element("add", load("x", *shape), element("exp", load("y", *row))), *shape)

    def turned(*shape: int) -> Term:
        x, there = reindex(load("x", *shape), permute_map(shape, (1, 2, 0))), (*shape[1:], shape[0])
        return build(element("add", x, load("y", *there)), *there)

    yield "whole blocks of a row", "pointwise", added(3, 4, 256, row=(4, 1))
    yield "whole blocks of several rows", "pointwise", added(16, 4, 16, row=(4, 1))
    yield "a block that is not full", "pointwise", added(61, 17, row=(17,))
    yield "squares", "pointwise", turned(32, 2, 64)
    yield "squares that are not full", "pointwise", turned(35, 1, 33)
    for shape in ((3, 5), (2, 33), (3, 1100)):
        yield f"rows {shape}", "row", build(softmax(load("x", *shape), -1, shape[-1]), *shape)
    yield "rows too long for registers", "row", build(softmax(load("x", 2, 4100), -1, 4100), 2, 4100)
    yield "columns", "row", build(softmax(load("x", 1, 70, 5), -2, 70), 1, 70, 5)
    yield "long columns", "row", build(fold("sum", load("x", 3000, 9), -2, 3000), 1, 9)


def models(ledger: Ledger) -> None:
    """Run small models by the choice of prices, against torch eager."""
    import torch

    import frittata as ft
    from bench import workloads

    made: dict[str, Any] = {
        "mlp": workloads.mlp(7, 5, 3, batch=3),
        "encoder layer": workloads.encoder_layer(10, 2, 12, tokens=3, batch=1),
        "basic block": workloads.basic_block(3, 5, batch=1),
    }
    for name, dtype in (("mlp", torch.float16), ("encoder layer", torch.bfloat16), ("basic block", torch.bfloat16)):
        module, args = made[name]
        made[f"{name} {dtype}"] = deepcopy(module).to(dtype), tuple(arg.to(dtype) for arg in args)
    _small_blocks()

    def compare(module: Any, args: Any) -> None:
        fast = ft.optimize(module, args, target="cuda")
        with torch.no_grad():
            expected = module(*args)
        found = fast(*args)
        assert type(found) is torch.Tensor
        assert found.dtype is expected.dtype
        tolerance = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[found.dtype]
        assert float((found - expected).abs().max() / expected.abs().max()) < tolerance
        assert "@cuda.jit" in fast.kernels[0].source

    for name, (module, args) in made.items():
        ledger.run(name, lambda module=module, args=args: compare(module, args))
    ledger.run("look-up", look_up)
    ledger.run("a host step", sort)
    ledger.run("a join", join)
    ledger.run("no clock", no_clock)
    for seed in range(3):
        ledger.run(f"program {seed}", lambda seed=seed: whole_program(seed))


def look_up() -> None:
    """A gather reads what numpy reads, and refuses an index that lies outside."""
    import frittata as ft

    model = ft.parse("""
def main(x: f32[5, 3], at: i64[4]) -> f32[4, 3]:
    v1: f32[4, 3] = take(x, at, axis=-2)
    return v1
""")
    fast = ft.optimize(model, target="cuda")
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    inside = np.array([4, 0, 2, 2])
    np.testing.assert_array_equal(fast(x, inside), x[inside])
    try:
        fast(x, np.array([4, 0, 7, 2]))
    except IndexRangeError as error:
        assert "7" in str(error)
    else:
        raise AssertionError("the index was not refused")


def sort() -> None:
    """What has no definition by elements runs in Python between kernels."""
    import frittata as ft

    model = ft.parse("""
def main(x: f32[3, 5]) -> f32[3, 5]:
    v1: f32[3, 5] = neg(x)
    v2: f32[3, 5] = sort(v1, axis=-1, descending=False)
    v3: f32[3, 5] = exp(v2)
    return v3
""")
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    found = ft.optimize(model, target="cuda")(x)
    np.testing.assert_allclose(found, np.exp(np.sort(-x, axis=-1)), rtol=1e-6)


def join() -> None:
    """The parts of a concatenation are written where they belong, and a part of it is read from there."""
    import frittata as ft

    model = ft.parse("""
def main(x: f32[2, 5], y: f32[3, 5]) -> (f32[5, 5], f32[3, 5]):
    v1: f32[2, 5] = softmax(x, axis=-1)
    v2: f32[3, 5] = softmax(y, axis=-1)
    v3: f32[5, 5] = concat(v1, v2, axis=-2)
    v4: f32[3, 5] = exp(v2)
    return v3, v4
""")
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((rows_, 5)).astype(np.float32) for rows_ in (2, 3))
    found = ft.optimize(model, target="cuda")(x, y)
    for ours, law in zip(found, model.interpret(x, y), strict=True):
        np.testing.assert_allclose(ours, law, rtol=1e-6)


def no_clock() -> None:
    """Times of simulated kernels would mean nothing, and there are none."""
    executable = runtime.build(case_named("ones").program("pointwise"), {})
    try:
        executable.measure(*case_named("ones").values())
    except CompileError as error:
        assert "keeps no time" in str(error)
    else:
        raise AssertionError("a simulated kernel was timed")


def whole_program(seed: int) -> None:
    """Views, constants, outputs that no kernel writes: twice, for what a call leaves in the arena."""
    program = random_program(seed)
    rng = np.random.default_rng(seed)
    a, b, weight = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(3))
    executable = runtime.build(program, {"w": weight})
    expected = interpret.evaluate(program.to_terms(), {"a": a, "b": b, "w": weight})
    for _ in range(2):
        for found, law in zip(executable(a, b), expected, strict=True):
            np.testing.assert_allclose(found, law, rtol=1e-5, atol=1e-6)


def main(arguments: list[str]) -> Iterator[str]:
    """Run what the arguments say."""
    ledger = Ledger()
    match arguments:
        case ["cases", part, parts]:
            cases(ledger, int(part), int(parts))
        case ["launches"]:
            launches(ledger)
        case ["models"]:
            models(ledger)
        case _:
            raise SystemExit(__doc__)
    yield json.dumps(vars(ledger))


if __name__ == "__main__":
    print(*main(sys.argv[1:]))
