"""Arguments and results that are nested: tuples, lists and dicts, and what lies in them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Path = tuple[int | str, ...]
"""How to get to a leaf: positions, keys and names, from the outside."""


def leaves(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Visit what is no tuple, list or dict, with the path to it."""
    match tree:
        case tuple() | list():
            for i, part in enumerate(tree):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                yield from leaves(part, (*path, i))
        case Mapping():
            for key, part in tree.items():  # pyright: ignore[reportUnknownVariableType]
                yield from leaves(part, (*path, key))  # pyright: ignore[reportUnknownArgumentType]
        case _:
            yield path, tree


def rebuilt(tree: Any, replace: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """Return a tree of the same structure with other leaves."""
    match tree:
        case tuple() | list():
            parts = [rebuilt(part, replace, (*path, i)) for i, part in enumerate(tree)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            kind: Any = type(tree)  # pyright: ignore[reportUnknownVariableType]
            return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
        case Mapping():
            parts = {key: rebuilt(part, replace, (*path, key)) for key, part in tree.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            return OrderedDict(parts) if isinstance(tree, OrderedDict) else parts  # pyright: ignore[reportUnknownVariableType]
        case _:
            return replace(path, tree)


def name_of(path: Path) -> str:
    """Write a path as an identifier: ("params", 0, "w") -> params_0_w."""
    text = "_".join(map(str, path))
    return "".join(letter if letter.isalnum() else "_" for letter in text)
