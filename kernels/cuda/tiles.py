"""Tiles of a product on the device: how much of the result a block computes, chosen by a simple model of time.

Threads stand in `lines` times `lanes`; each sums `down * across` products in registers. It has rows and columns by fours,
which it reads from shared memory at once: the more sums it has, the fewer such reads for each multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass

from frittata.egraph.machine import Machine
from frittata.kernels.contractions import Contraction
from frittata.kernels.cuda.kernel import SHARED_BYTES, ceil_div
from frittata.kernels.cuda.quads import QUAD

_REACHED = 0.75
"""The part of the peak that the largest tiles reach, by measurement on an H200."""
_QUAD_COST = 8.0
"""What reading a quad from shared memory costs a thread, in multiply-adds."""
_SLICE_S = 0.5e-6
"""Loading a slice and meeting once, when nothing else runs on the multiprocessor."""
_HEAD_S = 2e-6
"""What a block takes before its first sum and after its last, when nothing else runs on the multiprocessor."""
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

    def registers(self, work: Contraction) -> float:
        """Estimate the registers of a thread."""
        ahead = self.depth * (self.rows + self.columns) / self.threads
        return _OTHER_REGISTERS + (self.down * self.across + self.down + self.across + ahead) * work.itemsize / 4

    def resident(self, work: Contraction) -> int:
        """Return how many blocks a multiprocessor holds at a time."""
        by_registers = int(_REGISTERS / (self.threads * self.registers(work)))
        return max(1, min(_RESIDENT_THREADS // self.threads, _RESIDENT_BLOCKS, by_registers))

    def fits(self, work: Contraction) -> bool:
        """Whether a block has room on the device."""
        return self.shared_bytes(work) <= SHARED_BYTES and self.registers(work) <= _MOST_REGISTERS

    def seconds(self, work: Contraction, machine: Machine) -> float:
        """Predict the time of the sums of products alone."""
        lines, columns = self.blocks(work)
        blocks = lines * columns * work.batches
        slices = ceil_div(work.depth, self.depth)
        words = work.itemsize / 4
        products = self.down * self.across
        share = _REACHED * products / max(products, _QUAD_COST * (self.down + self.across) / QUAD)
        per_block = self.rows * self.columns * slices * self.depth * words / share
        rate = machine.fma_f32_per_s / machine.threads
        compute = ceil_div(blocks, machine.threads) * per_block / rate
        latency = ceil_div(blocks, machine.threads * self.resident(work)) * (_HEAD_S + slices * _SLICE_S)
        return max(compute, latency)


TILES = tuple(
    Tile(*sizes)
    for sizes in (
        (16, 16, 8, 8, 16),
        (16, 16, 8, 8, 8),
        (8, 16, 8, 8, 16),
        (16, 8, 8, 8, 16),
        (8, 8, 8, 8, 16),
        (16, 16, 4, 4, 16),
        (8, 16, 4, 4, 16),
        (16, 8, 4, 4, 16),
        (8, 8, 4, 4, 16),
        (4, 32, 4, 4, 16),
        (32, 4, 4, 4, 16),
        (2, 32, 4, 4, 16),
        (32, 2, 4, 4, 16),
        (4, 8, 4, 4, 16),
    )
)


def choose_tile(work: Contraction, machine: Machine) -> Tile:
    """Return the tile that is predicted to be fastest."""
    fitting = [tile for tile in TILES if tile.fits(work)]
    return min(fitting, key=lambda tile: (tile.seconds(work, machine), tile.rows * tile.columns))
