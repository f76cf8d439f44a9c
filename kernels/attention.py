"""What an attention computes: rows of scores, their softmax, and its product with values.

    score[g, i, j]  = s(product), product = sum over d of query(g, i, d) * key(g, j, d)
    result[g, i, e] = sum over j of softmax over j of score[g, i, j] times value(g, j, e)

for batches g, queries i, keys j and features e. Scores are point-wise in the product; bodies are point-wise in the
result, which they may store in any order of its axes. Both products are `Contraction`s: columns are "j", depths "k".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from frittata.egraph import dtypes, shapes, terms
from frittata.egraph.indexing import Affine, IndexMap, Quot, Rem, Var, var
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Term
from frittata.kernels.contractions import BINDERS, Contraction, Index, Side, is_under_view, split_index
from frittata.kernels.visibility import Band, visible

_BINDERS = BINDERS | {"scan", "at"}


@dataclass(frozen=True)
class Attention:
    """Two products around a softmax: `scores` has no bodies, the left side of `values` is what the softmax gives.

    `score` is the element of a score, at `score_index` in terms of g, i and j. Each query sees keys of the `band`
    only. A `safe` row in which no key is seen gives zero.
    """

    scores: Contraction
    values: Contraction
    score: Term
    score_index: Index
    band: Band
    safe: bool

    @property
    def bodies(self) -> tuple[Term, ...]:
        """The bodies of the kernel."""
        return self.values.bodies

    @property
    def queries(self) -> int:
        """The rows of a batch."""
        return self.scores.rows

    @property
    def keys(self) -> int:
        """The keys of a batch."""
        return self.scores.columns

    @property
    def itemsize(self) -> int:
        """The size of a score, in bytes."""
        return self.scores.itemsize


@lru_cache(maxsize=4096)
def describe(bodies: tuple[Term, ...]) -> Attention | None:
    """Return what the bodies compute if it is one attention, else None."""
    found = _only_attention(bodies)
    if found is None:
        return None
    attend, hole, product = found
    score, value = attend.args
    keys, safe = attend.attrs
    shape = (1, 1, *shapes.concrete(attend.shape))[-max(2, len(attend.shape)) :]
    batch = {axis: shape[axis] for axis in range(-len(shape), -2)}
    batches = split_index("g", batch)
    row, column = var("i", shape[-2]), var("j", shape[-1])
    place = _stored_at(bodies, hole, attend, {**batches, -2: row, -1: column})
    if place is None:
        return None
    count, depth = shapes.size(tuple(batch.values())), product.attrs[0]
    j, k, d = var("j", keys), var("k", keys), var("k", depth)
    query, key = product.args
    score_index = {**batches, -2: row, -1: j}
    scores = Contraction(
        (), product, count, shape[-2], keys, depth,
        Side(query, {**batches, -2: row, -1: d}), Side(key, {**batches, -2: d, -1: j}), score_index,
    )  # fmt: skip
    values = Contraction(
        bodies, hole, count, shape[-2], shape[-1], keys,
        Side(score, {**batches, -2: row, -1: k}), Side(value, {**batches, -2: k, -1: column}), place,
    )  # fmt: skip
    return Attention(scores, values, score, score_index, visible(score, score_index), safe)


def _only_attention(bodies: tuple[Term, ...]) -> tuple[Term, Term, Term] | None:
    """Return the one `attend` of bodies, the topmost view of it, and the one `dot` in its scores."""
    elements = [body.args[0] for body in bodies if body.op == "build"]
    every = list(terms.walk(*elements))
    found = [term for term in every if term.op in _BINDERS]
    if len(elements) < len(bodies) or sorted(term.op for term in found) != ["attend", "dot"]:
        return None
    attend, product = sorted(found, key=lambda term: term.op)
    score, value = attend.args
    if any(isinstance(dim, Sym) for term in every for dim in term.shape) or not dtypes.is_float(attend.dtype):
        return None
    if product.dtype != attend.dtype or product not in terms.walk(score) or product in terms.walk(value):
        return None
    hole = _topmost_view(every, elements, attend)
    if hole is None or is_under_view([score], product) or is_under_view(elements, hole):
        return None
    return attend, hole, product


def _topmost_view(every: list[Term], elements: list[Term], attend: Term) -> Term | None:
    """Follow the views of an attention to what the bodies are point-wise in; None if they use what is on the way."""
    hole = attend
    while True:
        users = [term for term in every if hole in term.args and term.sort == "element"]
        if not any(term.op == "reindex" for term in users):
            return hole
        if len(users) > 1 or hole in elements:
            return None
        hole = users[0]


def _stored_at(bodies: tuple[Term, ...], hole: Term, attend: Term, index: Index) -> Index | None:
    """Return the index of the bodies where they take an attention at `index`; None if they do not take it once each."""
    shape = shapes.concrete(bodies[0].shape)
    if any(body.shape != shape for body in bodies) or shapes.size(shape) != shapes.size(attend.shape):
        return None
    at: Index = {axis: var(axis, shape[axis]) for axis in range(-len(shape), 0)}
    while hole is not attend:
        mapping: IndexMap = hole.attrs[0]
        if shapes.concrete(mapping.result) != shape:
            return None
        shape = shapes.concrete(mapping.source)
        by_key: dict[int | str, Affine] = dict(at.items())
        at = {
            axis: source.substitute(by_key) for axis, source in zip(range(-len(shape), 0), mapping.sources, strict=True)
        }
        hole = hole.args[0]
    if any(shapes.dim_at(attend.shape, axis) != shapes.dim_at(shape, axis) for axis in _axes(shape, attend.shape)):
        return None
    return _inverted(at, shape, index)


def _axes(*shapes_: shapes.Shape) -> range:
    return range(-max(map(len, shapes_)), 0)


def _inverted(at: Index, shape: tuple[int, ...], index: Index) -> Index | None:
    """Solve at(place) = index for the place, where each axis is a digit of one axis of the place."""
    digits = {axis: var(f"a{-axis}", shape[axis]) for axis in at}
    place: dict[int, Affine] = {}
    for axis, source in at.items():
        if shape[axis] > 1:
            found = _digit(source)
            if found is None:
                return None
            place[found[0]] = place.get(found[0], Affine()) + digits[axis] * found[1]
    by_axis: dict[int | str, Affine] = dict(place.items())
    if any(source.substitute(by_axis) != digits[axis] for axis, source in at.items()):
        return None
    by_name: dict[int | str, Affine] = {f"a{-axis}": index.get(axis, Affine()) for axis in at}
    return {axis: where.substitute(by_name) for axis, where in place.items()}


def _digit(source: Affine) -> tuple[int, int] | None:
    """Return (axis, weight) if an expression is a digit of an axis: x, x // a, x % b or x // a % b."""
    match source:
        case Affine(constant=0, terms=((Var(key=int(axis)), 1),)):
            return axis, 1
        case Affine(constant=0, terms=((Rem(of=of), 1),)):
            return _digit(of)
        case Affine(constant=0, terms=((Quot(of=Affine(constant=0, terms=((Var(key=int(axis)), 1),)), by=by), 1),)):
            return axis, by
        case _:
            return None
