"""Rows of ONNX operators on signals: Fourier transforms, whose complex values are a last axis of two parts; filters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from frittata.egraph import dtypes
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_indices, idioms_windows
from frittata.frontends.idioms_complex import Complex, as_complex, as_real, each, parts
from frittata.frontends.idioms_fourier import fourier, inverse_of_half
from frittata.frontends.onnx.tables import Row, dtype_of

Array = NDArray[Any]


def _signal(x: Term) -> Complex | Term:
    """Return a signal as a complex tensor, or as a real one where its last axis has one part.

    Raises: ModelError if it has another number of them.
    """
    if x.shape[-1] not in (1, 2):
        raise ModelError(f"a signal of {x.type}", do="give it a last axis of extent 1, or of 2 for complex values")
    return idioms.select(x, -1, 0) if x.shape[-1] == 1 else as_complex(x)


def _fitted(x: Term, axis: int, length: int) -> Term:
    """Cut an axis, or fill it with zeros."""
    missing = length - idioms.number(x.shape[axis])
    if missing <= 0:
        return idioms.take_slice(x, axis, 0, 1, length)
    after = [0] * len(x.shape)
    after[axis] = missing
    return idioms_windows.pad(x, [0] * len(x.shape), after)


def _dft(x: Term, length: Any = None, axis: Any = None, inverse: int = 0, onesided: int = 0) -> Term:
    axis = idioms.negative_axis(-2 if axis is None else int(axis), len(x.shape)) + 1
    given = idioms.number(x.shape[axis - 1])
    is_half = inverse and onesided
    extent = int(length) if length is not None else 2 * (given - 1) if is_half else given
    kept = extent // 2 + 1 if onesided else extent
    signal = each(lambda part: _fitted(part, axis, kept if is_half else extent), _signal(x))
    if is_half:
        half = signal if isinstance(signal, Complex) else Complex(*parts(signal))
        return idioms.unsqueeze(_scaled(inverse_of_half(half, axis, extent), 1 / extent), -1)
    found = fourier(signal, axis, not inverse, kept)
    return as_real(each(lambda part: _scaled(part, 1 / extent), found) if inverse else found)


def _dft_along(x: Term, length: Any = None, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Term:
    """Up to opset 19 the axis is an attribute."""
    return _dft(x, length, axis, inverse, onesided)


def _scaled(x: Term, factor: float) -> Term:
    return tensor("mul", x, idioms.scalar(factor, x.dtype))


def _stft(x: Term, step: Any, window: Term | None = None, length: Any = None, onesided: int = 1) -> Term:
    """Transform frames of one length, each a step after the one before, times the window."""
    size = int(length) if length is not None else idioms.number(window.shape[0]) if window is not None else None
    if size is None:
        raise UnsupportedOpError("neither window nor frame_length")
    if len(x.shape) != 3 or size > idioms.number(x.shape[1]):
        raise ModelError(f"frames of {size} values of {x.type}", do="give a longer signal, (batch, length, 1 or 2)")
    signal = _signal(x)
    batch, samples = map(idioms.number, signal.shape)
    frames = (samples - size) // int(step) + 1
    shape, strides = (batch, frames, size), (samples, int(step), 1)
    cut = each(lambda part: idioms_indices.strided(part, shape, strides, 0), signal)
    if window is not None:
        cut = each(lambda part: tensor("mul", part, window), cut)
    return as_real(fourier(cut, -1, True, size // 2 + 1 if onesided else None))


def _mel_weights(
    bins: Array, length: Array, rate: Array, low: Array, high: Array, output_datatype: int = TensorProto.FLOAT
) -> Array:
    """Return a triangle for each bin, the bins as wide as each other on the mel scale: (length / 2 + 1, bins)."""
    ends = 2595 * np.log1p(np.array([low.item(), high.item()]) / 700) / math.log(10)
    mels = ends[0] + np.arange(bins.item() + 2) * ((ends[1] - ends[0]) / (bins.item() + 2))
    hertz = 700 * np.expm1(mels / 2595 * math.log(10))
    places = ((length.item() + 1) * hertz // rate.item()).astype(np.int64)
    left, centre, right = places[:-2], places[1:-1], places[2:]
    frequency = np.arange(length.item() // 2 + 1)[:, None]
    rise = np.where(centre > left, (frequency - left) / np.maximum(centre - left, 1), frequency == centre)
    fall = (right - frequency) / np.maximum(right - centre, 1)
    weights = np.where(frequency <= centre, rise, fall).clip(0)
    return weights.astype(dtypes.to_numpy(dtype_of(output_datatype, "MelWeightMatrix")))


ROWS: dict[str, tuple[Row, ...]] = {
    "DFT": (Row(_dft_along, known=(1,), since=17), Row(_dft, known=(1, 2), since=20)),
    "MelWeightMatrix": (Row(_mel_weights, known=(0, 1, 2, 3, 4), since=17),),
    "STFT": (Row(_stft, known=(1, 3), since=17),),
}
"""What each operator means, by opset."""
