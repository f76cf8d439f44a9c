"""The passes over a row: folds that depend on the same earlier values share one; what several passes need may be held.

    softmax:  pass 0 folds the maximum; pass 1 folds the sum of exp, and holds exp; pass 2 writes

The plan is what a kernel does and what it is said to cost.
Units: additions of a vector's element, as in the cost model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from frittata.egraph import dtypes, indexing, shapes, terms
from frittata.egraph.indexing import Affine
from frittata.egraph.terms import Term, size_bytes
from frittata.kernels.chunks import MOST_CHUNKS
from frittata.kernels.element_emitter import SIDE_BY_SIDE
from frittata.kernels.frames import LANES, Frame, Loop
from frittata.kernels.holding import is_worth_holding
from frittata.kernels.lookups import LookedUp, Place, lookups_in
from frittata.kernels.lowered import aligned
from frittata.kernels.memory import MOST_COLUMNS, column_steps
from frittata.kernels.packing import WAY_BYTES
from frittata.kernels.points import Point, Points, asked, place_of, reduction
from frittata.kernels.processor import processor
from frittata.kernels.tiles import CACHE_LINE_BYTES
from frittata.kernels.units import ONE_LOAD_UNITS, SIMPLE_UNITS, gather_units, load_units, operator_units

_TRANSPOSE_UNITS = 5.0
"""What an element costs that is loaded in vectors along a row loop, which are transposed in registers."""
_PASS_UNITS = 15.0
"""What starting a pass over a row costs."""
_REDUCE_UNITS = {"sum": 15.0, "prod": 15.0, "max": 180.0, "min": 180.0}
"""What combining accumulators and lanes costs, once a row for each fold: what follows waits for the last lane."""
_SINGLE_SHARE = 0.25
"""What a root or a quotient of one lane costs, of what a vector costs: their unit is as slow for a vector as it is."""
_SLOW = frozenset({"sqrt", "rsqrt", "div", "reciprocal"})
_MOST_TILE_ROWS = 64
_WAYS = 8
"""How many lines a set of a first-level cache holds at least."""
_LEAST_FETCHED_BYTES = 1024
"""From this length of a row on, the next one is fetched ahead: the processor itself stops at each page."""
_MOST_UNITS_TOGETHER = 1600.0
"""Of vectors side by side. With 2800, 20 steps of a recurrence with a logarithm each, a kernel compiles for 2.5 s."""
_MOST_HELD_BYTES = 1 << 20
_MOST_HELD = 8


@dataclass(eq=False)
class Pass:
    """One pass: what it folds, what it stores to be read by later passes, and which outputs it writes."""

    folds: list[Point] = field(default_factory=list[Point])
    held: list[Point] = field(default_factory=list[Point])
    outputs: list[int] = field(default_factory=list[int])


@dataclass(eq=False)
class Passes:
    """All passes over a row. Outputs of a reduced shape are written after the last one.

    `first_by_held` gives the pass in which each held point is computed. It lies in a row of scratch memory, or where
    `output_by_held` says: an output that is read again, or the place of one that is written later.
    """

    frame: Frame
    points: Points
    outputs: tuple[Point, ...]
    passes: list[Pass]
    first_by_held: dict[Point, int] = field(default_factory=dict[Point, int])
    output_by_held: dict[Point, int] = field(default_factory=dict[Point, int])

    def computed(self, number: int) -> list[Point]:
        """Return the points that a pass computes or reads back, each after what it is computed from."""
        return list(self._walk(self.roots(number), number))

    def roots(self, number: int) -> list[Point]:
        """Return the points that a pass folds, holds and writes."""
        step = self.passes[number]
        folded = [self.points.args(fold)[0] for fold in step.folds]
        return [*folded, *step.held, *(self.outputs[i] for i in step.outputs)]

    def is_known(self, point: Point, number: int) -> bool:
        """Whether earlier passes have left a value: that of a fold, or a held one."""
        return point.term.op == "fold" or self.first_by_held.get(point, number) < number

    def read_back(self, number: int) -> list[Point]:
        """Return the held points that a pass reads."""
        return [p for p in self.computed(number) if p in self.first_by_held and self.is_known(p, number)]

    def uniform(self, number: int) -> list[Point]:
        """Return what is the same throughout a pass."""
        outside = (p for p in self.computed(number) if not p.keys & self.frame.inner)
        return [p for p in outside if p.term.op != "const" and not self.is_known(p, number)]

    def fixed_lookups(self, number: int) -> list[LookedUp]:
        """Return the looked-up indices that are the same throughout a pass."""
        found = (key for p in self.computed(number) for key in lookups_in(p.where.index.values()))
        return [key for key in dict.fromkeys(found) if not key.origins & self.frame.inner]

    @cached_property
    def fetched_ahead(self) -> dict[Point, int]:
        """The loads of a first pass whose elements of the next row are fetched in the second, and how far they lie."""
        frame = self.frame
        if len(self.passes) < 2 or frame.columns or frame.sequence or not frame.rows:
            return {}
        found: dict[Point, int] = {}
        for point in self.computed(0):
            if point.term.op == "load" and self.points.step(point, LANES) == 1:
                stride = self.points.step(point, frame.rows[-1].key)
                if stride is not None and stride * dtypes.itemsize(point.term.dtype) >= _LEAST_FETCHED_BYTES:
                    found[point] = stride
        return found

    @cached_property
    def steps_apart(self) -> dict[Point, int]:
        """The loads of a first pass down columns that lie side by side, and how far apart steps of the sequence are."""
        found: dict[Point, int] = {}
        for point in self.computed(0):
            if point.term.op == "load" and self.points.step(point, LANES) == 1:
                stride = self.points.step(point, self.frame.sequence[-1].key)
                if stride:
                    found[point] = stride
        return found

    @cached_property
    def vectors(self) -> int:
        """How many vectors go side by side: along a row, or as columns.

        Columns that are only folded take as many as half of the registers hold, where rows are chunks enough: what is
        read in one go lies together. Of long passes fewer go side by side: compilers take the square of its length for
        code without branches.
        """
        if self.frame.short:
            return 1
        longest = max(map(self.units_of, range(len(self.passes))))
        most = max(1, min(SIDE_BY_SIDE, int(_MOST_UNITS_TOGETHER // max(longest, 1.0))))
        if self.frame.columns and len(self.passes) == 1 and self.frame.row_count >= MOST_CHUNKS:
            most = max(most, processor().registers // (2 * len(self.passes[0].folds)))
        return min(-(-self.frame.extent // self.frame.lanes), most)

    @cached_property
    def tile_loop(self) -> Loop | None:
        """The row loop along which most strided loads are consecutive, if tiles of it and the lanes are worthwhile."""
        lanes = self.frame.lanes
        loops = [loop for loop in self.frame.rows if loop.extent >= lanes]
        if not loops or self.frame.extent < lanes or self.frame.bound or self.frame.short:
            return None
        best = max(loops, key=lambda loop: len(self._strided(loop)))
        return best if self._strided(best) else None

    @property
    def tile(self) -> int:
        """How many lanes a tile has."""
        return self._tile_lanes(self.frame.extent)

    @property
    def tile_rows(self) -> int:
        """How many rows a tile has: as many as lie near, so that a page is left after some lines, not one.

        The last tile begins where it fits; of heights that compute as few rows twice, the greatest.
        """
        assert self.tile_loop is not None
        extent, step = self.tile_loop.extent, self._tile_lanes(self.tile_loop.extent)
        heights = range(step, min(max(step, self._near_rows), extent) + 1, step)
        return min(heights, key=lambda height: (-(-extent // height) * height, -height))

    @property
    def tiles_overlap(self) -> bool:
        """Whether there are tiles, and the last ones compute again what those before have computed."""
        loop = self.tile_loop
        return loop is not None and bool(self.frame.extent % self.tile or loop.extent % self.tile_rows)

    @cached_property
    def _near_rows(self) -> int:
        """How many rows of results lie near in a first-level cache: not those whose lines share a few of its sets."""
        assert self.tile_loop is not None
        rank = len(self.frame.shape)
        at = tuple(self.frame.index.get(axis, Affine()) for axis in range(-rank, 0))
        step = indexing.flatten(at, self.frame.shape).factor_of(self.tile_loop.key) or 0
        item = max(dtypes.itemsize(point.term.dtype) for point in self.outputs)
        lines_by_set: dict[int, set[int]] = {}
        for near in range(_MOST_TILE_ROWS):
            line = near * step * item // CACHE_LINE_BYTES
            lines = lines_by_set.setdefault(line % (WAY_BYTES // CACHE_LINE_BYTES), set())
            lines.add(line)
            if len(lines) > _WAYS:
                return max(CACHE_LINE_BYTES // item, near)
        return _MOST_TILE_ROWS

    def _tile_lanes(self, extent: int) -> int:
        """Return the lanes of two vectors; of one if there are no more, or if few rows lie near."""
        vectors = 2 if self._near_rows == _MOST_TILE_ROWS else 1
        return min(vectors, extent // self.frame.lanes) * self.frame.lanes

    @cached_property
    def transposed(self) -> frozenset[Point]:
        """The loads that are made along the tile loop and transposed."""
        return frozenset(self._strided(self.tile_loop)) if self.tile_loop is not None else frozenset()

    def _strided(self, loop: Loop) -> list[Point]:
        out: list[Point] = []
        for point in self.points.walk(self.outputs):
            if point.term.op != "load" or self.points.step(point, loop.key) != 1:
                continue
            if self.points.step(point, LANES) not in (0, 1):
                out.append(point)
        return out

    @cached_property
    def scratch_offsets(self) -> dict[Point, int]:
        """The offset of each held row of scratch memory, in bytes."""
        offsets: dict[Point, int] = {}
        total = 0
        for point in self.first_by_held:
            if point not in self.output_by_held:
                offsets[point] = total
                total += aligned(self._row_bytes(point))
        return offsets

    @property
    def scratch_bytes(self) -> int:
        """The size of all held rows of scratch memory."""
        return sum(aligned(self._row_bytes(point)) for point in self.scratch_offsets)

    def units_of(self, number: int) -> float:
        """Return what one element of a pass costs."""
        step = self.passes[number]
        varying = [point for point in self.computed(number) if point.keys & self.frame.inner]
        own = SIMPLE_UNITS * (len(step.folds) + len(step.outputs) + len(step.held))
        return own + sum(self._point_units(point, number) for point in varying)

    @cached_property
    def units(self) -> float:
        """What all rows cost, lanes that are not used included."""
        frame = self.frame
        width = -(-frame.extent // frame.lanes) * frame.whole_lanes
        if frame.short:
            return frame.row_count * width * self._short_units
        numbers = range(len(self.passes))
        per_column, per_row = 0.0, sum(_PASS_UNITS for _ in numbers)
        if not frame.columns:
            per_row += sum(_REDUCE_UNITS[reduction(fold.term).op] for step in self.passes for fold in step.folds)
        for point in {*self._after_folds, *(point for number in numbers for point in self.uniform(number))}:
            if LANES in point.keys:
                per_column += operator_units(point.term)
            else:
                share = _SINGLE_SHARE if point.term.op in _SLOW else 1.0
                per_row += operator_units(point.term) * frame.whole_lanes * share
        per_column += frame.steps * sum(map(self.units_of, numbers))
        return frame.row_count * (width * per_column + per_row)

    @cached_property
    def _after_folds(self) -> list[Point]:
        """What is computed of the folds of a row before outputs of a reduced shape are written."""
        found = self._walk(self.outputs, len(self.passes)) if self.frame.is_reduced else ()
        return [point for point in found if point.term.op not in ("const", "fold")]

    @property
    def _short_units(self) -> float:
        """What a row costs that lies in a lane: every value once, for each step of the sequence that it depends on."""
        frame = self.frame
        total = SIMPLE_UNITS * len(self.outputs) if frame.is_reduced else 0.0
        if not frame.is_reduced:
            total += frame.steps * len(self.outputs) * self._column_units(frame.steps, frame.steps)
        if not frame.bound and any(term.op == "where" for term in terms.walk(*(o.term for o in self.outputs))):
            return total + sum(self._point_units(point, 0) for point in self._written_out())
        for point in {point for number in range(len(self.passes)) for point in self.computed(number)}:
            if point.term.op == "fold":
                total += SIMPLE_UNITS * frame.steps
            elif point.term.op != "const":
                total += self._point_units(point, 0) * (frame.steps if point.keys & frame.inner else 1)
        return total

    def _written_out(self) -> Iterator[Point]:
        """Visit what is computed where the sequence is written out: what its steps share, and do not ask for, once."""
        (loop,) = self.frame.sequence
        steps = (self.points.moved(loop.key, Affine(step)) for step in range(loop.extent))
        roots = [self.points.at(output.term, where) for where in steps for output in self.outputs]
        seen: set[tuple[Term, Place]] = set()
        for point in self.points.walk(roots):
            key = point.term, place_of(point.term, point.where.index)
            is_chosen = len(asked(point.term, point.where.index)) < len(point.term.args)
            if key not in seen and point.term.op != "const" and not is_chosen:
                yield point
            seen.add(key)

    def _point_units(self, point: Point, number: int) -> float:
        if self.is_known(point, number):
            return SIMPLE_UNITS
        if point.term.op not in ("load", "iota"):
            return operator_units(point.term)
        step = self.points.step(point, LANES)
        if point in self.transposed:
            return _TRANSPOSE_UNITS
        if step in ONE_LOAD_UNITS:
            return ONE_LOAD_UNITS[step]
        if step is not None and 2 <= step <= MOST_COLUMNS and point.term.op == "load":
            return self._column_units(step, step if self.frame.short else self._columns_used(point, step, number))
        offset = self.points.offset(point)
        if point.term.op == "load" and step is None and self.tile_loop is None and not lookups_in([offset]):
            return load_units(offset, shapes.size(point.term.args[0].shape), LANES, self.frame.lanes)
        looked_up = sum(LANES in lookup.origins for lookup in lookups_in([offset]))
        return gather_units(processor().width // 4, looked_up)

    def read_again_bytes(self, cache_bytes: int) -> float:
        """Return the bytes that are read more than once: rows that a cache does not hold, in each pass.

        A row whose elements lie apart reads whole lines, and the next row reads them again.
        """
        if self.frame.short:
            return 0.0
        numbers = range(len(self.passes))
        every = [[p for p in self.computed(n) if p.term.op == "load" and not self.is_known(p, n)] for n in numbers]
        bytes_of = {point: self._line_bytes(point) for loads in every for point in loads}
        blocks = -(-self.frame.extent // (self.vectors * self.frame.lanes)) if self.frame.columns else 1
        if sum(bytes_of.values()) / blocks <= cache_bytes / 2:
            return 0.0
        read = self.frame.row_count * sum(bytes_of[point] for loads in every for point in loads)
        return max(0.0, read - sum(map(size_bytes, {point.term.args[0] for point in bytes_of})))

    def _line_bytes(self, point: Point) -> float:
        """Return the bytes of the cache lines that a load reads in one pass over a row."""
        frame, size = self.frame, dtypes.itemsize(point.term.dtype)
        step = self.points.step(point, LANES)
        apart = 1 if step is None else min(abs(step), CACHE_LINE_BYTES // size)
        lines = (frame.extent * apart if apart else 1) * size
        return lines * prod(loop.extent for loop in frame.sequence if loop.key in point.keys)

    def _column_units(self, stride: int, used: int) -> float:
        """Return what an element costs whose neighbours in the lanes lie `stride` apart, one of so many columns."""
        return SIMPLE_UNITS * column_steps(self.frame.lanes, stride, used)

    def _columns_used(self, point: Point, stride: int, number: int) -> int:
        """Return how many columns of the same rows a pass loads."""
        offset = self.points.offset(point)
        first = offset + -(offset.constant % stride)
        return sum(at + -(at.constant % stride) == first for at in self._offsets_read[number][point.term.args[0]])

    @cached_property
    def _offsets_read(self) -> list[dict[Term, set[Affine]]]:
        """The offsets at which each pass reads each buffer."""
        found: list[dict[Term, set[Affine]]] = [{} for _ in self.passes]
        for number, offsets in enumerate(found):
            for point in self.computed(number):
                if point.term.op == "load":
                    offsets.setdefault(point.term.args[0], set()).add(self.points.offset(point))
        return found

    def _row_bytes(self, point: Point) -> int:
        frame = self.frame
        width = frame.lanes * self.vectors if frame.columns else frame.extent
        return frame.steps * width * dtypes.itemsize(point.term.dtype)

    def fits(self, point: Point) -> bool:
        """Whether a point can be held."""
        return not _is_free(point.term) and not point.where.clamped and self._row_bytes(point) <= _MOST_HELD_BYTES

    def _walk(self, roots: Iterable[Point], number: int) -> Iterator[Point]:
        return self.points.walk(roots, lambda point: self.is_known(point, number))


def _is_free(term: Term) -> bool:
    return term.op in ("const", "load", "iota", "fold")


def plan_passes(frame: Frame, elements: tuple[Term, ...]) -> Passes:
    """Give every fold, held value and output its pass."""
    points = frame.points()
    outputs = tuple(map(points.at, elements))
    depth: dict[Point, int] = {}
    for point in points.walk(outputs):
        below = max((depth[arg] for arg in points.args(point)), default=0)
        depth[point] = below + (point.term.op == "fold")
    passes = [Pass() for _ in range(max(depth.values()) + (not frame.is_reduced))]
    for point, level in depth.items():
        if point.term.op == "fold":
            passes[level - 1].folds.append(point)
    plan = Passes(frame, points, outputs, passes)
    if not frame.is_reduced:
        for i, output in enumerate(outputs):
            passes[depth[output]].outputs.append(i)
    if len(passes) > 1 and not frame.short:
        _hold_outputs(plan, depth)
        while len(plan.first_by_held) < _MOST_HELD and _hold_one(plan, list(depth)):
            pass
        _hold_in_place(plan)
    return plan


def _hold_outputs(plan: Passes, depth: dict[Point, int]) -> None:
    """Let later passes read outputs that are written already."""
    if plan.frame.is_reduced:
        return
    for i, output in enumerate(plan.outputs):
        is_early = depth[output] < len(plan.passes) - 1 and output not in plan.first_by_held
        if is_early and not _is_free(output.term) and output.keys & plan.frame.inner:
            plan.first_by_held[output] = depth[output]
            plan.output_by_held[output] = i


def _hold_one(plan: Passes, order: list[Point]) -> bool:
    """Hold the largest point that several passes would compute; return whether there is one."""
    uses: dict[Point, list[int]] = {}
    for number in range(len(plan.passes)):
        for point in plan.computed(number):
            if not plan.is_known(point, number):
                uses.setdefault(point, []).append(number)
    held_terms = {point.term for point in plan.first_by_held}
    for point in reversed(order):
        axes = {axis for axis, keys in point.where.keys_by_axis.items() if keys & plan.frame.inner}
        again = uses.get(point, [])
        if len(again) > 1 and plan.fits(point) and is_worth_holding(point.term, axes, held_terms):
            plan.first_by_held[point] = again[0]
            plan.passes[again[0]].held.append(point)
            return True
    return False


def _hold_in_place(plan: Passes) -> None:
    """Hold rows where an output of their dtype will be written, once they have been read for the last time."""
    last = {p: number for number in range(len(plan.passes)) for p in plan.read_back(number)}
    places = range(0 if plan.frame.is_reduced else len(plan.outputs))
    free = set(places) - set(plan.output_by_held.values())
    for point, first in plan.first_by_held.items():
        for i in sorted(free if point not in plan.output_by_held else ()):
            written = next(number for number, step in enumerate(plan.passes) if i in step.outputs)
            if plan.outputs[i].term.dtype == point.term.dtype and first < written and last.get(point, first) <= written:
                plan.output_by_held[point] = i
                free.remove(i)
                break
