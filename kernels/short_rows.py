"""Short rows side by side: a vector has one element of as many rows, and all elements of a row are there at once.

rows of three, four lanes:  x0 x3 x6 x9 | x1 x4 x7 x10 | x2 x5 x8 x11,  folded lane by lane
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from frittata.egraph.indexing import Affine
from frittata.kernels import memory, simd
from frittata.kernels.element_emitter import SIDE_BY_SIDE, ElementEmitter
from frittata.kernels.points import Point, reduction
from frittata.kernels.row_emitter import RowEmitter
from frittata.kernels.simd import I64, Value


class ShortRowEmitter(RowEmitter):
    """Emits at a builder's position what a vector of rows takes; the sequence of the frame is written out."""

    def emit_rows(self, first: Value | int, valid: int | None) -> None:
        """Emit all passes over rows from `first` on, as many as there are lanes, or `valid`."""
        (emitter,) = self._column_bases(first, [valid])
        for step in self._plan.passes:
            for fold in step.folds:
                self._know(emitter, fold, self._total(emitter, fold))
        if self._frame.is_reduced:
            self._write(emitter, range(len(self._results)), valid)
            return
        for number, output in enumerate(self._plan.outputs):
            self._store_rows(emitter, number, self._along(emitter, output), valid)

    def _along(self, emitter: ElementEmitter, point: Point) -> list[Value]:
        """Return a value for each step of the sequence."""
        (loop,) = self._frame.sequence
        return [
            emitter.emit(point.term, {axis: self._at(at, s) for axis, at in point.where.index.items()})
            for s in range(loop.extent)
        ]

    def _at(self, at: Affine, step: int) -> Affine:
        (loop,) = self._frame.sequence
        return at.substitute({loop.key: Affine(step)})

    def _total(self, emitter: ElementEmitter, fold: Point) -> Value:
        """Fold in the order in which rows that lie in the lanes are folded: a value has the same bits either way."""
        (inner,) = self._plan.points.args(fold)
        op = reduction(fold.term).op
        combine = simd.larger if fold.term in self._blind else simd.COMBINE_BY_FOLD[op]

        def both(parts: Sequence[Value | None], others: Sequence[Value | None]) -> list[Value | None]:
            pairs = zip(parts, others, strict=True)
            return [b if a is None else a if b is None else combine(self._builder, a, b) for a, b in pairs]

        values = self._along(emitter, inner)
        lanes = min(self._plan.frame.whole_lanes, 1 << (len(values) - 1).bit_length())
        padded = [*values, *[None] * (-len(values) % lanes)]
        vectors = [padded[at : at + lanes] for at in range(0, len(padded), lanes)]
        turn = min(len(vectors), SIDE_BY_SIDE)
        sums = [reduce(both, vectors[u::turn]) for u in range(turn)]
        while len(sums) > 1:
            sums = [both(a, b) for a, b in zip(sums[::2], sums[1::2], strict=False)] + sums[len(sums) & ~1 :]
        (total,) = sums
        while len(total) > 1:
            half = len(total) // 2
            total = both(total[:half], total[half:])
        # sums begin with 0, which -0 does not outlast
        return simd.COMBINE_BY_FOLD[op](self._builder, total[0], self._neutral(fold, self._frame.lanes))

    def _store_rows(self, emitter: ElementEmitter, number: int, columns: list[Value], valid: int | None) -> None:
        pointer = self._results[number]
        first = emitter.values.first(self._at(self._offsets[number], 0))
        if valid is None:
            memory.store_rows(self._builder, columns, pointer, first)
            return
        for step, column in enumerate(columns):
            lanes, at = simd.lane_of(column).lanes, self._builder.add(first, I64(step))
            offsets = memory.strided_offsets(self._builder, lanes, at, len(columns))
            memory.store_scatter(self._builder, column, pointer, offsets, valid)
