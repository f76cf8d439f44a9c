"""Frittata is an equality-saturation compiler for tensor programs.

>>> import frittata as ft
>>> fast = ft.optimize(model, args)  # doctest: +SKIP
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from frittata.egraph.errors import FrittataError
from frittata.egraph.model import Model
from frittata.egraph.script import parse
from frittata.options import Options

if TYPE_CHECKING:
    from frittata.optimized import Optimized

__all__ = ["FrittataError", "Model", "Options", "optimize", "parse"]


def optimize(model: Any, args: Any = (), **options: Any) -> Optimized:
    """Compile a model for the shapes of its example arguments.

    `model` is a `torch.nn.Module` in eval mode, or a `frittata.Model`. `args` is a tuple of example arguments. Options
    are the fields of `Options`.

    >>> fast = optimize(torch.nn.Linear(3, 2).eval(), (torch.zeros(5, 3),))  # doctest: +SKIP

    Raises: FrittataError, whose subclasses say which stage failed, where, and what to do.
    """
    from frittata.optimized import Optimized
    from frittata.pipeline import compile_model

    chosen = _options(options)
    given = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    return Optimized(compile_model(model, given, chosen), given)


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
