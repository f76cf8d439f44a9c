"""The price of a kernel: the least that any template predicts, asked for once of each structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frittata.egraph.machine import Machine
from frittata.egraph.ops import registry
from frittata.egraph.program import Estimate, Template, least_s, operands_of, takes_opaque
from frittata.egraph.terms import Term
from frittata.extract.prices import Prices, structure

Spread = Callable[[Callable[[int], Any], Sequence[int]], Mapping[int, Any]]
"""Does the work of numbers in several processes, and returns what it found of some of them."""

_FEWEST_TO_SPREAD = 100
"""How many prices are worth processes: a price takes milliseconds, to fork a large process some tens."""


@dataclass
class Pricing:
    """Prices the kernels of one extraction. Equal layers have the same structures, which are numbered."""

    templates: tuple[Template, ...]
    machine: Machine
    prices: Prices
    is_constant: Callable[[Term], bool]
    _numbers: dict[Any, int] = field(default_factory=dict[Any, int])
    _examples: list[tuple[Term, ...]] = field(default_factory=list[tuple[Term, ...]])
    _known: dict[int, tuple[str, Estimate] | None] = field(default_factory=dict[int, "tuple[str, Estimate] | None"])

    def structure(self, bodies: tuple[Term, ...]) -> int:
        """Return the number of what the price of bodies depends on."""
        number = self._numbers.setdefault(structure(bodies, self.is_constant), len(self._examples))
        if number == len(self._examples):
            self._examples.append(bodies)
        return number

    def price(self, structure: int) -> tuple[str, Estimate] | None:
        """Return the best template for bodies of a structure, and its estimate; None if no template takes them."""
        if structure not in self._known:
            self._known[structure] = self._asked(structure)
        return self._known[structure]

    def price_all(self, spread: Spread) -> None:
        """Price all structures, if they are many, in several processes."""
        if len(self._examples) >= _FEWEST_TO_SPREAD:
            self._known.update(spread(self._asked, range(len(self._examples))))

    def _asked(self, structure: int) -> tuple[str, Estimate] | None:
        bodies = self._examples[structure]
        constants = frozenset(leaf.attrs[0] for leaf in operands_of(*bodies) if self.is_constant(leaf))
        best: tuple[str, Estimate] | None = None
        is_opaque = registry.get(bodies[0].op).opaque
        for template in (t for t in self.templates if takes_opaque(t) == is_opaque):
            if best is not None and self.prices.bounds(least_s(template, bodies, self.machine)) >= best[1].seconds:
                continue
            predicted = template.estimate(bodies, constants, self.machine)
            if predicted is not None:
                estimate = self.prices.corrected(template.name, bodies, constants, predicted)
                if best is None or estimate.seconds < best[1].seconds:
                    best = template.name, estimate
        return best
