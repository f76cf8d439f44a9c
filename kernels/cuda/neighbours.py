"""Four neighbours at a time: indices that count quads, and loads and stores that join because of it.

    t0 = x[uint32(i*64 + j0*4)] + 1               quad0 = load_quad(x, uint32(i*64 + j0*4))
    ...                                     ->    t0 = quad0[0] + 1
    t3 = x[uint32(i*64 + j0*4 + 3)] + 1           ...
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd

from frittata.egraph.indexing import Affine, Atom, Clamp, Quot, Var
from frittata.kernels.contractions import Index
from frittata.kernels.cuda.quads import QUAD
from frittata.kernels.cuda.writing import Writer
from frittata.kernels.loops import Apply, Expression, Load, Local, Statement, Store, map_values, values_of

Quad = tuple[str, Affine]
"""An array, and where the quad begins in it."""


def at_places(index: Index, place_by_key: Mapping[int | str, Affine]) -> dict[int, Affine]:
    """Substitute variables in an index, and take common factors out of quotients: (4*q + 1) // 56 -> q // 14."""
    return {axis: _reduced(at.substitute(place_by_key)) for axis, at in index.items()}


def _reduced(at: Affine) -> Affine:
    out = Affine(at.constant)
    for atom, factor in at.terms:
        out += _reduced_atom(atom) * factor
    return out


def _reduced_atom(atom: Atom) -> Affine:
    if isinstance(atom, Var):
        return Affine(0, ((atom, 1),))
    of = _reduced(atom.of)
    if isinstance(atom, Clamp):
        return of.clamped(atom.by)
    common = gcd(atom.by, *(factor for _, factor in of.terms))
    rest = of.constant % common
    of = Affine(of.constant // common, tuple((inner, factor // common) for inner, factor in of.terms))
    if isinstance(atom, Quot):
        return of // (atom.by // common)
    return of % (atom.by // common) * common + rest


def are_neighbours(offsets: Sequence[Affine | None]) -> bool:
    """Whether offsets are those of a quad."""
    found = [_reduced(offset) for offset in offsets if offset is not None]
    if len(found) < len(offsets) or _start(found[0]) != found[0]:
        return False
    return all(offset == found[0] + e for e, offset in enumerate(found))


def reduce_loads(body: list[Statement]) -> None:
    """Take common factors out of the quotients in offsets of loads, in place."""
    map_values(body, lambda value: replace(value, offset=_reduced(value.offset)) if isinstance(value, Load) else value)


def _start(offset: Affine) -> Affine | None:
    """Return where the quad begins that an offset lies in; None if that is not known."""
    if any(factor % QUAD for _, factor in offset.terms):
        return None
    return offset + -(offset.constant % QUAD)


def write(body: list[Statement], writer: Writer, arrays: Collection[str]) -> Iterator[str]:
    """Yield the lines of a block without loops, whose loads and stores of `arrays` join; it stores at its end."""
    loads = [load for statement in body for load in _loads(statement)]
    stores = [s for s in body if isinstance(s, Store)]
    loaded = _whole_quads([(load.array, load.offset) for load in loads], arrays)
    stored = _whole_quads([(store.array, store.offset) for store in stores], arrays)
    name_by_quad = {quad: f"quad{n}" for n, quad in enumerate(loaded)}
    known: dict[Quad, str] = {}
    values_by_quad: dict[Quad, dict[int, str]] = {}
    for statement in (*(s for s in body if not isinstance(s, Store)), *stores):
        for load in _loads(statement):
            quad = _quad(load.array, load.offset)
            if quad in name_by_quad and quad not in known:
                known[quad] = name_by_quad[quad]
                yield f"{known[quad]} = load_quad({quad[0]}, {writer.subscript(quad[1])})"
        map_values([statement], lambda value: _in_quad(value, known))
        quad = _quad(statement.array, statement.offset) if isinstance(statement, Store) else None
        if quad not in stored or not isinstance(statement, Store):
            yield from writer.write([statement], 0)
            continue
        values = values_by_quad.setdefault(quad, {})
        values[statement.offset.constant % QUAD] = writer.value(statement.value)
        if len(values) == QUAD:
            inside = ", ".join(values[e] for e in range(QUAD))
            yield f"store_quad({quad[0]}, {writer.subscript(quad[1])}, ({inside}))"


def _loads(statement: Statement) -> Iterator[Load]:
    """Visit the loads of a statement, without those that a condition may guard."""
    stack = [*values_of(statement)]
    while stack:
        value = stack.pop()
        if isinstance(value, Load):
            yield value
        elif isinstance(value, Apply):
            stack += value.args[:1] if value.op == "where" else value.args


def _quad(array: str, offset: Affine) -> Quad | None:
    start = _start(offset)
    return (array, start) if start is not None else None


def _whole_quads(places: Iterable[tuple[str, Affine]], arrays: Collection[str]) -> list[Quad]:
    """Return the quads of `arrays` of which there is every place, in order."""
    found: dict[Quad, set[int]] = {}
    for array, offset in places:
        quad = _quad(array, offset)
        if quad is not None and array in arrays:
            found.setdefault(quad, set()).add(offset.constant % QUAD)
    return [quad for quad, there in found.items() if len(there) == QUAD]


def _in_quad(value: Expression, name_by_quad: Mapping[Quad, str]) -> Expression:
    if not isinstance(value, Load):
        return value
    name = name_by_quad.get(_quad(value.array, value.offset) or ("", Affine()))
    return Local(f"{name}[{value.offset.constant % QUAD}]", value.dtype) if name else value
