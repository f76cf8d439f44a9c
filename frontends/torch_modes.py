"""Which modules are not imported as they are: in a training mode that they look at, of torch.jit, or quantized."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, cached_property, partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from frittata.egraph.errors import ModelError
from frittata.frontends.torch_closures import enclosing

INTEGERS = (
    "quantize it by torchao's PT2E, or by _convert_to_reference_decomposed_fx of torch.ao.quantization.quantize_fx: "
    "the operators of torch.ops.quantized_decomposed, which these call, are imported"
)
"""What to do about quantized tensors."""

_QUANTIZED = tuple(f"torch.ao.nn.{part}" for part in ("quantized.modules", "quantized.dynamic", "intrinsic.quantized"))
"""Where the modules are that hold weights as quantized tensors, or make such tensors."""


def check(module: torch.nn.Module) -> None:
    """Raise ModelError if a part is scripted, quantized, or looks at its mode and is in training."""
    looks_at_mode = cache(_looks_at_mode)  # for this time: another may be put in the place of a method
    for name, part in module.named_modules():
        which = f"{name} ({type(part).__name__})" if name else type(part).__name__
        if isinstance(part, torch.jit.ScriptModule):
            what = f"torch.jit scripted or traced {which}, which cannot be exported"
            raise ModelError(what, do="give the nn.Module that it was made of")
        if type(part).__module__.startswith(_QUANTIZED):
            raise ModelError(f"{which} computes with quantized tensors, which cannot be exported", do=INTEGERS)
        if part.training and (looks_at_mode(type(part)) or _reads_mode(vars(part).values())):
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
