"""What a convolution by tiles computes, and how it is cut: Winograd's algorithm with lanes along the channels.

A chunk takes a part of the tiles and a part of the panels of channels, block after block of tiles: the transformed
values of the image go to scratch memory, n^2 planes of (tiles, inputs); for each panel of channels n^2 products of
matrices give as many planes of (tiles, channels of the panel), small enough for the first-level cache, from which the
results are transformed back, go through the bodies and are stored.

Units: slots, a vector operation each; two a cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from frittata.egraph import dtypes, shapes
from frittata.egraph.indexing import var
from frittata.egraph.ops.elements import window_extents
from frittata.egraph.ops.winograd import KERNEL
from frittata.egraph.terms import Term
from frittata.kernels.contractions import Index, Side, only_product, split_index
from frittata.kernels.gemm_emitters import lanes_of
from frittata.kernels.gemm_schedule import NEAR_PART_BYTES, NEAR_ROWS, choose_tile, efficiency
from frittata.kernels.packing import RegisterTile
from frittata.kernels.stores import stored_at
from frittata.kernels.tiles import fetched_lines, unroll_for

_BLOCK_TILES = 24
"""How many tiles share what is read of the weights."""
_MOST_CHUNKS = 8
"""Each has scratch memory of its own, which all together should stay in the caches."""
_CHUNK_SLOTS = 10_000.0
"""The least that is worth a chunk."""
_IMAGE_SLOTS = {2: 90.0, 4: 360.0}
_RESULT_SLOTS = {2: 60.0, 4: 300.0}
"""What transforming a vector of channels of one tile takes, by m, with its loads and stores."""
_BORDER_SLOTS = 1.5
"""How much longer it takes at the border of the image."""
_WEIGHT_SLOTS = 5.0
"""What a vector of the weights takes to come from the third-level cache, for each block."""
_PARTS_TRIED = 4
"""Inputs are cut into equal parts; so many times as many as are needed, if need be."""
_PRODUCT_SLOTS = 60.0
"""What a register tile takes besides its steps along the depth."""


@dataclass(frozen=True)
class Axis:
    """One axis of the image: its extent, that of the result, the padding."""

    source: int
    result: int
    padding: int

    def reaches_outside(self, tile: int) -> bool:
        """Whether some tile depends on values outside of the image."""
        return self.padding > 0 or self.result % tile != 0

    def share_inside(self, tile: int) -> float:
        """Return the part of the tiles that depend on the image alone."""
        tiles = -(-self.result // tile)
        starts = (t * tile - self.padding for t in range(tiles))
        return sum(start >= 0 and start + tile + KERNEL - 1 <= self.source for start in starts) / tiles


@dataclass(frozen=True, eq=False)
class TiledConvolution:
    """What bodies compute. `at` is the image's index in terms of g, v, u and c, `place` that of the bodies in terms of
    g, y, x and o; that of the weights is in terms of o, c, dy and dx.
    """

    bodies: tuple[Term, ...]
    product: Term
    image: Term
    at: Index
    weights: Side
    place: Index
    batches: int
    inputs: int
    outputs: int
    tile: int
    lines: Axis
    pixels: Axis

    @property
    def dtype(self) -> str:
        """The dtype of the product."""
        return self.product.dtype

    @property
    def itemsize(self) -> int:
        """The size of an element of the product, in bytes."""
        return dtypes.itemsize(self.dtype)

    @property
    def size(self) -> int:
        """The extent of the square of values that a tile depends on."""
        return self.tile + KERNEL - 1

    @property
    def planes(self) -> int:
        """How many products of matrices there are."""
        return self.size**2

    @property
    def flops(self) -> float:
        """The operations of the products alone."""
        return 2.0 * self.tiles * self.planes * self.inputs * self.outputs

    @property
    def line_tiles(self) -> int:
        """The tiles along the lines of an image."""
        return -(-self.lines.result // self.tile)

    @property
    def pixel_tiles(self) -> int:
        """The tiles along the pixels of a line."""
        return -(-self.pixels.result // self.tile)

    @property
    def tiles(self) -> int:
        """The tiles of all images."""
        return self.batches * self.line_tiles * self.pixel_tiles


@lru_cache(maxsize=4096)
def describe(bodies: tuple[Term, ...]) -> TiledConvolution | None:
    """Return what the bodies compute if they are point-wise in one convolution by tiles; else None."""
    product = only_product(bodies, "winograd_dot")
    if product is None:
        return None
    image, weights = product.args
    source, outputs, padding, tile = product.attrs
    shape = shapes.concrete(bodies[0].shape)
    spatial = window_extents(source[:2], (KERNEL, KERNEL), (1, 1), padding, (1, 1))
    lines, pixels = (Axis(*each) for each in zip(source[:2], spatial, padding, strict=True))
    inputs = source[2]
    batch = {axis: shape[axis] for axis in range(-len(shape), -3)}
    leading = split_index("g", batch)
    place = {**leading, -3: var("y", lines.result), -2: var("x", pixels.result), -1: var("o", outputs)}
    if any(stored_at(body, place).factor_of("o") not in (0, 1) for body in bodies):
        return None
    taps = {-4: var("o", outputs), -3: var("c", inputs), -2: var("dy", KERNEL), -1: var("dx", KERNEL)}
    return TiledConvolution(
        bodies,
        product,
        image,
        {**leading, -3: var("v", lines.source), -2: var("u", pixels.source), -1: var("c", inputs)},
        Side(weights, taps),
        place,
        prod(batch.values()),
        inputs,
        outputs,
        tile,
        lines,
        pixels,
    )


# ---- how it is cut ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TiledPlan:
    """Register tiles of `rows` tiles of the image by a panel of channels; `row_tiles` of them make a block.

    A chunk computes one part of the tiles and one of the panels: (tile part, panel part).
    """

    work: TiledConvolution
    register: RegisterTile
    rows: int
    row_tiles: int
    tile_parts: int
    panel_parts: int

    @property
    def lanes(self) -> int:
        """The lanes of a vector."""
        return lanes_of(self.work.dtype)

    @property
    def width(self) -> int:
        """The channels of a panel."""
        return self.register.width

    @property
    def panels(self) -> int:
        """How many panels the channels make."""
        return -(-self.work.outputs // self.width)

    @property
    def block(self) -> int:
        """The tiles of a block."""
        return self.rows * self.row_tiles

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return self.tile_parts * self.panel_parts

    @property
    def vectors(self) -> int:
        """The vectors of input channels."""
        return -(-self.work.inputs // self.lanes)

    @property
    def image_row(self) -> int:
        """The elements of a tile in one plane of the transformed image."""
        return self.vectors * self.lanes

    @property
    def image_plane(self) -> int:
        """The elements of a plane: a cache line more than it holds, so that planes do not share lines of the cache."""
        return self.block * self.image_row + 2 * self.lanes

    @property
    def result_plane(self) -> int:
        """The elements of a plane of products with one panel."""
        return self.block * self.width

    @property
    def image_bytes(self) -> int:
        """The scratch memory of a block's image."""
        return self.work.planes * self.image_plane * self.work.itemsize

    @property
    def scratch_bytes(self) -> int:
        """The scratch memory of a chunk."""
        return self.image_bytes + self.work.planes * self.result_plane * self.work.itemsize

    @property
    def panel_bytes(self) -> int:
        """The weights of one panel in one plane."""
        return self.work.inputs * self.width * self.work.itemsize

    @property
    def depth(self) -> int:
        """The inputs that all tiles of a block take at a time of a panel."""
        inputs, parts = self.work.inputs, -(-self.panel_bytes // NEAR_PART_BYTES)
        if self.block > NEAR_ROWS or self.row_tiles == 1:
            return inputs
        return next((inputs // n for n in range(parts, _PARTS_TRIED * parts) if inputs % n == 0), inputs)

    @property
    def fetched_lines(self) -> tuple[int, int]:
        """How many lines of what comes next a register tile fetches a turn, and how many tiles fetch it all."""
        return fetched_lines(unroll_for(self.depth) * self.width * self.work.itemsize, self.row_tiles)

    @property
    def image_slots(self) -> float:
        """What transforming the values of a tile takes."""
        work = self.work
        inside = work.lines.share_inside(work.tile) * work.pixels.share_inside(work.tile)
        return self.vectors * _IMAGE_SLOTS[work.tile] * (inside + _BORDER_SLOTS * (1 - inside))

    @property
    def slots(self) -> float:
        """What all chunks take, bodies apart."""
        return self.chunks * self.chunk_slots

    @property
    def chunk_slots(self) -> float:
        """What the largest chunk takes."""
        work = self.work
        tiles = -(-work.tiles // self.tile_parts)
        panels = -(-self.panels // self.panel_parts)
        blocks = -(-tiles // self.block)
        rows = -(-tiles // self.rows) * self.rows
        vectors = self.register.vectors
        each = _row_slots(tiles, self.rows, vectors) + blocks * vectors * _WEIGHT_SLOTS
        steps = panels * work.planes * work.inputs * each
        apart = rows // self.rows * panels * work.planes * _PRODUCT_SLOTS
        return rows * self.image_slots + steps + apart + tiles * panels * vectors * _RESULT_SLOTS[work.tile]

    def __str__(self) -> str:
        cut = f"{self.tile_parts} x {self.panel_parts} chunks"
        return f"blocks of {self.row_tiles} x {self.rows} tiles, panels of {self.width} channels, {cut}"


@lru_cache(maxsize=4096)
def plan(work: TiledConvolution) -> TiledPlan:
    """Cut into chunks: the work of all, and one chunk more that others may wait for, is least."""
    chunks = max(1, min(_MOST_CHUNKS, int(_cut(work, 1, 1).slots / _CHUNK_SLOTS)))
    panels = _cut(work, 1, 1).panels
    every = [
        _cut(work, tile_parts, panel_parts)
        for tile_parts in _parts(chunks, work.tiles)
        for panel_parts in _parts(chunks // tile_parts, panels)
    ]
    return min(every, key=lambda found: found.slots + found.chunk_slots)


def _cut(work: TiledConvolution, tile_parts: int, panel_parts: int) -> TiledPlan:
    """Cut the tiles of a part into equal blocks, those into equal register tiles."""
    tiles = -(-work.tiles // tile_parts)
    most = -(-tiles // max(1, round(tiles / _BLOCK_TILES)))
    register = choose_tile(max(2, most), work.outputs, lanes_of(work.dtype))
    rows = min(range(register.rows, 0, -1), key=lambda rows: _row_slots(most, rows, register.vectors))
    return TiledPlan(work, register, rows, -(-most // rows), tile_parts, panel_parts)


def _row_slots(tiles: int, rows: int, vectors: int) -> float:
    """Return what a step along the depth takes for so many tiles, `rows` at a time: those counted that are repeated."""
    return -(-tiles // rows) * rows * vectors / efficiency(rows, vectors)


def _parts(most: int, count: int) -> list[int]:
    return [n for n in range(1, min(most, count) + 1) if n & (n - 1) == 0 or n == count]
