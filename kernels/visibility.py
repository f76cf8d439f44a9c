"""Which keys a query sees, as far as the scores alone say: above a diagonal that is minus infinity is no work."""

from __future__ import annotations

from frittata.egraph import shapes
from frittata.egraph.indexing import Affine, Var
from frittata.egraph.terms import Term
from frittata.kernels.contractions import Index

_TURNED = {"le": "ge", "lt": "gt"}


def causal_offset(score: Term, index: Index) -> int | None:
    """Return the least c for which scores at (i, j) are known to be -inf wherever j > i + c; None if there is none.

    `index` gives that of a score in the variables "i" and "j".
    """
    if score.op != "where":
        return None
    condition, seen, otherwise = score.args
    inner = causal_offset(seen, index)
    if otherwise.op != "const" or otherwise.attrs[0].value != float("-inf"):
        return None
    found = [offset for offset in (_offset(condition, index), inner) if offset is not None]
    return min(found, default=None)


def _offset(condition: Term, index: Index) -> int | None:
    """Return c if a condition holds nowhere above j = i + c."""
    if condition.op == "and":
        found = [offset for offset in (_offset(arg, index) for arg in condition.args) if offset is not None]
        return min(found, default=None)
    op = _TURNED.get(condition.op, condition.op)
    if op not in ("ge", "gt"):
        return None
    sides = condition.args if op == condition.op else condition.args[::-1]
    greater, less = (_position(side, index) for side in sides)
    if greater is None or less is None:
        return None
    difference = greater + less * -1  # at least 0, of i - j + c
    factors = {atom.key: factor for atom, factor in difference.terms if isinstance(atom, Var)}
    if len(difference.terms) != 2 or factors != {"i": 1, "j": -1}:
        return None
    return difference.constant - (op == "gt")


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
    by_key: dict[int | str, Affine] = {axis: index.get(axis, Affine()) for axis in range(-len(extents), 0)}
    if any(at.bounds()[0] < 0 or at.bounds()[1] >= extents[int(axis)] for axis, at in by_key.items()):
        return None
    rank = len(mapping.sources)
    inner = {i - rank: source.substitute(by_key) for i, source in enumerate(mapping.sources)}
    return _position(view.args[0], inner)
