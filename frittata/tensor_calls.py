"""Calls with torch tensors by address: no numpy between the caller's tensors and the kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from frittata.egraph import dtypes, shapes
from frittata.egraph.terms import TensorType
from frittata.egraph.torch_arrays import tensor_of
from frittata.kernels.results import is_large
from frittata.kernels.runtime import Executable
from frittata.kernels.updates import written_over
from frittata.parameters import Guard

_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_MANY = 16
"""From so many parameters on they are looked at beside the run. Not tuned: to begin a run apart takes a few of them."""


class TensorCalls:
    """Runs a program on dense tensors that lie in memory as its kernels read them; takes no others."""

    def __init__(self, executable: Executable, guard: Guard, changes: Sequence[int] = ()) -> None:
        program = executable.program
        types = program.types()
        self._run_at = executable.run_at
        over = written_over(program, changes)
        # what was written over is not there any more if the run is refused, and made again, because of a parameter
        self._check, self._check_meanwhile = (guard.check, None) if over else _checks(executable, guard)
        self._arguments = [_type_of(types[name]) for name in program.inputs]
        results = zip(program.outputs, executable.allocators, strict=True)
        made = [_allocator(types[name], allocate) for name, allocate in results]
        self._results: list[Any] = [over.get(number, allocate) for number, allocate in enumerate(made)]
        """What makes each result, or the number of the argument that it is written over."""

    def __call__(self, values: Sequence[Any]) -> list[Tensor] | None:
        """Return the results; None for arguments that have to be looked at more closely.

        They are tensors of their own; output n, which becomes input `changes[n]`, may be that tensor, written over.

        Raises: IndexRangeError; StaleParametersError if a frozen parameter has changed.
        """
        arguments = self._arguments
        if len(values) != len(arguments):
            return None
        addresses: list[int] = []
        results: list[Tensor] = []
        try:
            for value, (dtype, shape, unaligned) in zip(values, arguments, strict=True):
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
            self._check()
            for made in self._results:
                result = values[made] if type(made) is int else made()
                results.append(result)
                addresses.append(result.data_ptr())
        except RuntimeError:  # a tensor without memory of its own, or torch traces or transforms the call
            return None
        if 0 in addresses:
            return None
        self._run_at(addresses, self._check_meanwhile)
        return results


def allocator(module: str = "torch._C._dynamo.guards") -> Callable[..., Tensor]:
    """Return what makes a tensor of a size, strides and a dtype: inductor's way, a third of the time of `torch.empty`.

    Where the module does not have it: `torch.empty_strided`.
    """
    try:
        return import_module(module)._empty_strided_cpu
    except (ImportError, AttributeError):
        return lambda size, strides, dtype: torch.empty_strided(size, strides, dtype=dtype, device="cpu")


_empty = allocator()


def _checks(executable: Executable, guard: Guard) -> tuple[Callable[[], None], Callable[[], None] | None]:
    """Return what looks at parameters before a run, and what does during it: at those that the run reads no more.

    A storage that is moved to shared memory leaves memory behind that is gone.
    """

    def is_read(tensor: Tensor) -> bool:
        storage = tensor.untyped_storage()
        return executable.reads_in_place(storage.data_ptr(), storage.data_ptr() + storage.nbytes())

    read, others = guard.divided(is_read)
    return (read.check, others.check) if len(others) >= _MANY else (guard.check, None)


def _type_of(type_: TensorType) -> tuple[torch.dtype, torch.Size, int]:
    """Return torch's dtype and shape of a type, and the bits that are 0 in the address of an aligned element."""
    name = dtypes.to_numpy(type_.dtype).name
    return getattr(torch, name), torch.Size(shapes.concrete(type_.shape)), dtypes.itemsize(type_.dtype) - 1


def _allocator(type_: TensorType, allocate: Callable[[], Any]) -> Callable[[], Tensor]:
    """Return what makes a tensor for a result, given what makes an array: of the array, if its memory comes back."""
    dtype, shape, _ = _type_of(type_)
    if is_large(shape, dtypes.to_numpy(type_.dtype)):
        return lambda: tensor_of(allocate())
    return partial(_empty, tuple(shape), torch.empty(shape, dtype=dtype, device="meta").stride(), dtype)
