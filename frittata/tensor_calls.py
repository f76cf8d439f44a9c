"""Calls with torch tensors by address: no numpy between the caller's tensors and the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import Any

import torch
from torch import Tensor

from frittata.egraph import dtypes, shapes
from frittata.egraph.terms import TensorType
from frittata.kernels.runtime import Executable

_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_FEW = 1 << 14


class TensorCalls:
    """Runs a program on dense tensors that lie in memory as its kernels read them; takes no others."""

    def __init__(self, executable: Executable) -> None:
        program = executable.program
        types = program.types()
        self._run_at = executable.run_at
        self._arguments = [_type_of(types[name]) for name in program.inputs]
        self._prototypes = [_prototype(types[name]) for name in program.outputs]

    def __call__(self, values: Sequence[Any]) -> list[Tensor] | None:
        """Return the results as tensors of their own; None for arguments that have to be looked at more closely.

        Raises: IndexRangeError.
        """
        if len(values) != len(self._arguments):
            return None
        addresses: list[int] = []
        try:
            for value, (dtype, shape, unaligned) in zip(values, self._arguments, strict=True):
                if (
                    type(value) not in _PLAIN
                    or value.dtype is not dtype
                    or value.shape != shape
                    or not value.is_cpu
                    or not value.is_contiguous()
                    or value.is_neg()
                ):
                    return None
                address = value.data_ptr()
                if address & unaligned:
                    return None
                addresses.append(address)
            results = list(map(torch.empty_like, self._prototypes))
            addresses.extend(map(_address, results))
        except RuntimeError:  # a tensor without memory of its own, or torch traces or transforms the call
            return None
        if 0 in addresses:
            return None
        self._run_at(addresses)
        return results


_address = methodcaller("data_ptr")


def _type_of(type_: TensorType) -> tuple[torch.dtype, torch.Size, int]:
    """Return torch's dtype and shape of a type, and the bits that are 0 in the address of an aligned element."""
    name = dtypes.to_numpy(type_.dtype).name
    return getattr(torch, name), torch.Size(shapes.concrete(type_.shape)), dtypes.itemsize(type_.dtype) - 1


def _prototype(type_: TensorType) -> Tensor:
    """Return a tensor for `torch.empty_like`, faster than `torch.empty`; a large one holds one element."""
    dtype, shape, _ = _type_of(type_)
    if shape.numel() <= _FEW:
        return torch.zeros(shape, dtype=dtype, device="cpu")
    prototype = torch.zeros((), dtype=dtype, device="cpu").expand(shape)
    return prototype if torch.empty_like(prototype).is_contiguous() else torch.zeros(shape, dtype=dtype, device="cpu")
