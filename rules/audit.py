"""The soundness gate: evaluate both sides of a rule on random instances, and show where they differ.

Instances vary ranks, shapes (often with extents 1), dtypes, attributes and values. Elements are evaluated at random
indices, in range and out of range. Values are moderate ones, and some at and beside the numbers that the rule mentions,
halves and large ones. What "equal" means is the rule's numerics level: see `Level`.

- exact: bit for bit, up to the payload of NaN, in the rule's own dtypes, with zeros of both signs, infinities and NaN
  among the inputs. Where a side contains a fold, whose order is its own affair, bit for bit on inputs whose sums and
  products are exact in any order, and within rounding on others.
- reassoc, approx: in float64 within a tolerance of the largest value, wherever the left side is finite; and where a
  NaN put into the inputs reaches the left side it must reach the right side.
- loose: the same, but a NaN may reach more of the right side than of the left.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from frittata.egraph import dtypes, shapes, terms
from frittata.egraph.errors import ModelError, RuleError
from frittata.egraph.interpret import Interpreter, Precision
from frittata.egraph.terms import TensorType, Term
from frittata.rules.draws import DIMS, MOST_RANK, MOST_SIZE, Dice
from frittata.rules.facts import NotApplicable
from frittata.rules.matching import results
from frittata.rules.pattern import Family, Rule, numbers_in, sizes_in
from frittata.rules.sampling import Instance, draw_edges, draw_instances, draw_values, obstacle, with_nans

LEAST_INSTANCES = 50
MOST_SKIPPED = 200
POINTS = 32
FOLDING = {
    "fold", "dot", "window_dot", "winograd_dot", "matmul", "linear", "conv", "conv_last", "conv_winograd",
    "reduce_sum", "reduce_prod", "softmax", "layer_norm",
    "attend", "attention", "masked_attention", "causal_attention", "scan", "cumsum",
    "cumprod", "group_norm", "rms_norm", "avg_pool",
    "conv_transpose",
}  # fmt: skip

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Counterexample:
    """An instance on which the two sides differ: at `place`, an index of the result; None if the right is ill-typed."""

    rule: Rule
    left: str
    right: str
    inputs: Mapping[str, Array]
    place: tuple[int, ...] | None = None
    left_value: Any = None
    right_value: Any = None

    def __str__(self) -> str:
        lines = [f"{self.rule.full_name} [{self.rule.level.kind}] is wrong", f"  left:  {self.left}"]
        lines.append(f"  right: {self.right}")
        with np.printoptions(threshold=24, precision=6):
            for name, value in self.inputs.items():
                shown = str(value) if value.size <= 24 else f"{value.reshape(-1)} in row-major order"
                shown = shown.replace("\n", "\n    " + " " * len(name))
                lines.append(f"  {name}: {value.dtype}{list(value.shape)} {shown}")
        if self.place is not None:
            lines.append(f"  at {self.place}: left {self.left_value!r}, right {self.right_value!r}")
        return "\n".join(lines)


@dataclass(frozen=True)
class AuditResult:
    """What an audit found: how many instances were tried, how many the right side had nothing to say about."""

    rule: Rule
    instances: int
    skipped: int
    counterexample: Counterexample | None
    obstacle: str = ""
    """What in the guard never has a value."""

    @property
    def failure(self) -> str:
        """Why the rule is refused, empty if it is sound as far as seen."""
        if self.counterexample:
            return str(self.counterexample)
        if self.instances < LEAST_INSTANCES:
            few = f"only {self.instances} instances satisfy the guard, {LEAST_INSTANCES} are needed"
            return f"{self.rule.full_name}: {few}{self.obstacle and f'; {self.obstacle}'}"
        return ""


def check(family: Family, seed: int = 0) -> tuple[AuditResult, ...]:
    """Audit the equations of a family.

    Raises: RuleError that shows a counterexample for each unsound rule.
    """
    found = tuple(audit(rule, seed) for rule in family.rules if rule.kind == "equation")
    wrong = [one for one in found if one.failure]
    if wrong:
        where = ", ".join(str(one.rule.location) for one in wrong)
        do = "correct the rule, lower its level, or guard it"
        if not any(one.counterexample for one in wrong):
            sizes = f"up to {max(DIMS)} and as its integers up to {MOST_SIZE} are"
            do = f"loosen the guard: extents are drawn {sizes}, ranks up to {MOST_RANK}"
        raise RuleError("\n".join(one.failure for one in wrong), where, do)
    return found


def audit(rule: Rule, seed: int = 0, instances: int = 60, attempts: int = 160_000) -> AuditResult:
    """Try an equation on random instances of its left side, up to the first counterexample."""
    rng = Dice((seed, zlib.crc32(rule.full_name.encode())), sizes_in(rule))
    tried = skipped = 0
    for instance in draw_instances(rule, rng, attempts):
        try:
            found = _try(rule, instance, rng)
        except NotApplicable:
            skipped += 1
            if skipped == MOST_SKIPPED:
                break
            continue
        tried += 1
        if found is not None or tried == instances:
            return AuditResult(rule, tried, skipped, found)
    return AuditResult(rule, tried, skipped, None, "" if tried else obstacle(rule, rng))


def _try(rule: Rule, instance: Instance, rng: np.random.Generator) -> Counterexample | None:
    try:
        right_by_name = results(rule.right, instance.bindings)
    except (ModelError, ArithmeticError, LookupError, TypeError, ValueError) as error:  # from type rules as well
        left = instance.bindings.term_by_name[rule.left[0].name]
        return Counterexample(rule, _text(left), f"ill-typed: {error}", {})
    for name, right in right_by_name.items():
        left = instance.bindings.term_by_name[name]
        found = _compare(rule, instance, left, right, rng)
        if found is not None:
            return found
    return None


def _compare(
    rule: Rule, instance: Instance, left: Term, right: Term, rng: np.random.Generator
) -> Counterexample | None:
    sides = Counterexample(rule, _text(left), _text(right), {})
    if left.dtype != right.dtype or (isinstance(left.type, TensorType) and left.type != right.type):
        return replace(sides, right=f"{sides.right} of type {right.type} in place of {left.type}")
    at = _points(left, right, rng)
    for draw in _draws(rule, instance, left, right, rng):
        try:
            a = _evaluate(left, draw.values, draw.precision, at)
        except Exception as error:  # a row's reference may be the caller's code
            what = f"the left side of {rule.full_name}, {sides.left}, has no value: {error}"
            raise RuleError(what, str(rule.location), "correct it, or the rows of its operators") from error
        try:
            b = _evaluate(right, draw.values, draw.precision, at)
        except Exception as error:
            return replace(sides, right=f"{sides.right} has no value: {error}", inputs=draw.values)
        wrong = _differs(a, b, draw)
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            shown = place if at is None else tuple(int(at[axis][place]) for axis in sorted(at))
            return replace(sides, inputs=draw.values, place=shown, left_value=a[place], right_value=b[place])
    return None


@dataclass(frozen=True)
class _Draw:
    """Values for the leaves, and how closely the sides must agree on them: with tolerance 0 bit for bit.

    `finite_only`: only where the left side is finite. `nan_stays`: and where the left side is NaN the right must be.
    `nan_spreads`: where the right side is NaN the left need not be.
    """

    values: Mapping[str, Array]
    precision: Precision
    tolerance: float
    finite_only: bool = False
    nan_stays: bool = False
    nan_spreads: bool = False


def _draws(rule: Rule, instance: Instance, left: Term, right: Term, rng: np.random.Generator) -> Iterator[_Draw]:
    single = any(term.dtype == "f32" for term in terms.walk(left, right))
    if rule.level.kind == "exact":
        folds = any(term.op in FOLDING for term in terms.walk(left, right))
        loose = (1e-5 if single else 1e-12) if folds else 0.0
        yield _Draw(draw_values(instance.leaves, rng, "dyadic"), "native", 0.0)
        yield _Draw(draw_values(instance.leaves, rng, "plain"), "native", loose)
        yield _Draw(draw_values(instance.leaves, rng, "special"), "native", loose)
        yield _Draw(draw_edges(instance.leaves, rng, numbers_in(rule), large=True), "native", loose)
        return
    tolerance = rule.level.tolerance if rule.level.kind == "approx" else 1e-5 if single else 1e-9
    plain = draw_values(instance.leaves, rng, "plain")
    yield _Draw(plain, "f64", tolerance, finite_only=True)
    spreads = rule.level.kind == "loose"
    for large in (False, True):
        edges = draw_edges(instance.leaves, rng, numbers_in(rule), large)
        yield _Draw(edges, "f64", tolerance, finite_only=True)
    yield _Draw(with_nans(plain, rng), "f64", tolerance, finite_only=True, nan_stays=True, nan_spreads=spreads)


def _points(left: Term, right: Term, rng: np.random.Generator) -> dict[int, Array] | None:
    """Draw indices for elements, in range and out of range; None for tensors."""
    if left.sort == "tensor":
        return None
    shapes_ = [shapes.concrete(side.shape) for side in (left, right)]
    rank = max(map(len, shapes_)) + 1
    extents = {axis: max(shapes.concrete((shapes.dim_at(s, axis),))[0] for s in shapes_) for axis in range(-rank, 0)}
    return {axis: rng.integers(-2, extent + 3, POINTS) for axis, extent in extents.items()}


def _evaluate(side: Term, values: Mapping[str, Array], precision: Precision, at: dict[int, Array] | None) -> Array:
    interpreter = Interpreter(values, precision)
    if at is None:
        return interpreter.tensor(side)
    return np.broadcast_to(interpreter.element_at(side, at), (POINTS,))


def _differs(left: Array, right: Array, draw: _Draw) -> Array:
    """Tell at each place whether the sides disagree."""
    if not dtypes.holds_floats(left) or not dtypes.holds_floats(right):
        return np.asarray(left != right)
    both_nan = np.isnan(left) & np.isnan(right)
    if draw.tolerance == 0:
        return ~both_nan & ((left != right) | (np.signbit(left) != np.signbit(right)))
    finite = np.isfinite(left)
    scale = max([1.0, *(float(np.abs(v[np.isfinite(v)]).max(initial=0)) for v in (left, right))])
    with np.errstate(all="ignore"):
        near = np.abs(left - right) <= draw.tolerance * scale
    wrong = finite & ~near & ~(draw.nan_spreads & np.isnan(right))
    if draw.nan_stays:
        return wrong | (np.isnan(left) & ~np.isnan(right))
    return wrong if draw.finite_only else wrong | (~finite & ~both_nan & (left != right))


def _text(term: Term) -> str:
    """Print a term with leaves by name: `add(load(x), 1)`."""
    if term.op in ("input", "param"):
        return term.attrs[0]
    return f"{term.op}({', '.join([*map(_text, term.args), *map(str, term.attrs)])})"
