"""The kernel of a contraction: generated loops over blocks, panels and tiles, around the pieces of `gemm_emitters`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from frittata.egraph import dtypes, program, shapes
from frittata.kernels import source
from frittata.kernels.contractions import Contraction, structure
from frittata.kernels.gemm_constants import packed_panels, packed_rows
from frittata.kernels.gemm_emitters import Code, DepthPart, Emit, lanes_of
from frittata.kernels.gemm_schedule import Sizes, Source, part_sizes, schedule
from frittata.kernels.intrinsics import make_tile_intrinsic
from frittata.kernels.lowered import LoweredKernel, Scratch, addresses, aligned
from frittata.kernels.multiply_adds import MultiplyAdd, choose
from frittata.kernels.packing import collide, pitch, tile_rows
from frittata.kernels.processor import processor
from frittata.kernels.tiles import fetched_lines, unroll_for

PanelPacker = Callable[[Code], Emit]
"""Returns what emits `pack(table, g, j, panel)`."""


def sizes_of(work: Contraction, constants: frozenset[str], multiply: MultiplyAdd | None = None) -> Sizes:
    """Return the sizes of a contraction, the depth in turns of `multiply`, and where its sides are read from."""
    multiply = multiply or choose(work, constants)
    right: Source = "packed" if work.right.is_constant(constants) else "scratch"
    extents = work.batches, work.rows, work.columns, multiply.turns(work.depth)
    halves = processor().splits and multiply.steps == 1
    sizes = Sizes(*extents, lanes_of(work.dtype), work.itemsize, "packed", right, halves=halves)
    if work.left.is_constant(constants):
        return sizes
    rows = multiply.rows(work)
    if rows is None:
        return replace(sizes, left="scratch")
    apart = rows.start.evaluate(lambda key: int(key == "i")) - rows.start.evaluate(lambda _: 0)
    return replace(
        sizes,
        left="direct",
        reach=min(sizes.depth, -(-shapes.size(rows.leaf.shape) // (work.batches * work.rows * multiply.steps))),
        runs=rows.runs[0][0] if len(rows.runs) > 1 else 0,
        collide=collide(apart, dtypes.itemsize(rows.leaf.dtype)),
    )


def lower(
    name: str,
    work: Contraction,
    constants: frozenset[str],
    multiply: MultiplyAdd | None = None,
    pack: PanelPacker = Code.pack_panel,
) -> LoweredKernel:
    """Write the kernel; `pack` makes the code that packs a panel of the right side at run time."""
    multiply = multiply or choose(work, constants)
    return _Kernel(name, work, sizes_of(work, constants, multiply), multiply).lowered(pack)


class _Kernel:
    """One kernel being written.

    Rows of tiles are cut into blocks that stay in the second-level cache, panels into groups that a tile reads side by
    side. With a single block a panel is packed when it is needed; otherwise all panels of the chunk are packed first.
    """

    def __init__(self, name: str, work: Contraction, sizes: Sizes, multiply: MultiplyAdd) -> None:
        self._name, self._work, self._sizes = name, work, sizes
        self._plan = schedule(sizes)
        self._tiling = tile_rows(work.rows, self._plan.tile.rows)
        self._operands = tuple(program.operands_of(*work.bodies))
        self._panel_item = dtypes.itemsize(multiply.panel)
        self._code = Code(work, self._plan.tile, self._operands, multiply)
        self._namespace: dict[str, Any] = {}
        self._panel_bytes = sizes.depth * self._code.width * self._panel_item
        apart = pitch(sizes.depth, work.itemsize) if sizes.left == "scratch" else sizes.depth
        self._row_bytes = apart * work.itemsize
        self._group = self._plan.tile.panels
        self._groups = -(-self._plan.panels // self._group)
        self._has_blocks = max(part_sizes(self._tiling.tiles, self._plan.row_parts)) > self._plan.block_tiles
        in_place = multiply.rows(work) if sizes.left == "direct" else None
        self._run_length = in_place.length if in_place and sizes.runs else self._plan.depth
        self._depth_parts = -(-sizes.depth // self._plan.depth)
        self._part_bytes = self._plan.depth * self._code.width * self._panel_item
        self._panels_bytes = self._rows_bytes = 0
        if sizes.right == "scratch":
            held = max(part_sizes(self._groups, self._plan.panel_parts)) if self._has_blocks else 1
            self._panels_bytes = aligned(held * self._group * self._panel_bytes)
        if sizes.left == "scratch":
            self._rows_bytes = self._plan.block_tiles * self._tiling.large_rows * self._row_bytes
        self._sums_offset = aligned(self._panels_bytes + self._rows_bytes)
        self._tile_bytes = self._tiling.large_rows * self._code.width * work.itemsize
        self._sums_bytes = self._plan.block_tiles * self._tile_bytes if self._depth_parts > 1 else 0

    def lowered(self, pack: PanelPacker) -> LoweredKernel:
        work, sizes, plan = self._work, self._sizes, self._plan
        sides = (side.element for side, at in ((work.left, sizes.left), (work.right, sizes.right)) if at != "packed")
        arguments = addresses(work.bodies, work.leaves(sides))  # others are read only in packed form
        setup: list[str] = []
        if sizes.right == "packed":
            setup.append(f"packed = table[{len(arguments)}]")
            arguments.append(packed_panels(work, self._operands, self._code.width, self._code.multiply))
        if sizes.left == "packed":
            setup.append(f"rows = table[{len(arguments)}]")
            arguments.append(packed_rows(work, self._operands, self._tiling, self._code.multiply))
        if self._sums_offset + self._sums_bytes:
            scratch = Scratch(self._sums_offset + self._sums_bytes)
            setup.append(f"scratch = table[{len(arguments)}] + chunk*{scratch.stride_bytes}")
            arguments.append(scratch)
        if sizes.right == "scratch":
            self._namespace["pack"] = make_tile_intrinsic("pack", pack(self._code), 3)
        if sizes.left == "scratch":
            self._namespace["fill"] = make_tile_intrinsic("fill", self._code.fill_row(), 3)
        comments = [*source.comment(work.bodies), f"# {self._summary()}"]
        text = source.function(self._name, comments, [*setup, *self._parts(), *self._batches()])
        key = "\n".join([structure(work.bodies), str(plan), str(sizes), str(self._code.multiply)])
        return LoweredKernel(self._name, text, self._namespace, plan.chunks, tuple(arguments), key)

    def _summary(self) -> str:
        s = self._sizes
        batches = f"{s.batches} x " if s.batches > 1 else ""
        tile = f"{self._tiling.large_rows} rows x {self._group * self._code.width} columns"
        depth, multiply = self._work.depth, self._code.multiply
        several = f", {multiply.steps} products of {multiply.left} and {multiply.right} in a lane"
        what = f"{batches}({s.rows}, {depth}) x ({depth}, {s.columns})"
        return f"{what}: tiles of {tile}{several if multiply.steps > 1 else ''}"

    # ---- loops -------------------------------------------------------------------------------------------------------

    def _parts(self) -> Iterator[str]:
        """Name the part of each dimension that the chunk computes."""
        plan, above = self._plan, "chunk"
        for name, parts in (("panel", plan.panel_parts), ("row", plan.row_parts), ("batch", plan.batch_parts)):
            if parts > 1:
                yield f"{name}_part = {above} % {parts}"
                above = f"chunk // {parts}" if above == "chunk" else f"{above} // {parts}"

    def _batches(self) -> Iterator[str]:
        if self._sizes.batches == 1:
            yield "g = 0"
            yield from self._batch()
            return
        low, high = _cut("batch", self._sizes.batches, self._plan.batch_parts)
        yield f"for g in range({low}, {high}):"
        yield from source.deeper(self._batch())

    def _batch(self) -> Iterator[str]:
        first, last = _cut("row", self._tiling.tiles, self._plan.row_parts)
        low, high = _cut("panel", self._groups, self._plan.panel_parts)
        panels = f"for p in range({low}, {high}):"
        if not self._has_blocks:
            yield from self._fill(first, last)
            yield panels
            yield from source.deeper([*self._panel("scratch", packs=True), *self._group_of_panels(first, last)])
            return
        held = f"scratch + {_less('p', low)}*{self._group * self._panel_bytes}"
        if self._sizes.right == "scratch":
            yield panels
            yield from source.deeper(self._pack(held))
        step = self._plan.block_tiles
        yield f"for first in range({first}, {last}, {step}):"
        inner = [*self._panel(held, packs=False), *self._group_of_panels("first", "last")]
        yield from source.deeper(
            [f"last = min(first + {step}, {last})", *self._fill("first", "last"), panels, *source.deeper(inner)]
        )

    def _panel(self, scratch: str, *, packs: bool) -> Iterator[str]:
        """Name the address of a group of panels."""
        if self._sizes.right == "packed":
            batch = f"g*{self._plan.panels} + " if self._work.right.mentions("g") else ""
            yield f"panel = packed + {_atom(batch + _times('p', self._group))}*{self._panel_bytes}"
            return
        yield f"panel = {scratch}"
        if packs:
            yield from self._pack("panel")

    def _pack(self, address: str) -> Iterator[str]:
        width = self._code.width
        if self._group == 1:
            yield f"pack(table, g, p*{width}, {address})"
            return
        column = f"(p*{self._group} + n)*{width}"
        yield f"for n in range(min({self._group}, {self._plan.panels} - p*{self._group})):"
        yield f"{source.INDENT}pack(table, g, {column}, {address} + n*{self._panel_bytes})"

    def _fill(self, first: str, last: str) -> Iterator[str]:
        """Evaluate the rows of a block of tiles."""
        if self._sizes.left == "scratch":
            yield f"for i in range({self._row_of(first)}, {self._row_of(last)}):"
            yield f"{source.INDENT}fill(table, g, i, {self._row_address('i', first)})"

    def _row_of(self, tile: str) -> str:
        """Spell the first row of a tile."""
        tiling = self._tiling
        if tile.isdigit():
            return str(int(tile) * tiling.small_rows + min(int(tile), tiling.large_tiles))
        if not tiling.small_tiles:
            return f"{_atom(tile)}*{tiling.large_rows}"
        return f"{_atom(tile)}*{tiling.small_rows} + min({tile}, {tiling.large_tiles})"

    def _row_address(self, row: str, first: str) -> str:
        """Spell the address of a row of the left side, in a block that starts with the tile `first`."""
        if self._sizes.left == "direct":
            return "0"
        if self._sizes.left == "scratch":
            return f"scratch + {self._panels_bytes} + {_less(row, self._row_of(first))}*{self._row_bytes}"
        batch = f"g*{self._work.rows} + " if self._work.left.mentions("g") else ""
        return f"rows + ({batch}{row})*{self._row_bytes}"

    def _group_of_panels(self, first: str, last: str) -> Iterator[str]:
        """Spell the tiles of a group of panels, the last of which may have fewer."""
        rest = self._plan.panels % self._group
        if not rest or self._groups == 1:
            yield from self._depth_parts_of_tiles(first, last, rest or self._group)
            return
        yield f"if p < {self._groups - 1}:"
        yield from source.deeper(self._depth_parts_of_tiles(first, last, self._group))
        yield "else:"
        yield from source.deeper(self._depth_parts_of_tiles(first, last, rest))

    def _depth_parts_of_tiles(self, first: str, last: str, panels: int) -> Iterator[str]:
        """Spell the parts of the depth: all tiles take one before the next."""
        final = self._depth_parts - 1
        if final:
            yield f"for d in range({final}):"
            yield from source.deeper(self._tiles(first, last, panels, "d"))
        yield from self._tiles(first, last, panels, str(final))

    def _tiles(self, first: str, last: str, panels: int, part: str) -> Iterator[str]:
        tiling = self._tiling
        if not tiling.small_tiles:
            yield from self._tile_loop(first, last, tiling.large_rows, panels, 0, first, part)
            return
        large = str(tiling.large_tiles)
        yield from self._tile_loop(first, _extreme(min, last, large), tiling.large_rows, panels, 0, first, part)
        low = _extreme(max, first, large)
        yield from self._tile_loop(low, last, tiling.small_rows, panels, tiling.large_tiles, first, part)

    def _tile_loop(
        self, low: str, high: str, rows: int, panels: int, extra: int, first: str, part: str
    ) -> Iterator[str]:
        """Spell a loop over tiles of one size, which start at row t*rows + extra."""
        ends = part.isdigit()
        name = f"{'tile' if ends else 'part'}_{rows}x{panels * self._code.width}"
        if name not in self._namespace:
            depth = DepthPart(self._plan.depth, self._depth_parts, ends)
            emit = self._code.dot_tile(rows, panels, self._sizes.left, self._fetched_lines()[0], depth)
            self._namespace[name] = make_tile_intrinsic(name, emit, 8)
        row = _times("t", rows) + (f" + {extra}" if extra else "")
        column = f"p*{self._group * self._code.width}"
        panel = "panel" if part == "0" else f"panel + {part}*{self._part_bytes}"
        sums = f"scratch + {self._sums_offset} + {_less('t', first)}*{self._tile_bytes}" if self._sums_bytes else "0"
        addresses = f"{panel}, {self._row_address(row, first)}, {self._ahead(first, panel, ends)}"
        yield f"for t in range({low}, {high}):"
        yield f"{source.INDENT}{name}(table, g, {row}, {column}, {addresses}, {part}, {sums})"

    def _ahead(self, first: str, panel: str, ends: bool) -> str:
        """Spell the address of what a tile fetches of the next part of the panels, or of the next ones."""
        lines, parts = self._fetched_lines()
        if not lines:
            return "0"
        if ends:
            panel = f"panel + {self._group * self._panel_bytes}"
        else:
            panel += f" + {self._part_bytes}"
        return f"{panel} + {_less('t', first)} % {parts}*{self._group * self._part_bytes // parts}"

    def _fetched_lines(self) -> tuple[int, int]:
        """Return how many lines of what comes next a tile fetches a turn, and how many tiles fetch it all."""
        if not self._plan.prefetch:
            return 0, 1
        turn_bytes = unroll_for(self._run_length) * self._group * self._code.width * self._panel_item
        return fetched_lines(turn_bytes, self._plan.block_tiles)


def _cut(name: str, count: int, parts: int) -> tuple[str, str]:
    """Spell the first and one past the last of a part of `count` things."""
    if parts == 1:
        return "0", str(count)
    if parts == count:
        return f"{name}_part", f"{name}_part + 1"
    return f"{name}_part*{count} // {parts}", f"({name}_part + 1)*{count} // {parts}"


def _atom(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _times(text: str, factor: int) -> str:
    return text if factor == 1 else f"{text}*{factor}"


def _less(text: str, start: str) -> str:
    return _atom(text) if start == "0" else f"({text} - {_atom(start)})"


def _extreme(choose: Callable[..., int], a: str, b: str) -> str:
    """Spell the least or the greatest of two."""
    if a.isdigit() and b.isdigit():
        return str(choose(int(a), int(b)))
    return f"{choose.__name__}({a}, {b})"
