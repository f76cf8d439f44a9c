"""The soundness gate: evaluate both sides of a rule on random instances, and show where they differ.

Instances vary ranks, shapes (often with extents 1), dtypes, attributes and values. Elements are evaluated at random
indices, in range and out of range. Values are moderate ones, some at and beside the numbers that the rule mentions,
halves and large ones, and integers of all sizes. What "equal" means is the rule's numerics level: see `Level`.

- exact: bit for bit, up to the payload of NaN, in the rule's own dtypes, with zeros of both signs, infinities, NaN, and
  numbers near the least and the largest among the inputs. Where a side contains a fold, whose order is its own affair,
  bit for bit on inputs whose sums and products are exact in any order, and within rounding on others; where the fold is
  of extremes, whatever the signs of zeros.
- reassoc, approx: in float64 within a tolerance of the largest value, wherever the left side is finite, and integers
  bit for bit; where a NaN put into the inputs reaches the left side it must reach the right side; where the left side
  is finite in float32 on numbers up to 150, the right side must be. A rounding to a half must stay (reassoc).
- loose: the same, but a NaN may reach more of the right side than of the left.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from frittata.egraph import dtypes, shapes, terms
from frittata.egraph.errors import ModelError, RuleError
from frittata.egraph.interpret import Interpreter, Precision
from frittata.egraph.terms import Scalar, TensorType, Term
from frittata.rules.draws import DIMS, MOST_RANK, MOST_SIZE, Dice
from frittata.rules.facts import NotApplicable
from frittata.rules.matching import results
from frittata.rules.pattern import Family, Rule, numbers_in, sizes_in
from frittata.rules.sampling import Instance, draw_instances, obstacle
from frittata.rules.values import MOST_EDGE, draw_edges, draw_values, with_nans

LEAST_INSTANCES = 50
MOST_SKIPPED = 200
ATTEMPTS = 160_000
FEW_ATTEMPTS = 3000
THOROUGH = 300
"""How many instances of a user's rule are tried, if they are found in so few attempts."""

POINTS = 32
FOLDING = {
    "fold", "dot", "window_dot", "winograd_dot", "matmul", "linear", "conv", "conv_last", "conv_winograd",
    "reduce_sum", "reduce_prod", "softmax", "layer_norm",
    "attend", "attention", "masked_attention", "causal_attention", "scan", "cumsum",
    "cumprod", "group_norm", "rms_norm", "avg_pool",
    "conv_transpose",
}  # fmt: skip

EXTREMES = {"max_pool", "reduce_max", "reduce_min", "cummax", "cummin"}

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
    """What never has a value: a part of the guard, an attribute on the right, the left side."""

    @property
    def failure(self) -> str:
        """Why the rule is refused, empty if it is sound as far as seen."""
        if self.counterexample:
            return str(self.counterexample)
        if self.instances < LEAST_INSTANCES:
            few = f"only {self.instances} instances satisfy the guard, {LEAST_INSTANCES} are needed"
            return f"{self.rule.full_name}: {few}{self.obstacle and f'; {self.obstacle}'}"
        return ""


def check(family: Family, seed: int = 0, attempts: int = ATTEMPTS) -> tuple[AuditResult, ...]:
    """Audit the equations of a family.

    Raises: RuleError that shows a counterexample for each unsound rule.
    """
    equations = (rule for rule in family.rules if rule.kind == "equation")
    found = tuple(audit(rule, seed, attempts=attempts, most=THOROUGH) for rule in equations)
    wrong = [one for one in found if one.failure]
    if wrong:
        where = ", ".join(str(one.rule.location) for one in wrong)
        do = "correct the rule, lower its level, or guard it; a rule that is to change the meaning is written ~>"
        if not any(one.counterexample for one in wrong):
            do = f"loosen the guard: extents are drawn up to {max(DIMS)} and as its integers up to {MOST_SIZE} are, "
            do += f"ranks up to {MOST_RANK}, constants from halves up to 10, powers of two up to 65536, "
            do += "and at and beside the numbers of the rule"
            if all("the left side" in one.obstacle for one in wrong):
                do = "correct the left side, or the rows of its operators"
        raise RuleError("\n".join(one.failure for one in wrong), where, do)
    return found


def audit(rule: Rule, seed: int = 0, instances: int = 60, attempts: int = ATTEMPTS, most: int = 0) -> AuditResult:
    """Try an equation on random instances of its left side, up to the first counterexample.

    Beyond `instances` up to `most` are tried, if few attempts were needed.
    """
    said = "".join(rule.location.text.partition(":")[2].split())  # whatever its name is
    rng = Dice((seed, zlib.crc32(said.encode())), sizes_in(rule), numbers_in(rule))
    tried = skipped = 0
    reason = ""
    for attempt, instance in draw_instances(rule, rng, attempts):
        try:
            found = _try(rule, instance, rng)
        except NotApplicable as error:
            reason = str(error)
            skipped += 1
            if skipped == MOST_SKIPPED and tried < instances:
                break
            continue
        tried += 1
        if found is not None or (tried >= instances and (tried >= most or attempt >= FEW_ATTEMPTS)):
            return AuditResult(rule, tried, skipped, found)
    hindered = reason if skipped > tried else "" if tried else obstacle(rule, rng)
    return AuditResult(rule, tried, skipped, None, hindered)


def _try(rule: Rule, instance: Instance, rng: Dice) -> Counterexample | None:
    try:
        right_by_name = results(rule.right, instance.bindings)
    except (ModelError, ArithmeticError, LookupError, TypeError, ValueError) as error:  # from type rules as well
        left = instance.bindings.term_by_name[rule.left[0].name]
        return Counterexample(rule, _text(left), f"ill-typed: {_reason(error)}", {})
    for name, right in right_by_name.items():
        left = instance.bindings.term_by_name[name]
        found = _compare(rule, instance, left, right, rng)
        if found is not None:
            return found
    return None


def _compare(
    rule: Rule, instance: Instance, left: Term, right: Term, rng: Dice
) -> Counterexample | None:
    sides = Counterexample(rule, _text(left), _text(right), {})
    if left.dtype != right.dtype or (isinstance(left.type, TensorType) and left.type != right.type):
        return replace(sides, right=f"{sides.right} of type {right.type} in place of {left.type}")
    at = _points(left, right, rng)
    signs = not any(_is_extreme(term) for term in terms.walk(left, right))
    for draw in _draws(rule, instance, left, right, rng):
        try:
            a = _evaluate(left, draw, at)
        except Exception as error:  # a row's reference may be the caller's code
            raise NotApplicable(f"the left side {sides.left} has no value: {error}") from error
        try:
            b = _evaluate(right, draw, at)
        except Exception as error:
            return replace(sides, right=f"{sides.right} has no value: {error}", inputs=draw.values)
        wrong = _differs(a, b, draw, signs)
        if 2 * wrong.sum() > wrong.size if draw.mostly else wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            shown = place if at is None else tuple(int(at[axis][place]) for axis in sorted(at))
            return replace(sides, inputs=draw.values, place=shown, left_value=a[place], right_value=b[place])
    return None


@dataclass(frozen=True)
class _Draw:
    """Values for the leaves, and how closely the sides must agree on them: with tolerance 0 bit for bit.

    With an infinite tolerance all that matters is what is finite.
    `finite_only`: only where the left side is finite. `nan_stays`: and where the left side is NaN the right must be.
    `nan_spreads`: where the right side is NaN the left need not be. `mostly`: rounding may differ at a few places.
    What is larger than `largest` counts as infinite.
    """

    values: Mapping[str, Array]
    precision: Precision | Literal["halves"]
    tolerance: float
    finite_only: bool = False
    nan_stays: bool = False
    nan_spreads: bool = False
    mostly: bool = False
    largest: float = np.inf


def _draws(rule: Rule, instance: Instance, left: Term, right: Term, rng: Dice) -> Iterator[_Draw]:
    leaves, every = instance.leaves, list(terms.walk(left, right))
    given, made = ({term.dtype for term in terms.walk(side)} for side in (left, right))
    single = "f32" in given or ("f32" in made and "f64" not in given)
    numbers = sorted(numbers_in(rule) | _numbers(every))
    if rule.level.kind == "exact":
        folds = any(term.op in FOLDING for term in every)
        loose = (1e-5 if single else 1e-12) if folds else 0.0
        yield _Draw(draw_values(leaves, rng, "dyadic"), "native", 0.0)
        yield _Draw(draw_values(leaves, rng, "plain"), "native", loose)
        yield _Draw(draw_values(leaves, rng, "special"), "native", loose)
        yield _Draw(draw_edges(leaves, rng, numbers, large=True), "native", loose)
        if not folds:
            yield _Draw(draw_values(leaves, rng, "wide"), "native", 0.0)
        return
    tolerance = rule.level.tolerance if rule.level.kind == "approx" else 1e-5 if single else 1e-9
    largest = float(dtypes.finfo(left.dtype).max) if dtypes.is_float(left.dtype) else np.inf
    plain = draw_values(leaves, rng, "plain")
    yield _Draw(plain, "f64", tolerance, finite_only=True, largest=largest)
    for large in (False, True):
        edges = draw_edges(leaves, rng, numbers, large)
        yield _Draw(edges, "f64", tolerance, finite_only=True, largest=largest)
    holes = _Draw(with_nans(plain, rng), "f64", tolerance, finite_only=True, nan_stays=True, largest=largest)
    yield replace(holes, nan_spreads=rule.level.kind == "loose")
    if rule.level.kind == "reassoc" and "f64" in given and "f32" in made - given:
        yield _Draw(plain, "native", tolerance, finite_only=True)
    if single:
        moderate = [number for number in numbers if abs(number) < MOST_EDGE]
        yield _Draw(draw_edges(leaves, rng, moderate, large=True), "native", np.inf, finite_only=True)
    if rule.level.kind == "reassoc" and any(term.op == "cast" and dtypes.is_half(term.dtype) for term in every):
        yield _Draw(plain, "halves", tolerance, finite_only=True, mostly=True)


def _numbers(every: list[Term]) -> set[float]:
    """Return the constants of terms, not small, those that functions of attributes have computed among them."""
    constants = {float(attr.value) for term in every for attr in term.attrs if isinstance(attr, Scalar)}
    return {number for number in constants if 1 <= abs(number) < np.inf}


class _Halves(Interpreter):
    """Computes in float64, and rounds what has a narrow dtype."""

    def _rounded(self, value: Any, dtype: str) -> Array:
        exact = super()._rounded(value, dtype)
        return exact.astype(dtypes.to_numpy(dtype)).astype(np.float64) if dtypes.is_half(dtype) else exact


def _points(left: Term, right: Term, rng: np.random.Generator) -> dict[int, Array] | None:
    """Draw indices for elements, in range and out of range; None for tensors."""
    if left.sort == "tensor":
        return None
    shapes_ = [shapes.concrete(side.shape) for side in (left, right)]
    rank = max(map(len, shapes_)) + 1
    extents = {axis: max(shapes.concrete((shapes.dim_at(s, axis),))[0] for s in shapes_) for axis in range(-rank, 0)}
    return {axis: rng.integers(-2, extent + 3, POINTS) for axis, extent in extents.items()}


def _evaluate(side: Term, draw: _Draw, at: dict[int, Array] | None) -> Array:
    values = draw.values
    interpreter = _Halves(values) if draw.precision == "halves" else Interpreter(values, draw.precision)
    if at is None:
        return interpreter.tensor(side)
    return np.broadcast_to(interpreter.element_at(side, at), (POINTS,))


def _is_extreme(term: Term) -> bool:
    """Whether a term is the largest or least of several: of zeros of both signs, numpy gives any."""
    return term.op in EXTREMES or (term.op in ("fold", "scan") and term.attrs[0] in ("max", "min"))


def _differs(left: Array, right: Array, draw: _Draw, signs: bool) -> Array:
    """Tell at each place whether the sides disagree; `signs`: those of zeros too, where it is bit for bit."""
    if not dtypes.holds_floats(left) or not dtypes.holds_floats(right):
        return np.asarray(left != right) & (draw.tolerance < np.inf)
    both_nan = np.isnan(left) & np.isnan(right)
    if draw.tolerance == 0:
        return ~both_nan & ((left != right) | (signs & (np.signbit(left) != np.signbit(right))))
    finite = np.isfinite(left) & (np.abs(left) <= draw.largest)
    scale = max([1.0, *(float(np.abs(v[np.isfinite(v)]).max(initial=0)) for v in (left, right))])
    with np.errstate(all="ignore"):
        near = np.isfinite(right) & (np.abs(left - right) <= draw.tolerance * scale)
    wrong = finite & ~near & ~(draw.nan_spreads & np.isnan(right))
    if draw.nan_stays:
        return wrong | (np.isnan(left) & ~np.isnan(right))
    return wrong if draw.finite_only else wrong | (~finite & ~both_nan & (left != right))


def _reason(error: Exception) -> str:
    """Write an error in one line."""
    if not isinstance(error, ModelError):
        return str(error)
    return f"{error.where and error.where + ': '}{error.what}{error.do and f' ({error.do})'}"


def _text(term: Term) -> str:
    """Print a term with leaves by name: `add(load(x), 1)`."""
    if term.op in ("input", "param"):
        return term.attrs[0]
    return f"{term.op}({', '.join([*map(_text, term.args), *map(str, term.attrs)])})"
