"""Exponentials, logarithms, circular and error functions as formulas over vectors.

At most 2 units in the last place off in f32 and 4 in f64, over the whole range, with C's results for NaN, infinities,
denormals and signed zeros. For f32, what is hot in networks (exp, log, tanh, sigmoid, erf) is computed in single
precision, the rest in double. In f64 exp and log are formulas too; the others call the C library, lane by lane.
Source: the polynomials for f32 of exp, log and erf are Norbert Juffa's, that of tanh Cephes'; log in f64 is fdlibm's.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial, inf, nan, pi

from frittata.kernels import simd
from frittata.kernels.expressions import Expr, integer
from frittata.kernels.flow import rarely
from frittata.kernels.simd import Value


@dataclass(frozen=True)
class _Format:
    """A binary floating-point format."""

    mantissa: int
    bias: int
    least_normal: float

    @property
    def integral(self) -> float:
        """A number so large that adding it rounds to an integer, which then is the low bits of the pattern."""
        return 1.5 * 2.0**self.mantissa

    @property
    def anchor(self) -> int:
        """The bit pattern of 2**mantissa, whose mantissa is all zeros and counts ones."""
        return (self.bias + self.mantissa) << self.mantissa


_SINGLE, _DOUBLE = _Format(23, 127, 2.0**-126), _Format(52, 1023, 2.0**-1022)


def _format(x: Expr) -> _Format:
    return _DOUBLE if x.is_double else _SINGLE


_LOG2_E = 1.4426950408889634
_LN2_F32 = (0.693145751953125, 1.42860677e-6)
_LN2_F64 = (0.6931471803691238, 1.9082149292705877e-10)
_EXP_F32 = (1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1)
_EXP_F64 = tuple(1.0 / factorial(n) for n in range(13, 1, -1))


def exp(x: Expr) -> Expr:
    """Return e**x; 2**n is applied in two factors, so that results may be denormal or infinite."""
    form, builder = _format(x), x.builder
    series, twice_biased = _exp_parts(x.clamp(-746.0, 710.0) if x.is_double else x.clamp(-104.0, 89.0), 2 * form.bias)
    half = builder.lshr(twice_biased, integer(twice_biased, 1))
    shift = integer(half, form.mantissa)
    factors = (x.from_bits(builder.shl(part, shift)) for part in (half, builder.sub(twice_biased, half)))
    return series * next(factors) * next(factors)


def _exp_normal(x: Expr) -> Expr:
    """Return e**x for x so near to 0 that the result is a normal number: |x| < 87 in f32."""
    form = _format(x)
    series, biased = _exp_parts(x, form.bias)
    return series * x.from_bits(x.builder.shl(biased, integer(biased, form.mantissa)))


def _exp_parts(x: Expr, bias: int) -> tuple[Expr, Value]:
    """Return p and, in the low bits of integers, n + bias with e**x = p 2**n: x = n ln 2 + r, p a polynomial in r."""
    offset = _format(x).integral + bias
    placed = x.fma(_LOG2_E, offset)
    n = placed - offset
    high, low = _LN2_F64 if x.is_double else _LN2_F32
    r = n.fma(-low, n.fma(-high, x))
    tail = r.polynomial(_EXP_F64 if x.is_double else _EXP_F32)
    series = (r * r).fma(tail, r) + 1.0 if x.is_double else tail.fma(r, 1.0).fma(r, 1.0)
    return series, placed.bits()


_LOG_F32_EVEN = (-0.130310059, -0.121483363, -0.166846052, -0.249996200)
_LOG_F32_ODD = (0.140869141, 0.139814854, 0.200120345)
_LOG_F64 = (
    1.479819860511658591e-01,
    1.531383769920937332e-01,
    1.818357216161805012e-01,
    2.222219843214978396e-01,
    2.857142874366239149e-01,
    3.999999999940941908e-01,
    6.666666666666735130e-01,
)


def log(x: Expr) -> Expr:
    """Return ln(x): with x = 2**k * (1 + f) and 1 + f near 1 it is k ln 2 plus a polynomial in f."""
    k, f = _split(x)
    near = _log1p_f64(f, k) if x.is_double else _log1p_f32(f, k)
    proper = near.where(x.is_("<", inf), x)  # an infinity and a NaN stay
    return proper.where(x.is_(">", 0.0), x.number(-inf).where(x.is_("==", 0.0), x.number(nan)))


def _split(x: Expr) -> tuple[Expr, Expr]:
    """Return k and f with x = 2**k * (1 + f) and 1 + f in [c, 2c), for x > 0; c is 2/3 (f32) or sqrt(1/2) (f64)."""
    form, builder = _format(x), x.builder
    denormal = x.is_("<", form.least_normal)
    bits = (x * 2.0**form.mantissa).where(denormal, x).bits()
    one, least = (0x3FF << 52, 0x3FE6A09E667F3BCD) if x.is_double else (0x3F800000, 0x3F2AAAAB)
    exponent = builder.lshr(builder.add(bits, integer(bits, one - least)), integer(bits, form.mantissa))
    unbiased = builder.sub(exponent, integer(bits, form.bias))
    f = x.from_bits(builder.sub(bits, builder.shl(unbiased, integer(bits, form.mantissa)))) - 1.0
    # An integer below 2**mantissa becomes a float by placing it in the mantissa of 2**mantissa.
    placed = x.from_bits(builder.or_(exponent, integer(bits, form.anchor)))
    k = placed - (2.0**form.mantissa + form.bias)
    return (k - float(form.mantissa)).where(denormal, k), f


def _log1p_f32(f: Expr, k: Expr) -> Expr:
    """Return ln(1 + f) + k ln 2."""
    square = f * f
    series = square.polynomial(_LOG_F32_ODD).fma(f, square.polynomial(_LOG_F32_EVEN))
    series = series.fma(f, 0.333331972).fma(f, -0.5).fma(square, f)
    return k.fma(0.693147182, series)


def _log1p_f64(f: Expr, k: Expr) -> Expr:
    """Return ln(1 + f) + k ln 2, by a series in f / (2 + f)."""
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    series = s * (half_square + z * z.polynomial(_LOG_F64))
    high, low = _LN2_F64
    return k * high - ((half_square - k.fma(low, series)) - f)


_TANH_F32 = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)


def tanh(x: Expr) -> Expr:
    """Return tanh(x): a polynomial near 0, elsewhere 1 - 2 / (exp(2 |x|) + 1)."""
    if x.is_double:
        return x.by_lane("tanh")
    magnitude, square = abs(x), x * x
    double = (magnitude + magnitude).clamp(0.0, 40.0)  # from 20 on the result is 1
    near = (x * square).fma(square.polynomial(_TANH_F32), x)
    far = (1.0 - 2.0 / (_exp_normal(double) + 1.0)).copysign(x)
    return near.where(magnitude.is_("<", 0.625), far)


def sigmoid(x: Expr) -> Expr:
    """Return 1 / (1 + exp(-x)) without overflow: 1 or exp(-|x|), by the sign, over 1 + exp(-|x|)."""
    e = exp(-abs(x))
    total = e + 1.0
    lost = e - (total - 1.0)  # exact; dividing by total + lost instead costs one more term of 1 / (1 + lost)
    ratio = e.where(x.is_("<", 0.0), 1.0) / total
    return ratio.fma(-lost, ratio)


_ERF_NEAR = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
_ERF_FAR = (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1)


def erf(x: Expr) -> Expr:
    """Return erf(x): a polynomial near 0, elsewhere 1 - exp(polynomial)."""
    if x.is_double:
        return x.by_lane("erf")
    t, square = abs(x), x * x
    near = square.polynomial(_ERF_NEAR).fma(x, x)
    high = t.polynomial((-1.72853470e-5, 3.83197126e-4))
    exponent = high.fma(square, t.polynomial((-3.88396438e-3, 2.42546219e-2)))
    for coefficient in _ERF_FAR:
        exponent = exponent.fma(t, coefficient)
    far = (1.0 - _exp_normal(exponent.fma(t, -t).clamp(-80.0, 0.0))).copysign(x)
    return far.where(t.is_(">", 475 / 512), near)


_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
_SIN_F64 = tuple((-1.0) ** n / factorial(2 * n + 1) for n in range(6, 0, -1))
_COS_F64 = tuple((-1.0) ** n / factorial(2 * n) for n in range(7, 0, -1))


def sin(x: Expr) -> Expr:
    """Return sin(x)."""
    return _circular(x, "sin", 0)


def cos(x: Expr) -> Expr:
    """Return cos(x) = sin(x + pi/2)."""
    return _circular(x, "cos", 1)


def _circular(x: Expr, name: str, quarter: int) -> Expr:
    """Return sin(x + quarter * pi/2): with x = n pi/2 + r it is sin or cos of r, with the sign of the quadrant."""
    if x.is_double:
        return x.by_lane(name)
    builder, wide = x.builder, x.to("f64")
    n = (wide * (2.0 / pi)).call("rint")
    r = n.fma(-_HALF_PI[1], n.fma(-_HALF_PI[0], wide))
    z = r * r
    sine, cosine = (r * z).fma(z.polynomial(_SIN_F64), r), z.fma(z.polynomial(_COS_F64), 1.0)
    bits = (n + (_DOUBLE.integral + quarter)).bits()
    odd = builder.trunc(bits, wide.lane.of("bool").type)
    sign = builder.shl(builder.lshr(bits, integer(bits, 1)), integer(bits, 63))
    result = cosine.where(odd, sine)
    rounded = result.from_bits(builder.xor(result.bits(), sign)).to("f32")
    # beyond, n pi/2 needs more digits than two doubles have
    huge = simd.any_lane(builder, abs(x).is_(">", 2.0**28))
    exact = x.where(x.is_("==", 0.0), rounded) if quarter == 0 else rounded
    return x.wrap(rarely(builder, huge, exact.value, lambda: x.by_lane(f"{name}f").value))


def atan(x: Expr) -> Expr:
    """Return atan(x), by the C function lane by lane."""
    return x.by_lane("atan" if x.is_double else "atanf")


def log1p(x: Expr) -> Expr:
    """Return ln(1 + x) without losing a small x: ln(u) corrected by what u = 1 + x has rounded away."""
    if x.is_double:
        return x.by_lane("log1p")
    wide = x.to("f64")
    u = wide + 1.0
    result = (log(u) + (wide - (u - 1.0)) / u).to("f32")
    # at -1 and at infinity the correction is no number
    return result.where(x.builder.and_(x.is_(">", -1.0), x.is_("<", inf)), log(u).to("f32")).where(x.is_("!=", 0.0), x)


def expm1(x: Expr) -> Expr:
    """Return e**x - 1 without losing a small x: there it is x + x**2 / 2."""
    if x.is_double:
        return x.by_lane("expm1")
    wide = x.to("f64")
    near = (wide * wide).fma(0.5, wide)
    result = near.where(abs(wide).is_("<", 1e-5), exp(wide) - 1.0).to("f32")
    return result.where(x.is_("!=", 0.0), x)


def pow_(x: Expr, y: Expr) -> Expr:
    """Return x**y as C does: exp(y ln |x|) in double precision, with the sign of x if y is odd."""
    if x.is_double:
        return x.by_lane("pow", y)
    builder = x.builder
    size, power = abs(x).to("f64"), y.to("f64")
    magnitude = exp(power * log(size)).to("f32")
    half = y * 0.5
    whole = y.is_("==", y.call("floor"))
    odd = builder.and_(whole, half.is_("!=", half.call("floor")))
    signed = magnitude.copysign(x).where(odd, magnitude)
    finite_negative = builder.and_(x.is_("<", 0.0), x.is_(">", -inf))
    result = x.number(nan).where(builder.and_(finite_negative, builder.not_(whole)), signed)
    one_to_infinity = builder.and_(abs(x).is_("==", 1.0), abs(y).is_("==", inf))
    one = builder.or_(builder.or_(x.is_("==", 1.0), y.is_("==", 0.0)), one_to_infinity)
    return x.number(1.0).where(one, result)
