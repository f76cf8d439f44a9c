"""Kernel templates, one module a loop shape: the bodies each of them takes and what they cost."""

from __future__ import annotations

from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.terms import Term
from frittata.kernels.lowered import KernelTemplate
from frittata.kernels.templates.contraction import CONTRACTION
from frittata.kernels.templates.convolution import CONVOLUTION
from frittata.kernels.templates.library import LIBRARY
from frittata.kernels.templates.nest import NEST
from frittata.kernels.templates.pointwise import POINTWISE
from frittata.kernels.templates.row import ROW

TEMPLATES: tuple[KernelTemplate, ...] = (POINTWISE, ROW, CONTRACTION, CONVOLUTION, LIBRARY, NEST)
"""All templates; the last takes every body."""


def by_name(name: str) -> KernelTemplate:
    """Return a template.

    Raises: LoweringError if there is none of that name.
    """
    for template in TEMPLATES:
        if template.name == name:
            return template
    raise LoweringError(f"no kernel template {name!r}", do=f"use one of {', '.join(t.name for t in TEMPLATES)}")


def select(form: str, library: bool) -> tuple[KernelTemplate, ...]:
    """Return the templates to choose from; the plain form has one for all bodies."""
    if form == "plain":
        return TEMPLATES
    return tuple(template for template in TEMPLATES if library or template is not LIBRARY)


def cheapest(bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> str:
    """Return the name of the template with the lowest estimate."""
    found = ((template.estimate(bodies, constants, machine), template.name) for template in TEMPLATES)
    return min((estimate.seconds, name) for estimate, name in found if estimate is not None)[1]
