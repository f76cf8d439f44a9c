"""One thread for each output: a flat loop in steps of the whole grid. Takes every body.

Of outputs along which a scan runs, one thread computes all.
"""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from math import prod

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import LoweringError
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.contractions import split_index
from frittata.kernels.cuda.kernel import MOST_THREADS, MULTIPROCESSORS, CudaKernel, ceil_div, cuda_kernel, power_of_two
from frittata.kernels.cuda.writing import name_quotients, spell_out, writer_for
from frittata.kernels.loops import Loop, Nest, Statement
from frittata.kernels.lower import Around, lower
from frittata.kernels.scans import scanned_axes

OUTPUT = "i"
_INNER = "j"
_MOST_BLOCKS = 16 * MULTIPROCESSORS
_MOST_LOCAL_BYTES = 64 << 10
"""Of memory that a thread has for itself; the device sets it aside for all threads that it can hold."""


@lru_cache(maxsize=1024)
def flat_nest(bodies: tuple[Term, ...]) -> Nest:
    """Lower bodies to one loop over all outputs. Not to be changed."""
    threads, scanned = _axes(bodies)
    extents = {OUTPUT: prod(threads.values()), _INNER: prod(scanned.values())}
    index = {**split_index(OUTPUT, threads), **split_index(_INNER, scanned)}
    return lower(bodies, Around({name: extent for name, extent in extents.items() if extent > 1}, index, 0))


def _axes(bodies: tuple[Term, ...]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the extents of the axes that threads number, and of those along which scans run."""
    shape = shapes.concrete(bodies[0].shape)
    scanned = scanned_axes(*bodies)
    axes = {axis: shape[axis] for axis in range(-len(shape), 0)}
    threads = {axis: extent for axis, extent in axes.items() if axis not in scanned}
    return threads, {axis: extent for axis, extent in axes.items() if axis in scanned}


def flat_threads(bodies: tuple[Term, ...]) -> int:
    """Return how many outputs, or rows of them, there are for threads."""
    return prod(_axes(bodies)[0].values())


def flat_launch(bodies: tuple[Term, ...]) -> tuple[int, int]:
    """Return the numbers of blocks and threads."""
    wanted = flat_threads(bodies)
    threads = power_of_two(wanted, MOST_THREADS)
    return min(ceil_div(wanted, threads), _MOST_BLOCKS), threads


def write_flat(name: str, bodies: tuple[Term, ...]) -> CudaKernel:
    """Write the kernel.

    Raises: LoweringError if a thread would need too much memory for itself.
    """
    nest = deepcopy(flat_nest(bodies))
    words, blocks, threads = nest.status_words, *flat_launch(bodies)
    local = sum(row.extent * dtypes.itemsize(row.dtype) for row in nest.rows())
    if local > _MOST_LOCAL_BYTES:
        raise LoweringError(f"kernel {name} needs {local} bytes for each thread", do='optimize for target="cpu"')
    spell_out(nest.body)
    body = name_quotients(nest.body, ())
    writer = writer_for((*nest.operands, *nest.results))

    def special(statement: Statement) -> list[str] | None:
        if isinstance(statement, Loop) and statement.var == OUTPUT:
            return [f"for {statement.var} in range(cuda.grid(1), {statement.extent}, {blocks * threads}):"]
        return writer.lines(statement)

    return cuda_kernel(name, bodies, blocks, threads, list(source.write(body, special)), status_words=words)
