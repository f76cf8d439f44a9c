"""Sliding windows over images of few channels: sums of products with weights, or folds of what a window shows.

    dot[g, o, y, x]  = sum over c, dy, dx of  weights[h, o, c, dy, dx] * image[g, c, v, u]
    fold[g, y, x]    = fold over dy, dx of    image[g, v, u]
    v, u             = y * stride + dy * dilation - padding, likewise of x and dx

for batches of groups g, of which h is the group. The bodies are point-wise in the result. An image of one axis has a
single line. Outside of the image a product reads zero; a fold reads what the clamped index shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from frittata.egraph import dtypes, shapes, terms
from frittata.egraph.indexing import Affine, var
from frittata.egraph.ops.elements import window_extents
from frittata.egraph.shapes import Shape, Sym
from frittata.egraph.terms import Term
from frittata.kernels import vmath
from frittata.kernels.contractions import BINDERS, Index, Side, is_under_view, only_product, split_index
from frittata.kernels.points import reduction
from frittata.kernels.stores import BODIES, stored_at
from frittata.kernels.window_packing import Plane

DOT = "dot"
_LINE = Plane(1, 1, 1, 1, 0, 1)
_ATOMS = frozenset({"load", "const", "iota", "fold", "reindex", "cast"})


@dataclass(frozen=True, eq=False)
class Stencil:
    """What bodies compute. `hole` stands for the result in them, `op` is a fold or `DOT`.

    `at` is the image's index in terms of g, c, u and v, or of line, which is v + padding; `place` that of the bodies in
    terms of g, o, y and x; that of the weights is in terms of h, o, c, dy and dx.
    """

    bodies: tuple[Term, ...]
    hole: Term
    op: str
    image: Term
    at: Index
    weights: Side | None
    place: Index
    count: int
    groups: int
    inputs: int
    outputs: int
    lines: Plane
    pixels: Plane

    @property
    def sizes(self) -> tuple[Any, ...]:
        """All that tells how it is cut into tiles and bands."""
        return self.op, self.dtype, self.count, self.inputs, self.outputs, self.lines, self.pixels

    @property
    def dtype(self) -> str:
        """The dtype of the image and of the result."""
        return self.hole.dtype

    @property
    def taps(self) -> int:
        """How many elements of the image a result takes."""
        return self.inputs * self.lines.kernel * self.pixels.kernel

    @property
    def flops(self) -> float:
        """The operations of all windows."""
        each = 2.0 if self.op == DOT else 1.0
        return each * self.count * self.outputs * self.lines.result * self.pixels.result * self.taps


def span(plane: Plane, results: int) -> int:
    """Return how many positions of an axis the windows of consecutive results reach, margins included."""
    return (results - 1) * plane.stride + (plane.kernel - 1) * plane.dilation + 1


@lru_cache(maxsize=4096)
def describe(bodies: tuple[Term, ...]) -> Stencil | None:
    """Return what the bodies compute if it is a stencil, and lines of it are stored in one piece; else None."""
    found = _product(bodies) or _fold(bodies)
    if found is None or any(stored_at(body, found.place).factor_of("x") not in (0, 1) for body in bodies):
        return None
    return found


# ---- products --------------------------------------------------------------------------------------------------------


def _product(bodies: tuple[Term, ...]) -> Stencil | None:
    product = only_product(bodies, "window_dot")
    if product is None or len(product.attrs[2]) > 2:
        return None
    image, weights = product.args
    source, channels, kernel, stride, padding, dilation, groups = product.attrs
    axes = range(-len(kernel), 0)
    channel = -len(kernel) - 1
    shape = shapes.concrete(bodies[0].shape)
    results = window_extents(source[1:], kernel, stride, padding, dilation)
    inputs, outputs = source[0] // groups, channels // groups
    batch = {axis: shape[axis] for axis in range(-len(shape), channel)}
    leading = split_index("g", {**batch, channel: groups})
    group = leading.pop(channel)
    planes = dict(zip(axes, map(Plane, source[1:], results, kernel, stride, padding, dilation), strict=True))
    lines, pixels = planes.get(-2, _LINE), planes[-1]
    view = {-2: var("v", lines.source), -1: var("u", pixels.source)}
    result = {-2: var("y", lines.result), -1: var("x", pixels.result)}
    tap = {-2: var("dy", lines.kernel), -1: var("dx", pixels.kernel)}
    inner, outer = var("c", inputs), var("h", groups) * outputs + var("o", outputs)
    return Stencil(
        bodies,
        product,
        DOT,
        image,
        {**leading, channel: group * inputs + inner, **{axis: view[axis] for axis in axes}},
        Side(weights, {channel - 1: outer, channel: inner, **{axis: tap[axis] for axis in axes}}),
        {**leading, channel: group * outputs + var("o", outputs), **{axis: result[axis] for axis in axes}},
        prod(batch.values()) * groups,
        groups,
        inputs,
        outputs,
        lines,
        pixels,
    )


# ---- folds -----------------------------------------------------------------------------------------------------------


def _fold(bodies: tuple[Term, ...]) -> Stencil | None:
    """Read folds over axes in front of those of the bodies, of a view that slides over the last axes of an image."""
    hole = only_fold(bodies)
    if hole is None or not dtypes.is_float(hole.dtype):
        return None
    folded = reduction(hole)
    shape = shapes.concrete(bodies[0].shape)
    if folded.element.op != "reindex" or not shape or any(dim_at(shape, a) != 1 for a in folded.extent_by_axis):
        return None
    (image,), mapping = folded.element.args, folded.element.attrs[0]
    windows = folded.extent_by_axis
    leading = {axis: shape[axis] for axis in range(-len(shape), -2)}
    place = {**split_index("g", leading), -2: var("y", dim_at(shape, -2)), -1: var("x", shape[-1])}
    sources = dict(zip(range(-len(mapping.sources), 0), mapping.sources, strict=True))
    planes = [_plane(sources.pop(axis, Affine()), axis, shape, image, windows) for axis in (-2, -1)]
    lines, pixels = planes
    used = {axis for at in sources.values() for axis in at.variables()}
    moving = [key for plane in planes if plane is not None for key in plane[1]]
    if lines is None or pixels is None or sorted(moving) != sorted(windows) or used & {-1, -2, *windows}:
        return None
    at = {axis: source.substitute(place) for axis, source in sources.items()}
    at[-2] = var("line", span(lines[0], lines[0].result)) + -lines[0].padding
    at[-1] = var("u", pixels[0].source)
    return Stencil(
        bodies, hole, folded.op, image, at, None, place, prod(leading.values()), 1, 1, 1, lines[0], pixels[0]
    )


def only_fold(bodies: tuple[Term, ...]) -> Term | None:
    """Return the outermost of nested folds that the bodies are point-wise in, if there are no other binders."""
    elements = [body.args[0] for body in bodies if body.op in BODIES]
    every = list(terms.walk(*elements))
    found = [term for term in every if term.op in BINDERS]
    if len(elements) < len(bodies) or not found or any(body.shape != bodies[0].shape for body in bodies):
        return None
    if not all(map(_is_known, every)):
        return None
    hole = found[-1]
    chain = [hole]
    while chain[-1].op == "fold" and chain[-1].args[0].op == "fold":
        chain.append(chain[-1].args[0])
    is_chain = set(chain) == set(found) and len({term.attrs[0] for term in found}) == 1 and hole.op == "fold"
    read = {*elements, *(arg for term in every if term not in chain for arg in term.args)}
    is_chain = is_chain and read.isdisjoint(chain[1:])
    live = {term.attrs[1] for term in chain if term.op == "fold" and term.attrs[2] != 1}
    if not is_chain or len(live) < sum(term.attrs[2] != 1 for term in chain) or is_under_view(elements, hole):
        return None
    return hole


def _is_known(term: Term) -> bool:
    is_static = not any(isinstance(dim, Sym) for dim in term.shape)
    return is_static and (term.sort == "tensor" or term.op in _ATOMS or term.op in vmath.OPS)


def _plane(
    source: Affine, axis: int, shape: tuple[int, ...], image: Term, windows: Mapping[int, int]
) -> tuple[Plane, list[int]] | None:
    """Read one axis of a window's view; return it with the axis that a fold binds, if there is one."""
    own = [key for key in windows if key in source.variables()]
    stride = source.factor_of(axis)
    if len(own) > 1 or stride is None or source.variables() - {axis, *own}:
        return None
    dilation = source.factor_of(own[0]) if own else 1
    if dilation is None or dilation < 1 or stride < (dim_at(shape, axis) != 1):
        return None
    kernel = windows[own[0]] if own else 1
    extent = shapes.concrete((shapes.dim_at(image.shape, axis),))[0]
    result = dim_at(shape, axis)
    return Plane(extent, result, kernel, max(stride, 1), -source.constant, dilation), own


def dim_at(shape: tuple[int, ...], axis: int) -> int:
    """Return an extent, 1 on axes that a shape does not have."""
    return shape[axis] if -axis <= len(shape) else 1


# ---- clamps ----------------------------------------------------------------------------------------------------------


def clamps(element: Term, index: Index, key: str, extent: int) -> set[int]:
    """Return the values of a variable, in 1 .. extent - 1, at which some index starts or ceases to be clamped."""
    match element.op:
        case "load":
            return _crossings(index, element.args[0].shape, key, extent)
        case "iota":
            axis, size, _ = element.attrs
            return _crossings({-1: index.get(axis, Affine())}, (size,), key, extent)
        case "reindex":
            mapping = element.attrs[0]
            inner = {axis: at for axis, at in index.items() if shapes.dim_at(mapping.result, axis) != 1}
            found = _crossings(inner, mapping.result, key, extent)
            by_key: dict[int | str, Affine] = {a: inner.get(a, Affine()) for a in range(-len(mapping.result), 0)}
            sources = enumerate(mapping.sources, -len(mapping.sources))
            return found | clamps(element.args[0], {a: at.substitute(by_key) for a, at in sources}, key, extent)
        case _:
            return set[int]().union(*(clamps(arg, index, key, extent) for arg in element.args))


def _crossings(index: Index, shape: Shape, key: str, extent: int) -> set[int]:
    found: set[int] = set()
    for axis, size in zip(range(-len(shape), 0), shapes.concrete(shape), strict=True):
        at = index.get(axis, Affine())
        factor = at.factor_of(key)
        if size != 1 and factor and at.variables() == {key}:
            found |= {-((at.constant - limit) // factor) for limit in (0, size)}
    return {place for place in found if 0 < place < extent}
