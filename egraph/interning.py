"""Numbers for values: attributes, types and constants enter the e-graph as interned ids."""

from __future__ import annotations

from typing import Any

_ID_BY_KEY: dict[Any, int] = {}
_VALUES: list[Any] = []


def _key(value: Any) -> Any:
    """Tell apart what Python calls equal: 1, 1.0 and True, 0.0 and -0.0."""
    if isinstance(value, tuple):
        return (tuple, *map(_key, value))  # pyright: ignore[reportUnknownArgumentType]
    return (type(value), value.hex() if isinstance(value, float) else value)


def intern(value: Any) -> int:
    """Return the id of a value, the same for equal values of one type for the life of the process."""
    key = _key(value)
    found = _ID_BY_KEY.get(key)
    if found is None:
        found = _ID_BY_KEY[key] = len(_VALUES)
        _VALUES.append(value)
    return found


def value_of(number: int) -> Any:
    """Return the value of an id."""
    return _VALUES[number]
