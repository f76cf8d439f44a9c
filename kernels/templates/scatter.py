"""The template of folds of what is sent to the places of an axis: a step for each value, columns in vectors."""

from __future__ import annotations

from typing import Any

from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.chunks import ROW, Split, column_loop, split
from frittata.kernels.contractions import structure
from frittata.kernels.intrinsics import make_tile_intrinsic
from frittata.kernels.lookups import sites
from frittata.kernels.lower import result_names
from frittata.kernels.lowered import LoweredKernel, Status, addresses
from frittata.kernels.roofline import roofline
from frittata.kernels.scatters import Scatter, ScatterEmitter, describe
from frittata.kernels.simd import I64, Builder, Value


class ScatterTemplate:
    """Runs a body that is point-wise in a fold of values sent to places."""

    name = "scatter"
    in_place = False

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the time of arithmetic and of memory; None for other bodies."""
        work = describe(bodies)
        return roofline(bodies, work.units, _split(work).chunks, machine) if work is not None else None

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write the loops over rows and blocks of columns; values are taken in their order."""
        work = describe(bodies)
        if work is None:
            raise LoweringError("the scatter template takes one fold of values that are sent to places")
        cut = _split(work)
        block, rest = (_rows(work, call) for call in ("block(table, {}, k)", "rest(table, {})"))
        lines = column_loop(cut, work.blocks * work.parts, work.columns, work.turn, block, rest)
        note = f"# {work.count} values to {work.places} places, {min(work.turn, work.columns)} columns at a time"
        text = source.function(name, [*source.comment(bodies, result_names(bodies)), note], lines)
        arguments = addresses(bodies)
        if words := len(sites(bodies)):
            arguments.append(Status(words))
        return LoweredKernel(name, text, _namespace(work), cut.chunks, tuple(arguments), structure(bodies))


SCATTER = ScatterTemplate()
_PIECE_VECTORS = 64
"""The vectors of a row that are left to one core: what is fetched ahead beyond them may be what another one writes."""


def _split(work: Scatter) -> Split:
    return split(work.blocks * work.parts, work.columns, work.units, _PIECE_VECTORS * work.lanes)


def _rows(work: Scatter, call: str) -> str:
    """Write the loop over the rows of a block."""
    parts, places = work.parts, work.places
    first = f"{ROW} // {parts}" if work.blocks > 1 else "0"
    part = f"{ROW} % {parts}" if parts > 1 else "0"
    low, high = f"{part}*{places} // {parts}", f"({part} + 1)*{places} // {parts}"
    if work.rows == 1:
        return call.format(f"{first}, {low}, {high}")
    return f"for r in range({work.rows}): " + call.format(f"{first}*{work.rows} + r, {low}, {high}")


def _namespace(work: Scatter) -> dict[str, Any]:
    full = work.columns - work.columns % work.turn

    def block(builder: Builder, table: Value, i: Value, low: Value, high: Value, k: Value) -> None:
        ScatterEmitter(builder, work, table, i).emit(low, high, k, work.turn)

    def rest(builder: Builder, table: Value, i: Value, low: Value, high: Value) -> None:
        ScatterEmitter(builder, work, table, i).emit(low, high, I64(full), work.columns - full)

    return {"block": make_tile_intrinsic("block", block, 4), "rest": make_tile_intrinsic("rest", rest, 3)}
