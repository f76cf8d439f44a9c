"""Functions of torch tensors as modules: what torch.export takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from frittata.frontends.torch_closures import modules_of


class _Called(torch.nn.Module):
    """A function as a module, whose submodules are those that it calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.training = False  # the submodules stay as they are
        called = function if hasattr(function, "__code__") else function.__call__
        self.forward = called if hasattr(called, "__code__") else _in_python(function)
        for name, module in modules_of(self.forward).items():
            self.add_module(f"{name}_" if hasattr(self, name) else name, module)


def _in_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function written in Python that calls another: torch.export reads its code."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return called


def as_module(function: Callable[..., Any]) -> torch.nn.Module:
    """Return a function of torch tensors as a module; tensors that it has from elsewhere are its parameters."""
    name = getattr(function, "__name__", type(function).__name__)
    return type(name, (_Called,), {})(function)
