"""Rows of special functions of float32 and halves: computed in double precision, and rounded once.

Before that a value is off by 5e-9 of itself at the most, or of the gamma functions by 1e-13, so that in float32 all are
within one unit in the last place, but within two beside roots. For float64 that is not enough: torch computes it.
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
    *(734169.6629382969, -1108732.0818792337, -118294.222733467, 126175.85272554278, 12158.757110939026),
    *(-5987.61259140432, -913.1689671215387, 116.35657234307374, 37.408575474586485, 5.492461399147638),
    *(-0.5721208331374481, 0.5670231849340657, 0.0806326998419692, -0.19818902407671038, 0.9599459488302444),
)
"""Chebyshev fits by w = -log(1 - x^2): of erfinv(x) / x by w - 3, up to w = 6; of erfinv(x) / (x sqrt(w)) by
1 / sqrt(w) - 1 / 4, up to w = 106, which is that of the least number of float32.

Source: the first form is that of Giles, Approximating the erfinv function, GPU Computing Gems, 2011.
"""


def _erfinv_beside(x: Term, rest: Term) -> Term:
    """Return erfinv(x), given 1 - x^2."""
    w = tensor("neg", tensor("log", rest))
    near = idioms.polynomial(tensor("sub", w, _number(3)), *_ERFINV_NEAR)
    root = tensor("sqrt", w)
    share = idioms.polynomial(tensor("sub", tensor("reciprocal", root), _number(0.25)), *_ERFINV_FAR)
    return tensor("mul", x, tensor("where", tensor("lt", w, _number(6)), near, tensor("mul", share, root)))


def _erfinv(x: Term) -> Term:
    return _erfinv_beside(x, tensor("mul", tensor("sub", _number(1), x), tensor("add", x, _number(1))))


# ---- the normal distribution -----------------------------------------------------------------------------------------


def _over_root_of_two(x: Term) -> Term:
    return tensor("mul", x, _number(math.sqrt(0.5)))


def _halved(x: Term) -> Term:
    return tensor("mul", x, _number(0.5))


def _ndtr(x: Term) -> Term:
    """erfc(-x / sqrt 2) / 2; of float64 (1 + erf(x / sqrt 2)) / 2, as in torch."""
    if idioms.as_float(x).dtype == "f64":
        return _halved(tensor("add", tensor("erf", _over_root_of_two(x)), _number(1)))
    return _in_double(lambda x: _halved(_erfc(tensor("neg", _over_root_of_two(x)))))(x)


def _log_ndtr(x: Term) -> Term:
    """log(1 - erfc(x / sqrt 2) / 2), or log(erfcx(-x / sqrt 2) / 2) - x^2 / 2 far below."""
    scaled = _over_root_of_two(x)
    above = tensor("log1p", tensor("neg", _halved(_erfc(scaled))))
    below = tensor("sub", tensor("log", _halved(_erfcx(tensor("neg", scaled)))), tensor("square", scaled))
    return tensor("where", tensor("lt", x, _number(-1)), below, above)


def _ndtri(p: Term) -> Term:
    """sqrt(2) erfinv(x) with x = 2 p - 1, of which 1 - x^2 is 4 p (1 - p)."""
    rest = tensor("mul", tensor("mul", p, _number(4)), tensor("sub", _number(1), p))
    x = tensor("sub", tensor("mul", p, _number(2)), _number(1))
    return tensor("mul", _erfinv_beside(x, rest), _number(math.sqrt(2)))


# ---- modified Bessel functions ---------------------------------------------------------------------------------------

_BESSEL_FAR = 10
"""From here on the asymptotic series is as good as the power series before."""


def _bessel(order: int, is_scaled: bool) -> Callable[[Term], Term]:
    """Return the modified Bessel function of the first kind of order 0 or 1, times exp(-|x|) if it is scaled.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 9.6.10 and 9.7.1.
    """
    powers = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(19)]
    series = [1.0]
    for k in range(1, 13):
        series.append(series[-1] * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k))

    def meaning(x: Term) -> Term:
        size = tensor("abs", x)
        half = _halved(size)
        near = idioms.polynomial(tensor("square", half), *powers[::-1])
        near = tensor("mul", near, half) if order else near
        inverse = tensor("reciprocal", size)
        wave = tensor("sqrt", tensor("mul", inverse, _number(1 / (2 * math.pi))))
        far = tensor("mul", idioms.polynomial(inverse, *series[::-1]), wave)
        if is_scaled:
            near = tensor("mul", near, tensor("exp", tensor("neg", size)))
        else:
            far = tensor("mul", far, tensor("exp", size))
        found = tensor("where", tensor("lt", size, _number(_BESSEL_FAR)), near, far)
        return tensor("where", _below_zero(x), tensor("neg", found), found) if order else found

    return meaning


# ---- the gamma function ----------------------------------------------------------------------------------------------

_SHIFT = 8
"""So far from 0 Stirling's series is good: lgamma(x) = lgamma(x + 8) - log(x (x + 1) ... (x + 7))."""

_LGAMMA = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
_DIGAMMA = (-1 / 12, 691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12)
_TRIGAMMA = (7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6)
"""Series by 1 / x^2. Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 6.1.41, 6.3.18 and 6.4.12."""


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


def _trigamma(x: Term) -> Term:
    """Of x < 0 by reflection, (pi / sin pi x)^2 + 1 / x^2 - trigamma(|x|), and infinite at integers."""
    size = tensor("abs", x)
    far, near = tensor("add", size, _number(_SHIFT)), _bounded(size)
    value = tensor("square", tensor("reciprocal", near))
    pole = value
    for step in range(1, _SHIFT):
        value = tensor("add", value, tensor("square", tensor("reciprocal", tensor("add", near, _number(step)))))
    inverse = tensor("reciprocal", far)
    square = tensor("square", inverse)
    series = tensor("mul", tensor("mul", idioms.polynomial(square, *_TRIGAMMA), square), inverse)
    value = tensor("add", value, tensor("add", series, tensor("add", inverse, _halved(square))))
    wave = tensor("square", tensor("div", _number(math.pi), tensor("sin", _turn(size))))
    return tensor("where", _below_zero(x), tensor("sub", tensor("add", wave, pole), value), value)


def _polygamma(order: int, x: Term) -> Term:
    if order > 1:
        raise UnsupportedOpError(f"of order {order}")
    return _in_double(_trigamma if order else _digamma)(x)


_MEANINGS = {
    **{"erfc": _erfc, "special_erfcx": _erfcx, "erfinv": _erfinv, "lgamma": _lgamma, "digamma": _digamma},
    **{"special_log_ndtr": _log_ndtr, "special_ndtri": _ndtri},
    **{"i0": _bessel(0, False), "special_i0e": _bessel(0, True)},
    **{"special_i1": _bessel(1, False), "special_i1e": _bessel(1, True)},
}

ROWS: dict[str, Row] = {
    **{f"aten.{name}.default": _in_double(meaning) for name, meaning in _MEANINGS.items()},
    "aten.special_ndtr.default": _ndtr,
    "aten.polygamma.default": _polygamma,
}
"""What each overload means."""
