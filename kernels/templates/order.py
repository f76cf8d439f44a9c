"""The template of the order of values along an axis: the places of all, or of the first few."""

from __future__ import annotations

from functools import partial

import numpy as np

from frittata.egraph.errors import LoweringError
from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels.chunks import ROW, Split, indented, row_loop, split
from frittata.kernels.intrinsics import make_index_intrinsic
from frittata.kernels.lowered import LoweredKernel, Operand, Result, Scratch, aligned
from frittata.kernels.orders import BLOCK, Ordering, beyond, describe, lowest, row_lines
from frittata.kernels.pointers import POINTERS
from frittata.kernels.roofline import roofline
from frittata.kernels.source import call_comment, function

_BITS = {"f32": "i32", "f64": "i64"}


class OrderTemplate:
    """Runs `argsort` and `argtopk` row by row, in scalar code."""

    name = "order"
    opaque = True

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the time of scalar code; None for other bodies."""
        work = describe(bodies)
        if work is None:
            return None
        return roofline(bodies, work.units, _split(work).chunks, machine)

    def lower(self, name: str, bodies: tuple[Term, ...], constants: frozenset[str]) -> LoweredKernel:
        """Write the loop over the rows of a chunk."""
        work = describe(bodies)
        if work is None:
            raise LoweringError("the order template takes one argsort or argtopk")
        cut, offset = _split(work), 0
        lines = [f"x = {_BITS.get(work.dtype, work.dtype)}_pointer(table[0])", "y = i64_pointer(table[1])"]
        row = row_lines(work, ROW if work.rows > 1 else "0")
        arrays: list[str] = []
        for array, size in work.scratch.items():
            arrays.append(f"{array} = i64_pointer(table[2] + chunk*{aligned(work.scratch_bytes)} + {offset})")
            offset += aligned(8 * size)
        body = [*lines, *arrays, *indented(row_loop(cut, work.rows), row)]
        text = function(name, call_comment(bodies[0]), body)
        namespace = {"np": np, **POINTERS}
        if work.compares_blocks:
            for block, size in (("beyond", BLOCK), ("beyond_rest", work.rest)):
                namespace[block] = make_index_intrinsic(block, partial(beyond, work=work, size=size), 2)
            namespace["lowest"] = make_index_intrinsic("lowest", lowest, 1)
        arguments = (Operand(0), Result(0), Scratch(work.scratch_bytes))
        return LoweredKernel(name, text, namespace, cut.chunks, arguments, str(work))


ORDER = OrderTemplate()


def _split(work: Ordering) -> Split:
    return split(work.rows, 1, work.units, None)
