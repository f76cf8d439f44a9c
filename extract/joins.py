"""Writing in place: a concatenation of contiguous parts needs no kernel if its parts are written where they end up.

Each buffer has one place, so a part must be the whole memory of something that a kernel of its own writes, and stand in
one concatenation only. Candidates are offered one by one; what does not fit together is seen in the choice as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from frittata.egraph import shapes
from frittata.egraph.program import operands_of
from frittata.egraph.terms import Term
from frittata.extract.candidates import JOIN, VIEW, Candidate


def misplaced(candidates: Iterable[Candidate], free: frozenset[int]) -> Iterator[Candidate]:
    """Visit the joins of a choice, in order, whose parts cannot lie where the join wants them."""
    owner_by_view: dict[int, int | None] = {}
    placed: set[int] = set()

    def owner(class_: int) -> int | None:
        """Return the class whose memory a class is as a whole, None if it is a part of some, or not a kernel's."""
        return None if class_ in free else owner_by_view.get(class_, class_)

    for candidate in candidates:
        ((class_, body), *_) = candidate.bodies
        if candidate.template == VIEW:
            (leaf,) = operands_of(body)
            whole = shapes.size(leaf.shape) == shapes.size(body.shape)
            owner_by_view[class_] = owner(_class_of(leaf)) if whole else None
        elif candidate.template == JOIN:
            owners = [owner(_class_of(leaf)) for leaf in body.args]
            if None in owners or len(set(owners)) < len(owners) or placed.intersection(owners):
                yield candidate
            placed.update(o for o in owners if o is not None)


def _class_of(leaf: Term) -> int:
    return int(leaf.attrs[0][1:])
