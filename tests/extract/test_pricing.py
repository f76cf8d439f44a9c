"""Prices of structures: each is asked for once, by other processes where they are many."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.registry import element, make
from frittata.egraph.program import Estimate
from frittata.egraph.terms import Term
from frittata.extract.prices import Prices
from frittata.extract.pricing import Pricing


def body(extent: int, name: str = "x") -> Term:
    x = make("input", "tensor", (), (name, (extent,), "f32"))
    return make("build", "tensor", (element("load", x),), ((extent,),))


@pytest.mark.parametrize(("count", "asked"), [(99, []), (100, [*range(100)])])
def test_many_structures_are_priced_elsewhere(count: int, asked: list[int]) -> None:
    pricing = Pricing((), REFERENCE, Prices(), lambda _: False)
    for name in ("x", "y"):
        assert [pricing.structure((body(extent, name),)) for extent in range(1, count + 1)] == [*range(count)]
    found: list[int] = []

    def spread(work: Callable[[int], Any], order: Sequence[int]) -> dict[int, Any]:
        assert work(order[0]) is None  # there are no templates
        found.extend(order)
        return {7: ("made", Estimate(1.0, 2.0, 3.0))}

    pricing.price_all(spread)
    assert found == asked
    assert pricing.price(7) == (("made", Estimate(1.0, 2.0, 3.0)) if asked else None)
    assert pricing.price(8) is None
