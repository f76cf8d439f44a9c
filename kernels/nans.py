"""Where a maximum need not find a NaN, because a sum of the same values does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from frittata.egraph import terms
from frittata.egraph.terms import Term
from frittata.kernels.points import reduction

_CARRIERS = frozenset({"add", "sub", "mul", "div", "fma", "neg", "exp", "log", "reciprocal", "sqrt", "rsqrt", "cast"})


def blind_maxima(elements: Iterable[Term]) -> frozenset[Term]:
    """Return the folds of elements that may take NaN for nothing, and zeros of both signs for equal.

    As the maximum of a softmax may: with a NaN in a row the sum of its exponentials is one, and so is all that follows
    from that sum by arithmetic, whatever the maximum was. The sign of a zero is lost in an exponential.
    """
    roots = tuple(elements)
    every = list(terms.walk(*roots))
    folds = [term for term in every if term.op == "fold" and term.dtype[0] == "f"]
    maxima = (fold for fold in folds if fold.attrs[0] == "max" and _is_subtracted(fold, every))
    return frozenset(fold for fold in maxima if _is_blind(fold, folds, roots))


def is_below_its_maximum(e: Term) -> bool:
    """Whether an element is another less the maximum of that: never above 0, though it may be NaN."""
    return e.op == "sub" and e.args[1].op == "fold" and e.args[1].attrs[0] == "max" and e.args[1].args[0] == e.args[0]


def _is_subtracted(maximum: Term, every: Sequence[Term]) -> bool:
    """Whether a maximum is only subtracted from its own values, for exponentials and further differences."""
    below = [term for term in every if maximum in term.args]
    uses = (term for term in every if any(arg in below for arg in term.args))
    return all(map(is_below_its_maximum, below)) and all(
        use.op == "exp" or (use.op == "sub" and use.args[0] in below) for use in uses
    )


def _is_blind(maximum: Term, folds: Iterable[Term], roots: Iterable[Term]) -> bool:
    found = reduction(maximum)
    sums = [
        fold
        for fold in folds
        if fold.attrs[0] == "sum"
        and reduction(fold).extent_by_axis == found.extent_by_axis
        and _carries(reduction(fold).element, found.element)
    ]
    return all(any(_carries(root, fold) for fold in sums) for root in roots)


def _carries(term: Term, source: Term) -> bool:
    """Whether a NaN of a source makes a term NaN."""
    seen, stack = set[Term](), [term]
    while stack:
        current = stack.pop()
        if current is source:
            return True
        if current not in seen:
            seen.add(current)
            if current.op in _CARRIERS or (current.op == "fold" and current.attrs[0] == "sum"):
                stack.extend(current.args)
    return False
