"""Tensors that a module has from elsewhere: what Python reads of their values at the export is fixed in the program."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode

from frittata.frontends import torch_closures
from frittata.frontends.torch_dims import made_of_values
from frittata.frontends.torch_origins import innermost

_DESCRIBING = {
    *("__get__", "dim", "size", "stride", "numel", "storage_offset", "untyped_storage", "element_size", "__len__"),
    *("is_contiguous", "is_floating_point", "is_complex", "is_signed", "is_conj", "is_neg", "is_inference", "_is_view"),
}
"""Names of what tells nothing of values, as long as it returns no tensor."""

_UNSEEN = {"tolist", "numpy", "__array__", "__dlpack__"}
"""Names of what reads values, and torch dispatches nothing for it."""


class Captured(TorchFunctionMode):
    """Notes which tensors with values take part in calls of torch, but for those that are a module's own.

    Raises: ModelError where values of its own are read: torch would fix them, too.
    """

    def __init__(self, own: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._own = {id(value): value for value in own}
        self._taken: dict[int, torch.Tensor] = {}
        self._read: dict[int, torch.Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.compiler.is_dynamo_compiling():  # a part of a program within it
            return result
        name = getattr(func, "__name__", "")
        if name in _DESCRIBING and not isinstance(result, torch.Tensor):
            return result
        is_read = next(_tensors(result), None) is None
        values = {id(value): value for value in _tensors((args, kwargs)) if not _is_traced(value)}
        if name in _UNSEEN and not self._own.keys().isdisjoint(values):
            raise made_of_values(innermost("".join(traceback.format_stack())))
        (self._read if is_read else self._taken).update(values)
        return result

    def fixed(self, constants: Mapping[str, Any], module: torch.nn.Module) -> dict[str, torch.Tensor]:
        """Return the tensors of which numbers may be fixed, by name: those read, and what is no constant of the export.

        A name is what the module's code calls the tensor, where that is found.
        """
        places = set(map(torch_closures.place_of, constants.values()))
        taken = {key: value for key, value in self._taken.items() if torch_closures.place_of(value) not in places}
        found = {key: value for key, value in {**taken, **self._read}.items() if key not in self._own}
        if not found:
            return {}
        names = {
            id(part): torch_closures.name_in(name, value, key)
            for name, value in torch_closures.containers_of(module)
            for key, part in torch_closures.own_parts(value).items()
        }
        named: dict[str, torch.Tensor] = {}
        for key, value in found.items():
            name = f"{names.get(key, 'a tensor')} (of a number)"
            named[name + "'" * sum(other.startswith(name) for other in named)] = value
        return named


def _is_traced(value: torch.Tensor) -> bool:
    """Whether a tensor stands for what a call will compute."""
    wrapped = torch._is_functional_tensor, torch._C._functorch.is_functorch_wrapped_tensor  # pyright: ignore
    return isinstance(value, FakeTensor | FunctionalTensor) or any(is_one(value) for is_one in wrapped)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Visit the tensors in tuples, lists, dicts and slices."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, slice):
        yield from _tensors((value.start, value.stop, value.step))
