"""Tiles of a product on the device: how much of the result a block computes, chosen by a simple model of time.

A block is a square of `side * side` threads, each of which sums `down * across` products in registers. Shared memory
gives a warp one word a lane in the time of four multiply-adds, so larger register tiles come closer to the peak.
"""

from __future__ import annotations

from dataclasses import dataclass

from frittata.egraph.machine import Machine
from frittata.kernels.contractions import Contraction
from frittata.kernels.cuda.kernel import ceil_div

DEPTH = 16
"""How much of the depth is in shared memory at a time."""
_REACHED = 0.7
"""The part of the peak that large tiles reach. Assumed: nothing was measured on a device yet."""
_STEP_S = 0.7e-6
"""Loading a slice and meeting twice, when nothing else runs on the multiprocessor. Assumed."""
_SHARED_WORD = 4.0
"""What reading a word of shared memory costs, in multiply-adds."""


@dataclass(frozen=True)
class Tile:
    """What a block computes."""

    side: int
    down: int
    across: int

    @property
    def rows(self) -> int:
        """Rows of the result."""
        return self.side * self.down

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.side * self.across

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.side * self.side

    def blocks(self, work: Contraction) -> tuple[int, int]:
        """Return how many tiles cover the rows and the columns."""
        return ceil_div(work.rows, self.rows), ceil_div(work.columns, self.columns)

    def seconds(self, work: Contraction, machine: Machine) -> float:
        """Predict the time of the sums of products alone."""
        lines, columns = self.blocks(work)
        blocks = lines * columns * work.batches
        steps = ceil_div(work.depth, DEPTH)
        words = work.itemsize / 4
        products = self.down * self.across
        share = _REACHED * products / max(products, _SHARED_WORD * (self.down + self.across))
        per_block = self.rows * self.columns * steps * DEPTH * words / share
        rate = machine.fma_f32_per_s / machine.threads
        compute = ceil_div(blocks, machine.threads) * per_block / rate
        resident = max(1, min(2048 // self.threads, 65536 // int(self.threads * (48 + products * words))))
        latency = ceil_div(blocks, machine.threads * resident) * steps * _STEP_S
        return max(compute, latency)


TILES = tuple(
    Tile(side, down, across)
    for side, down, across in (
        (16, 8, 8),
        (16, 8, 4),
        (16, 4, 8),
        (16, 4, 4),
        (16, 4, 2),
        (16, 2, 4),
        (16, 2, 2),
        (16, 1, 4),
        (16, 4, 1),
        (16, 1, 1),
        (8, 4, 4),
        (8, 2, 2),
    )
)


def choose_tile(work: Contraction, machine: Machine) -> Tile:
    """Return the tile that is predicted to be fastest."""
    return min(TILES, key=lambda tile: (tile.seconds(work, machine), tile.rows * tile.columns))
