"""Where the bodies of kernels write: in row-major order, or apart, in a larger buffer."""

from __future__ import annotations

from collections.abc import Mapping

from frittata.egraph import indexing, shapes
from frittata.egraph.indexing import Affine
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
