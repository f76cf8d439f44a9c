"""The time of a kernel from its work and its traffic, and what starting it takes.

The two add up: measured on two Zen 3 cores, rows and point-wise kernels took 1.1 to 2.5 times the slower of the two,
and 0.8 to 1.5 times their sum.
"""

from __future__ import annotations

from frittata.egraph.machine import Machine
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.kernels.traffic import moved_bytes

_SHARE_OF_ONE_THREAD = 0.6
"""The part of a machine's bandwidth that one of its threads reaches."""


def roofline(
    bodies: tuple[Term, ...], units: float, chunks: int, machine: Machine, again_bytes: float = 0.0
) -> Estimate:
    """Predict a kernel of `units` additions in vector code that reads its operands and writes its results once.

    `again_bytes` are read in addition: what has left the nearer caches before it is used again.
    """
    return with_traffic(bodies, units / machine.scalar_per_s, units, chunks, machine, again_bytes)


def with_traffic(
    bodies: tuple[Term, ...],
    compute_s: float,
    flops: float,
    chunks: int,
    machine: Machine,
    again_bytes: float = 0.0,
) -> Estimate:
    """Predict a kernel whose arithmetic would take all threads of the machine so many seconds."""
    moved = moved_bytes(bodies) + again_bytes
    transfer = machine.transfer_s(moved)
    if chunks < machine.threads:
        transfer /= max(_SHARE_OF_ONE_THREAD, chunks / machine.threads)
    started = machine.launch_s + (machine.sync_s if chunks > 1 else 0.0)
    return Estimate(started + compute_s / balance(chunks, machine) + transfer, flops, moved)


def balance(chunks: int, machine: Machine) -> float:
    """Return the share of the threads' time in which they have a chunk."""
    return chunks / machine.threads / -(-chunks // machine.threads)
