"""Sides of a contraction that are known before run time: computed by the interpreter, laid out for the tiles."""

from __future__ import annotations

from frittata.egraph import dtypes, program
from frittata.egraph.ops import registry
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.contractions import Contraction, Side, packer
from frittata.kernels.lowered import Array, Pack, PackedConstant
from frittata.kernels.packing import RowTiling, aligned_zeros, fill_panels


def packed_panels(work: Contraction, operands: tuple[Term, ...], width: int) -> PackedConstant:
    """Return the right side in panels of `width` columns, of a narrow dtype if it is cast from one.

    Shapes: (batches * panels, depth, width), or (panels, depth, width) if the side is the same in all batches.
    """
    side = work.right.stored
    extents = {"g": work.batches if side.mentions("g") else 1, "k": work.depth, "j": work.columns}
    compute, dtype = packer(side, extents), dtypes.to_numpy(side.element.dtype)
    count = -(-work.columns // width)

    def pack(*arrays: Array) -> Array:
        out = aligned_zeros((extents["g"] * count, work.depth, width), dtype)
        for batch, weights in enumerate(compute(*arrays)):
            fill_panels(out[batch * count : (batch + 1) * count], weights)
        return out

    return _packed(side, operands, pack, f"panels {extents} of {width} {side.element.dtype}")


def packed_rows(work: Contraction, operands: tuple[Term, ...], tiling: RowTiling) -> PackedConstant:
    """Return the left side, tile by tile of rows: one stream, whatever the distance of rows.

    Shapes: (batches, rows * depth), in which each tile is (depth, rows of the tile); one batch if the side is the same
    in all.
    """
    side = work.left
    extents = {"g": work.batches if side.mentions("g") else 1, "i": work.rows, "k": work.depth}
    compute, dtype = packer(side, extents), dtypes.to_numpy(work.dtype)
    large = tiling.large_tiles * tiling.large_rows

    def pack(*arrays: Array) -> Array:
        values = compute(*arrays)
        out = aligned_zeros((extents["g"], work.rows * work.depth), dtype)
        for first, last, rows in ((0, large, tiling.large_rows), (large, work.rows, tiling.small_rows)):
            if first < last:
                tiles = values[:, first:last].reshape(extents["g"], -1, rows, work.depth)
                part = out[:, first * work.depth : last * work.depth]
                part.reshape(extents["g"], -1, work.depth, rows)[...] = tiles.swapaxes(-1, -2)
        return out

    return _packed(side, operands, pack, f"rows {extents} {tiling} {work.dtype}")


def _packed(side: Side, operands: tuple[Term, ...], pack: Pack, layout: str) -> PackedConstant:
    element = side.element
    leaves = tuple(program.operands_of(element))
    index = ", ".join(f"{axis}: {at}" for axis, at in sorted(side.index.items()))
    built = registry.make("build", "tensor", (element,), (element.shape,))
    key = "\n".join([layout, index, *source.comment((built,), ("side",))])
    return PackedConstant(tuple(map(operands.index, leaves)), pack, key)
