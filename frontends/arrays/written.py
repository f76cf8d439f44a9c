"""Functions of numpy written with others: on tensors that are traced they make the terms of those.

One returns NotImplemented for arguments that it does not take; then numpy is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np

from frittata.frontends.arrays import trees

Written = Callable[..., Any]


def apply(function: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Return what a function makes of tensors; NotImplemented if it has no meaning here, or none for their dtypes."""
    if function not in WRITTEN or not all(_is_wide(leaf) for _, leaf in trees.leaves((args, options))):
        return NotImplemented
    try:
        bound = signature(WRITTEN[function]).bind(*args, **options)
    except TypeError:  # an argument that is not written
        return NotImplemented
    return WRITTEN[function](*bound.args, **bound.kwargs)


def _is_wide(value: Any) -> bool:
    """Whether a value is computed as it is: neither complex nor rounded to a narrow dtype after each step."""
    dtype = np.dtype(value if isinstance(value, type) else getattr(value, "dtype", type(value)))
    return dtype.kind != "c" and (dtype.kind not in "fiu" or dtype.itemsize >= 4)


def _floats(x: Any) -> Any:
    return x if np.issubdtype(x.dtype, np.floating) else x.astype(np.float64)


# ---- numbers, and NaN for none ---------------------------------------------------------------------------------------


def _given(a: Any, value: float) -> Any:
    """Return an array with a value in the place of NaN."""
    return np.where(np.isnan(a), value, a) if np.issubdtype(a.dtype, np.floating) else a


def _whole(fold: Callable[..., Any], value: float) -> Written:
    def written(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return fold(_given(a, value), axis, keepdims=keepdims)

    return written


def _extreme(fold: Callable[..., Any], value: float) -> Written:
    """Of no numbers it is NaN."""

    def written(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        found = fold(_given(a, value), axis, keepdims=keepdims)
        if not np.issubdtype(a.dtype, np.floating):
            return found
        return np.where(np.all(np.isnan(a), axis, keepdims=keepdims), np.nan, found)

    return written


def _count(a: Any, axis: Any, keepdims: bool) -> Any:
    return np.sum(~np.isnan(a), axis, keepdims=keepdims).astype(a.dtype)


def _mean(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    a = _floats(a)
    return np.sum(_given(a, 0), axis, keepdims=keepdims) / _count(a, axis, keepdims)


def _variance(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    a = _floats(a)
    distance = np.where(np.isnan(a), 0, a - _mean(a, axis, keepdims=True))  # NaN beside infinities
    freedom = _count(a, axis, keepdims) - ddof
    found = np.sum(np.square(distance), axis, keepdims=keepdims) / freedom
    return np.where(freedom > 0, found, np.nan)


def _deviation(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    return np.sqrt(_variance(a, axis, ddof=ddof, keepdims=keepdims))


def _median(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    if not isinstance(axis, int | None):
        return NotImplemented
    ordered = np.moveaxis(np.sort(a, axis) if axis is not None else np.sort(np.ravel(a)), axis or 0, 0)
    ordered, count = _floats(ordered), ordered.shape[0]
    found = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    if np.issubdtype(a.dtype, np.floating):
        found = np.where(np.isnan(ordered[-1]), np.nan, found)
    if keepdims:
        found = np.expand_dims(found, range(a.ndim) if axis is None else axis)
    return found


# ---- covariances -----------------------------------------------------------------------------------------------------


def _cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None) -> Any:
    if np.ndim(m) > 2 or (ddof is not None and ddof != int(ddof)):
        return NotImplemented
    parts = [np.atleast_2d(m).T if not rowvar and np.ndim(m) > 1 else np.atleast_2d(m)]
    if y is not None:
        y = np.atleast_2d(y)
        parts.append(y.T if not rowvar and y.shape[0] > 1 else y)
    x = np.concatenate(parts, 0).astype(np.float64)
    freedom = max(0, x.shape[1] - (int(not bias) if ddof is None else ddof))
    x = x - np.mean(x, 1, keepdims=True)
    return np.squeeze(x @ x.T / np.float64(freedom))


def _corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    found = _cov(x, y, rowvar)
    if found is NotImplemented:
        return found
    if found.ndim == 0:
        return found / found
    deviation = np.sqrt(np.diagonal(found))
    return np.clip(found / deviation[:, None] / deviation, -1, 1)


# ---- differences and areas -------------------------------------------------------------------------------------------


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    if np.ndim(dx) or np.shape(y)[axis] < 2 or (x is not None and np.ndim(x) not in (1, np.ndim(y))):
        return NotImplemented
    width: Any = dx
    if x is not None:
        width = np.diff(x) if np.ndim(x) == 1 else np.moveaxis(np.diff(x, axis=axis), axis, -1)
    y = np.moveaxis(y, axis, -1)
    return np.sum(width * (y[..., 1:] + y[..., :-1]) / 2.0, -1)


def _gradient(f: Any, *spacings: Any, axis: Any = None, edge_order: int = 1) -> Any:
    axes = range(f.ndim) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    is_apart = len({at % f.ndim for at in axes if -f.ndim <= at < f.ndim}) == len(axes)
    if not (axes and is_apart) or f.dtype == bool:
        return NotImplemented
    steps = spacings or (1.0,)
    steps = steps * len(axes) if len(steps) == 1 and np.ndim(steps[0]) == 0 else steps
    least = min(f.shape[at] for at in axes)
    if len(steps) != len(axes) or edge_order not in (1, 2) or least <= edge_order:
        return NotImplemented
    found = [_slope(np.moveaxis(_floats(f), at, 0), step, edge_order) for at, step in zip(axes, steps, strict=True)]
    found = [np.moveaxis(slope, 0, at).astype(_floats(f).dtype) for at, slope in zip(axes, found, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


def _slope(f: Any, step: Any, edge_order: int) -> Any:
    """Return the derivative along the first axis: that of the parabola through each value and its neighbours."""
    count, *others = f.shape
    widths = np.diff(step) if np.ndim(step) else np.broadcast_to(step, (count - 1,))
    width = np.reshape(widths, (count - 1, *(1,) * len(others)))
    slope = np.diff(f, axis=0) / width
    if count == 2:
        return np.concatenate([slope, slope])
    if np.ndim(step):
        before, after = width[:-1], width[1:]
        middle = (slope[:-1] * after + slope[1:] * before) / (before + after)
    else:
        middle = (f[2:] - f[:-2]) / (2.0 * step)
    first, last = slope[:1], slope[-1:]
    if edge_order == 2:
        first = first + (first - slope[1:2]) * width[:1] / (width[:1] + width[1:2])
        last = last + (last - slope[-2:-1]) * width[-1:] / (width[-1:] + width[-2:-1])
    return np.concatenate([first, middle, last])


# ---- comparisons, grids, products ------------------------------------------------------------------------------------


def _isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    b = b * 1.0
    near = (np.abs(a - b) <= atol + rtol * np.abs(b)) & np.isfinite(b) | (a == b)
    return near | np.isnan(a) & np.isnan(b) if equal_nan else near


def _allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    return np.all(_isclose(a, b, rtol, atol, equal_nan))


def _array_equal(a1: Any, a2: Any) -> Any:
    return np.all(a1 == a2) if np.shape(a1) == np.shape(a2) else False


def _meshgrid(*xs: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    if indexing not in ("xy", "ij") or any(np.ndim(x) != 1 for x in xs):
        return NotImplemented
    swapped = [1, 0, *range(2, len(xs))] if indexing == "xy" and len(xs) > 1 else list(range(len(xs)))
    wide = [np.expand_dims(x, [at for at in range(len(xs)) if at != swapped[i]]) for i, x in enumerate(xs)]
    shape = [np.shape(xs[swapped[at]])[0] for at in range(len(xs))]
    return tuple(wide if sparse else [np.broadcast_to(x, shape) for x in wide])


def _kron(a: Any, b: Any) -> Any:
    rank = max(np.ndim(a), np.ndim(b))
    shapes = [(*(1,) * (rank - np.ndim(x)), *np.shape(x)) for x in (a, b)]
    left = np.reshape(a, [extent for one in shapes[0] for extent in (one, 1)])
    right = np.reshape(b, [extent for one in shapes[1] for extent in (1, one)])
    return np.reshape(left * right, [one * other for one, other in zip(*shapes, strict=True)])


def _vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    count = np.shape(x)[0] if N is None and np.ndim(x) == 1 else N
    if np.ndim(x) != 1 or not count or count < 0:
        return NotImplemented
    x = x.astype(np.promote_types(x.dtype, int))
    columns = [np.ones_like(x)]
    for _ in range(1, count):
        columns.append(columns[-1] * x)
    return np.stack(columns if increasing else columns[::-1], -1)


def _polyval(p: Any, x: Any) -> Any:
    factors: Any = np.asarray(p) if isinstance(p, list | tuple | np.poly1d) else p
    if not np.ndim(factors):
        return NotImplemented
    found = np.zeros_like(x)
    for at in range(np.shape(factors)[0]):
        found = found * x + factors[at]
    return found


def _rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    if len(axes) != 2 or len({range(m.ndim)[at] for at in axes if -m.ndim <= at < m.ndim}) != 2:
        return NotImplemented
    first, second = axes
    match k % 4:
        case 0:
            return m
        case 1:
            return np.flip(np.swapaxes(m, first, second), first)
        case 2:
            return np.flip(m, (first, second))
        case _:
            return np.swapaxes(np.flip(m, first), first, second)


def _sinc(x: Any) -> Any:
    angle = np.pi * np.where(x == 0, 1e-20, _floats(x))
    return np.sin(angle) / angle


def _modf(x: Any) -> Any:
    if x.dtype == bool:  # numpy's is of halves
        return NotImplemented
    x = _floats(x)
    whole = np.trunc(x)
    return np.copysign(np.where(np.isinf(x), 0, x - whole), x), whole


WRITTEN: dict[Any, Written] = {
    np.nansum: _whole(np.sum, 0),
    np.nanprod: _whole(np.prod, 1),
    np.nanmax: _extreme(np.max, -np.inf),
    np.nanmin: _extreme(np.min, np.inf),
    np.nanmean: _mean,
    np.nanvar: _variance,
    np.nanstd: _deviation,
    np.median: _median,
    np.cov: _cov,
    np.corrcoef: _corrcoef,
    np.trapezoid: _trapezoid,
    np.gradient: _gradient,
    np.isclose: _isclose,
    np.allclose: _allclose,
    np.array_equal: _array_equal,
    np.meshgrid: _meshgrid,
    np.kron: _kron,
    np.vander: _vander,
    np.polyval: _polyval,
    np.rot90: _rot90,
    np.sinc: _sinc,
    np.divmod: lambda x, y: (np.floor_divide(x, y), np.remainder(x, y)),
    np.modf: _modf,
}
"""What each function means, by others."""
