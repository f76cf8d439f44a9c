"""The template of values that are written to places along an axis: `scatter` where no rule makes it a fold."""

from __future__ import annotations

from functools import partial

import numpy as np

from frittata.egraph import program
from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels.intrinsics import make_tile_intrinsic
from frittata.kernels.lowered import LoweredKernel, Status, addresses
from frittata.kernels.pointers import POINTERS
from frittata.kernels.roofline import roofline
from frittata.kernels.source import call_comment, function
from frittata.kernels.writes import describe, emit_line


class WriteTemplate:
    """Runs `scatter`: a copy, then a step for each value, in scalar code but for values that lie side by side."""

    name = "write"
    opaque = True

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the time of scalar code and of memory; None for other bodies."""
        work = describe(bodies)
        if work is None:
            return None
        return roofline(bodies, work.units, work.chunks, machine)

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
        pointers += [f"base, result = {leaves.index(body.args[0])}, {count}"]
        pointers += [f"y = {body.dtype}_pointer(table[{count}])", f"status = i64_pointer(table[{count + 1}])"]
        text = function(name, call_comment(body), [*pointers, *work.lines()])
        namespace = {"np": np, **POINTERS}
        if work.has_lines:
            line = partial(emit_line, work=work, position=leaves.index(body.args[2]), result=count)
            namespace["line"] = make_tile_intrinsic("line", line, 2)
        arguments = (*addresses(bodies), Status(1))
        return LoweredKernel(name, text, namespace, work.chunks, arguments, str(work))


WRITE = WriteTemplate()
