"""Products: tiles of both sides in shared memory, tiles of the result in registers, point-wise work before and after.

A side is evaluated while its tile is loaded, whatever it is: a view, a convolution's padded windows, an activation.
Indices beyond the last are the last once more, and what lies beyond the depth is zero; what lies beyond the result is
not stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from frittata.egraph import shapes
from frittata.egraph.terms import Scalar
from frittata.kernels import source, spelling
from frittata.kernels.contractions import Contraction, Side, loads_of
from frittata.kernels.cuda.kernel import CudaKernel, cuda_kernel
from frittata.kernels.cuda.tiles import DEPTH, Tile
from frittata.kernels.cuda.writing import INDEX_LIMIT, Writer, name_quotients, spell_out, unknown
from frittata.kernels.loops import Apply, Constant, Local, Statement, Store
from frittata.kernels.lower import array_names, lower_block, result_names

_INDICES = ("g", "i", "j", "k")


def write_product(name: str, work: Contraction, tile: Tile) -> CudaKernel:
    """Write the kernel."""
    return _ProductWriter(work, tile).kernel(name)


class _ProductWriter:
    def __init__(self, work: Contraction, tile: Tile) -> None:
        self._work, self._tile = work, tile
        self._names = array_names(work.bodies)
        sizes = [shapes.size(term.shape) for term in (*self._names, *work.bodies)]
        self._writer = Writer(wide=max(sizes) >= INDEX_LIMIT)
        self._zero = spelling.constant(Scalar.of(0, work.dtype))

    def kernel(self, name: str) -> CudaKernel:
        work, tile = self._work, self._tile
        lines, columns = tile.blocks(work)
        blocks = work.batches * lines * columns
        batches = f"{work.batches} x " if work.batches > 1 else ""
        notes = [
            f"{batches}({work.rows}, {work.depth}) x ({work.depth}, {work.columns}):"
            f" a block computes {tile.rows} x {tile.columns}, a thread {tile.down} x {tile.across}"
        ]
        body = [*self._head(lines, columns), *self._sums(), *self._store()]
        text = [source.INDENT + line for line in body]
        return cuda_kernel(name, work.bodies, blocks, tile.threads, text, notes)

    def _head(self, lines: int, columns: int) -> Iterator[str]:
        tile, dtype = self._tile, spelling.memory_dtype(self._work.dtype)
        yield f"left = cuda.shared.array({DEPTH * self._pitch(self._work.left)}, {dtype})"
        yield f"right = cuda.shared.array({DEPTH * self._pitch(self._work.right)}, {dtype})"
        yield f"total = cuda.local.array({tile.down * tile.across}, {dtype})"
        yield "thread = cuda.threadIdx.x"
        yield f"down = thread // {tile.side}"
        yield f"across = thread % {tile.side}"
        yield "block = cuda.blockIdx.x"
        if self._work.batches > 1:
            yield f"g = block // {lines * columns}"
        yield f"first_i = block // {columns} % {lines} * {tile.rows}"
        yield f"first_j = block % {columns} * {tile.columns}"

    def _pitch(self, side: Side) -> int:
        """Return the distance of slices in shared memory: odd where threads that run along the depth fill them."""
        extent = self._tile.rows if side is self._work.left else self._tile.columns
        return extent + 1 if _runs_along_depth(side) else extent

    def _sums(self) -> Iterator[str]:
        tile, work = self._tile, self._work
        yield f"for h in range({tile.down * tile.across}):"
        yield f"    total[h] = {self._zero}"
        yield f"for first in range(0, {work.depth}, {DEPTH}):"
        for side, name, index, rows, extent in (
            (work.left, "left", "i", tile.rows, work.rows),
            (work.right, "right", "j", tile.columns, work.columns),
        ):
            yield f"    for h in range(thread, {rows * DEPTH}, {tile.threads}):"
            yield from (source.INDENT * 2 + line for line in self._load(side, name, index, rows, extent))
        yield "    cuda.syncthreads()"
        yield f"    for h in range({min(DEPTH, work.depth)}):"
        yield f"        for m in range({tile.down}):"
        yield f"            for n in range({tile.across}):"
        left = f"left[uint32(h*{self._pitch(work.left)} + m*{tile.side} + down)]"
        right = f"right[uint32(h*{self._pitch(work.right)} + n*{tile.side} + across)]"
        yield f"                total[m*{tile.across} + n] += {left} * {right}"
        yield "    cuda.syncthreads()"

    def _load(self, side: Side, name: str, index: str, rows: int, extent: int) -> Iterator[str]:
        """Fill one place of a tile, the h-th: neighbouring threads read along the depth if that is how memory runs."""
        work = self._work
        if _runs_along_depth(side):
            depth, at = f"h % {DEPTH}", f"h // {DEPTH}"
            yield f"m = {at}"
            yield f"n = {depth}"
        else:
            yield f"m = h % {rows}"
            yield f"n = h // {rows}"
        ragged = work.depth % DEPTH != 0
        yield f"k = min(first + n, {work.depth - 1})" if ragged else "k = first + n"
        yield f"{index} = min(first_{index} + m, {extent - 1})" if extent % rows else f"{index} = first_{index} + m"
        place = unknown("n") * self._pitch(side) + unknown("m")
        body = lower_block([(name, place, side.element, side.index)], [*_INDICES, "m", "n"], self._names, {})
        if ragged:
            yield f"inside = first + n < {work.depth}"
            (store,) = (s for s in body if isinstance(s, Store))
            zero = Constant(Scalar.of(0, work.dtype))
            store.value = Apply("where", (Local("inside", "bool"), store.value, zero), work.dtype)
        yield from self._lines(body)

    def _store(self) -> Iterator[str]:
        tile, work = self._tile, self._work
        results = zip(work.bodies, result_names(work.bodies), work.output_offsets, strict=True)
        stores = [(name, offset, body.args[0], work.place) for body, name, offset in results]
        body = lower_block(stores, _INDICES, self._names, {work.product: Local("product", work.dtype)})
        yield f"for m in range({tile.down}):"
        yield f"    for n in range({tile.across}):"
        yield f"        i = first_i + m*{tile.side} + down"
        yield f"        j = first_j + n*{tile.side} + across"
        yield f"        if i < {work.rows} and j < {work.columns}:"
        yield f"            product = total[m*{tile.across} + n]"
        yield from (source.INDENT * 3 + line for line in self._lines(body))

    def _lines(self, body: list[Statement]) -> list[str]:
        spell_out(body)
        return self._writer.write(name_quotients(body, (*_INDICES, "m", "n")), 0)


def _runs_along_depth(side: Side) -> bool:
    """Whether most loads of a side are consecutive along the depth."""
    offsets = [offset for _, offset in loads_of(side.element, index=side.index) if offset is not None]
    moving = [offset.factor_of("k") for offset in offsets if offset.factor_of("k") != 0]
    return bool(moving) and moving.count(1) * 2 > len(moving)
