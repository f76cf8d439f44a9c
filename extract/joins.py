"""Writing in place: a concatenation or a border needs no kernel if the parts are written where they end up.

Each buffer has one place, so a part must be the whole memory of something that a kernel of its own writes, and stand in
one join only. Candidates are offered one by one, for nothing; what does not fit together, and what it costs to read and
write with gaps, is seen in the choice as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from frittata.egraph.machine import Machine
from frittata.egraph.places import Places, find_places, placed_bodies, touches_apart
from frittata.egraph.program import Join, Kernel, Program, Template, is_in_place
from frittata.egraph.terms import Term


@dataclass(frozen=True)
class Settlement:
    """What places mean for a program: joins that cannot be, what the others make dearer, and kernels as they run then.

    Units: seconds.
    """

    wrong: frozenset[str]
    extra_by_join: Mapping[str, float]
    kernel_by_name: Mapping[str, Kernel]


def settle(program: Program, templates: tuple[Template, ...], machine: Machine) -> Settlement:
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
        bodies = placed_bodies(kernel, places)
        found = None if kernel.is_opaque else _priced(kernel, bodies, constants, templates, machine)
        if found is None:
            wrong.update(joins)
            continue
        kernels[kernel.name] = found
        for join in joins:
            more = found.estimate.seconds - kernel.estimate.seconds
            extra[join] = extra.get(join, 0.0) + more / len(joins)
    return Settlement(frozenset(wrong), extra, kernels)


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


def _priced(
    kernel: Kernel,
    bodies: tuple[Term, ...],
    constants: frozenset[str],
    templates: tuple[Template, ...],
    machine: Machine,
) -> Kernel | None:
    """Return a kernel with a template for its bodies in place; it never gets cheaper.

    Its own template is the first to be asked, the others if that takes longer now.
    """
    before = tuple(output.body for output in kernel.outputs)
    own = [t for t in templates if t.name == kernel.template]
    least = min(seconds for seconds, _ in _estimates(own, before, constants, machine))
    taking = [template for template in templates if is_in_place(template)]
    found = _estimates([template for template in own if template in taking], bodies, constants, machine)
    if not found or min(found)[0] > least:
        found = _estimates(taking, bodies, constants, machine)
    if not found:
        return None
    seconds, name = min(found)
    more = max(0.0, seconds - least)
    estimate = replace(kernel.estimate, seconds=kernel.estimate.seconds + more)
    return replace(kernel, template=name, estimate=estimate)


def _estimates(
    templates: list[Template], bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine
) -> list[tuple[float, str]]:
    """Return the price and the name of each template that takes bodies."""
    asked = ((template.estimate(bodies, constants, machine), template.name) for template in templates)
    return [(estimate.seconds, name) for estimate, name in asked if estimate is not None]
