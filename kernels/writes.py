"""Writing values to places along an axis, as source: a copy of what was there, then a step for each value, in order.

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
from frittata.kernels.chunks import indented, wanted_chunks

_UNITS_PER_NS = 10.0
"""What decides how many chunks there are: additions of vector code that would take as long."""
_LOOK_NS, _ELEMENT_NS, _NEIGHBOUR_NS = 0.8, 0.5, 0.15
"""To look up a place; to write one value by itself, and one of many side by side. Source: one core of Zen 4."""
_FEW = 8
"""Fewer values than these side by side are written one by one."""
_ENOUGH = 16
"""So many chunks are enough, if more of them would not be as long."""
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

    @property
    def cut(self) -> int | None:
        """The axis that falls into chunks: the first that is worth it, else the longest."""
        others = [a for a in range(len(self.shape)) if a != self.axis and self.shape[a] > 1]
        enough = [a for a in others if self.shape[a] >= min(self._wanted, _ENOUGH)]
        return enough[0] if enough else max(others, key=lambda a: self.shape[a], default=None)

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return 1 if self.cut is None else min(self._wanted, self.shape[self.cut])

    @property
    def nanoseconds(self) -> float:
        """What one core takes, without the copy."""
        inner = prod(self.source[self._looked + 1 :])
        each = _NEIGHBOUR_NS if inner >= _FEW else _ELEMENT_NS
        return prod(self.source) * (each + _LOOK_NS / inner)

    @property
    def units(self) -> float:
        """What all of it takes, in additions of vector code."""
        return self.nanoseconds * _UNITS_PER_NS + prod(self.shape)

    @property
    def _wanted(self) -> int:
        return wanted_chunks(self.units)

    @property
    def _looked(self) -> int:
        """The last axis that places vary along, -1 if there is one place."""
        return max((a for a, extent in enumerate(self.places) if extent > 1), default=-1)

    def lines(self) -> list[str]:
        """Write one chunk: reads `x`, `places` and `source`, writes `y`, and `status` where a place is refused."""
        return [*self._bounds(), *self._copy(), *self._writes()]

    def _bounds(self) -> list[str]:
        if self.chunks == 1 or self.cut is None:
            return []
        extent = self.shape[self.cut]
        return [f"low, high = chunk*{extent} // {self.chunks}, (chunk + 1)*{extent} // {self.chunks}"]

    def _range(self, axis: int, extent: int) -> str:
        if self.chunks == 1 or axis != self.cut:
            return f"range({extent})"
        return "range(low, high)" if extent == self.shape[axis] else f"range(low, min(high, {extent}))"

    def _copy(self) -> list[str]:
        """What is inside of the axis that is cut, or all of it, lies side by side."""
        if self.chunks == 1 or self.cut is None:
            return indented([f"for j in range({prod(self.shape)}):"], ["y[j] = x[j]"])
        inner = prod(self.shape[self.cut + 1 :])
        block = self.shape[self.cut] * inner
        bounds = ", ".join(f"{_times('i', block)} + {_times(end, inner)}" for end in ("low", "high"))
        inside = indented([f"for j in range({bounds}):"], ["y[j] = x[j]"])
        return indented([f"for i in range({prod(self.shape[: self.cut])}):"], inside)

    def _writes(self) -> list[str]:
        """Look each place up in the innermost loop that it depends on."""
        at = " + ".join(_times("n" if a == self.axis else f"a{a}", prod(self.shape[a + 1 :])) for a in self._axes)
        given = " + ".join(_times(f"a{a}", prod(self.source[a + 1 :])) for a in self._axes)
        lines = [f"at = {at}", f"value = source[{given}]", f"y[at] = {_COMBINED[self.reduce].format('y[at]', 'value')}"]
        for axis in reversed(self._axes):
            if axis == self._looked:
                lines = [*self._look_up(), *lines]
            lines = indented([f"for a{axis} in {self._range(axis, self.source[axis])}:"], lines)
        return [*self._look_up(), *lines] if self._looked < 0 else lines

    def _look_up(self) -> list[str]:
        varying = [a for a in self._axes if self.places[a] > 1]
        at = " + ".join(_times(f"a{a}", prod(self.places[a + 1 :])) for a in varying) or "0"
        last = self.shape[self.axis] - 1
        refuse = indented([f"if n < 0 or n > {last}:"], ["status[0] = n"])
        return [f"n = np.int64(places[{at}])", *refuse, f"n = min(max(n, 0), {last})"]

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
    return Writing(shape, places, source, rank + axis, reduce)


def _times(variable: str, stride: int) -> str:
    return f"{variable}*{stride}" if stride > 1 else variable
