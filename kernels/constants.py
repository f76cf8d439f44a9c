"""The values of a program's constants while its kernels are laid out: computed when first read, dropped after the last.

A folded weight that is packed for its kernel is not kept beside the packed form, and not even all of them at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import shapes
from frittata.egraph.program import Program, View
from frittata.egraph.terms import Term, walk
from frittata.kernels.plan import constant_value
from frittata.kernels.shared import shared

Array = NDArray[Any]


class Constants:
    """Constants and views of them, by the names of their buffers; equal terms share one array."""

    def __init__(self, program: Program, value_by_param: Mapping[str, Array]) -> None:
        self._value_by_param = value_by_param
        self._term_by_name = program.constants
        self._view_by_name: dict[str, View] = {}
        for step in program.steps:
            if isinstance(step, View) and (step.source in self._term_by_name or step.source in self._view_by_name):
                self._view_by_name[step.name] = step
        self._array_by_term: dict[Term, Array] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._term_by_name or name in self._view_by_name

    def __getitem__(self, name: str) -> Array:
        """Return the value of a constant, or of a view of one.

        Raises: ModelError if a param has no value.
        """
        if name in self._view_by_name:
            view = self._view_by_name[name]
            return part_of(self[view.source], view)
        term = self._term_by_name[name]
        if term not in self._array_by_term:
            self._array_by_term[term] = constant_value(term, self._value_by_param)
        return self._array_by_term[term]

    def contiguous(self, name: str) -> Array:
        """Return a constant that is no view as kernels read it in place."""
        term = self._term_by_name[name]
        array = np.require(self[name], requirements=["C", "A"])
        read = [self._value_by_param[part.attrs[0]] for part in walk(term) if part.op == "param"]
        self._array_by_term[term] = found = shared(array, read)
        return found

    def identity(self, name: str) -> Hashable:
        """Return what is equal for buffers of equal values: the term, and the parts of it that views take."""
        if name in self._view_by_name:
            view = self._view_by_name[name]
            return self.identity(view.source), view.offset, view.type
        return self._term_by_name[name]

    def term(self, name: str) -> Term:
        """Return the term of which a buffer holds the value, or a part."""
        return self.term(self._view_by_name[name].source) if name in self._view_by_name else self._term_by_name[name]

    def forget(self, terms: Iterable[Term]) -> None:
        """Drop the values of terms; who holds one keeps it."""
        for term in terms:
            self._array_by_term.pop(term, None)


def part_of(array: Array, view: View) -> Array:
    """Return the part of a contiguous array that a view names."""
    shape = shapes.concrete(view.type.shape)
    return array.reshape(-1)[view.offset : view.offset + prod(shape)].reshape(shape)
