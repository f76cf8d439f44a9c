"""Tiles of a product on the device: how much of the result a block computes, chosen by a simple model of time.

Threads stand in `lines` times `lanes`; each sums `down * across` products in registers. It has rows and columns by
fours, which it reads from shared memory at once: the more sums it has, the fewer such reads for each multiply-add.
Where results are few and sums long, several teams of such threads share the depth, and their sums are added at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from frittata.egraph.machine import Machine
from frittata.kernels.contractions import Contraction
from frittata.kernels.cuda.kernel import SHARED_BYTES, ceil_div
from frittata.kernels.cuda.quads import QUAD
from frittata.kernels.cuda.warps import WARP

# Fitted to 54 kernels of ten products on an H200, heads to those of four models by the profiler's clock; of 24 kernels
# of one product that were timed since, in a graph, the median error is 9 %.
_LOAD_COST = 21.0
"""What an element takes on its way from memory to shared memory, in multiply-adds of one thread."""
_SLICE_S = 0.26e-6
"""What a slice takes that sums do not hide: waiting for it in shared memory."""
_HEAD_S = 1.2e-6
"""What a block takes before its first sum and after its last."""
_MEET_S = 0.3e-6
"""What adding the sums of one more team takes. This was assumed."""
_WARPS_TO_SATURATE = 4
"""How many warps keep a multiprocessor busy."""
_OTHER_REGISTERS = 40
"""The registers of a thread besides sums, one row and column of sides, and what it loads ahead."""
_REGISTERS, _RESIDENT_THREADS, _RESIDENT_BLOCKS = 65536, 2048, 32
"""What a multiprocessor has."""
_MOST_REGISTERS = 224
"""More would be spilled."""


@dataclass(frozen=True)
class Tile:
    """What a block computes."""

    lines: int
    lanes: int
    down: int
    across: int
    depth: int
    """How much of the depth is in shared memory at a time, twice, for each team."""
    teams: int = 1
    """How many share the depth."""

    @property
    def rows(self) -> int:
        """Rows of the result."""
        return self.lines * self.down

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.lanes * self.across

    @property
    def team(self) -> int:
        """Threads that load and sum the same slices."""
        return self.lines * self.lanes

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.team * self.teams

    def blocks(self, work: Contraction) -> tuple[int, int]:
        """Return how many tiles cover the rows and the columns."""
        return ceil_div(work.rows, self.rows), ceil_div(work.columns, self.columns)

    def shared_bytes(self, work: Contraction) -> int:
        """Return the shared memory of a block, at most."""
        return 2 * self.teams * self.depth * (self.rows + self.columns + 2 * QUAD) * work.itemsize

    def slices(self, work: Contraction) -> int:
        """Return how many slices each team adds up, at most."""
        return ceil_div(ceil_div(work.depth, self.depth), self.teams)

    def begin(self, work: Contraction, step: int) -> str:
        """Spell where the depth of a team begins, before what is added to it; `step` is what a slice counts there."""
        return f"team*{self.slices(work) * step} + " if self.teams > 1 else ""

    def of_team(self, size: int) -> str:
        """Spell how far behind the first team's part of shared memory one's own is; two slices of a size are a part."""
        return f" + team*{2 * size}" if self.teams > 1 else ""

    def _ahead(self) -> float:
        """Return how many elements a thread loads of a slice."""
        return self.depth * (self.rows + self.columns) / self.team

    def registers(self, work: Contraction) -> float:
        """Estimate the registers of a thread."""
        values = self.down * self.across + self.down + self.across + self._ahead()
        return _OTHER_REGISTERS + values * work.itemsize / 4

    def resident(self, work: Contraction) -> int:
        """Return how many blocks a multiprocessor holds at a time."""
        by_registers = int(_REGISTERS / (max(self.threads, WARP) * self.registers(work)))
        return max(1, min(_RESIDENT_THREADS // self.threads, _RESIDENT_BLOCKS, by_registers))

    def fits(self, work: Contraction) -> bool:
        """Whether a block has room on the device, and every team a slice."""
        has_room = self.shared_bytes(work) <= SHARED_BYTES and self.registers(work) <= _MOST_REGISTERS
        return has_room and (self.teams - 1) * self.slices(work) * self.depth < work.depth

    def seconds(self, work: Contraction, machine: Machine) -> float:
        """Predict the time of the sums of products alone."""
        lines, columns = self.blocks(work)
        blocks = lines * columns * work.batches
        slices = self.slices(work)
        step = self.down * self.across * self.depth + _LOAD_COST * self._ahead()
        resident, busiest = self.resident(work), ceil_div(blocks, machine.threads)
        warps = min(resident, busiest) * self.threads / WARP
        rate = machine.fma_f32_per_s / machine.threads * min(1.0, warps / _WARPS_TO_SATURATE)
        waiting = ceil_div(busiest, resident) * (_HEAD_S + slices * _SLICE_S + (self.teams - 1) * _MEET_S)
        return waiting + busiest * self.threads * slices * step * work.itemsize / 4 / rate


TILES = tuple(
    Tile(*sizes)
    for sizes in (
        (16, 16, 8, 8, 8),
        (16, 16, 8, 8, 16),
        (8, 16, 8, 8, 16),
        (16, 8, 8, 8, 16),
        (8, 8, 8, 8, 16),
        (8, 16, 8, 4, 16),
        (16, 16, 4, 4, 16),
        (16, 16, 4, 4, 32),
        (8, 16, 4, 4, 16),
        (8, 16, 4, 4, 32),
        (16, 8, 4, 4, 32),
        (8, 8, 4, 4, 16),
        (8, 8, 4, 4, 32),
        (4, 32, 4, 4, 16),
        (32, 4, 4, 4, 16),
        (2, 32, 4, 4, 16),
        (32, 2, 4, 4, 16),
        (4, 8, 4, 4, 32),
        (8, 4, 4, 4, 32),
        (16, 16, 4, 4, 16, 2),
        (8, 8, 8, 8, 8, 4),
        (8, 16, 4, 4, 16, 2),
        (16, 8, 4, 4, 16, 2),
        (8, 8, 4, 4, 16, 2),
        (8, 8, 4, 4, 16, 4),
        (8, 8, 4, 4, 8, 8),
        (4, 8, 4, 4, 16, 4),
        (8, 4, 4, 4, 16, 4),
        (4, 8, 4, 4, 8, 8),
        (8, 4, 4, 4, 8, 8),
    )
)


def choose_tile(work: Contraction, machine: Machine) -> Tile:
    """Return the tile that is predicted to be fastest."""
    fitting = [tile for tile in TILES if tile.fits(work)]
    return min(fitting, key=lambda tile: (tile.seconds(work, machine), tile.rows * tile.columns))
