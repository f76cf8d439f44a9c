"""The operator registry: one row for each operator, in family modules. Importing the package fills it."""

from frittata.egraph.ops import (
    contractions,
    elements,
    externs,
    indices,
    orders,
    reductions,
    scalars,
    tensors,
    views,
    windows,
    winograd,
)
from frittata.egraph.ops.registry import Op, built_in, every, get, names, nearest, register, unregister

__all__ = ["FAMILIES", "Op", "every", "get", "names", "nearest", "register", "unregister"]

FAMILIES = (scalars, elements, tensors, reductions, contractions, winograd, views, windows, indices, orders, externs)
"""The modules whose rows make up the registry."""

built_in()
