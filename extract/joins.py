"""Writing in place: a concatenation or a border needs no kernel if the parts are written where they end up.

Each buffer has one place, so a part must be the whole memory of something that a kernel of its own writes, and stand in
one join only. Candidates are offered one by one, for nothing; what does not fit together, and what it costs to read and
write with gaps, is seen in the choice as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from frittata.egraph.machine import Machine
from frittata.egraph.places import Places, find_places, placed_bodies, touches_apart
from frittata.egraph.program import Join, Kernel, Program, Template, is_in_place
from frittata.egraph.terms import Term
from frittata.extract.prices import structure


@dataclass(frozen=True)
class Settlement:
    """What places mean for a program: joins that cannot be, what the others make dearer, and kernels as they run then.

    Units: seconds.
    """

    wrong: frozenset[str]
    extra_by_join: Mapping[str, float]
    kernel_by_name: Mapping[str, Kernel]


@dataclass(frozen=True)
class Settler:
    """Looks at the joins of the programs of one extraction; what places cost kernels is found once of each structure.

    `_more_by_structure` has the seconds that are added and the template then, None where no template takes them.
    """

    templates: tuple[Template, ...]
    machine: Machine
    _more_by_structure: dict[Any, tuple[float, str] | None] = field(
        default_factory=dict[Any, "tuple[float, str] | None"]
    )

    def settle(self, program: Program) -> Settlement:
        """Look at every join of a program, and price again the kernels that read or write with gaps."""
        if not any(isinstance(step, Join) for step in program.steps):
            return Settlement(frozenset(), {}, {})
        places = find_places(program)
        wrong = set(places.wrong) | set(_among_results(program, places))
        extra: dict[str, float] = {}
        kernels: dict[str, Kernel] = {}
        constants = program.constant_buffers()
        for kernel in program.kernels if not wrong else ():
            if not touches_apart(kernel, places):
                continue
            joins = sorted(set(_joins(kernel, places)))
            found = None if kernel.is_opaque else self._priced(kernel, places, constants)
            if found is None:
                wrong.update(joins)
                continue
            kernels[kernel.name] = found
            for join in joins:
                more = found.estimate.seconds - kernel.estimate.seconds
                extra[join] = extra.get(join, 0.0) + more / len(joins)
        return Settlement(frozenset(wrong), extra, kernels)

    def _priced(self, kernel: Kernel, places: Places, constants: frozenset[str]) -> Kernel | None:
        """Return a kernel with a template for its bodies in place; it never gets cheaper."""
        before = tuple(output.body for output in kernel.outputs)
        bodies = placed_bodies(kernel, places)
        structures = (structure(found, lambda leaf: leaf.attrs[0] in constants) for found in (before, bodies))
        key = kernel.template, *structures
        if key not in self._more_by_structure:
            self._more_by_structure[key] = self._more(kernel.template, before, bodies, constants)
        more = self._more_by_structure[key]
        if more is None:
            return None
        estimate = replace(kernel.estimate, seconds=kernel.estimate.seconds + more[0])
        return replace(kernel, template=more[1], estimate=estimate)

    def _more(
        self, name: str, before: tuple[Term, ...], bodies: tuple[Term, ...], constants: frozenset[str]
    ) -> tuple[float, str] | None:
        """Return what places add to the price of bodies, and the template for them.

        Their own template is the first to be asked, the others if that takes longer now.
        """
        own = [t for t in self.templates if t.name == name]
        least = min(seconds for seconds, _ in _estimates(own, before, constants, self.machine))
        taking = [template for template in self.templates if is_in_place(template)]
        found = _estimates([template for template in own if template in taking], bodies, constants, self.machine)
        if not found or min(found)[0] > least:
            found = _estimates(taking, bodies, constants, self.machine)
        if not found:
            return None
        seconds, template = min(found)
        return max(0.0, seconds - least), template


def _among_results(program: Program, places: Places) -> Iterator[str]:
    """Visit joins with a border that would lie in a result, and joins from which no result can be copied."""
    results = [places.by_name[name] for name in program.outputs]
    turned = {step.name for step in program.steps if isinstance(step, Join) and step.body.op == "permute"}
    yield from (place.join for place in results if place.join in turned and not place.is_contiguous)
    roots = {place.root for place in results if place.is_contiguous}
    yield from (join for join in places.border_by_join if places.by_name[join].root in roots)
    yield from (place.join for place in results if place.join is not None and place.strides is None)


def _joins(kernel: Kernel, places: Places) -> Iterator[str]:
    """Visit the joins around what a kernel reads and writes with gaps, or within a border."""
    for name in (*kernel.operands, *(output.name for output in kernel.outputs)):
        place = places.by_name[name]
        if place.join is not None and (not place.is_contiguous or places.is_bordered(place.root)):
            yield place.join


def _estimates(
    templates: list[Template], bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine
) -> list[tuple[float, str]]:
    """Return the price and the name of each template that takes bodies."""
    asked = ((template.estimate(bodies, constants, machine), template.name) for template in templates)
    return [(estimate.seconds, name) for estimate, name in asked if estimate is not None]
