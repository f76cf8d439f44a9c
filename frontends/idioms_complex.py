"""Complex tensors as pairs of real ones: what the term language says of them, part by part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

from frittata.egraph import dtypes
from frittata.egraph.ops.registry import tensor
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import Term
from frittata.frontends import aten_scalars, idioms, idioms_windows

hypot, _atan2 = (aten_scalars.ROWS[f"aten.{name}.default"] for name in ("hypot", "atan2"))
_sinh_of_real, _cosh_of_real = (aten_scalars.ROWS[f"aten.{name}.default"] for name in ("sinh", "cosh"))
_copysign = aten_scalars.ROWS["aten.copysign.Tensor"]
_MOST_FACTORS = 100
"""Powers by integers below it are products."""


@dataclass(frozen=True)
class Complex:
    """A complex tensor: its real and its imaginary part, of one type."""

    real: Term
    imag: Term

    @property
    def shape(self) -> Shape:
        """The shape of both parts."""
        return self.real.shape


def parts(value: Any) -> tuple[Any, Any]:
    """Return the real and the imaginary part of a tensor, a number, or a list of them; None has no parts."""
    match value:
        case None:
            return None, None
        case Term():
            return value, idioms.filled(0, value.shape, value.dtype)
        case list() | tuple():
            pairs = [parts(one) for one in value]
            return [real for real, _ in pairs], [imag for _, imag in pairs]
        case _:
            return value.real, value.imag


def terms_of(value: Complex | Term) -> tuple[Term, ...]:
    """Return the terms that a tensor is made of: two of a complex one."""
    return (value.real, value.imag) if isinstance(value, Complex) else (value,)


def joined(real: Any, imag: Any) -> Any:
    """Return a complex tensor of its parts, or several."""
    return type(real)(map(Complex, real, imag)) if isinstance(real, list | tuple) else Complex(real, imag)  # pyright: ignore


def each(meaning: Callable[..., Any], *values: Any) -> Any:
    """Return what a meaning makes of the parts of each value; of values that are all real, what it makes of them."""
    if not any(isinstance(value, Complex | complex) for value in values):
        return meaning(*values)
    return joined(*(meaning(*part) for part in zip(*map(parts, values), strict=True)))


def multilinear(meaning: Callable[..., Term], factors: Sequence[Any]) -> Any:
    """Return a function that is linear in each of its factors, real or complex.

    What is real has one part only: infinities of the other factors stay what they are, where torch makes NaN of them.
    """
    named = [_named_parts(factor) for factor in factors]
    sums: dict[int, list[tuple[int, Term]]] = {0: [], 1: []}
    for chosen in product(*named):
        turns = sum(place for place, _ in chosen) % 4  # powers of i
        sums[turns % 2].append((turns // 2, meaning(*(part for _, part in chosen))))
    real, imag = (reduce(_summed, terms, None) for terms in sums.values())
    if imag is None:
        return real
    return Complex(idioms.filled(0, imag.shape, imag.dtype) if real is None else real, imag)


def _named_parts(factor: Any) -> list[tuple[int, Any]]:
    if isinstance(factor, Complex):
        return [(0, factor.real), (1, factor.imag)]
    if isinstance(factor, complex):
        return [(place, part) for place, part in enumerate((factor.real, factor.imag)) if part] or [(0, 0.0)]
    return [(0, factor)]


def _summed(total: Term | None, signed: tuple[int, Term]) -> Term:
    negative, term = signed
    if total is None:
        return tensor("neg", term) if negative else term
    return tensor("sub" if negative else "add", total, term)


def conjugate(z: Complex | Term) -> Any:
    """Return a tensor with the other sign of its imaginary part."""
    return Complex(z.real, tensor("neg", z.imag)) if isinstance(z, Complex) else z


def as_real(z: Complex) -> Term:
    """Return both parts along a new last axis."""
    return idioms_windows.concat([idioms.unsqueeze(part, -1) for part in (z.real, z.imag)], -1)


def stored(value: Complex | Term) -> Term:
    """Return the one term that stands for a tensor as an argument or a result."""
    return as_real(value) if isinstance(value, Complex) else value


def as_complex(x: Term) -> Complex:
    """Return what a last axis of extent 2 holds the parts of."""
    return Complex(idioms.select(x, -1, 0), idioms.select(x, -1, 1))


def polar(size: Term, angle: Term) -> Complex:
    """Return the tensor of a size and an angle in radians."""
    return Complex(tensor("mul", size, tensor("cos", angle)), tensor("mul", size, tensor("sin", angle)))


def reciprocal(z: Complex) -> Complex:
    """Return 1 / z: first divided by the larger of its parts, whose squares might overflow."""
    large = tensor("max", tensor("abs", z.real), tensor("abs", z.imag))
    near = each(lambda part: tensor("div", part, large), z)
    squares = tensor("add", tensor("square", near.real), tensor("square", near.imag))
    return each(lambda part: tensor("div", part, tensor("mul", squares, large)), conjugate(near))


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def _mul(x: Any, y: Any) -> Term:
    return tensor("mul", *idioms.promoted(x, y))


def added(x: Any, y: Any, op: str = "add") -> Any:
    """Return a sum, or the difference by "sub"."""
    return each(lambda *pair: tensor(op, *idioms.promoted(*pair)), x, y)


def times(x: Any, y: Any) -> Any:
    """Return a product, value by value."""
    return multilinear(_mul, (x, y))


def divided(x: Any, y: Any, of_real: Callable[[Any, Any], Term]) -> Any:
    """Return a quotient, given the one of what is real."""
    if isinstance(y, Complex):
        return times(x, reciprocal(y))
    if isinstance(y, complex):
        return times(x, 1 / y) if y else divided(x, y.real, of_real)
    return each(lambda part: of_real(part, y), x)


def power(z: Complex, exponent: float) -> Complex:
    """Return a power by a number: by an integer that is not large a product."""
    if exponent == 0.5:
        return root(z)
    if not float(exponent).is_integer() or abs(exponent) >= _MOST_FACTORS:
        return polar(idioms.power(size(z), exponent), times(angle(z), exponent))
    if exponent < 0:
        return power(reciprocal(z), -exponent)  # rather 0 than the reciprocal of a product that overflows
    if exponent == 0:
        return Complex(*(idioms.filled(value, z.shape, z.real.dtype) for value in (1, 0)))
    if exponent == 1:
        return z
    half = power(times(z, z), exponent // 2)
    return times(half, z) if exponent % 2 else half


def power_by(z: Any, exponent: Any) -> Complex:
    """Return exp(exponent log z); of zero 0, if the real part of the exponent is positive, and 1 for zero."""
    real, imag, first, second = idioms.promoted_floats(*parts(z), *parts(exponent))
    base, by = Complex(real, imag), Complex(first, second)
    found, is_power = exp(times(by, log(base))), truth(by)
    vanishes = tensor("and", tensor("not", truth(base)), tensor("gt", first, idioms.like(first, 0)))

    def chosen(part: Term, of_none: int) -> Term:
        known = tensor("where", vanishes, idioms.like(part, 0), part)
        return tensor("where", is_power, known, idioms.like(part, of_none))

    return Complex(chosen(found.real, 1), chosen(found.imag, 0))


def compared(join: str, of_real: Callable[..., Term], *values: Any) -> Term:
    """Join, by "and" or "or", what holds of the real parts and of the imaginary ones."""
    return tensor(join, *(of_real(*part) for part in zip(*map(parts, values), strict=True)))


def truth(z: Complex) -> Term:
    """Return where a tensor is not zero."""
    return compared("or", lambda part: tensor("ne", part, idioms.like(part, 0)), z)


# ---- functions -------------------------------------------------------------------------------------------------------


def size(z: Complex) -> Term:
    """Return the distance from 0."""
    return hypot(z.real, z.imag)


def angle(z: Complex) -> Term:
    """Return the angle in radians."""
    return _atan2(z.imag, z.real)


def sign(z: Complex) -> Complex:
    """Return what has the same angle and the size 1; zero of zero."""
    length = size(z)
    none = tensor("eq", length, idioms.like(length, 0))
    return each(lambda part: tensor("where", none, part, tensor("div", part, length)), z)


def root(z: Complex) -> Complex:
    """The root in the right half plane: its longer part is sqrt((|z| + |re z|) / 2), im z / 2 their product."""
    long = tensor("sqrt", _mul(tensor("add", size(z), tensor("abs", z.real)), 0.5))
    none = tensor("eq", long, idioms.like(long, 0))
    short = tensor("where", none, long, tensor("div", _mul(tensor("abs", z.imag), 0.5), long))
    right = tensor("ge", z.real, idioms.like(long, 0))
    return Complex(tensor("where", right, long, short), _copysign(tensor("where", right, short, long), z.imag))


def exp(z: Complex) -> Complex:
    """Real where z is: infinity times the sine of 0 is none."""
    length = tensor("exp", z.real)
    found = polar(length, z.imag)
    straight = tensor("eq", z.imag, idioms.like(length, 0))
    return Complex(tensor("where", straight, length, found.real), tensor("where", straight, z.imag, found.imag))


def log(z: Complex, base: float = math.e) -> Complex:
    """Return the logarithm to a base, whose imaginary part is the angle for e."""
    found = Complex(tensor("log", size(z)), angle(z))
    return found if base == math.e else times(found, 1 / math.log(base))


def cosh(z: Complex) -> Complex:
    """Return cosh re cos im + i sinh re sin im."""
    real = _mul(_cosh_of_real(z.real), tensor("cos", z.imag))
    return Complex(real, _scaled(_sinh_of_real(z.real), tensor("sin", z.imag)))


def sinh(z: Complex) -> Complex:
    """Return sinh re cos im + i cosh re sin im."""
    real = _mul(_sinh_of_real(z.real), tensor("cos", z.imag))
    return Complex(real, _scaled(_cosh_of_real(z.real), tensor("sin", z.imag)))


def tanh(z: Complex) -> Complex:
    """Return (sinh re cosh re + i sin im cos im) / (sinh^2 re + cos^2 im), of which nothing cancels.

    Far out the real part is 1 or -1 before squares overflow.
    """
    most = math.log(dtypes.finfo(z.real.dtype).max) / 2
    near = tensor("min", tensor("max", z.real, idioms.like(z.real, -most)), idioms.like(z.real, most))
    sine, cosine = tensor("sin", z.imag), tensor("cos", z.imag)
    length, other = _sinh_of_real(near), _cosh_of_real(near)
    under = tensor("add", tensor("square", length), tensor("square", cosine))
    return each(lambda part: tensor("div", part, under), Complex(_mul(length, other), _mul(sine, cosine)))


def _scaled(length: Term, sine: Term) -> Term:
    """Multiply a sine; one of 0 stays zero, however large the size is."""
    none = tensor("eq", sine, idioms.like(sine, 0))
    return _mul(tensor("where", none, _copysign(idioms.like(length, 1), length), length), sine)


def cos(z: Complex) -> Complex:
    """Return cosh(i z)."""
    return cosh(Complex(tensor("neg", z.imag), z.real))


def sin(z: Complex) -> Complex:
    """Return sinh(i z) / i."""
    turned = sinh(Complex(tensor("neg", z.imag), z.real))
    return Complex(turned.imag, tensor("neg", turned.real))


def tan(z: Complex) -> Complex:
    """Return tanh(i z) / i."""
    turned = tanh(Complex(tensor("neg", z.imag), z.real))
    return Complex(turned.imag, tensor("neg", turned.real))
