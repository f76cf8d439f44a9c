"""Bodies that every kernel target must compute as the interpreter does: one list for templates and the plain form.

A template that does not take a case says so by `estimate` returning None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import dtypes, indexing, interpret, program, shapes
from frittata.egraph.indexing import Affine, IndexMap
from frittata.egraph.ops.elements import window_extents
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.program import Estimate, Kernel, Output, Program
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import Scalar, TensorType, Term

Array = NDArray[Any]
TOLERANCE = {"bf16": 2**-8, "f16": 2**-10, "f32": 1e-5, "f64": 1e-12}


@dataclass(frozen=True)
class Case:
    """Bodies of one shape, and how their operands are drawn."""

    name: str
    bodies: tuple[Term, ...]
    special: bool = False
    """Whether operands hold NaN, infinities and zeros."""

    @property
    def operands(self) -> tuple[Term, ...]:
        """The buffers that the bodies read."""
        return tuple(program.operands_of(*self.bodies))

    def values(self, seed: int = 0) -> list[Array]:
        """Draw a value for each operand."""
        rng = np.random.default_rng(seed)
        return [draw(rng, leaf, self.special) for leaf in self.operands]

    def expected(self, values: list[Array]) -> tuple[Array, ...]:
        """Compute the bodies by the law."""
        return interpret.evaluate(self.bodies, dict(zip(self._names(), values, strict=True)))

    def program(self, template: str) -> Program:
        """Return the program of one kernel that computes the bodies."""
        outputs = tuple(Output(f"out{i}", body) for i, body in enumerate(self.bodies))
        kernel = Kernel(self.name, template, outputs, self._names(), Estimate(1, 0, 0))
        inputs = {leaf.attrs[0]: TensorType(leaf.shape, leaf.dtype) for leaf in self.operands}
        return Program(inputs, {}, (kernel,), tuple(output.name for output in outputs))

    def _names(self) -> tuple[str, ...]:
        return tuple(leaf.attrs[0] for leaf in self.operands)


def draw(rng: np.random.Generator, leaf: Term, special: bool) -> Array:
    """Draw values of a tensor's type."""
    shape = shapes.concrete(leaf.shape)
    if leaf.dtype == "bool":
        return rng.random(shape) < 0.5
    if dtypes.is_integer(leaf.dtype):
        return rng.integers(-9, 10, shape).astype(dtypes.to_numpy(leaf.dtype))
    value = rng.standard_normal(shape)
    if special:
        odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0])[rng.integers(0, 5, shape)]
        value = np.where(rng.random(shape) < 0.3, odd, value)
    return value.astype(dtypes.to_numpy(leaf.dtype))


def assert_agrees(case: Case, got: tuple[Array, ...], expected: tuple[Array, ...]) -> None:
    """Compare results with the law: dtype, shape, NaN and infinities exactly, the rest within the tolerance."""
    for body, ours, law in zip(case.bodies, got, expected, strict=True):
        assert ours.dtype == dtypes.to_numpy(body.dtype)
        assert ours.shape == body.shape
        if body.dtype in TOLERANCE:
            finite = law[np.isfinite(law)]
            scale = max(1.0, float(np.abs(finite).max(initial=0.0)))
            tolerance = TOLERANCE[body.dtype]
            np.testing.assert_allclose(ours.astype(np.float64), law, rtol=tolerance, atol=tolerance * scale)
        else:
            np.testing.assert_array_equal(ours, law)


# ---- writing terms --------------------------------------------------------------------------------------------------


def leaf(name: str, *shape: int, dtype: str = "f32") -> Term:
    return tensor("input", name=name, shape=shape, dtype=dtype)


def load(name: str, *shape: int, dtype: str = "f32") -> Term:
    return element("load", leaf(name, *shape, dtype=dtype))


def number(value: Any, dtype: str = "f32") -> Term:
    return element("const", value=Scalar.of(value, dtype))


def fold(op: str, e: Term, axis: int, extent: int) -> Term:
    return element("fold", e, op=op, axis=axis, extent=extent)


def build(e: Term, *shape: int) -> Term:
    return tensor("build", e, shape=shape)


def reindex(e: Term, mapping: IndexMap) -> Term:
    return element("reindex", e, map=mapping)


def transposed(e: Term) -> Term:
    """Swap the last two axes."""
    rank = len(e.shape)
    order = (*range(rank - 2), rank - 1, rank - 2)
    return reindex(e, indexing.permute_map(shapes.concrete(e.shape), order))


def joined(parts: list[Term]) -> Term:
    """Return a concatenation of elements over as many rows along the last axis, by halves."""
    if len(parts) == 1:
        return parts[0]
    sides = joined(parts[: len(parts) // 2]), joined(parts[len(parts) // 2 :])
    rows, first, second = (*sides[0].shape[:1], *(side.shape[1] for side in sides))
    assert isinstance(rows, int) and isinstance(first, int) and isinstance(second, int)
    extent = first + second
    index = indexing.axes_of((rows, extent))
    before, after = (
        reindex(side, IndexMap((rows, width), (rows, extent), (index[0], index[1] + -start)))
        for side, width, start in zip(sides, (first, second), (0, first), strict=True)
    )
    place = element("iota", axis=-1, extent=extent, dtype="i32")
    return element("where", element("lt", place, number(first, "i32")), before, after)


def softmax(e: Term, axis: int, extent: int) -> Term:
    shifted = element("exp", element("sub", e, fold("max", e, axis, extent)))
    return element("div", shifted, fold("sum", shifted, axis, extent))


def mean(e: Term, extent: int) -> Term:
    return element("mul", fold("sum", e, -1, extent), number(1 / extent, e.dtype))


def layer_norm(e: Term, weight: Term, bias: Term, extent: int) -> Term:
    centred = element("sub", e, mean(e, extent))
    scale = element("rsqrt", element("add", mean(element("square", centred), extent), number(1e-5, e.dtype)))
    return element("add", element("mul", element("mul", centred, scale), weight), bias)


def gelu(e: Term) -> Term:
    erf = element("erf", element("mul", e, number(0.5**0.5, e.dtype)))
    return element("mul", element("mul", e, number(0.5, e.dtype)), element("add", erf, number(1, e.dtype)))


# ---- the cases ------------------------------------------------------------------------------------------------------


def _pointwise() -> Iterator[Case]:
    for dtype in ("f32", "f64"):
        x, y = load("x", 7, 17, dtype=dtype), load("y", 17, dtype=dtype)
        for name in ("add", "sub", "mul", "div", "max", "min"):
            yield Case(f"{name}-{dtype}", (build(element(name, x, y), 7, 17),), special=True)
        bounded = element("add", element("abs", x), number(0.5, dtype))
        powers = element("add", element("pow", bounded, y), element("fma", x, y, bounded))
        roots = element("add", element("sqrt", bounded), element("mul", element("log", bounded), element("sign", x)))
        yield Case(f"powers-{dtype}", (build(element("add", powers, roots), 7, 17),))
        total = element("neg", element("reciprocal", bounded))
        for name in ("rsqrt", "square"):
            total = element("add", total, element(name, bounded))
        for name in ("sin", "cos", "floor", "ceil", "round"):
            total = element("add", total, element(name, x))
        yield Case(f"unary-{dtype}", (build(total, 7, 17),))
        for name in ("mod", "floordiv"):
            large = element("mul", x, number(1e6, dtype))
            pair = build(element(name, x, y), 7, 17), build(element(name, large, y), 7, 17)
            yield Case(f"{name}-{dtype}", pair, special=True)
        for name in ("exp", "expm1", "log1p", "atan", "tanh", "erf", "sigmoid"):
            yield Case(f"{name}-{dtype}", (build(element(name, x), 7, 17),), special=True)
    x, flag = load("x", 3, 5), load("flag", 5, dtype="bool")
    low, high = element("lt", x, number(0)), element("ge", x, number(1))
    ordered = element("and", element("or", low, flag), element("not", high))
    picked = element("where", ordered, x, element("cast", element("eq", x, x), dtype="f32"))
    apart = element("or", element("gt", x, number(1)), element("ne", x, x))
    yield Case("logic", (build(element("or", ordered, apart), 3, 5), build(picked, 3, 5)), special=True)
    i, j = load("i", 4, 5, dtype="i32"), load("j", 4, 5, dtype="i64")
    mixed = element("mul", element("cast", i, dtype="i64"), element("max", j, number(2, "i64")))
    small = element("sub", element("mul", i, number(2**28, "i32")), element("abs", element("neg", i)))
    real = element("add", element("cast", element("sign", j), dtype="f32"), element("cast", i, dtype="f32"))
    yield Case("integers", (build(mixed, 4, 5), build(small, 4, 5), build(real, 4, 5)))
    for whole in (i, j):
        k = load("k", 5, dtype=whole.dtype)
        names = ("mod", "floordiv", "bitwise_and", "bitwise_or", "bitwise_xor")
        yield Case(f"whole-{whole.dtype}", tuple(build(element(name, whole, k), 4, 5) for name in names))
        ways = ((name, by) for name in ("left_shift", "right_shift") for by in (k, element("square", k)))
        yield Case(f"shifts-{whole.dtype}", tuple(build(element(name, whole, by), 4, 5) for name, by in ways))
    truncated = element("cast", element("mul", load("x", 17), number(3)), dtype="i32")
    nonzero = element("cast", truncated, dtype="bool")
    yield Case("casts", (build(truncated, 17), build(nonzero, 17), build(element("cast", nonzero, dtype="i64"), 17)))
    yield Case("gelu-bias", (build(gelu(element("add", load("x", 33, 40), load("b", 40))), 33, 40),))
    yield Case("scalar", (build(element("add", load("x"), number(1)),),))
    yield Case("constant", (build(number(2.5), 3, 4),))
    yield Case("ones", (build(element("exp", load("x", 1, 1, 1)), 1, 1, 1),))


def _narrow(dtype: str) -> Iterator[Case]:
    """Yield moves, choices and sums of values that are stored narrow, and casts from each dtype."""
    wide = dtypes.wide(dtype)
    x, y, flag = load("x", 3, 5, 7, dtype=dtype), load("y", 7, dtype=dtype), load("flag", 5, 1, dtype="bool")
    turned = reindex(x, indexing.permute_map((3, 5, 7), (2, 0, 1)))
    yield Case(f"move-{dtype}", (build(turned, 7, 3, 5),), special=True)
    picked = element("where", flag, x, y)
    bounded = element("where", flag, number(3, dtype), x)
    yield Case(f"where-{dtype}", (build(picked, 3, 5, 7), build(bounded, 3, 5, 7)), special=True)
    total = fold("sum", element("cast", x, dtype=wide), -1, 7)
    yield Case(f"sum-{dtype}", (build(element("cast", total, dtype=dtype), 3, 5, 1),))
    sources = ("bool", "i32", "i64", "f32", "f64")
    there = [element("cast", load(source, 131, dtype=source), dtype=dtype) for source in sources]
    back = [element("cast", load("x", 131, dtype=dtype), dtype=source) for source in sources]
    yield Case(f"cast-{dtype}", tuple(build(e, 131) for e in (*there, *back)))
    table = reindex(load("t", 9, 6, dtype=dtype), indexing.permute_map((9, 6), (0, 1)))
    row = within(load("i", 4, 1, dtype="i64"), 9)
    yield Case(f"look-up-{dtype}", (build(element("at", table, row, axis=-2, extent=9), 4, 6),))
    ways = (element("cast", load(n, *s, dtype=dtype), dtype=wide) for n, s in (("a", (7, 33)), ("b", (33, 17))))
    product = element("dot", *ways, depth=33)
    yield Case(f"dot-{dtype}", (build(element("cast", product, dtype=dtype), 7, 17),))


def _indices() -> Iterator[Case]:
    broadcast = element("add", element("mul", load("x", 3, 1, 5), load("y", 4, 1)), load("z", 2, 1, 1, 1))
    yield Case("broadcast", (build(broadcast, 2, 3, 4, 5),))
    causal = element("le", element("iota", axis=-1, extent=7), element("iota", axis=-2, extent=5))
    masked = element("where", causal, load("x", 5, 7), number(float("-inf")))
    yield Case("causal", (build(softmax(masked, -1, 7), 5, 7),))
    x = load("x", 3, 4, 5)
    yield Case("transpose", (build(reindex(x, indexing.permute_map((3, 4, 5), (2, 0, 1))), 5, 3, 4),))
    yield Case("slice", (build(reindex(x, indexing.slice_map((3, 4, 5), -2, 1, 2, 2)), 3, 2, 5),))
    yield Case("reshape", (build(reindex(x, indexing.reshape_map((3, 4, 5), (6, 10))), 6, 10),))
    split = reindex(load("x", 2, 6, 12), indexing.reshape_map((2, 6, 12), (2, 6, 3, 4)))
    heads = reindex(split, indexing.permute_map((2, 6, 3, 4), (0, 2, 1, 3)))
    yield Case("heads", (build(heads, 2, 3, 6, 4),))
    clipped = IndexMap((5,), (9,), (indexing.var(-1, 9) + -2,))
    inside = element("lt", element("iota", axis=-1, extent=9), number(5, "i64"))
    yield Case("clamped", (build(element("where", inside, reindex(load("x", 5), clipped), number(0)), 9),))
    diagonal = IndexMap((4, 4), (4,), (indexing.var(-1, 4), indexing.var(-1, 4)))
    yield Case("diagonal", (build(reindex(load("x", 4, 4), diagonal), 4),))
    narrow = reindex(element("iota", axis=-1, extent=3, dtype="f32"), IndexMap((3,), (6,), (indexing.var(-1, 6),)))
    first = reindex(load("x", 6), IndexMap((6,), (6,), (Affine(),)))
    yield Case("clamped-iota", (build(element("add", narrow, first), 6),))


def within(e: Term, extent: int) -> Term:
    """Return an integer element clamped to the places of an axis, so that any draw of it can be looked up."""
    return element("min", element("max", e, number(0, e.dtype)), number(extent - 1, e.dtype))


def at(e: Term, i: Term, axis: int, extent: int) -> Term:
    """Look an element up at indices that are clamped."""
    return element("at", e, within(i, extent), axis=axis, extent=extent)


def scan(op: str, e: Term, axis: int, extent: int) -> Term:
    return element("scan", e, op=op, axis=axis, extent=extent)


def _lookups() -> Iterator[Case]:
    for dtype in ("i32", "i64"):
        ids = reindex(load("ids", 3, 5, dtype=dtype), indexing.reshape_map((3, 5), (3, 5, 1)))
        rows = reindex(load("w", 9, 17), indexing.reshape_map((9, 17), (9, 1, 1, 17)))
        words = at(rows, ids, -4, 9)
        yield Case(f"rows-{dtype}", (build(words, 3, 5, 17),))
    placed = element("add", words, load("p", 5, 17))
    normed = layer_norm(placed, load("g", 17), load("b", 17), 17)
    yield Case("rows-layer-norm", (build(placed, 3, 5, 17), build(normed, 3, 5, 17)))
    x = load("x", 4, 6, 19)
    yield Case("lanes", (build(at(x, load("i", 4, 6, 21, dtype="i64"), -1, 19), 4, 6, 21),))
    yield Case("columns", (build(at(element("exp", x), load("i", 4, 3, 19, dtype="i64"), -2, 6), 4, 3, 19),))
    yield Case("one-place", (build(at(load("x", 1, 5), load("i", 3, 1, dtype="i32"), -2, 1), 3, 5),))
    first = at(reindex(x, indexing.reshape_map((4, 6, 19), (4, 6, 1, 19))), load("i", 7, 19, dtype="i64"), -3, 6)
    both = at(first, load("j", 7, 19, dtype="i32"), -4, 4)
    yield Case("two-axes", (build(both, 7, 19),))
    numbers = element("iota", axis=-2, extent=5)
    is_there = element("eq", at(numbers, load("i", 13, 1, 1, dtype="i64"), -2, 5), numbers)
    sent = fold("sum", element("where", is_there, element("exp", load("s", 13, 1, 7)), number(0)), -3, 13)
    yield Case("sent-to-places", (build(element("mul", sent, load("y", 7)), 5, 7),))
    chained = at(load("x", 9), at(load("i", 8, dtype="i64"), load("j", 33, dtype="i32"), -1, 8), -1, 9)
    yield Case("looked-up-index", (build(element("mul", chained, load("y", 33)), 33),))
    shifted = element("sub", element("iota", axis=-1, extent=37), number(3, "i64"))
    yield Case("moved-back", (build(at(load("x", 2, 40), shifted, -1, 40), 2, 37),))
    looked = at(load("x", 3, 40), load("i", 3, 17, dtype="i64"), -1, 40)
    yield Case("folded-look-ups", (build(fold("sum", looked, -1, 17), 3, 1),))
    yield Case("softmax-of-look-ups", (build(softmax(looked, -1, 17), 3, 17),))
    down = at(load("x", 40, 9), load("i", 6, 9, dtype="i64"), -2, 40)
    yield Case("folded-down", (build(fold("max", down, -2, 6), 1, 9),))


def _scans() -> Iterator[Case]:
    x = load("x", 5, 7, 17)
    for op, axis, extent in (("sum", -1, 17), ("max", -2, 7), ("min", -3, 5), ("sum", -2, 7)):
        yield Case(f"scan-{op}{axis}", (build(scan(op, element("tanh", x), axis, extent), 5, 7, 17),))
    yield Case("scan-line", (build(element("mul", scan("prod", load("x", 33), -1, 33), load("y", 33)), 33),))
    yield Case("scan-nan", (build(scan("max", load("x", 4, 9), -1, 9), 4, 9),), special=True)
    yield Case("scan-constant", (build(scan("sum", number(0.5), -1, 6), 3, 6),))
    whole = scan("sum", load("i", 3, 8, dtype="i64"), -2, 3)
    yield Case("scan-i64", (build(element("add", whole, load("i", 3, 8, dtype="i64")), 3, 8),))
    yield Case("scan-one", (build(scan("sum", load("x", 5, 1), -1, 1), 5, 1),))
    across = element("add", scan("sum", load("x", 6, 9), -1, 9), scan("sum", load("x", 6, 9), -2, 6))
    yield Case("scan-both-ways", (build(across, 6, 9),))
    running = scan("sum", load("x", 6, 9), -2, 6)
    yield Case("scan-softmax", (build(softmax(running, -1, 9), 6, 9),))


def _folds() -> Iterator[Case]:
    for op in ("sum", "prod", "max", "min"):
        yield Case(f"fold-{op}", (build(fold(op, load("x", 7, 17), -1, 17), 7, 1),))
    yield Case("fold-nan", (build(fold("max", load("x", 9, 3), -1, 3), 9, 1),), special=True)
    for dtype in ("i32", "i64"):
        totals = [fold(op, load("x", 3, 5, dtype=dtype), -2, 3) for op in ("sum", "max", "min")]
        yield Case(f"fold-{dtype}", tuple(build(total, 1, 5) for total in totals))
    yield Case("fold-one", (build(fold("sum", load("x", 5, 1), -1, 1), 5, 1),))
    yield Case("fold-constant", (build(fold("sum", number(0.5), -1, 6), 4),))
    yield Case("fold-outer", (build(element("div", load("x", 6, 5), fold("sum", load("x", 6, 5), -2, 6)), 6, 5),))
    nested = fold("max", fold("sum", element("exp", load("x", 3, 4, 5)), -1, 5), -2, 4)
    yield Case("fold-nested", (build(element("sub", load("x", 3, 4, 5), nested), 3, 4, 5),))
    for extent in (1, 7, 17, 130):
        yield Case(f"softmax-{extent}", (build(softmax(load("x", 5, extent), -1, extent), 5, extent),))
    yield Case("softmax-f64", (build(softmax(load("x", 5, 9, dtype="f64"), -1, 9), 5, 9),))
    yield Case("softmax-special", (build(softmax(load("x", 40, 5), -1, 5), 40, 5),), special=True)
    yield Case("softmax-outer", (build(softmax(load("x", 2, 6, 5), -2, 6), 2, 6, 5),))
    for shape in ((33, 1), (1, 20, 1)):
        name = "x".join(map(str, shape))
        yield Case(f"softmax-column-{name}", (build(softmax(load("x", *shape), -2, shape[-2]), *shape),))
    total = element("add", load("x", 4, 6, 33), load("r", 4, 6, 33))
    normed = layer_norm(total, load("w", 33), load("b", 33), 33)
    yield Case("layer-norm", (build(total, 4, 6, 33), build(normed, 4, 6, 33)))
    wide = layer_norm(load("x", 3, 17, dtype="f64"), load("w", 17, dtype="f64"), load("b", 17, dtype="f64"), 17)
    yield Case("layer-norm-f64", (build(wide, 3, 17),))
    column = element("mul", load("x", 6, 9), element("exp", load("b", 9)))
    yield Case("column", (build(column, 6, 9),))
    large = softmax(element("mul", load("x", 64, 300), number(0.1)), -1, 300)
    yield Case("softmax-large", (build(large, 64, 300),))


def pool(e: Term, op: str, kernel: tuple[int, ...], stride: int, low: int) -> tuple[Term, tuple[int, ...]]:
    """Return folds over windows, the first of which starts `low` outside, and the shape of the result."""
    rank, shape = len(kernel), shapes.concrete(e.shape)
    out = tuple((n + 2 * low - k) // stride + 1 for n, k in zip(shape[-rank:], kernel, strict=True))
    view = indexing.pool_map(shape, kernel, (low,) * rank, (stride,) * rank, (1,) * rank, out)
    folded = reindex(e, view)
    for place, extent in reversed(list(enumerate(kernel))):
        folded = fold(op, folded, place - rank - len(shape), extent)
    return folded, (*shape[:-rank], *out)


def padded(e: Term, margin: int, value: float) -> Term:
    """Return an image with a margin on its last axis, as a condition on the index."""
    shape = shapes.concrete(e.shape)
    place = element("iota", axis=-1, extent=shape[-1] + 2 * margin, dtype="i32")
    low, high = (element(op, place, number(n, "i32")) for op, n in (("ge", margin), ("lt", margin + shape[-1])))
    amounts = (*(0,) * (len(shape) - 1), margin)
    moved = reindex(e, indexing.pad_map(shape, amounts, amounts))
    return element("where", element("and", low, high), moved, number(value, e.dtype))


def _pools() -> Iterator[Case]:
    largest, shape = pool(load("x", 2, 3, 9, 17), "max", (3, 3), 2, 1)
    yield Case("pool-max", (build(element("add", largest, load("b", 3, 1, 1)), *shape),), special=True)
    total, shape = pool(padded(element("exp", load("x", 3, 7, 9)), 1, 0), "sum", (2, 3), 1, 0)
    yield Case("pool-mean", (build(element("mul", total, number(1 / 6)), *shape),))
    least, shape = pool(load("x", 3, 11, dtype="f64"), "min", (4,), 3, 1)
    yield Case("pool-lines", (build(least, *shape),), special=True)


def _contractions() -> Iterator[Case]:
    for m, k, n in ((1, 1, 1), (1, 17, 33), (7, 33, 17), (64, 40, 48), (130, 7, 1)):
        yield Case(f"dot-{m}x{k}x{n}", (build(element("dot", load("a", m, k), load("b", k, n), depth=k), m, n),))
    heads = element("dot", load("a", 2, 8, 20), transposed(load("b", 2, 8, 20)), depth=20)
    yield Case("dot-quads", (build(element("add", heads, load("r", 2, 8, 8)), 2, 8, 8),))
    pair = element("dot", load("a", 5, 9, dtype="f64"), load("b", 9, 6, dtype="f64"), depth=9)
    yield Case("dot-f64", (build(pair, 5, 6),))
    batched = element("dot", load("a", 3, 1, 6, 7), load("b", 2, 7, 5), depth=7)
    yield Case("dot-batched", (build(batched, 3, 2, 6, 5),))
    weights = transposed(load("w", 20, 12))
    linear = element("add", element("dot", load("x", 2, 5, 12), weights, depth=12), load("b", 20))
    yield Case("linear-gelu", (build(gelu(linear), 2, 5, 20),))
    yield Case("linear-layer-norm", (build(layer_norm(linear, load("g", 20), load("h", 20), 20), 2, 5, 20),))
    prologue = element("dot", element("exp", load("a", 6, 8)), element("tanh", load("b", 8, 5)), depth=8)
    yield Case("dot-prologue", (build(prologue, 6, 5),))
    scores = element("mul", element("dot", load("q", 2, 7, 16), load("k", 2, 16, 9), depth=16), number(0.25))
    yield Case("attention", (build(element("dot", softmax(scores, -1, 9), load("v", 2, 9, 16), depth=9), 2, 7, 16),))
    whole = element("dot", load("a", 4, 3, dtype="i64"), load("b", 3, 5, dtype="i64"), depth=3)
    yield Case("dot-i64", (build(whole, 4, 5),))
    sides = (("a", (7, 37), "u8"), ("b", (37, 17), "i8"))
    bytes_ = (element("cast", load(name, *shape, dtype=dtype), dtype="i32") for name, shape, dtype in sides)
    yield Case("dot-bytes", (build(element("dot", *bytes_, depth=37), 7, 17),))
    for channels in (8, 6):  # windows of 3 x 3 with the channels last: rows of three lines each
        shape, depth = (2, 3, 3, 9 * channels), 9 * channels
        image, line, column, k = (indexing.var(axis - 4, extent) for axis, extent in enumerate(shape))
        place = (image, line * 2 + k // (3 * channels), column * 2 + k // channels % 3, k % channels)
        windows = reindex(load("x", 2, 7, 7, channels), IndexMap((2, 7, 7, channels), shape, place))
        body = element("dot", windows, load("w", depth, 12), depth=depth)
        yield Case(f"dot-windows-{channels}", (build(body, 2, 3, 3, 12),))


def window(
    x: Term, w: Term, source: Shape, kernel: tuple[int, ...], stride: int, padding: int, dilation: int, groups: int = 1
) -> Term:
    """Return a convolution with the same stride, padding and dilation on each axis."""
    rank = len(kernel)
    attrs = ((stride,) * rank, (padding,) * rank, (dilation,) * rank)
    names = dict(zip(("stride", "padding", "dilation"), attrs, strict=True))
    return element("window_dot", x, w, source=source, channels=w.shape[0], kernel=kernel, groups=groups, **names)


def _windows() -> Iterator[Case]:
    sizes = [  # batch, inputs, extents, outputs, kernel, stride, padding, dilation, groups
        (2, 3, (9, 7), 4, (3, 3), 1, 1, 1, 1),
        (1, 4, (9, 9), 6, (3, 3), 2, 0, 1, 2),
        (1, 2, (11, 11), 3, (3, 3), 1, 2, 2, 1),
        (2, 5, (6, 6), 7, (1, 1), 1, 0, 1, 1),
        (1, 6, (8, 8), 6, (3, 3), 1, 1, 1, 6),
        (1, 3, (12, 12), 4, (7, 7), 2, 3, 1, 1),
        (2, 3, (17,), 5, (4,), 2, 1, 1, 1),
        (1, 2, (4, 5, 6), 3, (2, 3, 2), 1, 1, 1, 1),
        (3, 8, (6, 6), 6, (3, 3), 1, 1, 2, 2),
        (2, 2, (4, 4), 2, (5, 5), 1, 2, 1, 1),
    ]
    for batch, inputs, extents, outputs, kernel, stride, padding, dilation, groups in sizes:
        x = load("x", batch, inputs, *extents)
        w = load("w", outputs, inputs // groups, *kernel)
        rank = len(kernel)
        out = window_extents(extents, kernel, (stride,) * rank, (padding,) * rank, (dilation,) * rank)
        body = window(x, w, (inputs, *extents), kernel, stride, padding, dilation, groups)
        name = f"window-{'x'.join(map(str, kernel))}-s{stride}-p{padding}-d{dilation}-g{groups}"
        yield Case(name, (build(body, batch, outputs, *out),))
    x = element("max", load("x", 1, 3, 6, 6), number(0))
    scaled = window(x, element("mul", load("w", 4, 3, 3, 3), load("s", 4, 1, 1, 1)), (3, 6, 6), (3, 3), 1, 1, 1)
    bias = element("add", element("add", scaled, load("b", 4, 1, 1)), load("r", 1, 4, 6, 6))
    yield Case("window-fused", (build(element("max", bias, number(0)), 1, 4, 6, 6),))


def _products_of_halves() -> Iterator[Case]:
    """Yield products whose sides lie in memory as halves, or are computed of some, with other work behind them."""

    def side(name: str, *shape: int, dtype: str, turned: Sequence[int] = ()) -> Term:
        e = load(name, *shape, dtype=dtype)
        e = reindex(e, indexing.permute_map(shape, tuple(turned))) if turned else e
        return element("cast", e, dtype="f32")

    def product(name: str, left: Term, right: Term, dtype: str, *shape: int) -> Case:
        total = element("dot", left, right, depth=left.shape[-1])
        return Case(f"halves-{name}", (build(element("cast", total, dtype=dtype), *shape),))

    for dtype in ("bf16", "f16"):
        a = side("a", 18, 40, dtype=dtype)
        yield product(dtype, a, side("b", 40, 24, dtype=dtype), dtype, 18, 24)
        yield product(f"turned-{dtype}", a, side("b", 21, 40, dtype=dtype, turned=(1, 0)), dtype, 18, 21)
    ragged = side("a", 37, 24, dtype="f16", turned=(1, 0)), side("b", 37, 19, dtype="f16")
    yield product("ragged", *ragged, "f16", 24, 19)
    q = side("q", 2, 7, 3, 16, dtype="bf16", turned=(0, 2, 1, 3))
    yield product("heads", q, side("k", 2, 9, 3, 16, dtype="bf16", turned=(0, 2, 3, 1)), "f32", 2, 3, 7, 9)
    rounded = element("cast", element("cast", element("exp", load("y", 40)), dtype="bf16"), dtype="f32")
    bounded = element("max", side("a", 9, 40, dtype="bf16"), number(0))
    computed = element("where", load("flag", 9, 1, dtype="bool"), bounded, rounded)
    yield product("computed", computed, side("b", 40, 24, dtype="bf16"), "bf16", 9, 24)
    total = element("dot", side("a", 17, 24, dtype="bf16"), side("b", 24, 24, dtype="bf16"), depth=24)
    dense = gelu(element("add", total, side("bias", 24, dtype="bf16")))
    behind = element("add", dense, side("r", 17, 24, dtype="bf16"))
    yield Case("halves-behind", (build(element("cast", behind, dtype="bf16"), 17, 24), build(dense, 17, 24)))
    yield product("blocks", side("a", 200, 136, dtype="bf16"), side("b", 136, 264, dtype="bf16"), "bf16", 200, 264)
    image = window(side("x", 1, 3, 6, 6, dtype="bf16"), side("w", 4, 3, 3, 3, dtype="bf16"), (3, 6, 6), (3, 3), 1, 1, 1)
    yield Case("halves-window", (build(element("cast", image, dtype="bf16"), 1, 4, 6, 6),))


def random_case(seed: int) -> Case:
    """Draw a body of scalar operators, folds, views and contractions."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 7], 3))
    dtype = str(rng.choice(["f32", "f64"]))
    grower = _Grower(rng, shape, dtype)
    return Case(f"random-{seed}", (build(grower.element(4), *shape), build(grower.element(3), *shape)))


class _Grower:
    """Grows random elements of one shape, which now and then use an element twice."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> None:
        self._rng, self._shape, self._dtype = rng, shape, dtype
        self._grown: list[Term] = []
        self._leaves = 0

    def element(self, depth: int) -> Term:
        if self._grown and self._rng.random() < 0.25:
            return self._grown[self._rng.integers(len(self._grown))]
        makers: list[Callable[[int], Term]] = [self._unary, self._binary, self._fold, self._view, self._dot]
        grown = makers[self._rng.integers(len(makers))](depth - 1) if depth else self._load(self._shape)
        self._grown.append(grown)
        return grown

    def _load(self, shape: tuple[int, ...]) -> Term:
        self._leaves += 1
        kept = tuple(extent if self._rng.random() < 0.8 else 1 for extent in shape)
        return load(f"x{self._leaves}", *kept, dtype=self._dtype)

    def _unary(self, depth: int) -> Term:
        return element(str(self._rng.choice(["tanh", "neg", "abs", "sigmoid", "sin"])), self.element(depth))

    def _binary(self, depth: int) -> Term:
        op = str(self._rng.choice(["add", "sub", "mul", "max", "min"]))
        return element(op, self.element(depth), self.element(depth))

    def _fold(self, depth: int) -> Term:
        axis = int(self._rng.integers(-3, 0))
        op = str(self._rng.choice(["sum", "max", "min"]))
        return fold(op, self.element(depth), axis, self._shape[axis])

    def _view(self, depth: int) -> Term:
        """Shift axes, so that indices run out of range and are clamped."""
        shifts = self._rng.integers(-1, 2, 3) * (self._rng.random(3) < 0.5)
        axes = tuple(indexing.var(i - 3, n) + int(shifts[i]) for i, n in enumerate(self._shape))
        return reindex(self.element(depth), IndexMap(self._shape, self._shape, axes))

    def _dot(self, depth: int) -> Term:
        k = int(self._rng.choice([1, 5]))
        left, right = self._load((*self._shape[:-1], k)), self._load((self._shape[0], k, self._shape[-1]))
        return element("tanh", element("dot", element("abs", left), right, depth=k))


CASES: tuple[Case, ...] = (
    *_pointwise(), *_indices(), *_lookups(), *_scans(), *_folds(), *_pools(), *_contractions(), *_windows(),
    *_products_of_halves(),
    *(case for dtype in dtypes.NARROW for case in _narrow(dtype)),
)  # fmt: skip
RANDOM_CASES: tuple[Case, ...] = tuple(map(random_case, range(4)))


def case_named(name: str) -> Case:
    """Return one of the cases that have names."""
    return next(case for case in CASES if case.name == name)
