"""Convolution with windows of 3 x 3 and stride one by fewer products: Winograd's algorithm, channels last.

Results are computed in tiles of m x m from the n x n values of the image that they depend on, n = m + 2:

    Y = A^T [sum over inputs of (G g G^T) * (B^T d B)] A

for the values d, the weights g, and element-wise products: n^2 of them in place of 9 m^2. Over the reals it is the
convolution. For m = 2 the additions are few and of like size, and each result depends on its own window alone; for
m = 4 rounding errors are about ten times larger, and what is not finite spreads to the whole tile.
Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from frittata.egraph import dtypes, indexing, shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.ops.contractions import contract
from frittata.egraph.ops.elements import bound_extents, window_extents
from frittata.egraph.ops.registry import REQUIRED, Op, element, register
from frittata.egraph.terms import ElementType, TensorType, Term, Type

KERNEL = 3
_KERNEL = (KERNEL, KERNEL)
_ONES = (1, 1)

Matrix = tuple[tuple[float, ...], ...]
Index = Mapping[int, Any]


@dataclass(frozen=True)
class Transforms:
    """The matrices B^T of the image, G of the weights and A^T of the results."""

    image: Matrix
    weights: Matrix
    result: Matrix


TRANSFORMS: dict[int, Transforms] = {
    2: Transforms(
        ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        ((1, 1, 1, 0), (0, 1, -1, -1)),
    ),
    4: Transforms(
        (
            (4, 0, -5, 0, 1, 0),
            (0, -4, -4, 1, 1, 0),
            (0, 4, -4, -1, 1, 0),
            (0, -2, -1, 2, 1, 0),
            (0, 2, -1, -2, 1, 0),
            (0, 4, 0, -5, 0, 1),
        ),
        (
            (1 / 4, 0, 0),
            (-1 / 6, -1 / 6, -1 / 6),
            (-1 / 6, 1 / 6, -1 / 6),
            (1 / 24, 1 / 12, 1 / 6),
            (1 / 24, -1 / 12, 1 / 6),
            (0, 0, 1),
        ),
        ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    ),
}
"""The transforms by m, the extent of a tile of results."""


def transform(matrix: Matrix, grid: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return M X M^T for a square of values; factors of zero are left out, so that they bring in no NaN."""
    rows = [[_combined(row, column) for column in zip(*grid, strict=True)] for row in matrix]
    return [[_combined(row, line) for row in matrix] for line in rows]


def _combined(factors: tuple[float, ...], values: Sequence[Any]) -> Any:
    total: Any = None
    for factor, value in zip(factors, values, strict=True):
        if factor:
            term = value * factor
            total = term if total is None else total + term
    return total


def tiled_window(
    image: Callable[[Index], Any], weights: Callable[[Index], Any], index: Index, attrs: tuple[Any, ...]
) -> Any:
    """Evaluate a convolution at an index inside the result: of axes -3, -2 the place, of -1 the channel.

    `image` and `weights` give their values at an index whose trailing dimension runs over the input channels; `attrs`
    are those of `winograd_dot`.
    """
    source, _, padding, tile = attrs
    lines, pixels, inputs = source
    outer = {axis: at[..., None] for axis, at in index.items()}
    depth = np.arange(inputs)
    size = tile + KERNEL - 1

    def value(down: int, across: int) -> Any:
        at = [outer[-3] // tile * tile + (down - padding[0]), outer[-2] // tile * tile + (across - padding[1])]
        inside = (at[0] >= 0) & (at[0] < lines) & (at[1] >= 0) & (at[1] < pixels)
        place = {-3: np.clip(at[0], 0, lines - 1), -2: np.clip(at[1], 0, pixels - 1), -1: depth}
        found = image({**outer, **place})
        return np.where(inside, found, np.zeros((), np.asarray(found).dtype))

    def weight(down: int, across: int) -> Any:
        return weights({-4: outer[-1], -3: depth, -2: np.asarray(down), -1: np.asarray(across)})

    matrices = TRANSFORMS[tile]
    left = transform(matrices.image, [[value(i, j) for j in range(size)] for i in range(size)])
    right = transform(matrices.weights, [[weight(i, j) for j in range(KERNEL)] for i in range(KERNEL)])
    products = [[contract(left[i][j], right[i][j]) for j in range(size)] for i in range(size)]
    results = transform(matrices.result, products)
    total = results[0][0]
    for i in range(tile):
        for j in range(tile):
            total = np.where((index[-3] % tile == i) & (index[-2] % tile == j), results[i][j], total)
    return total


def as_window_dot(e: Term) -> Term:
    """Return what a `winograd_dot` is over the reals: the convolution with its channels in front, seen from behind."""
    image, weights = e.args
    (lines, pixels, inputs), channels, padding, _ = e.attrs
    lead = image.shape[: max(0, len(image.shape) - 3)]
    rank = len(lead)
    before, first, second, last = tuple(range(rank)), rank, rank + 1, rank + 2
    turned = indexing.permute_map((*lead, lines, pixels, inputs), (*before, last, first, second))
    product = element(
        "window_dot", element("reindex", image, map=turned), weights, source=(inputs, lines, pixels),
        channels=channels, kernel=_KERNEL, stride=_ONES, padding=padding, dilation=_ONES, groups=1,
    )  # fmt: skip
    spatial = window_extents((lines, pixels), _KERNEL, _ONES, padding, _ONES)
    back = indexing.permute_map((*lead, channels, *spatial), (*before, second, last, first))
    return element("reindex", product, map=back)


def _check(left: str, right: str, tile: Any) -> None:
    if left != right or not dtypes.is_float(left):
        raise ModelError(f"a tiled convolution of {left} and {right}", do="give floats of one dtype")
    if tile not in TRANSFORMS:
        raise ModelError(f"no tiles of {tile} x {tile} results", do=f"use one of {', '.join(map(str, TRANSFORMS))}")


def _conv_winograd(types: tuple[TensorType, ...], attrs: tuple[Any, ...]) -> Type:
    x, w = types
    padding, tile = attrs
    _check(x.dtype, w.dtype, tile)
    if len(x.shape) != 4 or len(w.shape) != 4 or w.shape[2:] != _KERNEL or x.shape[3] != w.shape[1]:
        raise ModelError(f"conv_winograd of {x} and {w}", do="give an image with channels last, windows of 3 x 3")
    spatial = window_extents(x.shape[1:3], _KERNEL, _ONES, padding, _ONES)
    return TensorType((x.shape[0], *spatial, w.shape[0]), x.dtype)


def conv_winograd_numpy(x: Any, w: Any, padding: tuple[int, int], tile: int) -> Any:
    """Convolve an image with its channels last, all places at once."""
    batch, *source = x.shape
    spatial = window_extents(tuple(source[:2]), _KERNEL, _ONES, padding, _ONES)
    shape = (batch, *spatial, w.shape[0])
    index = dict(zip(range(-4, 0), np.indices(shape, sparse=True), strict=True))

    def at(values: Any) -> Callable[[Index], Any]:
        return lambda place: values[tuple(place[axis] for axis in range(-4, 0))]

    total = tiled_window(at(x), at(w), index, (tuple(source), w.shape[0], padding, tile))
    return np.broadcast_to(total, shape).copy()


def _winograd_dot(types: tuple[ElementType, ...], attrs: tuple[Any, ...]) -> Type:
    image, weights = types
    source, channels, padding, tile = attrs
    _check(image.dtype, weights.dtype, tile)
    outer, inner = image.extents, weights.extents
    for axis in range(-3, 0):
        outer = bound_extents("winograd_dot", outer, axis, source[axis])
    for axis, extent in zip(range(-3, 0), (source[2], *_KERNEL), strict=True):
        inner = bound_extents("winograd_dot", inner, axis, extent)
    if shapes.dim_at(inner, -4) not in (1, channels) or len(inner) > 4:
        raise ModelError(f"weights of winograd_dot have extents {shapes.fmt(inner)}, channels are {channels}")
    spatial = window_extents(source[:2], _KERNEL, _ONES, padding, _ONES)
    batch = outer[: max(0, len(outer) - 3)]
    return ElementType(shapes.strip((*batch, *spatial, channels)), image.dtype)


register(
    Op(
        "conv_winograd",
        "tensor",
        (("x", "tensor"), ("w", "tensor")),
        (("padding", (0, 0)), ("tile", 2)),
        _conv_winograd,
        conv_winograd_numpy,
        cost=2,
        doc="Convolution of (batch, y, x, inputs) with (channels, inputs, 3, 3), stride 1, in tiles of 2 x 2 or 4 x 4.",
    )
)
register(
    Op(
        "winograd_dot",
        "element",
        (("a", "element"), ("b", "element")),
        tuple((label, REQUIRED) for label in ("source", "channels", "padding", "tile")),
        _winograd_dot,
        cost=2,
        doc="The same at (*batch, y, x, channel): `source` is (y, x, input channels) of a; padding reads zero.",
    )
)
