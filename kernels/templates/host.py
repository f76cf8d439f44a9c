"""Opaque operators as host steps: Python calls an operator's numpy meaning, or torch, between compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from frittata.egraph import program, shapes
from frittata.egraph.errors import LoweringError, ModelError
from frittata.egraph.machine import Machine
from frittata.egraph.ops import externs, indices, registry
from frittata.egraph.program import HOST, Estimate
from frittata.egraph.terms import Term, size_bytes
from frittata.kernels.host_library import call_of
from frittata.kernels.lowered import Array, HostStep

STEP_S = 20e-6
"""Leaving the driver, a call into a framework, and entering the driver again: its threads have to be woken twice.

Measured on two Zen 3 cores: 12 to 30 microseconds.
"""


class OpaqueTemplate:
    """Takes opaque operators of plain buffers, all results of one call at once."""

    name = HOST
    opaque = True

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict coarsely: the way out and back, the bytes, the row's cost for each value; None for others."""
        if any(body.op == "build" for body in bodies):
            return None
        leaves = tuple(program.operands_of(*bodies))
        values = max(shapes.size(term.shape) for term in (*bodies, *leaves))
        flops = registry.get(bodies[0].op).cost * values
        moved = float(sum(map(size_bytes, (*bodies, *leaves))))
        one_core = machine.scalar_per_s / machine.lanes_f32 / machine.threads  # scalar code, mostly
        seconds = STEP_S + flops / one_core + moved / machine.memory_bytes_per_s
        return Estimate(seconds, flops, moved)

    def lower_host(self, name: str, bodies: tuple[Term, ...]) -> HostStep:
        """Return the call of the operator, whose results are copied to where the program wants them."""
        leaves = list(program.operands_of(*bodies))
        first = bodies[0]
        if any(body.op != first.op or body.args != first.args for body in bodies):
            raise LoweringError(f"one host step is one call, not {', '.join(body.op for body in bodies)}")
        order = [leaves.index(arg) for arg in first.args]
        op = registry.get(first.op)
        if op.writes is not None:
            return HostStep(name, partial(_write, op.writes, order))
        reference = op.reference
        assert reference is not None
        compute = call_of(first.op, reference)

        def call(operands: Sequence[Array]) -> list[Array]:
            if externs.is_extern(first.op):
                found = externs.run(first.attrs[0], operands)
                return [found[body.attrs[1]] for body in bodies]
            given = tuple(map(externs.read_only, operands))
            indices.check_indices(first.op, given, first.attrs)
            return [np.asarray(compute(*given, *body.attrs)) for body in bodies]

        def run(operands: Sequence[Array], results: Sequence[Array]) -> None:
            found = call([operands[position] for position in order])
            for result, value in zip(results, found, strict=True):
                if value.shape != result.shape:
                    raise ModelError(
                        f"{first.op} returned shape {value.shape}, its type says {result.shape}",
                        do="the row's infer and reference must agree",
                    )
                if value.dtype.kind in "fc" and not np.can_cast(value.dtype, result.dtype, "same_kind"):
                    raise ModelError(f"{first.op} returned {value.dtype}, its type says {result.dtype}")
                result[...] = value

        return HostStep(name, run)


def _write(
    function: Callable[..., Any], order: Sequence[int], operands: Sequence[Array], results: Sequence[Array]
) -> None:
    """Let a function write its result; what it reads it cannot change."""
    registry.write(function, [externs.read_only(operands[position]) for position in order], results[0])


OPAQUE = OpaqueTemplate()
