"""The kernel of a contraction: generated loops over blocks, panels and tiles, around the pieces of `gemm_emitters`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from frittata.egraph import dtypes, program
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.contractions import Contraction, Side, packer, structure
from frittata.kernels.gemm_emitters import Code, Emit, lanes_of
from frittata.kernels.gemm_schedule import Schedule, Sizes, Source, schedule
from frittata.kernels.intrinsics import make_tile_intrinsic
from frittata.kernels.lowered import (
    Argument,
    Array,
    LoweredKernel,
    Operand,
    Pack,
    PackedConstant,
    Result,
    Scratch,
    aligned,
)
from frittata.kernels.packing import RowTiling, aligned_zeros, pack_panels, tile_rows


def sizes_of(work: Contraction, constants: frozenset[str]) -> Sizes:
    """Return the sizes of a contraction and where its sides are read from."""
    right: Source = "packed" if work.right.is_constant(constants) else "scratch"
    left: Source = "scratch"
    if work.left.rows() is not None:
        left = "direct"
    elif work.left.is_constant(constants):
        left = "packed"
    return Sizes(
        work.batches, work.rows, work.columns, work.depth, lanes_of(work.dtype), work.itemsize, left, right
    )


def lower(
    name: str, work: Contraction, constants: frozenset[str], pack: Callable[[Code], Emit] | None = None
) -> LoweredKernel:
    """Write the kernel. `pack` may stand in for the general code that packs a panel of the right side."""
    kernel = _Kernel(name, work, sizes_of(work, constants))
    return kernel.lowered(pack or Code.pack_panel)


class _Kernel:
    """One kernel being written."""

    def __init__(self, name: str, work: Contraction, sizes: Sizes) -> None:
        self.name, self.work, self.sizes = name, work, sizes
        self.plan: Schedule = schedule(sizes)
        self.tiling: RowTiling = tile_rows(work.rows, self.plan.tile.rows)
        self.operands = tuple(program.operands_of(*work.bodies))
        self.code = Code(work, self.plan.tile, self.operands)
        self.namespace: dict[str, Any] = {}
        self.panel_bytes = work.depth * self.code.width * work.itemsize
        self.row_bytes = work.depth * work.itemsize
        self.blocks = -(-_most(self.tiling.tiles, self.plan.row_parts) // self.plan.block_tiles)
        group = self.plan.tile.panels
        self.groups = -(-self.plan.panels // group)
        held = _most(self.groups, self.plan.panel_parts) if self.blocks > 1 else 1
        self.panels_bytes = aligned(held * group * self.panel_bytes) if sizes.right == "scratch" else 0
        rows = self.plan.block_tiles * self.tiling.large_rows
        self.rows_bytes = rows * self.row_bytes if sizes.left == "scratch" else 0

    def lowered(self, pack: Callable[[Code], Emit]) -> LoweredKernel:
        work, sizes = self.work, self.sizes
        arguments: list[Argument] = [*map(Operand, range(len(self.operands))), *map(Result, range(len(work.bodies)))]
        setup: list[str] = []
        if sizes.right == "packed":
            setup.append(f"packed = table[{len(arguments)}]")
            arguments.append(self._packed_panels())
        if sizes.left == "packed":
            setup.append(f"left = table[{len(arguments)}]")
            arguments.append(self._packed_rows())
        if self.panels_bytes + self.rows_bytes:
            scratch = Scratch(self.panels_bytes + self.rows_bytes)
            setup.append(f"scratch = table[{len(arguments)}] + chunk*{scratch.stride_bytes}")
            arguments.append(scratch)
        if sizes.right == "scratch":
            self._define("pack", pack(self.code), 3)
        if sizes.left == "scratch":
            self._define("fill", self.code.fill_row(), 3)
        lines = [
            *source.comment(work.bodies, tuple(f"out{i}" for i in range(len(work.bodies)))),
            f"# {self._summary()}",
            f"def {self.name}(table, chunk):",
            *(source.INDENT + line for line in (*setup, *self._body())),
        ]
        key = "\n".join([structure(work.bodies), str(self.plan), str(sizes)])
        text = "\n".join(lines) + "\n"
        return LoweredKernel(self.name, text, self.namespace, self.plan.chunks, tuple(arguments), key)

    def _summary(self) -> str:
        s, tile = self.sizes, self.plan.tile
        batches = f"{s.batches} x " if s.batches > 1 else ""
        shape = f"{batches}({s.rows}, {s.depth}) x ({s.depth}, {s.columns})"
        return f"{shape}: tiles of {self.tiling.large_rows} rows x {tile.panels * self.code.width} columns"

    def _define(self, name: str, emit: Emit, arity: int) -> None:
        self.namespace[name] = make_tile_intrinsic(name, emit, arity)

    # ---- constants ---------------------------------------------------------------------------------------------------

    def _packed_panels(self) -> PackedConstant:
        side, width, itemsize = self.work.right, self.code.width, self.work.itemsize
        batches = self.work.batches if side.mentions("g") else 1
        extents = {"g": batches, "k": self.work.depth, "j": self.work.columns}
        compute, dtype = packer(side, extents), dtypes.to_numpy(self.work.dtype)
        count, depth = self.plan.panels, self.work.depth

        def pack(*arrays: Array) -> Array:
            # one more for the last panel's prefetch
            out = aligned_zeros((batches * count, depth, width), dtype)
            for n, weights in enumerate(compute(*arrays)):
                out[n * count : (n + 1) * count] = pack_panels(weights.astype(dtype, copy=False), width)
            return out

        return self._packed(side, pack, f"panels {extents} of {width} x {itemsize}")

    def _packed_rows(self) -> PackedConstant:
        side = self.work.left
        extents = {"g": self.work.batches if side.mentions("g") else 1, "i": self.work.rows, "k": self.work.depth}
        compute, dtype = packer(side, extents), dtypes.to_numpy(self.work.dtype)

        def pack(*arrays: Array) -> Array:
            values = compute(*arrays)
            out = aligned_zeros(values.shape, dtype)
            out[...] = values
            return out

        return self._packed(side, pack, f"rows {extents}")

    def _packed(self, side: Side, pack: Pack, layout: str) -> PackedConstant:
        leaves = tuple(program.operands_of(side.element))
        index = ", ".join(f"{axis}: {at}" for axis, at in sorted(side.index.items()))
        text = source.comment((_built(side.element),), ("side",))
        return PackedConstant(tuple(map(self.operands.index, leaves)), pack, "\n".join([layout, index, *text]))

    # ---- loops -------------------------------------------------------------------------------------------------------

    def _body(self) -> Iterator[str]:
        plan, sizes = self.plan, self.sizes
        yield from _part("batch", "chunk", plan.batch_parts, plan.row_parts * plan.panel_parts)
        yield from _part("row", "chunk", plan.row_parts, plan.panel_parts)
        yield from _part("panel", "chunk", plan.panel_parts, 1)
        yield f"for g in range({_cut('batch', sizes.batches, plan.batch_parts)}):"
        panels = f"range({_cut('panel', self.groups, plan.panel_parts)})"
        yield from _indented(self._of_batch(panels))

    def _of_batch(self, panels: str) -> Iterator[str]:
        plan = self.plan
        first, last = _cut("row", self.tiling.tiles, plan.row_parts).split(", ")
        pack_ahead = self.sizes.right == "scratch" and self.blocks > 1
        if pack_ahead:
            yield f"for p in {panels}:"
            yield from _indented(self._pack(f"scratch + (p - {_start(panels)})*{self._group_bytes}"))
        if self.blocks == 1:
            yield from self._fill(first, last)
            yield f"for p in {panels}:"
            yield from _indented(self._of_panel(first, last, panels, pack_ahead))
            return
        yield f"for first in range({first}, {last}, {plan.block_tiles}):"
        yield f"{source.INDENT}last = min(first + {plan.block_tiles}, {last})"
        yield from _indented(self._fill("first", "last"))
        yield f"{source.INDENT}for p in {panels}:"
        yield from _indented(_indented(self._of_panel("first", "last", panels, pack_ahead)))

    @property
    def _group_bytes(self) -> int:
        return self.plan.tile.panels * self.panel_bytes

    def _pack(self, address: str) -> Iterator[str]:
        group, width = self.plan.tile.panels, self.code.width
        if group == 1:
            yield f"pack(table, g, p*{width}, {address})"
            return
        yield f"for n in range(min({group}, {self.plan.panels} - p*{group})):"
        yield f"{source.INDENT}pack(table, g, (p*{group} + n)*{width}, {address} + n*{self.panel_bytes})"

    def _fill(self, first: str, last: str) -> Iterator[str]:
        """Evaluate the rows of a block of tiles."""
        if self.sizes.left != "scratch":
            return
        yield f"for i in range({self._row_of(first)}, {self._row_of(last)}):"
        yield f"{source.INDENT}fill(table, g, i, {self._row_address('i', first)})"

    def _row_of(self, tile: str) -> str:
        """Spell the first row of a tile."""
        large = self.tiling.large_rows
        if not self.tiling.small_tiles:
            return str(int(tile) * large) if tile.isdigit() else f"{_atom(tile)}*{large}"
        small, extra = self.tiling.small_rows, self.tiling.large_tiles
        return f"{_atom(tile)}*{small} + min({tile}, {extra})"

    def _row_address(self, row: str, first: str) -> str:
        if self.sizes.left == "scratch":
            return f"scratch + {self.panels_bytes} + ({row} - ({self._row_of(first)}))*{self.row_bytes}"
        if self.sizes.left == "packed":
            batch = f"g*{self.work.rows} + " if self.work.left.mentions("g") else ""
            return f"left + ({batch}{row})*{self.row_bytes}"
        return "0"

    def _of_panel(self, first: str, last: str, panels: str, packed_ahead: bool) -> Iterator[str]:
        if self.sizes.right == "packed":
            batch = f"g*{self.plan.panels} + " if self.work.right.mentions("g") else ""
            yield f"panel = packed + ({batch}p*{self.plan.tile.panels})*{self.panel_bytes}"
        elif packed_ahead:
            yield f"panel = scratch + (p - {_start(panels)})*{self._group_bytes}"
        else:
            yield "panel = scratch"
            yield from self._pack("panel")
        rest = self.plan.panels % self.plan.tile.panels
        if not rest:
            yield from self._tiles(first, last, self.plan.tile.panels)
            return
        if self.groups > 1:
            yield f"if p < {self.groups - 1}:"
            yield from _indented(self._tiles(first, last, self.plan.tile.panels))
            yield "else:"
            yield from _indented(self._tiles(first, last, rest))
        else:
            yield from self._tiles(first, last, rest)

    def _tiles(self, first: str, last: str, panels: int) -> Iterator[str]:
        tiling = self.tiling
        if not tiling.small_tiles:
            yield from self._tile_loop(first, last, tiling.large_rows, panels, 0, first)
        elif not tiling.large_tiles:
            yield from self._tile_loop(first, last, tiling.small_rows, panels, 0, first)
        else:
            extra = tiling.large_tiles
            yield from self._tile_loop(first, f"min({last}, {extra})", tiling.large_rows, panels, 0, first)
            yield from self._tile_loop(f"max({first}, {extra})", last, tiling.small_rows, panels, extra, first)

    def _tile_loop(self, low: str, high: str, rows: int, panels: int, extra: int, first: str) -> Iterator[str]:
        name = f"tile_{rows}x{panels * self.code.width}"
        if name not in self.namespace:
            emit = self.code.dot_tile(rows, panels, self.sizes.left == "direct", self.plan.prefetch)
            self._define(name, emit, 6)
        row = f"t*{rows} + {extra}" if extra else f"t*{rows}"
        column = f"p*{self.plan.tile.panels * self.code.width}"
        ahead = "0"
        if self.plan.prefetch:
            parts = _prefetch_parts(self.work.depth)
            ahead = f"panel + {self.panel_bytes} + (t - {_atom(first)}) % {parts}*{self.panel_bytes // parts}"
        yield f"for t in range({low}, {high}):"
        yield f"{source.INDENT}{name}(table, g, {row}, {column}, panel, {self._row_address(row, first)}, {ahead})"


def _built(element: Term) -> Term:
    from frittata.egraph.ops import registry

    return registry.make("build", "tensor", (element,), (element.shape,))


def _prefetch_parts(depth: int) -> int:
    from frittata.kernels.tiles import unroll_for

    return unroll_for(depth)


def _most(count: int, parts: int) -> int:
    """Return the size of the largest of `parts` parts."""
    return max((n + 1) * count // parts - n * count // parts for n in range(parts))


def _part(name: str, chunk: str, parts: int, below: int) -> Iterator[str]:
    """Spell which part of a dimension a chunk computes."""
    if parts > 1:
        yield f"{name}_part = {chunk if below == 1 else f'{chunk} // {below}'} % {parts}"


def _cut(name: str, count: int, parts: int) -> str:
    """Spell the first and one past the last of a part of `count` things."""
    if parts == 1:
        return f"0, {count}"
    if parts == count:
        return f"{name}_part, {name}_part + 1"
    return f"{name}_part*{count} // {parts}, ({name}_part + 1)*{count} // {parts}"


def _start(range_: str) -> str:
    return _atom(range_.removeprefix("range(").split(", ")[0])


def _atom(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (source.INDENT + line for line in lines)
