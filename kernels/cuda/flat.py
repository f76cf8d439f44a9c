"""One thread for each output, or for a few of them that lie a block apart. Takes every body.

    out[i] = exp(x[i])   ->   first = block*1024 + thread
                              for h in range(4):
                                  value0[h] = exp(x[first + h*256])
                              for h in range(4):
                                  out[first + h*256] = value0[h]

Where whole blocks fit into the axes of the output, indices are sums of the block's, the round's and the thread's, and
the quotients that are left are those of the block's number. Of outputs along which a scan runs, one thread computes all.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from frittata.egraph import dtypes, program, shapes
from frittata.egraph.errors import LoweringError
from frittata.egraph.indexing import Affine, var
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.contractions import split_index
from frittata.kernels.cuda.kernel import (
    ENOUGH_THREADS,
    MOST_THREADS,
    MULTIPROCESSORS,
    CudaKernel,
    ceil_div,
    cuda_kernel,
    power_of_two,
)
from frittata.kernels.cuda.unroll import UNROLLED, apart, in_rounds
from frittata.kernels.cuda.warps import WARP
from frittata.kernels.cuda.writing import Writer, name_quotients, spell_out, unknown, writer_for
from frittata.kernels.loops import AssignIndex, Lookup, Loop, Nest, Statement, statements, substitute_indices
from frittata.kernels.lower import Around, lower
from frittata.kernels.scans import scanned_axes

OUTPUT = "i"
THREAD = "thread"
_INNER = "j"
_MOST_LOCAL_BYTES = 64 << 10
"""Of memory that a thread has for itself; the device sets it aside for all threads that it can hold."""
MOST_ROUNDS = 4
"""The outputs of a thread, at most."""
_MOST_VALUES = 32
"""What the rounds of a thread may load, together."""


@dataclass(frozen=True)
class Flat:
    """How outputs are split: `rounds` for each of `threads` in a block; `radices` of the block's number, if it fits."""

    size: int
    threads: int
    rounds: int
    radices: tuple[int, ...] | None

    @property
    def span(self) -> int:
        """The outputs of a block."""
        return self.threads * self.rounds

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return ceil_div(self.size, self.span)

    def place(self) -> tuple[dict[str, int], Affine]:
        """Return the extents of the variables of an output's number, and that number."""
        if self.radices is None:
            return {OUTPUT: self.size}, var(OUTPUT, self.size)
        extents = {f"block{n}": radix for n, radix in enumerate(self.radices)}
        at = Affine()
        for name, radix in extents.items():
            at = at * radix + var(name, radix)
        at = at * self.span + var(UNROLLED, self.rounds) * self.threads + var(THREAD, self.threads)
        # what does not depend on the round is computed once for all of them
        return {**extents, THREAD: self.threads, UNROLLED: self.rounds}, at


@lru_cache(maxsize=1024)
def flat_plan(bodies: tuple[Term, ...]) -> tuple[Flat, Nest]:
    """Return how outputs are split, and the nest over them. The nest is not to be changed."""
    axes, _ = _axes(bodies)
    operands = list(program.operands_of(*bodies))
    rounds = min(MOST_ROUNDS, _MOST_VALUES // max(1, len(operands)))
    while rounds > 1:
        flat = _split(axes, rounds)
        nest = _lowered(bodies, flat)
        if flat.blocks * flat.threads >= ENOUGH_THREADS and not _has_loops(flat, nest):
            return flat, nest
        rounds //= 2
    flat = _split(axes, 1)
    return flat, _lowered(bodies, flat)


def _axes(bodies: tuple[Term, ...]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the extents of the axes that threads number, and of those along which scans run."""
    shape = shapes.concrete(bodies[0].shape)
    scanned = scanned_axes(*bodies)
    axes = {axis: shape[axis] for axis in range(-len(shape), 0)}
    threads = {axis: extent for axis, extent in axes.items() if axis not in scanned}
    return threads, {axis: extent for axis, extent in axes.items() if axis in scanned}


def _split(axes: dict[int, int], rounds: int) -> Flat:
    """Choose a number of threads by which blocks fit into the axes; full blocks otherwise, and one that is not."""
    size = prod(axes.values())
    if size <= WARP:
        return Flat(size, size, 1, ())
    most = power_of_two(max(WARP, ceil_div(size, MULTIPROCESSORS)), MOST_THREADS)
    multiples = sorted(range(WARP, most + 1, WARP), key=lambda threads: (threads < most // 2, -threads))
    fitting = [threads for threads in multiples if size % (threads * rounds) == 0]
    row = next((axes[axis] for axis in sorted(axes, reverse=True) if axes[axis] > 1), 1)
    aligned = [t for t in fitting if row % (t * rounds) == 0 or (t * rounds) % row == 0]
    if not fitting:
        return Flat(size, most, rounds, None)
    threads = (aligned or fitting)[0]
    radices: list[int] = []
    left = size // (threads * rounds)
    inner = 1
    for axis in sorted(axes, reverse=True):
        inner *= axes[axis]
        blocks = inner // (threads * rounds)
        if inner % (threads * rounds) == 0 and 1 < blocks < left:
            radices.append(blocks // prod(radices))
    radices.append(left // prod(radices))
    return Flat(size, threads, rounds, tuple(reversed([radix for radix in radices if radix > 1])))


def _lowered(bodies: tuple[Term, ...], flat: Flat) -> Nest:
    axes, scanned = _axes(bodies)
    extents, at = flat.place()
    extents = {**extents, _INNER: prod(scanned.values())}
    index = {**split_index(OUTPUT, axes), **split_index(_INNER, scanned)}
    index = {axis: place.substitute({OUTPUT: at}) for axis, place in index.items()}
    return lower(bodies, Around({name: extent for name, extent in extents.items() if extent > 1}, index, 0))


def blocks_of(flat: Flat, nest: Nest) -> tuple[list[Statement], list[Statement]]:
    """Return what a thread does once, and what it does for each of its outputs."""
    outer: list[Statement] = []
    body = nest.body
    for name, extent in flat.place()[0].items():
        if extent > 1:
            (loop,) = (s for s in body if isinstance(s, Loop) and s.var == name)
            outer += [s for s in body if s is not loop]
            body = loop.body
    return outer, body


def _has_loops(flat: Flat, nest: Nest) -> bool:
    outer, body = blocks_of(flat, nest)
    return any(isinstance(s, Loop) for s in statements([*outer, *body]))


def flat_threads(bodies: tuple[Term, ...]) -> int:
    """Return how many outputs, or rows of them, there are for threads."""
    return prod(_axes(bodies)[0].values())


def write_flat(name: str, bodies: tuple[Term, ...]) -> CudaKernel:
    """Write the kernel.

    Raises: LoweringError if a thread would need too much memory for itself.
    """
    flat, nest = flat_plan(bodies)
    nest = deepcopy(nest)
    words = nest.status_words
    local = sum(row.extent * dtypes.itemsize(row.dtype) for row in nest.rows())
    if local > _MOST_LOCAL_BYTES:
        raise LoweringError(f"kernel {name} needs {local} bytes for each thread", do='optimize for target="cpu"')
    spell_out(nest.body)
    writer = writer_for((*nest.operands, *nest.results), [UNROLLED])
    lines = [source.INDENT + line for line in (*_head(flat, writer), *_body(flat, nest, writer))]
    return cuda_kernel(name, bodies, flat.blocks, flat.threads, lines, status_words=words)


def _head(flat: Flat, writer: Writer) -> Iterator[str]:
    if flat.radices is None:
        first = OUTPUT if flat.rounds == 1 else "first"
        yield f"{first} = cuda.blockIdx.x*{flat.span} + cuda.threadIdx.x"
        return
    yield f"{THREAD} = cuda.threadIdx.x"
    if len(flat.radices) < 2:
        yield from (f"block{n} = cuda.blockIdx.x" for n in range(len(flat.radices)))
        return
    inner = flat.blocks
    block = "uint32(cuda.blockIdx.x)"
    for n, radix in enumerate(flat.radices):
        inner //= radix
        number = block if inner == 1 else f"{block} // uint32({inner})"
        yield f"block{n} = int32({number}{f' % uint32({radix})' if n else ''})"


def _body(flat: Flat, nest: Nest, writer: Writer) -> Iterator[str]:
    outer, body = blocks_of(flat, nest)
    if flat.radices is not None:
        rounds = apart(body, flat.rounds, nest.results) if flat.rounds > 1 else in_rounds(body, nest.results)
        yield from writer.write(name_quotients([*outer, *rounds], flat.place()[0]), 0)
        return
    yield from writer.write(name_quotients(outer, ()), 0)
    known = [s.name for s in outer if isinstance(s, AssignIndex | Lookup)]
    if flat.rounds == 1:
        yield f"if {OUTPUT} < {flat.size}:"
        body = in_rounds(body, nest.results)
    else:
        yield f"if cuda.blockIdx.x < {flat.size // flat.span}:"
        whole = deepcopy(body)
        substitute_indices(whole, {OUTPUT: unknown("first") + var(UNROLLED, flat.rounds) * flat.threads})
        yield from writer.write(name_quotients(list(apart(whole, flat.rounds, nest.results)), ["first", *known]), 1)
        yield f"{source.INDENT}return"
        yield f"for {OUTPUT} in range(first, {flat.size}, {flat.threads}):"
    yield from writer.write(name_quotients(body, [OUTPUT, *known]), 1)
