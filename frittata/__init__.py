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
    from frittata.frontends.onnx.importer import from_onnx as from_onnx
    from frittata.frontends.torch_export import from_exported_program as from_exported_program
    from frittata.frontends.torch_fx import from_fx as from_fx
    from frittata.optimized import Optimized

__all__ = ["FrittataError", "Model", "Options", "from_exported_program", "from_fx", "from_onnx", "optimize", "parse"]

_MODULE_BY_FRONT_END = {"from_exported_program": "torch_export", "from_fx": "torch_fx", "from_onnx": "onnx.importer"}


def __getattr__(name: str) -> Any:
    """Load a front end, and the framework that it imports from, when it is asked for."""
    if name not in _MODULE_BY_FRONT_END:
        raise AttributeError(f"module 'frittata' has no attribute {name!r}")
    return getattr(import_module(f"frittata.frontends.{_MODULE_BY_FRONT_END[name]}"), name)


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
    return Optimized(compile_model(source, given, chosen), given, source)


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
