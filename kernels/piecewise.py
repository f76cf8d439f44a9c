"""Piecewise polynomials over vectors: each lane takes the coefficients of the piece that it lies in.

Pieces are as many as numbers one instruction can choose from: sixteen of f32 with AVX-512, else four.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from frittata.kernels import simd
from frittata.kernels.expressions import Expr
from frittata.kernels.processor import processor
from frittata.kernels.simd import Lane, Value, constant_like

Row = tuple[float, ...]
"""One number for each of the pieces, four or sixteen."""

_PERMUTE_BY_LANES = {4: "llvm.x86.avx.vpermilvar.ps", 8: "llvm.x86.avx.vpermilvar.ps.256"}


def has_sixteen_pieces(x: Expr) -> bool:
    """Return whether `entry` takes rows of sixteen numbers for values like this one."""
    return processor().width == 64 and x.lane.dtype == "f32"


def entry(like: Expr, piece: Value, row: Row) -> Expr:
    """Return in each lane the number of a row that the lowest bits of `piece` name, of the type of `like`."""
    builder, lane = like.builder, like.lane
    if len(row) == 16:
        numbers = simd.row_of(Lane(lane.dtype, len(row)), row)

        def permute(piece: Value) -> Value:
            return simd.call_symbol(builder, "llvm.x86.avx512.permvar.sf.512", numbers.type, [numbers, piece])

        return like.wrap(simd.by_registers(builder, len(row), permute, piece))
    if processor().permutes and lane.dtype == "f32" and lane.lanes in _PERMUTE_BY_LANES:
        numbers = simd.row_of(lane, row)
        return like.wrap(simd.call_symbol(builder, _PERMUTE_BY_LANES[lane.lanes], lane.type, [numbers, piece]))
    odd, upper = (builder.trunc(_shifted(builder, piece, by), lane.of("bool").type) for by in (0, 1))
    low, high = (like.number(b).where(odd, a) for a, b in (row[:2], row[2:]))
    return high.where(upper, low)


@dataclass(frozen=True)
class Pieces:
    """A function in pieces: at a distance r from a `centre` it is near to the `value` there plus r times a polynomial.

    The polynomial has its highest power first.
    """

    centre: Row
    value: Row
    polynomial: tuple[Row, ...]

    def at(self, x: Expr, piece: Value, first: Value | None = None) -> Expr:
        """Return the function of each lane's piece; the value at the centre is x itself where `first` holds."""
        r = x - entry(x, piece, self.centre)
        series = entry(x, piece, self.polynomial[0])
        for row in self.polynomial[1:]:
            series = series.fma(r, entry(x, piece, row))
        value = entry(x, piece, self.value)
        return r.fma(series, value if first is None else x.where(first, value))


def _shifted(builder: Any, piece: Value, by: int) -> Value:
    return builder.lshr(piece, constant_like(piece, by)) if by else piece
