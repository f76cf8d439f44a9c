"""How long the loops of a kernel take on the device: arithmetic, memory, cache traffic, and what one thread waits for.

Units: seconds; additions, as in the registry's `cost`; bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.indexing import Affine
from frittata.egraph.machine import Machine
from frittata.egraph.ops import registry
from frittata.egraph.program import Estimate
from frittata.kernels.cuda.kernel import ceil_div
from frittata.kernels.cuda.warps import WARP
from frittata.kernels.loops import Apply, Array, Load, Loop, Statement, Store, parts, values_of

_SECTOR_BYTES = 32
_STEP_S = 10e-9
"""What one round of a serial loop takes when nothing hides it. This and what follows was assumed, and agrees with what
19 kernels took on an H200, each with a launch of 3.5 us: the median error of their predictions was 6 %."""
AT_ONCE = 1 / 8
"""What a round takes of that in a loop of several rounds under way at once."""
WAIT_S = 0.6e-6
"""What the first load of a loop takes to come."""
MEET_S = 0.2e-6
"""What combining a fold among the warps of a block takes."""
SHUFFLES_S = 0.1e-6
"""What combining a fold within a warp takes."""
_THREADS_TO_SATURATE = 512
"""Of one multiprocessor: with fewer, latency shows."""


@dataclass
class Work:
    """What the threads of a kernel do, all together, and the longest chain of rounds in one thread."""

    arrays: dict[str, Array]
    registers: frozenset[str]
    units: float = 0.0
    steps: float = 0.0
    bytes_by_array: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """What goes to and from the cache that all share, or to and from shared memory in its stead."""

    @property
    def traffic_bytes(self) -> float:
        """What goes to and from caches and shared memory."""
        return sum(self.bytes_by_array.values())

    @property
    def moved_bytes(self) -> float:
        """What goes to and from memory: all of an array once, or what is read of it, if that is less, by look-ups."""
        sizes = {name: array.size * dtypes.itemsize(array.dtype) for name, array in self.arrays.items()}
        return sum(min(size, self.bytes_by_array[name]) for name, size in sizes.items())

    def add(self, other: Work) -> None:
        """Do what another does, too."""
        self.units += other.units
        for name, number in other.bytes_by_array.items():
            self.bytes_by_array[name] += number


def count(
    arrays: tuple[Array, ...],
    body: list[Statement],
    times: float,
    neighbour: str | None,
    registers: Collection[str] = (),
) -> Work:
    """Count a block that runs `times`; threads of a warp differ by one in the variable `neighbour`.

    With None that is the variable of each loop of the block itself: its lanes share it. What is neither in `arrays` nor
    in `registers` lies in shared memory.
    """
    work = Work({array.name: array for array in arrays}, frozenset(registers))
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
                work.bytes_by_array[part.array] += times * _bytes(work, part, along)
    if isinstance(statement, Store):
        array = work.arrays.get(statement.array)
        taken = dtypes.itemsize(array.dtype) if array else _own(work, statement)
        work.bytes_by_array[statement.array] += times * taken
    return 0.0


def _own(work: Work, access: Load | Store) -> float:
    """Return what an access to registers or shared memory takes, in bytes of the cache that all share."""
    return 0.0 if access.array in work.registers else 1.0


def _bytes(work: Work, load: Load, along: str | None) -> float:
    """Return what a thread's load moves: its share of the sectors that the threads of a warp touch together."""
    array = work.arrays.get(load.array)
    if array is None:
        return _own(work, load)
    return float(_sectors(load.offset, along, dtypes.itemsize(array.dtype))) * _SECTOR_BYTES / WARP


@lru_cache(maxsize=4096)
def _sectors(offset: Affine, along: str | None, itemsize: int) -> int:
    offsets = np.zeros(WARP, np.int64) + offset.evaluate(lambda key: np.arange(WARP) if key == along else 0)
    return len(np.unique(offsets * itemsize // _SECTOR_BYTES))


def seconds(work: Work, threads: int, serial_s: float, machine: Machine) -> Estimate:
    """Predict a kernel of so many threads; all waves of them take `serial_s` if no other thing is slower."""
    moved = work.moved_bytes
    share = min(1.0, threads / (machine.threads * _THREADS_TO_SATURATE))
    traffic_s = work.traffic_bytes / machine.l3_bytes_per_s
    busiest = max(machine.transfer_s(moved), traffic_s, work.units / machine.scalar_per_s)
    return Estimate(machine.launch_s + max(busiest / share, serial_s), work.units, moved)


def rounds_s(steps: float, rounds: int) -> float:
    """Return how long a thread is busy that does `steps` so many times."""
    return steps * rounds * _STEP_S


def waves(blocks: int, threads: int, machine: Machine) -> int:
    """Return how often every multiprocessor is filled with blocks."""
    return ceil_div(blocks, machine.threads * max(1, 2048 // threads))
