"""Digits of the depth: what indices of a side divide out of it, such as channel, line and column of a window.

Each takes a division for every element that is loaded. Instead a few threads compute the digits of each place of a
slice, one slice ahead, and all read them from shared memory as one quad.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from frittata.egraph.indexing import Affine, Atom, Clamp, Quot, Var, var
from frittata.kernels.contractions import Contraction
from frittata.kernels.cuda.quads import QUAD
from frittata.kernels.cuda.tiles import Tile
from frittata.kernels.cuda.writing import Writer, change_indices, name_quotients
from frittata.kernels.loops import AssignIndex, Statement


@dataclass(frozen=True)
class Digits:
    """Functions of the variable "k", no more than a quad of them."""

    name: str
    functions: tuple[Affine, ...]
    work: Contraction
    tile: Tile

    @property
    def _size(self) -> int:
        """The numbers of a slice."""
        return QUAD * self.tile.depth

    def head(self) -> Iterator[str]:
        """Yield the shared memory of two slices for each team, and what fills the first."""
        yield f"{self.name} = cuda.shared.array({2 * self._size * self.tile.teams}, np.int32, alignment=16)"
        yield from self.fill("0")

    def fill(self, step: str) -> Iterator[str]:
        """Yield what computes the digits of a slice."""
        body: list[Statement] = [AssignIndex(f"{self.name}_{n}", at) for n, at in enumerate(self.functions)]
        depth, tile = self.tile.depth, self.tile
        yield f"if thread < {depth}:"
        yield f"    k = int32(min({tile.begin(self.work, depth)}{step}*{depth} + thread, {self.work.depth - 1}))"
        yield f"    {self.name}_to = uint32({step} % 2 * {self._size} + thread*{QUAD}{tile.of_team(self._size)})"
        yield from (f"    {line}" for line in Writer().write(name_quotients(body, ["k"], f"{self.name}_q"), 0))
        for n in range(len(self.functions)):
            yield f"    put({self.name}, {self.name}_to, {n}, np.int32({self.name}_{n}))"

    def read(self, place: str, further: int) -> str:
        """Read the digits of so many places further than that of a thread's first piece."""
        at = f"uint32(half*{self._size} + {place}*{QUAD}{self.tile.of_team(self._size)})"
        return f"{self.name}{further} = shared_quad({self.name}, {at}, {QUAD * further})"


def take_digits(
    body: list[Statement], name: str, further_by_key: Mapping[str, int], work: Contraction, tile: Tile
) -> Digits | None:
    """Let a block read the digits of variables along the depth, in place; None and no change if that is no gain."""
    functions: dict[Affine, int] = {}

    def note(at: Affine, key: str) -> Affine:
        of_k = at.substitute({key: var("k", work.depth)})
        place = functions.setdefault(of_k, len(functions))
        return var(f"{name}{further_by_key[key]}[{place}]", int(at.bounds()[1]) + 1)

    def change(at: Affine) -> Affine:
        out = Affine(at.constant)
        for atom, factor in at.terms:
            out += changed(atom) * factor
        return out

    def changed(atom: Atom) -> Affine:
        whole = Affine(0, ((atom, 1),))
        if isinstance(atom, Var):
            return whole
        keys = whole.variables()
        (key,) = keys if len(keys) == 1 else (None,)
        if isinstance(key, str) and key in further_by_key and whole.bounds()[0] >= 0:
            return note(whole, key)
        of = change(atom.of)
        if isinstance(atom, Clamp):
            return of.clamped(atom.by)
        return of // atom.by if isinstance(atom, Quot) else of % atom.by

    def look(at: Affine) -> Affine:
        change(at)
        return at

    for statement in body:
        change_indices(statement, look)
    if not 2 <= len(functions) <= QUAD:
        return None
    for statement in body:
        change_indices(statement, change)
    return Digits(name, tuple(functions), work, tile)
