"""Long rows in pieces: each chunk folds one and leaves the result; the chunk that ends last combines them, in order.

    chunk 0:  partial[0] = fold of x[0 : w]             the last one to end:
    chunk 1:  partial[1] = fold of x[w : 2*w]               out = partial[0] <fold> partial[1] <fold> ...

Which chunk ends last changes nothing: the pieces and their order depend on shapes only.
"""

from __future__ import annotations

from dataclasses import dataclass

from frittata.kernels import memory
from frittata.kernels.chunks import wanted_chunks
from frittata.kernels.lowered import aligned
from frittata.kernels.passes import Passes
from frittata.kernels.points import Point
from frittata.kernels.simd import I64, Builder, Lane, Value


@dataclass(frozen=True)
class Pieces:
    """`count` pieces of each row: `width` elements along the lanes, or as many steps of the outermost sequence loop."""

    count: int
    width: int
    along_lanes: bool
    stop: int
    """Where the last piece ends: at the last whole turn, or the last step."""


def choose_pieces(plan: Passes) -> Pieces | None:
    """Cut the rows of a plan if there are fewer of them than chunks are wanted, and one pass does all the folding."""
    frame = plan.frame
    turn = frame.lanes * (plan.vectors if frame.columns else plan.unroll(0))
    blocks = -(-frame.extent // turn) if frame.columns else 1
    wanted = wanted_chunks(plan.units)
    if not frame.is_reduced or len(plan.passes) > 1 or wanted <= frame.row_count * blocks:
        return None
    count, turns = -(-wanted // frame.row_count), frame.extent // turn
    if not frame.columns and turns >= 2 * count:
        return _pieces(turns, count, turn, along_lanes=True)
    return _pieces(frame.sequence[0].extent, count, 1, along_lanes=False) if frame.sequence else None


def _pieces(steps: int, count: int, step: int, *, along_lanes: bool) -> Pieces | None:
    width = -(-steps // count)
    pieces = Pieces(-(-steps // width), width * step, along_lanes, steps * step)
    return pieces if pieces.count > 1 else None


@dataclass(frozen=True, eq=False)
class Partials:
    """The memory in which chunks leave their folds, which begins at an int64 address: whole vectors of each fold."""

    plan: Passes
    address: Value

    @property
    def bytes_per_chunk(self) -> int:
        """What one chunk needs: whole cache lines."""
        return sum(map(self._bytes, self.plan.passes[0].folds))

    def pointer(self, builder: Builder, chunk: Value, number: int) -> Value:
        """Return where a chunk leaves fold `number` of the pass."""
        folds = self.plan.passes[0].folds
        start = builder.mul(chunk, I64(self.bytes_per_chunk))
        inner = sum(map(self._bytes, folds[:number]))
        address = builder.add(self.address, builder.add(start, I64(inner)))
        return memory.pointer_from_address(builder, Lane(folds[number].term.dtype), address)

    def _bytes(self, fold: Point) -> int:
        frame = self.plan.frame
        width = -(-frame.extent // frame.lanes) * frame.lanes if frame.columns else 1
        return aligned(width * Lane(fold.term.dtype).itemsize)
