"""Random models over all tensor operators, with values on which a change of rounding changes little.

A model is grown from its outputs to its leaves. An operator takes part as soon as its row says which operands fit a
wanted result: see `rules/proposals.py`. It is kept if its value is finite and moderate and if noise on every value
before it does not move it far: what is ill-conditioned, or near a jump, says nothing about a compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import FrittataError
from frittata.egraph.interpret import Interpreter
from frittata.egraph.model import Function, Model
from frittata.egraph.ops import registry
from frittata.egraph.terms import TensorType, Term, walk
from frittata.rules.draws import Dice
from frittata.rules.facts import NotApplicable
from frittata.rules.proposals import Goal, Mismatch, Place, propose

Array = np.ndarray[Any, np.dtype[Any]]

SHAPES = (
    (1,), (7,), (17,), (3, 5), (1, 7), (7, 17), (17, 1), (2, 1, 5), (2, 3, 4), (3, 7, 5), (1, 2, 5, 5), (2, 4, 3, 7),
)  # fmt: skip
MOST_ELEMENTS = 2000
LARGEST = 1e3
NOISE = 1e-5
MOST_AMPLIFIED = 100
"""By how much noise on all values may grow, beside the largest of them."""

_ATTEMPTS = 6


class Sample:
    """A model with its arguments; `scale` is the largest magnitude of its values. Prints itself as script."""

    def __init__(self, model: Model, args: tuple[Array, ...], scale: float) -> None:
        self.model, self.args, self.scale = model, args, scale

    def __repr__(self) -> str:
        return f"Sample of scale {self.scale:.3g}; leaf i has leaf_value(i, ...):\n{self.model}"


def proposal(name: str, goal: Goal, rng: Dice) -> tuple[tuple[Goal, ...], Mapping[str, Any]] | None:
    """Propose operands and attributes with which an operator gives a type, None if this time it does not."""
    op = registry.get(name)
    try:
        goals, attrs = propose(Place(op, goal, {}, (None,) * len(op.operands), rng))
    except (Mismatch, NotApplicable, FrittataError, IndexError):
        return None
    if any(prod(wanted.shape) > MOST_ELEMENTS for wanted in goals):
        return None
    bare = [registry.make("input", "tensor", (), (f"t{i}", g.shape, g.dtype)) for i, g in enumerate(goals)]
    fits = made_of(name, bare, attrs, TensorType(goal.shape, goal.dtype)) is not None
    return (goals, attrs) if fits else None


def made_of(name: str, args: list[Term], attrs: Mapping[str, Any], type_: TensorType) -> Term | None:
    """Apply an operator, None if it does not give the type."""
    try:
        made = registry.make(name, "tensor", tuple(args), tuple(attrs.values()))
    except (NotApplicable, FrittataError, IndexError):
        return None
    return made if made.type == type_ else None


@cache
def operators(dtype: str) -> list[str]:
    """Return the operators on tensors that can give a dtype."""
    rng = Dice((0,))
    names = [name for name in registry.names("tensor") if registry.get(name).operands and name not in ("build", "part")]
    goals = [Goal(shape, dtype) for shape in SHAPES * 4]
    return [name for name in names if any(proposal(name, goal, rng) for goal in goals)]


class _Noisy(Interpreter):
    """Adds noise to every value, relative to its largest magnitude."""

    def __init__(self, given: Mapping[str, Array], seed: int) -> None:
        super().__init__(given, checked=True)
        self._rng = np.random.default_rng(seed)

    def _compute(self, term: Term) -> Array:
        value = super()._compute(term)
        if not dtypes.is_float(term.dtype):
            return value
        return value + NOISE * np.abs(value).max(initial=0.0) * self._rng.uniform(-1, 1, value.shape)


@dataclass
class _Grower:
    """Grows terms by hypothesis's choices, with a value for each; all floats have the dtype `floats`."""

    draw: st.DrawFn
    floats: str
    values: dict[str, Array] = field(default_factory=dict[str, Array])
    grown: dict[TensorType, list[Term]] = field(default_factory=dict[TensorType, list[Term]])
    scale: float = 1.0

    def __post_init__(self) -> None:
        self.exact = Interpreter(self.values, checked=True)
        self.noisy = [_Noisy(self.values, seed) for seed in range(2)]

    def term(self, goal: Goal, budget: int) -> Term:
        """Return a term of a type with up to so many operators."""
        type_ = TensorType(goal.shape, goal.dtype)
        known = self.grown.get(type_, [])
        if known and self.draw(st.integers(0, 3)) == 3:
            return known[self.draw(st.integers(0, len(known) - 1))]
        for _ in range(_ATTEMPTS if budget > 0 else 0):
            found = self._operator(goal, type_, budget)
            if found is not None:
                self.grown.setdefault(type_, []).append(found)
                return found
        return self._leaf(type_)

    def _operator(self, goal: Goal, type_: TensorType, budget: int) -> Term | None:
        names = operators(goal.dtype)
        rng = Dice((self.draw(st.integers(0, 2**16)),))  # hypothesis itself would repeat few operators
        name = names[rng.integers(len(names))]
        proposed = proposal(name, goal, rng)
        if proposed is None:
            return None
        goals, attrs = proposed
        if any(dtypes.is_float(wanted.dtype) and wanted.dtype != self.floats for wanted in goals):
            return None  # a float32 constant under a float64 result is a rounding that the law does not make
        rest = budget - 1
        args: list[Term] = []
        for i, wanted in enumerate(goals):
            share = rest if i == len(goals) - 1 else self.draw(st.integers(0, rest))
            args.append(self.term(wanted, share))
            rest -= share
        made = made_of(name, args, attrs, type_)
        return made if made is not None and self._is_tame(made) else None

    def _is_tame(self, term: Term) -> bool:
        try:
            exact = self.exact.tensor(term)
            others = [noisy.tensor(term) for noisy in self.noisy]
        except (FrittataError, IndexError):
            return False
        if not dtypes.is_float(term.dtype):
            return all(np.array_equal(exact, other) for other in others)
        largest = np.abs(exact).max(initial=0.0)
        if not largest <= LARGEST:
            return False
        scale = max(self.scale, largest)
        tame = all(np.abs(exact - other).max(initial=0.0) <= NOISE * MOST_AMPLIFIED * scale for other in others)
        if tame:
            self.scale = float(scale)
        return tame

    def _leaf(self, type_: TensorType) -> Term:
        kind = self.draw(st.sampled_from(["input", "param"]))
        name = f"{kind[0]}{len(self.values)}"
        self.values[name] = leaf_value(len(self.values), shapes.concrete(type_.shape), type_.dtype)
        leaf = registry.make(kind, "tensor", (), (name, type_.shape, type_.dtype))
        self.grown.setdefault(type_, []).append(leaf)
        return leaf


def leaf_value(number: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Draw what is neither small nor large, at times positive; integers are 0, 1 or 2, so that they can be indices."""
    rng = np.random.default_rng(number)
    if not dtypes.is_float(dtype):
        return rng.integers(0, 2 if dtype == "bool" else 3, shape).astype(dtypes.to_numpy(dtype))
    signs = rng.choice([-1, 1], shape) if number % 2 else 1
    return (rng.uniform(0.3, 1.7, shape) * signs).astype(np.float32).astype(dtypes.to_numpy(dtype))


@st.composite
def models(draw: st.DrawFn, most_operators: int = 30, dtype: str = "f32") -> Sample:
    """Draw a model of one or two outputs."""
    grower = _Grower(draw, dtype)
    budget = draw(st.integers(1, most_operators))
    outputs = [grower.term(Goal(draw(st.sampled_from(SHAPES)), dtype), budget)]
    if draw(st.booleans()):
        other = draw(st.sampled_from([dtype, dtype, "bool", "i64"]))
        outputs.append(grower.term(Goal(draw(st.sampled_from(SHAPES)), other), budget // 4))
    leaves = list(walk(*outputs))
    params = {t.attrs[0]: grower.values[t.attrs[0]] for t in leaves if t.op == "param"}
    inputs = tuple(term for term in leaves if term.op == "input")
    model = Model({"main": Function(inputs, tuple(outputs))}, params)
    return Sample(model, tuple(grower.values[t.attrs[0]] for t in inputs), grower.scale)
