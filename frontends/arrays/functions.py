"""What numpy's functions mean in terms: one small row for each.

A row takes what the function takes, under its names, with terms for tensors and arrays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np

from frittata.egraph import dtypes, shapes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_indices, idioms_windows
from frittata.frontends.arrays import ufuncs
from frittata.frontends.arrays.axes import distinct, extent_of, ints, over
from frittata.frontends.arrays.constants import term_of
from frittata.frontends.arrays.indexing import within
from frittata.frontends.arrays.ufuncs import aten_row, converted, floats, promoted, summed, truth
from frittata.frontends.einsum import einsum, tensordot

Row = Callable[..., Any]


def _reduction(build: Callable[[Term, Any, bool], Term], prepare: Callable[[Term], Term]) -> Row:
    def row(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Term:
        x = term_of(a)
        x = prepare(x) if dtype is None else converted(x, dtype)
        if prepare is floats and not dtypes.is_float(x.dtype):
            raise UnsupportedOpError(f"a mean of dtype {x.dtype}", do="leave dtype out, and convert the result")
        return build(x, over(x, axis), keepdims)

    return row


def _extreme(fold: str) -> Row:
    def row(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Term:
        x = term_of(a)
        return idioms.extreme(x, fold, over(x, axis), keepdims)

    return row


def _any_or_all(fold: str) -> Row:
    def row(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Term:
        x = truth(term_of(a))
        return idioms.extreme(x, fold, over(x, axis), keepdims)

    return row


def _place(fold: str) -> Row:
    def row(a: Any, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Term:
        return idioms_indices.place(term_of(a), fold, axis, keepdims)

    return row


def _variance(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: float = 0,
) -> Term:
    if ddof and correction:
        raise ModelError("a variance with ddof and correction", do="give one of them: they are the same")
    x = floats(term_of(a)) if dtype is None else converted(term_of(a), dtype)
    if not dtypes.is_float(x.dtype):
        raise UnsupportedOpError(f"a variance of dtype {x.dtype}", do="leave dtype out, and convert the result")
    return idioms.variance(x, over(x, axis), ddof or correction, keepdims)


@wraps(_variance)
def _deviation(a: Any, *args: Any, **options: Any) -> Term:
    return tensor("sqrt", _variance(a, *args, **options))


def _running(op: str) -> Row:
    def row(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Term:
        x = term_of(a)
        x = summed(x) if dtype is None else converted(x, dtype)
        at = 0 if axis is None else axis
        return idioms_indices.running(_flat(x) if axis is None or not x.shape else x, op, at)

    return row


def _running_extreme(op: str, prepare: Callable[[Term], Term]) -> Row:
    def row(array: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Term:
        x = prepare(term_of(array))
        return idioms_indices.running_extreme(x if dtype is None else converted(x, dtype), op, axis)[0]

    return row


def _flat(x: Term) -> Term:
    return idioms.reshape(x, (-1,))


def _reshape(a: Term, shape: Any, order: str = "C") -> Term:
    if order not in ("C", "F"):
        raise UnsupportedOpError(f"reshape in the order {order!r}", do='give "C" or "F"')
    wanted = ints(shape)
    if wanted.count(-1) > 1 or min(wanted, default=1) < -1 or 0 in wanted:
        raise ModelError(f"reshape to {wanted}", do="give extents, one of them -1 at most")
    return idioms.reshape(a, wanted) if order == "C" else _transpose(idioms.reshape(_transpose(a), wanted[::-1]))


def _transpose(a: Term, axes: Any = None) -> Term:
    rank = len(a.shape)
    order = range(rank)[::-1] if axes is None else distinct(ints(axes), rank)
    if len(order) != rank:
        raise ModelError(f"transpose of {a.type} by {axes}", do="give all axes")
    return idioms.permute(a, order)


def _matrix_transpose(x: Term) -> Term:
    if len(x.shape) < 2:
        raise ModelError(f"matrix_transpose of {x.type}", do="give at least two axes")
    return idioms.swap(x)


def _moveaxis(a: Term, source: Any, destination: Any) -> Term:
    rank = len(a.shape)
    start, end = (distinct(ints(axes), rank) for axes in (source, destination))
    if len(start) != len(end):
        raise ModelError(f"moveaxis of {len(start)} axes to {len(end)} places", do="give a place for each axis")
    order = [axis for axis in range(rank) if axis not in start]
    for to, axis in sorted(zip(end, start, strict=True)):
        order.insert(to, axis)
    return idioms.permute(a, order)


def _expand_dims(a: Term, axis: Any) -> Term:
    rank = len(a.shape) + len(ints(axis))
    for at in sorted(distinct(ints(axis), rank)):
        a = idioms.unsqueeze(a, at)
    return a


def _broadcast_to(array: Any, shape: Any) -> Term:
    if min(ints(shape), default=1) < 1:
        raise ModelError(f"numpy.broadcast_to {shape}", do="give extents of at least 1")
    return idioms.expand(term_of(array), ints(shape))


def _squeeze(a: Term, axis: Any = None) -> Term:
    wrong = [at for at in distinct(ints(() if axis is None else axis), len(a.shape)) if a.shape[at] != 1]
    if wrong:
        raise ModelError(f"squeeze of axis {wrong[0]} of {a.type}", do="only axes of extent 1 can be dropped")
    return idioms.squeeze(a, None if axis is None else ints(axis))


def _atleast(rank: int) -> Row:
    def one(x: Any) -> Term:
        x = term_of(x)
        missing = rank - len(x.shape)
        if missing <= 0:
            return x
        after = 1 if rank == 3 and len(x.shape) in (1, 2) else 0
        return idioms.reshape(x, (*(1,) * (missing - after), *x.shape, *(1,) * after))

    def row(*arys: Any) -> Any:
        return one(arys[0]) if len(arys) == 1 else tuple(map(one, arys))

    return row


def _parts(arrays: Any) -> Sequence[Any]:
    """Return a sequence; a tensor is one of its slices."""
    if not isinstance(arrays, Term):
        return arrays
    return [idioms.select(arrays, 0, i) for i in range(idioms.number(arrays.shape[0]))]


def _concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Term:
    parts = promoted(*_parts(arrays))
    if axis is None:
        return idioms_windows.concat([_flat(part) for part in parts], 0)
    distinct([axis], len(parts[0].shape))
    return idioms_windows.concat(parts, axis)


def _stack(arrays: Sequence[Any], axis: int = 0) -> Term:
    parts = promoted(*map(term_of, _parts(arrays)))
    return idioms_windows.concat([idioms.unsqueeze(part, axis) for part in parts], axis)


def _hstack(tup: Sequence[Any]) -> Term:
    parts = [_atleast(1)(x) for x in _parts(tup)]
    return _concatenate(parts, 0 if len(parts[0].shape) == 1 else 1)


def _vstack(tup: Sequence[Any]) -> Term:
    return _concatenate([_atleast(2)(x) for x in _parts(tup)], 0)


def _dstack(tup: Sequence[Any]) -> Term:
    return _concatenate([_atleast(3)(x) for x in _parts(tup)], 2)


def _column_stack(tup: Sequence[Any]) -> Term:
    parts = map(term_of, _parts(tup))
    return _concatenate([x if len(x.shape) > 1 else idioms.reshape(x, (-1, 1)) for x in parts], 1)


def _split(ary: Term, indices_or_sections: Any, axis: int = 0, equal: bool = True) -> list[Term]:
    extent = extent_of(ary, axis)
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        if count < 1:
            raise ModelError(f"split into {count} parts", do="give at least 1")
        if equal and extent % count:
            raise ModelError(f"split of {ary.type} into {count} equal parts of axis {axis}", do="use numpy.array_split")
        sizes = [extent // count + (i < extent % count) for i in range(count)]
    else:
        bounds = [0, *(min(max(b if b >= 0 else b + extent, 0), extent) for b in ints(indices_or_sections)), extent]
        sizes = [end - start for start, end in itertools.pairwise(bounds)]
    return list(idioms.split(ary, sizes, axis))


def _array_split(ary: Term, indices_or_sections: Any, axis: int = 0) -> list[Term]:
    return _split(ary, indices_or_sections, axis, equal=False)


def _tile(A: Term, reps: Any) -> Term:
    times = ints(reps)
    if min(times, default=1) < 1:
        raise UnsupportedOpError(f"numpy.tile by {reps}", do="give numbers of at least 1")
    return idioms.repeat(A, (*(1,) * (len(A.shape) - len(times)), *times))


def _repeat(a: Term, repeats: Any, axis: int | None = None) -> Term:
    if not isinstance(repeats, int) or repeats < 1:
        raise UnsupportedOpError(
            f"numpy.repeat by {repeats}", do="give one number, at least 1, or numpy.take the places"
        )
    x = a if a.shape and axis is not None else _flat(a)
    (at,) = distinct([axis or 0], len(x.shape))
    return idioms_indices.repeat_each(x, repeats, at)


def _roll(a: Term, shift: Any, axis: Any = None) -> Term:
    axes = None if axis is None else ints(axis)
    shifts = ints(shift)
    if axes is None:
        return idioms_indices.roll(a, [sum(shifts)])
    if len(shifts) != len(axes) and 1 not in (len(shifts), len(axes)):
        raise ModelError(f"numpy.roll by {shift} along {axes}", do="give a shift for each axis, or one for all")
    by, along = ([int(pair[side]) for pair in np.broadcast(shifts, axes)] for side in (0, 1))
    return idioms_indices.roll(a, by, [distinct([axis], len(a.shape))[0] for axis in along]) if by else a


def _flip(m: Term, axis: Any = None) -> Term:
    return idioms_indices.flip(m, range(len(m.shape)) if axis is None else distinct(ints(axis), len(m.shape)))


def _pad(array: Term, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Term:
    rank = len(array.shape)
    if isinstance(pad_width, dict):
        raise ModelError(f"numpy.pad by {pad_width}", do="give two widths for each axis in a tuple")
    try:
        width = np.broadcast_to(np.asarray(pad_width), (rank, 2))
    except ValueError as error:
        raise ModelError(f"numpy.pad by {pad_width} of {rank} axes", do="give a width, or two for each axis") from error
    low, high = (tuple(map(int, side)) for side in width.T)
    if min((*low, *high), default=0) < 0:
        raise ModelError(f"numpy.pad by {pad_width}", do="give widths of at least 0")
    border: dict[str, Row] = {
        "edge": idioms_windows.replicate,
        "reflect": idioms_windows.reflect,
        "symmetric": partial(idioms_windows.reflect, twice=1),
        "wrap": idioms_windows.circular,
    }
    if mode in border:
        return border[mode](array, low, high)
    if mode != "constant" or np.ndim(constant_values):
        raise UnsupportedOpError(
            f"numpy.pad by {mode!r} with {constant_values}", do="give a number, edge, reflect, symmetric or wrap"
        )
    return idioms_windows.pad(array, low, high, filling(constant_values, array.dtype))


def filling(value: Any, dtype: DType) -> Any:
    """Return a number to fill with.

    Raises: ModelError for one that numpy does not convert to the dtype.
    """
    is_number = isinstance(value, bool | int | float)
    if not is_number or (dtypes.is_integer(dtype) and not (math.isfinite(value) and ufuncs.fits(int(value), dtype))):
        raise ModelError(f"{value} is no value of {dtype}", do="give a number that the tensor can hold")
    return value


def _where(condition: Any, *choices: Any) -> Term:
    if len(choices) != 2:
        raise UnsupportedOpError("numpy.where without values, whose result has no static shape")
    return tensor("where", truth(term_of(condition)), *promoted(*choices))


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: None = None, min: Any = None, max: Any = None) -> Term:
    low, high = (b if a is None else a for a, b in ((a_min, min), (a_max, max)))
    a = term_of(a)
    if dtypes.is_integer(a.dtype):  # an integer beyond what it can hold is no bound
        held = np.iinfo(dtypes.to_numpy(a.dtype))
        low = None if type(low) is int and low < held.min else low
        high = None if type(high) is int and high > held.max else high
    x, *_ = promoted(a, *(bound for bound in (low, high) if bound is not None))
    x = x if low is None else ufuncs.apply(np.maximum, (x, low), {})
    return x if high is None else ufuncs.apply(np.minimum, (x, high), {})


def _indices(x: Any) -> Term:
    indices = term_of(x)
    if not dtypes.is_integer(indices.dtype):
        raise ModelError(f"indices are {indices.type}", do="give integers")
    return indices


def _take(a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str = "raise") -> Term:
    x, at = term_of(a), _indices(indices)
    if axis is None:
        x, axis = _flat(x), 0
    extent = extent_of(x, axis)
    if mode == "clip":
        at = _clip(at, 0, extent - 1)
    if mode == "wrap":
        at = ufuncs.apply(np.remainder, (converted(at, np.int64), extent), {})
    if mode not in ("raise", "clip", "wrap"):
        raise ModelError(f"numpy.take with mode={mode!r}", do='give "raise", "clip" or "wrap"')
    return idioms_indices.take(x, idioms_indices.wrapped(within(at, x, axis), extent), axis)


def _take_along(arr: Term, indices: Any, axis: int | None = -1) -> Term:
    at = _indices(indices)
    if axis is None:
        arr, axis = _flat(arr), 0
    rank = len(arr.shape)
    if len(at.shape) != rank:
        raise ModelError(f"take_along_axis of {arr.type} by {at.type}", do="give indices with as many axes")
    along = distinct([axis], rank)[0] - rank
    whole, places = list(arr.shape), list(at.shape)
    for i in range(-rank, 0):
        if i != along:
            (whole[i],) = (places[i],) = shapes.broadcast((whole[i],), (places[i],))
    looked_up = idioms_indices.wrapped(idioms.expand(within(at, arr, axis), places), arr.shape[along])
    return idioms_indices.gather(idioms.expand(arr, whole), looked_up, along)


def _sorted(op: str) -> Row:
    def row(a: Term, axis: int | None = -1, kind: Any = None, *, stable: Any = None) -> Term:
        x, along = (_flat(a), -1) if axis is None else (a, axis)
        return tensor(op, x, axis=idioms.negative_axis(along, len(x.shape)))

    return row


def _diag(v: Term, k: int = 0) -> Term:
    if len(v.shape) == 2:
        return idioms_indices.diagonal(v, k)
    if len(v.shape) != 1:
        raise ModelError(f"numpy.diag of {v.type}", do="give one axis or two")
    extent = idioms.number(v.shape[0]) + abs(k)
    row = idioms_windows.pad(v, (max(0, k),), (max(0, -k),))
    square = idioms.expand(row, (extent, extent))
    return idioms.triangle(idioms.triangle(square, "le", k), "ge", k)


def _diagonal(a: Term, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Term:
    return idioms_indices.diagonal(a, offset, *distinct((axis1, axis2), len(a.shape)))


def _trace(a: Term, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Term:
    found = _diagonal(a, offset, axis1, axis2)
    return idioms.reduce(summed(found) if dtype is None else converted(found, dtype), "sum", -1)


def _triangle(op: str) -> Row:
    def row(m: Term, k: int = 0) -> Term:
        if not m.shape:
            raise ModelError(f"a triangle of {m.type}", do="give at least one axis")
        return idioms.triangle(m if len(m.shape) > 1 else idioms.expand(m, m.shape * 2), op, k)

    return row


def _dot(a: Any, b: Any, out: None = None) -> Term:
    x, y = promoted(term_of(a), term_of(b))
    if not x.shape or not y.shape:
        return tensor("mul", x, y)
    if len(y.shape) <= 2:
        return idioms.matmul(x, y)
    return tensordot(x, y, ([len(x.shape) - 1], [len(y.shape) - 2]))


def _inner(a: Any, b: Any) -> Term:
    x, y = promoted(term_of(a), term_of(b))
    return tensordot(x, y, ([len(x.shape) - 1], [len(y.shape) - 1])) if x.shape and y.shape else tensor("mul", x, y)


def _outer(a: Any, b: Any, out: None = None) -> Term:
    x, y = promoted(term_of(a), term_of(b))
    return tensor("mul", idioms.reshape(x, (-1, 1)), idioms.reshape(y, (1, -1)))


def _vdot(a: Any, b: Any) -> Term:
    return _dot(_flat(term_of(a)), _flat(term_of(b)))


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Term:
    x, y = promoted(term_of(a), term_of(b))
    if isinstance(axes, int):
        axes = (range(-axes, 0), range(axes))
    first, second = (distinct(ints(part), len(z.shape)) for part, z in zip(axes, (x, y), strict=True))
    return tensordot(x, y, (first, second))


def _einsum(subscripts: Any, *operands: Any, optimize: Any = None) -> Term:
    if not isinstance(subscripts, str):
        raise UnsupportedOpError("numpy.einsum with axes as lists", do="write the subscripts as text")
    return einsum(subscripts, promoted(*map(term_of, operands)))


def _cross(a: Any, b: Any, axis: int = -1) -> Term:
    x, y = promoted(term_of(a), term_of(b))
    if extent_of(x, axis) != 3 or extent_of(y, axis) != 3:
        raise UnsupportedOpError(f"numpy.cross of {x.type} and {y.type}", do="give vectors of three along the axis")
    return idioms_indices.cross(x, y, axis)


def _norm(x: Term, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Term:
    axes = idioms.negative_axes(over(x, axis), len(x.shape))
    is_vector = len(axes) == 1
    if (ord not in (None, "fro") and not is_vector) or (ord == "fro" and len(axes) != 2):
        do = "give two axes" if ord == "fro" else "give one axis"
        raise UnsupportedOpError(f"numpy.linalg.norm of order {ord} over {len(axes)} axes", do=do)
    if not isinstance(ord, int | float | None) and ord != "fro":
        raise ModelError(f"numpy.linalg.norm of order {ord!r}", do="give a number")
    return aten_row("linalg_vector_norm.default")(floats(x), 2 if ord in (None, "fro") else ord, axes, keepdims)


def _nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Term:
    if not copy:
        raise ModelError("numpy.nan_to_num with copy=False changes its argument", do="take what it returns")
    if not all(isinstance(value, int | float | None) for value in (nan, posinf, neginf)):
        raise ModelError("numpy.nan_to_num with arrays in the place of values", do="give numbers, or use numpy.where")
    return aten_row("nan_to_num.default")(term_of(x), nan, posinf, neginf)


def _round(a: Term, decimals: int = 0, out: None = None) -> Term:
    if a.dtype == "bool":
        raise UnsupportedOpError("numpy.round of truth values", do="convert to integers or floats before")
    if not dtypes.is_float(a.dtype):
        if decimals < 0:
            raise UnsupportedOpError("numpy.round of integers to tens", do="convert to floats before")
        return a
    return tensor("round", a) if decimals == 0 else aten_row("round.decimals")(a, decimals)


def _like(value: Any) -> Row:
    def row(a: Term, dtype: Any = None, shape: Any = None) -> Term:
        kind: DType = a.dtype if dtype is None else dtypes.from_numpy(dtype)
        return idioms.filled(filling(value, kind), a.shape if shape is None else ints(shape), kind)

    return row


def _full_like(a: Term, fill_value: Any, dtype: Any = None, shape: Any = None) -> Term:
    if not isinstance(fill_value, Term):
        return _like(fill_value)(a, dtype, shape)
    kind: DType = a.dtype if dtype is None else dtypes.from_numpy(dtype)
    return idioms.expand(idioms.cast(fill_value, kind), a.shape if shape is None else ints(shape))


def _diff(a: Term, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Term:
    if n < 0:
        raise ModelError(f"numpy.diff {n} times", do="give a number of at least 0")
    (at,) = distinct([axis], len(a.shape))
    slab = (*a.shape[:at], 1, *a.shape[at + 1 :])
    given = (a if end is a else term_of(end) for end in (prepend, a, append) if end is not None)
    if n:
        a = _concatenate([part if part.shape else idioms.expand(part, slab) for part in given], axis)
    for _ in range(n):
        extent = extent_of(a, axis)
        ends = (idioms.take_slice(a, axis, start, 1, extent - 1) for start in (1, 0))
        a = tensor("ne" if a.dtype == "bool" else "sub", *ends)
    return a


def _size(a: Term, axis: int | None = None) -> int:
    return shapes.size(a.shape) if axis is None else extent_of(a, axis)


def _count_nonzero(a: Term, axis: Any = None, *, keepdims: bool = False) -> Term:
    return idioms.reduce(idioms.cast(truth(a), "i64"), "sum", over(a, axis), keepdims)


def _ptp(a: Term, axis: Any = None, out: None = None, keepdims: bool = False) -> Term:
    return tensor("sub", *(_extreme(fold)(a, axis, out, keepdims) for fold in ("max", "min")))


FUNCTIONS: dict[Any, Row] = {
    np.sum: _reduction(lambda x, axes, keep: idioms.reduce(x, "sum", axes, keep), summed),
    np.prod: _reduction(lambda x, axes, keep: idioms.reduce(x, "prod", axes, keep), summed),
    np.mean: _reduction(idioms.mean, floats),
    np.max: _extreme("max"),
    np.min: _extreme("min"),
    np.amax: _extreme("max"),
    np.amin: _extreme("min"),
    np.any: _any_or_all("max"),
    np.all: _any_or_all("min"),
    np.ptp: _ptp,
    np.argmax: _place("max"),
    np.argmin: _place("min"),
    np.var: _variance,
    np.std: _deviation,
    np.count_nonzero: _count_nonzero,
    np.cumsum: _running("cumsum"),
    np.cumprod: _running("cumprod"),
    np.maximum.accumulate: _running_extreme("cummax", lambda x: x),
    np.minimum.accumulate: _running_extreme("cummin", lambda x: x),
    np.logical_or.accumulate: _running_extreme("cummax", truth),
    np.logical_and.accumulate: _running_extreme("cummin", truth),
    np.diff: _diff,
    np.reshape: _reshape,
    np.ravel: lambda a, order="C": _reshape(a, -1, order),
    np.transpose: _transpose,
    np.matrix_transpose: _matrix_transpose,
    np.linalg.matrix_transpose: _matrix_transpose,
    np.swapaxes: lambda a, axis1, axis2: idioms.swap(a, *(distinct([at], len(a.shape))[0] for at in (axis1, axis2))),
    np.moveaxis: _moveaxis,
    np.expand_dims: _expand_dims,
    np.squeeze: _squeeze,
    np.broadcast_to: _broadcast_to,
    np.atleast_1d: _atleast(1),
    np.atleast_2d: _atleast(2),
    np.atleast_3d: _atleast(3),
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.hstack: _hstack,
    np.vstack: _vstack,
    np.dstack: _dstack,
    np.column_stack: _column_stack,
    np.split: _split,
    np.array_split: _array_split,
    np.tile: _tile,
    np.repeat: _repeat,
    np.roll: _roll,
    np.flip: _flip,
    np.fliplr: lambda m: _flip(m, 1),
    np.flipud: lambda m: _flip(m, 0),
    np.pad: _pad,
    np.where: _where,
    np.clip: _clip,
    np.take: _take,
    np.take_along_axis: _take_along,
    np.sort: _sorted("sort"),
    np.argsort: _sorted("argsort"),
    np.diag: _diag,
    np.diagonal: _diagonal,
    np.trace: _trace,
    np.tril: _triangle("le"),
    np.triu: _triangle("ge"),
    np.dot: _dot,
    np.inner: _inner,
    np.outer: _outer,
    np.vdot: _vdot,
    np.tensordot: _tensordot,
    np.einsum: _einsum,
    np.cross: _cross,
    np.linalg.norm: _norm,
    np.nan_to_num: _nan_to_num,
    np.round: _round,
    np.around: _round,
    np.zeros_like: _like(0),
    np.ones_like: _like(1),
    np.empty_like: _like(0),
    np.full_like: _full_like,
    np.copy: lambda a, order="K": a,
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: len(a.shape),
    np.size: _size,
}
"""What each function means."""
