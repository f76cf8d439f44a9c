"""Discrete Fourier transforms as products with matrices of cosines and sines, which are folded like any constant.

Short ones are one product. Long ones are split as Cooley and Tukey do it: n = outer * inner values in rows of `inner`,
transforms down the columns, turns, transforms along the rows. Of one product only those frequencies are computed that
are read.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.terms import Scalar, Term
from frittata.frontends import idioms, idioms_indices, idioms_windows
from frittata.frontends.idioms_complex import Complex, conjugate, each, multilinear

_DIRECT = 128
"""The longest transform that is one product."""
_LONGEST = 4096
"""The longest that is, where its length is prime."""


def fourier(x: Complex | Term, axis: int, forward: bool, count: int | None = None) -> Complex:
    """Return the first `count` values, all of them unless given, of the transform along an axis, without a factor.

    X[k] = sum over j of x[j] exp(-+ 2 pi i j k / n); `forward` has the minus.

    Raises: UnsupportedOpError for a long one of a prime length.
    """
    extent = idioms.number(x.shape[axis])
    kept = extent if count is None else count
    axis = idioms.negative_axis(axis, len(x.shape))
    outer = _outer(extent)
    if outer == 1 and axis == -2:
        found = _product(_turns(kept, extent, extent, forward, _dtype(x)), x)
    else:
        found = _along_last(_of_last(_along_last(x, axis), outer, forward, kept), axis)
    if isinstance(x, Complex):
        return found
    k = element("iota", axis=axis, extent=kept)  # what is its own mirror image is real
    alone = tensor("build", _is_own_image(k, extent), shape=(kept, *(1,) * (-axis - 1)))
    return Complex(found.real, tensor("where", alone, idioms.scalar(0, found.imag.dtype), found.imag))


def inverse_of_half(z: Complex, axis: int, extent: int) -> Term:
    """Return the `extent` real values whose transform begins with z, its first half, without a factor.

    x[j] = sum over k of w[k] (re z[k] cos(2 pi j k / n) - im z[k] sin(2 pi j k / n)), where w is 1 for what is its own
    mirror image, k = 0 and k = n / 2, and 2 for the others.
    """
    z = _along_last(z, axis)
    half, outer = idioms.number(z.shape[-1]), _outer(extent)
    if outer > 1:
        rest = extent - half
        mirrored = conjugate(each(lambda x: idioms_indices.flip(idioms.take_slice(x, -1, 1, 1, rest), [-1]), z))
        whole = each(lambda *pair: idioms_windows.concat(pair, -1), z, mirrored)
        return idioms.swap(_of_last(whole, outer, False, extent).real, axis, -1)
    turns = _turns(half, extent, extent, False, _dtype(z))
    alone = _is_own_image(element("iota", axis=-2, extent=half), extent)
    weights = tensor("build", element("where", alone, _real(1), _real(2)), shape=(half, 1))
    cos, sin = (tensor("mul", part, idioms.cast(weights, part.dtype)) for part in (turns.real, turns.imag))
    return idioms.swap(tensor("sub", idioms.matmul(z.real, cos), idioms.matmul(z.imag, sin)), axis, -1)


def _is_own_image(k: Term, extent: int) -> Term:
    """Whether a frequency is 0 or half of the extent."""
    return element("eq", element("mod", element("mul", k, _integer(2)), _integer(extent)), _integer(0))


def _outer(extent: int) -> int:
    """Return the number of rows in which a transform is split, 1 if it stays one product."""
    if extent <= _DIRECT:
        return 1
    outer = next(n for n in range(math.isqrt(extent), 0, -1) if extent % n == 0)
    if outer == 1 and extent > _LONGEST:
        raise UnsupportedOpError(f"a Fourier transform of a prime length, {extent}")
    return outer


def _of_last(x: Complex | Term, outer: int, forward: bool, count: int) -> Complex:
    """Transform along the last axis.

    With j = inner * j1 + j2 and k = k1 + outer * k2:  X[k] = sum over j2 of exp(j2 k2 / inner) exp(j2 k1 / n)
    (sum over j1 of exp(j1 k1 / outer) x[j]), where exp(t) is exp(-+ 2 pi i t).
    """
    *front, extent = x.shape
    extent = idioms.number(extent)
    if outer == 1:
        return _product(x, _turns(extent, count, extent, forward, _dtype(x)))
    inner = extent // outer
    columns = fourier(each(lambda part: idioms.reshape(part, (*front, outer, inner)), x), -2, forward)
    turned = multilinear(_times, (columns, _turns(outer, inner, extent, forward, _dtype(x))))
    rows = fourier(turned, -1, forward, -(-count // outer))

    def flat(part: Term) -> Term:
        whole = idioms.reshape(idioms.swap(part), (*front, -1))
        return idioms.take_slice(whole, -1, 0, 1, count)

    return each(flat, rows)


def _product(x: Complex | Term, y: Complex | Term) -> Complex:
    return multilinear(idioms.matmul, (x, y))


def _times(x: Term, y: Term) -> Term:
    return tensor("mul", x, y)


def _turns(rows: int, columns: int, extent: int, forward: bool, dtype: str) -> Complex:
    """Return exp(-+ 2 pi i j k / extent) in row j and column k."""
    steps = element("mul", element("iota", axis=-2, extent=rows), element("iota", axis=-1, extent=columns))
    steps = element("mod", steps, _integer(extent))
    angle = element("mul", element("cast", steps, dtype="f64"), _real((-2 if forward else 2) * math.pi / extent))
    quarters = element("mod", element("mul", steps, _integer(4)), _integer(2 * extent))

    def table(function: Literal["cos", "sin"], root: int) -> Term:
        exact = element("where", element("eq", quarters, _integer(root)), _real(0), element(function, angle))
        return idioms.cast(tensor("build", exact, shape=(rows, columns)), dtype)

    return Complex(table("cos", extent), table("sin", 0))


def _along_last(x: Any, axis: int) -> Any:
    """Swap an axis and the last."""
    return each(lambda part: idioms.swap(part, axis, -1), x)


def _dtype(x: Complex | Term) -> str:
    return x.real.dtype if isinstance(x, Complex) else x.dtype


def _integer(value: int) -> Term:
    return element("const", value=Scalar.of(value, "i64"))


def _real(value: float) -> Term:
    return element("const", value=Scalar.of(value, "f64"))
