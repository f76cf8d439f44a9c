"""The kernel of long rows: chunks fold pieces of them, and the one that ends last combines what all have left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frittata.egraph import program
from frittata.egraph.terms import Term
from frittata.kernels import memory, simd
from frittata.kernels.chunks import indented, row_indices
from frittata.kernels.intrinsics import make_index_intrinsic, make_tile_intrinsic, table_pointer, table_value
from frittata.kernels.lookups import sites
from frittata.kernels.lowered import Counter, LoweredKernel, Scratch
from frittata.kernels.passes import Passes
from frittata.kernels.pieces import Partials, Pieces
from frittata.kernels.row_emitter import RowEmitter
from frittata.kernels.row_kernel import row_kernel
from frittata.kernels.simd import I64, Builder, Value


def in_pieces(name: str, bodies: tuple[Term, ...], plan: Passes, pieces: Pieces, notes: Sequence[str]) -> LoweredKernel:
    """Write the kernel; `notes` are comments before it."""
    rows, more = plan.frame.row_count, [Scratch(Partials(plan, None).bytes_per_chunk), Counter()]
    chunks = rows * pieces.count
    notes = [*notes, f"# {pieces.count} pieces of each row; the last of {chunks} chunks to end combines them"]
    lines, namespace = _lines(plan, pieces), _namespace(bodies, plan, pieces)
    return row_kernel(name, bodies, plan, chunks, lines, namespace, notes, more)


def _lines(plan: Passes, pieces: Pieces) -> list[str]:
    rows, at = plan.frame.row_count, row_indices(plan.frame.rows)
    span = f"piece*{pieces.width}, min((piece + 1)*{pieces.width}, {pieces.stop})"
    place = ["piece = chunk"] if rows == 1 else [f"i, piece = chunk // {pieces.count}, chunk % {pieces.count}"]
    fold = f"fold_piece({', '.join(['table', 'chunk', *at, 'piece', span])})"
    combine = f"combine({', '.join(['table', 'i', *at])})"
    return [*place, fold, *indented(["if is_last(table):"], indented([f"for i in range({rows}):"], [combine]))]


def _namespace(bodies: tuple[Term, ...], plan: Passes, pieces: Pieces) -> dict[str, Any]:
    rows, chunks = len(plan.frame.rows), plan.frame.row_count * pieces.count
    partials_at = sum(1 for _ in program.operands_of(*bodies)) + len(bodies) + bool(sites(bodies))

    def partials(builder: Builder, table: Value) -> Partials:
        return Partials(plan, table_value(builder, table, partials_at))

    def emitter(builder: Builder, table: Value, values: tuple[Value, ...]) -> RowEmitter:
        return RowEmitter(builder, plan, bodies, table, values[:rows], I64(0))

    def fold_piece(builder: Builder, table: Value, chunk: Value, *values: Value) -> None:
        row, (piece, first, stop) = emitter(builder, table, values), values[rows:]
        if plan.frame.columns:
            row.emit_column_piece((first, stop), chunk, partials(builder, table))
            return
        ends = builder.zext(builder.icmp_signed("==", piece, I64(pieces.count - 1)), simd.I64)
        row.emit_piece(pieces, (first, stop), ends, chunk, partials(builder, table))

    def is_last(builder: Builder, table: Value) -> Value:
        counter = table_pointer(builder, table, partials_at + 1, "i64")
        ended = builder.atomic_rmw("add", counter, I64(1), "acq_rel")
        last = builder.icmp_signed("==", ended, I64(chunks - 1))
        with builder.if_then(last):
            memory.store(builder, I64(0), counter)
        return builder.zext(last, simd.I64)

    def combine(builder: Builder, table: Value, row: Value, *values: Value) -> None:
        emitter(builder, table, values).emit_combined(pieces, row, partials(builder, table))

    return {
        "fold_piece": make_tile_intrinsic("fold_piece", fold_piece, rows + 4),
        "is_last": make_index_intrinsic("is_last", is_last, 0),
        "combine": make_tile_intrinsic("combine", combine, rows + 1),
    }
