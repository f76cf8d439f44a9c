"""The operator registry: one row for each operator, in family modules. Importing the package fills it."""

from frittata.egraph.ops import contractions, elements, reductions, scalars, tensors, views

FAMILIES = (scalars, elements, tensors, reductions, contractions, views)
"""The modules whose rows make up the registry."""
