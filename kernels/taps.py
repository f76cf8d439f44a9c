"""Folds over a few places for tiles of neighbours, lanes along the last axis: windows of images with the channels last.

    for i in rows:                          all axes but the last two
        for x in tiles of the last axis but one:
            for j in vectors of the last axis:
                for k in turns:             the outermost axes that are folded, if there are many places
                    results[p] = fold over places of element(i, x + p, j, k, place)

Places are written out, so that what neighbours read in common is loaded once. The bodies are point-wise in the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod

from frittata.egraph import dtypes, program, shapes, terms
from frittata.egraph.indexing import Affine, var
from frittata.egraph.terms import Term
from frittata.kernels import memory, simd
from frittata.kernels.contractions import loads_at, split_index
from frittata.kernels.element_emitter import ElementEmitter
from frittata.kernels.flow import for_range, repeat
from frittata.kernels.index_values import Along
from frittata.kernels.intrinsics import operand_pointers, result_pointers
from frittata.kernels.points import Reduction, reduction
from frittata.kernels.processor import processor
from frittata.kernels.simd import I64, Builder, Lane, Value
from frittata.kernels.stencils import dim_at, only_fold
from frittata.kernels.stores import stored_at
from frittata.kernels.units import EXTREME_UNITS, SIMPLE_UNITS, gather_units, load_units, operator_units

_MOST_PLACES = 80
_MOST_FOLDED = 512
"""Places that are folded in all: more are left to other templates."""
_MOST_PIXELS = 7
_MOST_SUMS = 8
_MOST_STEPS = 700
"""Steps that are written out in a tile."""
_FUSED_UNITS = 0.9
"""What a multiply-add costs."""
_CLAMPED_UNITS = 0.8
"""What a load costs whose index may be clamped, if that is the same in all lanes."""

Place = Mapping[int, Affine]


@dataclass(frozen=True, eq=False)
class Taps:
    """What bodies compute: `hole` stands for the result of the fold in them; rows times pixels times columns."""

    bodies: tuple[Term, ...]
    hole: Term
    folded: Reduction
    shape: tuple[int, ...]

    @property
    def columns(self) -> int:
        """The extent of the last axis."""
        return self.shape[-1]

    @property
    def pixels(self) -> int:
        """The extent of the last axis but one."""
        return dim_at(self.shape, -2)

    @property
    def rows(self) -> int:
        """The places of the axes before."""
        return prod(self.shape[:-2])

    @cached_property
    def lanes(self) -> int:
        """The lanes of a vector: no more than the last axis needs."""
        sizes = [Lane(term.dtype).register_bytes for term in terms.walk(*self.bodies) if term.dtype != "bool"]
        return min(processor().width // min(sizes), 1 << (self.columns - 1).bit_length())

    @property
    def tile(self) -> int:
        """The pixels of a tile; the last tile of a row may overlap the one before it."""
        return -(-self.pixels // -(-self.pixels // _MOST_PIXELS))

    @property
    def tiles(self) -> int:
        """The tiles of a row."""
        return -(-self.pixels // self.tile)

    @property
    def vectors(self) -> int:
        """The vectors of columns that a tile takes side by side."""
        return max(1, min(-(-self.columns // self.lanes), _MOST_SUMS // self.tile))

    @cached_property
    def written(self) -> tuple[int, ...]:
        """The innermost of the axes that are folded, whose places are written out; the others are turns of a loop."""
        axes = tuple(sorted(self.folded.extent_by_axis))
        while len(axes) > 1 and not self._is_short(axes):
            axes = axes[1:]
        return axes

    def _is_short(self, axes: tuple[int, ...]) -> bool:
        count = prod(self.folded.extent_by_axis[axis] for axis in axes)
        return count <= _MOST_PLACES and count * self.tile * self.vectors <= _MOST_STEPS

    @property
    def is_few(self) -> bool:
        """Whether the places are few enough."""
        return self._is_short(self.written) and prod(self.folded.extent_by_axis.values()) <= _MOST_FOLDED

    @property
    def turns(self) -> int:
        """The turns of the loop over places."""
        return prod(extent for axis, extent in self.folded.extent_by_axis.items() if axis not in self.written)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The index on the axes that are folded, place by place, the last axis fastest, in terms of k."""
        outer = {axis: n for axis, n in self.folded.extent_by_axis.items() if axis not in self.written}
        turn = split_index("k", outer)
        every = product(*(range(self.folded.extent_by_axis[axis]) for axis in self.written))
        return tuple(turn | {axis: Affine(at) for axis, at in zip(self.written, place, strict=True)} for place in every)

    def index(self, pixel: int) -> dict[int, Affine]:
        """Return the index of a pixel of the tile at x, in terms of i, x and j."""
        leading = {axis: self.shape[axis] for axis in range(-len(self.shape), -2)}
        place = split_index("i", leading)
        place[-1] = var("j", self.columns)
        if len(self.shape) > 1:
            place[-2] = var("x", self.pixels - self.tile + 1) + pixel
        return place

    def steps(self) -> Iterator[tuple[int, Place]]:
        """Visit pixels with the index of each place: neighbours one after the other, so that few values are in use."""
        inner = self.folded.extent_by_axis[self.written[-1]]
        indices = [self.index(pixel) for pixel in range(self.tile)]
        for first in range(0, len(self.places), inner):
            for pixel, index in enumerate(indices):
                for place in self.places[first : first + inner]:
                    yield pixel, {**index, **place}

    @cached_property
    def units(self) -> float:
        """What all results take, in additions, lanes that are not used included."""
        element = self.folded.element
        loads, clamped, apart = self._shifted_loads() or self._loads()
        each = EXTREME_UNITS if self.folded.op in ("max", "min") else SIMPLE_UNITS
        each += _cost(element)
        if self.folded.op == "sum" and element.op == "mul":
            each += _FUSED_UNITS - 2 * SIMPLE_UNITS
        outside = max(0.0, _cost(*(body.args[0] for body in self.bodies)) - _cost(self.hole))
        own = sum(map(self._load_units, loads)) + _CLAMPED_UNITS * clamped + gather_units(self.lanes) * apart
        own += each * len(self.places) * self.tile
        own *= self.turns
        width = -(-self.columns // self.lanes) * self.lanes
        return self.rows * self.tiles * width * (own + (outside + SIMPLE_UNITS * len(self.bodies)) * self.tile)

    def _load_units(self, load: tuple[Term, Affine]) -> float:
        leaf, offset = load
        if offset.factor_of("j") in (0, 1):
            return SIMPLE_UNITS
        return load_units(offset, shapes.size(leaf.shape), "j", self.lanes)

    def _loads(self) -> tuple[set[tuple[Term, Affine]], int, int]:
        """Return the different loads of a tile, buffer and offset, how many may be clamped, and how many lane by lane.

        Those are still clamped far from the ends of all other axes.
        """
        loads: set[tuple[Term, Affine]] = set()
        clamped = apart = 0
        extents = {"i": self.rows, "x": self.pixels, "k": self.turns}
        middle: dict[int | str, Affine] = {key: Affine(extent // 2) for key, extent in extents.items()}
        places = [index for _, index in self.steps()]
        within = [{axis: at.substitute(middle) for axis, at in index.items()} for index in places]
        for leaf, offsets in loads_at((self.folded.element,), [*places, *within]):
            for offset, inside in zip(offsets[: len(places)], offsets[len(places) :], strict=True):
                if offset is not None:
                    loads.add((leaf, offset))
                else:
                    clamped += inside is not None
                    apart += inside is None
        return loads, clamped, apart

    def _shifted_loads(self) -> tuple[set[tuple[Term, Affine]], int, int] | None:
        """As `_loads`, quickly, where a pixel reads what its neighbour reads some elements further on."""
        loads: set[tuple[Term, Affine]] = set()
        index = self.index(0) | {-2: var("x", self.pixels)}
        for leaf, offsets in loads_at((self.folded.element,), [{**index, **place} for place in self.places]):
            for offset in offsets:
                step = None if offset is None else offset.factor_of("x")
                if offset is None or step is None:
                    return None
                loads.update((leaf, offset + pixel * step) for pixel in range(self.tile))
        return loads, 0, 0


def _cost(*elements: Term) -> float:
    """Return what the operators of elements cost that are not loads."""
    every = (term for term in terms.walk(*elements) if term.sort == "element" and term.op != "load")
    return sum(map(operator_units, every))


@lru_cache(maxsize=4096)
def describe(bodies: tuple[Term, ...]) -> Taps | None:
    """Return what bodies compute if they are point-wise in one fold over few places, none along the last axis."""
    hole = only_fold(bodies)
    if hole is None:
        return None
    folded, shape = reduction(hole), shapes.concrete(bodies[0].shape)
    bound = folded.extent_by_axis
    if not shape or shape[-1] == 1 or not bound or any(dim_at(shape, axis) != 1 for axis in bound):
        return None
    work = Taps(bodies, hole, folded, shape)
    if any(stored_at(body, work.index(0)).factor_of("j") != 1 for body in bodies):
        return None
    return work if work.is_few else None


class TapsEmitter:
    """Emits a tile at a builder's position. The table holds the operands of the bodies in order, then the results."""

    def __init__(self, builder: Builder, work: Taps, table: Value, i: Value, x: Value) -> None:
        self._builder, self._work = builder, work
        leaves = list(program.operands_of(*work.bodies))
        self._pointers = operand_pointers(builder, table, leaves)
        self._results = result_pointers(builder, table, len(leaves), work.bodies)
        self._variables: dict[int | str, Value] = {"i": i, "x": x}

    def emit(self) -> None:
        """Emit the loop over vectors, then those that are left, of which the last may be partial."""
        work, builder = self._work, self._builder
        turn = work.vectors * work.lanes
        full = work.columns - work.columns % turn

        def block(j: Value) -> None:
            for v in range(work.vectors):
                self._vector(builder.add(j, I64(v * work.lanes)), None)

        repeat(builder, 0, full, turn, block)
        for j in range(full, work.columns, work.lanes):
            valid = work.columns - j
            self._vector(I64(j), valid if valid < work.lanes else None)

    def _vector(self, j: Value, valid: int | None) -> None:
        work = self._work
        along = Along("j", work.lanes, work.lanes, valid)
        variables = {**self._variables, "j": j}
        neutral = simd.neutral(Lane(work.hole.dtype, work.lanes), work.folded.op)

        def turn(k: Value, totals: list[Value]) -> list[Value]:
            emitter = ElementEmitter(self._builder, self._pointers, {**variables, "k": k}, along)
            for pixel, index in work.steps():
                totals[pixel] = self._folded(emitter, totals[pixel], index)
            return totals

        totals = [neutral] * work.tile
        totals = turn(I64(0), totals) if work.turns == 1 else for_range(self._builder, 0, work.turns, 1, totals, turn)
        emitter = ElementEmitter(self._builder, self._pointers, variables, along)
        for pixel, total in enumerate(totals):
            self._store(emitter, work.index(pixel), total, valid)

    def _folded(self, emitter: ElementEmitter, total: Value, index: Place) -> Value:
        op, _, element = self._work.folded
        if op == "sum" and element.op == "mul" and dtypes.is_float(element.dtype):
            left, right = (emitter.emit(arg, index) for arg in element.args)
            return simd.fma(self._builder, left, right, total)
        return simd.COMBINE_BY_FOLD[op](self._builder, total, emitter.emit(element, index))

    def _store(self, emitter: ElementEmitter, index: Place, total: Value, valid: int | None) -> None:
        work = self._work
        emitter.know(work.hole, index, total)
        for body, pointer in zip(work.bodies, self._results, strict=True):
            value = emitter.emit(body.args[0], index)
            at = emitter.values.first(stored_at(body, index))
            memory.store_masked(self._builder, value, pointer, at, valid)
