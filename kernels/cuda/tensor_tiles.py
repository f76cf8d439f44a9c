"""Tiles of products on the tensor cores: how much of the result a block and each of its warps compute.

A warp reads its lines of both sides from shared memory for every product, so that larger tiles come closer to the peak;
a block reads each line of both sides once from the cache that all share.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from frittata.egraph.machine import Machine
from frittata.kernels.contractions import Contraction, Side
from frittata.kernels.cuda.kernel import ceil_div
from frittata.kernels.cuda.warps import WARP

_SHARED_BYTES = 200 << 10
"""The shared memory of a multiprocessor, for all of its blocks."""
CHUNK = 8
"""The halves that are copied at a time: 16 bytes."""
# Fitted to 23 kernels of four products on an H200: the median error is 6 %.
_FASTER = 10.9
"""How many multiply-adds of halves there are in the time of one of float32."""
_STEP_S = 0.24e-6
"""What a slice takes that products do not hide."""
_HEAD_S = 2.8e-6
"""What a block takes before its first product and after its last."""
_WARPS_TO_SATURATE = 12
"""How many warps keep a multiprocessor busy."""
_EVALUATED_S = 0.23e-6
"""What a thread takes for a half that it evaluates, or copies by itself: it waits for each."""


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
        return WARP * self.down * self.across

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

    def _resident(self) -> int:
        """Estimate how many blocks a multiprocessor holds at a time."""
        registers = self.threads * (48 + 4 * self.m * self.n + 4 * self.m + 2 * self.n)
        return max(1, min(2048 // self.threads, _SHARED_BYTES // self.shared_bytes, 65536 // registers))

    def seconds(self, work: Contraction, machine: Machine, evaluated: Collection[Side] = ()) -> float:
        """Predict the time of the products alone, and of bringing sides to shared memory; some are evaluated there."""
        lines, columns = self.blocks(work)
        steps = ceil_div(work.depth, self.depth)
        busiest = ceil_div(lines * columns * work.batches, machine.threads)
        warps = min(self._resident(), busiest) * self.threads / WARP
        rate = _FASTER * machine.fma_f32_per_s / machine.threads * min(1.0, warps / _WARPS_TO_SATURATE)
        compute = busiest * self.rows * self.columns * steps * self.depth / rate
        halves = sum(self.rows if side is work.left else self.columns for side in evaluated) * self.depth / self.threads
        waves = ceil_div(busiest, self._resident())
        return waves * (_HEAD_S + steps * (_STEP_S + halves * _EVALUATED_S)) + compute


TENSOR_TILES = tuple(
    TensorTile(*sizes)
    for sizes in (
        (2, 2, 4, 8, 32, 2),
        (2, 2, 4, 4, 32, 4),
        (2, 2, 2, 4, 32, 4),
        (2, 2, 1, 4, 32, 4),
        (2, 2, 1, 2, 32, 4),
    )
)


def choose_tensor_tile(work: Contraction, machine: Machine, evaluated: Collection[Side] = ()) -> TensorTile:
    """Return the tile that is predicted to be fastest."""
    return min(TENSOR_TILES, key=lambda tile: (tile.seconds(work, machine, evaluated), tile.rows * tile.columns))
