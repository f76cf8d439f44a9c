"""How a contraction is cut: rows into register tiles, columns into packed panels, rows of tiles into cache blocks."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.kernels.tiles import CACHE_LINE_BYTES

MOST_ROWS = 6
MOST_BLOCK_ROWS = 96
_BLOCK_BYTES = 300_000
WAY_BYTES = 4096
"""How far lines lie apart that fall into one set of a first-level cache: 64 sets of lines of 64 bytes."""
_LEAST_SHARED_BYTES = 4 << 20


@dataclass(frozen=True)
class RowTiling:
    """`large_tiles` tiles of `large_rows` rows, then `small_tiles` tiles of one row less: two kernels at most."""

    large_rows: int
    large_tiles: int
    small_tiles: int

    @property
    def small_rows(self) -> int:
        """The rows of a small tile."""
        return self.large_rows - 1

    @property
    def tiles(self) -> int:
        """The number of tiles."""
        return self.large_tiles + self.small_tiles


def tile_rows(rows: int, most: int = MOST_ROWS) -> RowTiling:
    """Cut rows into the fewest tiles of at most `most` rows, as equal as can be: 8 -> 4 + 4, not 6 + 2."""
    tiles = -(-rows // most)
    least, rest = divmod(rows, tiles)
    return RowTiling(least + 1, rest, tiles - rest) if rest else RowTiling(least, tiles, 0)


@dataclass(frozen=True)
class RegisterTile:
    """The accumulators of a tile: at most `rows` by `panels` panels of `vectors` vectors of `lanes`.

    `halved`: so many lanes are half a register.
    """

    rows: int
    vectors: int
    lanes: int
    panels: int = 1
    halved: bool = False

    @property
    def width(self) -> int:
        """The columns of a panel."""
        return self.vectors * self.lanes


def block_rows(depth: int, itemsize: int, most: int = MOST_BLOCK_ROWS) -> int:
    """Return how many rows of the left operand to keep in the second-level cache while panels pass by."""
    return max(MOST_ROWS, min(most, _BLOCK_BYTES // (itemsize * depth)))


def collide(stride: int, itemsize: int) -> bool:
    """Whether rows so many elements apart have all their beginnings in one set of a first-level cache."""
    return stride != 0 and stride * itemsize % WAY_BYTES == 0


def pitch(depth: int, itemsize: int) -> int:
    """Return how many elements apart rows of scratch memory lie, so that they do not collide."""
    return depth + CACHE_LINE_BYTES // itemsize if collide(depth, itemsize) else depth


def aligned_zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return zeros whose first element lies at the start of a cache line."""
    item = np.dtype(dtype).itemsize
    count = int(np.prod(shape))
    raw = np.zeros(count + CACHE_LINE_BYTES // item, dtype)
    start = -raw.ctypes.data % CACHE_LINE_BYTES // item
    return raw[start : start + count].reshape(shape)


def fill_panels(panels: NDArray[Any], weights: NDArray[Any]) -> None:
    """Cut (depth, columns) into zeroed panels (ceil(columns / width), depth, width)."""
    width = panels.shape[-1]

    def fill(i: int) -> None:
        part = weights[:, i * width : (i + 1) * width]
        panels[i, :, : part.shape[1]] = part

    share_out(fill, len(panels), panels.nbytes)


def share_out(work: Callable[[int], None], count: int, size_bytes: int) -> None:
    """Call `work` for 0 .. count - 1; where much is moved, on all processors: numpy copies without the lock."""
    if size_bytes < _LEAST_SHARED_BYTES or count < 2:
        for i in range(count):
            work(i)
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(work, range(count)):
            pass
