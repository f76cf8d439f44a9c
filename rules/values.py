"""For the audit: draw values for the leaves of terms."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import log2
from typing import Any, Literal

import numpy as np

from frittata.egraph import dtypes, shapes
from frittata.egraph.terms import Term

Array = np.ndarray[Any, np.dtype[Any]]
Kind = Literal["plain", "dyadic", "special", "wide"]

MOST_SMALL, MOST_EDGE = 4.0, 1e4
MOST_LARGE = 150.0
"""A product of two exponentials of such numbers is finite in float64."""


def draw_values(leaves: tuple[Term, ...], rng: np.random.Generator, kind: Kind) -> dict[str, Array]:
    """Draw values for leaves.

    Of kind "plain" moderate numbers with zeros; "dyadic" quarters, on which sums and products are exact in any order;
    "special" also infinities, NaN, -0.0 and integers of all sizes; "wide" floats of all sizes.
    """
    return {leaf.attrs[0]: _values(shapes.concrete(leaf.shape), leaf.dtype, rng, kind) for leaf in leaves}


def _values(shape: tuple[int, ...], dtype: str, rng: np.random.Generator, kind: Kind) -> Array:
    to = dtypes.to_numpy(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(to)
    if dtypes.is_integer(dtype):
        out = rng.integers(-6, 7, shape).astype(to)
        return out if kind in ("plain", "dyadic") else _with_large_integers(out, rng)
    if kind == "dyadic":
        return (rng.integers(-8, 9, shape) / 4).astype(to)
    out = rng.normal(size=shape) * rng.choice([0.5, 1.0, 3.0])
    out = np.abs(out) if rng.random() < 0.4 else out
    out = np.where(rng.random(shape) < 0.1, 0.0, out)
    if kind == "special":
        odd = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0], shape)
        out = np.where(rng.random(shape) < 0.3, odd, out)
    if kind == "wide":
        reach = log2(float(dtypes.finfo(dtype).max)) - 1e-3
        bits = np.where(rng.random(shape) < 0.2, rng.uniform(reach - 3, reach, shape), rng.uniform(0, reach, shape))
        sizes = np.exp2(bits * rng.choice([-1, 1], shape)) * rng.choice([-1, 1], shape)
        out = np.where(rng.random(shape) < 0.5, sizes, out)
    return out.astype(to)


def _with_large_integers(values: Array, rng: np.random.Generator) -> Array:
    """Return the values, some replaced by the ends of their range, and some by integers of any number of bits."""
    info = np.iinfo(values.dtype)
    ends = rng.choice(np.array([info.min, info.max, 0], values.dtype), values.shape)
    drawn = rng.integers(info.min, info.max, values.shape, values.dtype, endpoint=True)
    sized = drawn >> rng.integers(0, info.bits, values.shape).astype(values.dtype)
    kind = rng.random(values.shape)
    return np.where(kind < 0.15, ends, np.where(kind < 0.4, sized, values))


def draw_edges(
    leaves: tuple[Term, ...], rng: np.random.Generator, numbers: Collection[float], large: bool
) -> dict[str, Array]:
    """Draw values at and beside multiples of the numbers that a rule mentions, and halves; also `large` ones, or none.

    There clamps begin, roundings jump, and what is negligible near zero is not; beside the exponential of a large value
    all else is.
    """
    return {leaf.attrs[0]: _edges(shapes.concrete(leaf.shape), leaf.dtype, rng, numbers, large) for leaf in leaves}


def _edges(
    shape: tuple[int, ...], dtype: str, rng: np.random.Generator, numbers: Collection[float], large: bool
) -> Array:
    to = dtypes.to_numpy(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(to)
    if dtypes.is_integer(dtype):
        info = np.iinfo(to)
        fitting = [int(n) for n in numbers if info.min / 2 < n < info.max / 2] or [0]
        near = rng.choice(fitting, shape) * rng.choice([-1, 1], shape) + rng.integers(-2, 3, shape)
        return _with_large_integers(near.astype(to), rng) if large else near.astype(to)
    most = float(dtypes.finfo(dtype).max) / 4 if large else MOST_SMALL
    steps = [1.0, *(n for n in numbers if n and abs(n) < most), *(1 / n for n in numbers if n and abs(1 / n) < most)]
    near = rng.choice(steps, shape) * rng.choice([-2, -1, -0.5, 0.5, 1, 1.5, 2, 2.5], shape)
    near = near * (1 + rng.choice([0, 0, 1e-4, -1e-4, 0.1], shape))
    if not large:
        return near.astype(to)
    return np.where(rng.random(shape) < 0.3, rng.uniform(-MOST_LARGE, MOST_LARGE, shape), near).astype(to)


def with_nans(values: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """Return the values with some floats replaced by NaN."""

    def replaced(value: Array) -> Array:
        if not dtypes.holds_floats(value):
            return value
        return np.where(rng.random(value.shape) < 0.15, np.nan, value).astype(value.dtype)

    return {name: replaced(value) for name, value in values.items()}
