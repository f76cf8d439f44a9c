"""Terms: immutable, hash-consed nodes with an operator, arguments, attributes and a type.

There are two sorts. A tensor term has a shape. An element term is what happens at one index: a total function of an
unbounded right-aligned index, whose atoms carry their extents and clamp to them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast
from weakref import WeakValueDictionary

import numpy as np

from frittata.egraph import dtypes, shapes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import ModelError
from frittata.egraph.shapes import Shape

Sort = Literal["tensor", "element"]


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor: its shape and the dtype of its values."""

    shape: Shape
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class ElementType:
    """The type of an element: right-aligned extents of the axes it mentions (1: not mentioned), and its dtype."""

    extents: Shape
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype}<{', '.join(map(str, self.extents))}>"


Type = TensorType | ElementType


def size_bytes(tensor: TensorType | Term) -> int:
    """Return what the elements of a tensor take in memory, in bytes."""
    return shapes.size(tensor.shape) * dtypes.itemsize(tensor.dtype)


@dataclass(frozen=True)
class Scalar:
    """A constant, known by its dtype and bit pattern: 0.0 is not -0.0, 1 is neither 1.0 nor True."""

    dtype: DType
    bits: int

    @staticmethod
    def of(value: Any, dtype: DType) -> Scalar:
        """Round a Python number to `dtype`."""
        with np.errstate(all="ignore"):
            array = np.asarray(value).astype(dtypes.to_numpy(dtype))
        return Scalar(dtype, int.from_bytes(array.tobytes(), "little"))

    @cached_property
    def value(self) -> Any:
        """The value as a Python number."""
        kind = dtypes.to_numpy(self.dtype)
        return np.frombuffer(self.bits.to_bytes(kind.itemsize, "little"), kind)[0].item()

    def __str__(self) -> str:
        if self.dtype == "f32" and struct.pack("<f", self.value) != self.bits.to_bytes(4, "little"):
            return f"{self.dtype}(0x{self.bits:x})"  # a NaN payload
        text = repr(self.value) if self.dtype != "f32" else str(np.float32(self.value))
        return f"{self.dtype}({text})"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Term:
    """One node. Equal terms are the same object, so `is` and `==` agree and hashing is free."""

    op: str
    sort: Sort
    args: tuple[Term, ...]
    attrs: tuple[Any, ...]
    type: Type

    @property
    def shape(self) -> Shape:
        """The shape of a tensor, the extents of an element."""
        return self.type.shape if isinstance(self.type, TensorType) else self.type.extents

    @property
    def dtype(self) -> DType:
        """The dtype of the values."""
        return self.type.dtype

    def __repr__(self) -> str:
        return _text(self, 4)

    def __copy__(self) -> Term:
        return self

    def __deepcopy__(self, memo: Any) -> Term:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        from frittata.egraph import archive

        return archive.from_bytes, (archive.to_bytes(self),)


def _text(term: Term, depth: int) -> str:
    """Write the top of a term; the whole of it, as a tree, may be exponential in size."""
    if not depth:
        return "..."
    inner = [*(_text(arg, depth - 1) for arg in term.args), *(str(a) for a in term.attrs)]
    return f"{term.op}({', '.join(inner)})"


_TERMS: WeakValueDictionary[tuple[Any, ...], Term] = WeakValueDictionary()


def intern(
    op: str, sort: Sort, args: tuple[Term, ...], attrs: tuple[Any, ...], type_: Type, is_told: bool = False
) -> Term:
    """Return the one term with these parts; `ops.registry.make` computes the type and checks them.

    `is_told`: that the other parts tell the type, as they do by the type rules of the package.
    """
    key = _key(op, sort, args, attrs, None if is_told else type_)
    found = _TERMS.get(key)
    if found is None:
        found = Term(op, sort, args, attrs, type_)
        _TERMS[key] = found
    return found


def known(op: str, sort: Sort, args: tuple[Term, ...], attrs: tuple[Any, ...]) -> Term | None:
    """Return the term with these parts, which tell its type, if there is one already."""
    try:
        return _TERMS.get(_key(op, sort, args, attrs, None))
    except TypeError:  # no term is made of what cannot be hashed
        return None


def _key(op: str, sort: Sort, args: tuple[Term, ...], attrs: tuple[Any, ...], type_: Type | None) -> tuple[Any, ...]:
    return op, sort, args, tuple(map(_attr_key, attrs)), type_


def _attr_key(value: Any) -> Any:
    """Tell apart what Python calls equal: 1, 1.0 and True, 0.0 and -0.0."""
    if isinstance(value, tuple):
        return (tuple, *map(_attr_key, value))  # pyright: ignore[reportUnknownArgumentType]
    return (type(value), value.hex() if isinstance(value, float) else value)


def walk(*roots: Term, seen: set[Term] | None = None) -> Iterator[Term]:
    """Visit every distinct term once, arguments before their users, without recursion.

    Those `seen` before, with all that they are made of, are left out; those visited are added.
    """
    seen = set() if seen is None else seen
    stack: list[Term | None] = [*reversed(roots)]
    while stack:
        term = stack.pop()
        if term is None:  # its arguments are done
            term = cast(Term, stack.pop())
        elif term in seen:
            continue
        elif term.args:
            stack += (term, None, *reversed(term.args))
            continue
        seen.add(term)
        yield term


def rebuild(root: Term, replace: Callable[[Term, tuple[Term, ...]], Term]) -> Term:
    """Rebuild a term bottom-up: `replace` gets each node and its new arguments."""
    return rebuild_all((root,), replace)[0]


def rebuild_all(roots: tuple[Term, ...], replace: Callable[[Term, tuple[Term, ...]], Term]) -> tuple[Term, ...]:
    """Rebuild several terms that share nodes."""
    new: dict[Term, Term] = {}
    for term in walk(*roots):
        new[term] = replace(term, tuple(new[arg] for arg in term.args))
    return tuple(new[root] for root in roots)


def substitute(root: Term, value_by_term: Mapping[Term, Term]) -> Term:
    """Replace whole terms by others of the same type.

    Raises: ModelError if one is of another type.
    """
    for old, new in value_by_term.items():
        if old.type != new.type:
            raise ModelError(f"{old.op} of type {old.type} is replaced by {new.op} of type {new.type}")

    def replace(term: Term, args: tuple[Term, ...]) -> Term:
        from frittata.egraph.ops.registry import make

        if term in value_by_term:
            return value_by_term[term]
        return term if args == term.args else make(term.op, term.sort, args, term.attrs)

    return rebuild(root, replace)


def is_well_formed_body(shape: Shape, element: ElementType) -> bool:
    """Whether `build(shape, e)` may be computed for an e of this type: every extent is 1 or that of the shape."""
    rank = len(element.extents)
    return all(
        extent == 1 or extent == shapes.dim_at(shape, axis)
        for axis, extent in zip(range(-rank, 0), element.extents, strict=True)
    )
