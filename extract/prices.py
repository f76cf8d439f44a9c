"""What kernels were found to take on this machine, as shares of what their templates predict."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from statistics import median
from typing import Any

from frittata.egraph import terms
from frittata.egraph.indexing import IndexMap
from frittata.egraph.program import Estimate, Kernel, Program
from frittata.egraph.slices import parts_of
from frittata.egraph.terms import Scalar, Term

_LEAST_S = 1e-9
"""What a kernel is taken to have needed at least: clocks that tick slowly say nothing of a short one."""


@dataclass
class Prices:
    """Corrections of predictions: `factor_by_key` has measured over predicted time for kernels that have been timed."""

    factor_by_key: dict[str, float] = field(default_factory=dict[str, float])

    def corrected(
        self, template: str, bodies: tuple[Term, ...], constants: Collection[str], predicted: Estimate
    ) -> Estimate:
        """Return a prediction as measurements correct it: as it is for a kernel that has not been timed."""
        if not self.factor_by_key:
            return predicted
        factor = self.factor_by_key.get(key_of(template, bodies, constants), 1.0)
        return replace(predicted, seconds=predicted.seconds * factor)

    def bounds(self, least_s: float) -> float:
        """Return seconds than which no prediction of at least so many is corrected to less."""
        return least_s if not self.factor_by_key else 0.0

    def knows(self, program: Program) -> bool:
        """Whether all kernels of a program have been timed."""
        return all(key in self.factor_by_key for _, key in keys(program))

    def note(self, program: Program, seconds_by_name: Mapping[str, float]) -> None:
        """Learn from the times of a program's kernels; of several times the least counts, of equal kernels the median.

        Units: seconds.
        """
        found: dict[str, list[float]] = {}
        for kernel, key in keys(program):
            predicted = kernel.estimate.seconds / self.factor_by_key.get(key, 1.0)
            if predicted > 0:
                found.setdefault(key, []).append(max(seconds_by_name[kernel.name], _LEAST_S) / predicted)
        for key, factors in found.items():
            self.factor_by_key[key] = min(median(factors), self.factor_by_key.get(key, float("inf")))


def key_of(template: str, bodies: tuple[Term, ...], constants: Collection[str]) -> str:
    """Return the name of a kernel among all: the same for bodies of the same structure."""
    found = structure(bodies, lambda leaf: leaf.attrs[0] in constants)
    return hashlib.sha256(repr((template, found)).encode()).hexdigest()


def structure(bodies: tuple[Term, ...], is_constant: Callable[[Term], bool]) -> tuple[Any, ...]:
    """Return what bodies are up to what prices do not depend on: equal layers and steps of a recurrence share them.

    That is the names of operands, where in them the parts begin that are read, most numbers, and which place of an axis
    is read where only one is. Constants are known before run time.
    """
    every = [*terms.walk(*bodies)]
    part_by_load = parts_of(every, is_constant)
    shape_by_leaf = {load.args[0]: part.shape for load, part in part_by_load.items()}
    place_by_index: dict[int, int] = {}
    position: dict[Term, int] = {}
    rows: list[Any] = []
    for term in every:
        position[term] = len(position)
        if term.op == "input":
            rows.append((shape_by_leaf.get(term, term.shape), term.dtype, is_constant(term)))
        elif term.op == "const":
            rows.append((term.op, term.type, _as_priced(term.attrs[0])))
        elif term.op == "reindex":
            part = part_by_load.get(term.args[0])
            view = term.attrs[0] if part is None else part.view(term)
            rows.append((term.op, _as_read(view, place_by_index), position[term.args[0]]))
        else:
            rows.append((term.op, term.attrs, *(position[arg] for arg in term.args)))
    return (*rows, *(position[body] for body in bodies))


def _as_read(view: IndexMap, place_by_index: dict[int, int]) -> Any:
    """Return a view up to which place other than the first it reads of an axis, if only one: equal ones stay equal."""
    if all(index.terms or index.constant == 0 for index in view.sources):
        return view
    read: list[Any] = []
    for index, extent in zip(view.sources, view.source, strict=True):
        is_one = not index.terms and isinstance(extent, int) and 0 < index.constant < extent
        read.append(place_by_index.setdefault(index.constant, len(place_by_index)) if is_one else index)
    return view.source, view.result, tuple(read)


def _as_priced(number: Scalar) -> Any:
    """Return what prices depend on of a number: that it is a float, unless it changes nothing or bounds something."""
    value = number.value
    return value if number.dtype not in ("f32", "f64") or value in (0.0, 1.0, -1.0) or not isfinite(value) else None


def keys(program: Program) -> list[tuple[Kernel, str]]:
    """Return the kernels of a program, each with its key."""
    constants = program.constant_buffers()
    return [(k, key_of(k.template, tuple(output.body for output in k.outputs), constants)) for k in program.kernels]
