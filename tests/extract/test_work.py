"""What bodies are said to take: parts of a concatenation along the last axis their own places."""

from __future__ import annotations

import pytest
from kernel_cases import element, joined, load, number

from frittata.egraph.ops import registry
from frittata.egraph.terms import Term
from frittata.extract.work import Works

ROWS = 100
EXP = registry.get("exp", "element").cost


def place(extent: int) -> Term:
    return element("iota", axis=-1, extent=extent, dtype="i32")


@pytest.mark.parametrize("count", [2, 8, 32])
def test_parts_of_a_concatenation_are_computed_at_their_places(count: int) -> None:
    parts = [element("exp", load(f"x{i}", ROWS, 1)) for i in range(count)]
    found = Works().of(joined(parts))
    assert count * ROWS * EXP <= found < count * ROWS * (EXP + 10 * count.bit_length())


@pytest.mark.parametrize(
    ("op", "at", "holds"), [("lt", 3, 0.3), ("le", 3, 0.4), ("gt", 3, 0.6), ("ge", 3, 0.7), ("lt", 12, 1.0)]
)
def test_a_selection_takes_its_share_of_either_side(op: str, at: int, holds: float) -> None:
    dear, cheap = element("exp", load("x", ROWS, 10)), load("y", ROWS, 10)
    works, each = Works(), registry.get("where", "element").cost * ROWS * 10
    condition, other = element(op, place(10), number(at, "i32")), element("ge", place(10), number(5, "i32"))
    shares = {condition: holds}
    shares[element("and", condition, other)] = holds / 2
    shares[element("or", condition, other)] = 1 - (1 - holds) / 2
    for both, share in shares.items():
        found = works.of(element("where", both, dear, cheap)) - works.of(both) - each
        assert found == pytest.approx(share * works.of(dear) + (1 - share) * works.of(cheap))
