"""Tiles of products on the tensor cores: how much of the result a block and each of its warps compute.

A warp reads its lines of both sides from shared memory for every product, so that larger tiles come closer to the peak;
a block reads each line of both sides once from the cache that all share.
"""

from __future__ import annotations

from dataclasses import dataclass

from frittata.egraph.machine import Machine
from frittata.kernels.contractions import Contraction
from frittata.kernels.cuda.kernel import ceil_div

CHUNK = 8
"""The halves that are copied at a time: 16 bytes."""
_FASTER = 8.0
"""How many products of halves there are in the time of a multiply-add of float32, at most. Assumed."""
_MATRICES = 2.5
"""What it takes to load four matrices from shared memory, in products of one with one."""
_STEP_S = 0.4e-6
"""One slice when nothing else runs on the multiprocessor. Assumed."""


@dataclass(frozen=True)
class TensorTile:
    """What a block computes: `down` by `across` warps, each of which has `m` by `n` products of 16 x 8.

    `stages` slices of `depth` are in shared memory at a time.
    """

    down: int
    across: int
    m: int
    n: int
    depth: int
    stages: int

    @property
    def rows(self) -> int:
        """Rows of the result."""
        return self.down * self.m * 16

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.across * self.n * 8

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.down * self.across

    @property
    def stage(self) -> int:
        """The halves of a slice of both sides."""
        return (self.rows + self.columns) * self.depth

    @property
    def pitch(self) -> int:
        """The distance of rows in the memory in which a warp turns its sums around, in floats."""
        return self.n * 8 + 4

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block."""
        return max(2 * self.stage * self.stages, 4 * self.down * self.across * 16 * self.pitch)

    def blocks(self, work: Contraction) -> tuple[int, int]:
        """Return how many tiles cover the rows and the columns."""
        return ceil_div(work.rows, self.rows), ceil_div(work.columns, self.columns)

    def seconds(self, work: Contraction, machine: Machine) -> float:
        """Predict the time of the products alone, and of bringing sides that are only read to shared memory."""
        lines, columns = self.blocks(work)
        blocks = lines * columns * work.batches
        steps = ceil_div(work.depth, self.depth)
        share = min(1.0, self.m * self.n / (_MATRICES * (self.m + self.n / 2)))
        rate = machine.fma_f32_per_s * _FASTER * share / machine.threads
        busy = ceil_div(blocks, machine.threads)
        compute = busy * self.rows * self.columns * steps * self.depth / rate
        loaded = blocks * steps * 2.0 * self.stage / machine.l3_bytes_per_s
        resident = max(1, min(2048 // self.threads, (200 << 10) // self.shared_bytes))
        latency = ceil_div(blocks, machine.threads * resident) * steps * _STEP_S
        return max(compute, loaded, latency)


TENSOR_TILES = tuple(
    TensorTile(*sizes)
    for sizes in (
        (2, 2, 4, 8, 32, 3),
        (4, 2, 4, 8, 16, 4),
        (2, 4, 4, 8, 16, 4),
        (2, 2, 4, 4, 32, 4),
        (2, 2, 2, 4, 32, 4),
        (2, 2, 1, 4, 32, 4),
        (2, 2, 1, 2, 32, 4),
    )
)


def choose_tensor_tile(work: Contraction, machine: Machine) -> TensorTile:
    """Return the tile that is predicted to be fastest."""
    return min(TENSOR_TILES, key=lambda tile: (tile.seconds(work, machine), tile.rows * tile.columns))
