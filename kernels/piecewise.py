"""Piecewise polynomials over vectors: each lane takes the coefficients of the piece, one of four, that it lies in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from frittata.kernels import simd
from frittata.kernels.expressions import Expr, integer
from frittata.kernels.processor import processor
from frittata.kernels.simd import Value

Row = tuple[float, float, float, float]
"""One coefficient in each of the four pieces."""

_PERMUTE_BY_LANES = {
    4: "llvm.x86.avx.vpermilvar.ps",
    8: "llvm.x86.avx.vpermilvar.ps.256",
    16: "llvm.x86.avx512.vpermilvar.ps.512",
}


def entry(like: Expr, piece: Value, row: Row) -> Expr:
    """Return in each lane the number of a row that the two low bits of `piece` name, of the type of `like`."""
    builder, lane = like.builder, like.lane
    if processor().permutes and lane.dtype == "f32" and lane.lanes in _PERMUTE_BY_LANES:
        numbers = ir.Constant(lane.type, list(row) * (lane.lanes // len(row)))
        return like.wrap(simd.call_symbol(builder, _PERMUTE_BY_LANES[lane.lanes], lane.type, [numbers, piece]))
    odd, upper = (builder.trunc(_shifted(builder, piece, by), lane.of("bool").type) for by in (0, 1))
    low, high = (like.number(b).where(odd, a) for a, b in (row[:2], row[2:]))
    return high.where(upper, low)


def polynomial(x: Expr, piece: Value, rows: Sequence[Row]) -> Expr:
    """Return the polynomial of each lane's piece, highest power first, by Horner's rule."""
    result = entry(x, piece, rows[0])
    for row in rows[1:]:
        result = result.fma(x, entry(x, piece, row))
    return result


def _shifted(builder: Any, piece: Value, by: int) -> Value:
    return builder.lshr(piece, integer(piece, by)) if by else piece
