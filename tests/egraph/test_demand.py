"""What is read in part is computed in part: the same values, from fewer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
import pytest

from frittata.egraph import shapes
from frittata.egraph.demand import narrowed
from frittata.egraph.model import Function, Model
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.terms import Term


def leaf(name: str, *shape: int) -> Term:
    return tensor("input", name=name, shape=shape, dtype="f64")


def cut(x: Term, axis: int, start: int, length: int, step: int = 1) -> Term:
    return tensor("slice", x, axis=axis, start=start, step=step, length=length)


def model_of(*outputs: Term) -> Model:
    inputs = {term for output in outputs for term in _leaves(output)}
    return Model({"main": Function(tuple(sorted(inputs, key=lambda term: term.attrs[0])), outputs)})


def _leaves(term: Term) -> set[Term]:
    return {term} if term.op == "input" else {found for arg in term.args for found in _leaves(arg)}


def assert_same(before: Model, after: Model, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    values = [rng.normal(size=shapes.concrete(term.shape)) for term in before.main.inputs]
    for found, wanted in zip(after.interpret(*values), before.interpret(*values), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


X, W, B = leaf("x", 2, 12, 8), leaf("w", 8, 10), leaf("b", 10)
PRODUCT = tensor("matmul", X, W)
SQUARE, OTHER = leaf("x", 6, 6), leaf("y", 6, 6)
LONG = tensor("exp", leaf("x", 40, 3))
CONV = tensor("conv", leaf("i", 6, 3, 7, 7), leaf("k", 8, 3, 3, 3), stride=(1, 1), padding=(1, 1))
GROUPS = tensor("conv", leaf("i", 6, 4, 7, 7), leaf("k", 8, 2, 3, 3), stride=(1, 1), padding=(1, 1), groups=2)
Q, K, V = leaf("q", 2, 9, 4), leaf("k", 2, 9, 4), leaf("v", 2, 9, 6)

MOVED: dict[str, tuple[Term, str]] = {
    "rows": (cut(tensor("relu", tensor("add", PRODUCT, B)), -2, 0, 1), "f64[2, 1, 10] = matmul"),
    "columns": (cut(tensor("add", PRODUCT, B), -1, 6, 4), "f64[2, 12, 4] = matmul"),
    "rows of a square": (cut(tensor("matmul", SQUARE, OTHER), -2, 1, 2), "f64[2, 6] = matmul"),
    "columns of a square": (cut(tensor("matmul", SQUARE, OTHER), -1, 1, 2), "f64[6, 2] = matmul"),
    "rows of a square layer": (cut(tensor("linear", SQUARE, OTHER, leaf("b", 6)), -2, 1, 2), "f64[2, 6] = linear"),
    "columns of a square layer": (cut(tensor("linear", SQUARE, OTHER, leaf("b", 6)), -1, 1, 2), "f64[6, 2] = linear"),
    "a batch": (cut(tensor("matmul", X, leaf("y", 2, 8, 5)), -3, 1, 1), "f64[1, 12, 5] = matmul"),
    "steps": (cut(tensor("gelu", PRODUCT), -2, 1, 6, 2), "f64[2, 6, 10] = gelu"),
    "steps of steps": (
        tensor("concat", cut(LONG, -2, 1, 10, 2), cut(LONG, -2, 3, 5, 4), axis=-2), "f64[10, 3] = exp"
    ),
    "rows of a layer": (cut(tensor("linear", X, leaf("v", 10, 8), B), -2, 0, 5), "f64[2, 5, 10] = linear"),
    "a layer": (cut(tensor("linear", X, leaf("v", 10, 8), B), -1, 0, 5), "f64[2, 12, 5] = linear"),
    "a norm": (cut(tensor("layer_norm", X, leaf("g", 8), leaf("h", 8)), -2, 3, 2), "f64[2, 2, 8] = layer_norm"),
    "a softmax": (cut(tensor("softmax", X, axis=-1), -2, 3, 2), "f64[2, 2, 8] = softmax"),
    "a sum": (cut(tensor("reduce_sum", X, axis=-1), -2, 3, 2), "f64[2, 2, 1] = reduce_sum"),
    "a permutation": (cut(tensor("permute", PRODUCT, permutation=(1, 0, 2)), -3, 3, 2), "f64[2, 2, 10] = matmul"),
    "axes in one": (cut(tensor("reshape", PRODUCT, shape=(2, 1, 12, 2, 5)), -3, 3, 2), "f64[2, 2, 10] = matmul"),
    "an expansion": (cut(tensor("exp", tensor("expand", B, shape=(4, 10))), -2, 0, 1), "f64[1, 10] = expand"),
    "an expansion of a number": (
        cut(tensor("expand", tensor("expand", leaf("n"), shape=()), shape=(4, 10)), -2, 0, 1), "f64[1, 10] = expand"
    ),
    "images": (cut(CONV, -4, 1, 2), "f64[2, 8, 7, 7] = conv"),
    "channels": (cut(tensor("relu", CONV), -3, 0, 4), "f64[6, 4, 7, 7] = conv"),
    "channels of a batch norm": (
        cut(tensor("batch_norm", CONV, *(leaf(name, 8) for name in "mnop"), eps=40.0), -3, 2, 3),
        "f64[6, 3, 7, 7] = batch_norm",
    ),
    "queries": (cut(tensor("attention", Q, K, V, scale=0.5), -2, 2, 3), "f64[2, 3, 6] = attention"),
    "square queries": (cut(tensor("attention", SQUARE, OTHER, SQUARE, scale=0.5), -2, 2, 3), "f64[3, 6] = attention"),
    "square depth": (cut(tensor("attention", SQUARE, OTHER, SQUARE, scale=0.5), -1, 2, 3), "f64[6, 3] = attention"),
    "depth": (cut(tensor("attention", Q, K, V, scale=0.5), -1, 2, 3), "f64[2, 9, 3] = attention"),
    "the last query": (cut(tensor("causal_attention", Q, K, V, scale=0.5), -2, 8, 1), "f64[2, 1, 6] = attention"),
    "the last square query": (
        cut(tensor("causal_attention", SQUARE, OTHER, SQUARE, scale=0.5), -2, 5, 1), "f64[1, 6] = attention"
    ),
    "a part of the last square query": (
        cut(cut(tensor("causal_attention", SQUARE, OTHER, SQUARE, scale=0.5), -2, 5, 1), -1, 2, 3),
        "f64[1, 3] = attention",
    ),
    "square depth of the past": (
        cut(tensor("causal_attention", SQUARE, OTHER, SQUARE, scale=0.5), -1, 2, 3), "f64[6, 3] = causal_attention"
    ),
    "a query among more than keys": (
        cut(tensor("causal_attention", LONG, leaf("k", 9, 3), leaf("v", 9, 6), scale=0.5), -2, 8, 1),
        "f64[1, 6] = attention",
    ),
    "under a square mask": (
        cut(tensor("masked_attention", SQUARE, OTHER, SQUARE, OTHER, scale=0.5), -1, 2, 3),
        "f64[6, 3] = masked_attention",
    ),
    "under a mask": (
        cut(tensor("masked_attention", Q, K, V, leaf("m", 9, 9), scale=0.5), -2, 2, 3),
        "f64[2, 3, 6] = masked_attention",
    ),
    "both ends": (
        tensor("concat", cut(tensor("exp", PRODUCT), -2, 0, 2), cut(tensor("exp", PRODUCT), -2, 9, 3), axis=-2),
        "f64[2, 5, 10] = matmul",
    ),
    "parts that overlap": (
        tensor("add", cut(tensor("exp", PRODUCT), -2, 0, 3), cut(tensor("exp", PRODUCT), -2, 1, 3)),
        "f64[2, 4, 10] = matmul",
    ),
    "what lies between scattered rows": (
        reduce(partial(tensor, "concat", axis=-2), [cut(LONG, -2, at, 1) for at in (1, 3, 6, 8, 11)]),
        "f64[11, 3] = exp",
    ),
    "a part of a part": (cut(cut(tensor("exp", PRODUCT), -2, 1, 10), -2, 2, 3), "f64[2, 3, 10] = matmul"),
}


@pytest.mark.parametrize("name", MOVED)
def test_what_is_read_in_part_is_computed_in_part(name: str) -> None:
    term, wanted = MOVED[name]
    before = model_of(term)
    after = narrowed(before)
    assert wanted in str(after)
    assert all(term.shape != term.args[0].shape for term in after.main.walk() if term.op == "slice")
    assert_same(before, after)


STAYS: dict[str, tuple[Term, ...]] = {
    "all parts": (cut(PRODUCT, -1, 0, 5), cut(PRODUCT, -1, 5, 5)),
    "most of it": (cut(PRODUCT, -2, 0, 11),),
    "the axis of a sum": (cut(tensor("softmax", PRODUCT, axis=-2), -2, 0, 1),),
    "rows scattered over most of it": tuple(cut(PRODUCT, -2, at, 1) for at in (0, 2, 5, 7, 10)),
    "a running sum": (cut(tensor("cumsum", PRODUCT, axis=-2), -2, 0, 1),),
    "channels of groups": (cut(GROUPS, -3, 0, 2),),
    "values of a norm": (cut(tensor("layer_norm", PRODUCT, leaf("g", 10), leaf("h", 10)), -1, 0, 3),),
    "elements": (cut(tensor("build", element("exp", element("load", X)), shape=(2, 12, 8)), -2, 0, 3),),
    "other queries": (cut(tensor("causal_attention", Q, K, V, scale=0.5), -2, 0, 3),),
    "an input": (cut(X, -2, 0, 1),),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_is_not_worth_it_stays(name: str) -> None:
    before = model_of(*STAYS[name])
    assert narrowed(before).main.outputs == before.main.outputs


def test_what_is_read_whole_elsewhere_is_computed_once() -> None:
    before = model_of(cut(tensor("exp", PRODUCT), -2, 0, 1), PRODUCT)
    after = narrowed(before)
    assert "f64[2, 12, 10] = matmul" in str(after) and "f64[2, 1, 10] = exp" in str(after)
    assert_same(before, after)


def test_parts_of_parts_in_steps_stay_few_slices() -> None:
    z = tensor("exp", cut(leaf("x", 4096), -1, 0, 2048, 2))
    before = model_of(cut(z, -1, 0, 500), cut(z, -1, 1000, 400))
    after = narrowed(before)
    assert len(list(after.main.walk())) < 12
    assert_same(before, after)


def _any_part(x: Term, rng: np.random.Generator) -> Term:
    axis = -int(rng.integers(1, len(x.shape) + 1))
    extent: Any = x.shape[axis]
    start = int(rng.integers(0, extent))
    step = int(rng.integers(1, 4))
    length = int(rng.integers(1, (extent - start - 1) // step + 2))
    return cut(x, axis, start, length, step)


def _grown(terms: list[Term], rng: np.random.Generator) -> Term:
    """Apply an operator to some of the terms, of whatever shapes they have become."""
    x = terms[int(rng.integers(len(terms)))]
    rank = len(x.shape)
    y: Any = [t for t in terms if t.shape == x.shape][-1]
    weight = leaf(f"w{len(terms)}", shapes.concrete(x.shape)[-1], int(rng.integers(1, 9)))
    choices: list[Callable[[], Term]] = [
        lambda: _any_part(x, rng),
        lambda: _any_part(x, rng),
        lambda: tensor("add", x, y),
        lambda: tensor("mul", x, cut(x, -1, 0, 1)),
        lambda: tensor("relu", x),
        lambda: tensor("matmul", x, weight),
        lambda: tensor("softmax", x, axis=-int(rng.integers(1, rank + 1))),
        lambda: tensor("reduce_sum", x, axis=-int(rng.integers(1, rank + 1))),
        lambda: tensor("permute", x, permutation=tuple(int(p) for p in rng.permutation(rank))),
        lambda: tensor("concat", x, y, axis=-int(rng.integers(1, rank + 1))),
        lambda: tensor("reshape", x, shape=(*x.shape[:-2], 1, int(np.prod(shapes.concrete(x.shape[-2:]))))),
        lambda: tensor("attention", x, y, y, scale=0.3),
        lambda: tensor("causal_attention", x, y, y, scale=0.3),
    ]
    return choices[int(rng.integers(len(choices)))]()


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_with_parts_stay_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    grown = [leaf("x", *rng.integers(1, 9, int(rng.integers(2, 4))).tolist())]
    for _ in range(12):
        grown.append(_grown(grown, rng))
    outputs = [_any_part(grown[-1], rng), _any_part(grown[-3], rng)]
    before = model_of(*outputs)
    assert_same(before, narrowed(before), seed)
