"""How an attention is cut into register tiles, blocks of queries and chunks.

Everything here is a function of sizes, never of the number of threads: results are the same bit for bit on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from frittata.kernels.attention import Attention
from frittata.kernels.contractions import Side
from frittata.kernels.gemm_emitters import lanes_of
from frittata.kernels.gemm_schedule import most_rows_by_vectors, tile_cycles
from frittata.kernels.lowered import aligned
from frittata.kernels.packing import RegisterTile, RowTiling, tile_rows
from frittata.kernels.visibility import Band

FEW_QUERIES = 4
"""Up to here keys and values are read where they lie: packing them would cost more than the products."""

_MOST_SUMS = 12
_MOST_VECTORS = 8
_ENOUGH_CHUNKS = 8
"""Each part of the rows packs keys and values anew."""
_MOST_BATCH_PARTS = 32
_CHUNK_FLOPS = 100e3
_PART_ROWS = 24
_BLOCK_BYTES = 128 << 10
_MOST_BLOCK_ROWS = 96


@dataclass(frozen=True)
class AttentionPlan:
    """Tiles of `tiling` rows by `key_tile` or `value_tile` columns; `block_tiles` row tiles to a block.

    `keys_in_place`, `values_in_place`: read where they lie instead of from panels that the chunk packs first. A chunk
    computes one part of each: (batch part, row part).
    """

    work: Attention
    lanes: int
    key_tile: RegisterTile
    value_tile: RegisterTile
    tiling: RowTiling
    block_tiles: int
    batch_parts: int
    row_parts: int
    keys_in_place: bool
    values_in_place: bool

    @property
    def skips(self) -> bool:
        """Whether keys that no query of a block sees are left out, if all values are finite."""
        return self.work.band != Band() and not self.values_in_place

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return self.batch_parts * self.row_parts

    @property
    def key_width(self) -> int:
        """The keys of a panel."""
        return self.key_tile.width

    @property
    def value_width(self) -> int:
        """The features of a panel."""
        return self.value_tile.width

    @property
    def key_panels(self) -> int:
        """How many panels the keys have."""
        return -(-self.work.keys // self.key_width)

    @property
    def value_panels(self) -> int:
        """How many panels the features have."""
        return -(-self.work.values.columns // self.value_width)

    @property
    def row_elements(self) -> int:
        """The distance of rows of scores: whole panels."""
        return self.key_panels * self.key_width

    @property
    def block_rows(self) -> int:
        """The most rows of a block."""
        return self.block_tiles * self.tiling.large_rows

    @property
    def queries_in_place(self) -> bool:
        """Whether rows of queries are read where they lie."""
        rows = self.work.scores.left.rows(self.work.scores.depth)
        return rows is not None and rows.count == 1 and (not self.keys_in_place or rows.step == 1)

    @property
    def key_panel_bytes(self) -> int:
        """The size of a panel of keys."""
        return self.work.scores.depth * self.key_width * self.work.itemsize

    @property
    def value_panel_bytes(self) -> int:
        """The size of a panel of values."""
        return self.work.keys * self.value_width * self.work.itemsize

    @cached_property
    def offset_by_part(self) -> dict[str, int]:
        """Where each part of a chunk's scratch memory starts, in bytes; `end` is its size."""
        offsets: dict[str, int] = {}
        end = 0
        for name, size in self._parts():
            offsets[name] = end
            end = aligned(end + size)
        return {**offsets, "end": end}

    def _parts(self) -> Iterator[tuple[str, int]]:
        work = self.work
        yield "scores", self.block_rows * self.row_elements * work.itemsize
        if not self.keys_in_place:
            yield "keys", self.key_panels * self.key_panel_bytes
        if not self.values_in_place:
            yield "values", self.value_panels * self.value_panel_bytes
        if not self.queries_in_place:
            yield "queries", self.block_rows * work.scores.depth * work.itemsize


def plan(work: Attention) -> AttentionPlan:
    """Choose tiles, blocks and chunks."""
    lanes = lanes_of(work.scores.dtype)
    few = work.queries <= FEW_QUERIES
    keys_in_place = few and _stride(work.scores.right, "k") == 1
    values_in_place = few and work.values.columns % lanes == 0 and _stride(work.values.right, "j") == 1
    values_in_place &= _stride(work.values.right, "k") is not None
    key_tile, value_tile = _tiles(work, lanes)
    if keys_in_place:
        key_tile = RegisterTile(work.queries, 1, lanes)
    if values_in_place:
        value_tile = RegisterTile(work.queries, _vectors(work.queries, work.values.columns // lanes), lanes)
    tiling = tile_rows(work.queries, min(key_tile.rows, value_tile.rows))
    row_bytes = -(-work.keys // key_tile.width) * key_tile.width * work.itemsize
    rows = max(tiling.large_rows, min(_MOST_BLOCK_ROWS, _BLOCK_BYTES // row_bytes))
    chunks = int(max(1, min(_ENOUGH_CHUNKS, (work.scores.flops + work.values.flops) // _CHUNK_FLOPS)))
    batch_parts = min(work.scores.batches, _MOST_BATCH_PARTS) if chunks > 1 else 1
    row_parts = max(1, min(-(-chunks // batch_parts), work.queries // _PART_ROWS))
    block = min(rows // tiling.large_rows, tiling.tiles)
    return AttentionPlan(
        work, lanes, key_tile, value_tile, tiling, block, batch_parts, row_parts, keys_in_place, values_in_place
    )


def _stride(side: Side, key: str) -> int | None:
    """Return the distance in memory of neighbours along a variable, None if the side is not plain or not linear."""
    found = side.plain()
    return None if found is None else found[1].factor_of(key)


def _vectors(rows: int, count: int) -> int:
    """Return how many vectors of columns to sum at once: as many as fit, and none beyond the last."""
    most = min(_MOST_VECTORS, _MOST_SUMS // rows)
    return max(n for n in range(1, most + 1) if count % n == 0)


def _tiles(work: Attention, lanes: int) -> tuple[RegisterTile, RegisterTile]:
    """Choose the tiles of both products, which have rows in common, that waste the least."""

    def tiles(pair: tuple[int, int]) -> tuple[RegisterTile, RegisterTile]:
        most = min(work.queries, *(most_rows_by_vectors()[vectors] for vectors in pair))
        return RegisterTile(most, pair[0], lanes), RegisterTile(most, pair[1], lanes)

    def cycles(pair: tuple[int, int]) -> float:
        both = zip(tiles(pair), (work.scores, work.values), strict=True)
        return sum(-(-c.columns // t.width) * tile_cycles(c.rows, t) * c.depth for t, c in both)

    vectors = tuple(most_rows_by_vectors())
    return tiles(min(product(vectors, vectors), key=cycles))
