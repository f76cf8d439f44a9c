"""Index arithmetic: quasi-affine expressions of axes, and the maps of views.

A view reads its operand at another index. Its map gives, for each axis of the operand, an expression of the
axes of the result: sums of variables times numbers, quotients and remainders. Expressions are kept in a normal
form, so that splitting an axis and merging it again gives the axis itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, TypeVar

import numpy as np

from frittata.egraph import shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.shapes import Dim, Shape, Sym

T = TypeVar("T")

_MOST_LOOKED_AT = 1 << 16
"""How many places of an index are tried one by one where the normal form does not tell."""

_remembered = lru_cache(maxsize=1 << 15)
"""Kernels of one program ask for the same arithmetic of indices again and again."""


@dataclass(frozen=True)
class Var:
    """A variable in 0 .. extent - 1: an axis (negative number) or a loop (name)."""

    key: int | str
    extent: Dim


@dataclass(frozen=True)
class Quot:
    """The floor of `of` divided by `by`."""

    of: Affine
    by: int


@dataclass(frozen=True)
class Rem:
    """The remainder, in 0 .. by - 1, of `of` divided by `by`."""

    of: Affine
    by: int


@dataclass(frozen=True)
class Clamp:
    """`of` clamped to 0 .. by - 1. Maps of views have none: it is what going through views makes of their indices."""

    of: Affine
    by: int


Atom = Var | Quot | Rem | Clamp


@dataclass(frozen=True)
class Affine:
    """`constant` plus the sum of atoms times their factors, atoms in a fixed order."""

    constant: int = 0
    terms: tuple[tuple[Atom, int], ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.constant, self.terms))

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.constant + other, self.terms)
        return _sum(((self, 1), (other, 1)))

    def __mul__(self, by: int) -> Affine:
        return Affine(self.constant * by, tuple((atom, factor * by) for atom, factor in self.terms) if by else ())

    @_remembered
    def __floordiv__(self, by: int) -> Affine:
        outer, inner = self._split(by)
        if _within(inner, by):
            return outer
        match inner.terms:
            case ((Rem(of=of, by=span), 1),) if inner.constant == 0 and span % by == 0:  # (x % bc) // b = x // b % c
                return outer + of // by % (span // by)
            case _:
                pass
        for atom, factor in inner.terms:
            if isinstance(atom, Quot) and factor == 1:  # (x // a + y) // b = (x + a y) // (a b)
                rest = inner + Affine(0, ((atom, -1),))
                return outer + (atom.of + rest * atom.by) // (atom.by * by)
        return outer + Affine(0, ((Quot(inner, by), 1),))

    @_remembered
    def __mod__(self, by: int) -> Affine:
        _, inner = self._split(by)
        if _within(inner, by):
            return inner
        for atom, factor in inner.terms:
            if isinstance(atom, Rem) and factor * atom.by % by == 0:  # (c (x % b) + y) % bc = (c x + y) % bc
                return (inner + Affine(0, ((atom, -factor),)) + atom.of * factor) % by
        return Affine(0, ((Rem(inner, by), 1),))

    @_remembered
    def clamped(self, extent: int) -> Affine:
        """Return the value clamped to 0 .. extent - 1, itself where it cannot lie outside."""
        if extent == 1:
            return Affine()
        if _within(self, extent):
            return self
        return Affine(0, ((Clamp(self, extent), 1),)) if self.terms else Affine(_clamp(self.constant, extent))

    def _split(self, by: int) -> tuple[Affine, Affine]:
        """self = outer * by + inner, with as much as possible in outer."""
        outer = {atom: factor // by for atom, factor in self.terms if factor % by == 0}
        inner = {atom: factor for atom, factor in self.terms if factor % by != 0}
        return _normal(self.constant // by, outer), _normal(self.constant % by, inner)

    def bounds(self) -> tuple[float, float]:
        """Return the least and the greatest value."""
        return self._bounds

    @cached_property
    def _bounds(self) -> tuple[float, float]:
        low = high = float(self.constant)
        for atom, factor in self.terms:
            least, most = _atom_bounds(atom)
            low += factor * (least if factor > 0 else most)
            high += factor * (most if factor > 0 else least)
        return low, high

    def variables(self) -> set[int | str]:
        """Return the keys of all variables mentioned."""
        return set(self._keys)

    @cached_property
    def _keys(self) -> tuple[int | str, ...]:
        """The keys of all variables, each once, in the order of the terms."""
        keys: dict[int | str, None] = {}
        for atom, _ in self.terms:
            keys |= dict.fromkeys((atom.key,) if isinstance(atom, Var) else atom.of._keys)
        return tuple(keys)

    def factor_of(self, key: int | str) -> int | None:
        """Return c if the value moves by c for each step of the variable `key`, None if it is not linear in it."""
        linear = 0
        for atom, factor in self.terms:
            if isinstance(atom, Var):
                if atom.key == key:
                    linear = factor
            elif key in atom.of.variables():
                return None
        return linear

    def substitute(self, value_by_key: Mapping[int | str, Affine]) -> Affine:
        """Replace variables by expressions and normalize again."""
        return self._substituted(tuple(map(value_by_key.get, self._keys)))

    @_remembered
    def _substituted(self, values: tuple[Affine | None, ...]) -> Affine:
        """Replace the variables, in their order, by those of the values that are given."""
        pairs = zip(self._keys, values, strict=True)
        value_by_key = {key: value for key, value in pairs if value is not None}
        parts: list[tuple[Affine, int]] = [(Affine(self.constant), 1)]
        for atom, factor in self.terms:
            if isinstance(atom, Var):
                parts.append((value_by_key.get(atom.key) or Affine(0, ((atom, 1),)), factor))
            else:
                parts.append((_applied(atom, atom.of.substitute(value_by_key)), factor))
        return _sum(parts)

    def evaluate(self, value_of: Callable[[int | str], Any]) -> Any:
        """Compute the value with `+ * // %` of whatever `value_of` returns (numbers, arrays, ...)."""
        out: Any = self.constant
        for atom, factor in self.terms:
            if isinstance(atom, Var):
                value = value_of(atom.key)
            else:
                inner = atom.of.evaluate(value_of)
                value = _applied(atom, inner)
            out = out + value * factor
        return out

    def is_always(self, number: int, shape: tuple[int, ...]) -> bool:
        """Whether the value is a number wherever the axes of a shape are; False if that is too long to look at.

        The normal form says so but for chains of reshapes that cut across each other.
        """
        if all(isinstance(atom, Var) for atom, _ in self.terms):
            return not self.terms and self.constant == number
        axes = range(-len(shape), 0)
        last: dict[int | str, Any] = {axis: shape[axis] - 1 for axis in axes}
        if self.evaluate(last.__getitem__) != number or prod(shape) > _MOST_LOOKED_AT:
            return False
        every: dict[int | str, Any] = dict(zip(axes, np.indices(shape, sparse=True), strict=True))
        return bool(np.all(self.evaluate(every.__getitem__) == number))

    def __str__(self) -> str:
        parts = [_atom_text(atom) + (f"*{factor}" if factor != 1 else "") for atom, factor in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


def _applied(atom: Quot | Rem | Clamp, inner: Any) -> Any:
    match atom:
        case Quot(by=by):
            return inner // by
        case Rem(by=by):
            return inner % by
        case Clamp(by=by):
            return inner.clamped(by) if isinstance(inner, Affine) else _clamp(inner, by)


def _clamp(value: Any, extent: int) -> Any:
    return np.clip(value, 0, extent - 1) if isinstance(value, np.ndarray) else min(max(value, 0), extent - 1)


def _sum(parts: Iterable[tuple[Affine, int]]) -> Affine:
    """Return the sum of expressions times numbers."""
    constant = 0
    factor_by_atom: dict[Atom, int] = {}
    for part, times in parts:
        constant += part.constant * times
        for atom, factor in part.terms:
            factor_by_atom[atom] = factor_by_atom.get(atom, 0) + factor * times
    return _normal(constant, factor_by_atom)


def _normal(constant: int, factor_by_atom: Mapping[Atom, int]) -> Affine:
    for atom, factor in factor_by_atom.items():
        if isinstance(atom, Rem) and factor:
            joined = _joined(atom, factor, factor_by_atom)
            if joined is not None:
                return _normal(constant, joined[0]) + joined[1] * factor
    kept = [(atom, factor) for atom, factor in factor_by_atom.items() if factor]
    if len(kept) > 1:
        distinct = len({abs(factor) for _, factor in kept}) == len(kept)
        kept.sort(key=_by_factor if distinct else _by_factor_and_text)
    return Affine(constant, tuple(kept))


def _by_factor(pair: tuple[Atom, int]) -> int:
    return -abs(pair[1])


def _by_factor_and_text(pair: tuple[Atom, int]) -> tuple[int, str]:
    return -abs(pair[1]), repr(pair[0])


def _joined(rem: Rem, factor: int, factor_by_atom: Mapping[Atom, int]) -> tuple[dict[Atom, int], Affine] | None:
    """Join a remainder with a part above it.

    (x // (b c)) * c + x // b % c = x // b, and ((x // c) % d) * c + x % c = x % (c d).
    """
    for partner, other in factor_by_atom.items():
        if other != factor * rem.by or not isinstance(partner, Quot | Rem):
            continue
        whole = _whole_of_quotient(rem, partner) if isinstance(partner, Quot) else _whole_of_remainder(rem, partner)
        if whole is not None:
            return {a: f for a, f in factor_by_atom.items() if a not in (rem, partner)}, whole
    return None


def _whole_of_quotient(rem: Rem, partner: Quot) -> Affine | None:
    if partner.by % rem.by:
        return None
    whole = partner.of // (partner.by // rem.by)
    return whole if whole % rem.by == Affine(0, ((rem, 1),)) else None


def _whole_of_remainder(rem: Rem, partner: Rem) -> Affine | None:
    above = rem.of // rem.by
    lost = partner.of + above * -1  # what `rem.of` lacks: a remainder forgets the multiples of its divisor
    if len(lost.terms) + len(above.terms) > len(partner.of.terms):
        return None
    return (rem.of + lost * rem.by) % (rem.by * partner.by)


def _atom_bounds(atom: Atom) -> tuple[float, float]:
    if isinstance(atom, Var):
        return 0, float("inf") if isinstance(atom.extent, Sym) else atom.extent - 1
    low, high = atom.of.bounds()
    if isinstance(atom, Rem):
        return 0, atom.by - 1
    return _applied(atom, low), _applied(atom, high)


def _within(value: Affine, by: int) -> bool:
    low, high = value.bounds()
    return low >= 0 and high < by


def _atom_text(atom: Atom) -> str:
    if isinstance(atom, Var):
        return f"a{-atom.key}" if isinstance(atom.key, int) else atom.key
    if isinstance(atom, Clamp):
        return f"min(max({atom.of}, 0), {atom.by - 1})"
    return f"(({atom.of}) {'//' if isinstance(atom, Quot) else '%'} {atom.by})"


def var(key: int | str, extent: Dim) -> Affine:
    """Return the expression of one variable; a variable of extent 1 is 0."""
    return Affine() if extent == 1 else Affine(0, ((Var(key, extent), 1),))


FIRST = Affine()
"""The index on an axis of extent 1."""


@dataclass(frozen=True)
class IndexMap:
    """The map of a view: `sources[i]` is the operand's index on axis i - len(sources), in terms of the result's axes.

    Shapes: `source` that of the operand, `result` that of the view; indices are clamped to both.
    """

    source: Shape
    result: Shape
    sources: tuple[Affine, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.source, self.result, self.sources))

    def __str__(self) -> str:
        return f"{shapes.fmt(self.source)} -> {shapes.fmt(self.result)}: [{', '.join(map(str, self.sources))}]"

    def linear_offset(self) -> int | None:
        """Return where the result begins in the operand if it is a contiguous part of it, None if it is not."""
        if any(isinstance(d, Sym) for d in (*self.source, *self.result)):
            return None
        source, result = shapes.concrete(self.source), shapes.concrete(self.result)
        if any(low < 0 or high >= n for (low, high), n in zip((s.bounds() for s in self.sources), source, strict=True)):
            return None
        between = flatten(self.sources, source) + flatten(axes_of(result), result) * -1
        first = between.evaluate(lambda _: 0)
        return first if between.is_always(first, result) else None

    def reshapes_rows(self) -> bool:
        """Whether the result has all values of the operand in their order, and the same rows, by other numbers."""
        source, result = shapes.strip(self.source), shapes.strip(self.result)
        is_other = source != result and source[-1:] == result[-1:]
        return is_other and self.linear_offset() == 0 and shapes.size(source) == shapes.size(result)


@_remembered
def flatten(indices: tuple[Affine, ...], shape: tuple[int, ...]) -> Affine:
    """Return the row-major offset, in elements, of an index into a tensor of `shape`."""
    return _sum(zip(indices, shapes.strides(shape), strict=True))


@_remembered
def axes_of(shape: Shape) -> tuple[Affine, ...]:
    """Return each axis of a shape as an expression."""
    rank = len(shape)
    return tuple(var(i - rank, dim) for i, dim in enumerate(shape))


def permute_map(source: Shape, permutation: tuple[int, ...]) -> IndexMap:
    """Result axis i is operand axis permutation[i] (non-negative, as in numpy.transpose)."""
    rank = len(source)
    result = tuple(source[p] for p in permutation)
    sources: list[Affine] = [Affine()] * rank
    for position, p in enumerate(permutation):
        sources[p] = var(position - rank, source[p])
    return IndexMap(source, result, tuple(sources))


def slice_map(source: Shape, axis: int, start: int, step: int, length: int) -> IndexMap:
    """Take `length` elements of a negative `axis` from `start` in steps of `step`."""
    rank = len(source)
    result = (*source[: axis + rank], length, *source[axis + rank + 1 :])
    sources = list(axes_of(result))
    sources[axis + rank] = sources[axis + rank] * step + start
    return IndexMap(source, result, tuple(sources))


def pad_map(source: Shape, low: tuple[int, ...], high: tuple[int, ...]) -> IndexMap:
    """Move the index by `low` on each axis; what lies outside of the source is clamped, as every index is."""
    result = tuple(_grown(dim, a + b) for dim, a, b in zip(source, low, high, strict=True))
    sources = tuple(at + -a for at, a in zip(axes_of(result), low, strict=True))
    return IndexMap(source, result, sources)


def _grown(dim: Dim, by: int) -> Dim:
    return dim if by == 0 else shapes.concrete((dim,))[0] + by


def windows_map(source: Shape, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> IndexMap:
    """Read the windows of the last axes: (*lead, *spatial) -> (*lead, *out, *kernel)."""
    lead, spatial = source[: len(source) - len(kernel)], shapes.concrete(source[len(source) - len(kernel) :])
    result = (*lead, *_window_counts(spatial, kernel, stride, dilation), *kernel)
    axes = axes_of(result)
    outer, places, offsets = axes[: len(lead)], axes[len(lead) : -len(kernel)], axes[-len(kernel) :]
    inner = (place * s + offset * d for place, offset, s, d in zip(places, offsets, stride, dilation, strict=True))
    return IndexMap(source, result, (*outer, *inner))


def pool_map(
    source: Shape,
    kernel: tuple[int, ...],
    low: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    out: tuple[int, ...],
) -> IndexMap:
    """Read `out` windows of the last axes, the first from -low on: (*lead, *spatial) -> (*kernel, *lead, *out).

    The axes of the windows come first, so that folds over them leave (*lead, *out). What is outside is clamped.
    """
    rank = len(kernel)
    result = (*kernel, *source[: len(source) - rank], *out)
    axes = axes_of(result)
    windows = zip(axes[-rank:], axes[:rank], stride, dilation, low, strict=True)
    return IndexMap(source, result, (*axes[rank:-rank], *(p * s + o * d + -before for p, o, s, d, before in windows)))


def patches_map(source: Shape, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> IndexMap:
    """Read each window of an image, channels last, as a row: (batch, *spatial, channels) -> (batch, *out, elements).

    A row has the window's places in order, with all channels of each: (*kernel, channels) as one axis.
    """
    spatial, (channels,) = shapes.concrete(source[1:-1]), shapes.concrete(source[-1:])
    elements = channels * prod(kernel)
    result = (source[0], *_window_counts(spatial, kernel, stride, dilation), elements)
    batch, *places, _ = axes_of(result)
    *offsets, channel = reshape_map((*kernel, channels), (elements,)).sources
    inner = (p * s + o * d for p, o, s, d in zip(places, offsets, stride, dilation, strict=True))
    return IndexMap(source, result, (batch, *inner, channel))


def _window_counts(
    spatial: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[int, ...]:
    spans = (d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    return tuple((n - span) // s + 1 for n, span, s in zip(spatial, spans, stride, strict=True))


def pool_map_last(
    source: Shape,
    kernel: tuple[int, ...],
    low: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    out: tuple[int, ...],
) -> IndexMap:
    """Like `pool_map` with the channels last: (batch, *spatial, channels) -> (*kernel, batch, *out, channels)."""
    inner = pool_map(source[:-1], kernel, low, stride, dilation, out)
    result = (*inner.result, source[-1])
    moved: dict[int | str, Affine] = dict(zip(range(-len(inner.result), 0), axes_of(result), strict=False))
    return IndexMap(source, result, (*(at.substitute(moved) for at in inner.sources), var(-1, source[-1])))


def taps(kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many taps of a dilated kernel, a stride apart, may reach one place of a transposed convolution."""
    return tuple(-(-(d * (k - 1) + 1) // s) for k, s, d in zip(kernel, stride, dilation, strict=True))


def overlap_map(
    source: Shape, counts: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...], out: tuple[int, ...]
) -> IndexMap:
    """Read what reaches each place o: (batch, channels, *kernel, *spatial) -> (*counts, batch, channels, *out).

    It comes through tap (o + padding) % stride + j * stride from value (o + padding) // stride - j, for j below the
    count; the source has count - 1 values of padding in front.
    """
    rank = len(stride)
    axes = axes_of((*counts, *source[:2], *out))
    numbers, outer, places = axes[:rank], axes[rank : rank + 2], axes[rank + 2 :]
    at = [place + p for place, p in zip(places, padding, strict=True)]
    tap = [where % s + j * s for where, s, j in zip(at, stride, numbers, strict=True)]
    value = [where // s + j * -1 + (c - 1) for where, s, j, c in zip(at, stride, numbers, counts, strict=True)]
    return IndexMap(source, (*counts, *source[:2], *out), (*outer, *tap, *value))


def resample_map(source: Shape, axis: int, length: int, start: int, step: int, divisor: int) -> IndexMap:
    """Read one negative axis at (start + i * step) // divisor, for i in 0 .. length - 1, clamped."""
    rank = len(source)
    result = (*source[: axis + rank], length, *source[axis + rank + 1 :])
    sources = list(axes_of(result))
    sources[axis + rank] = (sources[axis + rank] * step + start) // divisor
    return IndexMap(source, result, tuple(sources))


def reshape_map(source: Shape, result: Shape) -> IndexMap:
    """Read in row-major order; axes whose products agree are mapped group by group.

    Raises: ModelError if the sizes differ, or a symbol is not an axis of its own on both sides.
    """
    sources: list[Affine] = []
    i, j = len(source), len(result)
    while i > 0 or j > 0:
        low_i, low_j = i, j
        left, right = 1, 1
        while True:
            if left == right and (low_i < i or low_j < j):
                break
            if left <= right and low_i > 0:
                low_i -= 1
                dim = source[low_i]
                if isinstance(dim, Sym):
                    _symbol_group(source, result, low_i, i, low_j, j)
                    low_j -= 1
                    break
                left *= dim
            elif low_j > 0 and not isinstance(result[low_j - 1], Sym):
                low_j -= 1
                dim = result[low_j]
                assert isinstance(dim, int)
                right *= dim
            else:
                raise ModelError(f"cannot reshape {shapes.fmt(source)} to {shapes.fmt(result)}")
        sources = _group(source, result, low_i, i, low_j, j) + sources
        i, j = low_i, low_j
    return IndexMap(source, result, tuple(sources))


def _symbol_group(source: Shape, result: Shape, low_i: int, i: int, low_j: int, j: int) -> None:
    if low_i != i - 1 or low_j != j or low_j == 0 or result[low_j - 1] != source[low_i]:
        raise ModelError(
            f"cannot reshape {shapes.fmt(source)} to {shapes.fmt(result)}",
            do=f"keep the symbolic dim {source[low_i]} as an axis of its own",
        )


def _group(source: Shape, result: Shape, low_i: int, i: int, low_j: int, j: int) -> list[Affine]:
    """Map one group of axes with equal products: through the offset within the group."""
    if i - low_i == 1 and j - low_j == 1:
        return [var(low_j - len(result), source[low_i])]
    outs = shapes.concrete(result[low_j:j])
    offset = Affine()
    for position, stride in enumerate(shapes.strides(outs)):
        offset += var(low_j + position - len(result), outs[position]) * stride
    ins = shapes.concrete(source[low_i:i])
    out: list[Affine] = []
    for position, stride in enumerate(shapes.strides(ins)):
        index = offset // stride
        out.append(index if position == 0 else index % ins[position])
    return out


def compose(outer: IndexMap, inner: IndexMap) -> IndexMap:
    """Return the map of view `outer` of view `inner`: first outer's index, then inner's."""
    rank = len(inner.result)
    value_by_key: dict[int | str, Affine] = {k - rank: index for k, index in enumerate(outer.sources)}
    return IndexMap(inner.source, outer.result, tuple(index.substitute(value_by_key) for index in inner.sources))
