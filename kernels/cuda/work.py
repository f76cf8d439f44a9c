"""How long the loops of a kernel take on the device: arithmetic, memory, cache traffic, and what one thread waits for.

Units: seconds; additions, as in the registry's `cost`; bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from frittata.egraph import dtypes, program
from frittata.egraph.indexing import Affine
from frittata.egraph.machine import Machine
from frittata.egraph.ops import registry
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term, size_bytes
from frittata.kernels.cuda.kernel import ceil_div
from frittata.kernels.cuda.warps import WARP
from frittata.kernels.loops import Apply, Array, Load, Loop, Statement, Store, parts, values_of

_SECTOR_BYTES = 32
_STEP_S = 10e-9
"""What one round of a serial loop takes when nothing hides it. Assumed: nothing was measured on a device yet."""
AT_ONCE = 1 / 8
"""What a round takes of that in a loop of several rounds under way at once. Assumed."""
WAIT_S = 0.6e-6
"""What the first load of a loop takes to come. Assumed."""
MEET_S = 0.2e-6
"""What combining a fold among the warps of a block takes. Assumed."""
SHUFFLES_S = 0.1e-6
"""What combining a fold within a warp takes. Assumed."""
_THREADS_TO_SATURATE = 512
"""Of one multiprocessor: with fewer, latency shows."""


@dataclass
class Work:
    """What the threads of a kernel do, all together, and the longest chain of rounds in one thread."""

    units: float = 0.0
    traffic_bytes: float = 0.0
    steps: float = 0.0
    itemsize_by_array: dict[str, int] = field(default_factory=dict[str, int])


def count(arrays: tuple[Array, ...], body: list[Statement], times: float, neighbour: str | None) -> Work:
    """Count a block that runs `times`; threads of a warp differ by one in the variable `neighbour`.

    With None that is the variable of each loop of the block itself: its lanes share it.
    """
    work = Work(itemsize_by_array={array.name: dtypes.itemsize(array.dtype) for array in arrays})
    for statement in body:
        along = neighbour
        if along is None and isinstance(statement, Loop):
            along = statement.var
        work.steps += _count(work, statement, times, along)
    return work


def _count(work: Work, statement: Statement, times: float, along: str | None) -> float:
    """Add what a statement does; return its rounds."""
    if isinstance(statement, Loop):
        inner = sum(_count(work, s, times * statement.extent, along) for s in statement.body)
        return statement.extent * max(1.0, inner)
    for value in values_of(statement):
        work.units += times
        for part in parts(value):
            if isinstance(part, Apply):
                work.units += times * registry.get(part.op, "element").cost
            elif isinstance(part, Load):
                work.traffic_bytes += times * _bytes(work, part, along)
    if isinstance(statement, Store):
        work.traffic_bytes += times * work.itemsize_by_array.get(statement.array, 4)
    return 0.0


def _bytes(work: Work, load: Load, along: str | None) -> float:
    """Return what a thread's load moves: its share of the sectors that the threads of a warp touch together."""
    itemsize = work.itemsize_by_array.get(load.array)
    if itemsize is None:  # registers or shared memory
        return 1.0
    return float(_sectors(load.offset, along, itemsize)) * _SECTOR_BYTES / WARP


@lru_cache(maxsize=4096)
def _sectors(offset: Affine, along: str | None, itemsize: int) -> int:
    offsets = np.zeros(WARP, np.int64) + offset.evaluate(lambda key: np.arange(WARP) if key == along else 0)
    return len(np.unique(offsets * itemsize // _SECTOR_BYTES))


def seconds(work: Work, bodies: tuple[Term, ...], threads: int, serial_s: float, machine: Machine) -> Estimate:
    """Predict a kernel of so many threads; all waves of them take `serial_s` if no other thing is slower."""
    moved = sum(size_bytes(term) for term in (*bodies, *program.operands_of(*bodies)))
    share = min(1.0, threads / (machine.threads * _THREADS_TO_SATURATE))
    bandwidth = machine.memory_bytes_per_s if moved > machine.l3_bytes / 2 else machine.l3_bytes_per_s
    busiest = max(moved / bandwidth, work.traffic_bytes / machine.l3_bytes_per_s, work.units / machine.scalar_per_s)
    return Estimate(machine.launch_s + max(busiest / share, serial_s), work.units, moved)


def rounds_s(steps: float, rounds: int) -> float:
    """Return how long a thread is busy that does `steps` so many times."""
    return steps * rounds * _STEP_S


def waves(blocks: int, threads: int, machine: Machine) -> int:
    """Return how often every multiprocessor is filled with blocks."""
    return ceil_div(blocks, machine.threads * max(1, 2048 // threads))
