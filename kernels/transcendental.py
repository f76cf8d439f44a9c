"""Exponentials, logarithms, circular and error functions as formulas over vectors.

At most 2 units in the last place off in f32 and 4 in f64, over the whole range, with C's results for NaN, infinities,
denormals and signed zeros. For f32, sin, cos and pow are computed in double precision, the rest in single. In f64 exp,
log and sigmoid are formulas too; the others call the C library, lane by lane.
Source: the polynomials for f32 of exp and log are Norbert Juffa's, the others least-squares fits with the weights of
Lawson's iteration; log in f64 is fdlibm's.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial, inf, nan, pi

from frittata.kernels import simd
from frittata.kernels.expressions import Expr, integer
from frittata.kernels.flow import rarely
from frittata.kernels.piecewise import Row, entry, polynomial
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
    def integral_bits(self) -> int:
        """The bit pattern of `integral`."""
        return self.anchor | 1 << (self.mantissa - 1)

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
    clamped = x.clamp(-746.0, 710.0) if x.is_double else x.clamp(-104.0, 89.0)
    series, n, twice_biased = _exp_parts(clamped, 2 * form.bias)
    whole = series.scaled(n)
    if whole is not None:
        return whole
    half = builder.lshr(twice_biased, integer(twice_biased, 1))
    shift = integer(half, form.mantissa)
    factors = (x.from_bits(builder.shl(part, shift)) for part in (half, builder.sub(twice_biased, half)))
    return series * next(factors) * next(factors)


def _exp_normal(x: Expr) -> Expr:
    """Return e**x for x so near to 0 that the result is a normal number: |x| < 87 in f32."""
    form = _format(x)
    series, n, biased = _exp_parts(x, form.bias)
    return series.scaled(n) or series * x.from_bits(x.builder.shl(biased, integer(biased, form.mantissa)))


def exp_of_nonpositive(x: Expr) -> Expr:
    """Return what `exp` does for an x that is not above 0: 2**n is one factor, too large, so that none is denormal."""
    form, builder = _format(x), x.builder
    lift, least = (512, -746.0) if x.is_double else (64, -104.0)
    series, n, biased = _exp_parts(x.at_least(least), form.bias + lift)
    whole = series.scaled(n)
    if whole is not None:
        return whole
    return series * x.from_bits(builder.shl(biased, integer(biased, form.mantissa))) * 2.0**-lift


def exp_down(x: Expr) -> Expr:
    """Return e**x for an x that is not above 0, but 0 where that is not a normal number."""
    least = -708.0 if x.is_double else -87.0
    near = x.number(least).where(x.is_("<", least), x)
    return x.number(0.0).where(x.is_("<", least), _exp_normal(near))


def _exp_parts(x: Expr, bias: int) -> tuple[Expr, Expr, Value]:
    """Return p, n and, in the low bits of integers, n + bias: e**x = p 2**n, x = n ln 2 + r, p is a polynomial in r."""
    offset = _format(x).integral + bias
    placed = x.fma(_LOG2_E, offset)
    n = placed - offset
    high, low = _LN2_F64 if x.is_double else _LN2_F32
    r = n.fma(-low, n.fma(-high, x))
    tail = r.polynomial(_EXP_F64 if x.is_double else _EXP_F32)
    series = (r * r).fma(tail, r) + 1.0 if x.is_double else tail.fma(r, 1.0).fma(r, 1.0)
    return series, n, placed.bits()


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
    form = _format(x)
    denormal = x.is_("<", form.least_normal)
    k, f, _ = _reduced(x, (x * 2.0**form.mantissa).where(denormal, x).bits())
    return (k - float(form.mantissa)).where(denormal, k), f


_ONE_F32 = 0x3F800000


def _reduced(x: Expr, bits: Value) -> tuple[Expr, Expr, Value]:
    """Return k and f for the bits of a normal number, and k as it is added to the exponent."""
    form, builder = _format(x), x.builder
    one, least = (0x3FF << 52, 0x3FE6A09E667F3BCD) if x.is_double else (_ONE_F32, 0x3F2AAAAB)
    exponent = builder.lshr(builder.add(bits, integer(bits, one - least)), integer(bits, form.mantissa))
    moved = builder.shl(builder.sub(exponent, integer(bits, form.bias)), integer(bits, form.mantissa))
    f = x.from_bits(builder.sub(bits, moved)) - 1.0
    # An integer below 2**mantissa becomes a float by placing it in the mantissa of 2**mantissa.
    placed = x.from_bits(builder.or_(exponent, integer(bits, form.anchor)))
    return placed - (2.0**form.mantissa + form.bias), f, moved


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


_EXPM1 = (1.3870633e-3, 8.36625416e-3, 4.16674353e-2, 1.66665465e-1, 4.9999997e-1)


def _expm1(x: Expr, halvings: int = 0) -> Expr:
    """Return (e**x - 1) / 2**halvings for f32, |x| < 88: with x = n ln 2 + r it is 2**n (e**r - 1) + (2**n - 1)."""
    offset = _SINGLE.integral + _SINGLE.bias
    placed = x.fma(_LOG2_E, offset)
    n, bits = placed - offset, placed.bits()
    biased = x.builder.sub(bits, integer(bits, halvings)) if halvings else bits
    power = x.from_bits(x.builder.shl(biased, integer(bits, _SINGLE.mantissa)))
    high, low = _LN2_F32
    r = n.fma(-low, n.fma(-high, x))
    return (r * r).fma(r.polynomial(_EXPM1), r).fma(power, power - 0.5**halvings)


_TANH = (-0.0503500178, 0.133146659, -0.333330572)


def tanh(x: Expr) -> Expr:
    """Return tanh(x): a polynomial near 0, elsewhere m / (m + 2) with m = exp(2 |x|) - 1."""
    if x.is_double:
        return x.by_lane("tanh")
    magnitude, square = abs(x), x * x
    m = _expm1((magnitude + magnitude).at_most(40.0))  # from 20 on the result is 1
    near = (magnitude * square).fma(square.polynomial(_TANH), magnitude)
    return near.where(magnitude.is_("<", 0.3), m / (m + 2.0)).copysign(x)


def sigmoid(x: Expr) -> Expr:
    """Return 1 / (1 + exp(-x)) without overflow: 1 or exp(-|x|), by the sign, over 1 + exp(-|x|)."""
    if x.is_double:
        e = exp(-abs(x))
        return _over_one_more(e.where(x.is_("<", 0.0), 1.0), e)
    # both are taken times 2**64, so that only the result may be denormal
    series, _, biased = _exp_parts((-abs(x)).at_least(-104.0), _SINGLE.bias + 64)
    scaled = series * x.from_bits(x.builder.shl(biased, integer(biased, _SINGLE.mantissa)))
    negative = x.builder.icmp_signed("<", x.bits(), integer(biased, 0))
    return _over_one_more(scaled.where(negative, 2.0**64), scaled * 2.0**-64) * 2.0**-64


def _over_one_more(x: Expr, e: Expr) -> Expr:
    """Return x / (1 + e) for e in [0, 1]."""
    total = e + 1.0
    lost = e - (total - 1.0)  # exact; dividing by total + lost instead costs one more term of 1 / (1 + lost)
    ratio = x / total
    return ratio.fma(-lost, ratio)


# Around each centre c, erf(c) is nearly a float; only near 0 the result is so small that x itself is added.
_ERF_CENTRE: Row = (0.0, 1.142865538597107, 2.2852392196655273, 3.4280946254730225)
_ERF_VALUE: Row = (0.0, 0.8939610123634338, 0.9987699389457703, 0.9999987483024597)
_ERF: tuple[Row, ...] = (
    (0.00939940941, -0.00514962012, 0.000882426801, -0.000114500035),
    (-0.03446218, 0.0085748611, -0.000655824959, 8.97258651e-05),
    (0.00335497223, 0.0164062511, -0.00303558679, -7.06147839e-05),
    (0.111994602, -0.0595550053, 0.0100880936, 0.000121605437),
    (0.000117029565, 0.0226053707, -0.0172606912, -0.0001121811),
    (-0.376134455, 0.164254144, 0.0191590749, 6.66901178e-05),
    (2.14101789e-07, -0.3493025, -0.0139111346, -2.99587209e-05),
    (0.128379166, 0.305636376, 0.00608751737, 8.88585237e-06),
)


def erf(x: Expr) -> Expr:
    """Return erf(x): a polynomial around a point near to x, of 0 and three others, and 1 from 3.92 on."""
    if x.is_double:
        return x.by_lane("erf")
    t = abs(x).at_most(3.92)
    piece = t.fma(0.875, _SINGLE.integral).bits()
    r = t - entry(t, piece, _ERF_CENTRE)
    first = x.builder.icmp_signed("==", piece, integer(piece, _SINGLE.integral_bits))
    start = t.where(first, entry(t, piece, _ERF_VALUE))
    return r.fma(polynomial(r, piece, _ERF), start).copysign(x)


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


_ATAN = (
    0.00292035984,
    -0.0163665209,
    0.0432094261,
    -0.0755199343,
    0.106658928,
    -0.142110243,
    0.199937686,
    -0.333331525,
)


def atan(x: Expr) -> Expr:
    """Return atan(x): a polynomial in x or, beyond 1, pi/2 less that in 1/x."""
    if x.is_double:
        return x.by_lane("atan")
    magnitude = abs(x)
    beyond = magnitude.is_(">", 1.0)
    w = (1.0 / magnitude).where(beyond, magnitude)
    z = w * w
    near = (w * z).fma(z.polynomial(_ATAN), w)
    return (_HALF_PI[0] - near).where(beyond, near).copysign(x)


def log1p(x: Expr) -> Expr:
    """Return ln(1 + x) without losing a small x: what u = 1 + x rounds away goes to the f of u = 2**k (1 + f)."""
    if x.is_double:
        return x.by_lane("log1p")
    u = x + 1.0
    k, f, moved = _reduced(u, u.bits())
    scale = x.from_bits(x.builder.sub(integer(moved, _ONE_F32), moved))  # 2**-k; nothing is lost from 2**24 on
    near = _log1p_f32((x - (u - 1.0)).fma(scale, f).where(x.is_("<", 2.0**25), f), k)
    proper = near.where(x.is_("<", inf), x).where(x.is_("!=", 0.0), x)
    return proper.where(x.is_(">", -1.0), x.number(-inf).where(x.is_("==", -1.0), x.number(nan)))


def expm1(x: Expr) -> Expr:
    """Return e**x - 1 without losing a small x."""
    if x.is_double:
        return x.by_lane("expm1")
    half = _expm1(x.clamp(-20.0, 89.0), 1)
    return x.where(abs(x).is_("<", 2.0**-60), half + half)


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
