"""Kernel templates, one module a loop shape: the bodies each of them takes and what they cost."""

from __future__ import annotations

from frittata.egraph import program
from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.program import Template
from frittata.egraph.terms import Term
from frittata.kernels.lowered import HostTemplate, KernelTemplate
from frittata.kernels.templates.attention import ATTENTION
from frittata.kernels.templates.contraction import CONTRACTION, HALVES
from frittata.kernels.templates.convolution import CHANNELS, CONVOLUTION
from frittata.kernels.templates.host import OPAQUE
from frittata.kernels.templates.library import LIBRARY
from frittata.kernels.templates.nest import NEST
from frittata.kernels.templates.order import ORDER
from frittata.kernels.templates.pointwise import POINTWISE
from frittata.kernels.templates.row import ROW
from frittata.kernels.templates.scan import SCAN
from frittata.kernels.templates.scatter import SCATTER
from frittata.kernels.templates.stencil import STENCIL
from frittata.kernels.templates.taps import TAPS
from frittata.kernels.templates.winograd import WINOGRAD
from frittata.kernels.templates.write import WRITE

TEMPLATES: tuple[KernelTemplate, ...] = (
    POINTWISE, ROW, HALVES, CONTRACTION, CONVOLUTION, CHANNELS, WINOGRAD, STENCIL, TAPS, ATTENTION, LIBRARY, SCAN,
    SCATTER, NEST,
)  # fmt: skip
"""All templates, of two that cost the same the better one first; the last takes every body."""


OPAQUE_TEMPLATES: tuple[KernelTemplate, ...] = (ORDER, WRITE)
"""Templates of opaque operators: each has code of its own for some of them."""

HOST_TEMPLATES: tuple[HostTemplate, ...] = (OPAQUE,)
"""Templates of steps that run in Python, between kernels."""


def host_by_name(name: str) -> HostTemplate | None:
    """Return a template of host steps, None if the name is that of kernels."""
    return next((template for template in HOST_TEMPLATES if template.name == name), None)


def by_name(name: str) -> KernelTemplate:
    """Return a template.

    Raises: LoweringError if there is none of that name.
    """
    every = (*TEMPLATES, *OPAQUE_TEMPLATES)
    for template in every:
        if template.name == name:
            return template
    raise LoweringError(f"no kernel template {name!r}", do=f"use one of {', '.join(t.name for t in every)}")


def is_in_place(name: str) -> bool:
    """Whether the kernels of a template read and write buffers that lie apart in others."""
    return any(template.name == name and program.is_in_place(template) for template in TEMPLATES)


def select(form: str, library: bool) -> tuple[Template, ...]:
    """Return the templates to choose from; the plain form has one for all bodies, and no use for other algorithms."""
    if form == "plain":
        return (*(template for template in TEMPLATES if template not in (WINOGRAD, HALVES)), *HOST_TEMPLATES)
    every = (*TEMPLATES, *OPAQUE_TEMPLATES, *HOST_TEMPLATES)
    return tuple(template for template in every if library or template is not LIBRARY)


def cheapest(bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> str:
    """Return the name of the template with the lowest estimate."""
    found = ((template.estimate(bodies, constants, machine), template.name) for template in TEMPLATES)
    return min((estimate.seconds, name) for estimate, name in found if estimate is not None)[1]
