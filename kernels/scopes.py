"""Blocks of a loop nest while it is being written: which variables are known in each, and what was computed there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frittata.egraph.indexing import Affine
from frittata.egraph.terms import Term
from frittata.kernels.loops import Expression, Loop, Statement

Index = Mapping[int, Affine]
"""For each axis the index there; an axis that is missing has index 0."""
Place = tuple[tuple[int, Affine], ...]
"""The part of an index that an element depends on."""
Pattern = tuple[Term, Place]
"""An element along a row: the row's loop variable is written as `ALONG`."""

ALONG = "*"


@dataclass(eq=False)
class Scope:
    """A block that is being written, and what is known in it."""

    parent: Scope | None = None
    var: str | None = None
    """The variable of this loop."""
    extent: int = 1
    variables: set[int | str] = field(default_factory=set[int | str])
    """The variables that are known from here on."""
    block: list[Statement] = field(default_factory=list[Statement])
    known: dict[Pattern, Expression] = field(default_factory=dict[Pattern, Expression])
    rows: dict[Pattern, str] = field(default_factory=dict[Pattern, str])
    clamped: dict[tuple[Affine, int], Affine] = field(default_factory=dict[tuple[Affine, int], Affine])
    lookups: dict[tuple[Term, Place, int], Affine] = field(default_factory=dict[tuple[Term, Place, int], Affine])

    def __post_init__(self) -> None:
        if self.var is not None:
            self.variables.add(self.var)

    def home_of(self, variables: set[int | str]) -> Scope:
        """Return the outermost scope in which all of `variables` are known."""
        scope = self
        while scope.parent is not None and scope.variables.isdisjoint(variables):
            scope = scope.parent
        return scope

    def repeats_within(self, outer: Scope) -> int:
        """Return how often this loop runs for each round of an outer scope."""
        count, scope = 1, self.parent
        while scope is not None and scope is not outer:
            count *= scope.extent
            scope = scope.parent
        return count


@dataclass
class Names:
    """Names of index variables: the same in every attempt for the same thing, so that patterns can be compared."""

    name_by_thing: dict[Any, str] = field(default_factory=dict[Any, str])
    counts: dict[str, int] = field(default_factory=dict[str, int])

    def of(self, stem: str, thing: Any) -> str:
        """Return the name of what `thing` stands for."""
        key = (stem, thing)
        if key not in self.name_by_thing:
            number = self.counts[stem] = self.counts.get(stem, -1) + 1
            self.name_by_thing[key] = f"{stem}{number}"
        return self.name_by_thing[key]


def close(scope: Scope) -> Scope:
    """End a loop: it becomes a statement of its parent, which is returned."""
    assert scope.parent is not None and scope.var is not None
    scope.parent.block.append(Loop(scope.var, scope.extent, scope.block))
    return scope.parent


def place_of(e: Term, index: Index) -> Place:
    """Return the part of an index that an element depends on."""
    return tuple((axis, index[axis]) for axis in range(-len(e.shape), 0) if e.shape[axis] != 1 and axis in index)


def variables_of(place: Place) -> set[int | str]:
    """Return all variables that a place mentions."""
    return {key for _, at in place for key in at.variables()}
