"""For the audit: given the type that an operator's result shall have, propose types of its operands and attributes.

A proposal need not always be right: the type rule of the row has the last word, and a wrong one is drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from frittata.egraph import indexing
from frittata.egraph.ops.elements import FOLDS
from frittata.egraph.ops.indices import SCATTERS
from frittata.egraph.ops.registry import Op
from frittata.egraph.ops.tensors import check_axis
from frittata.egraph.ops.winograd import TRANSFORMS
from frittata.egraph.terms import Scalar, Type
from frittata.rules.draws import (
    Dice,
    Shape,
    attribute_like,
    narrowed,
    one_of,
    random_dim,
    random_dtype,
    random_scalar,
    spread,
)


class Mismatch(Exception):
    """The draw does not fit; draw again."""


@dataclass(frozen=True)
class Goal:
    """What is wanted: a tensor of this shape, or an element whose extents are each 1 or these."""

    shape: Shape
    dtype: str


@dataclass(frozen=True)
class Place:
    """Where a proposal is made: the row, the goal, attributes given already, types of operands bound already."""

    op: Op
    goal: Goal
    given: Mapping[str, Any]
    known: tuple[Type | None, ...]
    rng: Dice

    def attr(self, label: str, otherwise: Callable[[], Any]) -> Any:
        """Return an attribute: as given, or drawn."""
        return self.given[label] if label in self.given else otherwise()

    def known_dim(self, operand: int, axis: int) -> int | None:
        """Return the extent on an axis of an operand that is bound already."""
        type_ = self.known[operand]
        shape: tuple[Any, ...] = () if type_ is None else getattr(type_, "shape", ())
        return shape[axis] if -len(shape) <= axis < len(shape) else None


Proposal = tuple[tuple[Goal, ...], dict[str, Any]]


def propose(place: Place) -> Proposal:
    """Propose the goals of the operands, and every attribute."""
    by_name = _TENSOR if place.op.sort == "tensor" else _ELEMENT
    if place.op.name in by_name:
        return by_name[place.op.name](place)
    return _pointwise(place) if place.op.pointwise else _any(place)


def _any(place: Place) -> Proposal:
    """A row we know nothing of: operands of the type of the result, attributes as given or like their defaults."""
    draw = partial(attribute_like, place.rng)
    attrs = {label: place.attr(label, partial(draw, default)) for label, default in place.op.attrs}
    return tuple(place.goal for _ in place.op.operands), attrs


def _pointwise(place: Place) -> Proposal:
    goal, rng, name = place.goal, place.rng, place.op.name
    count = len(place.op.operands)
    full = int(rng.integers(0, count))
    if count > 1 and rng.random() < 0.15:
        shapes = spread(rng, goal.shape, count)
    else:
        shapes = [goal.shape if i == full else narrowed(rng, goal.shape) for i in range(count)]
    dtypes = [goal.dtype] * count
    if name in ("lt", "le", "gt", "ge", "eq", "ne") or name == "cast":
        bound = next((str(type_.dtype) for type_ in place.known if type_), None)
        dtypes = [bound or random_dtype(rng, place.op)] * count
    elif name == "where":
        dtypes[0] = "bool"
    attrs = {"dtype": place.attr("dtype", lambda: goal.dtype)} if name == "cast" else {}
    return tuple(Goal(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)), attrs


def _same(place: Place) -> Proposal:
    return tuple(place.goal for _ in place.op.operands), {}


def _full(place: Place) -> Proposal:
    value = place.attr("value", lambda: random_scalar(place.rng, place.goal.dtype))
    return (), {"value": value, "shape": place.attr("shape", lambda: place.goal.shape)}


def _axis(place: Place, label: str = "axis") -> int:
    if not place.goal.shape:
        raise Mismatch
    return place.attr(label, lambda: -int(place.rng.integers(1, len(place.goal.shape) + 1)))


def _along(place: Place) -> Proposal:
    return (place.goal,), {"axis": _axis(place)}


def _with(shape: Shape, axis: int, dim: int) -> Shape:
    check_axis(shape, axis)
    return (*shape[: axis + len(shape)], dim, *shape[axis + len(shape) + 1 :])


def _reduce(place: Place) -> Proposal:
    ones = [axis for axis in range(-len(place.goal.shape), 0) if place.goal.shape[axis] == 1]
    if not ones:
        raise Mismatch
    axis = place.attr("axis", lambda: one_of(place.rng, ones))
    return (Goal(_with(place.goal.shape, axis, random_dim(place.rng)), place.goal.dtype),), {"axis": axis}


def _layer_norm(place: Place) -> Proposal:
    vector = Goal(place.goal.shape[-1:], place.goal.dtype)
    return (place.goal, vector, vector), {"eps": place.attr("eps", lambda: float(one_of(place.rng, [1e-5, 1e-3, 0.1])))}


def _batch_norm(place: Place) -> Proposal:
    vector = Goal(place.goal.shape[1:2], place.goal.dtype)
    eps = place.attr("eps", lambda: float(one_of(place.rng, [1e-5, 1e-3, 0.1])))
    return (place.goal, vector, vector, vector, vector), {"eps": eps}


def _matmul(place: Place) -> Proposal:
    if len(place.goal.shape) < 2:
        raise Mismatch
    *batch, m, n = place.goal.shape
    k = place.known_dim(0, -1) or place.known_dim(1, -2) or random_dim(place.rng)
    left, right = (narrowed(place.rng, tuple(batch)) for _ in range(2))
    if place.rng.random() < 0.5:
        left = tuple(batch)
    return (Goal((*left, m, k), place.goal.dtype), Goal((*right, k, n), place.goal.dtype)), {}


def _grouped_matmul(place: Place) -> Proposal:
    (rows, matrix), _ = _matmul(place)
    groups = random_dim(place.rng)
    return (rows, Goal((groups, *matrix.shape), matrix.dtype), Goal((groups,), _integer(place.rng))), {}


def _linear(place: Place) -> Proposal:
    if not place.goal.shape:
        raise Mismatch
    *batch, n = place.goal.shape
    k, dtype = random_dim(place.rng), place.goal.dtype
    return (Goal((*batch, k), dtype), Goal((n, k), dtype), Goal((n,), dtype)), {}


def _attention(place: Place) -> Proposal:
    if len(place.goal.shape) < 2:
        raise Mismatch
    *batch, m, n = place.goal.shape
    length, depth, dtype = random_dim(place.rng), random_dim(place.rng), place.goal.dtype
    scale = place.attr("scale", lambda: float(one_of(place.rng, [0.5, 0.1, 1.5])))
    shapes = ((*batch, m, depth), (*batch, length, depth), (*narrowed(place.rng, tuple(batch)), length, n))
    return tuple(Goal(shape, dtype) for shape in shapes), {"scale": scale}


def _masked_attention(place: Place) -> Proposal:
    (q, k, v), attrs = _attention(place)
    scores = (*q.shape[:-1], k.shape[-2])
    mask = Goal(narrowed(place.rng, scores), one_of(place.rng, ("bool", q.dtype)))
    return (q, k, v, mask), attrs


def _several(rng: Dice, least: int, usual: int, count: int) -> tuple[int, ...]:
    """Draw so many integers up to `usual`, at times some more than that."""
    most = usual + (2 if rng.random() < 0.15 else 0)
    return tuple(int(rng.integers(least, most + 1)) for _ in range(count))


def _conv(place: Place) -> Proposal:
    shape, rng = place.goal.shape, place.rng
    rank = len(shape) - 2
    if rank < 1:
        raise Mismatch
    stride = place.attr("stride", lambda: _several(rng, 1, 2, rank))
    dilation = place.attr("dilation", lambda: _several(rng, 1, 2, rank))
    padding = place.attr("padding", lambda: _several(rng, 0, 1, rank))
    divisors = [g for g in range(1, shape[1] + 1) if shape[1] % g == 0]
    groups = place.attr("groups", lambda: one_of(rng, divisors))
    if not rank == len(stride) == len(dilation) == len(padding):
        raise Mismatch
    kernel = tuple(_kernel_dim(place, i, stride[i], dilation[i], padding[i]) for i in range(rank))
    spatial = tuple(
        (n - 1) * s + d * (k - 1) + 1 - 2 * p
        for n, s, d, k, p in zip(shape[2:], stride, dilation, kernel, padding, strict=True)
    )
    if min(spatial) < 1 or min(kernel) < 1:
        raise Mismatch
    channels = place.known_dim(0, 1)
    depth = channels // groups if channels else place.known_dim(1, 1) or int(rng.integers(1, 4))
    shapes = (shape[0], depth * groups, *spatial), (shape[1], depth, *kernel)
    goals = tuple(Goal(one, place.goal.dtype) for one in shapes)
    return goals, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


def _conv_last(place: Place) -> Proposal:
    """As `conv` without groups, with the axis of channels moved in the goal and in the image."""
    shape = place.goal.shape
    if len(shape) < 3 or any(place.known):
        raise Mismatch
    first = Goal((shape[0], shape[-1], *shape[1:-1]), place.goal.dtype)
    (image, weights), attrs = _conv(replace(place, goal=first, given={**place.given, "groups": 1}))
    del attrs["groups"]
    last = (image.shape[0], *image.shape[2:], image.shape[1])
    return (Goal(last, image.dtype), weights), attrs


def _conv_winograd(place: Place) -> Proposal:
    shape, rng = place.goal.shape, place.rng
    if len(shape) != 4:
        raise Mismatch
    padding = place.attr("padding", lambda: tuple(map(int, rng.integers(0, 3, 2))))
    tile = place.attr("tile", lambda: one_of(rng, list(TRANSFORMS)))
    inputs = place.known_dim(0, 3) or place.known_dim(1, 1) or int(rng.integers(1, 4))
    spatial = tuple(n + 2 - 2 * p for n, p in zip(shape[1:3], padding, strict=True))
    if min(spatial) < 1:
        raise Mismatch
    shapes = (shape[0], *spatial, inputs), (shape[3], inputs, 3, 3)
    return tuple(Goal(one, place.goal.dtype) for one in shapes), {"padding": padding, "tile": tile}


def _kernel_dim(place: Place, axis: int, stride: int, dilation: int, padding: int) -> int:
    """Return the extent of the kernel: that of a bound kernel, what a bound operand asks for, or a draw."""
    extent = place.known_dim(0, 2 + axis)
    if extent:
        return (extent + 2 * padding - (place.goal.shape[2 + axis] - 1) * stride - 1) // dilation + 1
    return place.known_dim(1, 2 + axis) or max(_several(place.rng, 1, 3, 1)[0], padding)


def _permute(place: Place) -> Proposal:
    rank = len(place.goal.shape)
    p = place.attr("permutation", lambda: _permutation(place.rng, rank))
    if sorted(p) != list(range(rank)):
        raise Mismatch
    return (Goal(tuple(place.goal.shape[p.index(i)] for i in range(rank)), place.goal.dtype),), {"permutation": p}


def _channels_first(place: Place) -> Proposal:
    if len(place.goal.shape) < 3:
        raise Mismatch
    batch, channels, *spatial = place.goal.shape
    return (Goal((batch, *spatial, channels), place.goal.dtype),), {}


def _permutation(rng: Dice, rank: int) -> tuple[int, ...]:
    """Draw a permutation: often none at all, or of images one that takes the last axis behind the first."""
    if rng.random() < 0.25:
        return tuple(range(rank))
    if rank > 3 and rng.random() < 0.5:
        return (0, rank - 1, *range(1, rank - 1))
    return tuple(map(int, rng.permutation(rank)))


def _reshape(place: Place) -> Proposal:
    ones = (1, 1) if place.rng.random() < 0.2 else ()
    return (Goal((*regrouped(place.rng, place.goal.shape), *ones), place.goal.dtype),), {
        "shape": place.attr("shape", lambda: place.goal.shape)
    }


def regrouped(rng: Dice, shape: Shape) -> Shape:
    """Draw a shape of the same size: prime factors in order, grouped anew, with some extents 1."""
    if rng.random() < 0.25:
        return shape
    out: list[int] = []
    for dim in shape:
        for factor in _factors(dim):
            if out and rng.random() < 0.5:
                out[-1] *= factor
            else:
                out.append(factor)
        if rng.random() < 0.1:
            out.append(1)
    return tuple(out)


def _factors(n: int) -> list[int]:
    return next(([f, *_factors(n // f)] for f in range(2, n + 1) if n % f == 0), [])


def _slice(place: Place) -> Proposal:
    axis, rng = _axis(place), place.rng
    check_axis(place.goal.shape, axis)
    length = place.goal.shape[axis]
    start = place.attr("start", lambda: int(rng.integers(0, 3)))
    step = place.attr("step", lambda: _several(rng, 1, 2, 1)[0])
    extent = start + (length - 1) * step + 1 + int(rng.integers(0, 2))
    attrs = {"axis": axis, "start": start, "step": step, "length": place.attr("length", lambda: length)}
    return (Goal(_with(place.goal.shape, axis, extent), place.goal.dtype),), attrs


def _expand(place: Place) -> Proposal:
    shape = place.attr("shape", lambda: place.goal.shape)
    return (Goal(narrowed(place.rng, place.goal.shape), place.goal.dtype),), {"shape": shape}


def _take(place: Place) -> Proposal:
    """The axes of the result are those of the indices where the axis was, and those of the operand around them."""
    shape, rng = place.goal.shape, place.rng
    axis = place.attr("axis", lambda: -int(rng.integers(1, len(shape) + 2)))
    if len(shape) < -axis - 1:
        raise Mismatch
    stop = len(shape) + axis + 1
    start = int(rng.integers(0, stop + 1))
    source = (*shape[:start], random_dim(rng), *shape[stop:])
    return (Goal(source, place.goal.dtype), Goal(shape[start:stop], _integer(rng))), {"axis": axis}


def _gather(place: Place) -> Proposal:
    axis = _axis(place)
    source = _with(place.goal.shape, axis, random_dim(place.rng))
    return (Goal(source, place.goal.dtype), Goal(place.goal.shape, _integer(place.rng))), {"axis": axis}


def _scatter(place: Place) -> Proposal:
    axis, dtype = _axis(place), place.goal.dtype
    reduce = place.attr("reduce", lambda: one_of(place.rng, list(SCATTERS)))
    others = one_of(place.rng, (place.goal.shape, narrowed(place.rng, place.goal.shape)))  # the source may be shorter
    source = _with(others, axis, random_dim(place.rng))
    places = one_of(place.rng, (source, _with((1,) * len(source), axis, source[axis])))  # or slices, each at one place
    return (place.goal, Goal(places, _integer(place.rng)), Goal(source, dtype)), {"axis": axis, "reduce": reduce}


def _place(place: Place) -> Proposal:
    bound = next((str(type_.dtype) for type_ in place.known if type_), None)
    (goal,), attrs = _reduce(place)
    return (Goal(goal.shape, bound or random_dtype(place.rng, place.op)),), attrs


def _sorted(place: Place) -> Proposal:
    descending = place.attr("descending", lambda: bool(place.rng.random() < 0.5))
    return (place.goal,), {"axis": _axis(place), "descending": descending}


def _scan(place: Place) -> Proposal:
    axis = _axis(place)
    op = place.attr("op", lambda: one_of(place.rng, list(FOLDS)))
    check_axis(place.goal.shape, axis)
    return (place.goal,), {"op": op, "axis": axis, "extent": place.attr("extent", lambda: place.goal.shape[axis])}


def _integer(rng: Dice) -> str:
    return one_of(rng, ("i32", "i64"))


def _at(place: Place) -> Proposal:
    shape = (1,) * (1 - len(place.goal.shape)) + place.goal.shape
    axis = place.attr("axis", lambda: -int(place.rng.integers(1, len(shape) + 1)))
    extent = place.attr("extent", lambda: random_dim(place.rng))
    goals = Goal(_with(shape, axis, extent), place.goal.dtype), Goal(place.goal.shape, _integer(place.rng))
    return goals, {"axis": axis, "extent": extent}


def _pad(place: Place) -> Proposal:
    shape, rng = place.goal.shape, place.rng
    changed = rng.random(len(shape)) < one_of(rng, [0.0, 0.3, 0.8])
    if len(shape) > 2 and rng.random() < 0.4:
        changed[:2] = False  # an image, of which batch and channels stay
    least = -1 if rng.random() < 0.6 else 0
    low, high = (
        place.attr(label, lambda: tuple(int(c * rng.integers(least, 3)) for c in changed)) for label in ("low", "high")
    )
    if rng.random() < 0.4:  # as much on both sides
        low, high = (high, high) if "high" in place.given else (low, low)
    low, high = place.given.get("low", low), place.given.get("high", high)
    value = place.attr("value", lambda: random_scalar(rng, place.goal.dtype))
    if "value" not in place.given and rng.random() < 0.3:
        value = Scalar.of(0, place.goal.dtype)
    if not len(low) == len(high) == len(shape):
        raise Mismatch
    source = tuple(n - a - b for n, a, b in zip(shape, low, high, strict=True))
    if min(source, default=1) < 1:
        raise Mismatch
    return (Goal(source, place.goal.dtype),), {"low": low, "high": high, "value": value}


def _concat(place: Place) -> Proposal:
    axis = _axis(place)
    extent = place.goal.shape[axis]
    if extent < 2:
        raise Mismatch
    first = int(place.rng.integers(1, extent))
    goals = (Goal(_with(place.goal.shape, axis, n), place.goal.dtype) for n in (first, extent - first))
    return tuple(goals), {"axis": axis}


def _resample(place: Place) -> Proposal:
    axis, rng = _axis(place), place.rng
    attrs = {
        "axis": axis,
        "length": place.attr("length", lambda: place.goal.shape[axis]),
        "start": place.attr("start", lambda: int(rng.integers(-2, 5))),
        "step": place.attr("step", lambda: one_of(rng, [-1, 1, 2, 3])),
        "divisor": place.attr("divisor", lambda: int(rng.integers(1, 4))),
    }
    return (Goal(_with(place.goal.shape, axis, random_dim(rng)), place.goal.dtype),), attrs


def _stuff(place: Place) -> Proposal:
    divisors = ([d for d in range(1, n + 1) if n % d == 0] for n in place.goal.shape)
    steps = place.attr("steps", lambda: tuple(one_of(place.rng, d) for d in divisors))
    if len(steps) != len(place.goal.shape):
        raise Mismatch
    source = tuple(n // step for n, step in zip(place.goal.shape, steps, strict=True))
    return (Goal(source, place.goal.dtype),), {"steps": steps}


def _windows(place: Place) -> Proposal:
    shape, rng = place.goal.shape, place.rng
    if len(shape) < 2:
        raise Mismatch
    rank = int(rng.integers(1, len(shape) // 2 + 1))
    kernel = place.attr("kernel", lambda: shape[-rank:])
    stride = place.attr("stride", lambda: tuple(map(int, rng.integers(1, 4, rank))))
    dilation = place.attr("dilation", lambda: tuple(map(int, rng.integers(1, 3, rank))))
    axes = zip(shape[-2 * rank : -rank], kernel, stride, dilation, strict=False)
    spatial = tuple((n - 1) * s + d * (k - 1) + 1 + int(rng.integers(0, s)) for n, k, s, d in axes)
    attrs = {"kernel": kernel, "stride": stride, "dilation": dilation}
    return (Goal((*shape[: -2 * rank], *spatial), place.goal.dtype),), attrs


def _pool(place: Place) -> Proposal:
    """A window of each spatial axis, of which the last may reach beyond the padding."""
    shape, rng = place.goal.shape, place.rng
    if not shape:
        raise Mismatch
    rank = int(rng.integers(1, min(3, len(shape)) + 1))
    dilated = place.op.name == "max_pool" and rng.random() < 0.5
    kernel = place.attr("kernel", lambda: _several(rng, 1, 3, rank))
    stride = place.attr("stride", lambda: _several(rng, 1, 3, rank))
    dilation = place.given.get("dilation", tuple(map(int, rng.integers(1, 3 if dilated else 2, rank))))
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    padding = place.attr("padding", lambda: tuple(int(rng.integers(0, span // 2 + 1)) for span in spans))
    ceil = place.attr("ceil", lambda: bool(rng.random() < 0.5))
    axes = zip(shape[-len(kernel) :], spans, stride, padding, strict=True)
    spatial = tuple((n - 1) * s + span - 2 * p + int(rng.integers(-s if ceil else 0, s)) for n, span, s, p in axes)
    if min(spatial) < 1:
        raise Mismatch
    attrs: dict[str, Any] = {"kernel": kernel, "stride": stride, "padding": padding}
    if place.op.name == "max_pool":
        attrs |= {"dilation": dilation, "ceil": ceil}
    else:
        include = place.attr("count_include_pad", lambda: bool(rng.random() < 0.5))
        divisor = place.attr("divisor", lambda: one_of(rng, [0, 0, 2, 3]))
        attrs |= {"ceil": ceil, "count_include_pad": include, "divisor": divisor}
    return (Goal((*shape[: -len(kernel)], *spatial), place.goal.dtype),), attrs


def _conv_transpose(place: Place) -> Proposal:
    shape, rng = place.goal.shape, place.rng
    rank = len(shape) - 2
    if rank < 1:
        raise Mismatch
    kernel = tuple(place.known_dim(1, 2 + axis) or int(rng.integers(1, 5)) for axis in range(rank))
    stride = place.attr("stride", lambda: _several(rng, 1, 3, rank))
    padding = place.attr("padding", lambda: _several(rng, 0, 1, rank))
    dilation = place.attr("dilation", lambda: _several(rng, 1, 2 if rng.random() < 0.3 else 1, rank))
    if not rank == len(stride) == len(padding) == len(dilation):
        raise Mismatch
    groups = place.attr("groups", lambda: int(one_of(rng, [g for g in range(1, shape[1] + 1) if shape[1] % g == 0])))
    if shape[1] % groups:
        raise Mismatch
    inputs = groups * int(rng.integers(1, 3))
    reach = [n + 2 * p - d * (k - 1) - 1 for n, p, d, k in zip(shape[2:], padding, dilation, kernel, strict=True)]
    if min(reach) < 0:
        raise Mismatch
    spatial = tuple(r // s + 1 for r, s in zip(reach, stride, strict=True))
    extra = tuple(r % s for r, s in zip(reach, stride, strict=True))
    goals = (shape[0], inputs, *spatial), (inputs, shape[1] // groups, *kernel)
    attrs = {"stride": stride, "padding": padding, "output_padding": extra, "dilation": dilation, "groups": groups}
    return tuple(Goal(one, place.goal.dtype) for one in goals), attrs


def _group_norm(place: Place) -> Proposal:
    if len(place.goal.shape) < 2:
        raise Mismatch
    channels = place.goal.shape[1]
    vector = Goal((channels,), place.goal.dtype)
    groups = place.attr(
        "groups", lambda: int(one_of(place.rng, [g for g in range(1, channels + 1) if channels % g == 0]))
    )
    eps = place.attr("eps", lambda: float(one_of(place.rng, [1e-5, 1e-3, 0.1])))
    return (place.goal, vector, vector), {"groups": groups, "eps": eps}


def _rms_norm(place: Place) -> Proposal:
    goals, attrs = _layer_norm(place)
    return goals[:2], attrs


def _build(place: Place) -> Proposal:
    return (place.goal,), {"shape": place.attr("shape", lambda: place.goal.shape)}


def _load(place: Place) -> Proposal:
    shape = place.goal.shape if place.rng.random() < 0.5 else narrowed(place.rng, place.goal.shape)
    return (Goal(shape, place.goal.dtype),), {}


def _const(place: Place) -> Proposal:
    return (), {"value": place.attr("value", lambda: random_scalar(place.rng, place.goal.dtype))}


def _iota(place: Place) -> Proposal:
    axis = _axis(place)
    check_axis(place.goal.shape, axis)
    extent = place.attr("extent", lambda: place.goal.shape[axis])
    return (), {"axis": axis, "extent": extent, "dtype": place.attr("dtype", lambda: place.goal.dtype)}


def _fold(place: Place) -> Proposal:
    shape = (1,) * (1 - len(place.goal.shape)) + place.goal.shape
    axis = place.attr("axis", lambda: -int(place.rng.integers(1, len(shape) + 1)))
    extent = place.attr("extent", lambda: random_dim(place.rng))
    op = place.attr("op", lambda: one_of(place.rng, list(FOLDS)))
    return (Goal(_with(shape, axis, extent), place.goal.dtype),), {"op": op, "axis": axis, "extent": extent}


def _dot(place: Place) -> Proposal:
    shape = (1,) * (2 - len(place.goal.shape)) + place.goal.shape
    depth = place.attr("depth", lambda: random_dim(place.rng))
    left, right = _with(shape, -1, depth), _with(shape, -2, depth)
    return (Goal(left, place.goal.dtype), Goal(right, place.goal.dtype)), {"depth": depth}


def _reindex(place: Place) -> Proposal:
    mapping = place.attr("map", lambda: random_map(place.rng, place.goal.shape))
    return (Goal(mapping.source, place.goal.dtype),), {"map": mapping}


def random_map(rng: Dice, result: Shape) -> indexing.IndexMap:
    """Draw a permutation, a reshape or a slice whose result has this shape."""
    rank = len(result)
    kind = rng.integers(0, 3)
    if kind == 0:
        p = _permutation(rng, rank)
        return indexing.permute_map(tuple(result[p.index(i)] for i in range(rank)), p)
    if kind == 1 and rank:
        axis = -int(rng.integers(1, rank + 1))
        start, step = int(rng.integers(0, 3)), int(rng.integers(1, 3))
        source = _with(result, axis, start + (result[axis] - 1) * step + 1 + int(rng.integers(0, 2)))
        return indexing.slice_map(source, axis, start, step, result[axis])
    return indexing.reshape_map(regrouped(rng, result), result)


_TENSOR: dict[str, Callable[[Place], Proposal]] = {
    "full": _full, "relu": _same, "gelu": _same, "gelu_tanh": _same, "silu": _same, "softmax": _along,
    "reduce_sum": _reduce, "reduce_prod": _reduce, "reduce_max": _reduce, "reduce_min": _reduce,
    "layer_norm": _layer_norm, "batch_norm": _batch_norm, "attention": _attention, "causal_attention": _attention,
    "masked_attention": _masked_attention, "matmul": _matmul, "grouped_matmul": _grouped_matmul, "linear": _linear,
    "conv": _conv, "conv_last": _conv_last, "conv_winograd": _conv_winograd, "permute": _permute,
    "channels_first": _channels_first, "reshape": _reshape, "slice": _slice, "expand": _expand, "build": _build,
    "pad": _pad, "concat": _concat, "resample": _resample, "stuff": _stuff, "windows": _windows, "max_pool": _pool,
    "avg_pool": _pool, "conv_transpose": _conv_transpose, "group_norm": _group_norm, "rms_norm": _rms_norm,
    "take": _take, "gather": _gather, "scatter": _scatter, "cumsum": _along, "cumprod": _along, "cummax": _along,
    "cummin": _along, "argmax": _place, "argmin": _place, "sort": _sorted, "argsort": _sorted,
}  # fmt: skip
_ELEMENT: dict[str, Callable[[Place], Proposal]] = {
    "load": _load, "const": _const, "iota": _iota, "fold": _fold, "dot": _dot, "reindex": _reindex, "at": _at,
    "scan": _scan,
}  # fmt: skip
