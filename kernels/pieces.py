"""Long rows in pieces: each chunk folds one and leaves the result; the chunk that ends last combines them, in order.

    chunk 0:  partial[0] = fold of x[0 : w]             the last one to end:
    chunk 1:  partial[1] = fold of x[w : 2*w]               out = partial[0] <fold> partial[1] <fold> ...

Which chunk ends last changes nothing: the pieces and their order depend on shapes only. Folds down many columns are cut
into slices of them, whose rows are read as they lie in memory, with accumulators in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from frittata.kernels import memory
from frittata.kernels.chunks import wanted_chunks
from frittata.kernels.frames import Frame
from frittata.kernels.lowered import aligned
from frittata.kernels.passes import Passes
from frittata.kernels.points import Point
from frittata.kernels.simd import I64, Builder, Lane, Value

_SLICE_BYTES = 1024
"""The least that is read in one go of a long column's neighbours: enough lines for the processor to fetch ahead."""
_WIDE_BYTES = 4096
"""The wanted width of a slice, a page, if there are so many: within a page the processor fetches ahead."""
_LEAST_SLICES = 8
STEPS = 4
"""How many steps of the sequence are folded at a time into accumulators that lie in memory.

Where rows are a power of two apart, their lines and those that are fetched ahead share one set of a first-level cache,
which holds eight to twelve.
"""


@dataclass(frozen=True)
class Pieces:
    """How rows fall into chunks: `count` pieces along the lanes or the outermost sequence loop, or slices of columns.

    A piece is `width` elements, the last of them up to the last whole turn, `stop`, and the rest; or `width` steps of
    `stop`. Each of `slices` is `slice_width` columns. Only one of `count` and `slices` is more than 1.
    """

    count: int
    width: int
    stop: int
    along_lanes: bool = False
    slices: int = 1
    slice_width: int = 0

    def is_narrow(self, item_bytes: int) -> bool:
        """Whether slices, of elements of a size, end before the processor fetches ahead by itself."""
        return self.slice_width * item_bytes <= _WIDE_BYTES

    def chunks(self, frame: Frame) -> int:
        """Return into how many chunks all rows fall."""
        return frame.row_count * self.count * self.slices


def choose_pieces(plan: Passes) -> Pieces | None:
    """Cut rows of which one pass does all the folding; None if whole rows are chunks enough, or columns are few."""
    frame = plan.frame
    if not frame.is_reduced or len(plan.passes) > 1 or frame.short:
        return None
    wanted = wanted_chunks(plan.units)
    if frame.columns:
        return _cut_columns(plan, wanted)
    count, turn = -(-wanted // frame.row_count), frame.lanes * plan.vectors
    turns = frame.extent // turn
    if count == 1:
        return None
    if turns >= 2 * count:
        width = -(-turns // count)
        return Pieces(-(-turns // width), width * turn, turns * turn, along_lanes=True)
    return _cut_steps(frame, count) if frame.sequence else None


def _cut_columns(plan: Passes, wanted: int) -> Pieces | None:
    """Cut columns into slices that are read row by row, or their steps where even all columns are but a slice."""
    frame = plan.frame
    size = max(Lane(fold.term.dtype).itemsize for fold in plan.passes[0].folds)
    most = frame.extent * size // _SLICE_BYTES
    if most > 1 and frame.sequence[-1].extent >= STEPS:
        wide = max(frame.extent * size // _WIDE_BYTES, min(most, _LEAST_SLICES))
        slices = min(wide, max(1, -(-wanted // frame.row_count)))
        width = -(-frame.extent // (slices * frame.lanes)) * frame.lanes
        steps = frame.sequence[0].extent
        return Pieces(1, steps, steps, slices=-(-frame.extent // width), slice_width=width)
    count = -(-wanted // frame.row_count)
    blocks = -(-frame.extent // (frame.lanes * plan.vectors))
    return _cut_steps(frame, count) if count > blocks else None


def _cut_steps(frame: Frame, count: int) -> Pieces | None:
    steps = frame.sequence[0].extent
    width = -(-steps // count)
    pieces = Pieces(-(-steps // width), width, steps, slice_width=-(-frame.extent // frame.lanes) * frame.lanes)
    return pieces if pieces.count > 1 else None


@dataclass(frozen=True, eq=False)
class Partials:
    """The memory in which chunks leave their folds: for each of them whole vectors, in columns, or one element."""

    plan: Passes
    pieces: Pieces

    @property
    def bytes_per_chunk(self) -> int:
        """What one chunk needs: whole cache lines."""
        return sum(map(self._bytes, self.plan.passes[0].folds))

    def pointer(self, builder: Builder, address: Value, chunk: Value, number: int) -> Value:
        """Return where a chunk leaves fold `number` of the pass, in memory that begins at an int64 address."""
        folds = self.plan.passes[0].folds
        start = builder.mul(chunk, I64(self.bytes_per_chunk))
        inner = sum(map(self._bytes, folds[:number]))
        place = builder.add(address, builder.add(start, I64(inner)))
        return memory.pointer_from_address(builder, Lane(folds[number].term.dtype), place)

    def _bytes(self, fold: Point) -> int:
        width = self.pieces.slice_width if self.plan.frame.columns else 1
        return aligned(width * Lane(fold.term.dtype).itemsize)
