"""Writing values to places along an axis, as source: a copy of what was there, then a step for each value, in order.

    if y is not x:
        y = x
    for i in source:
        fold source[i] into y[i with places[i] on the axis]

One of the other axes falls into chunks, so that no two of them write to one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from frittata.egraph import shapes
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Term
from frittata.kernels import memory, simd
from frittata.kernels.chunks import indented, wanted_chunks
from frittata.kernels.flow import repeat
from frittata.kernels.intrinsics import table_pointer
from frittata.kernels.processor import processor
from frittata.kernels.simd import I64, Builder, Lane, Value

_LOOK_STEPS, _ELEMENT_STEPS, _VECTOR_STEPS = 4.0, 1.0, 9.0
"""To look up a place, to write one value, and a vector of values side by side.

Source: one core of Zen 4, 0.23 ns a step; 1.2 to 4 times what was measured, as the prices of the scatter template are,
which takes as long where both take a body.
"""
_PIECE_BYTES = 1024
"""The shortest piece of a line that is left to one core: what is fetched ahead beyond it another one may write."""
_MOST_UNROLLED = 8
_COMBINED = {
    "set": "{1}",
    "sum": "{0} + {1}",
    "prod": "{0} * {1}",
    "max": "{1} if {1} > {0} or {1} != {1} else {0}",
    "min": "{1} if {1} < {0} or {1} != {1} else {0}",
}


@dataclass(frozen=True)
class Writing:
    """What is written: shapes of all three operands, of one rank, the axis of the places, and how values combine."""

    shape: tuple[int, ...]
    places: tuple[int, ...]
    source: tuple[int, ...]
    axis: int
    reduce: str
    dtype: str

    @property
    def cut(self) -> int:
        """The axis that falls into chunks: the first of those with the most."""
        return max(self._axes, key=self._pieces)

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return self._pieces(self.cut)

    def _pieces(self, axis: int) -> int:
        """Return how many chunks an axis can be cut into: what is beyond that of the places, only into long pieces."""
        most = 1 if axis == self.axis else min(self._wanted, self.shape[axis])
        if axis <= self.axis:
            return most
        return max(1, min(most, prod(self.shape[axis:]) * Lane(self.dtype).itemsize // _PIECE_BYTES))

    @property
    def has_lines(self) -> bool:
        """Whether values along the last axis go to neighbours, and all of them from one chunk: they go in vectors."""
        return self._are_neighbours and (self.chunks == 1 or self.cut != len(self.shape) - 1)

    @property
    def _are_neighbours(self) -> bool:
        return len(self.shape) - 1 > max(self.axis, self._looked)

    @property
    def units(self) -> float:
        """What all of it takes, in additions of vector code: a step takes the time of a vector."""
        lines = prod(self.source[: self._looked + 1])
        inner = prod(self.source) // lines
        vectors = -(-inner // self.lanes) * _VECTOR_STEPS if self._are_neighbours else inner * _ELEMENT_STEPS
        return lines * (_LOOK_STEPS + vectors) * (processor().width // 4) + prod(self.shape)

    @property
    def lanes(self) -> int:
        """The lanes of a vector of values side by side."""
        count = self.source[-1]
        return min(processor().width // Lane(self.dtype).register_bytes, 1 << (count - 1).bit_length())

    @property
    def _wanted(self) -> int:
        return wanted_chunks(self.units)

    @property
    def _looked(self) -> int:
        """The last axis that places vary along, -1 if there is one place."""
        return max((a for a, extent in enumerate(self.places) if extent > 1), default=-1)

    def lines(self) -> list[str]:
        """Write one chunk: reads `x`, `places` and `source`, writes `y`, and `status` where a place is refused.

        `base` and `result` are the entries of x and y in the table: where both are one address, nothing is copied.
        """
        return [*self._bounds(), *self._copy(), *self._writes()]

    def _bounds(self) -> list[str]:
        if self.chunks == 1:
            return []
        extent = self.shape[self.cut]
        return [f"low, high = chunk*{extent} // {self.chunks}, (chunk + 1)*{extent} // {self.chunks}"]

    def _range(self, axis: int, extent: int) -> str:
        if self.chunks == 1 or axis != self.cut:
            return f"range({extent})"
        return "range(low, high)" if extent == self.shape[axis] else f"range(low, min(high, {extent}))"

    def _copy(self) -> list[str]:
        """What is inside of the axis that is cut, or all of it, lies side by side."""
        return indented(["if table[result] != table[base]:"], self._copies())

    def _copies(self) -> list[str]:
        if self.chunks == 1:
            return indented([f"for j in range({prod(self.shape)}):"], ["y[j] = x[j]"])
        inner = prod(self.shape[self.cut + 1 :])
        block = self.shape[self.cut] * inner
        bounds = ", ".join(f"{_times('i', block)} + {_times(end, inner)}" for end in ("low", "high"))
        inside = indented([f"for j in range({bounds}):"], ["y[j] = x[j]"])
        return indented([f"for i in range({prod(self.shape[: self.cut])}):"], inside)

    def _writes(self) -> list[str]:
        """Look each place up in the innermost loop that it depends on."""
        axes = self._axes[:-1] if self.has_lines else self._axes
        at = " + ".join(_times("n" if a == self.axis else f"a{a}", prod(self.shape[a + 1 :])) for a in axes)
        given = " + ".join(_times(f"a{a}", prod(self.source[a + 1 :])) for a in axes)
        if self.has_lines:
            lines = [f"line(table, {at}, {given})"]
        else:
            combined = _COMBINED[self.reduce].format("y[at]", "value")
            lines = [f"at = {at}", f"value = source[{given}]", f"y[at] = {combined}"]
        for axis in reversed(axes):
            if axis == self._looked:
                lines = self._looked_up(lines)
            lines = indented([f"for a{axis} in {self._range(axis, self.source[axis])}:"], lines)
        return self._looked_up(lines) if self._looked < 0 else lines

    def _looked_up(self, lines: list[str]) -> list[str]:
        """Write at a place, or nothing and note the place if there is none."""
        varying = [a for a in self._axes if self.places[a] > 1]
        at = " + ".join(_times(f"a{a}", prod(self.places[a + 1 :])) for a in varying) or "0"
        last = self.shape[self.axis] - 1
        refuse = indented([f"if n < 0 or n > {last}:"], ["status[0] = n"])
        return [f"n = np.int64(places[{at}])", *refuse, *indented(["else:"], lines)]

    @property
    def _axes(self) -> range:
        return range(len(self.shape))


def describe(bodies: tuple[Term, ...]) -> Writing | None:
    """Return what a body writes, None for other bodies. Axes that lie side by side, beyond all others, are one."""
    if len(bodies) != 1 or bodies[0].op != "scatter":
        return None
    (body,) = bodies
    if any(isinstance(dim, Sym) for arg in body.args for dim in arg.shape) or not shapes.size(body.args[2].shape):
        return None
    shape, places, source = (shapes.concrete(arg.shape) for arg in body.args)
    rank, (axis, reduce) = len(shape), body.attrs
    end = rank
    while end - 1 > rank + axis and places[end - 1] == 1 and source[end - 1] == shape[end - 1]:
        end -= 1
    if end < rank:
        shape, places, source = (
            (*shape[:end], prod(shape[end:])),
            (*places[:end], 1),
            (*source[:end], prod(source[end:])),
        )
    return Writing(shape, places, source, rank + axis, reduce, body.dtype)


def emit_line(
    builder: Builder, table: Value, at: Value, given: Value, work: Writing, position: int, result: int
) -> None:
    """Write the values of a line side by side; `position` and `result` are the entries of source and result."""
    count, lanes = work.source[-1], work.lanes
    lane = Lane(work.dtype, lanes)
    source, target = (table_pointer(builder, table, entry, work.dtype) for entry in (position, result))

    def write(first: Value, valid: int) -> None:
        to = builder.add(at, first)
        value = memory.load_masked(builder, lane, source, builder.add(given, first), valid)
        if work.reduce != "set":
            before = memory.load_masked(builder, lane, target, to, valid)
            value = simd.COMBINE_BY_FOLD[work.reduce](builder, before, value)
        memory.store_masked(builder, value, target, to, valid)

    full = count - count % lanes
    if full <= _MOST_UNROLLED * lanes:
        for first in range(0, full, lanes):
            write(I64(first), lanes)
    else:
        repeat(builder, 0, full, lanes, lambda first: write(first, lanes))
    if full < count:
        write(I64(full), count - full)


def _times(variable: str, stride: int) -> str:
    return f"{variable}*{stride}" if stride > 1 else variable
