"""Attributes of the rule on sums of products whose factors are spread against each other: where the matrices lie.

sum over -3 of (70, 65, 1) * (70, 1, 33):  rows -2, columns -1  ->  (65, 70) times (70, 33)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from frittata.egraph import shapes
from frittata.egraph.shapes import Shape

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """The axes of a product by what they are, negative, and their extents in the product."""

    extents: Ints
    batch: Ints
    rows: Ints
    columns: Ints
    axis: int

    def size(self, axes: Ints) -> int:
        """Return the product of the extents of some axes."""
        return prod(self.extents[axis] for axis in axes)

    def order(self, axes: Ints) -> Ints:
        """Return the permutation that takes some axes to the front, after the batch, and the rest to the end."""
        rank = len(self.extents)
        front = (*self.batch, *axes)
        return tuple(axis + rank for axis in (*front, *(axis for axis in range(-rank, 0) if axis not in front)))


def _product(x: Shape, y: Shape, axis: int) -> Product:
    left, right = (aligned(own, other) for own, other in ((x, y), (y, x)))
    extents = tuple(map(max, left, right))
    axes = [a for a in range(-len(extents), 0) if a != axis]
    batch = tuple(a for a in axes if left[a] > 1 and right[a] > 1)
    rows = tuple(a for a in axes if left[a] > 1 and right[a] == 1)
    columns = tuple(a for a in axes if left[a] == 1 and right[a] > 1)
    return Product(extents, batch, rows, columns, axis)


def aligned(x: Shape, y: Shape) -> Ints:
    """Return the shape of x with as many axes as y, if it has fewer."""
    return (*(1,) * (len(y) - len(x)), *shapes.concrete(x))


def is_spread(x: Shape, y: Shape, axis: int) -> bool:
    """Whether the sum over an axis of a product is one of matrices with several rows, columns and terms."""
    if any(not isinstance(dim, int) for dim in (*x, *y)) or max(len(x), len(y)) < 3:
        return False
    depths = [aligned(*pair)[axis] for pair in ((x, y), (y, x))]
    product = _product(x, y, axis)
    return depths[0] == depths[1] > 1 and bool(product.rows and product.columns)


def spread_left(x: Shape, y: Shape, axis: int) -> Ints:
    """Return the permutation of x to (batch, rows, depth, ones)."""
    product = _product(x, y, axis)
    return product.order((*product.rows, axis))


def spread_right(x: Shape, y: Shape, axis: int) -> Ints:
    """Return the permutation of y to (batch, depth, columns, ones)."""
    product = _product(x, y, axis)
    return product.order((axis, *product.columns))


def left_matrix(x: Shape, y: Shape, axis: int) -> Shape:
    """Return the shape (*batch, rows, depth)."""
    product = _product(x, y, axis)
    return (*_batch(product), product.size(product.rows), product.extents[axis])


def right_matrix(x: Shape, y: Shape, axis: int) -> Shape:
    """Return the shape (*batch, depth, columns)."""
    product = _product(x, y, axis)
    return (*_batch(product), product.extents[axis], product.size(product.columns))


def spread_result(x: Shape, y: Shape, axis: int) -> Shape:
    """Return the shape (*batch, *rows, *columns, ones) of the product before its axes are back in their order."""
    product = _product(x, y, axis)
    named = (*product.batch, *product.rows, *product.columns)
    return (*(product.extents[a] for a in named), *(1,) * (len(product.extents) - len(named)))


def spread_back(x: Shape, y: Shape, axis: int) -> Ints:
    """Return the permutation of that to the order of the axes of x and y."""
    product = _product(x, y, axis)
    order = product.order((*product.rows, *product.columns))
    return tuple(order.index(at) for at in range(len(order)))


def _batch(product: Product) -> Ints:
    return tuple(product.extents[axis] for axis in product.batch)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        is_spread,
        aligned,
        spread_left,
        spread_right,
        left_matrix,
        right_matrix,
        spread_result,
        spread_back,
    )
}
"""What rules may call."""
