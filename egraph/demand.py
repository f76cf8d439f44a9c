"""What is read of each tensor: of one that is read in part only, that part is computed.

    slice(add(matmul(x, w), b), -2, 0, 1, 1)  ->  add(matmul(slice(x, -2, 0, 1, 1), w), b)

Parts are cut out as near to the inputs as nothing reads more: the last layer of an encoder whose first token alone is
read computes keys and values of all tokens, and the rest of one. It is no rule of the e-graph, which does not know who
reads a class: rules would follow each part up to the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from frittata.egraph import shapes, terms
from frittata.egraph.model import Model
from frittata.egraph.ops import registry
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term

Places = tuple[range, ...]
"""Indices along an axis, in order."""

Part = Mapping[int, Places]
"""What is read of a tensor: indices along axes, which are negative; along those that are not named, all."""

_Axes = dict[int, int]
"""Axes of an operand by those of a result, where an index of the result needs the same index of the operand."""

_MOST_SHARE = 0.5
"""The greatest part of an axis that is worth being cut out."""

_MOST_PIECES = 4
"""The most slices of which a part is joined."""


@dataclass(frozen=True)
class _Route:
    """How a part of a result, along axes that are `free`, is computed of parts of its operands."""

    operands: tuple[_Axes, ...]
    free: frozenset[int]
    op: str
    is_shaped: bool = False
    """Whether the only attribute is the shape of the result."""


def narrowed(model: Model) -> Model:
    """Return a model that computes the same, and of tensors that are read in part only that part."""
    outputs = [term for function in model.functions.values() for term in function.outputs]
    order = list(terms.walk(*outputs))
    if not any(term.op == "slice" for term in order):
        return model
    kept = _kept(order, outputs)
    return model.rewritten(lambda term, args: _restricted(term, args, kept))


def _kept(order: Sequence[Term], outputs: Sequence[Term]) -> dict[Term, Part]:
    """Return the part of each tensor that is computed; `order` has operands before what is computed of them."""
    read: dict[Term, list[Part]] = {term: [{}] for term in outputs}
    kept: dict[Term, Part] = {}
    for term in reversed(order):
        parts = read[term]
        axes = set[int].intersection(*map(set, parts))
        united = {axis: _worthwhile([part[axis] for part in parts], term.shape[axis]) for axis in axes}
        wanted = {axis: places for axis, places in united.items() if places}
        free = _route(term, wanted).free
        kept[term] = {axis: places for axis, places in wanted.items() if axis in free}
        for operand, part in zip(term.args, _needs(term, kept[term]), strict=True):
            read.setdefault(operand, []).append(part)
    return kept


def _worthwhile(parts: Sequence[Places], extent: Any) -> Places:
    """Return the indices to be cut out, with what lies between them if they are scattered; none if most are read."""
    is_read = np.zeros(extent, bool)
    for piece in chain(*parts):
        is_read[piece.start : piece.stop : piece.step] = True
    most = int(_MOST_SHARE * extent)
    places = np.flatnonzero(is_read)
    pieces = _pieces(places)
    if len(pieces) > _MOST_PIECES:
        pieces = (range(int(places[0]), int(places[-1]) + 1),)
    return pieces if sum(map(len, pieces)) <= most else ()


def _pieces(places: np.ndarray[Any, np.dtype[Any]]) -> Places:
    """Return indices as one range, or as one for each run of neighbours."""
    steps = np.diff(places)
    if (steps == steps[:1]).all():
        return (range(int(places[0]), int(places[-1]) + 1, int(steps[0]) if len(steps) else 1),)
    return tuple(range(int(run[0]), int(run[-1]) + 1) for run in np.split(places, np.flatnonzero(steps != 1) + 1))


def _needs(term: Term, part: Part) -> list[Part]:
    """Return what a part of a result needs of each operand."""
    if term.op == "slice":
        axis, start, step, length = term.attrs
        inner = part.get(axis, (range(length),))
        moved = (range(start + step * r.start, start + step * (r[-1] + 1), step * r.step) for r in inner)
        return [{**part, axis: tuple(moved)}]
    along = _route(term, part).operands
    return [{axes[axis]: places for axis, places in part.items() if axis in axes} for axes in along]


def _restricted(term: Term, args: tuple[Term, ...], kept: Mapping[Term, Part]) -> Term:
    """Return the part of a term that is kept, of the parts of its operands that are."""
    part = kept[term]
    needs = _needs(term, part)
    given = tuple(_cut(*each) for each in zip(args, needs, (kept[arg] for arg in term.args), strict=True))
    if term.op == "slice":
        return given[0]
    route = _route(term, part)
    attrs = term.attrs
    if route.is_shaped:
        rank = len(term.shape)
        parts = (part.get(at - rank) for at in range(rank))
        attrs = (tuple(dim if p is None else sum(map(len, p)) for p, dim in zip(parts, term.shape, strict=True)),)
    return term if (given, attrs) == (term.args, term.attrs) else registry.make(route.op, term.sort, given, attrs)


def _cut(x: Term, need: Part, kept: Part) -> Term:
    """Cut what is needed out of what is kept of an operand."""
    for axis, places in need.items():
        pieces = [found for piece in places for found in _within(piece, kept.get(axis))]
        if sum(map(len, pieces)) != x.shape[axis]:
            slices = [tensor("slice", x, axis=axis, start=p.start, step=p.step, length=len(p)) for p in pieces]
            x = reduce(partial(tensor, "concat", axis=axis), slices)
    return x


def _within(piece: range, kept: Places | None) -> Iterator[range]:
    """Return where a part of what is kept stands in it; of None all is kept."""
    if kept is None:
        yield piece
        return
    offset = 0
    for run in kept:
        first, last = (max(0, -(-(edge - piece.start) // piece.step)) for edge in (run.start, run.stop))
        inside = piece[first:last]
        if inside:
            at = offset + run.index(inside[0])
            step = max(1, piece.step // run.step)
            yield range(at, at + step * len(inside), step)
        offset += len(run)


# ---- operators -------------------------------------------------------------------------------------------------------


def _route(term: Term, part: Part) -> _Route:
    """Return how a result is computed in parts; nothing is free where its operator has no such way."""
    every = frozenset(range(-len(term.shape), 0)) if term.sort == "tensor" else frozenset[int]()
    alike = tuple(_same(term, x) for x in term.args)
    match term.op:
        case "slice":
            return _Route((dict[int, int](),), every, term.op)
        case "matmul":
            x, w = term.args
            return _Route((_same(term, x, -1), _same(term, w, -2)), every, term.op)
        case "linear":
            return _Route((_same(term, term.args[0], -1), {-1: -2}, {-1: -1}), every, term.op)
        case "conv":
            return _convolution(term)
        case "attention" | "masked_attention":
            q, k, v, *mask = term.args
            axes = _same(term, q, -1), _same(term, k, -1, -2), _same(term, v, -2), *(_same(term, x, -1) for x in mask)
            return _Route(axes, every, term.op)
        case "causal_attention":
            return _causal(term, part)
        case "permute":
            rank = len(term.shape)
            return _Route(({at - rank: source - rank for at, source in enumerate(term.attrs[0])},), every, term.op)
        case "reshape":
            axes = _kept_axes(term.args[0], term)
            return _Route((axes,), frozenset(axes), term.op, is_shaped=True)
        case "expand":
            return _Route(alike, every, term.op, is_shaped=True)
        case "batch_norm":
            channel = {1 - len(term.shape): -1}
            return _Route((alike[0], *(channel,) * 4), every, term.op)
        case "layer_norm" | "rms_norm":
            others: tuple[_Axes, ...] = ({},) * (len(term.args) - 1)
            return _Route((alike[0], *others), every - {-1}, term.op)
        case "softmax" | "concat" | "reduce_sum" | "reduce_max" | "reduce_min" | "reduce_prod":
            (axis,) = term.attrs
            return _Route(alike, every - {axis}, term.op)
        case _ if every and (registry.get(term.op).pointwise or term.op in _ACTIVATIONS):
            return _Route(alike, every, term.op)
        case _:
            return _Route(tuple({} for _ in term.args), frozenset(), term.op)


_ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")


def _same(term: Term, x: Term, *but: int) -> _Axes:
    """Return the axes of an operand that are the result's, and are not broadcast."""
    axes = range(-min(len(x.shape), len(term.shape)), 0)
    return {axis: axis for axis in axes if axis not in but and x.shape[axis] == term.shape[axis]}


def _convolution(term: Term) -> _Route:
    """Images, and channels where each reads all."""
    rank, groups = len(term.shape), term.attrs[-1]
    channels = {1 - rank: -rank} if groups == 1 else {}
    return _Route(({-rank: -rank}, channels), frozenset({-rank, *channels}), term.op)


def _causal(term: Term, part: Part) -> _Route:
    """One query sees all keys: the last, of as many."""
    q, k, v = term.args
    (rows,) = shapes.concrete(k.shape[-2:-1])
    is_last = part.get(-2) == (range(rows - 1, rows),)
    axes = _same(term, q, -1), _same(term, k, -1, -2), _same(term, v, -2)
    every = frozenset(range(-len(term.shape), 0))
    return _Route(axes, every, "attention") if is_last else _Route(axes, every - {-2}, term.op)


def _kept_axes(x: Term, term: Term) -> _Axes:
    """Return the axes of a reshaped operand by those of the result with the same extent and as many values after it."""
    own, others = (_axis_by_extents(shapes.concrete(t.shape)) for t in (term, x))
    return {axis: others[key] for key, axis in own.items() if key in others}


def _axis_by_extents(shape: tuple[int, ...]) -> dict[tuple[int, int], int]:
    return {(dim, prod(shape[at + 1 :])): at - len(shape) for at, dim in enumerate(shape)}
