"""Squares of outputs for each block, where operands run along another axis than the last: transposes.

What such an operand gives to a square is loaded along the operand's axis, and read from shared memory along the last:

    out[a*n + b] = x[b*m + a]   ->   for h in range(4):
                                         line = h*8 + down
                                         tile0[line*33 + across] = x[(first_b + line)*m + first_a + across]
                                     for h in range(4):
                                         line = h*8 + down
                                         out[(first_a + line)*n + first_b + across] = tile0[across*33 + line]

The pitch of 33 keeps the threads of a warp apart in both. Indices beyond the last are the last once more. Operands
beyond those whose tiles fit into shared memory are loaded as they are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod

from frittata.egraph import dtypes, shapes, terms
from frittata.egraph.indexing import Affine, var
from frittata.egraph.terms import Term
from frittata.kernels import source, spelling
from frittata.kernels.contractions import BINDERS, loads_of, split_index
from frittata.kernels.cuda.kernel import SHARED_BYTES, CudaKernel, ceil_div, cuda_kernel
from frittata.kernels.cuda.unroll import UNROLLED, apart, unwrapped
from frittata.kernels.cuda.writing import name_quotients, numbers_of_block, spell_out, writer_for
from frittata.kernels.loops import (
    Array,
    Expression,
    Load,
    Loop,
    Nest,
    Statement,
    Store,
    map_values,
    parts,
    statements,
    substitute_indices,
    values_of,
)
from frittata.kernels.lower import Around, lower

SIDE = 32
ACROSS = "across"
DOWN = "down"
LINE = "m"
"""The line of a square, before it is split among rounds and threads."""
_PITCH = SIDE + 1


@dataclass(frozen=True)
class Squares:
    """Squares along `axis` and the last one; `lines` lines of a square are under way at once."""

    shape: tuple[int, ...]
    axis: int
    lines: int = 8

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return SIDE * self.lines

    @property
    def rounds(self) -> int:
        """The outputs of a thread."""
        return SIDE // self.lines

    @property
    def radices(self) -> tuple[int, int, int]:
        """How many squares there are: over all other axes, along the axis, and along the last."""
        shape = self.shape
        down, across = ceil_div(shape[self.axis], SIDE), ceil_div(shape[-1], SIDE)
        return prod(shape) // (shape[self.axis] * shape[-1]), down, across

    @property
    def line(self) -> Affine:
        """The line of a square that a thread works on."""
        return var(UNROLLED, self.rounds) * self.lines + var(DOWN, self.lines)

    def place(self) -> tuple[dict[str, int], dict[int, Affine]]:
        """Return the extents of variables, and the index of an output in terms of them."""
        counted = [n for n, radix in enumerate(self.radices) if radix > 1]
        numbers = [var(f"block{counted.index(n)}" if n in counted else "", r) for n, r in enumerate(self.radices)]
        others, down, across = numbers
        axes = {axis: self.shape[axis] for axis in range(-len(self.shape), -1) if axis != self.axis}
        index = {axis: at.substitute({"": others}) for axis, at in split_index("", axes).items()}
        index[self.axis] = (down * SIDE + var(LINE, SIDE)).clamped(self.shape[self.axis])
        index[-1] = (across * SIDE + var(ACROSS, SIDE)).clamped(self.shape[-1])
        extents = {f"block{number}": self.radices[n] for number, n in enumerate(counted)}
        return {**extents, ACROSS: SIDE, LINE: SIDE}, index


@lru_cache(maxsize=1024)
def squares(bodies: tuple[Term, ...]) -> Squares | None:
    """Return the squares in which to compute bodies, if any operand of theirs runs along another axis than the last."""
    shape = shapes.concrete(bodies[0].shape)
    if len(shape) < 2 or shape[-1] < SIDE or any(t.op in (*BINDERS, "scan", "at") for t in terms.walk(*bodies)):
        return None
    index = {axis: var(axis, shape[axis]) for axis in range(-len(shape), 0)}
    found: Counter[int] = Counter()
    for _, offset in loads_of(*(body.args[0] for body in bodies), index=index):
        if offset is not None:
            found.update(axis for axis in range(-len(shape), -1) if shape[axis] >= SIDE and _crosses(offset, -1, axis))
    return Squares(shape, found.most_common(1)[0][0]) if found else None


def _crosses(offset: Affine, last: int | str, axis: int | str) -> bool:
    """Whether neighbours in memory are neighbours along `axis`, not along the last; at the first places at least."""
    start, along_last, along_axis = (offset.evaluate(lambda key, at=at: int(key == at)) for at in (None, last, axis))
    return along_last - start not in (0, 1) and along_axis - start == 1


@dataclass(frozen=True, eq=False)
class Tiled:
    """What a thread does once; stores to tiles for its place in a square; and does then for that place."""

    nest: Nest
    outer: list[Statement]
    fill: list[Statement]
    body: list[Statement]
    tiles: list[Array]


def tiled(bodies: tuple[Term, ...], found: Squares) -> Tiled:
    """Lower bodies to a square, with tiles for what crosses."""
    extents, index = found.place()
    nest = lower(bodies, Around(extents, index, 0))
    outer, body = unwrapped(nest.body, extents)
    loads = dict.fromkeys(
        part
        for s in statements(body)
        for value in values_of(s)
        for part in parts(value)
        if isinstance(part, Load) and part.offset.variables() <= set(extents) and _crosses(part.offset, ACROSS, LINE)
    )
    ends = accumulate(SIDE * _PITCH * dtypes.itemsize(load.dtype) for load in loads)
    fitting = [load for load, end in zip(loads, ends, strict=True) if end <= SHARED_BYTES]
    tile_by_load = {load: f"tile{n}" for n, load in enumerate(fitting)}
    line, across = var(LINE, SIDE), var(ACROSS, SIDE)

    def change(value: Expression) -> Expression:
        if isinstance(value, Load) and value in tile_by_load:
            return Load(tile_by_load[value], across * _PITCH + line, value.dtype)
        return value

    map_values(body, change)
    fill: list[Statement] = []
    for load, tile in tile_by_load.items():
        there = load.offset.substitute({LINE: across, ACROSS: line})
        fill.append(Store(tile, line * _PITCH + across, Load(load.array, there, load.dtype)))
    tiles = [Array(tile, load.dtype, SIDE * _PITCH) for load, tile in tile_by_load.items()]
    return Tiled(nest, outer, fill, body, tiles)


def write_tiled(name: str, bodies: tuple[Term, ...], found: Squares) -> CudaKernel:
    """Write the kernel."""
    work = tiled(bodies, found)
    for block in (work.outer, work.fill, work.body):
        spell_out(block)
        substitute_indices(block, {LINE: found.line})
    fill = Loop(UNROLLED, found.rounds, work.fill)
    names = [name for name in (*found.place()[0], DOWN) if name != LINE]
    every = name_quotients([*work.outer, fill, *apart(work.body, found.rounds, work.nest.results)], names)
    writer = writer_for(bodies, [UNROLLED])
    met = next(n for n, statement in enumerate(every) if statement is fill) + 1
    lines = [
        *(f"{tile.name} = cuda.shared.array({tile.size}, {spelling.memory_dtype(tile.dtype)})" for tile in work.tiles),
        "thread = cuda.threadIdx.x",
        f"{ACROSS} = thread % {SIDE}",
        f"{DOWN} = thread // {SIDE}",
        *numbers_of_block([radix for radix in found.radices if radix > 1]),
        *writer.write(every[:met], 0),
        "cuda.syncthreads()",
        *writer.write(every[met:], 0),
    ]
    words, indented = work.nest.status_words, [source.INDENT + line for line in lines]
    return cuda_kernel(name, bodies, prod(found.radices), found.threads, indented, status_words=words)
