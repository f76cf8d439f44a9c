"""The operator registry: one row for each operator, in family modules. Importing the package fills it."""

from frittata.egraph.ops import contractions, elements, reductions, scalars, tensors, views
from frittata.egraph.ops.registry import Op, every, get, names, nearest, register, unregister

__all__ = ["FAMILIES", "Op", "every", "get", "names", "nearest", "register", "unregister"]

FAMILIES = (scalars, elements, tensors, reductions, contractions, views)
"""The modules whose rows make up the registry."""
