"""Is the compiled program right? Its results beside the model's in float64, and each kernel beside its own body.

A kernel is judged by what it makes of the values that it was in fact given, so that one wrong kernel does not make all
that follow it look wrong. Where all kernels are right and a result is not, the chosen terms differ from the model's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from frittata import cache
from frittata.egraph import dtypes, interpret
from frittata.egraph.errors import VerificationError
from frittata.egraph.interpret import Interpreter
from frittata.egraph.model import Array
from frittata.egraph.ops import registry
from frittata.egraph.program import Join, Kernel, Program, View
from frittata.egraph.shaken import Shaken
from frittata.egraph.terms import Term
from frittata.kernels import runtime, targets
from frittata.kernels.constants import part_of
from frittata.kernels.plan import evaluate_constants
from frittata.pipeline import Compilation
from frittata.tables import table

_TOLERANCE = {"bf16": 2e-2, "f16": 2e-3, "f32": 1e-4, "f64": 1e-10}
"""How far floats may be from float64's, as a share of their size plus the root mean square of the tensor."""
_LOOSE = 10.0
"""How much farther results of rules may be that are looser than a reordered sum."""
_TIMES = 15
"""How often roundings are drawn: one that decides goes the other way about every second time."""


@dataclass(frozen=True)
class Comparison:
    """One tensor beside what it should be: the largest error as a multiple of what is tolerated."""

    name: str
    type: str
    error: float

    @property
    def is_right(self) -> bool:
        """Whether the error is tolerated."""
        return self.error <= 1.0


@dataclass(frozen=True)
class Verification:
    """The results beside the model's; where one is wrong, every kernel beside its body, and the bodies alone.

    The bodies are evaluated in float64 as `terms`, and each operator in its dtype as `rounded`. `own` are the rules of
    one's own that matched, `own_kernels` those that call operators of one's own.
    """

    outputs: tuple[Comparison, ...]
    kernels: tuple[Comparison, ...] = ()
    terms: tuple[Comparison, ...] = ()
    rounded: tuple[Comparison, ...] = ()
    own: tuple[str, ...] = ()
    own_kernels: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        """Whether all results are."""
        return all(one.is_right for one in self.outputs)

    @property
    def culprit(self) -> str:
        """What is wrong: the first wrong kernel, or else the rules, or how kernels are put together."""
        if self.is_right:
            return "nothing"
        if self._wrong_kernel is not None:
            return f"kernel {self._wrong_kernel}"
        if all(one.is_right for one in (*self.terms, *self.rounded)):
            return "how kernels run together"
        rule = "a rule" if not all(one.is_right for one in self.terms) else "a rule, by how it rounds or overflows"
        return f"{rule}; of your own took part: {', '.join(self.own)}" if self.own else rule

    @property
    def _wrong_kernel(self) -> str | None:
        return next((one.name for one in self.kernels if not one.is_right), None)

    def check(self) -> None:
        """Raise VerificationError, which names the culprit, if a result is wrong."""
        if not self.is_right:
            worst = max(self.outputs, key=lambda one: one.error)
            do = "please report it, with the model; disable=[...] leaves a rule or family out"
            if self._wrong_kernel in self.own_kernels:
                do = "its operator is one of your own: see that what it runs and its reference= give the same"
            elif self.own:
                do = f"see whether it is right without them, disable={[*self.own]}; if not, {do}"
            raise VerificationError(
                f"{worst.name} is {worst.error:.3g} times the tolerated error from the model in float64",
                self.culprit,
                do,
            )

    def __str__(self) -> str:
        rows = [("result", *_row(one)) for one in self.outputs]
        rows += [("kernel", *_row(one)) for one in self.kernels]
        rows += [("terms", *_row(one)) for one in self.terms]
        rows += [("rounded", *_row(one)) for one in self.rounded]
        lines = table(("", "name", "error / tolerated", "type"), rows, right=(2,))
        return "\n".join([f"wrong: {self.culprit}", "", *lines])

    __repr__ = __str__


def _row(one: Comparison) -> tuple[str, str, str]:
    return one.name, f"{one.error:.3g}", one.type


def verify(done: Compilation, arrays: Sequence[Array]) -> Verification:
    """Run a program and its model, as transforms left it, on arguments in the order of its inputs."""
    main = done.model.main
    values = {**done.model.params, **{leaf.attrs[0]: array for leaf, array in zip(main.inputs, arrays, strict=True)}}
    names = [f"result {number}" for number in range(len(main.outputs))]
    factor = 1.0 if done.options.numerics in ("exact", "reassoc") else _LOOSE
    law = _Law(main.outputs, values, factor)
    outputs = law.compared(names, _run(done, done.program, arrays))
    if all(one.is_right for one in outputs):
        return Verification(outputs)
    terms = done.program.to_terms()
    meant = interpret.evaluate(terms, values)
    typed = [value.astype(dtypes.to_numpy(leaf.dtype)) for value, leaf in zip(meant, main.outputs, strict=True)]
    rounded = interpret.evaluate(terms, values, "native")
    kernels = tuple(_kernels(done, arrays))
    own = [k.name for k in done.program.kernels if any(registry.is_own(output.body.op) for output in k.outputs)]
    compared = law.compared(names, typed), law.compared(names, rounded)
    return Verification(outputs, kernels, *compared, _own(done), tuple(own))


def _own(done: Compilation) -> tuple[str, ...]:
    """Return the rules of one's own that matched."""
    counts = (pair for phase in done.saturation.phases for pair in phase.statistics.matches_by_rule.items())
    return tuple(dict.fromkeys(rule for rule, count in counts if count and rule.partition("/")[0] in done.own_families))


class _Law:
    """What terms mean, and how far from it a result may be.

    Where the terms jump, at a floor, a comparison, the largest of equal ones, a rounding may decide. So a value may be
    as far away as the terms' own are with roundings of float32, or with some that are drawn; that is looked at only if
    it is wrong without.
    """

    def __init__(self, roots: Sequence[Term], values: Mapping[str, Array], factor: float = 1.0) -> None:
        self.expected = interpret.evaluate(tuple(roots), values)
        self._roots, self._values, self._factor = roots, values, factor
        self._slack = [np.zeros(()) for _ in roots]
        self._others = self._rounded_otherwise()

    def compared(self, names: Sequence[str], got: Sequence[Any]) -> tuple[Comparison, ...]:
        """Compare results with what they should be."""
        found = self._compared(names, got)
        while not all(one.is_right for one in found) and (other := next(self._others, None)) is not None:
            distances = map(_distance, other, self.expected, (root.dtype for root in self._roots))
            self._slack = [np.maximum(*pair) for pair in zip(self._slack, distances, strict=True)]
            found = self._compared(names, got)
        return found

    def _compared(self, names: Sequence[str], got: Sequence[Any]) -> tuple[Comparison, ...]:
        parts = zip(names, got, self.expected, self._slack, strict=True)
        return tuple(_compared(*part, self._factor) for part in parts)

    def _rounded_otherwise(self) -> Iterator[tuple[Array, ...]]:
        ways: tuple[Interpreter, ...] = (
            Interpreter(self._values, "native"),
            *(Shaken(self._values, seed) for seed in range(_TIMES)),
        )
        for interpreter in ways:
            yield tuple(interpreter.tensor(root) for root in self._roots)


def _distance(value: Array, expected: Array, dtype: str) -> Array:
    """Return how far values are apart as what they are stored as: infinitely where one of them is no number."""
    with np.errstate(all="ignore"):
        x, y = (part.astype(dtypes.to_numpy(dtype)).astype(np.float64) for part in (value, expected))
        alike = (x == y) | (np.isnan(x) & np.isnan(y))
        return np.where(alike, 0.0, np.nan_to_num(np.abs(x - y), nan=np.inf, posinf=np.inf))


def _run(done: Compilation, chosen: Program, arrays: Sequence[Array]) -> tuple[Array, ...]:
    if done.options.form == "plain":
        return runtime.run_plain(chosen, done.model.params, arrays)
    if chosen is done.program:
        return done.executable(*arrays)
    kernels = cache.kernels_in(cache.folder_of(done.options.cache))
    return targets.by_name(done.options.target).built(chosen, done.model.params, kernels)(*arrays)


def _kernels(done: Compilation, arrays: Sequence[Array]) -> Iterator[Comparison]:
    """Compare each kernel with what its body makes of the values that it read; bands are run apart."""
    chosen = done.program
    made = [output for kernel in chosen.kernels for output in kernel.outputs]
    apart = replace(chosen, outputs=tuple(output.name for output in made), bands=())
    found = dict(zip(apart.outputs, _run(done, apart, arrays), strict=True))
    value = dict(zip(chosen.inputs, arrays, strict=True))
    value |= evaluate_constants(chosen, done.model.params)
    for step in chosen.steps:
        if isinstance(step, View):
            value[step.name] = part_of(value[step.source], step)
            continue
        bodies = [(step.name, step.body)] if isinstance(step, Join) else [(o.name, o.body) for o in step.outputs]
        law = _Law([body for _, body in bodies], dict(value))
        if isinstance(step, Kernel):
            names = [name for name, _ in bodies]
            yield from law.compared([step.name] * len(names), [found[name] for name in names])
        for (name, body), wanted in zip(bodies, law.expected, strict=True):
            value[name] = found[name] if isinstance(step, Kernel) else wanted.astype(dtypes.to_numpy(body.dtype))


def _compared(name: str, got: Any, expected: Array, slack: Array, factor: float) -> Comparison:
    """Compare a tensor with float64's values: NaN with NaN, infinities with infinities, and as far as they are."""
    got = np.asarray(got)
    dtype = dtypes.from_numpy(got.dtype)
    type_ = f"{dtype}[{', '.join(map(str, got.shape))}]"
    if got.shape != expected.shape:
        return Comparison(name, type_, np.inf)
    if dtype not in _TOLERANCE:
        wrong = (got != expected) & (_distance(got, expected, "f64") > slack)
        return Comparison(name, type_, float(np.count_nonzero(wrong)) and np.inf)
    with np.errstate(all="ignore"):
        wanted = np.where(np.isinf(slack), got, expected.astype(got.dtype)).astype(np.float64)
        is_number = np.isfinite(wanted)
        alike = np.array_equal(got[~is_number], wanted[~is_number], equal_nan=True)
        if not alike or not np.isfinite(got[is_number]).all():
            return Comparison(name, type_, np.inf)
        size = np.sqrt(np.mean(np.square(wanted[is_number]))) if is_number.any() else 0.0
        allowed = factor * _TOLERANCE[dtype] * (np.abs(wanted) + size) + slack + float(dtypes.finfo(dtype).tiny)
        error = np.abs(got.astype(np.float64) - wanted)[is_number] / allowed[is_number]
    return Comparison(name, type_, float(error.max(initial=0.0)))
