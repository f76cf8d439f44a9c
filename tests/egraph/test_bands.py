"""Lines of kernels over images: computed one by one, of the elements that each says it reads, they are the whole."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from kernel_cases import Array, build, element, fold, leaf, number, reindex, scan

from frittata.egraph import interpret, shapes
from frittata.egraph.bands import Line, line_of
from frittata.egraph.indexing import (
    Affine,
    IndexMap,
    axes_of,
    compose,
    flatten,
    pad_map,
    permute_map,
    pool_map_last,
    resample_map,
    slice_map,
    var,
)
from frittata.egraph.ops import registry
from frittata.egraph.program import operands_of
from frittata.egraph.terms import Term

SHAPE = (3, 6, 6, 4)
X = element("load", leaf("x", *SHAPE))
ONE = element("load", leaf("y", 1, 6, 6, 4))
TURNED = reindex(ONE, permute_map((1, 6, 6, 4), (0, 2, 1, 3)))
WINDOWS = reindex(ONE, pool_map_last((1, 6, 6, 4), (3, 2), (0, 0), (2, 1), (1, 2), (2, 4)))
FRAMED = element("load", leaf("z", 5, 9, 6, 4))
INSIDE = compose(slice_map((5, 6, 6, 4), -4, 1, 1, 3), slice_map((5, 9, 6, 4), -3, 2, 1, 6))
SLID = pool_map_last((1, 6, 6, 4), (3, 2), (0, 0), (1, 1), (1, 1), (4, 5))
FOLDED = compose(SLID, slice_map((1, 9, 6, 4), -3, 2, 1, 6))
LONG = element("load", leaf("v", 1, 9, 6, 4))
WEIGHTS = element("load", leaf("w", 4, 5))
ROWS = element("dot", element("load", leaf("r", 36, 4)), WEIGHTS, depth=4)
IN_ONE = IndexMap((36, 5), (6, 6, 5), (var(-3, 6) * 6 + var(-2, 6), var(-1, 5)))
HIGH = element("load", leaf("h", 6, 6, 4))
COLUMNS = permute_map((6, 6, 5), (2, 0, 1))
COLUMN = IndexMap((6, 1), (6, 6, 4), (var(-3, 6), var(-3, 6)))


def among(e: Term, shape: tuple[int, ...], memory: tuple[int, ...], *low: int) -> Term:
    """A body that is written into larger memory, from an index on."""
    at = flatten(tuple(axis + start for axis, start in zip(axes_of(shape), low, strict=True)), memory)
    return registry.tensor("part", e, shape=shape, at=at + -at.evaluate(lambda _: 0))


BODIES = {
    "pointwise": build(element("mul", ONE, number(2)), 1, 6, 6, 4),
    "images": among(element("exp", X), SHAPE, SHAPE, 0, 0, 0, 0),
    "a border": among(element("exp", X), SHAPE, (3, 8, 9, 4), 0, 1, 2, 0),
    "columns": build(TURNED, 1, 6, 6, 4),
    "lines and columns": build(element("sub", ONE, TURNED), 1, 6, 6, 4),
    "columns and lines": build(element("sub", TURNED, ONE), 1, 6, 6, 4),
    "windows": build(fold("sum", fold("max", WINDOWS, -5, 2), -6, 3), 1, 2, 4, 4),
    "a sum of all lines": build(element("add", ONE, fold("sum", ONE, -3, 6)), 1, 6, 6, 4),
    "every other": build(reindex(ONE, slice_map((1, 6, 6, 4), -3, 1, 2, 3)), 1, 3, 6, 4),
    "inside": among(reindex(FRAMED, INSIDE), SHAPE, SHAPE, 0, 0, 0, 0),
    "windows inside": build(fold("sum", fold("max", reindex(LONG, FOLDED), -5, 2), -6, 3), 1, 4, 5, 4),
    "products": among(element("dot", X, WEIGHTS, depth=4), (3, 6, 6, 5), (3, 6, 6, 5), 0, 0, 0, 0),
    "products of rows in one": build(reindex(ROWS, IN_ONE), 1, 6, 6, 5),
    "products of each line": build(element("dot", HIGH, element("load", leaf("g", 6, 4, 5)), depth=4), 6, 6, 5),
    "among axes of one": build(element("exp", element("load", leaf("u", 1, 1, 6, 6, 4))), 1, 1, 6, 6, 4),
    "beside a column": build(reindex(element("load", leaf("c", 6, 1)), COLUMN), 1, 6, 6, 4),
    "channels beside": build(element("add", ONE, element("load", leaf("b", 4))), 1, 6, 6, 4),
}


@pytest.mark.parametrize("name", BODIES)
def test_lines_are_the_whole(name: str) -> None:
    body = BODIES[name]
    rng = np.random.default_rng(0)
    given = {term.attrs[0]: rng.normal(size=term.attrs[1]) for term in operands_of(body)}
    line = line_of(body, "out")
    assert line is not None
    whole, places = computed(body, given)
    assert line.images * line.count * prod(shapes.concrete(line.body.shape)) == whole.size
    memory = np.full(places.max() + 1, np.nan)
    for image in range(line.images):
        for y in range(line.count):
            value, here = computed(line.body, {leaf: read(line, leaf, given, image, y) for leaf in line.reads})
            assert here.max() == line.writes.length - 1
            memory[here + (line.writes.start + image * line.writes.image + y * line.writes.step)] = value
    np.testing.assert_allclose(memory[places], whole, rtol=1e-12)
    assert np.isnan(np.delete(memory, places)).all()


def computed(body: Term, given: dict[str, Array]) -> tuple[Array, Array]:
    """Return the values of a body, in order, and where each is written."""
    (value,) = interpret.evaluate((build(body.args[0], *shapes.concrete(body.shape)),), given)
    if body.op == "build":
        return value.reshape(-1), np.arange(value.size)
    axes = dict(zip(range(-value.ndim, 0), np.indices(value.shape), strict=True))
    return value.reshape(-1), body.attrs[1].evaluate(axes.__getitem__).reshape(-1)


def read(line: Line, leaf: str, given: dict[str, Array], image: int, y: int) -> Array:
    """Return what stands for a leaf of a line's body: of the buffer only what the line says that it reads."""
    span = line.reads[leaf]
    start = span.start + image * span.image + y * span.step
    values = given[span.buffer].reshape(-1)[start : start + span.length]
    assert len(values) == span.length
    (shape,) = (term.attrs[1] for term in operands_of(line.body) if term.attrs[0] == leaf)
    return np.concatenate([values, np.full(prod(shape) - span.length, np.nan)]).reshape(shape)


def _turned() -> Term:
    sources = list(axes_of((1, 6, 6, 4)))
    sources[-3] = sources[-3] * -1 + 5
    return reindex(ONE, IndexMap((1, 6, 6, 4), (1, 6, 6, 4), tuple(sources)))


def _placed(at: Affine) -> Term:
    """A body of which line y begins at a place of its own."""
    return registry.tensor("part", ONE, shape=(1, 6, 6, 4), at=at + var(-2, 6) * 4 + var(-1, 4))


UNLIKE = {
    "the other way round": build(_turned(), 1, 6, 6, 4),
    "each line twice": build(reindex(ONE, resample_map((1, 6, 6, 4), -3, 12, 0, 1, 2)), 1, 12, 6, 4),
    "clamped": build(reindex(ONE, slice_map((1, 6, 6, 4), -3, 1, 1, 6)), 1, 6, 6, 4),
    "a diagonal": build(reindex(ONE, IndexMap((6, 6, 4), (6, 6, 4), (var(-3, 6), var(-3, 6), var(-1, 4)))), 6, 6, 4),
    "columns of products": build(reindex(element("dot", HIGH, WEIGHTS, depth=4), COLUMNS), 5, 6, 6),
    "places": build(element("add", ONE, element("iota", axis=-3, extent=6, dtype="f32")), 1, 6, 6, 4),
    "sums up to a line": build(scan("sum", ONE, -3, 6), 1, 6, 6, 4),
    "a single line": build(element("load", leaf("s", 1, 6, 4)), 1, 6, 4),
    "images of images": build(element("load", leaf("t", 2, 3, 6, 6, 4)), 2, 3, 6, 6, 4),
    "written the other way round": _placed(axes_of((1, 6, 6, 4))[-3] * -24 + 120),
    "written from a place on": _placed(axes_of((1, 6, 6, 4))[-3] * 24 + 1),
    "a border that is read": build(reindex(ONE, pad_map((1, 6, 6, 4), (0, 1, 0, 0), (0, 0, 0, 0))), 1, 7, 6, 4),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_lines_that_are_not_alike_are_none(name: str) -> None:
    assert line_of(UNLIKE[name], "out") is None
