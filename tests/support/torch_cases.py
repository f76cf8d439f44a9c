"""A torch function or module beside its import: interpreted in double precision, and compiled in single precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import frittata as ft
from frittata.egraph.machine import REFERENCE
from frittata.egraph.script import parse, show
from frittata.frontends.torch_export import from_module

Forward = Callable[..., Any]


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Draw normal numbers in double precision."""
    source = torch.Generator().manual_seed(seed + len(shape) + sum(shape))
    return torch.randn(shape, generator=source, dtype=torch.float64)


def module_of(function: Forward | nn.Module) -> nn.Module:
    return (function if isinstance(function, nn.Module) else Apply(function)).eval()


def assert_imported(function: Forward | nn.Module, *args: Tensor, tolerance: float = 1e-12) -> None:
    """Import in double precision, print and parse, and compare every output with torch."""
    module = module_of(function).double()
    imported = from_module(module, args)
    assert parse(show(imported.model)) == imported.model
    with torch.no_grad():
        expected = module(*args)
    outputs = imported.model.interpret(*[arg.numpy() for arg in imported.flatten(args)])
    assert_same(imported.unflatten(outputs), expected, tolerance)


def assert_compiled(function: Forward | nn.Module, *args: Tensor, tolerance: float = 1e-5) -> list[str]:
    """Optimize in single precision and compare with torch; return the templates of the kernels."""
    module = module_of(function).float()
    single = tuple(arg.float() if arg.dtype.is_floating_point else arg for arg in args)
    fast = ft.optimize(module, single, machine=REFERENCE)
    with torch.no_grad():
        assert_same(fast(*single), module(*single), tolerance)
    return [kernel.template for kernel in fast.kernels]


def assert_same(found: Any, expected: Any, tolerance: float) -> None:
    """Compare trees of tensors: shapes, kinds, NaN and infinities exactly, the rest relative to the largest value."""
    for ours, theirs in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True):
        ours, theirs = np.asarray(ours), theirs.numpy()
        assert ours.shape == theirs.shape
        assert ours.dtype.kind == theirs.dtype.kind
        finite = np.isfinite(theirs)
        scale = max(1.0, float(np.abs(theirs, where=finite, out=np.zeros(theirs.shape)).max(initial=0)))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale)
