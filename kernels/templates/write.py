"""The template of values that are written to places along an axis: `scatter` where no rule makes it a fold."""

from __future__ import annotations

import numpy as np

from frittata.egraph import program
from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels.lowered import LoweredKernel, Operand, Result, Status
from frittata.kernels.pointers import POINTERS
from frittata.kernels.roofline import with_traffic
from frittata.kernels.source import INDENT, call_comment
from frittata.kernels.writes import describe


class WriteTemplate:
    """Runs `scatter`: a copy, then a step for each value, in scalar code but for values that lie side by side."""

    name = "write"
    opaque = True

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the time of scalar code and of memory; None for other bodies."""
        work = describe(bodies)
        if work is None:
            return None
        seconds = work.nanoseconds * 1e-9 / machine.threads
        return with_traffic(bodies, seconds, work.units, work.chunks, machine)

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write the loops of a chunk."""
        work = describe(bodies)
        if work is None:
            raise LoweringError("the write template takes one scatter")
        (body,) = bodies
        leaves = list(program.operands_of(body))
        names = zip(("x", "places", "source"), body.args, strict=True)
        pointers = [f"{name} = {leaf.dtype}_pointer(table[{leaves.index(leaf)}])" for name, leaf in names]
        count = len(leaves)
        text = [
            *call_comment(body),
            f"def {name}(table, chunk):",
            *(INDENT + line for line in pointers),
            f"{INDENT}y = {body.dtype}_pointer(table[{count}])",
            f"{INDENT}status = i64_pointer(table[{count + 1}])",
            *(INDENT + line for line in work.lines()),
        ]
        arguments = (*map(Operand, range(count)), Result(0), Status(1))
        return LoweredKernel(name, "\n".join(text) + "\n", {"np": np, **POINTERS}, work.chunks, arguments)


WRITE = WriteTemplate()
