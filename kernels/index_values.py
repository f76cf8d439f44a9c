"""Index expressions as LLVM integers: scalars, or one value a lane where the lanes run along a variable."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from math import gcd

from frittata.egraph.indexing import Affine, Atom, Clamp, Quot, Rem, Var, var
from frittata.kernels import simd
from frittata.kernels.simd import I64, Builder, Index, Value


@dataclass(frozen=True, eq=False)
class Along:
    """The variable that grows by one from lane to lane.

    `multiple` divides its value in lane 0. Memory is read for the first `valid` lanes only, for all if it is None.
    """

    key: int | str
    lanes: int
    multiple: int = 1
    valid: Index | None = None


@dataclass(eq=False)
class IndexValues:
    """The values of variables, that along the lanes in lane 0, and of expressions of them."""

    builder: Builder
    scalar_by_key: dict[int | str, Value]
    along: Along | None = None
    origins: dict[int | str, set[int | str]] = field(default_factory=dict[int | str, set[int | str]])
    """What the variables that stand for clamped expressions depend on."""
    _defined: set[int | str] = field(default_factory=set[int | str])
    _vector_by_key: dict[int | str, Value] = field(default_factory=dict[int | str, Value])
    _known: dict[tuple[Affine, bool], Value] = field(default_factory=dict[tuple[Affine, bool], Value])
    _clamped: dict[tuple[Affine, int], Affine] = field(default_factory=dict[tuple[Affine, int], Affine])

    @property
    def lanes(self) -> int:
        """How many lanes there are."""
        return self.along.lanes if self.along is not None else 1

    def value(self, at: Affine) -> Value:
        """Return the value of an expression; it has one lane if it is the same in all."""
        return self._value(at, wide=self.slope(at) != 0)

    def first(self, at: Affine) -> Value:
        """Return the value of an expression in lane 0."""
        return self._value(at, wide=False)

    def slope(self, at: Affine) -> int | None:
        """Return by how much an expression grows from lane to lane, None if not by the same everywhere."""
        total = 0
        for atom, factor in at.terms:
            growth = self._atom_slope(atom)
            if growth is None:
                return None
            total += growth * factor
        return total

    def steps(self, at: Affine) -> tuple[int, ...] | None:
        """Return by how much an expression is larger in each lane than in lane 0, None if that is not known."""
        totals = [0] * self.lanes
        for atom, factor in at.terms:
            steps = self._atom_steps(atom)
            if steps is None:
                return None
            totals = [total + factor * step for total, step in zip(totals, steps, strict=True)]
        return tuple(totals)

    def block(self, at: Affine, size: int) -> tuple[int, tuple[int, ...]] | None:
        """Find what an expression of 0 .. size - 1 is in all lanes in one block of so many, aligned to its length.

        Returns (length, the place of each lane in the block), the length a power of two up to the lanes; None if there
        is none, or the last block would end after `size`.
        """
        steps = self.steps(at)
        if steps is None:
            return None
        modulus, residue = self._residue(at)
        length = 1
        while length <= self.lanes and size % length == 0 and modulus % length == 0:
            places = tuple(residue % length + step for step in steps)
            if min(places) >= 0 and max(places) < length:
                return length, places
            length *= 2
        return None

    def moving(self, along: Along | None) -> set[int | str]:
        """Return the variables whose values in lanes are others once the lanes run along `along`."""
        if along is self.along:
            return set()
        moving = {a.key for a in (self.along, along) if a is not None}
        return moving | {key for key, origin in self.origins.items() if origin & moving}

    def knows(self, key: int | str) -> bool:
        """Whether a variable has a value for the present lanes."""
        return key in self._defined

    def define(self, key: int | str, value: Value, origins: Set[int | str]) -> None:
        """Give a variable a value, which may differ from lane to lane; `origins` are what it depends on."""
        self._defined.add(key)
        self.origins[key] = set(origins)
        self.scalar_by_key[key] = simd.extract(self.builder, value, 0)
        if simd.lane_of(value).lanes > 1:
            self._vector_by_key[key] = value

    def keep_vectors(self, outer: IndexValues, along: Along | None) -> None:
        """Take over what was defined outside and is the same here, where the lanes run along `along`."""
        moving = outer.moving(along)
        for key in outer._defined - moving:
            self._defined.add(key)
            if key in outer._vector_by_key:
                self._vector_by_key[key] = outer._vector_by_key[key]

    def clamped(self, index: Mapping[int, Affine], axis: int, extent: int) -> Affine:
        """Return the index on an axis, clamped to 0 .. extent - 1 where it could lie outside."""
        at = index.get(axis, Affine())
        low, high = at.bounds()
        if extent == 1 or (low >= 0 and high < extent):
            return at if extent != 1 else Affine()
        if not at.terms:
            return Affine(min(max(at.constant, 0), extent - 1))
        if (at, extent) not in self._clamped:
            self._clamped[at, extent] = self._clamp(at, extent)
        return self._clamped[at, extent]

    def _clamp(self, at: Affine, extent: int) -> Affine:
        key = f"clamped({at}, {extent})"
        self.origins[key] = at.variables().union(*(self.origins.get(k, set()) for k in at.variables()))
        value = self._limited(self.value(at), extent)
        self.scalar_by_key[key] = simd.extract(self.builder, value, 0)
        if simd.lane_of(value).lanes > 1:
            self._vector_by_key[key] = value
        return var(key, extent)

    def _limited(self, value: Value, extent: int) -> Value:
        low, high = simd.constant_like(value, 0), simd.constant_like(value, extent - 1)
        return simd.minimum(self.builder, simd.maximum(self.builder, value, low), high)

    # ---- how an expression moves from lane to lane -------------------------------------------------------------------

    def _atom_slope(self, atom: Atom) -> int | None:
        if isinstance(atom, Var):
            if self.along is not None and atom.key == self.along.key:
                return 1
            return None if atom.key in self._vector_by_key else 0
        inner = self.slope(atom.of)
        if inner == 0:
            return 0
        if inner != 1 or isinstance(atom, Clamp) or not self._stays_in_block(atom.of, atom.by):
            return None
        return 0 if isinstance(atom, Quot) else 1

    def _atom_steps(self, atom: Atom) -> tuple[int, ...] | None:
        slope = self._atom_slope(atom)
        if slope is not None:
            return tuple(slope * lane for lane in range(self.lanes))
        if isinstance(atom, Var | Clamp):
            return None
        steps = self.steps(atom.of)
        modulus, residue = self._residue(atom.of)
        modulus = gcd(modulus, atom.by)
        first = residue % modulus
        if steps is None or (modulus < atom.by and not all(0 <= first + step < modulus for step in steps)):
            return None
        if isinstance(atom, Quot):
            return tuple((first + step) // atom.by for step in steps)
        return tuple((first + step) % atom.by - first for step in steps)

    def _stays_in_block(self, at: Affine, by: int) -> bool:
        """Whether no lane of an expression that grows by one starts another block of `by`."""
        modulus, residue = self._residue(at)
        modulus = gcd(modulus, by)
        return residue % modulus + self.lanes <= modulus

    def _residue(self, at: Affine) -> tuple[int, int]:
        """Return (m, r) such that the value in lane 0 is r modulo m; modulo 0 it is r itself."""
        modulus, residue = 0, at.constant
        for atom, factor in at.terms:
            step, rest = self._atom_residue(atom)
            modulus, residue = gcd(modulus, step * factor), residue + rest * factor
        return modulus, residue

    def _atom_residue(self, atom: Atom) -> tuple[int, int]:
        if isinstance(atom, Var):
            return (self.along.multiple if self.along is not None and atom.key == self.along.key else 1), 0
        if isinstance(atom, Clamp):
            return 1, 0
        modulus, residue = self._residue(atom.of)
        if isinstance(atom, Rem):
            return gcd(modulus, atom.by), residue
        return (1, 0) if modulus % atom.by else (modulus // atom.by, residue // atom.by)

    # ---- values ------------------------------------------------------------------------------------------------------

    def _value(self, at: Affine, *, wide: bool) -> Value:
        if (at, wide) not in self._known:
            self._known[at, wide] = self._sum(at, wide=wide)
        return self._known[at, wide]

    def _sum(self, at: Affine, *, wide: bool) -> Value:
        builder, total = self.builder, None
        for atom, factor in at.terms:
            term = self._atom(atom, wide=wide)
            if factor != 1:
                term = builder.mul(term, simd.constant_like(term, factor), flags=["nsw"])
            total = term if total is None else builder.add(total, term, flags=["nsw"])
        if total is None:
            return self._constant(at.constant, wide=wide)
        return builder.add(total, simd.constant_like(total, at.constant), flags=["nsw"]) if at.constant else total

    def _constant(self, number: int, *, wide: bool) -> Value:
        return simd.constant(simd.Lane("i64", self.lanes if wide else 1), number)

    def _atom(self, atom: Atom, *, wide: bool) -> Value:
        if isinstance(atom, Var):
            return self._variable(atom.key, wide=wide)
        builder = self.builder
        inner = self._value(atom.of, wide=wide)
        if isinstance(atom, Clamp):
            return self._limited(inner, atom.by)
        by = simd.constant_like(inner, atom.by)
        if atom.of.bounds()[0] >= 0:
            return builder.udiv(inner, by) if isinstance(atom, Quot) else builder.urem(inner, by)
        rest = builder.srem(inner, by)
        rest = builder.select(
            simd.compare(builder, "<", rest, simd.constant_like(rest, 0)), builder.add(rest, by), rest
        )
        return rest if isinstance(atom, Rem) else builder.sdiv(builder.sub(inner, rest), by)

    def _variable(self, key: int | str, *, wide: bool) -> Value:
        scalar = self.scalar_by_key[key]
        if not wide:
            return scalar
        if key in self._vector_by_key:
            return self._vector_by_key[key]
        spread = simd.splat(self.builder, scalar, self.lanes)
        if self.along is None or key != self.along.key:
            return spread
        return self.builder.add(spread, self._lane_numbers())

    def _lane_numbers(self) -> Value:
        """Return 0, 1, 2, ...; lanes that are not valid repeat the last that is, so that their offsets can be read."""
        numbers = simd.lane_numbers(self.lanes)
        valid = self.along.valid if self.along is not None else None
        if valid is None:
            return numbers
        last = self.builder.sub(simd.as_index(valid), I64(1))
        return simd.minimum(self.builder, numbers, simd.splat(self.builder, last, self.lanes))
