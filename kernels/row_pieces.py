"""The kernel of long rows: chunks fold pieces of them, and the one that ends last combines what all have left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frittata.egraph import program
from frittata.egraph.terms import Term
from frittata.kernels import memory
from frittata.kernels.chunks import indented, row_indices
from frittata.kernels.intrinsics import make_index_intrinsic, make_tile_intrinsic, table_pointer, table_value
from frittata.kernels.lookups import sites
from frittata.kernels.lowered import Argument, Counter, LoweredKernel, Scratch
from frittata.kernels.passes import Passes
from frittata.kernels.piece_emitter import Columns, PieceEmitter
from frittata.kernels.pieces import Partials, Pieces
from frittata.kernels.row_kernel import row_kernel
from frittata.kernels.simd import I64, Builder, Value


def in_pieces(name: str, bodies: tuple[Term, ...], plan: Passes, pieces: Pieces, notes: Sequence[str]) -> LoweredKernel:
    """Write the kernel; `notes` are comments before it."""
    chunks = pieces.chunks(plan.frame)
    more: list[Argument] = [Scratch(Partials(plan, pieces).bytes_per_chunk)]
    if pieces.count > 1:
        more.append(Counter())
        notes = [*notes, f"# {pieces.count} pieces of each row; the last of {chunks} chunks to end combines them"]
    else:
        notes = [*notes, f"# slices of {pieces.slice_width} columns, row by row"]
    lines = _piece_lines(plan, pieces) if pieces.count > 1 else _slice_lines(plan, pieces)
    return row_kernel(name, bodies, plan, chunks, lines, _namespace(bodies, plan, pieces), notes, more)


def _piece_lines(plan: Passes, pieces: Pieces) -> list[str]:
    rows, at = plan.frame.row_count, row_indices(plan.frame.rows)
    span = f"piece*{pieces.width}, min((piece + 1)*{pieces.width}, {pieces.stop})"
    fold = f"fold_piece({', '.join(['table', 'chunk', *at, 'piece', span])})"
    combine = f"combine({', '.join(['table', 'i', *at])})"
    last = indented(["if is_last(table):"], indented([f"for i in range({rows}):"], [combine]))
    return [_place(rows, pieces.count), fold, *last]


def _slice_lines(plan: Passes, pieces: Pieces) -> list[str]:
    frame = plan.frame
    full = frame.extent - frame.extent % frame.lanes
    span = f"piece*{pieces.slice_width}, min((piece + 1)*{pieces.slice_width}, {full})"
    fold = f"fold_slice({', '.join(['table', 'chunk', *row_indices(frame.rows), 'piece', span])})"
    return [_place(frame.row_count, pieces.slices), fold]


def _place(rows: int, parts: int) -> str:
    """Write which row a chunk belongs to, and which part of the row it is."""
    return "piece = chunk" if rows == 1 else f"i, piece = chunk // {parts}, chunk % {parts}"


def _namespace(bodies: tuple[Term, ...], plan: Passes, pieces: Pieces) -> dict[str, Any]:
    rows, chunks = len(plan.frame.rows), pieces.chunks(plan.frame)
    partials_at = sum(1 for _ in program.operands_of(*bodies)) + len(bodies) + bool(sites(bodies))

    def emitter(builder: Builder, table: Value, values: tuple[Value, ...]) -> PieceEmitter:
        return PieceEmitter(
            builder, plan, bodies, table, values[:rows], pieces, table_value(builder, table, partials_at)
        )

    def is_number(builder: Builder, piece: Value, number: int) -> Value:
        return builder.zext(builder.icmp_signed("==", piece, I64(number)), I64)

    def fold_piece(builder: Builder, table: Value, chunk: Value, *values: Value) -> None:
        piece, first, stop = values[rows:]
        if plan.frame.columns:
            emitter(builder, table, values).emit_steps((first, stop), chunk)
        else:
            ends = is_number(builder, piece, pieces.count - 1)
            emitter(builder, table, values).emit_piece((first, stop), ends, chunk)

    def fold_slice(builder: Builder, table: Value, chunk: Value, *values: Value) -> None:
        piece, first, stop = values[rows:]
        columns = Columns(first, stop, is_number(builder, piece, pieces.slices - 1))
        emitter(builder, table, values).emit_slice(columns, chunk)

    def is_last(builder: Builder, table: Value) -> Value:
        counter = table_pointer(builder, table, partials_at + 1, "i64")
        ended = builder.atomic_rmw("add", counter, I64(1), "acq_rel")
        last = builder.icmp_signed("==", ended, I64(chunks - 1))
        with builder.if_then(last):
            memory.store(builder, I64(0), counter)
        return builder.zext(last, I64)

    def combine(builder: Builder, table: Value, row: Value, *values: Value) -> None:
        emitter(builder, table, values).emit_combined(row)

    return {
        "fold_piece": make_tile_intrinsic("fold_piece", fold_piece, rows + 4),
        "fold_slice": make_tile_intrinsic("fold_slice", fold_slice, rows + 4),
        "is_last": make_index_intrinsic("is_last", is_last, 0),
        "combine": make_tile_intrinsic("combine", combine, rows + 1),
    }
