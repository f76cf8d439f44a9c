"""Rows of aten operators that move values: views, slices, splits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from frittata.egraph import dtypes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import ModelError
from frittata.egraph.shapes import Dim, Sym
from frittata.egraph.terms import Term
from frittata.frontends import idioms


def _unflatten(x: Term, axis: int, sizes: list[Dim]) -> Term:
    at = axis % len(x.shape)
    part = idioms.infer_dim((x.shape[at],), tuple(sizes))
    return idioms.reshape(x, (*x.shape[:at], *part, *x.shape[at + 1 :]))


def _flatten(x: Term, start: int = 0, end: int = -1) -> Term:
    rank = len(x.shape)
    if rank == 0:
        return idioms.reshape(x, (1,))
    start, end = start % rank, end % rank
    part = x.shape[start : end + 1]
    merged: Dim = -1 if len(part) != 1 else part[0]
    return idioms.reshape(x, (*x.shape[:start], merged, *x.shape[end + 1 :]))


def _slice(x: Term, axis: int = 0, start: int | None = None, end: Dim | None = None, step: int = 1) -> Term:
    extent = x.shape[axis]
    if isinstance(extent, Sym):
        whole = end is None or end == extent or (isinstance(end, int) and end >= sys.maxsize // 2)
        if start in (None, 0) and step == 1 and whole:
            return x
        raise ModelError(f"slice of the symbolic axis {axis} of {x.type}", do=f"make {extent} a static dim")
    if isinstance(end, Sym):
        raise ModelError(f"slice of {x.type} up to the symbolic {end}", do=f"make {end} a static dim")
    kept = range(*slice(start, end, step).indices(extent))
    return idioms.take_slice(x, axis, kept.start, step, len(kept))


def _split(x: Term, size: int, axis: int = 0) -> tuple[Term, ...]:
    extent = idioms.number(x.shape[axis])
    return idioms.split(x, [min(size, extent - start) for start in range(0, extent, size)], axis)


def _chunk(x: Term, chunks: int, axis: int = 0) -> tuple[Term, ...]:
    return _split(x, -(-idioms.number(x.shape[axis]) // chunks), axis)


def _unbind(x: Term, axis: int = 0) -> tuple[Term, ...]:
    return tuple(idioms.select(x, axis, i) for i in range(idioms.number(x.shape[axis])))


def _bits(x: Term, dtype: DType) -> Term:
    """Return a view of another dtype: of integers of one size it is what a cast gives, which wraps."""
    are_integers = dtypes.is_integer(x.dtype) and dtypes.is_integer(dtype)
    if x.dtype != dtype and not (are_integers and dtypes.itemsize(x.dtype) == dtypes.itemsize(dtype)):
        raise ModelError(f"view of {x.type} as {dtype} reads bits", do="convert the values, x.to(dtype) or Cast")
    return idioms.cast(x, dtype)


def _squeeze(x: Term, axes: int | Sequence[int] | None = None) -> Term:
    return idioms.squeeze(x, [axes] if isinstance(axes, int) else axes)


def _permute(x: Term, order: list[int]) -> Term:
    return idioms.permute(x, order) if order else x


def _narrow(x: Term, axis: int, start: int, length: int) -> Term:
    begin = start + idioms.number(x.shape[axis]) if start < 0 else start
    return idioms.take_slice(x, axis, begin, 1, length)


_RESHAPES: tuple[str, ...] = ("view.default", "_unsafe_view.default", "reshape.default", "_reshape_copy.default")

ROWS: dict[str, Callable[..., Any]] = {
    **{f"aten.{name}": idioms.reshape for name in _RESHAPES},
    "aten.view_as.default": lambda x, other: idioms.reshape(x, other.shape),
    "aten.reshape_as.default": lambda x, other: idioms.reshape(x, other.shape),
    "aten.view.dtype": _bits,
    "aten.flatten.using_ints": _flatten,
    "aten.unflatten.int": _unflatten,
    "aten.unsqueeze.default": idioms.unsqueeze,
    "aten.squeeze.default": _squeeze,
    "aten.squeeze.dim": _squeeze,
    "aten.squeeze.dims": _squeeze,
    "aten.transpose.int": idioms.swap,
    "aten.permute.default": _permute,
    "aten.t.default": lambda x: idioms.swap(x) if len(x.shape) == 2 else x,
    "aten.numpy_T.default": lambda x: idioms.permute(x, range(len(x.shape))[::-1]),
    "aten.mT.default": idioms.swap,
    "aten.expand.default": lambda x, size, implicit=False: idioms.expand(x, size),
    "aten.expand_as.default": lambda x, other: idioms.expand(x, other.shape),
    "aten.broadcast_to.default": idioms.expand,
    "aten.repeat.default": idioms.repeat,
    "aten.select.int": idioms.select,
    "aten.slice.Tensor": _slice,
    "aten.narrow.default": _narrow,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": lambda x, sizes, axis=0: idioms.split(x, sizes, axis),
    "aten.chunk.default": _chunk,
    "aten.unbind.int": _unbind,
}
"""What each overload means."""
