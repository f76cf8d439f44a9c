"""Which keys a query sees, as far as the scores alone say: beyond diagonals with minus infinity there is no work."""

from __future__ import annotations

from typing import NamedTuple

from frittata.egraph import shapes
from frittata.egraph.indexing import Affine, Var
from frittata.egraph.terms import Term
from frittata.kernels.contractions import Index

_TURNED = {"le": "ge", "lt": "gt"}
_DENIED = {"le": "gt", "lt": "ge", "ge": "lt", "gt": "le"}


class Band(NamedTuple):
    """Query i sees keys from i + `least` to i + `most` only; without a bound where one is None."""

    least: int | None = None
    most: int | None = None

    def within(self, other: Band) -> Band:
        """Return the keys that both see."""
        pairs = zip(self, other, strict=True)
        (least, most) = ([bound for bound in pair if bound is not None] for pair in pairs)
        return Band(max(least, default=None), min(most, default=None))


def visible(score: Term, index: Index) -> Band:
    """Return the band outside of which scores are known to be minus infinity.

    `index` gives that of a score in the variables "i" and "j".
    """
    if score.op != "where":
        return Band()
    condition, *sides = score.args
    hidden = [side.op == "const" and side.attrs[0].value == float("-inf") for side in sides]
    if not any(hidden):
        return Band()
    return _where_it_is(hidden[1], condition, index).within(visible(sides[hidden[0]], index))


def _where_it_is(truth: bool, condition: Term, index: Index) -> Band:
    """Return a band outside of which a condition is nowhere true, or nowhere false."""
    if condition.op == "not":
        return _where_it_is(not truth, condition.args[0], index)
    if condition.op == ("and" if truth else "or"):
        first, second = (_where_it_is(truth, arg, index) for arg in condition.args)
        return first.within(second)
    stated = condition.op if truth else _DENIED.get(condition.op, condition.op)
    op = _TURNED.get(stated, stated)
    if op not in ("ge", "gt") or condition.op not in _DENIED:
        return Band()
    greater, less = condition.args if op == stated else condition.args[::-1]
    least = int(op == "gt")
    if less.op != "abs":
        return _at_least(greater, less, 1, index, least)
    (distance,) = less.args
    return _at_least(greater, distance, 1, index, least).within(_at_least(greater, distance, -1, index, least))


def _at_least(greater: Term, less: Term, factor: int, index: Index, least: int) -> Band:
    """Return where one integer less another times a factor of 1 or -1 is no less than `least`."""
    high, low = _position(greater, index), _position(less, index)
    if high is None or low is None:
        return Band()
    difference = high + low * -factor
    factors = {atom.key: factor for atom, factor in difference.terms if isinstance(atom, Var)}
    if len(difference.terms) != 2 or factors not in ({"i": 1, "j": -1}, {"i": -1, "j": 1}):
        return Band()
    bound = difference.constant - least
    return Band(most=bound) if factors["i"] == 1 else Band(least=-bound)


def _position(e: Term, index: Index) -> Affine | None:
    """Return an integer element as an expression of the index, if it is one that no clamp changes."""
    match e.op:
        case "const" if isinstance(e.attrs[0].value, int):
            return Affine(e.attrs[0].value)
        case "iota":
            axis, extent, _ = e.attrs
            at = index.get(axis, Affine())
            low, high = at.bounds()
            return at if low >= 0 and high < extent else None
        case "add" | "sub":
            left, right = (_position(arg, index) for arg in e.args)
            if left is None or right is None:
                return None
            return left + right * (1 if e.op == "add" else -1)
        case "reindex":
            return _through(e, index)
        case _:
            return None


def _through(view: Term, index: Index) -> Affine | None:
    mapping = view.attrs[0]
    extents = shapes.concrete(mapping.result)
    axes = zip(range(-len(extents), 0), extents, strict=True)
    by_key: dict[int | str, Affine] = {axis: index.get(axis, Affine()) for axis, extent in axes if extent > 1}
    if any(at.bounds()[0] < 0 or at.bounds()[1] >= extents[int(axis)] for axis, at in by_key.items()):
        return None
    rank = len(mapping.sources)
    inner = {i - rank: source.substitute(by_key) for i, source in enumerate(mapping.sources)}
    return _position(view.args[0], inner)
