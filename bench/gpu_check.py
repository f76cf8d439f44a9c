"""The one command for a machine with a GPU: are the CUDA kernels right there, and how fast beside torch.

python -m bench.gpu_check [--parts PART...] [--output FILE]

First every kernel case by every template against the interpreter; calls of all kinds; small models, and the zoo's
narrow ones, against torch in float64. Then timings of single kernels and whole models, interleaved with torch's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

import frittata as ft
from bench import gpu_timings, workloads
from bench.machine import description
from bench.models import MODELS
from frittata.dynamo import backend
from frittata.egraph.machine import REFERENCE_GPU
from frittata.kernels.batch import compile_kernels
from frittata.kernels.cache import KernelCache
from frittata.kernels.cuda import device, graphs, runtime
from frittata.kernels.cuda.kernel import CudaKernel
from frittata.kernels.cuda.launch import PtxSource
from frittata.kernels.cuda.library import LIBRARIES, gemm
from frittata.kernels.cuda.templates import TEMPLATES

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "gpu.json"
TOLERANCE, HALF_TOLERANCE = 1e-4, 2e-2
LOOK_UP = """
def main(x: f32[33, 130], i: i64[5]) -> (f32[5, 130], f32[33, 1]):
    v1: f32[33, 130] = softmax(x, axis=-1)
    v2: f32[5, 130] = take(v1, i, axis=-2)
    v3: f32[33, 1] = reduce_sum(x, axis=-1)
    return v2, v3
"""
CHAIN = """
def main(x: f32[64, 256]) -> f32[64, 256]:
    v1: f32[64, 256] = gelu(x)
    v2: f32[64, 256] = softmax(v1, axis=-1)
    v3: f32[64, 256] = add(v2, x)
    v4: f32[64, 256] = softmax(v3, axis=-2)
    v5: f32[64, 256] = add(v4, x)
    v6: f32[64, 256] = softmax(v5, axis=-1)
    v7: f32[64, 256] = add(v6, x)
    v8: f32[64, 256] = softmax(v7, axis=-2)
    v9: f32[64, 256] = add(v8, x)
    return v9
"""
"""Several kernels in a row: from the second call on a graph."""


def smooth(x: torch.Tensor) -> torch.Tensor:
    """Compute the chain."""
    found = torch.nn.functional.gelu(x)
    for axis in (-1, -2, -1, -2):
        found = torch.softmax(found, axis) + x
    return found


def main() -> int:
    """Check, time, print and write; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_check", description=__doc__)
    parts = [*CHECKS, "kernels", "zoo"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if device.state() != "device" or not torch.cuda.is_available():
        print(
            f"No GPU: numba offers {device.state()!r}, torch.cuda.is_available() is {torch.cuda.is_available()}. "
            "Nothing was checked. This needs an NVIDIA GPU, numba-cuda with the CUDA toolkit, and torch built for CUDA."
        )
        return 1
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    wrong: dict[str, str] = {}
    rows: dict[str, list[Any]] = {"kernels": [], "models": []}
    machine = description() | {"gpu": torch.cuda.get_device_name()}

    def note() -> None:
        """Write what was found so far: who ends this command loses only what it is at."""
        arguments.output.write_text(json.dumps({"machine": machine, "wrong": wrong, **rows}, indent=1) + "\n")

    timed = gpu_timings.TIMED if "zoo" in arguments.parts else ()
    processes = max(1, (os.cpu_count() or 1) // 3)  # each has others compile
    with ProcessPoolExecutor(processes, get_context("spawn"), _as_eager) as pool:
        checks = {name: check for part in CHECKS if part in arguments.parts for name, check in CHECKS[part].items()}
        checked = {name: pool.submit(check) for name, check in checks.items()}
        prepared = {model: pool.submit(gpu_timings.prepare, *model) for model in timed}
        for name, future in checked.items():
            wrong |= _found(name, future)
            note()
        for (name, _), future in prepared.items():
            wrong |= _noted({f"{name}, full": future.result})
    for name, what in wrong.items():
        print(f"WRONG {name}: {what}", flush=True)
    _as_eager()
    machine["copy_bytes_per_s"] = rate = gpu_timings.copy_rate()
    for workload in gpu_timings.WORKLOADS if "kernels" in arguments.parts else ():
        rows["kernels"].append(gpu_timings.timed_kernel(workload, rate))
        note()
    for model in (model for model, future in prepared.items() if future.exception() is None):
        rows["models"].append(gpu_timings.timed_model(*model, prepared[model].result()))
        note()
    note()
    print(f"{len(wrong)} wrong; wrote {arguments.output.name}")
    return 1 if wrong else 0


def _as_eager() -> None:
    """Have torch multiply in float32, and without gradients."""
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def _found(name: str, checked: Future[dict[str, str]]) -> dict[str, str]:
    """Return what a check found wrong, by name, or that it ended with its process."""
    return _noted({name: checked.result}) or checked.result()


def _noted(checks: dict[str, Callable[[], object]]) -> dict[str, str]:
    """Run checks; return what went wrong by name, with paths from the project's root on."""
    wrong: dict[str, str] = {}
    for name, check in checks.items():
        try:
            check()
        except Exception as error:
            wrong[name] = f"{type(error).__name__}: {error}".replace(f"{ROOT}{os.sep}", "")[:500]
    return wrong


# ---- right or wrong --------------------------------------------------------------------------------------------------


def _cases() -> dict[str, str]:
    """Compare every case by every template with the interpreter; return what went wrong by name."""
    sys.path.append(str(ROOT / "tests" / "support"))
    from kernel_cases import CASES, RANDOM_CASES, Case, assert_agrees

    def agrees(case: Case, template: str) -> None:
        values = case.values()
        run = runtime.build(case.program(template), {}, cache)
        assert_agrees(case, run(*values), case.expected(values))

    library_ = LIBRARIES if gemm() else ()
    taken = [
        (case, template)
        for case in (*CASES, *RANDOM_CASES)
        for template in (*TEMPLATES, *library_)
        if template.estimate(case.bodies, frozenset(), REFERENCE_GPU) is not None
    ]
    steps = [step for case, each in taken for step in runtime.written(case.program(each.name))]
    kernels = dict.fromkeys(step for step in steps if isinstance(step, CudaKernel))
    with TemporaryDirectory() as folder:
        cache = KernelCache(Path(folder))
        compile_kernels([PtxSource(kernel, device.capability()) for kernel in kernels], cache)
        wrong = _noted({f"{case.name} {each.name}": partial(agrees, case, each.name) for case, each in taken})
    print(f"{len(taken)} kernels compared with the interpreter, {len(wrong)} wrong", flush=True)
    return wrong


def _calls() -> dict[str, str]:
    """Call one model with arguments of all kinds, from several threads, in a stream, and in a graph."""
    fast, chain = (ft.optimize(ft.parse(script), target="cuda") for script in (LOOK_UP, CHAIN))
    x, i = torch.randn(33, 130), torch.tensor([3, 0, 32, 3, 7])
    dx, di = x.cuda(), i.cuda()
    y = torch.randn(64, 256, device="cuda")

    def right(found: Any, x: torch.Tensor = dx, i: torch.Tensor = di) -> None:
        taken, sums = (torch.as_tensor(result).to("cuda") for result in found)
        torch.testing.assert_close(taken, torch.softmax(x, -1)[i])
        torch.testing.assert_close(sums, x.sum(1, keepdim=True), rtol=1e-5, atol=1e-4)

    def refused() -> None:
        try:
            fast(dx, torch.tensor([0, 1, 2, 3, 33], device="cuda"))
        except ft.FrittataError:
            right(fast(dx, di))  # and what comes after is right again
        else:
            raise AssertionError("an index beyond the axis was not refused")

    def on_a_stream() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            found = chain(y * 2)
        stream.synchronize()
        torch.testing.assert_close(found, smooth(y * 2))

    def in_a_graph() -> None:
        given = y.clone()
        chain(given)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = chain(given)
        given.copy_(y * 3)
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(found, smooth(y * 3))

    def threads() -> None:
        def some(number: int) -> None:
            given = y * number
            for _ in range(50):
                torch.testing.assert_close(chain(given), smooth(given))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(some, range(4)))

    def unaligned() -> None:
        memory = torch.randn(64 * 256 + 1, device="cuda")
        given = memory[1:].view(64, 256)
        torch.testing.assert_close(chain(given), smooth(given))

    def captured() -> None:
        module, args = workloads.mlp()
        module, args = module.cuda(), tuple(arg.cuda() for arg in args)
        torch.testing.assert_close(torch.compile(module, backend=backend)(*args), module(*args), rtol=1e-4, atol=1e-5)

    def verified() -> None:
        fast.verify(dx, di).check()

    def saved() -> None:
        with TemporaryDirectory() as folder:
            right(ft.load(fast.save(Path(folder) / "model"))(dx, di))

    def numpy() -> None:
        found = fast(x.numpy(), i.numpy())
        assert all(isinstance(result, np.ndarray) for result in found)
        right(found)

    def again() -> None:
        assert len(chain.kernels) >= graphs.FEWEST
        kept: list[torch.Tensor] = []  # so that arguments and results move
        for number in range(8):
            kept += [given := y * number, chain(given)]
            torch.testing.assert_close(kept[-1], smooth(given))

    checks: dict[str, Callable[[], object]] = {
        "again and again": again,
        "tensors on the device": lambda: right(fast(dx, di)),
        "numpy arrays": numpy,
        "tensors on the CPU": lambda: right(fast(x, i)),
        "transposed": lambda: right(fast(dx.t().contiguous().t(), di)),
        "unaligned": unaligned,
        "an index beyond": refused,
        "a stream": on_a_stream,
        "a graph": in_a_graph,
        "four threads": threads,
        "torch.compile": captured,
        "verified": verified,
        "saved": saved,
    }
    wrong = _noted(checks)
    print(f"{len(checks)} kinds of calls, {len(wrong)} wrong", flush=True)
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


def _model(name: str) -> dict[str, str]:
    """Compare a small model, or one of the zoo's narrow ones, with torch in float64, all on the device."""
    return _noted({name: lambda: _agrees(name, *SMALL[name]())})


def _agrees(name: str, module: torch.nn.Module, args: Any) -> None:
    there = pytree.tree_map(lambda arg: arg.cuda(), args)
    fast = ft.optimize(module.cuda(), there, target="cuda")
    found = pytree.tree_leaves(fast(*there))
    for _ in range(2):  # by graphs, with arguments elsewhere
        again = pytree.tree_leaves(fast(*pytree.tree_map(lambda arg: arg.clone(), there)))
        assert all(map(torch.equal, found, again)), "a second call differs"
    wide = pytree.tree_map(lambda arg: arg.double() if arg.is_floating_point() else arg, args)
    expected = pytree.tree_leaves(module.cpu().double()(*wide))
    scales = [max(1.0, float(law.abs().max())) for law in expected]
    pairs = zip(found, expected, scales, strict=True)
    error = max(float((ours.cpu().double() - law).abs().max()) / scale for ours, law, scale in pairs)
    print(f"{name}: largest difference from float64 {error:.1e}", flush=True)
    assert all(ours.is_cuda for ours in found), "a result is not on the device"
    tolerance = TOLERANCE if all(ours.dtype == torch.float32 for ours in found) else HALF_TOLERANCE
    assert error < tolerance, f"differs from float64 by {error:.1e}"


SMALL: dict[str, Callable[[], tuple[torch.nn.Module, Any]]] = {
    "mlp": workloads.mlp,
    "encoder layer": workloads.encoder_layer,
    "basic block": workloads.basic_block,
    "encoder layer, bfloat16": partial(workloads.encoder_layer, dtype=torch.bfloat16),
    **{name: partial(entry.make, "narrow") for name, entry in MODELS.items()},
}
CHECKS: dict[str, dict[str, Callable[[], dict[str, str]]]] = {
    "cases": {"cases": _cases},
    "roundings": {"roundings": _roundings},
    "calls": {"calls": _calls},
    "models": {name: partial(_model, name) for name in SMALL},
}
"""What is checked: of each part, functions that return what went wrong by name."""


if __name__ == "__main__":
    sys.exit(main())
