"""Terms, and data that mentions them, as bytes: what one process has chosen another finds again.

Terms are written as rows in order, arguments first, and made anew when read, so that depth is no matter and equal terms
are one object again. No classes are read but the dataclasses of programs, types and attributes.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from dataclasses import fields, is_dataclass
from typing import Any

from frittata.egraph import indexing, program, shapes, terms
from frittata.egraph.errors import ModelError
from frittata.egraph.ops import registry
from frittata.egraph.terms import Term, walk

_CLASS_BY_NAME = {
    (module.__name__, name): class_
    for module in (indexing, program, shapes, terms)
    for name, class_ in vars(module).items()
    if is_dataclass(class_) and class_.__module__ == module.__name__ and name != Term.__name__
}
_CLASSES = frozenset(_CLASS_BY_NAME.values())


def fingerprint(roots: tuple[Term, ...]) -> str:
    """Return the sha256 of terms: equal for equal terms only, in every process."""
    text = hashlib.sha256()
    position: dict[Term, int] = {}
    for term in walk(*roots):
        position[term] = len(position)
        row = (term.op, term.sort, [position[arg] for arg in term.args], term.attrs, term.type)
        text.update(f"{row!r}\n".encode())
    text.update(repr([position[root] for root in roots]).encode())
    return text.hexdigest()


def to_bytes(value: Any) -> bytes:
    """Write tuples, dicts, numbers and strings, programs, types, and the terms in them.

    >>> from_bytes(to_bytes({"x": (1, 2.5)}))
    {'x': (1, 2.5)}
    """
    roots: dict[Term, None] = {}
    _Writer(io.BytesIO(), roots).dump(value)
    position = {term: number for number, term in enumerate(walk(*roots))}
    rows = [(term.op, term.sort, tuple(position[arg] for arg in term.args), term.attrs) for term in position]
    out = io.BytesIO()
    _Writer(out, {}).dump(rows)
    _Writer(out, {}, position).dump(value)
    return out.getvalue()


def from_bytes(data: bytes) -> Any:
    """Read what `to_bytes` wrote.

    Raises: ValueError if it is something else.
    """
    file = io.BytesIO(data)
    made: list[Term] = []
    try:
        for op, sort, args, attrs in _Reader(file, made).load():
            made.append(registry.make(op, sort, tuple(made[arg] for arg in args), attrs))
        return _Reader(file, made).load()
    except (pickle.UnpicklingError, ModelError, ValueError, LookupError, TypeError, AttributeError, EOFError) as error:
        raise ValueError(f"not an archive of terms: {error}") from error


class _Writer(pickle.Pickler):
    """Writes each term as its position, and notes the terms that it met."""

    def __init__(self, file: io.BytesIO, met: dict[Term, None], position: dict[Term, int] | None = None) -> None:
        super().__init__(file, protocol=5)
        self._met = met
        self._position = position

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Term):
            return None
        self._met[obj] = None
        return 0 if self._position is None else self._position[obj]

    def reducer_override(self, obj: Any) -> Any:
        """Write a dataclass as its fields: what it has computed of them, hashes for one, is of this process."""
        if type(obj) not in _CLASSES:
            return NotImplemented
        return type(obj), tuple(getattr(obj, field.name) for field in fields(obj))


class _Reader(pickle.Unpickler):
    """Reads terms by position, and no classes but those known here."""

    def __init__(self, file: io.BytesIO, made: list[Term]) -> None:
        super().__init__(file)
        self._made = made

    def persistent_load(self, pid: Any) -> Term:
        return self._made[pid]

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in _CLASS_BY_NAME:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is not expected here")
        return _CLASS_BY_NAME[module_name, global_name]
