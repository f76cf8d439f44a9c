"""What a call changes of a module beside its buffers: attributes, and what lies in lists, dicts and objects of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from frittata.frontends.torch_closures import containers_of

_PLAIN = (int, float, bool, str)
_UNSET: Any = object()


@dataclass(frozen=True, eq=False)
class _Container:
    """A list, a dict, or the attributes of an object, with the name that the module's code has for it."""

    name: str
    values: Any
    is_object: bool

    def parts(self) -> dict[Any, Any]:
        return dict(enumerate(self.values) if isinstance(self.values, list) else self.values)

    def put(self, parts: Mapping[Any, Any]) -> None:
        """Let it have other parts, and some no more."""
        if isinstance(self.values, list):
            every = {**self.parts(), **parts}
            self.values[:] = [every[at] for at in sorted(every) if every[at] is not _UNSET]
            return
        for key, part in parts.items():
            if part is _UNSET:
                self.values.pop(key, None)
            else:
                self.values[key] = part

    def name_of(self, key: Any) -> str:
        return f"{self.name}.{key}" if self.is_object else f"{self.name}[{key!r}]"


class Attributes:
    """What a module has beside its buffers, as it is when this is made; what calls change of it is noted.

    Numbers, texts, truth values and tensors count, and tuples, lists and dicts of them.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        containers = (_Container(*found) for found in containers_of(module))
        self._before = [(container, container.parts()) for container in containers]
        self._changes: dict[str, tuple[_Container, Any, Any, Any]] = {}

    def note(self) -> None:
        """Look at what has changed until now."""
        for container, had in self._before:
            for key, old, new in _changes(had, container.parts()):
                self._changes[container.name_of(key)] = container, key, old, new

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

        self._put({name: pytree.tree_map_only(torch.Tensor, real, new) for name, (*_, new) in self._changes.items()})
        return made

    def restore(self) -> None:
        """Let the module be as it was at first."""
        self.note()
        self._put({name: old for name, (_, _, old, _) in self._changes.items()})

    def _put(self, value_by_name: Mapping[str, Any]) -> None:
        every: dict[_Container, dict[Any, Any]] = {}
        for container, had in self._before:  # torch puts copies of lists and dicts back, and calls go on with those
            lost = {key: old for key, old in had.items() if isinstance(old, list | dict)}
            every[container] = {key: old for key, old in lost.items() if container.parts().get(key) is not old}
        for name, (container, key, _, _) in self._changes.items():
            every[container][key] = value_by_name[name]
        for container, parts in every.items():
            container.put(parts)


def _changes(had: Mapping[Any, Any], has: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Visit the keys under which there is another value, with both."""
    for key in dict.fromkeys((*had, *has)):
        old, new = had.get(key, _UNSET), has.get(key, _UNSET)
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
