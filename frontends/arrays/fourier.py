"""What numpy's discrete Fourier transforms mean in terms, of real tensors and of complex ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.dtypes import DType
from frittata.egraph.errors import ModelError
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_indices, idioms_windows
from frittata.frontends.arrays.constants import dtype_of, term_of
from frittata.frontends.idioms_complex import Complex, conjugate, each, parts
from frittata.frontends.idioms_fourier import transform, transform_of_real, transform_to_real

Row = Callable[..., Any]
Axes = Sequence[int] | None
_TURNED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}
"""The `norm` of a transform that numpy computes by the one of the other direction."""


def _signal(a: Any, transformed: Callable[..., Any] = np.fft.fft, axes: int = 1) -> tuple[Any, DType]:
    """Return a tensor in the dtype, or with the parts, in which numpy transforms it, and the dtype of the result's."""
    x = term_of(a)
    kind: Any = transformed(np.zeros((*(1,) * (axes - 1), 2), dtype_of(x))).dtype
    dtype = dtypes.from_numpy(np.finfo(kind).dtype)
    return each(lambda part: idioms.cast(part, dtypes.wide(dtype)), x), dtype


def _places(x: Any, s: Axes, axes: Axes) -> tuple[list[int], list[int]]:
    """Return the axes of a transform, and how many values are transformed along each.

    Raises: ModelError if they do not fit.
    """
    rank = len(x.shape)
    chosen = list(axes) if axes is not None else list(range(-rank if s is None else -len(s), 0))
    along = [idioms.negative_axis(axis, rank) for axis in chosen]
    if not rank or not along or len({*along}) < len(along) or (s is not None and len(s) != len(along)):
        what = f"a transform of {rank} axes along {tuple(chosen)}{'' if s is None else f' of {tuple(s)} values'}"
        raise ModelError(what, do="give axes of the tensor, each once, and a number of values for each")
    wanted = [-1] * len(along) if s is None else s
    return along, [idioms.number(x.shape[axis]) if n == -1 else n for axis, n in zip(along, wanted, strict=True)]


def _resized(x: Any, along: Sequence[int], extents: Sequence[int]) -> Any:
    """Cut each axis, or add zeros to it, to its extent."""
    for axis, extent in zip(along, extents, strict=True):
        if extent < 1:
            raise ModelError(f"a transform of {extent} values", do="give a number of at least 1")
        missing = extent - idioms.number(x.shape[axis])
        after = [0] * (-axis - 1)
        if missing > 0:
            x = each(lambda part: idioms_windows.pad(part, (0, *after), (missing, *after)), x)  # noqa: B023
        else:
            x = each(lambda part: idioms.take_slice(part, axis, 0, 1, extent), x)  # noqa: B023
    return x


def _normalization(norm: str | None, forward: bool) -> int:
    """Return the number by which idioms call what results are multiplied by."""
    if norm not in _TURNED:
        raise ModelError(f"a transform with norm={norm!r}", do='give "backward", "ortho" or "forward"')
    return 1 if norm == "ortho" else 2 * ((norm == "forward") == forward)


def _complex(forward: bool, axes: Axes = None) -> Row:
    def row(a: Any, s: Axes = None, axes: Axes = axes, norm: str | None = None, out: None = None) -> Any:
        x, _ = _signal(a)
        along, extents = _places(x, s, axes)
        return transform(_resized(x, along, extents), along[::-1], _normalization(norm, forward), forward)

    return row


def _of_real(axes: Axes = None) -> Row:
    def row(a: Any, s: Axes = None, axes: Axes = axes, norm: str | None = None, out: None = None) -> Any:
        x, _ = _signal(a)
        if isinstance(x, Complex):
            raise ModelError("half of the spectrum of complex numbers", do="write numpy.fft.fft: it has no other half")
        along, extents = _places(x, s, axes)
        return transform_of_real(_resized(x, along, extents), along, _normalization(norm, True), True)

    return row


def _to_real(axes: Axes = None) -> Row:
    def row(a: Any, s: Axes = None, axes: Axes = axes, norm: str | None = None, out: None = None) -> Any:
        along, extents = _places(term_of(a), s, axes)
        x, dtype = _signal(a, np.fft.irfftn, len(along))
        extent = 2 * (extents[-1] - 1) if s is None else extents[-1]
        if extent < 1:
            raise ModelError(f"a transform to {extent} real values", do="give their number, at least 1")
        half = Complex(*parts(_resized(x, along, [*extents[:-1], extent // 2 + 1])))
        return idioms.cast(transform_to_real(half, along, _normalization(norm, False), extent), dtype)

    return row


def _along_one(whole: Row) -> Row:
    """Return the row along one axis, given the one along several."""

    def row(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: None = None) -> Any:
        return whole(a, None if n is None else (n,), (axis,), norm)

    return row


_fft, _ifft, _rfft, _irfft = map(_along_one, (_complex(True), _complex(False), _of_real(), _to_real()))


def _hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: None = None) -> Term:
    return _irfft(conjugate(term_of(a)), n, axis, _TURNED.get(norm, norm))


def _ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: None = None) -> Complex:
    return conjugate(_rfft(a, n, axis, _TURNED.get(norm, norm)))


def _shift(towards: int) -> Row:
    """Move what has the frequency 0 to the middle, or back."""

    def row(x: Any, axes: Any = None) -> Any:
        z = term_of(x)
        rank = len(z.shape)
        chosen = range(rank) if axes is None else (axes,) if isinstance(axes, int) else axes
        along = [idioms.negative_axis(axis, rank) + rank for axis in chosen]
        by = [towards * (idioms.number(z.shape[axis]) // 2) for axis in along]
        return each(lambda part: idioms_indices.roll(part, by, along), z) if along else z

    return row


_LAST_TWO = (-2, -1)

ROWS: dict[Any, Row] = {
    np.fft.fft: _fft,
    np.fft.ifft: _ifft,
    np.fft.rfft: _rfft,
    np.fft.irfft: _irfft,
    np.fft.hfft: _hfft,
    np.fft.ihfft: _ihfft,
    np.fft.fft2: _complex(True, _LAST_TWO),
    np.fft.ifft2: _complex(False, _LAST_TWO),
    np.fft.rfft2: _of_real(_LAST_TWO),
    np.fft.irfft2: _to_real(_LAST_TWO),
    np.fft.fftn: _complex(True),
    np.fft.ifftn: _complex(False),
    np.fft.rfftn: _of_real(),
    np.fft.irfftn: _to_real(),
    np.fft.fftshift: _shift(1),
    np.fft.ifftshift: _shift(-1),
}
"""What each transform means."""
