"""Frittata is an equality-saturation compiler for tensor programs.

>>> import frittata as ft
>>> fast = ft.optimize(model, args)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frittata.egraph.errors import FrittataError
from frittata.egraph.model import Model
from frittata.egraph.script import parse
from frittata.options import Options

if TYPE_CHECKING:
    from frittata import ops as ops
    from frittata.frontends.arrays.builder import Builder as Builder
    from frittata.frontends.arrays.calls import extern as extern
    from frittata.frontends.arrays.compute import build as build
    from frittata.frontends.arrays.compute import fold as fold
    from frittata.frontends.arrays.tensor import Tensor as Tensor
    from frittata.frontends.arrays.tensor import tensor_input as input
    from frittata.frontends.arrays.trace import from_function as from_function
    from frittata.frontends.onnx.importer import from_onnx as from_onnx
    from frittata.frontends.torch_export import from_exported_program as from_exported_program
    from frittata.frontends.torch_fx import from_fx as from_fx
    from frittata.optimized import Optimized

__all__ = [
    "Builder",
    "FrittataError",
    "Model",
    "Options",
    "Tensor",
    "build",
    "extern",
    "fold",
    "from_exported_program",
    "from_function",
    "from_fx",
    "from_onnx",
    "input",
    "load",
    "ops",
    "optimize",
    "parse",
]

_HOME_BY_NAME = {
    "Builder": ("arrays.builder", "Builder"),
    "Tensor": ("arrays.tensor", "Tensor"),
    "build": ("arrays.compute", "build"),
    "extern": ("arrays.calls", "extern"),
    "fold": ("arrays.compute", "fold"),
    "from_exported_program": ("torch_export", "from_exported_program"),
    "from_function": ("arrays.trace", "from_function"),
    "from_fx": ("torch_fx", "from_fx"),
    "from_onnx": ("onnx.importer", "from_onnx"),
    "input": ("arrays.tensor", "tensor_input"),
}


def __getattr__(name: str) -> Any:
    """Load a front end, and the framework that it imports from, when it is asked for."""
    if name == "ops":
        return import_module("frittata.ops")
    if name not in _HOME_BY_NAME:
        raise AttributeError(f"module 'frittata' has no attribute {name!r}")
    module, attribute = _HOME_BY_NAME[name]
    return getattr(import_module(f"frittata.frontends.{module}"), attribute)


def optimize(model: Any, args: Any = (), **options: Any) -> Optimized:
    """Compile a model for the shapes of its example arguments.

    `model` is a `torch.nn.Module` in eval mode, a `torch.export.ExportedProgram`, a `torch.fx.GraphModule`, an ONNX
    model or its path, a Python function of numpy arrays or of torch tensors, what a front end returned, or a
    `frittata.Model`. `args` is a tuple of example arguments. Options are the fields of `Options`.

    >>> fast = optimize(torch.nn.Linear(3, 2).eval(), (torch.zeros(5, 3),))  # doctest: +SKIP

    Raises: FrittataError, whose subclasses say which stage failed, where, and what to do.
    """
    from frittata import sources
    from frittata.optimized import Optimized
    from frittata.pipeline import compile_model

    chosen = _options(options)
    given = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    source = sources.resolved(model, given)
    made = Optimized(compile_model(source, given, chosen), given, source)
    if chosen.verify:
        made.verify().check()
    return made


def load(path: str | Path, *, cache: str | Path | None = None) -> Optimized:
    """Return a compiled model from a file that `Optimized.save` wrote; `cache` is the folder of compiled kernels.

    It needs neither the framework that the model came from nor egglog's search. Nothing in the file is run.

    Raises: ModelError if the file is none.
    """
    from frittata import saved
    from frittata.optimized import Optimized

    compilation, parameters = saved.load(Path(path), None if cache is None else Path(cache))
    return Optimized(compilation, parameters=parameters)


def _options(given: dict[str, Any]) -> Options:
    known = Options.__dataclass_fields__
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise FrittataError(f"no option {', '.join(unknown)}", do=f"options are {', '.join(known)}")
    for name in ("rules", "disable"):
        if isinstance(given.get(name), (str, Path)):
            given[name] = (given[name],)
    if "rules" in given:
        given["rules"] = tuple(map(Path, given["rules"]))
    return Options(**given)
