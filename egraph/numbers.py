"""Numbers as the model says, before rules see them: rules hold over the reals, and a dtype ends somewhere.

    2.5 * 3e38      ->  inf                       as the model computes it, whatever else it is multiplied by
    x + full(2, s)  ->  x + full(2, ())           spread over s after it: numbers meet where what is rounded is seen
    x / 1e-40       ->  x * 2**64 / 1.8446e-21    bit for bit: the reciprocal of the first divisor is infinite
"""

from __future__ import annotations

import numpy as np

from frittata.egraph import dtypes
from frittata.egraph.interpret import evaluate
from frittata.egraph.model import Model
from frittata.egraph.ops import registry
from frittata.egraph.terms import Scalar, Term

_MOVES = frozenset({"expand", "reshape", "permute", "slice"})


def settled(model: Model) -> Model:
    """Return a model that computes the same, with what it computes of numbers alone as numbers."""

    def new_term(term: Term, args: tuple[Term, ...]) -> Term:
        if term.op in _MOVES and args[0].op == "full":
            return _full(args[0].attrs[0], term)
        if not args or term.sort != "tensor" or registry.is_own(term.op) or not registry.get(term.op).pointwise:
            return term if args == term.args else registry.make(term.op, term.sort, args, term.attrs)
        if all(arg.op == "full" for arg in args):
            return _full(_value(term, args), term)
        plain = tuple(_full(arg.attrs[0]) if arg.op == "full" else arg for arg in args)
        made = registry.make(term.op, term.sort, plain, term.attrs)
        made = _scaled(made) if made.op == "div" and made.args[1].op == "full" else made
        return made if made.type == term.type else registry.tensor("expand", made, shape=term.shape)

    return model.rewritten(new_term)


def _full(value: Scalar, like: Term | None = None) -> Term:
    return registry.tensor("full", value=value, shape=like.shape if like else ())


def _value(term: Term, numbers: tuple[Term, ...]) -> Scalar:
    """Return what an operator makes of numbers, rounded to its dtype."""
    plain = registry.make(term.op, term.sort, tuple(_full(number.attrs[0]) for number in numbers), term.attrs)
    (found,) = evaluate((plain,), {}, "rounded")
    return Scalar.of(np.nan if found != found else found, term.dtype)


def _scaled(quotient: Term) -> Term:
    """Return a quotient whose divisor has a finite reciprocal: a denormal one is scaled, and what it divides, too.

    Where that is too large to be scaled, the quotient is infinite.
    """
    x, divisor = quotient.args
    number = divisor.attrs[0]
    if not dtypes.is_float(quotient.dtype) or not 0 < abs(number.value) < dtypes.finfo(quotient.dtype).tiny:
        return quotient
    scale = 2.0 ** {"f32": 64, "f64": 512}[quotient.dtype]
    larger = registry.tensor("mul", x, _full(Scalar.of(scale, quotient.dtype)))
    return registry.tensor("div", larger, _full(Scalar.of(number.value * scale, quotient.dtype)))
