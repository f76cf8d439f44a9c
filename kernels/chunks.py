"""How rows, and parts of rows, fall into chunks, and the source of the loops over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frittata.kernels.frames import Loop
from frittata.kernels.source import INDENT

MOST_CHUNKS = 64
_LEAST_CHUNK_UNITS = 40_000.0
ROW = "i"
"""The number of a row in generated source."""


@dataclass(frozen=True)
class Split:
    """`chunks` chunks: slices of the rows if `pieces` is 1, else one piece, `width` elements, of one row each."""

    chunks: int
    pieces: int = 1
    width: int = 0


def wanted_chunks(units: float) -> int:
    """Return into how many chunks work is to be cut: one, or an even number, that two threads have as much to do."""
    count = max(1, min(MOST_CHUNKS, int(units / _LEAST_CHUNK_UNITS)))
    return count if count == 1 else count + count % 2


def split(rows: int, extent: int, units: float, turn: int | None) -> Split:
    """Cut into chunks by the work there is; rows of `extent`, if `turn` is given, at multiples of `turn` elements."""
    wanted = wanted_chunks(units)
    if turn is None or wanted <= rows:
        return Split(min(wanted, rows))
    turns = -(-extent // turn)
    width = -(-turns // min(turns, -(-wanted // rows))) * turn
    pieces = -(-extent // width)
    return Split(rows * pieces, pieces, width)


def row_indices(rows: Sequence[Loop]) -> list[str]:
    """Spell the variables of the row loops; of a loop of one step it is 0: a single row has no variable."""
    out: list[str] = []
    inner = 1
    for position, loop in reversed(list(enumerate(rows))):
        at = ROW if inner == 1 else f"{ROW} // {inner}"
        at = at if position == 0 else f"{at} % {loop.extent}"
        out.insert(0, at if loop.extent > 1 else "0")
        inner *= loop.extent
    return out


def row_loop(cut: Split, rows: int) -> list[str]:
    """Write the loop over the rows of a chunk, or what says which piece of which row it is."""
    if cut.pieces > 1:
        if rows == 1:
            return ["piece = chunk"]
        return [f"{ROW}, piece = chunk // {cut.pieces}, chunk % {cut.pieces}"]
    if rows == 1:
        return []
    if cut.chunks == 1:
        return [f"for {ROW} in range({rows}):"]
    if rows == cut.chunks:
        return [f"{ROW} = chunk"]
    return [f"for {ROW} in range(chunk*{rows} // {cut.chunks}, (chunk + 1)*{rows} // {cut.chunks}):"]


def column_loop(cut: Split, rows: int, extent: int, turn: int, block: str, rest: str) -> list[str]:
    """Write the loops over the rows of a chunk and over their columns, `turn` at a time, with `rest` for what is left.

    `block` does the columns from `k` on.
    """
    full = extent - extent % turn
    bounds = f"0, {full}"
    if cut.pieces > 1:
        bounds = f"piece*{cut.width}, min((piece + 1)*{cut.width}, {full})"
    inner = indented([f"for k in range({bounds}, {turn}):"], [block]) if full else []
    if full != extent:
        inner += indented([f"if piece == {cut.pieces - 1}:"], [rest]) if cut.pieces > 1 else [rest]
    return indented(row_loop(cut, rows), inner)


def indented(lines: Sequence[str], inner: Sequence[str]) -> list[str]:
    """Put lines into the loop that `lines` end with, if they do."""
    deeper = INDENT if lines and lines[-1].endswith(":") else ""
    return [*lines, *(deeper + line for line in inner)]
