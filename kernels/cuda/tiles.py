"""Tiles of a product on the device: how much of the result a block computes, chosen by a simple model of time.

Threads stand in `lines` times `lanes`; each sums `down * across` products in registers. It has rows and columns by
fours, which it reads from shared memory at once: the more sums it has, the fewer such reads for each multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass

from frittata.egraph.machine import Machine
from frittata.kernels.contractions import Contraction
from frittata.kernels.cuda.kernel import SHARED_BYTES, ceil_div
from frittata.kernels.cuda.quads import QUAD
from frittata.kernels.cuda.warps import WARP

# Fitted to 54 kernels of ten products on an H200: the median error is 9 %.
_LOAD_COST = 21.0
"""What an element takes on its way from memory to shared memory, in multiply-adds of one thread."""
_SLICE_S = 0.26e-6
"""What a slice takes that sums do not hide: waiting for it in shared memory."""
_HEAD_S = 5.9e-6
"""What a block takes before its first sum and after its last."""
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
    """How much of the depth is in shared memory at a time, twice."""

    @property
    def rows(self) -> int:
        """Rows of the result."""
        return self.lines * self.down

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.lanes * self.across

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.lines * self.lanes

    def blocks(self, work: Contraction) -> tuple[int, int]:
        """Return how many tiles cover the rows and the columns."""
        return ceil_div(work.rows, self.rows), ceil_div(work.columns, self.columns)

    def shared_bytes(self, work: Contraction) -> int:
        """Return the shared memory of a block, at most."""
        return 2 * self.depth * (self.rows + self.columns + 2 * QUAD) * work.itemsize

    def _ahead(self) -> float:
        """Return how many elements a thread loads of a slice."""
        return self.depth * (self.rows + self.columns) / self.threads

    def registers(self, work: Contraction) -> float:
        """Estimate the registers of a thread."""
        values = self.down * self.across + self.down + self.across + self._ahead()
        return _OTHER_REGISTERS + values * work.itemsize / 4

    def resident(self, work: Contraction) -> int:
        """Return how many blocks a multiprocessor holds at a time."""
        by_registers = int(_REGISTERS / (max(self.threads, WARP) * self.registers(work)))
        return max(1, min(_RESIDENT_THREADS // self.threads, _RESIDENT_BLOCKS, by_registers))

    def fits(self, work: Contraction) -> bool:
        """Whether a block has room on the device."""
        return self.shared_bytes(work) <= SHARED_BYTES and self.registers(work) <= _MOST_REGISTERS

    def seconds(self, work: Contraction, machine: Machine) -> float:
        """Predict the time of the sums of products alone."""
        lines, columns = self.blocks(work)
        blocks = lines * columns * work.batches
        slices = ceil_div(work.depth, self.depth)
        step = self.down * self.across * self.depth + _LOAD_COST * self._ahead()
        resident, busiest = self.resident(work), ceil_div(blocks, machine.threads)
        warps = min(resident, busiest) * self.threads / WARP
        rate = machine.fma_f32_per_s / machine.threads * min(1.0, warps / _WARPS_TO_SATURATE)
        waiting = ceil_div(busiest, resident) * (_HEAD_S + slices * _SLICE_S)
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
    )
)


def choose_tile(work: Contraction, machine: Machine) -> Tile:
    """Return the tile that is predicted to be fastest."""
    fitting = [tile for tile in TILES if tile.fits(work)]
    return min(fitting, key=lambda tile: (tile.seconds(work, machine), tile.rows * tile.columns))
