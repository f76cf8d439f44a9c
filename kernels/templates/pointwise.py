"""The template of bodies without folds: vectors along the last axes, which are one loop where all loads allow it."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels.chunks import Split, indented, row_indices, row_loop, split
from frittata.kernels.frames import Loop, choose_frame, without_unit_folds
from frittata.kernels.intrinsics import make_tile_intrinsic
from frittata.kernels.lowered import LoweredKernel
from frittata.kernels.passes import Passes, plan_passes
from frittata.kernels.roofline import roofline
from frittata.kernels.row_emitter import RowEmitter
from frittata.kernels.row_kernel import row_kernel
from frittata.kernels.simd import I64, Builder, Value
from frittata.kernels.stores import in_order


class PointwiseTemplate:
    """Runs bodies that are scalar operators of loads at any index."""

    name = "pointwise"
    in_place = True

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the slower of arithmetic and memory; None for bodies with folds or contractions."""
        planned = _plan(bodies)
        return roofline(bodies, planned[1].units, _split(planned[1]).chunks, machine) if planned else None

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write the loops around the vectors of a row."""
        planned = _plan(bodies)
        if planned is None:
            raise LoweringError("bodies that are not pointwise", do="choose another template")
        bodies, plan = planned
        cut = _split(plan)
        return row_kernel(name, bodies, plan, cut.chunks, _lines(plan, cut), _namespace(bodies, plan))


POINTWISE = PointwiseTemplate()


@lru_cache(maxsize=4096)
def _plan(bodies: tuple[Term, ...]) -> tuple[tuple[Term, ...], Passes] | None:
    bodies = in_order(without_unit_folds(bodies))
    frame = choose_frame(bodies)
    if frame is None or frame.bound:
        return None
    return bodies, plan_passes(frame, tuple(body.args[0] for body in bodies))


def _turn(plan: Passes) -> int:
    return plan.vectors * plan.frame.lanes


def _split(plan: Passes) -> Split:
    if plan.tile_loop is None:
        return split(plan.frame.row_count, plan.frame.extent, plan.units, _turn(plan))
    return split(prod(loop.extent for loop in _tiled_rows(plan)), plan.frame.extent, plan.units, plan.tile)


def _tiled_rows(plan: Passes) -> list[Loop]:
    """Return the row loops, of the one that is tiled its number of tiles."""
    height = plan.tile_rows
    return [Loop(loop.key, -(-loop.extent // height)) if loop is plan.tile_loop else loop for loop in plan.frame.rows]


def _tiled_lines(plan: Passes, cut: Split) -> list[str]:
    rows, tiled, extent = _tiled_rows(plan), plan.tile_loop, plan.frame.extent
    assert tiled is not None
    at = row_indices(rows)
    position = plan.frame.rows.index(tiled)
    number = at[position] if at[position].isidentifier() else f"({at[position]})"
    at[position] = f"min({number}*{plan.tile_rows}, {tiled.extent - plan.tile_rows})"
    call = f"tiles({', '.join(['table', *at, *_span(cut, extent)])})"
    return indented(row_loop(cut, prod(loop.extent for loop in rows)), [call])


def _span(cut: Split, stop: int) -> tuple[str, str]:
    """Spell where the part of a row begins that a chunk computes, and where it ends."""
    return (f"piece*{cut.width}", f"min((piece + 1)*{cut.width}, {stop})") if cut.pieces > 1 else ("0", str(stop))


def _lines(plan: Passes, cut: Split) -> list[str]:
    if plan.tile_loop is not None:
        return _tiled_lines(plan, cut)
    frame = plan.frame
    full = frame.extent - frame.extent % _turn(plan)
    at = ["table", *row_indices(frame.rows)]
    inner = [f"span({', '.join([*at, *_span(cut, full)])})"] if full else []
    if full != frame.extent:
        rest = [f"rest({', '.join(at)})"]
        inner = indented([*inner, f"if piece == {cut.pieces - 1}:"], rest) if cut.pieces > 1 else inner + rest
    return indented(row_loop(cut, frame.row_count), inner)


def _namespace(bodies: tuple[Term, ...], plan: Passes) -> dict[str, Any]:
    rows = len(plan.frame.rows)

    def span(builder: Builder, table: Value, *values: Value) -> None:
        RowEmitter(builder, plan, bodies, table, values[:rows], I64(0)).emit_span(*values[rows:])

    def rest(builder: Builder, table: Value, *values: Value) -> None:
        RowEmitter(builder, plan, bodies, table, values, I64(0)).emit_rest()

    def tiles(builder: Builder, table: Value, *values: Value) -> None:
        tiled = plan.tile_loop
        assert tiled is not None
        position = plan.frame.rows.index(tiled)
        RowEmitter(builder, plan, bodies, table, values[:rows], I64(0)).emit_tiles(values[position], *values[rows:])

    return {
        "tiles": make_tile_intrinsic("tiles", tiles, rows + 2),
        "span": make_tile_intrinsic("span", span, rows + 2),
        "rest": make_tile_intrinsic("rest", rest, rows),
    }
