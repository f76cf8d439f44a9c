"""The operator registry: one row for each operator, in family modules."""

from frittata.egraph.ops import contractions, elements, reductions, scalars, tensors, views  # noqa: F401  (fills the registry)
from frittata.egraph.ops.registry import Op, get, names, nearest, register

__all__ = ["Op", "get", "names", "nearest", "register"]
