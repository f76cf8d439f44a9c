"""The sides of a product on their way into shared memory: which thread loads what, and how it stores it there.

A thread loads the same places of every slice, in pieces of one element or of four neighbours in memory, along the depth
or along the rows or columns. Neighbouring threads load what lies together in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

from frittata.egraph import dtypes
from frittata.egraph.indexing import Affine, var
from frittata.egraph.terms import Scalar, Term
from frittata.kernels import spelling
from frittata.kernels.contractions import Contraction, Side, loads_of
from frittata.kernels.cuda.digits import Digits, take_digits
from frittata.kernels.cuda.kernel import ceil_div
from frittata.kernels.cuda.neighbours import are_neighbours, at_places
from frittata.kernels.cuda.quads import QUAD
from frittata.kernels.cuda.tiles import Tile
from frittata.kernels.loops import Statement


@dataclass(frozen=True)
class Filling:
    """How the threads of a block load the slices of one side, `left` or `right`."""

    name: str
    work: Contraction
    tile: Tile

    @property
    def _is_left(self) -> bool:
        return self.name == "left"

    @property
    def _side(self) -> Side:
        return self.work.left if self._is_left else self.work.right

    @property
    def _index(self) -> str:
        """The variable that counts rows or columns."""
        return "i" if self._is_left else "j"

    @property
    def extent(self) -> int:
        """The rows or columns of the whole side."""
        return self.work.rows if self._is_left else self.work.columns

    @property
    def rows(self) -> int:
        """The rows or columns of a tile."""
        return self.tile.rows if self._is_left else self.tile.columns

    @cached_property
    def is_deep(self) -> bool:
        """Whether neighbouring threads load along the depth: so most of what they load lies in memory."""
        return self._side.lies_along("k", self.work.depth, (self._index, self.extent))

    @cached_property
    def width(self) -> int:
        """How many neighbours a piece has: four where most loads are of four neighbours, else one."""
        extent = self.work.depth if self.is_deep else self.extent
        is_small = self.rows * self.tile.depth < QUAD * self.tile.team
        if extent % QUAD or is_small or not dtypes.is_float(self.work.dtype):
            return 1
        names = ("k", self._index) if self.is_deep else (self._index, "k")
        extents = (extent // QUAD, self.extent if self.is_deep else self.work.depth)
        quad, other = (var(name, n) for name, n in zip(names, extents, strict=True))
        places: list[dict[int | str, Affine]] = [{names[0]: quad * QUAD + e, names[1]: other} for e in range(QUAD)]
        loads = [loads_of(self._side.element, index=at_places(self._side.index, place)) for place in places]
        joined = [are_neighbours([offset for _, offset in quad]) for quad in zip(*loads, strict=True)]
        return QUAD if joined.count(True) * 2 > len(joined) else 1

    @property
    def pitch(self) -> int:
        """The distance of slices in shared memory: more than they take where threads along the depth fill them."""
        return self.rows + (QUAD if self.is_deep else 0)

    @property
    def size(self) -> int:
        """The elements of a tile in shared memory."""
        return self.pitch * self.tile.depth

    @property
    def shared_size(self) -> int:
        """The elements in shared memory: two slices for each team."""
        return 2 * self.size * self.tile.teams

    @property
    def _is_ragged(self) -> bool:
        """Whether the last slices reach beyond the depth."""
        return self.tile.slices(self.work) * self.tile.depth * self.tile.teams != self.work.depth

    @property
    def _span(self) -> int:
        """How many pieces follow each other in memory."""
        return (self.tile.depth if self.is_deep else self.rows) // self.width

    @cached_property
    def _pieces(self) -> list[tuple[int, int]]:
        """How far each piece of a thread is from its first, in pieces: along rows or columns, and along the depth."""
        threads = self.tile.team
        count = self.rows * self.tile.depth // (threads * self.width)
        moved = [divmod(n * threads, self._span) for n in range(count)]
        return [(outer, inner) if self.is_deep else (inner, outer) for outer, inner in moved]

    @property
    def _widths(self) -> tuple[int, int]:
        """How many elements one step of a variable is: along rows or columns, and along the depth."""
        return (1, self.width) if self.is_deep else (self.width, 1)

    @property
    def variables(self) -> list[str]:
        """The variables that are known outside of the loop over slices."""
        return [f"{self._index}{along}" for along in sorted({along for along, _ in self._pieces})]

    def head(self) -> Iterator[str]:
        """Yield what is known outside of the loop: the place of a thread, its rows or columns."""
        is_one = self.tile.team <= self._span
        at = ("0", "thread") if is_one else (f"thread // {self._span}", f"thread % {self._span}")
        along, deep = at if self.is_deep else reversed(at)
        name, (width, depth_width) = self.name, self._widths
        yield f"{name}_along = {along}"
        yield f"{name}_deep = {deep}"
        place = f"{name}_deep*{self.pitch * depth_width} + {name}_along*{width}"
        yield f"{name}_place = {place}{self.tile.of_team(self.size)}"
        last = self.extent // width - 1
        for there in sorted({there for there, _ in self._pieces}):
            at_ = f"first_{self._index}*{self.rows // width} + {name}_along" + (f" + {there}" if there else "")
            yield f"{self._index}{there} = " + (f"min({at_}, {last})" if self.extent % self.rows else at_)

    def digits(self, body: list[Statement]) -> Digits | None:
        """Let a block that loads a slice read the digits of the depth, in place, if that is a gain."""
        if self._widths[1] > 1 or self.tile.team < self.tile.depth:
            return None
        further_by_key = {f"{self.name}_k{deep}": deep for deep in self._deeps}
        return take_digits(body, f"{self.name}_digits", further_by_key, self.work, self.tile)

    @property
    def _deeps(self) -> list[int]:
        return sorted({deep for _, deep in self._pieces})

    def depths(self, read: Collection[str], digits: Digits | None) -> Iterator[str]:
        """Yield the places of a thread along the depth of the next slice, of variables that are `read`."""
        width = self._widths[1]
        last = self.work.depth // width - 1
        for deep in self._deeps:
            if digits:
                yield digits.read(f"{self.name}_deep", deep)
            if not self._is_ragged and f"{self.name}_k{deep}" not in read:
                continue
            step = self.tile.depth // width
            at = f"{self.tile.begin(self.work, step)}step*{step} + {self.name}_deep" + (f" + {deep}" if deep else "")
            yield f"{self.name}_k{deep} = int32({at})"
            if self._is_ragged:
                yield f"{self.name}_inside{deep} = {self.name}_k{deep} <= int32({last})"
                yield f"{self.name}_k{deep} = min({self.name}_k{deep}, int32({last}))"

    def stores(self) -> Iterator[tuple[str, Affine, Term, dict[int, Affine]]]:
        """Yield what a thread loads as stores to places that are named after their number."""
        width, depth_width = self._widths
        for number, (along, deep) in enumerate(self._pieces):
            for e in range(self.width):
                row = var(f"{self._index}{along}", ceil_div(self.extent, width)) * width
                k = var(f"{self.name}_k{deep}", self.work.depth // depth_width) * depth_width
                place: dict[int | str, Affine] = {
                    self._index: row + (0 if self.is_deep else e),
                    "k": k + (e if self.is_deep else 0),
                }
                index = at_places(self._side.index, place)
                yield f"{self.name}{number * self.width + e}", Affine(), self._side.element, index

    def limits(self) -> Iterator[str]:
        """Yield what makes zero of values beyond the depth."""
        if self._is_ragged:
            zero = spelling.constant(Scalar.of(0, self.work.dtype))
            for number, (_, deep) in enumerate(self._pieces):
                for e in range(self.width):
                    name = f"{self.name}{number * self.width + e}"
                    yield f"{name} = {name} if {self.name}_inside{deep} else {zero}"

    def shares(self) -> Iterator[str]:
        """Yield what puts the loaded values into shared memory."""
        width, depth_width = self._widths
        yield f"{self.name}_to = uint32(half*{self.size} + {self.name}_place)"
        for number, (along, deep) in enumerate(self._pieces):
            at = deep * depth_width * self.pitch + along * width
            names = [f"{self.name}{number * self.width + e}" for e in range(self.width)]
            if self.width > 1 and not self.is_deep:
                yield f"put_quad({self.name}, {self.name}_to, {at}, ({', '.join(names)}))"
            else:
                for e, name in enumerate(names):
                    yield f"put({self.name}, {self.name}_to, {at + e * self.pitch}, {name})"
