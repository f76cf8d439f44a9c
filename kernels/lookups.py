"""Computed indices in kernels: variables that stand for the value of an element, and the places that check it.

An index that lies outside of its axis is clamped, so that no kernel reads foreign memory, and noted: a kernel has one
word of status for each of its look-ups, which holds 0 or an index that was refused. (0 itself is never outside.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha1

from frittata.egraph import program, terms
from frittata.egraph.errors import IndexRangeError
from frittata.egraph.indexing import Affine, var
from frittata.egraph.ops.indices import out_of_range
from frittata.egraph.terms import Term

Place = tuple[tuple[int, Affine], ...]
"""The part of an index that an element depends on."""


class LookedUp(str):
    """The name of a variable that holds the value of an integer element at a place, clamped to 0 .. extent - 1."""

    element: Term
    place: Place
    extent: int

    @property
    def origins(self) -> frozenset[int | str]:
        """The variables that the value depends on, of those that are no look-ups."""
        return depends_on(at for _, at in self.place)


@lru_cache(maxsize=4096)
def looked_up(element: Term, place: Place, extent: int) -> LookedUp:
    """Return the variable of an element's value: the same name for the same thing, in every process."""
    position: dict[Term, int] = {}
    rows: list[str] = [str(extent), *(f"{axis}: {at!r}" for axis, at in place)]
    for term in terms.walk(element):
        position[term] = len(position)
        rows.append(f"{term.op} {[position[arg] for arg in term.args]} {term.attrs} {term.type}")
    key = LookedUp(f"at_{sha1(repr(rows).encode()).hexdigest()[:16]}")
    key.element, key.place, key.extent = element, place, extent
    return key


def depends_on(indices: Iterable[Affine]) -> frozenset[int | str]:
    """Return the variables that indices depend on, through look-ups too."""
    found: set[int | str] = set()
    for at in indices:
        for key in at.variables():
            found |= key.origins if isinstance(key, LookedUp) else {key}
    return frozenset(found)


def lookups_in(indices: Iterable[Affine]) -> list[LookedUp]:
    """Return the look-ups that indices mention, in a fixed order."""
    return sorted({key for at in indices for key in at.variables() if isinstance(key, LookedUp)})


def as_index(key: LookedUp) -> Affine:
    """Return a looked-up value as an index; the only place of an axis of extent 1 is 0."""
    return var(key, key.extent)


Site = tuple[Term, int]
"""What is checked: an integer element against the extent of an axis."""


def sites(bodies: Iterable[Term]) -> dict[Site, int]:
    """Number what bodies look up: the place of each in the kernel's status."""
    found: dict[Site, int] = {}
    for term in terms.walk(*bodies):
        if term.op == "at":
            found.setdefault((term.args[1], term.attrs[1]), len(found))
        elif term.op == "scatter":
            found.setdefault((term.args[1], term.shape[term.attrs[0]]), len(found))
    return found


@dataclass(frozen=True)
class Check:
    """One word of status: which kernel looks up, in which buffers it reads the indices, and the extent of the axis."""

    kernel: str
    buffers: tuple[str, ...]
    extent: int

    def error(self, index: int) -> IndexRangeError:
        """Return what to raise for an index that was refused."""
        names = ", ".join(self.buffers)
        return out_of_range(index, self.extent, f"kernel {self.kernel}" + (f", indices from {names}" if names else ""))


def checks(kernel: program.Kernel) -> list[Check]:
    """Return what the words of a kernel's status stand for."""
    return checks_of(kernel.name, tuple(output.body for output in kernel.outputs))


def checks_of(name: str, bodies: tuple[Term, ...]) -> list[Check]:
    """Return what the words of the status of a kernel of this name stand for."""
    return [
        Check(name, tuple(leaf.attrs[0] for leaf in program.operands_of(element)), extent)
        for element, extent in sites(bodies)
    ]
