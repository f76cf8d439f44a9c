"""Prices of structures: each is asked for once, by other processes where they are many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from kernel_cases import build, element, load

from frittata.egraph.machine import REFERENCE, Machine
from frittata.egraph.ops.registry import make
from frittata.egraph.program import Estimate, Program
from frittata.egraph.script import parse
from frittata.egraph.terms import Term
from frittata.extract import pricing
from frittata.extract.choose import extract
from frittata.extract.prices import Prices, key_of
from frittata.extract.pricing import Pricing, Spread
from frittata.kernels.templates import TEMPLATES
from frittata.options import Options
from frittata.pipeline import choose_rules, saturate_model

TWO_PRODUCTS = """
def main(x: f32[7, 33], v: f32[33, 20], w: f32[20, 8]) -> (f32[7, 20], f32[7, 8]):
    v1: f32[7, 20] = matmul(x, v)
    v2: f32[7, 20] = softmax(v1, axis=-1)
    return v1, matmul(v2, w)
"""


def program(spread: Spread | None = None) -> Program:
    main = (model := parse(TWO_PRODUCTS)).main
    found = saturate_model(model, choose_rules(Options()))
    args = (found.snapshot, main.inputs, main.outputs, TEMPLATES, REFERENCE, found.rule_names)
    return extract(*args, spread=spread).program


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


@pytest.mark.parametrize(("fewest", "share"), [(1, 1), (1, 2), (100, 1)], ids=["all", "half of them", "few"])
def test_what_children_priced_is_not_priced_again(fewest: int, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    given: list[int] = []

    def price(self: Pricing, structure: int) -> Any:
        asked.append(structure)
        return found(self, structure)

    def spread(work: Callable[[int], Any], order: Sequence[int]) -> dict[int, Any]:
        given.extend(order)
        return {number: work(number) for number in order if number % share == 0}

    found: Any = vars(Pricing)["_asked"]
    monkeypatch.setattr(Pricing, "_asked", price)
    monkeypatch.setattr(pricing, "_FEWEST_TO_SPREAD", fewest)
    assert program(spread) == program()
    alone = len(asked) // 2
    assert sorted(asked) == sorted([*range(alone)] * 2)
    assert given == ([*range(alone)] if fewest == 1 else [])


@dataclass
class Asked:
    """A template that notes what it is asked: it estimates `takes`, and says before that it takes `at_least`."""

    name: str
    takes: float | None
    at_least: float = 0.0
    opaque: bool = False
    constants: list[frozenset[str]] = field(default_factory=list[frozenset[str]])

    def least_s(self, bodies: tuple[Term, ...], machine: Machine) -> float:
        return self.at_least

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        self.constants.append(constants)
        return None if self.takes is None else Estimate(self.takes, 0.0, 0.0)


def test_a_structure_has_the_price_of_the_cheapest_template_that_takes_it() -> None:
    bodies = (build(element("add", load("x", 5), load("w", 5)), 5),)
    templates = (
        Asked("none", None), Asked("dear", 3.0), Asked("first", 2.0, 1.0), Asked("same", 2.0, 1.0),
        Asked("bounded", 2.5, 2.0), Asked("call", 0.0, opaque=True), Asked("last", 1.0, 0.5),
    )  # fmt: skip
    for prices, asked, best in (
        (Prices(), "none dear first same last", "last"),
        (Prices({key_of("bounded", bodies, frozenset({"w"})): 0.1}), "none dear first same bounded last", "bounded"),
    ):
        for template in templates:
            template.constants.clear()
        found = Pricing(templates, REFERENCE, prices, lambda leaf: leaf.attrs[0] == "w")
        other = (build(element("sub", load("x", 5), load("w", 5)), 5),)
        assert [found.structure(each) for each in (bodies, other, bodies)] == [0, 1, 0]
        assert [price and price[0] for price in map(found.price, (0, 0))] == [best] * 2
        assert [t.name for t in templates if t.constants == [{"w"}]] == asked.split()
        assert found.price(1) is not None
    equal = Pricing(templates[2:4], REFERENCE, Prices(), lambda leaf: False)
    assert equal.price(equal.structure(bodies)) == ("first", Estimate(2.0, 0.0, 0.0))
