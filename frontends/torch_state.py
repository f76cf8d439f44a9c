"""What a call changes of a module beside its buffers: attributes, lists, dicts and objects, what functions rebind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from frittata.egraph.errors import ModelError
from frittata.frontends.torch_closures import UNSET, containers_of, name_in, own_parts, place_of, put

_PLAIN = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device)

_DONE = {
    "_buffers": "registers, drops, reshapes or casts the buffer",
    "_parameters": "replaces the parameter",
    "_modules": "replaces the part",
}
"""What a module does to what it has registered, and no export can tell."""


@dataclass(frozen=True)
class _Change:
    """What lay in something under a key, and what a call has put there."""

    holder: Any
    key: Any
    old: Any
    new: Any


class Attributes:
    """What a module has beside its buffers, as it is when this is made; what calls change of it is noted.

    Of numbers and texts, and of tuples, lists and dicts of them, the values count, of all else which object it is.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._before = [(name, value, own_parts(value)) for name, value in containers_of(module)]
        self._changes: dict[str, _Change] = {}

    def note(self) -> None:
        """Look at what has changed until now."""
        for name, value, had in self._before:
            for key, old, new in _changes(had, own_parts(value)):
                self._changes[name_in(name, value, key)] = _Change(value, key, old, new)

    @property
    def changed(self) -> tuple[str, ...]:
        """What was found changed, as the module's code names it."""
        return tuple(self._changes)

    def advance(self) -> list[torch.Tensor]:
        """Let the module be as it was found; return the tensors that stand there for those that calls have made."""
        made: list[torch.Tensor] = []

        def real(value: torch.Tensor) -> torch.Tensor:
            made.append(torch.ones([_extent(size) for size in value.shape], dtype=value.dtype))
            return made[-1]

        self._put(lambda change: pytree.tree_map_only(torch.Tensor, real, change.new))
        return made

    def restore(self) -> None:
        """Let the module be as it was at first."""
        self.note()
        self._put(lambda change: change.old)

    def _put(self, chosen: Callable[[_Change], Any]) -> None:
        for _, value, had in self._before:
            if isinstance(value, torch.nn.Module):  # torch puts copies of lists and dicts back, calls go on with those
                has, held = own_parts(value), (list, deque, dict)
                put(value, {k: old for k, old in had.items() if isinstance(old, held) and has.get(k) is not old})
        every: dict[int, tuple[Any, dict[Any, Any]]] = {}
        for change in self._changes.values():
            every.setdefault(id(change.holder), (change.holder, {}))[1][change.key] = chosen(change)
        for value, parts in every.values():
            put(value, parts)


@dataclass(frozen=True)
class _Part:
    """A part of a module with what it has registered, by kind and name, and the buffers that are not to be saved."""

    path: str
    module: torch.nn.Module
    kinds: dict[str, dict[str, Any]]
    temporary: set[str]

    @staticmethod
    def of(path: str, module: torch.nn.Module) -> _Part:
        temporary = set(module._non_persistent_buffers_set)  # pyright: ignore[reportPrivateUsage]
        return _Part(path, module, {kind: dict(getattr(module, kind)) for kind in _DONE}, temporary)


class Registered:
    """The buffers, parameters and parts of a module as they are when it is made; what a call does to them is noted.

    Buffers that it writes to or replaces are what torch.export tells of.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._first = self._start = self._now()
        self._wrong: list[str] = []

    def begin(self, *_: Any) -> None:
        """Look at the module before a call: while it is exported its tensors are others."""
        self._start = self._now()

    def end(self, *_: Any) -> None:
        """Look at the module after a call."""
        for start, now in zip(self._start, self._now(), strict=False):
            for kind, had in start.kinds.items():
                has = now.kinds[kind]
                for key in dict.fromkeys((*had, *has)):
                    old, new = had.get(key), has.get(key)
                    if old is not new and (kind != "_buffers" or not _is_alike(old, new)):
                        self._wrong.append(f"{_DONE[kind]} {'.'.join(filter(None, (start.path, key)))}")

    def check(self) -> None:
        """Raise ModelError if a call did what no export can tell."""
        if self._wrong:
            raise ModelError(
                f"{type(self._module).__name__} {self._wrong[0]} while it runs, which torch cannot export",
                do="register it in __init__ as it will be, and write to it: self.buffer.copy_(value)",
            )

    def restore(self) -> list[str]:
        """Let the module have what it had at first; return the names under which it had others."""
        replaced: list[str] = []
        for part in self._first:
            for kind, had in part.kinds.items():
                has = getattr(part.module, kind)
                replaced += [key for key in {**had, **has} if has.get(key) is not had.get(key)]
                has.clear()
                has.update(had)
            part.module._non_persistent_buffers_set = set(part.temporary)  # pyright: ignore[reportPrivateUsage]
        return replaced

    def _now(self) -> list[_Part]:
        return [_Part.of(path, part) for path, part in self._module.named_modules()]


def _is_alike(old: Any, new: Any) -> bool:
    """Whether a buffer may become another tensor: one of the same type, whose shape does not depend on arguments."""
    if old is None or new is None or any(isinstance(size, torch.SymInt) for size in new.shape):
        return False
    return old.dtype == new.dtype and old.shape == new.shape


@contextmanager
def keeping_tensors(module: torch.nn.Module) -> Generator[list[str]]:
    """Run a module, which may write to its tensors, and leave them as they were.

    What it yields names what the module has put in the place of another, once it has run.
    """
    registered = Registered(module)
    counted = (tensor for tensor in (*module.parameters(), *module.buffers()) if not tensor.is_inference())
    copies = [(tensor, tensor._version, tensor.data, tensor.detach().clone()) for tensor in counted]
    replaced: list[str] = []
    try:
        yield replaced
    finally:
        replaced += registered.restore()
        with torch.no_grad():
            for tensor, version, data, values in copies:
                if place_of(tensor) != place_of(data):
                    tensor.data = data
                if tensor._version != version:
                    tensor.copy_(values)


def _changes(had: Mapping[Any, Any], has: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Visit the keys under which there is another value, with both."""
    for key in dict.fromkeys((*had, *has)):
        old, new = had.get(key, UNSET), has.get(key, UNSET)
        if old is not new and not _stands_for(new, old) and _known(old) != _known(new):
            yield key, old, new


def _stands_for(value: Any, function: Any) -> bool:
    """Whether torch.fx has put a value in the place of a function that `torch.fx.wrap` names, while it traces."""
    names = getattr(value, "__globals__", {})
    return getattr(value, "__wrapped__", None) is function and names.get("__name__") == "torch.fx._symbolic_trace"


def _known(value: Any) -> list[Any]:
    """Return what is compared of a value: how it is nested, what numbers and texts are, and which objects."""
    leaves, spec = pytree.tree_flatten(value)
    return [spec, *((type(leaf), leaf if isinstance(leaf, _PLAIN) else id(leaf)) for leaf in leaves)]


def _extent(size: Any) -> int:
    """Return an extent; of one that the export leaves open that of the example."""
    return int(size.node.hint if isinstance(size, torch.SymInt) else size)
