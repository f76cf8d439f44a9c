"""The template of one `dot`: packed panels, register tiles, everything point-wise fused before and after it."""

from __future__ import annotations

from dataclasses import dataclass

from frittata.egraph import indexing, shapes, terms
from frittata.egraph.errors import LoweringError
from frittata.egraph.indexing import Affine, IndexMap, var
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels import gemm_kernel
from frittata.kernels.contractions import Contraction, Index, Side, only_product, seen_as, split_index
from frittata.kernels.gemm_estimate import estimate
from frittata.kernels.lowered import LoweredKernel
from frittata.kernels.multiply_adds import MultiplyAdd, choose


@dataclass(eq=False)
class ContractionTemplate:
    """Takes bodies that are point-wise in one product, whose operands are point-wise in buffers.

    `flushes`: those only that an instruction computes which takes denormal numbers for zeros.
    """

    name: str
    flushes: bool
    in_place: bool = True

    @property
    def level(self) -> str:
        """How equal the results are to what bodies say."""
        return "reassoc" if self.flushes else "exact"

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the time of the register tiles, of packing and of the epilogue; None for other bodies."""
        found = self._find(bodies, constants)
        return estimate(found[0], constants, machine, found[1]) if found is not None else None

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write loops over panels and tiles around vector code."""
        found = self._find(bodies, constants)
        if found is None:
            raise LoweringError(f"the {self.name} template takes bodies that are point-wise in one dot")
        return gemm_kernel.lower(name, found[0], constants, found[1])

    def _find(self, bodies: tuple[Term, ...], constants: frozenset[str]) -> tuple[Contraction, MultiplyAdd] | None:
        work = describe(bodies)
        if work is None:
            return None
        multiply = choose(work, constants, flushes=self.flushes)
        return (work, multiply) if multiply.flushes == self.flushes else None


CONTRACTION = ContractionTemplate("contraction", flushes=False)
HALVES = ContractionTemplate("halves", flushes=True)


def describe(bodies: tuple[Term, ...]) -> Contraction | None:
    """Name the axes: columns are the last; batches are those along which the right operand differs; rows the rest.

    They are those of the product, which the bodies may see reshaped.
    """
    product = only_product(bodies, "dot")
    if product is None:
        return None
    left, right = product.args
    seen = seen_as(product, terms.walk(*(body.args[0] for body in bodies)))
    shape = shapes.concrete(bodies[0].shape if seen is product else product.shape)
    depth = product.attrs[0]
    extents = {axis: shape[axis] for axis in range(-len(shape), 0)}
    columns = extents.pop(-1, 1)
    batch = {a: n for a, n in extents.items() if a < -2 and shapes.dim_at(right.shape, a) != 1}
    rows = {a: n for a, n in extents.items() if a not in batch}
    place: dict[int, Affine] = {**split_index("g", batch), **split_index("i", rows), -1: var("j", columns)}
    k = var("k", depth)
    stored = place if seen is product else _unshaped(seen.attrs[0], place)
    return Contraction(
        bodies,
        product,
        shapes.size(tuple(batch.values())),
        shapes.size(tuple(rows.values())),
        columns,
        depth,
        Side(left, {**place, -1: k}),
        Side(right, {**place, -2: k}),
        stored,
    )


def _unshaped(mapping: IndexMap, place: Index) -> Index:
    """Return the index in a reshaped product from that in the product."""
    by_key: dict[int | str, Affine] = {**place}
    sources = indexing.reshape_map(mapping.result, mapping.source).sources
    return {axis - len(sources): at.substitute(by_key) for axis, at in enumerate(sources)}
