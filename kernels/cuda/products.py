"""Products: tiles of both sides in shared memory, tiles of the result in registers, point-wise work before and after.

Each side lies in shared memory twice: while the sums of one slice of the depth run, every thread loads its part of the
next one, so that threads meet once a slice. A side is evaluated while it is loaded, whatever it is: a view, a
convolution's padded windows, an activation. Indices beyond the last are the last once more, and what lies beyond the
depth is zero; what lies beyond the result is not stored. Each sum runs along the depth in order; where teams of threads
share the depth, each team's does, and theirs are added in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from frittata.egraph import terms
from frittata.egraph.indexing import Affine, var
from frittata.egraph.ops import registry
from frittata.egraph.terms import Scalar, Term
from frittata.kernels import source, spelling
from frittata.kernels.contractions import Contraction, Index, Side
from frittata.kernels.cuda import neighbours
from frittata.kernels.cuda.guarded import unclamp
from frittata.kernels.cuda.kernel import CudaKernel, cuda_kernel
from frittata.kernels.cuda.quads import QUAD
from frittata.kernels.cuda.sides import Filling
from frittata.kernels.cuda.tiles import Tile
from frittata.kernels.cuda.writing import name_quotients, spell_out, writer_for
from frittata.kernels.loops import Assign, Local, Loop, Statement, Store, reads
from frittata.kernels.lower import array_names, lower_block, result_names
from frittata.kernels.stores import stored_at

_PATCH = (4, 8)
"""The threads of a warp, down and across: so they read the fewest words of shared memory."""
_WRITTEN_OUT = 8
"""Steps along the depth that are written out, so that reads of shared memory run ahead of sums."""


def joined_batches(work: Contraction) -> Contraction:
    """Return the same with the columns of all batches as columns of one, if the left side is the same in all."""
    if work.batches == 1 or work.left.mentions("g"):
        return work
    columns = work.batches * work.columns
    whole = var("j", columns)
    by_key: dict[int | str, Affine] = {"g": whole // work.columns, "j": whole % work.columns}

    def joined(index: Index) -> Index:
        return {axis: at.substitute(by_key) for axis, at in index.items()}

    right = Side(work.right.element, joined(work.right.index))
    return replace(work, batches=1, columns=columns, right=right, place=joined(work.place))


def write_product(name: str, work: Contraction, tile: Tile) -> CudaKernel:
    """Write the kernel."""
    return _ProductWriter(work, tile).kernel(name)


class _ProductWriter:
    def __init__(self, work: Contraction, tile: Tile) -> None:
        self._work, self._tile = work, tile
        self._sides = Filling("left", work, tile), Filling("right", work, tile)
        self._names = array_names(work.bodies)
        self._writer = writer_for(work.bodies)
        results = zip(work.bodies, result_names(work.bodies), strict=True)
        arrays = [*self._names.items(), *results]
        self._floats = {array for term, array in arrays if term.dtype in ("f32", "f64")}

    def kernel(self, name: str) -> CudaKernel:
        work, tile = self._work, self._tile
        lines, columns = tile.blocks(work)
        batches = f"{work.batches} x " if work.batches > 1 else ""
        notes = [
            f"{batches}({work.rows}, {work.depth}) x ({work.depth}, {work.columns}):"
            f" a block computes {tile.rows} x {tile.columns}, a thread {tile.down} x {tile.across}"
            + (f", {tile.teams} teams of threads share the depth" if tile.teams > 1 else "")
        ]
        stored = ["if team == 0:", *_deeper(self._store(), 1)] if tile.teams > 1 else self._store()
        body = [*self._head(lines, columns), *self._loop(), *self._meet(), *stored]
        text = [source.INDENT + line for line in body]
        blocks, resident = work.batches * lines * columns, tile.resident(work)
        return cuda_kernel(name, work.bodies, blocks, tile.threads, text, notes, resident=resident)

    def _head(self, lines: int, columns: int) -> Iterator[str]:
        tile, dtype = self._tile, spelling.memory_dtype(self._work.dtype)
        for side in self._sides:
            yield f"{side.name} = cuda.shared.array({side.shared_size}, {dtype}, alignment=16)"
        yield f"lefts = cuda.local.array({tile.down}, {dtype})"
        yield f"rights = cuda.local.array({tile.across}, {dtype})"
        yield f"total = cuda.local.array({tile.down * tile.across}, {dtype})"
        yield "thread = cuda.threadIdx.x" + (f" % {tile.team}" if tile.teams > 1 else "")
        if tile.teams > 1:
            yield f"team = cuda.threadIdx.x // {tile.team}"
        down, across = _PATCH
        if tile.lines % down == 0 and tile.lanes % across == 0:
            patches = tile.lanes // across
            yield f"down = thread // {down * across * patches} * {down} + thread % {down * across} // {across}"
            yield f"across = thread // {down * across} % {patches} * {across} + thread % {across}"
        else:
            yield f"down = thread // {tile.lanes}"
            yield f"across = thread % {tile.lanes}"
        yield "block = cuda.blockIdx.x"
        if self._work.batches > 1:
            yield f"g = block // {lines * columns}"
        yield f"first_i = block // {columns} % {lines}"
        yield f"first_j = block % {columns}"
        for side in self._sides:
            yield from side.head()
        zero = spelling.constant(Scalar.of(0, self._work.dtype))
        yield f"for h in range({tile.down * tile.across}):"
        yield f"    total[h] = {zero}"

    # ---- sums --------------------------------------------------------------------------------------------------------

    def _loop(self) -> Iterator[str]:
        """Load a slice, add up the one before, and put what was loaded into the other half of shared memory."""
        slices = self._tile.slices(self._work)
        stores = [store for side in self._sides for store in side.stores()]
        known = ["g", *(variable for side in self._sides for variable in side.variables)]
        block = unclamp(lower_block(stores, known, self._names, {}))
        neighbours.reduce_loads(block)
        spell_out(block)
        digits = [side.digits(block) for side in self._sides]
        for there in filter(None, digits):
            yield from there.head()
        if any(digits):
            yield "cuda.syncthreads()"
        read = {name for statement in block for name in reads(statement)}
        before, loads = self._split(block, known, slices)
        yield from before
        yield f"for step in range(int32({slices + 1})):"
        yield "    half = step & 1"
        yield f"    if step < {slices}:"
        for side, there in zip(self._sides, digits, strict=True):
            yield from _deeper(side.depths(read, there), 2)
        yield from _deeper(loads, 2)
        for side, there in zip(self._sides, digits, strict=True):
            yield from _deeper(side.limits(), 2)
            yield from _deeper(there.fill("(step + 1)") if there else (), 2)
        yield "    if step > 0:"
        yield from _deeper(self._sums(), 2)
        yield f"    if step < {slices}:"
        for side in self._sides:
            yield from _deeper(side.shares(), 2)
        yield "    cuda.syncthreads()"

    def _split(self, block: list[Statement], known: list[str], slices: int) -> tuple[list[str], list[str]]:
        """Return what is the same for all slices, and what loads one."""
        named = name_quotients([Loop("step", slices, block)], known)
        (loop,) = (s for s in named if isinstance(s, Loop))
        values: list[Statement] = [Assign(s.array, s.value) if isinstance(s, Store) else s for s in loop.body]
        before = [s for s in named if s is not loop]
        return self._writer.write(before, 0), list(neighbours.write(values, self._writer, self._floats))

    def _sums(self) -> Iterator[str]:
        tile, (left, right) = self._tile, self._sides
        written = min(_WRITTEN_OUT, tile.depth)
        yield f"for h in range(0, {tile.depth}, {written}):"
        for side, own in ((left, "down"), (right, "across")):
            at = f"(1 - half)*{side.size} + h*{side.pitch} + {own}*{QUAD}{tile.of_team(side.size)}"
            yield f"    {side.name}_from = uint32({at})"
        for h in range(written):
            for side, name, others, count in (
                (left, "lefts", tile.lines, tile.down),
                (right, "rights", tile.lanes, tile.across),
            ):
                for quad in range(count // QUAD):
                    names = ", ".join(f"{name}[{quad * QUAD + e}]" for e in range(QUAD))
                    further = h * side.pitch + quad * others * QUAD
                    yield f"    {names} = shared_quad({side.name}, {side.name}_from, {further})"
            yield f"    for m in range({tile.down}):"
            yield f"        for n in range({tile.across}):"
            yield f"            total[m*{tile.across} + n] += lefts[m] * rights[n]"

    def _meet(self) -> Iterator[str]:
        """Add the sums of other teams to those of the first, one team after the other, by way of shared memory."""
        tile, (left, _) = self._tile, self._sides
        sums = tile.down * tile.across
        if tile.teams == 1:
            return
        assert sums * tile.team <= left.shared_size
        yield f"for other in range(1, {tile.teams}):"
        yield "    if team == other:"
        for first in range(0, sums, QUAD):
            values = ", ".join(f"total[{first + e}]" for e in range(QUAD))
            yield f"        put_quad(left, uint32(thread*{QUAD}), {first * tile.team}, ({values}))"
        yield "    cuda.syncthreads()"
        yield "    if team == 0:"
        for first in range(0, sums, QUAD):
            yield f"        others = shared_quad(left, uint32(thread*{QUAD}), {first * tile.team})"
            yield from (f"        total[{first + e}] += others[{e}]" for e in range(QUAD))
        yield "    cuda.syncthreads()"

    # ---- the result --------------------------------------------------------------------------------------------------

    def _store(self) -> Iterator[str]:
        """Store rows one after the other; sums move up, so that each statement knows the registers it reads."""
        tile, work = self._tile, self._work
        width = QUAD if work.columns % QUAD == 0 else 1
        yield f"for m in range({tile.down}):"
        yield f"    i = first_i*{tile.rows} + m // {QUAD} * {tile.lines * QUAD} + m % {QUAD} + down*{QUAD}"
        results = list(self._results(width))
        for n in range(0, tile.across, width):
            quad = f"first_j*{tile.columns // QUAD} + across + {n // QUAD * tile.lanes}"
            yield f"    j = {quad}" if width == QUAD else f"    j = ({quad})*{QUAD} + {n % QUAD}"
            yield f"    if i < {work.rows} and j < {work.columns // width}:"
            for e in range(width):
                yield f"        sum{e} = total[{n + e}]"
            yield from _deeper(results, 2)
        yield f"    for h in range({(tile.down - 1) * tile.across}):"
        yield f"        total[h] = total[h + {tile.across}]"

    def _results(self, width: int) -> Iterator[str]:
        work = self._work
        sums: dict[Term, Local] = {}
        stores: list[tuple[str, Affine, Term, Index]] = []
        for e in range(width):
            term = _named(work.product, f"sum{e}")
            sums[term] = Local(f"sum{e}", work.dtype)
            place = neighbours.at_places(work.place, {"j": var("j", work.columns // width) * width + e})
            for body, name in zip(work.bodies, result_names(work.bodies), strict=True):
                element = terms.substitute(body.args[0], {work.product: term})
                stores.append((name, stored_at(body, place), element, place))
        body = unclamp(lower_block(stores, ("g", "i", "j"), self._names, sums))
        neighbours.reduce_loads(body)
        spell_out(body)
        yield from neighbours.write(name_quotients(body, ("g", "i", "j")), self._writer, self._floats)


def _named(product: Term, name: str) -> Term:
    """Return an element of the same type that stands for one value of a product."""
    leaf = registry.tensor("input", name=name, shape=product.shape, dtype=product.dtype)
    return registry.element("load", leaf)


def _deeper(lines: Iterable[str], levels: int) -> Iterator[str]:
    return (source.INDENT * levels + line for line in lines)
