"""Kernel templates, one module a loop shape: the bodies each of them takes and what they cost."""

from __future__ import annotations

from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.terms import Term
from frittata.kernels.lowered import KernelTemplate
from frittata.kernels.templates.nest import NEST

TEMPLATES: tuple[KernelTemplate, ...] = (NEST,)
"""All templates; the last takes every body."""


def by_name(name: str) -> KernelTemplate:
    """Return a template.

    Raises: LoweringError if there is none of that name.
    """
    for template in TEMPLATES:
        if template.name == name:
            return template
    raise LoweringError(f"no kernel template {name!r}", do=f"use one of {', '.join(t.name for t in TEMPLATES)}")


LIBRARY = frozenset[str]()
"""Names of the templates that call into a library."""


def select(form: str, library: bool) -> tuple[KernelTemplate, ...]:
    """Return the templates to choose from; the plain form has one for all bodies."""
    if form == "plain":
        return TEMPLATES
    return tuple(template for template in TEMPLATES if library or template.name not in LIBRARY)


def cheapest(bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> str:
    """Return the name of the template with the lowest estimate."""
    found = ((template.estimate(bodies, constants, machine), template.name) for template in TEMPLATES)
    return min((estimate.seconds, name) for estimate, name in found if estimate is not None)[1]
