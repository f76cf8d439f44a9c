"""Which modules compute something else in training than in evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, cached_property, partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from frittata.egraph.errors import ModelError
from frittata.frontends.torch_closures import enclosing


def check(module: torch.nn.Module) -> None:
    """Raise ModelError if a part in training mode looks at its mode: to linear layers, say, it makes no difference."""
    looks_at_mode = cache(_looks_at_mode)  # for this time: another may be put in the place of a method
    for name, part in module.named_modules():
        if part.training and (looks_at_mode(type(part)) or _reads_mode(vars(part).values())):
            which = f"{name} ({type(part).__name__})" if name else type(part).__name__
            raise ModelError(f"the module is in training mode, which {which} looks at", do="call model.eval() first")


def _looks_at_mode(kind: type[torch.nn.Module]) -> bool:
    """Whether a class of modules has code that names `training`, of its own or from a class that it is derived from."""
    own = kind.__mro__[: kind.__mro__.index(torch.nn.Module)]
    return _reads_mode(value for base in own for value in vars(base).values())


def _reads_mode(values: Iterable[Any]) -> bool:
    return any("training" in (*code.co_names, *code.co_consts) for code in _codes(values))


def _codes(values: Iterable[Any]) -> Iterator[CodeType]:
    """Visit the code of functions, methods, properties and hooks, and of functions within them and that they wrap."""
    left, seen = list(values), set[int]()
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, CodeType):
            yield value
            left += value.co_consts
        elif isinstance(value, FunctionType):
            left += (value.__code__, *vars(value).values(), *enclosing(value).values())
        elif isinstance(value, property):
            left.append(value.fget)
        elif isinstance(value, staticmethod | classmethod | MethodType):
            left.append(value.__func__)
        elif isinstance(value, partial | cached_property):
            left.append(value.func)
        elif isinstance(value, dict):
            left += value.values()
        elif callable(value) and not isinstance(value, torch.nn.Module | type):
            left.append(type(value).__call__)
