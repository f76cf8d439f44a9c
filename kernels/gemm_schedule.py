"""How a contraction is cut into register tiles, cache blocks and chunks, and what that is predicted to cost.

Everything here is a function of sizes, never of the number of threads: results are the same bit for bit on any machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from frittata.kernels import driver
from frittata.kernels.packing import MOST_BLOCK_ROWS, RegisterTile, block_rows, tile_rows
from frittata.kernels.processor import processor

TILE_CYCLES = 25
"""What a tile costs besides its steps along the depth: addresses, stores."""
_MOST_CHUNKS = 16
_CHUNK_FLOPS = 100e3
_STREAMED_ROWS = 4
"""So few rows wait for the right side alone: a tile reads several panels at once, which the processor fetches ahead by
itself.

Source: one Zen 3 core, 768 x 3072 weights from memory, 2 to 4 rows: 1.3 to 1.4 times as fast as one panel at a time.
"""
_PART_BYTES = 256 << 10
"""What of a panel stays in a second-level cache beside a block of rows: more is taken in parts along the depth.

Source: two Zen 5 cores (1 MiB each), tiles of 6 x 4: 128 x 3072 by 768 at 87 % of the peak in one part, at 93 in three;
512 x 4608 by 512 at 84 % and 95.
"""
NEAR_PART_BYTES = 24 << 10
NEAR_ROWS = 20
"""What of a panel stays in a first-level cache, and up to how many rows it should: panels come from memory about as
fast as they are used, and lines on their way hold up those that tiles read again from the second-level cache.

Source: two Zen 5 cores, 768 x 3072 weights from memory: 9 to 20 rows 1.05 to 1.25 times as fast, 24 rows 0.96 times.
Zen 4: 8 rows 1.08 times.
"""
_LINE_STEPS = 16
_THREADS = (2, 4, 8)
"""Numbers of threads among which chunks are to fall evenly, whichever there are."""
_MOST_COLLIDING_ROWS = 6
"""The rows whose lines stay in one set of a first-level cache beside those of panels that pass by: of 8 ways, or 12.

Source: 768 columns, depths of 1024, 2048 and 3072: 12 rows reach 89 to 92 % of what other depths do on Zen 4, 8 rows
95 % of what 6 do on Zen 5.
"""
_MOST_PANELS = 4
_MOST_SUMS = 12
_FLOPS_PER_UNIT = 5.0
_READ_UNITS = 3.0
_FILL_UNITS = 3.0
"""In additions: arithmetic, reading an element from the third-level cache, evaluating one into scratch memory."""


@dataclass(frozen=True)
class _Units:
    """What tiles of a kind of vectors can be, and what they reach.

    `most_rows`: the largest tiles by their vectors, preferred ones first: sums, columns and an element of the row must
    fit in registers. `shares` of the peak that tiles of 1, 2, 3, 4 and more vectors reach, if there are enough `sums`,
    independent of each other, to keep multiply-adds going, and few enough loads: to load a vector of the right side
    takes as long as `right_load` multiply-adds, an element of the left one `left_load`.
    """

    most_rows: dict[int, int]
    shares: tuple[float, float, float, float]
    sums: int = 8
    right_load: float = 1.0
    left_load: float = 1.0

    def efficiency(self, rows: int, vectors: int) -> float:
        """Return the share of the peak that a tile reaches: bound by latency, or by its loads."""
        count = rows * vectors
        loads = rows * self.left_load + vectors * self.right_load
        return self.shares[min(vectors, 4) - 1] * min(1.0, count / self.sums, count / loads)


_FEW = _Units({2: 6, 3: 4, 4: 2, 1: 12}, (0.98, 0.97, 0.96, 0.95))
"""Sixteen registers.

Source: Zen 3: 6x2 98 %, 3x3 95, 2x4 92; 3x2 75, 2x2 51, 1x4 52.
"""
_MANY = _Units({4: 6, 3: 8, 2: 12, 1: 12}, (0.88, 0.945, 0.96, 0.97))
"""Thirty-two registers.

Source: Zen 5, two multiply-adds of AVX-512 a cycle, 512 rows, 768 columns, depths of 256 to 1024: 6x4 96 to 97 %, 8x3
95 to 97, 12x2 93 to 95; 24x1 87; 3x2 69, 2x2 51, 1x4 25, 2x4 64, 4x2 82. Depths of 3072: 92, 90, 88.
"""
_SPLIT = _Units({4: 6, 3: 8, 2: 12, 1: 12}, (0.96, 0.97, 0.975, 0.975), sums=4, right_load=2.0, left_load=0.0)
"""Thirty-two registers, each of which passes through the units in two halves.

Source: Zen 4, 480 x 256 by 192: 12x1 97 %, 4x1 97, 2x1 56, 12x2 97, 2x2 87, 1x2 53, 8x3 97, 6x4 98, 1x4 49. 512 x 3072
by 768: 6x4, 8x3 and 12x2 alike, 12x1 5 % less.
"""
_HALVES = _Units({4: 6, 3: 8, 2: 6, 1: 12}, (0.86, 0.94, 0.94, 0.97))
"""The halves of such registers.

Source: the same: 6x4 97 %, 8x3 94, 6x2 94, 12x1 75 to 83, 8x1 80, 6x1 74, 2x2 51. Of 12x2, 82: its addresses need more
registers than there are.
"""

Source = Literal["packed", "scratch", "direct"]
"""Where a side of a contraction is read from: packed before run time, evaluated by each chunk, where it lies."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a contraction, and where its sides come from."""

    batches: int
    rows: int
    columns: int
    depth: int
    lanes: int
    itemsize: int
    left: Source
    right: Source
    reach: int = 0
    """Elements of memory that a further row of the left side touches; 0 for as many as the depth."""
    runs: int = 0
    """The outermost loop along the depth of a row: its runs; 0 if the row is one run, which can be cut anywhere."""
    collide: bool = False
    """Whether rows of the left side have their beginnings in one set of a first-level cache."""
    halves: bool = False
    """Whether vectors may have half as many lanes, which then take half as long."""

    @property
    def row_elements(self) -> int:
        """The elements by which what is in cache grows with each row: windows overlap."""
        return self.reach or self.depth

    @property
    def flops(self) -> float:
        """The operations of all batches."""
        return 2.0 * self.batches * self.rows * self.columns * self.depth


@dataclass(frozen=True)
class Schedule:
    """`tile` of registers; `block_tiles` row tiles to a cache block; the number of parts along each dimension.

    `panels` counts panels in all columns. A chunk computes one part of each: (batch part, row part, panel part).
    All tiles of a block take `depth` steps at a time of a panel; between them their sums are in memory. `prefetch`:
    they fetch what of the panels comes next; a panel that is read once is left to the processor.

    Source for the latter, two Zen 5 cores, 768 x 3072 weights from memory: 5 and 6 rows are 1.4 times as fast, 8 rows
    1.0 to 1.05 times. Where they are read again, fetching makes 24 to 64 rows 1.1 to 1.3 times as fast, 192 to 512
    rows, whose blocks read all panels once more, 1.02 to 1.07 times, 32 batches of 16 to 64 rows 1.1 to 1.3 times.
    """

    tile: RegisterTile
    panels: int
    block_tiles: int
    batch_parts: int
    row_parts: int
    panel_parts: int
    prefetch: bool
    depth: int

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return self.batch_parts * self.row_parts * self.panel_parts


def _units_of(*, halved: bool = False) -> _Units:
    """Return what this machine's processor does with whole vectors, or with halves of them."""
    if halved:
        return _HALVES
    return _SPLIT if processor().splits else _MANY if processor().registers > 16 else _FEW


def most_rows_by_vectors() -> dict[int, int]:
    """Return the largest tiles of this machine's processor, preferred ones first: rows by vectors."""
    return _units_of().most_rows


def efficiency(rows: int, vectors: int) -> float:
    """Return the share of the peak that a tile of whole registers reaches."""
    return _units_of().efficiency(rows, vectors)


def tile_cycles(rows: int, tile: RegisterTile) -> float:
    """Return what one step along the depth takes for all rows and one group of panels, in multiply-adds of a vector."""
    tiling, units = tile_rows(rows, tile.rows), _units_of(halved=tile.halved)
    vectors = tile.vectors * tile.panels
    large = tiling.large_tiles * tiling.large_rows * vectors / units.efficiency(tiling.large_rows, vectors)
    if not tiling.small_tiles:
        return large
    return large + tiling.small_tiles * tiling.small_rows * vectors / units.efficiency(tiling.small_rows, vectors)


def choose_tile(rows: int, columns: int, lanes: int) -> RegisterTile:
    """Choose the tile that wastes the least, of lanes and of registers; few rows read several panels at a time."""
    return min(_tiles(rows, columns, lanes), key=lambda tile: _lane_steps(tile, rows, columns))


def _tiles(rows: int, columns: int, lanes: int, *, halves: bool = False) -> list[RegisterTile]:
    """Return the tiles to choose from, preferred ones first."""
    if rows <= _STREAMED_ROWS:
        vectors = 2 if rows == 1 and columns > lanes else 1
        panels = -(-columns // (vectors * lanes))
        return [RegisterTile(rows, vectors, lanes, min(_MOST_PANELS, _MOST_SUMS // (rows * vectors), panels))]
    return [
        RegisterTile(min(rows, most), vectors, lanes // 2 if halved else lanes, halved=halved)
        for halved in ((False, True) if halves else (False,))
        for vectors, most in _units_of(halved=halved).most_rows.items()
    ]


def _lane_steps(tile: RegisterTile, rows: int, columns: int) -> float:
    """Return what one step along the depth takes for all rows and columns, in multiply-adds of a lane."""
    return -(-columns // tile.width) * tile_cycles(rows, tile) * tile.lanes


@lru_cache(maxsize=4096)
def schedule(sizes: Sizes) -> Schedule:
    """Choose tile, blocks and chunks: what all take, and what threads wait for each other, is least."""
    rows = min(sizes.rows, _MOST_COLLIDING_ROWS) if sizes.collide else sizes.rows
    tiles = _tiles(rows, sizes.columns, sizes.lanes, halves=sizes.halves)
    return min((_cut(sizes, tile) for tile in tiles), key=lambda found: found[0])[1]


def _cut(sizes: Sizes, tile: RegisterTile) -> tuple[float, Schedule]:
    """Choose blocks and chunks for a tile, and return what that takes."""
    panels = -(-sizes.columns // tile.width)
    tiles = tile_rows(sizes.rows, tile.rows).tiles
    chunks = int(max(1, min(_MOST_CHUNKS, sizes.flops // _CHUNK_FLOPS)))
    batch_parts = min(sizes.batches, 4 * chunks if chunks > 1 else 1)
    units, row_parts, panel_parts = _parts(sizes, tile, batch_parts, -(-chunks // batch_parts))
    overlap = max(1, sizes.depth // sizes.row_elements)
    reads_again = tiles > row_parts
    depth = _depth(sizes, tile) if tile.panels == 1 and reads_again else sizes.depth
    elements = -(-sizes.row_elements * depth // sizes.depth)
    block = max(1, block_rows(elements, sizes.itemsize, MOST_BLOCK_ROWS * overlap) // tile.rows)
    prefetch = sizes.right == "packed" and reads_again
    return units, Schedule(tile, panels, min(block, tiles), batch_parts, row_parts, panel_parts, prefetch, depth)


def _depth(sizes: Sizes, tile: RegisterTile) -> int:
    """Return how many steps along the depth to take at a time: whole runs of a row, or whole cache lines of one."""
    unit = sizes.depth // sizes.runs if sizes.runs else _LINE_STEPS
    units = -(-sizes.depth // unit)
    is_near = sizes.rows <= NEAR_ROWS and sizes.right == "packed"
    part_bytes = NEAR_PART_BYTES if is_near else _PART_BYTES
    parts = -(-sizes.depth * tile.width * sizes.itemsize // part_bytes)
    return min(sizes.depth, -(-units // parts) * unit)


def _parts(sizes: Sizes, tile: RegisterTile, batch_parts: int, most: int) -> tuple[float, int, int]:
    """Cut rows and panels into at most `most` chunks a batch: threads wait little, and little is read and packed again.

    Each part of the rows reads or packs all of the right side, each part of the panels all of the left one.
    """
    tiles = tile_rows(sizes.rows, tile.rows).tiles
    groups = -(-sizes.columns // (tile.panels * tile.width))
    lane_steps = _lane_steps(tile, sizes.rows, sizes.columns) * sizes.depth + tiles * groups * TILE_CYCLES * sizes.lanes
    arithmetic = 2.0 * lane_steps / _FLOPS_PER_UNIT
    right = sizes.columns * sizes.depth * _units(sizes.right)
    left = sizes.rows * sizes.row_elements * _units(sizes.left)

    def units(row_parts: int, panel_parts: int) -> float:
        waiting = _waiting((sizes.batches, batch_parts), (tiles, row_parts), (groups, panel_parts))
        return row_parts * right + panel_parts * left + arithmetic * (1.0 + waiting)

    cuts = ((r, p) for r in _cuts(most, tiles) for p in _cuts(most // r, groups))
    return min((units(*cut), *cut) for cut in cuts)


@lru_cache(maxsize=4096)
def _waiting(*cuts: tuple[int, int]) -> float:
    """Return how much longer than the least threads take that share chunks; each cut: so many things into parts."""
    sizes = [1]
    for count, parts in cuts:
        sizes = [size * part for size in sizes for part in part_sizes(count, parts)]
    return sum((_makespan(sizes, threads) * threads / sum(sizes) - 1.0) / threads for threads in _THREADS)


def part_sizes(count: int, parts: int) -> list[int]:
    """Return how many of `count` things fall into each part."""
    return [(n + 1) * count // parts - n * count // parts for n in range(parts)]


def _makespan(sizes: Sequence[int], threads: int) -> int:
    """Return when the last of so many threads ends, each of which starts with chunks of its own: see `driver`."""
    if min(sizes) == max(sizes):
        return -(-len(sizes) // threads) * sizes[0]
    waiting = [deque(sizes[queue.start : queue.stop]) for queue in driver.queues(len(sizes), threads)]
    ends = [0] * threads
    while any(waiting):
        thread = ends.index(min(ends))
        own = thread % len(waiting)
        ends[thread] += next(queue for queue in waiting[own:] + waiting[:own] if queue).popleft()
    return max(ends)


def _cuts(most: int, count: int) -> list[int]:
    """Return the numbers of parts to try for `count` things: powers of two, which threads share evenly, or one each."""
    return [n for n in range(1, min(most, count) + 1) if n & (n - 1) == 0 or n == count]


def _units(source: Source) -> float:
    return _READ_UNITS + (_FILL_UNITS if source == "scratch" else 0.0)
