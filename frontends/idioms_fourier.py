"""Discrete Fourier transforms as products with matrices of cosines and sines, which are folded like any constant.

Short ones are one product. Long ones are split as Cooley and Tukey do it: n = outer * inner values in rows of `inner`,
transforms down the columns, turns, transforms along the rows: two products if both parts of what is complex lie side by
side. Of one product only those frequencies are computed that are read. Of what is real, two neighbours are the parts of
one complex number. Long ones of prime length are convolutions, as Bluestein does it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.terms import Scalar, Term
from frittata.frontends import idioms, idioms_indices, idioms_windows
from frittata.frontends.idioms_complex import Complex, as_real, conjugate, each, multilinear

_DIRECT = 128
"""The longest transform that is one product."""
_LONGEST = 768
"""The longest that is, where its length is prime."""


def fourier(x: Complex | Term, axis: int, forward: bool, count: int | None = None) -> Complex:
    """Return the first `count` values, all of them unless given, of the transform along an axis, without a factor.

    X[k] = sum over j of x[j] exp(-+ 2 pi i j k / n); `forward` has the minus.
    """
    extent = idioms.number(x.shape[axis])
    kept = extent if count is None else count
    axis = idioms.negative_axis(axis, len(x.shape))
    outer = _outer(extent)
    if isinstance(x, Term) and _is_paired(extent, kept):
        found = _along_last(_of_pairs(_along_last(x, axis), forward, kept), axis)
    elif outer == 1 and extent <= _LONGEST and axis == -2:
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
    if _is_paired(extent, half):
        return idioms.swap(_pairs(z, extent), axis, -1)
    if outer > 1 or extent > _LONGEST:
        rest = extent - half
        mirrored = conjugate(each(lambda x: idioms_indices.flip(idioms.take_slice(x, -1, 1, 1, rest), [-1]), z))
        whole = each(lambda *pair: idioms_windows.concat(pair, -1), z, mirrored)
        return idioms.swap(_of_last(whole, outer, False, extent).real, axis, -1)
    turns = _turns(half, extent, extent, False, _dtype(z))
    alone = _is_own_image(element("iota", axis=-2, extent=half), extent)
    weights = tensor("build", element("where", alone, _real(1), _real(2)), shape=(half, 1))
    cos, sin = (tensor("mul", part, idioms.cast(weights, part.dtype)) for part in (turns.real, turns.imag))
    return idioms.swap(tensor("sub", idioms.matmul(z.real, cos), idioms.matmul(z.imag, sin)), axis, -1)


def transform(z: Complex | Term, axes: Sequence[int], normalization: int, forward: bool) -> Complex | Term:
    """Transform along axes. The number says by what values are multiplied: 1, 1 / sqrt(n) or 1 / n."""
    extents = [z.shape[axis] for axis in axes]
    for axis in axes:
        z = fourier(z, axis, forward)
    return _normalized(z, extents, normalization)


def transform_of_real(x: Term, axes: Sequence[int], normalization: int, onesided: bool) -> Complex:
    """Transform what is real along axes; along the last one, the half that tells the rest if it is `onesided`."""
    extents = [x.shape[axis] for axis in axes]
    last = idioms.number(extents[-1])
    z = fourier(idioms.as_float(x), axes[-1], True, last // 2 + 1 if onesided else last)
    for axis in axes[:-1]:
        z = fourier(z, axis, True)
    return _normalized(z, extents, normalization)


def transform_to_real(z: Complex, axes: Sequence[int], normalization: int, extent: int) -> Term:
    """Invert `transform_of_real`, onesided, for so many values along the last axis."""
    extents = [*(z.shape[axis] for axis in axes[:-1]), extent]
    for axis in axes[:-1]:
        z = fourier(z, axis, False)
    return _normalized(inverse_of_half(z, axes[-1], extent), extents, normalization)


def _normalized(z: Any, extents: Sequence[Any], normalization: int) -> Any:
    count = math.prod(map(idioms.number, extents))
    factor = (1, count**-0.5, 1 / count)[normalization]
    return each(lambda part: tensor("mul", part, idioms.like(part, factor)), z) if normalization else z


def _is_own_image(k: Term, extent: int) -> Term:
    """Whether a frequency is 0 or half of the extent."""
    return element("eq", element("mod", element("mul", k, _integer(2)), _integer(extent)), _integer(0))


def _outer(extent: int) -> int:
    """Return the number of rows in which a transform is split, 1 if it is not."""
    return 1 if extent <= _DIRECT else next(n for n in range(math.isqrt(extent), 0, -1) if extent % n == 0)


def _of_last(x: Complex | Term, outer: int, forward: bool, count: int) -> Complex:
    """Transform along the last axis.

    With j = inner * j1 + j2 and k = k1 + outer * k2:  X[k] = sum over j2 of exp(j2 k2 / inner) exp(j2 k1 / n)
    (sum over j1 of exp(j1 k1 / outer) x[j]), where exp(t) is exp(-+ 2 pi i t).
    """
    *front, extent = x.shape
    extent = idioms.number(extent)
    if outer == 1 and extent > _LONGEST:
        return _convolved(x, forward, count)
    if outer == 1:
        return _product(x, _turns(extent, count, extent, forward, _dtype(x)))
    inner = extent // outer
    if inner <= _DIRECT:
        return _in_two_products(x, outer, forward, count)
    columns = fourier(each(lambda part: idioms.reshape(part, (*front, outer, inner)), x), -2, forward)
    turned = multilinear(_times, (columns, _turns(outer, inner, extent, forward, _dtype(x))))
    rows = fourier(turned, -1, forward, -(-count // outer))

    def flat(part: Term) -> Term:
        whole = idioms.reshape(idioms.swap(part), (*front, -1))
        return idioms.take_slice(whole, -1, 0, 1, count)

    return each(flat, rows)


def _in_two_products(x: Complex | Term, outer: int, forward: bool, count: int) -> Complex:
    """Transform along the last axis with both parts side by side: down the columns, turned, then along the rows.

    The last product is one for each part: often only one is read.
    """
    *front, extent = x.shape
    inner = idioms.number(extent) // outer
    kept = -(-count // outer)
    parts = [x.real, x.imag] if isinstance(x, Complex) else [x]
    given = idioms_windows.concat([idioms.reshape(part, (*front, outer, inner)) for part in parts], -2)
    down = idioms_windows.concat(_side_by_side(outer, outer, forward, len(parts), _dtype(x)), -1)
    columns = idioms.matmul(idioms.swap(down), given)
    real, imag = (idioms.take_slice(columns, -2, start, 1, outer) for start in (0, outer))
    turned = multilinear(_times, (Complex(real, imag), _turns(outer, inner, idioms.number(extent), forward, _dtype(x))))
    rows = idioms_windows.concat([turned.real, turned.imag], -1)

    def flat(matrix: Term) -> Term:
        found = idioms.reshape(idioms.swap(idioms.matmul(rows, matrix)), (*front, kept * outer))
        return idioms.take_slice(found, -1, 0, 1, count)

    return Complex(*map(flat, _side_by_side(inner, kept, forward, 2, _dtype(x))))


def _convolved(x: Complex | Term, forward: bool, count: int) -> Complex:
    """Transform along the last axis by longer transforms.

    With c[j] = exp(j^2 / 2 n):  X[k] = c[k] (sum over j of c[j] x[j] / c[k - j]), since 2 j k = j^2 + k^2 - (k - j)^2.

    Source: Bluestein, A Linear Filtering Approach to the Computation of Discrete Fourier Transform, 1970.
    """
    extent = idioms.number(x.shape[-1])
    length = 1 << (extent + count - 2).bit_length()

    def turns(values: int, forward: bool, dtype: str, wrapped: bool = False) -> Complex:
        j = element("iota", axis=-1, extent=values)
        if wrapped:  # what lies before 0 comes last
            j = element("where", element("lt", j, _integer(count)), j, element("sub", j, _integer(length)))
        parts = _turn(element("mul", j, j), 2 * extent, forward)
        return Complex(*(idioms.cast(tensor("build", part, shape=(values,)), dtype) for part in parts))

    given = multilinear(_times, (x, turns(extent, forward, _dtype(x))))
    padded = each(lambda part: idioms_windows.pad(part, (0,), (length - extent,)), given)
    factors = fourier(turns(length, not forward, "f64", wrapped=True), -1, True)
    scaled = each(lambda part: idioms.cast(tensor("mul", part, idioms.scalar(1 / length, "f64")), _dtype(x)), factors)
    both = multilinear(_times, (fourier(padded, -1, True), scaled))
    return multilinear(_times, (fourier(both, -1, False, count), turns(count, forward, _dtype(x))))


def _side_by_side(extent: int, count: int, forward: bool, parts: int, dtype: str) -> tuple[Term, Term]:
    """Return the matrices that take one part of a short transform or both, one behind the other, to either."""
    turns = _turns(extent, count, extent, forward, dtype)
    lines = [(turns.real, turns.imag), (tensor("neg", turns.imag), turns.real)]
    real, imag = (idioms_windows.concat(part, -2) for part in zip(*lines[:parts], strict=True))
    return real, imag


def _is_paired(extent: int, count: int) -> bool:
    """Whether a real transform of which no more than a half is asked is better one of half as many complex numbers."""
    half = extent // 2
    if extent % 2 or half <= _DIRECT or count > half + 1:
        return False
    outer, whole = _outer(half), _outer(extent)
    return outer > 1 and half // outer + outer < whole + 2 * (extent // whole) * count // extent


def _of_pairs(x: Term, forward: bool, count: int) -> Complex:
    """Transform what is real along the last axis, of which no more than a half is kept.

    With z[j] = x[2 j] + i x[2 j + 1], its transform Z, and Y[k] the conjugate of Z[n / 2 - k]:
    2 X[k] = Z[k] + Y[k] - i exp(k / n) (Z[k] - Y[k]).
    """
    extent = idioms.number(x.shape[-1])
    half = extent // 2
    z = fourier(Complex(*(idioms.take_slice(x, -1, start, 2, half) for start in (0, 1))), -1, forward)
    around = each(lambda part: idioms_windows.concat([part, idioms.take_slice(part, -1, 0, 1, 1)], -1), z)
    turned = _turned(around, count, extent, forward)
    return each(lambda part: tensor("mul", part, idioms.scalar(0.5, part.dtype)), _minus(*turned))


def _pairs(z: Complex, extent: int) -> Term:
    """Return the real values whose transform along the last axis begins with z, its first half: see `_of_pairs`.

    Z[k] = X[k] + Y[k] + i exp(k / n) (X[k] - Y[k]), where Y[k] is the conjugate of X[n / 2 - k].
    """
    half = extent // 2
    k = element("iota", axis=-1, extent=half + 1)
    alone = tensor("build", _is_own_image(k, extent), shape=(half + 1,))
    z = Complex(z.real, tensor("where", alone, idioms.scalar(0, z.imag.dtype), z.imag))
    both, across = _turned(z, half, extent, False)
    found = fourier(each(lambda *parts: tensor("add", *parts), both, across), -1, False)
    return idioms.reshape(as_real(found), (*found.shape[:-1], extent))


def _turned(z: Complex, count: int, extent: int, forward: bool) -> tuple[Complex, Complex]:
    """Return Z[k] + Y[k] and i exp(k / n) (Z[k] - Y[k]), where Y[k] is the conjugate of Z[n / 2 - k], for some k."""
    ahead = each(lambda part: idioms.take_slice(part, -1, 0, 1, count), z)
    back = conjugate(each(lambda part: idioms.take_slice(idioms_indices.flip(part, [-1]), -1, 0, 1, count), z))
    turn = _turn(element("iota", axis=-1, extent=count), extent, forward)
    cos, sin = (idioms.cast(tensor("build", part, shape=(count,)), _dtype(z)) for part in turn)
    turns = Complex(tensor("neg", sin), cos)
    apart = _minus(ahead, back)
    return each(lambda *parts: tensor("add", *parts), ahead, back), multilinear(_times, (apart, turns))


def _minus(x: Complex, y: Complex) -> Complex:
    return each(lambda *parts: tensor("sub", *parts), x, y)


def _product(x: Complex | Term, y: Complex | Term) -> Complex:
    return multilinear(idioms.matmul, (x, y))


def _times(x: Term, y: Term) -> Term:
    return tensor("mul", x, y)


def _turns(rows: int, columns: int, extent: int, forward: bool, dtype: str) -> Complex:
    """Return exp(-+ 2 pi i j k / extent) in row j and column k."""
    steps = element("mul", element("iota", axis=-2, extent=rows), element("iota", axis=-1, extent=columns))
    tables = (tensor("build", part, shape=(rows, columns)) for part in _turn(steps, extent, forward))
    return Complex(*(idioms.cast(table, dtype) for table in tables))


def _turn(steps: Term, extent: int, forward: bool) -> tuple[Term, Term]:
    """Return cosine and sine of so many steps, of which `extent` are a whole turn: elements, exactly 0 where due."""
    steps = element("mod", steps, _integer(extent))
    angle = element("mul", element("cast", steps, dtype="f64"), _real((-2 if forward else 2) * math.pi / extent))
    quarters = element("mod", element("mul", steps, _integer(4)), _integer(2 * extent))

    def exact(function: Literal["cos", "sin"], root: int) -> Term:
        return element("where", element("eq", quarters, _integer(root)), _real(0), element(function, angle))

    return exact("cos", extent), exact("sin", 0)


def _along_last(x: Any, axis: int) -> Any:
    """Swap an axis and the last."""
    return each(lambda part: idioms.swap(part, axis, -1), x)


def _dtype(x: Complex | Term) -> str:
    return x.real.dtype if isinstance(x, Complex) else x.dtype


def _integer(value: int) -> Term:
    return element("const", value=Scalar.of(value, "i64"))


def _real(value: float) -> Term:
    return element("const", value=Scalar.of(value, "f64"))
