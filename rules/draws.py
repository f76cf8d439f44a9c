"""For the audit: random extents, shapes, dtypes and numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import numpy as np

from frittata.egraph.dtypes import NARROW, finfo, is_integer, to_numpy
from frittata.egraph.ops.registry import REQUIRED, Op
from frittata.egraph.terms import Scalar

DIMS = (1, 1, 2, 3, 3, 4, 5, 7)
LONG = (8, 11, 16, 29)
"""Extents that are drawn seldom: they take time."""

DTYPES = ("f64", "f64", "f64", "f32", "f32", "i32", "i64", "bool")
STORED = (*NARROW, *("u8", "i8") * 4)
MOST_RANK = 5
MOST_SIZE = 4096
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 3.0, 0.5, 1.5, -2.5, 0.1, 7.0, 0.0625, 1e-3)
MOST_ELEMENTS = 400

Shape = tuple[int, ...]


class Dice(np.random.Generator):
    """Random numbers; extents are also drawn from `sizes`: these, their double, what exceeds them.

    A guard such as `shape(x)[-1] % 64 == 0` is seldom met by small primes; one with two may ask it of two axes.
    Constants are also drawn from and beside `numbers`.
    """

    def __init__(self, seed: tuple[int, ...], sizes: Sequence[int] = (), numbers: Collection[float] = ()) -> None:
        super().__init__(np.random.PCG64(seed))
        beside = (m for n in sorted(numbers) for m in (n, n, n - 1, n - 0.5, n + 0.5, n + 1, 2 * n))
        self.numbers = tuple(beside) or NUMBERS
        large = sorted(size for size in sizes if max(DIMS) < size <= MOST_SIZE)
        self.dims = (*DIMS, *(dim for size in sorted(set(large)) for dim in (size, size, size + 1, 2 * size)))
        together = min(prod(size + 1 for size in large[-2:]), 16 * MOST_SIZE) if len(large) > 1 else 0
        self.most_elements = max([MOST_ELEMENTS, together, *(16 * size for size in large)])
        self.most_rank = max([MOST_RANK, *(size for size in sizes if size <= max(DIMS))])


def one_of(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    """Draw one of some values, as `rng.choice` does, which makes an array of them first."""
    return values[int(rng.integers(0, len(values)))]


def random_dim(dice: Dice) -> int:
    """Draw an extent: often 1, often a prime, seldom a long one."""
    return one_of(dice, LONG if dice.random() < 0.03 else dice.dims)


def random_shape(dice: Dice) -> Shape:
    """Draw a shape of rank 0 to 5."""
    while True:
        shape = tuple(random_dim(dice) for _ in range(int(dice.integers(0, dice.most_rank + 1))))
        if prod(shape) <= dice.most_elements:
            return shape


def random_dtype(rng: np.random.Generator, op: Op) -> str:
    """Draw a dtype of values that an operator may take."""
    return one_of(rng, (*DTYPES, *STORED) if op.carries else DTYPES)


def random_scalar(dice: Dice, dtype: str) -> Scalar:
    """Draw a number of a dtype."""
    if dtype == "bool":
        return Scalar.of(bool(dice.integers(0, 2)), dtype)
    number = random_number(dice)
    if is_integer(dtype):
        info = np.iinfo(to_numpy(dtype))
        return Scalar.of(min(max(int(number), int(info.min)), int(info.max)), dtype)
    most = float(finfo(dtype).max)
    return Scalar.of(min(max(number, -most), most), dtype)


def random_number(dice: Dice) -> float:
    """Draw one of a few numbers, one at or beside those of the rule, a half up to 10, or a power of two."""
    kind = dice.random()
    if kind < 0.45:
        return float(one_of(dice, NUMBERS))
    if kind < 0.7:
        return float(one_of(dice, dice.numbers))
    if kind < 0.85:
        return int(dice.integers(-20, 21)) / 2
    return float(one_of(dice, [-1, 1])) * 2.0 ** int(dice.integers(0, 17))


def narrowed(rng: np.random.Generator, shape: Shape) -> Shape:
    """Draw a shape that broadcasts to `shape`: extents 1, often some, at times all or all but one; axes missing."""
    kind = rng.random()
    if kind < 0.08:
        return ()
    if kind < 0.16 and shape:
        kept = int(rng.integers(0, len(shape)))
        return (*(1,) * int(rng.integers(0, kept + 1)), shape[kept], *(1,) * (len(shape) - kept - 1))
    out = tuple(1 if rng.random() < 0.25 else dim for dim in shape)
    return out[int(rng.integers(0, len(out) + 1)) :] if rng.random() < 0.3 else out


def spread(rng: np.random.Generator, shape: Shape, count: int) -> list[Shape]:
    """Draw shapes that broadcast to `shape` only together: on each axis one has its extent, others it or 1."""
    full = rng.integers(0, count, len(shape))
    return [
        tuple(dim if i == keeper or rng.random() < 0.25 else 1 for dim, keeper in zip(shape, full, strict=True))
        for i in range(count)
    ]


def attribute_like(dice: Dice, default: Any) -> Any:
    """Draw an attribute of the kind of its default, often the default; if it has none, mostly an integer."""
    if default is REQUIRED:
        return int(dice.integers(-3, 4)) if dice.random() < 0.7 else random_number(dice)
    if isinstance(default, tuple):
        parts: tuple[Any, ...] = default
        return tuple(attribute_like(dice, part) for part in parts)
    if dice.random() < 0.4:
        return default
    match default:
        case bool():
            return not default
        case int():
            return int(dice.integers(-3, 4)) if dice.random() < 0.5 else default + int(dice.integers(-2, 3))
        case float():
            return random_number(dice) if dice.random() < 0.5 else default * float(one_of(dice, [0.5, 2, 3]))
        case Scalar(dtype=dtype):
            return random_scalar(dice, dtype)
        case _:
            return default
