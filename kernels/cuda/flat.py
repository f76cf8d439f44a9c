"""One thread for each output, or for a few of them that lie a block apart. Takes every body.

    out[i] = exp(x[i])   ->   first = block*1024 + thread
                              for h in range(4):
                                  value0[h] = exp(x[first + h*256])
                              for h in range(4):
                                  out[first + h*256] = value0[h]

Where whole blocks fit into the axes of the output, indices are sums of the block's, the round's and the thread's, and
the quotients that are left are those of the block's number. Of outputs along which a scan runs, one thread computes
all. Transposes go by squares: kernels/cuda/tiled.py.
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
from frittata.kernels.cuda.tiled import ACROSS, SIDE, squares, tiled, write_tiled
from frittata.kernels.cuda.unroll import UNROLLED, apart, in_rounds, unwrapped
from frittata.kernels.cuda.warps import WARP
from frittata.kernels.cuda.writing import Writer, name_quotients, numbers_of_block, spell_out, writer_for
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


def _has_loops(flat: Flat, nest: Nest) -> bool:
    outer, body = unwrapped(nest.body, flat.place()[0])
    return any(isinstance(s, Loop) for s in statements([*outer, *body]))


@dataclass(frozen=True, eq=False)
class Work:
    """What the threads of a kernel do, for its price: once each, and for each of `size` outputs, `rounds` by each.

    Threads of a warp differ by one in the variable `along`.
    """

    nest: Nest
    outer: list[Statement]
    body: list[Statement]
    blocks: int
    threads: int
    rounds: int
    size: int
    along: str


def flat_work(bodies: tuple[Term, ...]) -> Work:
    """Return what the threads of a kernel do."""
    found = squares(bodies)
    if found is not None:
        work = tiled(bodies, found)
        blocks, size = prod(found.radices), prod(found.radices) * SIDE * SIDE
        body = [*work.fill, *work.body]
        return Work(work.nest, work.outer, body, blocks, found.threads, found.rounds, size, ACROSS)
    flat, nest = flat_plan(bodies)
    along = THREAD if flat.radices is not None else OUTPUT
    outer, body = unwrapped(nest.body, flat.place()[0])
    return Work(nest, outer, body, flat.blocks, flat.threads, flat.rounds, flat.size, along)


def write_flat(name: str, bodies: tuple[Term, ...]) -> CudaKernel:
    """Write the kernel.

    Raises: LoweringError if a thread would need too much memory for itself.
    """
    found = squares(bodies)
    if found is not None:
        return write_tiled(name, bodies, found)
    flat, nest = flat_plan(bodies)
    nest = deepcopy(nest)
    words = nest.status_words
    local = sum(row.extent * dtypes.itemsize(row.dtype) for row in nest.rows())
    if local > _MOST_LOCAL_BYTES:
        raise LoweringError(f"kernel {name} needs {local} bytes for each thread", do='optimize for target="cpu"')
    spell_out(nest.body)
    writer = writer_for(bodies, [UNROLLED])
    lines = [source.INDENT + line for line in (*_head(flat, writer), *_body(flat, nest, writer))]
    return cuda_kernel(name, bodies, flat.blocks, flat.threads, lines, status_words=words)


def _head(flat: Flat, writer: Writer) -> Iterator[str]:
    if flat.radices is None:
        first = OUTPUT if flat.rounds == 1 else "first"
        yield f"{first} = cuda.blockIdx.x*{flat.span} + cuda.threadIdx.x"
        return
    yield f"{THREAD} = cuda.threadIdx.x"
    yield from numbers_of_block(flat.radices)


def _body(flat: Flat, nest: Nest, writer: Writer) -> Iterator[str]:
    outer, body = unwrapped(nest.body, flat.place()[0])
    if flat.radices is not None:
        rounds = apart(body, flat.rounds, nest.results) if flat.rounds > 1 else in_rounds(body, nest.results)
        known = [name for name in flat.place()[0] if name != UNROLLED]
        yield from writer.write(name_quotients([*outer, *rounds], known), 0)
        return
    yield from writer.write(name_quotients(outer, ()), 0)
    known = [s.name for s in outer if isinstance(s, AssignIndex | Lookup)]
    if flat.rounds == 1:
        yield f"if {OUTPUT} < {flat.size}:"
        body = in_rounds(body, nest.results)
    else:
        yield f"if cuda.blockIdx.x < {flat.size // flat.span}:"
        whole = deepcopy(body)
        first = var("first", flat.size - (flat.rounds - 1) * flat.threads)
        substitute_indices(whole, {OUTPUT: first + var(UNROLLED, flat.rounds) * flat.threads})
        yield from writer.write(name_quotients(list(apart(whole, flat.rounds, nest.results)), ["first", *known]), 1)
        yield f"{source.INDENT}return"
        yield f"for {OUTPUT} in range(first, {flat.size}, {flat.threads}):"
    yield from writer.write(name_quotients(body, [OUTPUT, *known]), 1)
