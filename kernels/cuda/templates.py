"""The kernel templates of the CUDA target: what each takes, what it is predicted to cost, and its source."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from frittata.egraph import program, shapes, terms
from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import REFERENCE_GPU, Machine
from frittata.egraph.ops import registry
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term, size_bytes
from frittata.kernels.contractions import BINDERS, Contraction
from frittata.kernels.cuda import work
from frittata.kernels.cuda.flat import flat_work, write_flat
from frittata.kernels.cuda.kernel import CudaKernel
from frittata.kernels.cuda.products import joined_batches, write_product
from frittata.kernels.cuda.row_writer import write_rows
from frittata.kernels.cuda.rows import ROW, Rows, plans, sums_of
from frittata.kernels.cuda.tensor import evaluated_sides, halves_of, write_tensor
from frittata.kernels.cuda.tensor_tiles import choose_tensor_tile
from frittata.kernels.cuda.tiles import choose_tile
from frittata.kernels.cuda.unroll import is_plain, loads_in
from frittata.kernels.loops import Loop
from frittata.kernels.templates import contraction, convolution


class CudaTemplate(program.Template, Protocol):
    """A template that can also write its kernels."""

    def write(self, name: str, bodies: tuple[Term, ...]) -> CudaKernel:
        """Write the kernel that computes `bodies`.

        Raises: LoweringError if `estimate` would return None.
        """
        ...


class FlatTemplate:
    """One thread for each output: bodies without folds or contractions."""

    name = "pointwise"

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the slower of arithmetic and memory; None for bodies with folds or contractions."""
        return None if _binds(bodies) else _flat_estimate(bodies, machine)

    def write(self, name: str, bodies: tuple[Term, ...]) -> CudaKernel:
        """Write the outputs of a thread, one or several that lie a block apart."""
        return write_flat(name, bodies)


class NestTemplate(FlatTemplate):
    """One thread for each output, with loops inside: what binds axes, as the last resort."""

    name = "nest"

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict what a thread waits for besides arithmetic and memory; None for what is pointwise."""
        return _flat_estimate(bodies, machine) if _binds(bodies) else None


class RowTemplate:
    """A group of threads for each row: bodies with folds or contractions, whose loops lanes can share."""

    name = "row"

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the best way to choose rows; None if there is none."""
        found = _best_rows(bodies, machine)
        return found[0] if found is not None else None

    def write(self, name: str, bodies: tuple[Term, ...]) -> CudaKernel:
        """Write the kernel of the rows that the reference device would run best."""
        found = _best_rows(bodies, REFERENCE_GPU)
        if found is None:
            raise LoweringError("bodies whose loops cannot be shared among lanes", do="choose another template")
        return write_rows(name, bodies, found[1])


class ProductTemplate:
    """Tiles in shared memory and registers: bodies that are point-wise in one contraction."""

    def __init__(self, name: str) -> None:
        self.name = name

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the slower of products, memory and loading tiles; None for other bodies."""
        found = self._describe(bodies)
        return _product_estimate(found, machine) if found is not None else None

    def write(self, name: str, bodies: tuple[Term, ...]) -> CudaKernel:
        """Write the kernel of the tiles that the reference device would run best."""
        found = self._describe(bodies)
        if found is None:
            raise LoweringError(f"bodies that are not point-wise in one {self.name}", do="choose another template")
        return write_product(name, found, choose_tile(found, REFERENCE_GPU))

    def _describe(self, bodies: tuple[Term, ...]) -> Contraction | None:
        if any(term.op == "at" for term in terms.walk(*bodies)):  # look-ups note failures in rows and flat loops only
            return None
        found = (contraction if self.name == "contraction" else convolution).describe(bodies)
        return joined_batches(found) if found is not None else None


class TensorTemplate:
    """Tiles in shared memory and tensor cores: bodies that are point-wise in one product of halves."""

    name = "tensor"
    level = "reassoc"
    """Tensor cores cut off what they add below the last place of a sum, where others round."""
    least_capability = (8, 0)
    """Of devices that have the instructions for it."""

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the slower of products, memory and loading tiles; None for other bodies."""
        found = self._describe(bodies)
        return _tensor_estimate(found, machine) if found is not None else None

    def write(self, name: str, bodies: tuple[Term, ...]) -> CudaKernel:
        """Write the kernel of the tiles that the reference device would run best."""
        found = self._describe(bodies)
        if found is None:
            raise LoweringError("bodies that are not point-wise in one product of halves", do="choose another template")
        return write_tensor(name, found, choose_tensor_tile(found, REFERENCE_GPU, evaluated_sides(found)))

    def _describe(self, bodies: tuple[Term, ...]) -> Contraction | None:
        if any(term.op == "at" for term in terms.walk(*bodies)):
            return None
        found = contraction.describe(bodies) or convolution.describe(bodies)
        return found if found is not None and halves_of(found) is not None else None


TEMPLATES: tuple[CudaTemplate, ...] = (
    FlatTemplate(),
    RowTemplate(),
    ProductTemplate("contraction"),
    ProductTemplate("convolution"),
    TensorTemplate(),
    NestTemplate(),
)
"""All templates; the first or the last takes every body."""


def by_name(name: str) -> CudaTemplate:
    """Return a template.

    Raises: LoweringError if there is none of that name.
    """
    for template in TEMPLATES:
        if template.name == name:
            return template
    names = ", ".join(template.name for template in TEMPLATES)
    raise LoweringError(f"the CUDA target has no template {name!r}", do=f"it has {names}")


# ---- prices ----------------------------------------------------------------------------------------------------------


def _binds(bodies: tuple[Term, ...]) -> bool:
    return any(term.op in BINDERS or term.op == "scan" for term in terms.walk(*bodies))


@lru_cache(maxsize=4096)
def _flat_estimate(bodies: tuple[Term, ...], machine: Machine) -> Estimate:
    flat = flat_work(bodies)
    arrays, threads = (*flat.nest.operands, *flat.nest.results), flat.blocks * flat.threads
    first = work.count(arrays, flat.outer, float(threads), flat.along)
    done = work.count(arrays, flat.body, float(flat.size), flat.along)
    done.add(first)
    waves = work.waves(flat.blocks, flat.threads, machine)
    serial = waves * (work.WAIT_S + work.rounds_s(done.steps + first.steps, flat.rounds))
    return work.seconds(done, threads, serial, machine)


@lru_cache(maxsize=4096)
def _best_rows(bodies: tuple[Term, ...], machine: Machine) -> tuple[Estimate, Rows] | None:
    ways = plans(bodies) if _binds(bodies) else ()
    priced = [(_rows_estimate(bodies, rows, machine), rows) for rows in ways]
    return min(priced, key=lambda pair: pair[0].seconds, default=None)


def _rows_estimate(bodies: tuple[Term, ...], rows: Rows, machine: Machine) -> Estimate:
    arrays = (*rows.nest.operands, *rows.nest.results)
    registers = [row.array for row in rows.private]
    done = work.count(arrays, rows.block, float(rows.count), ROW if rows.columns else None, registers)
    loops = [s for s in rows.block if isinstance(s, Loop)]
    meets = sum(bool(sums_of(loop)) for loop in loops) * (rows.lanes > 1)
    meet_s = work.MEET_S if rows.meeting else work.SHUFFLES_S
    rounds = done.steps / rows.lanes
    at_once = rounds * (work.AT_ONCE if all(map(is_plain, loops)) else 1)
    waves = work.waves(rows.blocks, rows.threads, machine)
    waits = sum(any(load.array not in rows.held for load in loads_in([loop])) for loop in loops)
    serial = waves * (waits * work.WAIT_S + work.rounds_s(at_once, 1) + meets * meet_s)
    return work.seconds(done, rows.blocks * rows.threads, serial, machine)


def _product_estimate(found: Contraction, machine: Machine) -> Estimate:
    tile = choose_tile(found, machine)
    lines, columns = tile.blocks(found)
    bodies = found.bodies
    moved = sum(size_bytes(term) for term in (*bodies, *program.operands_of(*bodies)))
    left = found.rows * columns * _units(found.left.element)
    right = found.columns * lines * _units(found.right.element)
    size = float(shapes.size(bodies[0].shape))
    loaded = found.batches * found.depth * found.itemsize * (found.rows * columns + found.columns * lines)
    after = sum(_units(body.args[0], found.product) for body in bodies) * size
    units = found.batches * found.depth * float(left + right) + after
    bandwidth = machine.memory_bytes_per_s if moved > machine.l3_bytes / 2 else machine.l3_bytes_per_s
    busiest = max(tile.seconds(found, machine), moved / bandwidth, loaded / machine.l3_bytes_per_s)
    taken = machine.launch_s + busiest + units / machine.scalar_per_s
    return Estimate(taken, found.flops + units, moved)


def _tensor_estimate(found: Contraction, machine: Machine) -> Estimate:
    evaluated = evaluated_sides(found)
    tile = choose_tensor_tile(found, machine, evaluated)
    lines, columns = tile.blocks(found)
    moved = sum(size_bytes(term) for term in (*found.bodies, *program.operands_of(*found.bodies)))
    after = sum(_units(body.args[0], found.product) for body in found.bodies) * shapes.size(found.bodies[0].shape)
    units = float(after)
    for side in evaluated:
        times = found.rows * columns if side is found.left else found.columns * lines
        units += found.batches * found.depth * times * _units(side.element)
    seconds = max(tile.seconds(found, machine, evaluated), machine.transfer_s(moved))
    return Estimate(machine.launch_s + seconds + units / machine.scalar_per_s, found.flops + units, moved)


def _units(element: Term, known: Term | None = None) -> float:
    """Return what evaluating an element once takes, with `known` given."""
    own = (term for term in terms.walk(element) if term is not known and term.sort == "element")
    below = set(terms.walk(known)) if known is not None else set[Term]()
    return sum(registry.get(term.op, "element").cost for term in own if term not in below)
