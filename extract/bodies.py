"""Bodies of element classes, and the search for them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from frittata.egraph import shapes
from frittata.egraph.shapes import Shape
from frittata.egraph.snapshot import Node
from frittata.egraph.terms import Term

_COMBINATION_LIMIT = 128


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """One way to compute an element class: a term, the classes it loads, and those it computes on the way.

    `inlined` has the storable tensor classes whose value the term passes through at the kernel's own index, by term,
    `passed` those at any index, with the bytes that are read to compute them. `anchor` is the contraction inside, if
    there is one. `work` counts additions over the whole context. `binders` are the element classes of its folds and
    contractions. `reads` has the classes that it loads, with the bytes of each that it reads.
    """

    term: Term
    reads: Mapping[int, float]
    inlined: Mapping[int, Term]
    passed: Mapping[int, float]
    kind: int
    anchor: Term | None
    work: float
    rules: frozenset[int]
    binders: frozenset[int] = frozenset()

    @property
    def loads(self) -> frozenset[int]:
        """The tensor classes that it loads."""
        return frozenset(self.reads)


Search = Generator["Search", tuple[list[Body], int], tuple[list[Body], int]]
"""A search that asks for others and is sent what they found: a state of a recurrence is computed from all before it."""


def ran(search: Search) -> tuple[list[Body], int]:
    """Run a search and those that it asks for, without recursion."""
    stack = [search]
    found: Any = None
    while stack:
        try:
            stack.append(stack[-1].send(found))
            found = None
        except StopIteration as end:
            stack.pop()
            found = end.value
    return found


def combinations(choices: list[list[Body]], is_alone: Callable[[Body], bool]) -> Iterator[tuple[Body, ...]]:
    """Visit combinations of bodies, one of each list, with no contraction or with one, which several may hold.

    The best of those that are alone are visited first, for the limit may leave out their combination.

    Those that hold a contraction are visited apart, so that a limit on the number of combinations leaves out none of
    them: max(c, 0.1 * c) has c twice, of each there are as many bodies as algorithms and layouts, and few of the pairs
    are of the same.
    """
    yield from product(*([*filter(is_alone, bodies)][:1] for bodies in choices))
    without = [[body for body in bodies if body.anchor is None] for bodies in choices]
    yield from islice(product(*without), _COMBINATION_LIMIT)
    for anchor in dict.fromkeys(body.anchor for bodies in choices for body in bodies if body.anchor is not None):
        with_it = [[body for body in bodies if body.anchor is anchor] for bodies in choices]
        either = ([*held, *others] for held, others in zip(with_it, without, strict=True))
        found = islice(product(*either), _COMBINATION_LIMIT)
        yield from (parts for parts in found if any(part.anchor is anchor for part in parts))


def contexts(node: Node, context: Shape) -> list[Shape] | None:
    """Return the context of each argument of an element node, None if the node may not stand in `context`."""
    match node.op:
        case "fold":
            _, axis, extent = node.attrs
            return [_with(context, axis, extent)]
        case "scan":
            _, axis, extent = node.attrs
            return [context] if extent in (1, shapes.dim_at(context, axis)) else None
        case "dot" | "attend":
            depth = node.attrs[0]
            return [_with(context, -1, depth), _with(context, -2, depth)]
        case "window_dot":
            source, channels, kernel, *_, groups = node.attrs
            rank = len(kernel)
            return [
                (*context[: max(0, len(context) - rank - 1)], *source),
                (channels, source[0] // groups, *kernel),
            ]
        case "winograd_dot":
            source, channels, *_ = node.attrs
            return [(*context[: max(0, len(context) - 3)], *source), (channels, source[2], 3, 3)]
        case "reindex":
            mapping = node.attrs[0]
            return [mapping.source] if shapes.fits(mapping.result, context) else None
        case "at":
            axis, extent = node.attrs
            return [_with(context, axis, extent), context]
        case "iota":
            axis, extent, _ = node.attrs
            return [] if extent in (1, shapes.dim_at(context, axis)) else None
        case _:
            return [context] * len(node.args)


def _with(context: Shape, axis: int, extent: Any) -> Shape:
    padded = (*(1,) * (-axis - len(context)), *context)
    return (*padded[: len(padded) + axis], extent, *padded[len(padded) + axis + 1 :])
