"""Frittata is an equality-saturation compiler for tensor programs.

>>> import frittata as ft
>>> fast = ft.optimize(model, args)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from frittata.collector import resting
from frittata.egraph.errors import FrittataError
from frittata.egraph.model import Model
from frittata.egraph.script import parse
from frittata.options import Options

if TYPE_CHECKING:
    from frittata import graphs as graphs
    from frittata import ops as ops
    from frittata.context import Context as Context
    from frittata.dynamic import Dynamic as Dynamic
    from frittata.frontends.arrays.builder import Builder as Builder
    from frittata.frontends.arrays.calls import extern as extern
    from frittata.frontends.arrays.compute import build as build
    from frittata.frontends.arrays.compute import fold as fold
    from frittata.frontends.arrays.tensor import Tensor as Tensor
    from frittata.frontends.arrays.tensor import as_tensor as as_tensor
    from frittata.frontends.arrays.tensor import input as input
    from frittata.frontends.arrays.trace import from_function as from_function
    from frittata.frontends.onnx.importer import from_onnx as from_onnx
    from frittata.frontends.torch_export import from_exported_program as from_exported_program
    from frittata.frontends.torch_fx import from_fx as from_fx
    from frittata.instruments import Instrument as Instrument
    from frittata.instruments import Snapshot as Snapshot
    from frittata.instruments import Timing as Timing
    from frittata.optimized import Optimized
    from frittata.passes import Pipeline as Pipeline
    from frittata.passes import get_pipeline as get_pipeline
    from frittata.passes import register_pipeline as register_pipeline
    from frittata.passes import transform as transform
    from frittata.rules.own import rule_function as rule_function

    __version__: str

__all__ = [
    "Builder",
    "Context",
    "Dynamic",
    "FrittataError",
    "Instrument",
    "Model",
    "Options",
    "Pipeline",
    "Snapshot",
    "Tensor",
    "Timing",
    "as_tensor",
    "build",
    "extern",
    "fold",
    "from_exported_program",
    "from_function",
    "from_fx",
    "from_onnx",
    "get_pipeline",
    "graphs",
    "input",
    "load",
    "ops",
    "optimize",
    "parse",
    "register_pipeline",
    "rule_function",
    "transform",
]

_HOME_BY_NAME = {
    "Builder": "frontends.arrays.builder",
    "Context": "context",
    "Dynamic": "dynamic",
    "Instrument": "instruments",
    "Pipeline": "passes",
    "Snapshot": "instruments",
    "Tensor": "frontends.arrays.tensor",
    "Timing": "instruments",
    "as_tensor": "frontends.arrays.tensor",
    "build": "frontends.arrays.compute",
    "extern": "frontends.arrays.calls",
    "fold": "frontends.arrays.compute",
    "from_exported_program": "frontends.torch_export",
    "from_function": "frontends.arrays.trace",
    "from_fx": "frontends.torch_fx",
    "from_onnx": "frontends.onnx.importer",
    "get_pipeline": "passes",
    "input": "frontends.arrays.tensor",
    "register_pipeline": "passes",
    "rule_function": "rules.own",
    "transform": "passes",
}


def __getattr__(name: str) -> Any:
    """Load a front end, and the framework that it imports from, when it is asked for; look up the version."""
    if name in ("graphs", "ops"):
        return import_module(f"frittata.{name}")
    if name == "__version__":
        metadata = import_module("importlib.metadata")
        try:
            return metadata.version("frittata")
        except metadata.PackageNotFoundError as error:
            raise AttributeError("frittata is not installed: it has no version") from error
    if name not in _HOME_BY_NAME:
        raise AttributeError(f"module 'frittata' has no attribute {name!r}")
    return getattr(import_module(f"frittata.{_HOME_BY_NAME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


@overload
def optimize(
    model: Any, args: Any = (), kwargs: Any = None, *, dynamic_shapes: None = None, **options: Any
) -> Optimized: ...


@overload
def optimize(model: Any, args: Any = (), kwargs: Any = None, *, dynamic_shapes: Any, **options: Any) -> Dynamic: ...


@resting()
def optimize(
    model: Any, args: Any = (), kwargs: Any = None, *, dynamic_shapes: Any = None, **options: Any
) -> Optimized | Dynamic:
    """Compile a model for the shapes of its example arguments.

    `model` is a `torch.nn.Module` in eval mode, a `torch.export.ExportedProgram`, a `torch.fx.GraphModule`, an ONNX
    model or its path, a Python function of numpy arrays or of torch tensors, what a front end returned, or a
    `frittata.Model`. `args` is a tuple of example arguments, `kwargs` a dict of those that are given by name. Options
    are the fields of `Options`, those of a `Context` around the call among them.

    With `dynamic_shapes`, as `torch.export` takes it or with names for dims, or True for a model that has symbolic
    dims, programs are compiled for the sizes that come: see `Dynamic`.

    >>> fast = optimize(torch.nn.Linear(3, 2).eval(), (torch.zeros(5, 3),))  # doctest: +SKIP

    Raises: FrittataError, whose subclasses say which stage failed, where, and what to do.
    """
    from frittata import sources
    from frittata.context import current
    from frittata.dynamic import dynamic
    from frittata.optimized import Optimized
    from frittata.options import made as options_of
    from frittata.pipeline import compile_model

    chosen = options_of({**current(), **options})
    given = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    named = dict(kwargs or {})
    source = sources.resolved(model, given, named)
    if dynamic_shapes is not None:
        return dynamic(source, given, dynamic_shapes, chosen, named)
    made = Optimized(compile_model(source, given, chosen, named), given, source, kwargs=named)
    if chosen.verify:
        made.verify().check()
    return made


@resting()
def load(path: str | Path, *, cache: str | Path | None = None) -> Optimized:
    """Return a compiled model from a file that `Optimized.save` wrote; `cache` is the folder of compiled kernels.

    It needs neither the framework that the model came from nor egglog's search. Nothing in the file is run.

    Raises: ModelError if the file is none.
    """
    from frittata import saved
    from frittata.optimized import Optimized, path_of

    compilation, parameters = saved.load(path_of(path), None if cache is None else path_of(cache))
    return Optimized(compilation, parameters=parameters)
