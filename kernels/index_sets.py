"""Index set splitting: ranges of the last axis over which comparisons of the index have one answer, and views one step.

    where(iota < 32, x[a], y[a - 32])  ->  x[a] for a in 0 .. 31,  y[a] for a in 0 .. 35
    x[(a + 67) % 68]                   ->  x[67] for a = 0,  x[a] for a in 0 .. 66

A concatenation, a border, a roll, half of a row turned around are then loads of neighbours, and no index is clamped.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from frittata.egraph import indexing, shapes, terms
from frittata.egraph.indexing import Affine, IndexMap, Quot, Rem, var
from frittata.egraph.ops import registry
from frittata.egraph.ops.elements import CONTRACTIONS
from frittata.egraph.terms import Scalar, Term
from frittata.kernels.points import COMPARISONS
from frittata.kernels.stores import stored_at

_MOST_RANGES = 8
"""In more ranges nothing is split: each is code of its own."""
_MOST_TERMS = 200
"""Larger bodies are not split."""

_WHOLE = frozenset({"at", "fold", "scan", "attend", "reindex"}) | CONTRACTIONS
"""What is not looked into: a view of it is taken."""


def ranges_of(bodies: tuple[Term, ...]) -> list[tuple[int, int]]:
    """Return the ranges of the last axis, each with its end, into which bodies cut it; none for one."""
    extent = bodies[0].shape[-1] if bodies[0].shape else 1
    if not isinstance(extent, int) or sum(1 for _ in terms.walk(*bodies)) > _MOST_TERMS:
        return []
    seen: set[tuple[Term, int]] = set()
    cuts = {at for body in bodies for at in _cuts(body.args[0], 0, extent, seen) if 0 < at < extent}
    return [*pairwise((0, *sorted(cuts), extent))] if 0 < len(cuts) < _MOST_RANGES else []


def over(bodies: tuple[Term, ...], start: int, stop: int) -> tuple[Term, ...]:
    """Return what bodies are from one place of the last axis to another, written where they write it."""
    return tuple(_body_over(body, start, stop) for body in bodies)


def _body_over(body: Term, start: int, stop: int) -> Term:
    shape = (*body.shape[:-1], stop - start)
    axes = dict(zip(range(-len(shape), 0), indexing.axes_of(shape), strict=True))
    at = stored_at(body, {**axes, -1: axes[-1] + start})
    return registry.tensor("part", _Restriction(start, stop, {}).of(body.args[0]), shape=shape, at=at)


def _cuts(e: Term, offset: int, extent: int, seen: set[tuple[Term, int]]) -> Iterator[int]:
    """Visit the places where some comparison changes its answer, or a view jumps; the element's own index is `offset`
    less there.
    """
    if (e, offset) in seen:
        return
    seen.add((e, offset))
    compared = _compared(e)
    if compared is not None:
        limit = compared.attrs[0].value
        for at in (limit, limit + 1) if e.op in ("eq", "ne") else (limit + (e.op in ("le", "gt")),):
            yield at + offset
    shift = _shift(e.attrs[0]) if e.op == "reindex" else None
    if shift is not None:
        yield from _cuts(e.args[0], offset - shift, extent, seen)
    elif e.op == "reindex":
        yield from (at + offset for at in _jumps(e.attrs[0]))
    elif e.op not in _WHOLE:
        for arg in e.args if e.op != "load" else ():
            yield from _cuts(arg, offset, extent, seen)


def _compared(e: Term) -> Term | None:
    """Return the number that an element compares the index on the last axis with."""
    if e.op not in COMPARISONS:
        return None
    index, number = e.args
    is_index = index.op == "iota" and index.attrs[0] == -1
    return number if is_index and number.op == "const" and isinstance(number.attrs[0].value, int) else None


def _jumps(view: IndexMap) -> Iterator[int]:
    """Visit the places of the last axis where a quotient of its index and a number grows."""
    for atom, _ in (term for index in view.sources for term in index.terms):
        if isinstance(atom, Quot | Rem) and view.result:
            beside = atom.of + var(-1, view.result[-1]) * -1
            if not beside.terms:
                yield from range(-beside.constant % atom.by, shapes.concrete(view.result)[-1], atom.by)


def _shift(view: IndexMap) -> int | None:
    """Return by how much the last index of what a view reads is larger than its own, if it is so everywhere."""
    if not view.sources or not view.result:
        return None
    last = view.sources[-1]
    moved = last + var(-1, view.result[-1]) * -1
    uses = (source.variables() for source in view.sources[:-1])
    return None if moved.terms or any(-1 in used for used in uses) else moved.constant


class _Restriction:
    """Writes elements over a range of the last axis, their index counted from its start.

    What has been written over a range, here or where a view reads another, is in `done`.
    """

    def __init__(self, start: int, stop: int, done: dict[tuple[Term, int, int], Term]) -> None:
        self._start, self._stop, self._done = start, stop, done

    def of(self, e: Term) -> Term:
        if not e.shape or e.shape[-1] == 1:
            return e
        key = (e, self._start, self._stop)
        if key not in self._done:
            self._done[key] = self._of(e)
        return self._done[key]

    def _of(self, e: Term) -> Term:
        answer = self._answer(e)
        if answer is not None:
            return registry.element("const", value=Scalar.of(answer, "bool"))
        if e.op == "iota":
            index = registry.element("iota", axis=-1, extent=self._stop - self._start, dtype=e.dtype)
            return registry.element("add", index, registry.element("const", value=Scalar.of(self._start, e.dtype)))
        if e.op == "load" or e.op in _WHOLE:
            return self._view(e)
        args = tuple(map(self.of, e.args))
        if e.op == "where" and args[0].op == "const":
            return args[1] if args[0].attrs[0].value else args[2]
        if e.op in ("and", "or"):
            neutral = e.op == "and"
            open_ = [arg for arg in args if arg.op != "const" or arg.attrs[0].value != neutral]
            absorbing = [arg for arg in open_ if arg.op == "const"]
            if absorbing or len(open_) < len(args):
                return (absorbing or open_ or args)[0]
        return registry.make(e.op, "element", args, e.attrs)

    def _answer(self, e: Term) -> bool | None:
        """Return what a comparison of the index says in the whole range."""
        number = _compared(e)
        if number is None:
            return None
        holds, value = COMPARISONS[e.op], number.attrs[0].value
        found = {holds(at, value) for at in range(self._start, self._stop)}
        return found.pop() if len(found) == 1 else None

    def _view(self, e: Term) -> Term:
        """Return a view of the range; where it only shifts the last index, of a range of what it reads."""
        is_view = e.op == "reindex"
        read = e.args[0] if is_view else e
        whole: IndexMap = e.attrs[0] if is_view else IndexMap(e.shape, e.shape, indexing.axes_of(e.shape))
        result = (*whole.result[:-1], self._stop - self._start)
        axes = indexing.axes_of(result)
        at: dict[int | str, Affine] = dict(zip(range(-len(result), 0), axes, strict=True))
        at[-1] = axes[-1] + self._start
        view = IndexMap(whole.source, result, tuple(index.substitute(at) for index in whole.sources))
        first = _shift(view) if is_view else None
        if first is None or first < 0 or first + result[-1] > shapes.concrete(view.source)[-1]:
            return registry.element("reindex", read, map=view)
        read = _Restriction(first, first + result[-1], self._done).of(read)
        view = IndexMap((*view.source[:-1], result[-1]), result, (*view.sources[:-1], axes[-1]))
        is_all = view.source == result and view.sources == axes
        return read if is_all else registry.element("reindex", read, map=view)
