"""The template of folds: passes over one row at a time, or down a block of columns, with what they share held.

Folds over the last axes run along vectors; folds over others run down columns, a vector of the last axis at a time.
Short rows lie side by side, with folds or without.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels.chunks import Split, column_loop, indented, row_indices, row_loop, split
from frittata.kernels.frames import choose_frame, without_unit_folds
from frittata.kernels.intrinsics import make_tile_intrinsic
from frittata.kernels.lowered import LoweredKernel
from frittata.kernels.passes import Passes, plan_passes
from frittata.kernels.pieces import choose_pieces
from frittata.kernels.roofline import roofline
from frittata.kernels.row_kernel import row_kernel
from frittata.kernels.row_pieces import in_pieces
from frittata.kernels.short_rows import ShortRowEmitter
from frittata.kernels.simd import Builder, Value


class RowTemplate:
    """Runs bodies whose folds all bind the same axes: softmax, norms, means, sums and extrema with their elements.

    Of bodies without folds it runs those whose rows are short.
    """

    name = "row"
    in_place = True

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the slower of arithmetic and memory; None unless all folds bind the same axes or rows are short."""
        planned = _plan(bodies)
        if planned is None:
            return None
        plan = planned[1]
        return roofline(bodies, plan.units, _chunks(plan), machine, plan.read_again_bytes(machine.l2_bytes))

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write the loops around the passes."""
        planned = _plan(bodies)
        if planned is None:
            raise LoweringError("bodies whose rows are not folded together nor short", do="choose another template")
        bodies, plan = planned
        pieces = choose_pieces(plan)
        if pieces is not None:
            return in_pieces(name, bodies, plan, pieces, describe(plan))
        cut = _split(plan)
        return row_kernel(name, bodies, plan, cut.chunks, _lines(plan, cut), _namespace(bodies, plan), describe(plan))


ROW = RowTemplate()


@lru_cache(maxsize=4096)
def _plan(bodies: tuple[Term, ...]) -> tuple[tuple[Term, ...], Passes] | None:
    bodies = without_unit_folds(bodies)
    frames = (choose_frame(bodies), choose_frame(bodies, exchanged=True))
    elements = tuple(body.args[0] for body in bodies)
    plans = [plan_passes(frame, elements) for frame in frames if frame is not None and (frame.bound or frame.short)]
    return (bodies, min(plans, key=lambda plan: plan.units)) if plans else None


def describe(plan: Passes) -> list[str]:
    """Write what each pass does, as comments."""
    lines: list[str] = []
    for number, step in enumerate(plan.passes):
        done = [f"folds {', '.join(fold.term.attrs[0] for fold in step.folds)}"] if step.folds else []
        kept = [point for point, first in plan.first_by_held.items() if first == number]
        done += [f"holds {', '.join(point.term.op for point in kept)}"] if kept else []
        done += [f"writes result {', '.join(map(str, step.outputs))}"] if step.outputs else []
        lines.append(f"# pass {number} over a row: {'; '.join(done)}")
    if plan.frame.short:
        lines.append(f"# {plan.frame.lanes} rows of {plan.frame.steps} side by side")
    return lines


def _turn(plan: Passes) -> int:
    return plan.vectors * plan.frame.lanes


def _split(plan: Passes) -> Split:
    return split(plan.frame.row_count, plan.frame.extent, plan.units, _turn(plan) if plan.frame.columns else None)


def _chunks(plan: Passes) -> int:
    pieces = choose_pieces(plan)
    return pieces.chunks(plan.frame) if pieces is not None else _split(plan).chunks


def _lines(plan: Passes, cut: Split) -> list[str]:
    frame, turn = plan.frame, _turn(plan)
    at = ["table", "chunk", *row_indices(frame.rows)]
    if not frame.columns:
        return indented(row_loop(cut, frame.row_count), [f"fold_row({', '.join(at)})"])
    block, rest = f"fold_columns({', '.join([*at, 'k'])})", f"fold_last_columns({', '.join(at)})"
    return column_loop(cut, frame.row_count, frame.extent, turn, block, rest)


def _namespace(bodies: tuple[Term, ...], plan: Passes) -> dict[str, Any]:
    rows, lanes, extent = len(plan.frame.rows), plan.frame.lanes, plan.frame.extent
    full = extent - extent % _turn(plan)

    def emitter(builder: Builder, table: Value, chunk: Value, values: tuple[Value, ...]) -> ShortRowEmitter:
        return ShortRowEmitter(builder, plan, bodies, table, values[:rows], chunk)

    def fold_row(builder: Builder, table: Value, chunk: Value, *values: Value) -> None:
        emitter(builder, table, chunk, values).emit_row()

    def fold_columns(builder: Builder, table: Value, chunk: Value, *values: Value) -> None:
        if plan.frame.short:
            emitter(builder, table, chunk, values).emit_rows(values[rows], None)
            return
        emitter(builder, table, chunk, values).emit_columns(values[rows], [None] * plan.vectors)

    def fold_last_columns(builder: Builder, table: Value, chunk: Value, *values: Value) -> None:
        widths = [extent - k if extent - k < lanes else None for k in range(full, extent, lanes)]
        if plan.frame.short:
            emitter(builder, table, chunk, values).emit_rows(full, widths[0])
            return
        emitter(builder, table, chunk, values).emit_columns(full, widths)

    return {
        "fold_row": make_tile_intrinsic("fold_row", fold_row, rows + 1),
        "fold_columns": make_tile_intrinsic("fold_columns", fold_columns, rows + 2),
        "fold_last_columns": make_tile_intrinsic("fold_last_columns", fold_last_columns, rows + 1),
    }
