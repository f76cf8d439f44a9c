"""The template of bodies without folds: vectors along the last axes, which are one loop where all loads allow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any

from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels.chunks import Split, indented, row_indices, row_loop, split
from frittata.kernels.frames import Loop, choose_frame, without_unit_folds
from frittata.kernels.index_sets import over, ranges_of
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
        return roofline(bodies, planned.units, planned.chunks, machine) if planned else None

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write the loops around the vectors of a row, for each range of it that has a body of its own."""
        planned = _plan(bodies)
        if planned is None:
            raise LoweringError("bodies that are not pointwise", do="choose another template")
        bodies, ranges = planned.bodies, planned.ranges
        namespace: dict[str, Any] = {}
        for number, part in enumerate(ranges):
            namespace |= _namespace(part, bodies, number)
        notes = [f"# {part.plan.frame.describe()}" for part in ranges[1:]]
        return row_kernel(name, bodies, ranges[0].plan, planned.chunks, planned.lines(), namespace, notes)

    def computes_once(self, bodies: tuple[Term, ...]) -> bool:
        """Whether its kernel computes no element twice."""
        planned = _plan(bodies)
        return planned is not None and not any(part.plan.tiles_overlap for part in planned.ranges)


POINTWISE = PointwiseTemplate()


@dataclass(frozen=True, eq=False)
class _Range:
    """Bodies over a range of the last axis, and their loops."""

    bodies: tuple[Term, ...]
    plan: Passes


@dataclass(frozen=True, eq=False)
class _Planned:
    """Bodies as a whole, and by ranges: all of them in each chunk, or some chunks for each."""

    bodies: tuple[Term, ...]
    ranges: tuple[_Range, ...]

    @cached_property
    def units(self) -> float:
        """What all takes, in additions."""
        return sum(part.plan.units for part in self.ranges)

    @cached_property
    def chunks(self) -> int:
        """How many chunks there are."""
        return self._together[0].chunks if self._together else sum(cut.chunks for cut in self._apart)

    def lines(self) -> list[str]:
        """Write what a chunk does."""
        numbered = enumerate(zip(self.ranges, self._together or self._apart, strict=True))
        lines = [_lines(part.plan, cut, number) for number, (part, cut) in numbered]
        if self._together:
            return [line for own in lines for line in own]
        out, first = ["number = chunk"], 0
        for own, cut in zip(lines, self._apart, strict=True):
            out += indented([f"if {first} <= number < {first + cut.chunks}:"], [f"chunk = number - {first}", *own])
            first += cut.chunks
        return out

    @cached_property
    def _together(self) -> list[Split]:
        """The cuts of the ranges if each chunk can have the same share of all."""
        cuts = [_split(part.plan, self.units) for part in self.ranges]
        is_same = len(cuts) == 1 or ({cut.pieces for cut in cuts} == {1} and len({cut.chunks for cut in cuts}) == 1)
        return cuts if is_same else []

    @cached_property
    def _apart(self) -> list[Split]:
        return [_split(part.plan, part.plan.units) for part in self.ranges]


@lru_cache(maxsize=4096)
def _plan(bodies: tuple[Term, ...]) -> _Planned | None:
    bodies = in_order(without_unit_folds(bodies))
    whole = _range(bodies)
    if whole is None:
        return None
    cut = [_range(over(bodies, *span)) for span in ranges_of(bodies)]
    ranges = tuple(part for part in cut if part is not None)
    is_cheaper = 0 < len(ranges) == len(cut) and sum(part.plan.units for part in ranges) < whole.plan.units
    return _Planned(bodies, ranges if is_cheaper else (whole,))


def _range(bodies: tuple[Term, ...]) -> _Range | None:
    frame = choose_frame(bodies)
    if frame is None or frame.bound:
        return None
    return _Range(bodies, plan_passes(frame, tuple(body.args[0] for body in bodies)))


def _turn(plan: Passes) -> int:
    return plan.vectors * plan.frame.lanes


def _split(plan: Passes, units: float) -> Split:
    if plan.tile_loop is None:
        return split(plan.frame.row_count, plan.frame.extent, units, _turn(plan))
    return split(prod(loop.extent for loop in _tiled_rows(plan)), plan.frame.extent, units, plan.tile)


def _tiled_rows(plan: Passes) -> list[Loop]:
    """Return the row loops, of the one that is tiled its number of tiles."""
    height = plan.tile_rows
    return [Loop(loop.key, -(-loop.extent // height)) if loop is plan.tile_loop else loop for loop in plan.frame.rows]


def _tiled_lines(plan: Passes, cut: Split, number: int) -> list[str]:
    rows, tiled, extent = _tiled_rows(plan), plan.tile_loop, plan.frame.extent
    assert tiled is not None
    at = row_indices(rows)
    position = plan.frame.rows.index(tiled)
    tile = at[position] if at[position].isidentifier() else f"({at[position]})"
    at[position] = f"min({tile}*{plan.tile_rows}, {tiled.extent - plan.tile_rows})"
    call = f"tiles{number}({', '.join(['table', *at, *_span(cut, extent)])})"
    return indented(row_loop(cut, prod(loop.extent for loop in rows)), [call])


def _span(cut: Split, stop: int) -> tuple[str, str]:
    """Spell where the part of a row begins that a chunk computes, and where it ends."""
    return (f"piece*{cut.width}", f"min((piece + 1)*{cut.width}, {stop})") if cut.pieces > 1 else ("0", str(stop))


def _lines(plan: Passes, cut: Split, number: int) -> list[str]:
    if plan.tile_loop is not None:
        return _tiled_lines(plan, cut, number)
    frame = plan.frame
    full = frame.extent - frame.extent % _turn(plan)
    at = ["table", *row_indices(frame.rows)]
    inner = [f"span{number}({', '.join([*at, *_span(cut, full)])})"] if full else []
    if full != frame.extent:
        rest = [f"rest{number}({', '.join(at)})"]
        inner = indented([*inner, f"if piece == {cut.pieces - 1}:"], rest) if cut.pieces > 1 else inner + rest
    return indented(row_loop(cut, frame.row_count), inner)


def _namespace(part: _Range, whole: tuple[Term, ...], number: int) -> dict[str, Any]:
    plan, rows = part.plan, len(part.plan.frame.rows)

    def emitter(builder: Builder, table: Value, at: Sequence[Value]) -> RowEmitter:
        return RowEmitter(builder, plan, part.bodies, table, at, I64(0), whole)

    def span(builder: Builder, table: Value, *values: Value) -> None:
        emitter(builder, table, values[:rows]).emit_span(*values[rows:])

    def rest(builder: Builder, table: Value, *values: Value) -> None:
        emitter(builder, table, values).emit_rest()

    def tiles(builder: Builder, table: Value, *values: Value) -> None:
        tiled = plan.tile_loop
        assert tiled is not None
        position = plan.frame.rows.index(tiled)
        emitter(builder, table, values[:rows]).emit_tiles(values[position], *values[rows:])

    return {
        f"tiles{number}": make_tile_intrinsic("tiles", tiles, rows + 2),
        f"span{number}": make_tile_intrinsic("span", span, rows + 2),
        f"rest{number}": make_tile_intrinsic("rest", rest, rows),
    }
