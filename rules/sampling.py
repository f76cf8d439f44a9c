"""For the audit: draw terms that a rule's left side matches."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from frittata.egraph import terms
from frittata.egraph.errors import ModelError
from frittata.egraph.ops import registry
from frittata.egraph.ops.registry import Op
from frittata.egraph.terms import Term
from frittata.rules import facts
from frittata.rules.draws import Dice, narrowed, random_dim, random_dtype, random_scalar, random_shape
from frittata.rules.facts import NotApplicable
from frittata.rules.matching import Bindings, holds, number, same
from frittata.rules.pattern import AttrVariable, Expression, Node, Number, Pattern, Rule, Variable
from frittata.rules.proposals import Goal, Mismatch, Place, propose


@dataclass(frozen=True)
class Instance:
    """One way to bind the left side of a rule, guard included: what the names stand for, roots among them."""

    bindings: Bindings
    leaves: tuple[Term, ...]


def draw_instances(rule: Rule, rng: Dice, attempts: int) -> Iterator[tuple[int, Instance]]:
    """Yield instances of the left side that satisfy the guard, out of so many attempts, with the number of each.

    Where an eighth of them found nothing, all of them would find hardly any: it ends there.
    """
    found = False
    for attempt in range(attempts):
        if attempt > attempts // 8 and not found:
            return
        try:
            bindings = _Draw(rule, rng).bindings()
        except (Mismatch, ModelError, NotApplicable):
            continue
        if holds(rule.conditions, bindings):
            roots = [bindings.term_by_name[binding.name] for binding in rule.left]
            leaves = (term for term in terms.walk(*roots) if term.op in ("input", "param"))
            found = True
            yield attempt, Instance(bindings, tuple(leaves))


def obstacle(rule: Rule, dice: Dice, attempts: int = 1000) -> str:
    """Return why no left side was drawn, or which part of the guard was never true; empty if each was at times."""
    reasons: dict[Expression, str] = {}
    met: set[Expression] = set()
    parts = [condition.expression for condition in rule.conditions if condition.expression is not None]
    drawn = False
    misfits = Counter[str]()
    for _ in range(attempts):
        with contextlib.suppress(Mismatch, NotApplicable):
            try:
                env = _Draw(rule, dice, guarded=False).bindings().environment()
            except ModelError as error:
                misfits[f"the left side has no type: {error.what}{error.do and f' ({error.do})'}"] += 1
                continue
            drawn = True
            for part in parts:
                try:
                    if facts.evaluate(part, env):
                        met.add(part)
                    else:
                        given = ", ".join(f"{name} = {env[name]}" for name in dict.fromkeys(part.names))
                        reasons[part] = f"{part.text} was never true{given and f', as with {given}'}"
                except NotApplicable as reason:
                    reasons.setdefault(part, str(reason))
    if not drawn:
        return max(misfits, key=misfits.__getitem__, default="")  # others are of draws that do not fit by chance
    return next((reasons[part] for part in parts if part not in met), "")


_REDRAWN = 2
"""How often an operator is drawn again at most, if what was drawn does not fit."""

_ALL_REDRAWN = 12
"""How often all operators of an attempt are, together."""


class _Draw:
    """One attempt. Draws top-down: a goal for the root, from it goals for operands, down to the variables.

    Each part of the guard is tested as soon as all that it mentions is drawn, and what does not fit is drawn again by
    itself: of a guard with many parts hardly any attempt would meet all at once.
    """

    def __init__(self, rule: Rule, rng: Dice, guarded: bool = True) -> None:
        self.rule = rule
        self.rng = rng
        self.constants = {name for condition in rule.conditions for name in condition.constants}
        self.terms: dict[str, Term] = {}
        self.attrs: dict[str, Any] = {}
        self.waiting = [c.expression for c in rule.conditions if c.expression is not None and guarded]
        self.redraws = _ALL_REDRAWN

    def bindings(self) -> Bindings:
        """Draw every pattern of the left side."""
        first = self.rule.left[0].pattern
        assert isinstance(first, Node)
        goal = Goal(random_shape(self.rng), random_dtype(self.rng, registry.get(first.op, first.sort)))
        for binding in self.rule.left:
            self.terms[binding.name] = self._draw(binding.pattern, goal)
            goal = self._beside(goal)
        return Bindings(dict(self.terms), dict(self.attrs))

    def _beside(self, goal: Goal) -> Goal:
        """Draw what the next root shall be: mostly as the last, or with one extent that is another."""
        if not goal.shape or self.rng.random() < 0.6:
            return goal
        axis = int(self.rng.integers(len(goal.shape)))
        return Goal((*goal.shape[:axis], random_dim(self.rng), *goal.shape[axis + 1 :]), goal.dtype)

    def _draw(self, pattern: Pattern, goal: Goal) -> Term:
        match pattern:
            case Variable(name=name, sort=sort):
                if name not in self.terms:
                    self.terms[name] = self._tensor(name, goal) if sort == "tensor" else self._element(name, goal)
                return self.terms[name]
            case Number():
                return number(pattern, self._like(pattern, goal))
            case Node():
                return self._node(pattern, goal)

    def _like(self, pattern: Number, goal: Goal) -> str:
        return self.terms[pattern.like].dtype if pattern.like in self.terms else goal.dtype

    def _node(self, pattern: Node, goal: Goal) -> Term:
        tried: list[Any] = []
        while True:
            terms_, attrs, waiting = dict(self.terms), dict(self.attrs), self.waiting
            op, goals, given = self._proposed(pattern, goal)
            drawn: dict[int, Term] = {}
            try:
                # Numbers take the dtype of a variable beside them, so variables are drawn first.
                for i in sorted(range(len(goals)), key=lambda i: isinstance(pattern.args[i], Number)):
                    drawn[i] = self._draw(pattern.args[i], goals[i])
                self._test()
                return registry.make(op.name, op.sort, tuple(drawn[i] for i in range(len(goals))), given)
            except (Mismatch, ModelError, NotApplicable):
                self.redraws -= 1
                if len(tried) == _REDRAWN or self.redraws < 0 or (drawn, given) in tried:
                    raise
                tried.append((drawn, given))
                self.terms, self.attrs, self.waiting = terms_, attrs, waiting

    def _proposed(self, pattern: Node, goal: Goal) -> tuple[Op, tuple[Goal, ...], tuple[Any, ...]]:
        """Return the row of an operator, goals for its operands, and its attributes."""
        op = registry.get(pattern.op, pattern.sort)
        labels = [label for label, _ in op.attrs]
        given = self._given(pattern, labels)
        bound = (self.terms.get(arg.name) if isinstance(arg, Variable) else None for arg in pattern.args)
        known = tuple(term.type if term else None for term in bound)
        try:
            goals, attrs = propose(Place(op, goal, given, known, self.rng))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise Mismatch from error  # of attributes that make no sense here, such as a tuple for an axis
        for wanted, label in zip(pattern.attrs, labels, strict=True):
            if isinstance(wanted, AttrVariable):
                self.attrs.setdefault(wanted.name, attrs[label])
            if isinstance(wanted, AttrVariable) and not same(self.attrs[wanted.name], attrs[label]):
                raise Mismatch
        return op, goals, tuple(attrs.values())

    def _test(self) -> None:
        """Test those parts of the guard of which all is drawn now."""
        ready = [part for part in self.waiting if all(name in self.terms or name in self.attrs for name in part.names)]
        if ready:
            env = Bindings(self.terms, self.attrs).environment()
            if not all(facts.holds(part, env) for part in ready):
                raise Mismatch
            self.waiting = [part for part in self.waiting if part not in ready]

    def _given(self, pattern: Node, labels: list[str]) -> dict[str, Any]:
        env = Bindings(self.terms, self.attrs).environment()
        given: dict[str, Any] = {}
        for label, wanted in zip(labels, pattern.attrs, strict=True):
            if isinstance(wanted, AttrVariable) and wanted.name in self.attrs:
                given[label] = self.attrs[wanted.name]
            elif isinstance(wanted, Expression) and all(name in env for name in wanted.names):
                given[label] = facts.evaluate(wanted, env)
        return given

    def _tensor(self, name: str, goal: Goal) -> Term:
        leaf = "param" if name in self.constants else "input"
        return registry.make(leaf, "tensor", (), (name, goal.shape, goal.dtype))

    def _element(self, name: str, goal: Goal) -> Term:
        """Draw an element variable: mostly a load, at times arithmetic, a number or an index."""
        shape = goal.shape if self.rng.random() < 0.5 else narrowed(self.rng, goal.shape)
        load = registry.element("load", self._tensor(name, Goal(shape, goal.dtype)))
        kind = self.rng.random()
        if name in self.constants or kind < 0.7 or goal.dtype == "bool":
            return load
        if kind < 0.8:
            return registry.element("neg", load)
        if kind < 0.9 or not goal.shape:
            return registry.element("const", value=random_scalar(self.rng, goal.dtype))
        axis = -int(self.rng.integers(1, len(goal.shape) + 1))
        iota = registry.element("iota", axis=axis, extent=goal.shape[axis], dtype=goal.dtype)
        return registry.element("add", load, iota)
