"""Tensors that a module has from elsewhere: what Python reads of their values at the export is fixed in the program."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from frittata.frontends import torch_closures
from frittata.frontends.torch_dims import made_of_values
from frittata.frontends.torch_origins import innermost

_UNSEEN = {"tolist", "numpy", "__array__", "__dlpack__"}
"""Names of what reads values, and torch dispatches nothing for it."""

_ASKED = {
    *("__get__", "dim", "size", "stride", "storage_offset", "untyped_storage"),
    *("is_conj", "is_neg", "is_inference", "_is_view"),
}
"""Names of what torch asks of each tensor that it exports."""

_DATA = torch.Tensor.data.__get__, torch.Tensor.data.__set__  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
"""What torch does otherwise while another mode looks on."""


class Captured(TorchFunctionMode):
    """Notes which tensors with values take part in calls of torch, but for those that are a module's own.

    Raises: ModelError where values of its own are read: torch would fix them, too.
    """

    def __init__(self, own: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._own = {id(value): value for value in own}
        self._taken: dict[int, torch.Tensor] = {}
        self._read: dict[int, torch.Tensor] = {}
        self.decided: dict[str, torch.Tensor] = {}
        """Tensors of the module's own, by name, whose values torch was told and read."""
        self._following = _Following(self._taken, self._read)
        self._has_met = False
        """Whether there was a tensor with values: most modules have none, and to follow each call takes time."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_dynamo_compiling():  # a part of a program within it
            return func(*args, **(kwargs or {}))
        if func in _DATA:
            return self._following.same(args[0], func(*args, **(kwargs or {})))
        name = getattr(func, "__name__", "")
        if not self._has_met:
            self._has_met = name not in _ASKED and not all(map(_is_traced, _tensors((args, kwargs))))
        if not self._has_met:
            return func(*args, **(kwargs or {}))
        if name in _UNSEEN:
            values = self._following.sources_of((args, kwargs))
            if not self._own.keys().isdisjoint(values):
                raise made_of_values(innermost("".join(traceback.format_stack())))
            self._read.update(values)
        with self._following:
            return func(*args, **(kwargs or {}))

    def fixed(self, constants: Mapping[str, Any], module: torch.nn.Module) -> dict[str, torch.Tensor]:
        """Return the tensors of which numbers may be fixed, by name: those read, and what is no constant of the export.

        A name is what the module's code calls the tensor, where that is found.
        """
        places = set(map(torch_closures.place_of, constants.values()))
        taken = {key: value for key, value in self._taken.items() if torch_closures.place_of(value) not in places}
        found = {key: value for key, value in {**taken, **self._read}.items() if key not in self._own}
        named = {f"{name} (of a number)": value for name, value in self.decided.items()}
        if not found:
            return named
        names = {
            id(part): torch_closures.name_in(name, value, key)
            for name, value in torch_closures.containers_of(module)
            for key, part in torch_closures.own_parts(value).items()
        }
        for key, value in found.items():
            name = f"{names.get(key, 'a tensor')} (of a number)"
            named[name + "'" * sum(other.startswith(name) for other in named)] = value
        return named


class _Following(TorchDispatchMode):
    """Follows what is computed of tensors with values, and of nothing else, to where torch makes numbers of it."""

    supports_higher_order_operators = True

    def __init__(self, taken: dict[int, torch.Tensor], read: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self._taken, self._read = taken, read
        self._made: dict[int, tuple[Any, dict[int, torch.Tensor]]] = {}
        """By storage: views are written through."""
        self._same: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return that torch compiles, as it does for `torch.cond`, while it is followed."""
        return True

    def same(self, value: torch.Tensor, data: Any) -> Any:
        """Note what a tensor has as `.data`, which does not count what is written to it, and return that."""
        if isinstance(data, torch.Tensor):
            self._same[id(data)] = data, value
        return data

    def sources_of(self, given: Any) -> dict[int, torch.Tensor]:
        """Return the tensors with values among those given, and those of which others are computed alone."""
        return {key: value for leaf in _tensors(given) for key, value in (self._sources(leaf) or {}).items()}

    def _sources(self, value: torch.Tensor) -> dict[int, torch.Tensor] | None:
        if not _is_traced(value):
            _, value = self._same.get(id(value), (value, value))
            return {id(value): value}
        return self._made.get(_storage(value)[0], (None, None))[1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_literal = func is torch.ops.aten.lift_fresh.default
        given = [] if is_literal else list(_tensors((args, kwargs)))
        sources, is_alone = self.sources_of(given), all(self._sources(value) is not None for value in given)
        results = func(*args, **(kwargs or {}))
        self._taken.update((id(value), value) for value in given if not _is_traced(value))
        if torch.Tag.data_dependent_output in getattr(func, "tags", ()):
            self._read.update(sources)
        for value in filter(_is_traced, _tensors(results)):
            key, storage = _storage(value)
            if is_alone:
                self._made[key] = storage, sources
            else:
                self._made.pop(key, None)
        return results


def _storage(value: torch.Tensor) -> tuple[int, Any]:
    """Return what tells the memory of a traced tensor from others, and what keeps it from meaning another."""
    try:
        storage = value.untyped_storage()
    except RuntimeError:  # sparse tensors, and those of torch.func, have none
        return id(value), value
    return storage._cdata, storage  # pyright: ignore[reportPrivateUsage]


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
