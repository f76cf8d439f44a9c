"""The template of folds over few places, lanes along the last axis: pools and depthwise windows, channels last."""

from __future__ import annotations

from collections.abc import Iterator

from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.chunks import split
from frittata.kernels.contractions import structure
from frittata.kernels.intrinsics import make_tile_intrinsic
from frittata.kernels.lower import result_names
from frittata.kernels.lowered import LoweredKernel, addresses
from frittata.kernels.roofline import roofline
from frittata.kernels.simd import Builder, Value
from frittata.kernels.taps import Taps, TapsEmitter, describe


class TapsTemplate:
    """Takes bodies that are point-wise in one fold over a few places, none of them along the last axis."""

    name = "taps"
    in_place = True

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the time of arithmetic and of memory; None for other bodies."""
        work = describe(bodies)
        return roofline(bodies, work.units, _chunks(work), machine) if work is not None else None

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write loops over rows and tiles around vector code."""
        work = describe(bodies)
        if work is None:
            raise LoweringError("the taps template takes one fold over few places, none along the last axis")

        def tile(builder: Builder, table: Value, i: Value, x: Value) -> None:
            TapsEmitter(builder, work, table, i, x).emit()

        note = f"# tiles of {work.tile} pixels x {work.vectors * work.lanes} columns, {len(work.places)} places each"
        text = source.function(name, [*source.comment(bodies, result_names(bodies)), note], _loops(work))
        namespace = {"tile": make_tile_intrinsic("tile", tile, 2)}
        return LoweredKernel(name, text, namespace, _chunks(work), tuple(addresses(bodies)), structure(bodies))


TAPS = TapsTemplate()


def _chunks(work: Taps) -> int:
    return split(work.rows * work.tiles, work.columns, work.units, None).chunks


def _loops(work: Taps) -> Iterator[str]:
    tasks, chunks, tiles = work.rows * work.tiles, _chunks(work), work.tiles
    yield f"for t in range(chunk*{tasks} // {chunks}, (chunk + 1)*{tasks} // {chunks}):"
    if tiles == 1:
        yield f"{source.INDENT}tile(table, t, 0)"
    else:
        yield f"{source.INDENT}tile(table, t // {tiles}, min(t % {tiles}*{work.tile}, {work.pixels - work.tile}))"
