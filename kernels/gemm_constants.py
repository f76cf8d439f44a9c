"""Sides of a contraction that are known before run time: computed by the interpreter, laid out for the tiles."""

from __future__ import annotations

import numpy as np

from frittata.egraph import dtypes, program
from frittata.egraph.ops import registry
from frittata.egraph.terms import Term
from frittata.kernels import source
from frittata.kernels.contractions import Contraction, Side, packer
from frittata.kernels.lowered import Array, Pack, PackedConstant
from frittata.kernels.multiply_adds import MultiplyAdd
from frittata.kernels.packing import RowTiling, aligned_zeros, fill_panels


def packed_panels(
    work: Contraction, operands: tuple[Term, ...], width: int, multiply: MultiplyAdd
) -> PackedConstant:
    """Return the right side in panels of `width` columns, of a narrow dtype if it is cast from one.

    Shapes: (batches * panels, turns, width), or (panels, turns, width) if the side is the same in all batches.
    """
    side = work.right.stored if multiply.steps == 1 else multiply.sides(work)[1]
    extents = {"g": work.batches if side.mentions("g") else 1, "k": work.depth, "j": work.columns}
    compute, turns, count = packer(side, extents), multiply.turns(work.depth), -(-work.columns // width)

    def pack(*arrays: Array) -> Array:
        lanes = _lanes(compute(*arrays), 1, multiply.right, multiply)
        out = aligned_zeros((extents["g"] * count, turns, width), lanes.dtype)
        for batch, weights in enumerate(lanes):
            fill_panels(out[batch * count : (batch + 1) * count], weights)
        return out

    return _packed(side, operands, pack, f"panels {extents} of {width} {multiply}")


def packed_rows(
    work: Contraction, operands: tuple[Term, ...], tiling: RowTiling, multiply: MultiplyAdd
) -> PackedConstant:
    """Return the left side, tile by tile of rows: one stream, whatever the distance of rows.

    Shapes: (batches, rows * turns), in which each tile is (turns, rows of the tile); one batch if the side is the same
    in all.
    """
    side = multiply.sides(work)[0]
    extents = {"g": work.batches if side.mentions("g") else 1, "i": work.rows, "k": work.depth}
    compute, turns = packer(side, extents), multiply.turns(work.depth)
    large = tiling.large_tiles * tiling.large_rows

    def pack(*arrays: Array) -> Array:
        lanes = _lanes(compute(*arrays), 2, multiply.left, multiply)
        out = aligned_zeros((extents["g"], work.rows * turns), lanes.dtype)
        for first, last, rows in ((0, large, tiling.large_rows), (large, work.rows, tiling.small_rows)):
            if first < last:
                tiles = lanes[:, first:last].reshape(extents["g"], -1, rows, turns)
                part = out[:, first * turns : last * turns]
                part.reshape(extents["g"], -1, turns, rows)[...] = tiles.swapaxes(-1, -2)
        return out

    return _packed(side, operands, pack, f"rows {extents} {tiling} {multiply}")


def _lanes(values: Array, axis: int, dtype: str, multiply: MultiplyAdd) -> Array:
    """Return values as they fill lanes: those of a turn of the depth, which runs along an axis, are one."""
    if multiply.steps == 1:
        return values
    deep = np.moveaxis(values, axis, -1)
    padded = np.zeros((*deep.shape[:-1], multiply.turns(deep.shape[-1]) * multiply.steps), dtypes.to_numpy(dtype))
    padded[..., : deep.shape[-1]] = deep
    return np.moveaxis(padded.view(np.uint32), -1, axis)


def _packed(side: Side, operands: tuple[Term, ...], pack: Pack, layout: str) -> PackedConstant:
    element = side.element
    leaves = tuple(program.operands_of(element))
    index = ", ".join(f"{axis}: {at}" for axis, at in sorted(side.index.items()))
    built = registry.make("build", "tensor", (element,), (element.shape,))
    key = "\n".join([layout, index, *source.comment((built,), ("side",))])
    return PackedConstant(tuple(map(operands.index, leaves)), pack, key)
