"""Who takes part: eager torch, ours with and without library calls, and the compilers that a user could pick instead.

Each gets the model and its arguments in the form that its own users give them, on two threads, with its defaults.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import frittata as ft
from bench.acceptance import THREADS, host_steps, kernels_by_template, known_machine
from bench.models.weights import Workload
from bench.rows import Row
from bench.timing import Call
from frittata.egraph.program import Program


class Missing(Exception):
    """A contestant cannot take part, because something is not installed."""


@dataclass(frozen=True)
class Case:
    """A row's model and arguments, and a folder for what is made from them."""

    row: Row
    folder: Path

    @cached_property
    def workload(self) -> Workload:
        """The module and its arguments."""
        return self.row.make()

    @property
    def arguments(self) -> list[Tensor]:
        """All tensors of a call, in order."""
        return pytree.tree_leaves(self.workload[1])

    @property
    def onnx_file(self) -> Path:
        """Where `export` writes the model."""
        return self.folder / "model.onnx"

    def export(self) -> None:
        """Write the model as ONNX unless it is there."""
        if not self.onnx_file.exists():
            module, args = self.workload
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(module, args, str(self.onnx_file), dynamo=True, verbose=False)


@dataclass(frozen=True)
class Prepared:
    """A contestant ready to run: `tensors` turns what a call returns into the tensors that eager returns.

    `program` is what was chosen, if it is ours.
    """

    call: Call
    tensors: Callable[[Any], Iterable[Any]] = pytree.tree_leaves
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    program: Program | None = None


@dataclass(frozen=True)
class Contestant:
    """`load` does what comes before the clock starts: imports, export; raises Missing. `prepare` is what is timed.

    `keeps_cache`: whether it is faster to prepare the second time. `takes` tells which rows it can run.
    """

    load: Callable[[Case], None]
    prepare: Callable[[Case], Prepared]
    is_peer: bool = True
    keeps_cache: bool = False
    takes: Callable[[Row], bool] = lambda _row: True


def _nothing(_case: Case) -> None:
    return


def _eager(case: Case) -> Prepared:
    module, args = case.workload
    return Prepared(lambda: module(*args))


def _load_ours(_case: Case) -> None:
    _import("numba", "egglog", "highspy", "torch.export", "torch._dynamo", "frittata.frontends.torch_export")
    known_machine()


def _ours(case: Case, library: bool = True) -> Prepared:
    module, args = case.workload
    fast = ft.optimize(module, args, library=library, cache=case.folder / "frittata", machine=known_machine())
    facts = {
        "phase_seconds": fast.compilation.phase_seconds,
        "gap": fast.program.gap,
        "predicted_s": fast.program.cost_s,
        "kernels": kernels_by_template(fast),
        "externs": host_steps(fast),
    }
    return Prepared(lambda: fast(*args), facts=facts, program=fast.program)


def _load_inductor(_case: Case) -> None:
    if shutil.which(os.environ.get("CXX") or "g++") is None:
        raise Missing("no C++ compiler, which torch.compile needs")
    _import("torch._dynamo", "torch._inductor.compile_fx")
    config: Any = importlib.import_module("torch._inductor.config")
    config.freezing = True


def _inductor(case: Case) -> Prepared:
    module, args = case.workload
    compiled: Any = torch.compile(module, dynamic=False)
    return Prepared(lambda: compiled(*args))


def _load_onnxruntime(case: Case) -> None:
    _import("onnxruntime", "onnxscript")
    case.export()


def _onnxruntime(case: Case) -> Prepared:
    library: Any = importlib.import_module("onnxruntime")
    options = library.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    session = library.InferenceSession(str(case.onnx_file), options, providers=["CPUExecutionProvider"])
    arrays = (tensor.numpy() for tensor in case.arguments)
    feed = {given.name: array for given, array in zip(session.get_inputs(), arrays, strict=True)}
    return Prepared(lambda: session.run(None, feed), _from_numpy)


def _load_openvino(case: Case) -> None:
    _import("openvino", "onnxscript")
    case.export()


def _openvino(case: Case) -> Prepared:
    library: Any = importlib.import_module("openvino")
    options = {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = library.Core().compile_model(str(case.onnx_file), "CPU", options)
    request = compiled.create_infer_request()
    for number, tensor in enumerate(case.arguments):
        request.set_input_tensor(number, library.Tensor(tensor.numpy(), shared_memory=True))
    return Prepared(
        lambda: request.infer(share_outputs=True),
        lambda _: _from_numpy([request.get_output_tensor(n).data for n in range(len(compiled.outputs))]),
    )


def _load_xla(_case: Case) -> None:
    _import("jax")
    importlib.import_module("jax").config.update("jax_platforms", "cpu")


def _xla(case: Case) -> Prepared:
    library: Any = importlib.import_module("jax")
    twin = importlib.import_module("bench.twins").TWINS[case.row.twin]
    function = library.jit(twin(case.workload[0]))
    arrays = [library.numpy.asarray(tensor.numpy()) for tensor in case.arguments]
    return Prepared(lambda: library.block_until_ready(function(*arrays)), lambda out: _from_numpy([out]))


def _import(*names: str) -> None:
    """Import modules; raise Missing for a package that is not installed."""
    for name in names:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            raise Missing(f"{name} is not installed")
        importlib.import_module(name)


def _from_numpy(arrays: Sequence[Any]) -> list[Tensor]:
    return [torch.tensor(array) for array in arrays]


CONTESTANTS: dict[str, Contestant] = {
    "eager": Contestant(_nothing, _eager),
    "ours": Contestant(_load_ours, _ours, is_peer=False, keeps_cache=True),
    "ours, no library": Contestant(_load_ours, lambda case: _ours(case, library=False), is_peer=False),
    "torch.compile": Contestant(_load_inductor, _inductor, keeps_cache=True),
    "onnxruntime": Contestant(_load_onnxruntime, _onnxruntime),
    "openvino": Contestant(_load_openvino, _openvino),
    "jax": Contestant(_load_xla, _xla, takes=lambda row: row.twin != ""),
}
"""By name, in the order in which they are prepared: ours forks to compile, so before those that start threads."""
