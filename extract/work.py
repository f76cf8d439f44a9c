"""What bodies take, in additions: each node once for all of its distinct values, hoisted as far out as it goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from frittata.egraph import shapes
from frittata.egraph.ops import registry
from frittata.egraph.terms import Term, walk


class Works:
    """Knows what bodies take that were asked for, each after its parts: what parts share counts once."""

    def __init__(self) -> None:
        self._known: dict[Term, tuple[int, float]] = {}
        self._weights: list[float] = []

    def of(self, term: Term) -> float:
        """Return additions for all nodes of a body; what a view shows is computed for it alone."""
        return self._weighed(term)[1]

    def together(self, terms: Iterable[Term]) -> float:
        """Return additions for all nodes of several bodies."""
        return self._with(map(self._weighed, terms), 0, 0.0)[1]

    def operators(self, term: Term) -> int:
        """Return how many different operators a body has."""
        return self._weighed(term)[0].bit_count()

    def _weighed(self, term: Term) -> tuple[int, float]:
        """Return a bit for each node of a body and what all of them take."""
        if term not in self._known:
            weight, args = _node_work(term), [self._weighed(arg) for arg in term.args if arg.sort == "element"]
            if term.op == "reindex" and term.args[0].op != "load":
                ((_, shown),) = args
                weight += shown * shapes.size(term.shape) / shapes.size(term.args[0].shape)
                args = []
            share = _share(term.args[0]) if term.op == "where" else None
            if share is not None:
                sides = zip(term.args[1:], args[1:], (share, 1 - share), strict=True)
                weight += sum(part * work if _spans(arg, term.args[0]) else work for arg, (_, work), part in sides)
                args = args[:1]
            self._weights.append(weight)
            self._known[term] = self._with(args, 1 << len(self._weights) - 1, weight)
        return self._known[term]

    def _with(self, parts: Iterable[tuple[int, float]], nodes: int, total: float) -> tuple[int, float]:
        """Add parts to what nodes take in total."""
        for bits, work in sorted(parts, key=lambda part: part[1], reverse=True):
            total += work - sum(self._weights[bit] for bit in _set_bits(bits & nodes))
            nodes |= bits
        return nodes, total


def _share(e: Term) -> float | None:
    """Return for how many places of the last axis a comparison of the index with a number holds, or several do.

    Kernels have code for each range of that axis, of which others are computed from one end to the other.
    """
    if e.op in ("and", "or"):
        left, right = map(_share, e.args)
        if left is None or right is None:
            return None
        return left * right if e.op == "and" else left + right - left * right
    if e.op not in ("lt", "le", "gt", "ge") or [arg.op for arg in e.args] != ["iota", "const"]:
        return None
    (axis, extent, _), number = e.args[0].attrs, e.args[1].attrs[0].value
    if axis != -1:
        return None
    before = min(max(number + (e.op in ("le", "gt")), 0), extent) / extent
    return before if e.op in ("lt", "le") else 1 - before


def _spans(e: Term, comparison: Term) -> bool:
    """Whether an element has values of its own at all places that a comparison tells apart."""
    return all(e.shape[-1:] == arg.attrs[1:2] for arg in walk(comparison) if arg.op == "iota")


def _set_bits(bits: int) -> Iterator[int]:
    while bits:
        yield (bits & -bits).bit_length() - 1
        bits &= bits - 1


def _node_work(term: Term) -> float:
    """Return what one node of a body costs over its own extents, in units of one addition."""
    match term.op:
        case "fold":
            return float(shapes.size(term.args[0].shape))
        case "dot" | "attend":
            return 2.0 * shapes.size(term.shape) * term.attrs[0] / 8
        case "window_dot":
            source, _, kernel, *_, groups = term.attrs
            return 2.0 * shapes.size(term.shape) * source[0] / groups * shapes.size(kernel) / 8
        case "winograd_dot":
            (*_, inputs), _, _, tile = term.attrs
            return 2.0 * shapes.size(term.shape) * inputs * ((tile + 2) / tile) ** 2 / 8
        case "load":
            return float(shapes.size(term.shape))
        case _:
            return registry.get(term.op, "element").cost * shapes.size(term.shape)
