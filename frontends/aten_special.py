"""Rows of special functions of float32 and halves: computed in double precision, and rounded once.

Before that a value is off by 1.4e-9 of itself, or of `lgamma` and `digamma` by 1e-14, so that in float32 all are within
one unit in the last place, but within two beside roots. For float64 that is not enough: torch computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms

Row = Callable[..., Any]


def _in_double(meaning: Callable[[Term], Term]) -> Row:
    def row(x: Term) -> Term:
        x = idioms.as_float(x)
        if x.dtype == "f64":
            raise UnsupportedOpError("of float64")
        return idioms.cast(meaning(idioms.cast(x, "f64")), x.dtype)

    return row


def _number(value: float) -> Term:
    return idioms.scalar(value, "f64")


def _below_zero(x: Term) -> Term:
    return tensor("lt", x, _number(0))


# ---- the error function ----------------------------------------------------------------------------------------------

_ERFC = (
    *(0.17739250482126137, -1.099090834528056, 2.8124974890005263, -3.7077934361184948, 2.50370987976315),
    *(-0.7401263155249903, 0.18269988797686648, -0.0848618716730281, -0.15307626229064109, -0.08399182610183571),
    *(0.08314453933467769, 0.37500851019978926, 0.9999998595221493, -1.265512123121434),
)
"""A Chebyshev fit of log(erfc(x) / t) + x^2 by t = 2 / (2 + x).

Source: the form is that of Press et al., Numerical Recipes, 2nd ed., 6.2.
"""


def _share_and_exponent(x: Term) -> tuple[Term, Term]:
    """Return t and p with erfc(|x|) = t exp(p - x^2)."""
    share = tensor("div", _number(2), tensor("add", tensor("abs", x), _number(2)))
    return share, idioms.polynomial(share, *_ERFC)


def _erfc(x: Term) -> Term:
    share, exponent = _share_and_exponent(x)
    size = tensor("mul", share, tensor("exp", tensor("sub", exponent, tensor("square", x))))
    return tensor("where", _below_zero(x), tensor("sub", _number(2), size), size)


def _erfcx(x: Term) -> Term:
    """exp(x^2) erfc(x), which is 2 exp(x^2) - exp(x^2) erfc(-x)."""
    share, exponent = _share_and_exponent(x)
    size = tensor("mul", share, tensor("exp", exponent))
    twice = tensor("mul", tensor("exp", tensor("square", x)), _number(2))
    return tensor("where", _below_zero(x), tensor("sub", twice, size), size)


_ERFINV_NEAR = (
    *(-1.4854908961637763e-11, 2.2566185420300354e-11, 1.0762571404759864e-09, -5.9891513759872464e-09),
    *(-2.3487272151417536e-08, 4.5259406471851447e-07, -1.7485502954466425e-06, -1.2722979933734563e-05),
    *(0.0001950619522305496, -0.0008361745723989565, -0.0057381354242041, 0.24163040187247808, 1.6235420064648298),
)
_ERFINV_FAR = (
    *(6.448250116367242e-06, -5.6474723950714746e-05, 0.00019008903450577012, -0.0002683238502433144),
    *(-0.00014866379892267283, 0.0014793454319081813, -0.003557956741509631, 0.005685674488768594),
    *(-0.00764392234892873, 0.009445502525524967, 1.001675280177504, 2.8329767988637715),
)
"""Chebyshev fits of erfinv(x) / x by w - 3, up to w = 6, and by sqrt(w) - 3, with w = -log(1 - x^2).

Source: the form is that of Giles, Approximating the erfinv function, GPU Computing Gems, 2011.
"""


def _erfinv(x: Term) -> Term:
    rest = tensor("mul", tensor("sub", _number(1), x), tensor("add", x, _number(1)))
    w = tensor("neg", tensor("log", rest))
    near = idioms.polynomial(tensor("sub", w, _number(3)), *_ERFINV_NEAR)
    far = idioms.polynomial(tensor("sub", tensor("sqrt", w), _number(3)), *_ERFINV_FAR)
    return tensor("mul", x, tensor("where", tensor("lt", w, _number(6)), near, far))


# ---- the gamma function ----------------------------------------------------------------------------------------------

_SHIFT = 8
"""So far from 0 Stirling's series is good: lgamma(x) = lgamma(x + 8) - log(x (x + 1) ... (x + 7))."""

_LGAMMA = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_DIGAMMA = (-1 / 12, 691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12)
"""Series by 1 / x^2. Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 6.1.41 and 6.3.18."""


def _bounded(size: Term) -> Term:
    """Return a size, but not so much that a product of eight overflows: where that is, it does not count."""
    return tensor("min", size, _number(1e37))


def _turn(size: Term) -> Term:
    """Return pi times the distance from the nearest integer, with a sign."""
    bounded = _bounded(size)
    return tensor("mul", tensor("sub", bounded, tensor("round", bounded)), _number(math.pi))


def _lgamma(x: Term) -> Term:
    """Of x < 0 by reflection, log(pi / (|x| |sin pi x|)) - lgamma(|x|), and infinite at integers."""
    size = tensor("abs", x)
    far, near = tensor("add", size, _number(_SHIFT)), _bounded(size)
    product = near
    for step in range(1, _SHIFT):
        product = tensor("mul", product, tensor("add", near, _number(step)))
    inverse = tensor("reciprocal", far)
    series = tensor("mul", idioms.polynomial(tensor("square", inverse), *_LGAMMA), inverse)
    power = tensor("mul", tensor("sub", far, _number(0.5)), tensor("sub", tensor("log", far), _number(1)))
    rest = tensor("sub", tensor("add", series, _number((math.log(2 * math.pi) - 1) / 2)), tensor("log", product))
    is_root = tensor("or", *(tensor("eq", size, _number(root)) for root in (1, 2)))
    value = tensor("where", is_root, _number(0), tensor("add", power, rest))
    turn = _turn(size)
    sine = tensor("abs", tensor("sin", turn))
    mirrored = tensor("sub", tensor("log", tensor("div", _number(math.pi), tensor("mul", near, sine))), value)
    mirrored = tensor("where", tensor("eq", turn, _number(0)), _number(math.inf), mirrored)
    return tensor("where", _below_zero(x), mirrored, value)


def _digamma(x: Term) -> Term:
    """Of x < 0 by reflection, digamma(|x|) + 1 / |x| + pi / tan(pi |x|), and no number at integers."""
    size = tensor("abs", x)
    far, near = tensor("add", size, _number(_SHIFT)), _bounded(size)
    above, under = _number(1), near  # the sum of 1 / (size + step)
    for step in range(1, _SHIFT):
        other = tensor("add", near, _number(step))
        above, under = tensor("add", tensor("mul", above, other), under), tensor("mul", under, other)
    inverse = tensor("reciprocal", far)
    square = tensor("square", inverse)
    half = tensor("mul", inverse, _number(0.5))
    series = tensor("sub", tensor("mul", idioms.polynomial(square, *_DIGAMMA), square), half)
    value = tensor("sub", tensor("add", tensor("log", far), series), tensor("div", above, under))
    turn = _turn(size)
    slope = tensor("div", tensor("mul", tensor("cos", turn), _number(math.pi)), tensor("sin", turn))
    mirrored = tensor("add", value, tensor("add", tensor("reciprocal", size), slope))
    mirrored = tensor("where", tensor("eq", turn, _number(0)), _number(math.nan), mirrored)
    found = tensor("where", _below_zero(x), mirrored, value)
    return tensor("where", tensor("eq", x, _number(0)), tensor("neg", tensor("reciprocal", x)), found)


_MEANINGS = {"erfc": _erfc, "special_erfcx": _erfcx, "erfinv": _erfinv, "lgamma": _lgamma, "digamma": _digamma}

ROWS: dict[str, Row] = {f"aten.{name}.default": _in_double(meaning) for name, meaning in _MEANINGS.items()}
"""What each overload means."""
