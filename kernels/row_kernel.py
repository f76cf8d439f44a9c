"""What row and point-wise kernels have in common: comments, loops, arguments, and the key of their vector code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from frittata.egraph import program
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.lookups import sites
from frittata.kernels.lower import result_names
from frittata.kernels.lowered import Argument, LoweredKernel, Scratch, Status, addresses
from frittata.kernels.passes import Passes


def row_kernel(
    name: str,
    bodies: tuple[Term, ...],
    plan: Passes,
    chunks: int,
    lines: Sequence[str],
    namespace: Mapping[str, Any],
    notes: Sequence[str] = (),
    more: Sequence[Argument] = (),
) -> LoweredKernel:
    """Put the function `name` together: `lines` are its body, `notes` comments before it, `more` its last arguments."""
    text = source.function(name, [*source.comment(bodies, result_names(bodies)), *notes], lines)
    arguments = addresses(bodies)
    if plan.scratch_bytes:
        arguments.append(Scratch(plan.scratch_bytes))
    if words := len(sites(bodies)):
        arguments.append(Status(words))
    arguments += more
    key = f"{[str(leaf.type) for leaf in program.operands_of(*bodies)]} {plan.frame.describe()}"
    return LoweredKernel(name, text, namespace, chunks, tuple(arguments), key)
