"""Siblings: tensors of one shape, none computed from another, that read the same: one kernel can compute them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Protocol, TypeVar

from frittata.egraph.ops.elements import CONTRACTIONS
from frittata.egraph.program import operands_of
from frittata.egraph.terms import Term, walk
from frittata.extract.dominators import Dominators
from frittata.extract.work import Works

_MOST = 8
"""How many are computed together."""


class Kernel(Protocol):
    """A kernel that computes a tensor of what it loads."""

    @property
    def bodies(self) -> tuple[tuple[int, Term], ...]:
        """The class of the tensor, and what it is computed by."""
        ...

    @property
    def loads(self) -> frozenset[int]:
        """The classes that it needs."""
        ...


K = TypeVar("K", bound=Kernel)


def together(
    kernels: Mapping[int, Sequence[K]], is_constant: Callable[[Term], bool], evaluated: Dominators, works: Works
) -> Iterator[tuple[K, ...]]:
    """Visit groups of kernels for siblings, one of those for each, that share most: all, and each two neighbours.

    What is opaque, or a contraction, has a kernel of its own.
    """
    fit = {class_: [k for k in kernels[class_] if _may_join(_body(k))] for class_ in sorted(kernels)}
    for group in _groups({class_: [*map(_body, found)] for class_, found in fit.items()}, is_constant, evaluated):
        for members in dict.fromkeys([group, *pairwise(group)]):
            choices = [[k for k in fit[class_] if k.loads.isdisjoint(members)] for class_ in members]
            if len(members) > 1 and all(choices):
                yield _sharing(choices, works)


def _body(kernel: Kernel) -> Term:
    ((_, body),) = kernel.bodies
    return body


def _may_join(body: Term) -> bool:
    return body.op == "build" and all(term.op not in CONTRACTIONS for term in walk(body))


def _groups(
    bodies: Mapping[int, Sequence[Term]], is_constant: Callable[[Term], bool], evaluated: Dominators
) -> Iterator[tuple[int, ...]]:
    """Return the classes that are siblings, by the bodies of each."""
    read = {c: {leaf for leaf in operands_of(*own) if not is_constant(leaf)} for c, own in bodies.items()}

    def needs(class_: int, other: int) -> bool:
        return bool(evaluated.below.get(class_, 0) & evaluated.bit.get(other, 0))

    def joins(class_: int, group: list[int]) -> bool:
        is_alike = len(group) < _MOST and bodies[class_][0].shape == bodies[group[0]][0].shape
        shares = is_alike and any(read[class_] & read[other] for other in group)
        return shares and not any(needs(class_, other) or needs(other, class_) for other in group)

    found: list[list[int]] = []
    for class_ in filter(bodies.get, bodies):
        group = next((group for group in found if joins(class_, group)), None)
        if group is None:
            found.append(group := [])
        group.append(class_)
    return map(tuple, found)


def _sharing(choices: Sequence[Sequence[K]], works: Works) -> tuple[K, ...]:
    """Choose a kernel of each sequence, one after the other, so that all of them together take least."""
    chosen = [found[0] for found in choices]
    for _ in range(2):
        for i, found in enumerate(choices):
            others = [_body(k).args[0] for k in (*chosen[:i], *chosen[i + 1 :])]
            chosen[i] = min(found, key=lambda kernel: works.together([*others, _body(kernel).args[0]]))
    return tuple(chosen)
