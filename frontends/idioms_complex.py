"""Complex tensors as pairs of real ones: what the term language says of them, part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

from frittata.egraph.ops.registry import tensor
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_windows


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


def joined(real: Any, imag: Any) -> Any:
    """Return a complex tensor of its parts, or several."""
    return tuple(map(Complex, real, imag)) if isinstance(real, tuple) else Complex(real, imag)


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
