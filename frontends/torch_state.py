"""What a call changes of a module beside its buffers: attributes, lists, dicts and objects, what functions rebind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from frittata.frontends.torch_closures import UNSET, containers_of, name_in, own_parts, put

_PLAIN = (int, float, bool, str)


@dataclass(frozen=True)
class _Change:
    """What lay in something under a key, and what a call has put there."""

    holder: Any
    key: Any
    old: Any
    new: Any


class Attributes:
    """What a module has beside its buffers, as it is when this is made; what calls change of it is noted.

    Numbers, texts, truth values and tensors count, and tuples, lists and dicts of them.
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


@contextmanager
def keeping_tensors(module: torch.nn.Module) -> Generator[list[str]]:
    """Run a module, which may write to its tensors, and leave them as they were.

    What it yields names buffers in whose place the module has put others, once it has run.
    """
    every = [part._buffers for part in module.modules()]  # pyright: ignore[reportPrivateUsage]
    before = [(buffers, dict(buffers)) for buffers in every]
    counted = (tensor for tensor in (*module.parameters(), *module.buffers()) if not tensor.is_inference())
    copies = [(tensor, tensor._version, tensor.detach().clone()) for tensor in counted]
    replaced: list[str] = []
    try:
        yield replaced
    finally:
        replaced += [name for has, had in before for name, tensor in had.items() if has.get(name) is not tensor]
        for has, had in before:
            has.update(had)
        with torch.no_grad():
            for tensor, version, values in copies:
                if tensor._version != version:
                    tensor.copy_(values)


def _changes(had: Mapping[Any, Any], has: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Visit the keys under which there is another value, with both."""
    for key in dict.fromkeys((*had, *has)):
        old, new = had.get(key, UNSET), has.get(key, UNSET)
        if old is not new and _known(old) != _known(new):
            yield key, old, new


def _known(value: Any) -> list[Any]:
    """Return what is compared of a value: what numbers and texts are, and which tensors."""
    leaves = pytree.tree_leaves(value)
    plain = [(type(leaf), leaf) for leaf in leaves if isinstance(leaf, _PLAIN)]
    return [*plain, *(id(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))]


def _extent(size: Any) -> int:
    """Return an extent; of one that the export leaves open that of the example."""
    return int(size.node.hint if isinstance(size, torch.SymInt) else size)
