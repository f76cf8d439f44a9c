"""Kernel templates, one module a loop shape: the bodies each of them takes and what they cost."""

from __future__ import annotations

from frittata.egraph.errors import LoweringError
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
