"""Shapes: dims that are numbers or named symbols, broadcasting, strides.

Axes are counted from the right and written as negative numbers: -1 is the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from frittata.egraph.errors import ModelError


@dataclass(frozen=True, order=True)
class Sym:
    """A dim known only at run time. Two dims of one name are equal; a symbol never broadcasts."""

    name: str

    def __repr__(self) -> str:
        return self.name


Dim = int | Sym
Shape = tuple[Dim, ...]


def fmt(shape: Shape) -> str:
    """Format a shape as `4x17xn`; a scalar is `()`."""
    return "x".join(map(str, shape)) if shape else "()"


def dim_at(shape: Shape, axis: int) -> Dim:
    """Return the extent of a negative `axis`, 1 beyond the rank."""
    return shape[axis] if -axis <= len(shape) else 1


def merge_dims(a: Dim, b: Dim, what: str = "dims") -> Dim:
    """Broadcast two dims.

    Raises: ModelError if neither is 1 and they differ.
    """
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    raise ModelError(f"{what} {a} and {b} do not broadcast")


def broadcast(*shapes: Shape) -> Shape:
    """Broadcast shapes, right-aligned: (4, 1, 3) with (5, 1) -> (4, 5, 3)."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = []
    for axis in range(-rank, 0):
        dim: Dim = 1
        for shape in shapes:
            dim = merge_dims(dim, dim_at(shape, axis), f"on axis {axis}, extents")
        out.append(dim)
    return tuple(out)


def fits(shape: Shape, context: Shape) -> bool:
    """Whether a shape broadcasts to another without making it larger."""
    return all(dim in (1, dim_at(context, axis)) for axis, dim in zip(range(-len(shape), 0), shape, strict=True))


def is_repeated(one: Shape, many: Shape) -> bool:
    """Whether values are the same along an axis of `many` that stands in front of one of their own."""
    own = [axis for axis in range(-len(one), 0) if one[axis] != 1]
    return bool(own) and any(many[axis] != 1 and dim_at(one, axis) == 1 for axis in range(-len(many), own[-1]))


def strip(shape: Shape) -> Shape:
    """Drop leading extents of 1: the extents of an element."""
    start = 0
    while start < len(shape) and shape[start] == 1:
        start += 1
    return shape[start:]


def concrete(shape: Shape, where: str = "") -> tuple[int, ...]:
    """Return the shape as numbers.

    Raises: ModelError if a dim is a symbol.
    """
    dims: list[int] = []
    for dim in shape:
        if isinstance(dim, Sym):
            raise ModelError(f"dim {dim} of {fmt(shape)} has no number here", where, f"bind {dim} to a number first")
        dims.append(dim)
    return tuple(dims)


def size(shape: Shape) -> int:
    """Return the number of elements of a concrete shape."""
    return prod(concrete(shape))


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the row-major strides in elements: (4, 3, 5) -> (15, 5, 1)."""
    out = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        out[axis] = out[axis + 1] * shape[axis + 1]
    return tuple(out)
