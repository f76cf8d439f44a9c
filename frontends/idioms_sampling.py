"""Reading between places: filters along an axis, and images at the places of a grid. Framework-neutral builders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product
from math import lcm

from frittata.egraph import dtypes
from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.terms import Scalar, Term
from frittata.frontends import idioms, idioms_indices, idioms_windows

Filter = Callable[[Term], Term]
"""The weight of a value by its distance, which is not negative."""


def _total(terms: Sequence[Term]) -> Term:
    return reduce(lambda a, b: tensor("add", a, b), terms)


def triangle(d: Term) -> Term:
    """Return the filter of linear interpolation."""
    return tensor("max", tensor("sub", idioms.like(d, 1), d), idioms.like(d, 0))


def cubic(a: float) -> Filter:
    """Return Keys' filter of cubic interpolation, which reaches over two values to each side."""

    def weight(d: Term) -> Term:
        outer = tensor("where", tensor("lt", d, idioms.like(d, 2)), _far(d, a), idioms.like(d, 0))
        return tensor("where", tensor("le", d, idioms.like(d, 1)), _near(d, a), outer)

    return weight


def _near(d: Term, a: float) -> Term:
    """Return Keys' filter up to a distance of one."""
    return idioms.polynomial(d, a + 2, -(a + 3), 0, 1)


def _far(d: Term, a: float) -> Term:
    """Return Keys' filter from one to two."""
    return idioms.polynomial(d, a, -5 * a, 8 * a, -4 * a)


def filtered(
    x: Term,
    axis: int,
    length: int,
    first: Fraction,
    step: Fraction,
    weigh: Filter,
    reach: int,
    width: Fraction = Fraction(1),
    exclude: bool = False,
) -> Term:
    """Read one axis at first + i * step through a filter that reaches over so many values, stretched by `width`.

    The first and the last value stand for those beyond them, which with `exclude` do not count. Weights add up to one.

    Raises: UnsupportedOpError for integers, which frameworks round each in its way.
    """
    if not dtypes.is_float(x.dtype):
        raise UnsupportedOpError(f"interpolation of {x.dtype}", do="convert to floats before, and round after")
    by = lcm(first.denominator, step.denominator)
    start, stride = int(first * by), int(step * by)
    shape = (length, *(1,) * (-axis - 1))
    scaled = element("mul", element("iota", axis=axis, extent=length), _integer(stride))
    place = element("add", scaled, _integer(start))
    rest = element("cast", element("mod", place, _integer(by)), dtype=x.dtype)
    share = tensor("build", element("mul", rest, element("const", value=Scalar.of(1 / by, x.dtype))), shape=shape)
    whole = tensor("build", element("floordiv", place, _integer(by)), shape=shape)
    radius = -(-reach * width.numerator // width.denominator)
    weights: list[Term] = []
    values: list[Term] = []
    for tap in range(1 - radius, radius + 1):
        apart = tensor("abs", tensor("sub", share, idioms.like(share, tap)))
        weight = weigh(apart if width == 1 else tensor("div", apart, idioms.like(apart, float(width))))
        if exclude:
            at = tensor("add", whole, idioms.like(whole, tap))
            weight = tensor("where", _within(at, idioms.number(x.shape[axis])), weight, idioms.like(weight, 0))
        weights.append(weight)
        values.append(idioms_windows.resample(x, axis, length, start + tap * by, stride, by))
    if exclude or width != 1:
        total = _total(weights)
        weights = [tensor("div", weight, total) for weight in weights]
    return _total([tensor("mul", *pair) for pair in zip(values, weights, strict=True)])


def _integer(value: int) -> Term:
    return element("const", value=Scalar.of(value, "i64"))


def _within(at: Term, extent: int) -> Term:
    """Whether places stand in an axis."""
    return tensor("and", tensor("ge", at, idioms.like(at, 0)), tensor("le", at, idioms.like(at, extent - 1)))


# ---- grids -----------------------------------------------------------------------------------------------------------

CUBIC = -0.75
"""The parameter of the cubic filter in samples at a grid."""


def grid_sample(
    x: Term, grid: Term, mode: str, padding: str, corners: bool, rounds_last: bool = False, nan_beyond: bool = False
) -> Term:
    """Read images at places from -1 to 1, the last axis first; `mode` is "nearest", "linear" or "cubic".

    Values beyond a border are zeros, those at it ("border") or mirror images ("reflection"). With `corners` -1 and 1
    are the middles of the first and the last value, else their outer ends. What is nearest is looked for before a
    reflection, or after if it `rounds_last`. A place that is no number gives none between values, or is one behind the
    last value if `nan_beyond`.
    Shapes: x (batch, channels, *spatial), grid (batch, *places, rank), result (batch, channels, *places).

    Raises: UnsupportedOpError for integers between which is read.
    """
    if mode != "nearest" and not dtypes.is_float(x.dtype):
        raise UnsupportedOpError(f"interpolation of {x.dtype}", do="convert to floats before, and round after")
    extents = [idioms.number(dim) for dim in x.shape[2:]]
    grid = idioms.as_float(grid)
    places: list[Term] = []
    for at, extent in enumerate(extents):
        u = _denormalized(idioms.select(grid, -1, -1 - at), extent, corners)
        if padding == "reflection" and mode == "nearest" and rounds_last:
            u = _clamped(_mirrored(u, extent, corners), extent, nan_beyond)
        places.append(u)
    return sampled(x, places, mode, padding, corners, nan_beyond)


def sampled(
    x: Term,
    places: Sequence[Term],
    mode: str,
    padding: str,
    corners: bool = True,
    nan_beyond: bool = False,
    join: str = "add",
) -> Term:
    """Read images as `grid_sample` does, at places that are counted from the middle of the first value.

    Neighbours times their weights are added, or joined by "max".
    Shapes: x (batch, channels, *spatial), each of places (batch, *places), result (batch, channels, *places).
    """
    extents = map(idioms.number, x.shape[2:])
    every = [_taps(u, extent, mode, padding, corners, nan_beyond) for u, extent in zip(places, extents, strict=True)]
    parts: list[Term] = []
    for taps in product(*every):
        value = _read(x, [tap.at for tap in taps])
        inside = [tap.inside for tap in taps if tap.inside is not None]
        weights = [tap.weight for tap in taps if tap.weight is not None]
        if not nan_beyond:
            value = _kept(value, inside)
        if weights:
            weight = reduce(lambda a, b: tensor("mul", a, b), weights)
            value = tensor("mul", value, idioms.unsqueeze(idioms.cast(weight, x.dtype), 1))
        parts.append(_kept(value, inside) if nan_beyond else value)
    return reduce(lambda a, b: tensor(join, a, b), parts)


def _kept(value: Term, inside: Sequence[Term]) -> Term:
    """Return a value where all conditions hold, elsewhere 0."""
    if not inside:
        return value
    mask = reduce(lambda a, b: tensor("and", a, b), inside)
    return tensor("where", idioms.unsqueeze(mask, 1), value, idioms.like(value, 0))


@dataclass(frozen=True)
class _Tap:
    """Places within an axis that are read, whether a value there counts, None for always, and what it weighs."""

    at: Term
    inside: Term | None
    weight: Term | None


def _denormalized(u: Term, extent: int, corners: bool) -> Term:
    shifted = tensor("add", u, idioms.like(u, 1))
    if corners:
        return tensor("mul", shifted, idioms.like(u, (extent - 1) / 2))
    return tensor("sub", tensor("mul", shifted, idioms.like(u, extent / 2)), idioms.like(u, 0.5))


def _taps(u: Term, extent: int, mode: str, padding: str, corners: bool, nan_beyond: bool) -> list[_Tap]:
    """Return the places of an axis that are read; what is next to no number weighs none."""
    if mode == "nearest":
        return [_tap(tensor("round", u), None, extent, padding, corners, nan_beyond)]
    if mode == "linear" and padding != "zeros":
        u = _clamped(u if padding == "border" else _mirrored(u, extent, corners), extent, nan_beyond)
        padding = "zeros"  # one beyond the last value has no weight
    floor = tensor("floor", u)
    share = tensor("sub", u, floor)
    rest = tensor("sub", idioms.like(share, 1), share)
    if mode == "linear":
        weights = {0: rest, 1: share}
    else:
        before, after = (_far(_plus(distance, 1), CUBIC) for distance in (share, rest))
        weights = {-1: before, 0: _near(share, CUBIC), 1: _near(rest, CUBIC), 2: after}
    return [_tap(_plus(floor, number), one, extent, padding, corners, nan_beyond) for number, one in weights.items()]


def _plus(x: Term, value: int) -> Term:
    return tensor("add", x, idioms.like(x, value)) if value else x


def _tap(at: Term, weight: Term | None, extent: int, padding: str, corners: bool, nan_beyond: bool) -> _Tap:
    inside = _within(at, extent) if padding == "zeros" else None
    if padding == "reflection":
        at = _mirrored(at, extent, corners)
    return _Tap(idioms.cast(_clamped(at, extent, nan_beyond), "i64"), inside, weight)


def _clamped(u: Term, extent: int, nan_beyond: bool) -> Term:
    """Return the nearest place within an axis; that of NaN is the first, or the last."""
    if nan_beyond:
        last = idioms.like(u, extent - 1)
        return tensor("where", tensor("le", u, last), tensor("max", u, idioms.like(u, 0)), last)
    lowest = idioms.like(u, 0)
    return tensor("where", tensor("ge", u, lowest), tensor("min", u, idioms.like(u, extent - 1)), lowest)


def _mirrored(u: Term, extent: int, corners: bool) -> Term:
    """Reflect places at both ends, which are the middles of the outer values or their outer ends."""
    low, span = (0.0, extent - 1) if corners else (-0.5, extent)
    if not span:
        return tensor("mul", u, idioms.like(u, 0))
    turn = tensor("mod", tensor("sub", u, idioms.like(u, low)), idioms.like(u, 2 * span))
    return tensor("add", tensor("min", turn, tensor("sub", idioms.like(u, 2 * span), turn)), idioms.like(u, low))


def _read(x: Term, places: Sequence[Term]) -> Term:
    """Read values of all channels at places of the spatial axes, each (batch, *places)."""
    batch, rank = idioms.number(x.shape[0]), len(places[0].shape) + 1
    if batch == 1:
        image = idioms.select(x, 0, 0)
        found = idioms_indices.looked_up(image, {at + 1: idioms.select(i, 0, 0) for at, i in enumerate(places)})
        return idioms.unsqueeze(found, 0)
    by_axis = {0: idioms_indices.numbers(batch, 1 - rank), **{at + 2: i for at, i in enumerate(places)}}
    found = idioms_indices.looked_up(x, by_axis)
    return idioms.permute(found, (0, rank - 1, *range(1, rank - 1)))
