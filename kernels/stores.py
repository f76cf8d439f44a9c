"""Where the bodies of kernels write: in row-major order, or apart, in a larger buffer."""

from __future__ import annotations

from collections.abc import Mapping

from frittata.egraph import indexing, shapes
from frittata.egraph.indexing import Affine
from frittata.egraph.ops import registry
from frittata.egraph.terms import Term

BODIES = frozenset({"build", "part"})
"""The operators of bodies."""


def stored_at(body: Term, index: Mapping[int, Affine]) -> Affine:
    """Return the number of the element that a body writes at an index; an axis that is missing has index 0."""
    shape = shapes.concrete(body.shape)
    at = tuple(index.get(axis, Affine()) for axis in range(-len(shape), 0))
    if body.op == "part":
        return body.attrs[1].substitute(dict(zip(range(-len(shape), 0), at, strict=True)))
    return indexing.flatten(at, shape)


def in_order(bodies: tuple[Term, ...]) -> tuple[Term, ...]:
    """Turn the axes of parts to the order in which they lie in memory, if that is the same for all bodies.

    part(e, (5, 7), a1*9 + a2) -> part(reindex(e, 5x7 -> 7x5), (7, 5), a2*9 + a1)
    """
    orders = {_order(body) for body in bodies}
    order = orders.pop()
    if orders or order is None or order == tuple(range(len(order))):
        return bodies
    return tuple(_turned(body, order) for body in bodies)


def _order(body: Term) -> tuple[int, ...] | None:
    """Return the axes from the one whose neighbours are farthest apart; None if that is not the same everywhere."""
    rank = len(body.shape)
    if body.op != "part":
        return None
    strides = [body.attrs[1].factor_of(axis) for axis in range(-rank, 0)]
    known = [stride for stride in strides if stride is not None]
    if len(known) < rank or min(known, default=0) < 0:
        return None
    return tuple(sorted(range(rank), key=lambda axis: (body.shape[axis] != 1, -known[axis])))


def _turned(body: Term, order: tuple[int, ...]) -> Term:
    rank = len(order)
    mapping = indexing.permute_map(body.shape, order)
    at = body.attrs[1].substitute({axis - rank: source for axis, source in enumerate(mapping.sources)})
    return registry.tensor("part", registry.element("reindex", body.args[0], map=mapping), shape=mapping.result, at=at)
