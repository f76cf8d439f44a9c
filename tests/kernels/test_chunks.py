"""How rows fall into chunks: each part of each row is in one chunk."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

import pytest

from frittata.kernels.chunks import MOST_CHUNKS, Split, column_loop, row_indices, split, wanted_chunks
from frittata.kernels.frames import Loop

UNITS = (0.0, 1e5, 2.1e5, 1e6, 1e9)


def done(lines: list[str], cut: Split) -> Counter[tuple[Any, ...]]:
    """Run what was written for each chunk; count what its blocks note."""
    found: list[tuple[Any, ...]] = []
    code = compile("\n".join(lines), "chunk", "exec")
    for chunk in range(cut.chunks):
        exec(code, {"chunk": chunk, "i": 0, "note": lambda *at: found.append(at)})
    return Counter(found)


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("turn", [1, 4, 16])
def test_every_column_of_every_row_is_in_one_chunk(turn: int, units: float) -> None:
    for rows in (1, 2, 3, 7, 20):
        for extent in (1, 4, 5, 16, 23, 65, 130):
            cut = split(rows, extent, units, turn)
            assert cut.chunks <= rows * -(-extent // turn) and (cut.pieces == 1 or cut.width % turn == 0)
            lines = column_loop(cut, rows, extent, turn, f"note(i, k, k + {turn})", "note(i, 'rest')")
            full = extent // turn * turn
            expected = [(i, k, k + turn) for i in range(rows) for k in range(0, full, turn)]
            expected += [(i, "rest") for i in range(rows) if full < extent]
            assert done(lines, cut) == Counter(expected)


def test_work_falls_into_as_many_chunks_as_it_is_worth() -> None:
    assert [wanted_chunks(units) for units in UNITS] == [1, 2, 6, 26, MOST_CHUNKS]
    assert [split(rows, 1, 1e6, None).chunks for rows in (1, 3, 100)] == [1, 3, 26]
    assert split(100, 160, 1e6, 16) == Split(26)
    assert split(2, 160, 1e6, 16) == Split(20, 10, 16)
    assert split(3, 1000, 2.1e5, 16) == Split(6, 2, 512)


@pytest.mark.parametrize("extents", [(), (1,), (7,), (3, 4), (1, 5), (5, 1), (2, 1, 3), (2, 3, 4)])
def test_the_number_of_a_row_says_where_each_loop_is(extents: tuple[int, ...]) -> None:
    spelled = row_indices([Loop(f"r{axis}", extent) for axis, extent in enumerate(extents)])
    found = [tuple(eval(at, {"i": i}) for at in spelled) for i in range(prod(extents))]
    assert len(spelled) == len(extents) and len(set(found)) == prod(extents)
    assert found == sorted(found) and all(at < extent for at, extent in zip(found[-1], extents, strict=True))
