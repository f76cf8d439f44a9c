"""Exponentials, logarithms, circular and error functions as formulas over vectors.

At most 2 units in the last place off in f32 and 4 in f64, over the whole range, with C's results for NaN,
infinities, denormals and signed zeros. For f32, pow is computed in double precision, and so are sin and cos where x
is large or a multiplication and an addition are not one instruction; the rest in single.
In f64 exp, log, sigmoid, sin and cos are formulas too; the others call the C library, lane by lane.
Source: the polynomials for f32 of exp and log are Norbert Juffa's, the others least-squares fits with the weights of
Lawson's iteration; log in f64 is fdlibm's.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial, inf, nan, pi

from frittata.kernels import simd
from frittata.kernels.expressions import Expr
from frittata.kernels.flow import apart, rarely
from frittata.kernels.piecewise import Pieces, entry, has_sixteen_pieces
from frittata.kernels.processor import processor
from frittata.kernels.simd import Builder, Value, constant_like


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
_EXP_F32 = (1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1, 1.0, 1.0)
_EXP_F64 = tuple(1.0 / factorial(n) for n in range(13, 1, -1))


def exp(x: Expr) -> Expr:
    """Return e**x; 2**n is applied in two factors where no instruction does it, so that results may be denormal."""
    form, builder = _format(x), x.builder
    clamped = x.clamp(-746.0, 710.0) if x.is_double else x.clamp(-104.0, 89.0)
    if x.scales:
        return _exp_scaled(clamped)
    series, _, twice_biased = _exp_parts(clamped, form.integral + 2 * form.bias)
    half = builder.lshr(twice_biased, constant_like(twice_biased, 1))
    shift = constant_like(half, form.mantissa)
    factors = (x.from_bits(builder.shl(part, shift)) for part in (half, builder.sub(twice_biased, half)))
    return series * next(factors) * next(factors)


def _exp_scaled(x: Expr, in_steps: bool = True) -> Expr:
    """Return e**x where `x.scales`; it may be denormal or infinite. Not `in_steps` it takes longer, and is nearer."""
    series, n, _ = _exp_parts(x, _format(x).integral, in_steps and has_sixteen_pieces(x))
    return series.scaled(n)


def _exp_lifted(x: Expr, lift: int) -> Expr:
    """Return e**x * 2**lift for such an x that this is a normal number."""
    form = _format(x)
    series, _, lifted = _exp_parts(x, form.integral + form.bias + lift)
    return series * x.from_bits(x.builder.shl(lifted, constant_like(lifted, form.mantissa)))


def exp_of_nonpositive(x: Expr) -> Expr:
    """Return what `exp` does for an x that is not above 0: 2**n is one factor, too large, so that none is denormal."""
    lift, least = (512, -746.0) if x.is_double else (64, -104.0)
    clamped = x.at_least(least)
    return _exp_scaled(clamped) if x.scales else _exp_lifted(clamped, lift) * 2.0**-lift


def exp_down(x: Expr) -> Expr:
    """Return e**x for an x that is not above 0, but 0 where that is not a normal number."""
    least = -708.0 if x.is_double else -87.0
    near = x.number(least).where(x.is_("<", least), x)
    return x.number(0.0).where(x.is_("<", least), _exp_scaled(near) if x.scales else _exp_lifted(near, 0))


_EXP_OF_FRACTION = tuple(2.0 ** (i / 16) for i in range(16))
_EXP_OF_STEP = (1.66670114e-1, 0.500016868, 1.0)


def _exp_parts(x: Expr, offset: float, in_steps: bool = False) -> tuple[Expr, Expr, Value]:
    """Return p, n and the bits of n + offset: x = n ln 2 + r, and p is a polynomial in r for e**r.

    The offset is so large that adding it makes n an integer. `in_steps`, with a 16th of the offset, n is a multiple of
    1/16: p has the power of its fraction then, and e**x is p times two to the power of the integer below n.
    """
    offset = offset / 16 if in_steps else offset
    placed = x.fma(_LOG2_E, offset)
    n, bits = placed - offset, placed.bits()
    high, low = _LN2_F64 if x.is_double else _LN2_F32
    r = n.fma(-low, n.fma(-high, x))
    if in_steps:
        power = entry(x, bits, _EXP_OF_FRACTION)
        series = (r.polynomial(_EXP_OF_STEP) * r).fma(power, power)
    elif x.is_double:
        series = (r * r).fma(r.polynomial(_EXP_F64), r) + 1.0
    else:
        series = r.polynomial(_EXP_F32)
    return series, n, bits


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
    exponent = builder.lshr(builder.add(bits, constant_like(bits, one - least)), constant_like(bits, form.mantissa))
    moved = builder.shl(builder.sub(exponent, constant_like(bits, form.bias)), constant_like(bits, form.mantissa))
    f = x.from_bits(builder.sub(bits, moved)) - 1.0
    # An integer below 2**mantissa becomes a float by placing it in the mantissa of 2**mantissa.
    placed = x.from_bits(builder.or_(exponent, constant_like(bits, form.anchor)))
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
    biased = x.builder.sub(bits, constant_like(bits, halvings)) if halvings else bits
    power = x.from_bits(x.builder.shl(biased, constant_like(bits, _SINGLE.mantissa)))
    high, low = _LN2_F32
    r = n.fma(-low, n.fma(-high, x))
    return (r * r).fma(r.polynomial(_EXPM1), r).fma(power, power - 0.5**halvings)


_TANH_NEAR_0 = (-0.0503500178, 0.133146659, -0.333330572)
_TANH = Pieces(
    (
        *(0.0, 0.22628513, 0.379730225, 0.53053689, 0.757639945, 1.05095184),
        *(1.36772037, 1.65720546, 2.14374328, 2.72888875, 3.36071754),
        *(3.95191336, 4.85126781, 6.04082489, 7.27804518, 8.59001446),
    ),
    (
        *(0.0, 0.222500324, 0.36247316, 0.485791385, 0.639684737, 0.782176137),
        *(0.878171623, 0.92983979, 0.972893596, 0.991510153, 0.997593284),
        *(0.999261618, 0.999877751, 0.999988675, 0.999999046, 0.99999994),
    ),
    (
        (
            *(0.128428727, 0.0833339021, 0.0189850722, -0.0353706069, -0.0632780716, -0.0392562002),
            *(-0.010284856, 0.00230411463, 0.00443688035, 0.00198564958, 0.000655543758),
            *(0.000200702925, 3.45342851e-05, 3.05447907e-06, 2.69639457e-07, 6.65815378e-07),
        ),
        (
            *(0.000839864369, 0.130035549, 0.168053657, 0.159493491, 0.0973054022, 0.0172441695),
            *(-0.0206441078, -0.024816189, -0.014631426, -0.00537645165, -0.00159975933),
            *(-0.000497769332, -8.71360098e-05, -8.06812204e-06, -6.80509459e-07, 7.49838478e-07),
        ),
        (
            *(-0.333381385, -0.269789129, -0.175431639, -0.0743711367, 0.0448130891, 0.108075999),
            *(0.100194432, 0.0719300285, 0.0327893682, 0.0109854592, 0.00317911175),
            *(0.000981559278, 0.000162550888, 1.51153044e-05, 1.26871419e-06, -1.10363274e-08),
        ),
        (
            *(8.15640362e-07, -0.211484432, -0.314848363, -0.371147275, -0.377927959, -0.303645164),
            *(-0.200941026, -0.125899106, -0.0520265289, -0.0167620275, -0.00479540136),
            *(-0.0014748947, -0.000243796603, -2.25905878e-05, -1.90220169e-06, -3.80985739e-07),
        ),
        (
            *(1.0, 0.950493634, 0.868613243, 0.764006734, 0.590803444, 0.388200581),
            *(0.228814572, 0.135397971, 0.0534780957, 0.0169076212, 0.00480768085),
            *(0.00147622498, 0.000244501425, 2.26484044e-05, 1.90748278e-06, 1.38316906e-07),
        ),
    ),
)


def tanh(x: Expr) -> Expr:
    """Return tanh(x): by sixteen pieces, four for each doubling of |x| + 0.6, or as m / (m + 2), m = exp(2 |x|) - 1."""
    if x.is_double:
        return x.by_lane("tanh")
    magnitude = abs(x)
    if has_sixteen_pieces(x):
        t = magnitude.at_most(9.1)
        bits = t.fma(3.29560447, 2.0).bits()  # two of the exponent and two of the mantissa name the piece
        return _TANH.at(t, x.builder.lshr(bits, constant_like(bits, _SINGLE.mantissa - 2))).copysign(x)
    square = x * x
    m = _expm1((magnitude + magnitude).at_most(40.0))  # from 20 on the result is 1
    near = (magnitude * square).fma(square.polynomial(_TANH_NEAR_0), magnitude)
    return near.where(magnitude.is_("<", 0.3), m / (m + 2.0)).copysign(x)


def sigmoid(x: Expr) -> Expr:
    """Return e / (1 + e) with e = exp(x), or by the sign 1 or exp(-|x|) over 1 + exp(-|x|)."""
    if x.is_double:
        e = exp(-abs(x))
        return _over_one_more(e.where(x.is_("<", 0.0), 1.0), e)
    if x.scales:
        e = _exp_scaled(x.clamp(-104.0, 40.0), in_steps=False)
        return _over_one_more(e, e).where(x.is_("<", 0.0), e / (e + 1.0))
    # both are taken times 2**64, so that only the result may be denormal
    scaled = _exp_lifted((-abs(x)).at_least(-104.0), 64)
    negative = x.builder.icmp_signed("<", x.bits(), constant_like(x.bits(), 0))
    return _over_one_more(scaled.where(negative, 2.0**64), scaled * 2.0**-64) * 2.0**-64


def _over_one_more(x: Expr, e: Expr) -> Expr:
    """Return x / (1 + e) for e in [0, 1]."""
    total = e + 1.0
    lost = e - (total - 1.0)  # exact; dividing by total + lost instead costs one more term of 1 / (1 + lost)
    ratio = x / total
    return ratio.fma(-lost, ratio)


# At each centre erf is nearly a float; only near 0 the result is so small that x itself is the value.
_ERF_OF_FOUR = Pieces(
    (0.0, 1.142865538597107, 2.2852392196655273, 3.4280946254730225),
    (0.0, 0.8939610123634338, 0.9987699389457703, 0.9999987483024597),
    (
        (0.00939940941, -0.00514962012, 0.000882426801, -0.000114500035),
        (-0.03446218, 0.0085748611, -0.000655824959, 8.97258651e-05),
        (0.00335497223, 0.0164062511, -0.00303558679, -7.06147839e-05),
        (0.111994602, -0.0595550053, 0.0100880936, 0.000121605437),
        (0.000117029565, 0.0226053707, -0.0172606912, -0.0001121811),
        (-0.376134455, 0.164254144, 0.0191590749, 6.66901178e-05),
        (2.14101789e-07, -0.3493025, -0.0139111346, -2.99587209e-05),
        (0.128379166, 0.305636376, 0.00608751737, 8.88585237e-06),
    ),
)
_ERF_OF_SIXTEEN = Pieces(
    (
        *(0.0, 0.256470561, 0.501969457, 0.75657922, 1.02205658, 1.28205717),
        *(1.51895797, 1.75827229, 2.05480647, 2.25482821, 2.50885439),
        *(2.75340247, 3.00155544, 3.28465271, 3.54458356, 3.83175993),
    ),
    (
        *(0.0, 0.283174098, 0.522228897, 0.715364754, 0.851656199, 0.930184007),
        *(0.968296647, 0.987101972, 0.996338427, 0.998571396, 0.999611914),
        *(0.999901354, 0.999978125, 0.999996603, 0.999999464, 0.99999994),
    ),
    (
        (
            *(0.110975742, 0.0801420435, 0.00636191107, -0.0538447499, -0.0684627295, -0.0451361574),
            *(-0.0129237417, 0.00752412435, 0.0130346268, 0.0101502743, 0.00563102309),
            *(0.00245527946, 0.000876158418, 0.000260666886, 6.56695775e-05, 0.000182225136),
        ),
        (
            *(0.000285246555, 0.128668219, 0.182039335, 0.148347944, 0.0617273897, -0.0129892668),
            *(-0.0454913452, -0.0476469472, -0.0308651701, -0.0188714024, -0.00839897711),
            *(-0.00322882249, -0.00104152749, -0.000241661197, -5.29397657e-05, 2.44792645e-05),
        ),
        (
            *(-0.376141667, -0.305883378, -0.145017654, 0.0307261534, 0.14414148, 0.166305348),
            *(0.135321349, 0.0885627046, 0.04106519, 0.0213641915, 0.00805420987),
            *(0.00271983608, 0.000784246949, 0.000159708288, 3.16989426e-05, 3.61980847e-06),
        ),
        (
            *(2.8121903e-07, -0.270968825, -0.44024688, -0.481627822, -0.405757666, -0.279594153),
            *(-0.170603245, -0.0901393294, -0.0340043604, -0.0157580357, -0.00522774504),
            *(-0.00158427027, -0.000414091512, -7.64236465e-05, -1.39732947e-05, -2.11232623e-06),
        ),
        (
            *(0.128379166, 1.05654609, 0.877050161, 0.636589766, 0.397000611, 0.218081012),
            *(0.112314634, 0.0512654185, 0.0165487062, 0.00698863436, 0.00208377559),
            *(0.000575392449, 0.00013795514, 2.32741222e-05, 3.94414883e-06, 4.74217273e-07),
        ),
    ),
)


def erf(x: Expr) -> Expr:
    """Return erf(x): a polynomial around a point near to x, of 0 and three or fifteen others, and 1 from 3.92 on."""
    if x.is_double:
        return x.by_lane("erf")
    pieces, density = (_ERF_OF_SIXTEEN, 3.95153069) if has_sixteen_pieces(x) else (_ERF_OF_FOUR, 0.875)
    t = abs(x).at_most(3.92)
    piece = t.fma(density, _SINGLE.integral).bits()
    first = x.builder.icmp_signed("==", piece, constant_like(piece, _SINGLE.integral_bits))
    return pieces.at(t, piece, first).copysign(x)


_PI_F32 = (3.1415927410125732, -8.7422776573475858e-08, -3.4302490200117637e-15)
_PI_F64 = (pi, 1.2246467991473532e-16, -2.9947698097183397e-33)
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
_HALF_PI_IN_PARTS = (1.5707963109016418, 1.5893254712295857e-08, 6.123233995736766e-17)
"""Products of all but the last part with integers below 2**28 are exact, where processors would round them."""
_SIN_F32 = (2.60564639e-06, -0.000198095455, 0.00833306555, -0.166666597)
_SIN_F64 = tuple((-1.0) ** n / factorial(2 * n + 1) for n in range(10, 0, -1))
_SIN_NEAR_0 = _SIN_F64[-6:]
_COS_NEAR_0 = tuple((-1.0) ** n / factorial(2 * n) for n in range(7, 0, -1))


def sin(x: Expr) -> Expr:
    """Return sin(x)."""
    return _circular(x, "sin", 0)


def cos(x: Expr) -> Expr:
    """Return cos(x) = sin(x + pi/2)."""
    return _circular(x, "cos", 1)


def _circular(x: Expr, name: str, quarter: int) -> Expr:
    """Return sin(x + quarter * pi/2); what is far from 0 takes longer."""

    def distant(builder: Builder, value: Value) -> Value:
        y = Expr(builder, value)
        return (y.by_lane(name) if y.is_double else _circular_in_double(y, name, quarter)).value

    if not processor().fuses:
        return x.wrap(distant(x.builder, x.value))
    size = abs(x)
    far = simd.any_lane(x.builder, size.is_(">", 2.0**30 if x.is_double else 2.0**15))
    near = _circular_at_once(x, size, quarter)
    return x.wrap(rarely(x.builder, far, near.value, lambda: apart(x.builder, f"{name}.far", [x.value], distant)))


def _circular_at_once(x: Expr, size: Expr, quarter: int) -> Expr:
    """Return sin(x + quarter * pi/2): with `size` = |x| = n pi + r it is sin(r), or -sin(r).

    Taking the first part of n pi away is exact, so that a small r loses nothing. For quarter 1 n is 1/2 more.
    """
    builder, integral = x.builder, _format(x).integral
    placed = size.fma(1.0 / pi, -0.5 * quarter) + integral if quarter else size.fma(1.0 / pi, integral)
    n = placed - integral + 0.5 if quarter else placed - integral
    r = size
    for part in _PI_F64 if x.is_double else _PI_F32:
        r = n.fma(-part, r)
    z = r * r
    result = (r * z).fma(z.polynomial(_SIN_F64 if x.is_double else _SIN_F32), r).bits()
    last = 8 * x.lane.itemsize - 1
    odd = builder.shl(placed.bits(), constant_like(result, last))
    sign = builder.not_(odd) if quarter else builder.xor(odd, x.bits())
    return x.from_bits(builder.xor(result, builder.and_(sign, constant_like(result, -(2**last)))))


def _circular_in_double(x: Expr, name: str, quarter: int) -> Expr:
    """Return sin(x + quarter * pi/2): with x = n pi/2 + r it is sin or cos of r, with the sign of the quadrant."""
    builder, wide = x.builder, x.to("f64")
    n = (wide * (2.0 / pi)).call("rint")
    r = wide
    for part in _HALF_PI if processor().fuses else _HALF_PI_IN_PARTS:
        r = n.fma(-part, r)
    z = r * r
    sine, cosine = (r * z).fma(z.polynomial(_SIN_NEAR_0), r), z.fma(z.polynomial(_COS_NEAR_0), 1.0)
    bits = (n + (_DOUBLE.integral + quarter)).bits()
    odd = builder.trunc(bits, wide.lane.of("bool").type)
    sign = builder.shl(builder.lshr(bits, constant_like(bits, 1)), constant_like(bits, 63))
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
    scale = x.from_bits(x.builder.sub(constant_like(moved, _ONE_F32), moved))  # 2**-k; nothing is lost from 2**24 on
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
