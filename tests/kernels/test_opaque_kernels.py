"""Kernels of opaque operators, which order values along an axis or write them to places: as the references say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import frittata as ft
from frittata.egraph import dtypes
from frittata.egraph.errors import IndexRangeError, LoweringError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops import indices, orders, registry
from frittata.egraph.program import Estimate, Kernel, Output, Program
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import TensorType, Term
from frittata.kernels import runtime, templates
from frittata.kernels.orders import Ordering, describe
from frittata.kernels.processor import processor

NUMBERS = ("f32", "f64", "i32", "i64")
SPECIAL = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, 2.0, 1e-44])
SCRIPT = """
def main(x: f32[5, 17]) -> (f32[5, 3]):
    v1: f32[5, 17] = sort(x, axis=-1, descending=True)
    v2: f32[5, 3] = slice(v1, axis=-1, start=0, step=1, length=3)
    return v2
"""


def run(template: str, body: Term, *arrays: Any) -> Any:
    return built(template, body)(*arrays)[0]


def built(template: str, body: Term) -> Any:
    leaves = {leaf.attrs[0]: TensorType(leaf.shape, leaf.dtype) for leaf in body.args}
    kernel = Kernel("kernel", template, (Output("y", body),), tuple(leaves), Estimate(1e-6, 0.0, 0.0))
    return runtime.build(Program(leaves, {}, (kernel,), ("y",)), {})


def call(op: str, arrays: dict[str, Any], *attrs: Any) -> Term:
    args = (registry.make("input", "tensor", (), (n, a.shape, dtypes.from_numpy(a.dtype))) for n, a in arrays.items())
    return registry.make(op, "tensor", tuple(args), attrs)


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    """Draw numbers of all sizes, some of them equal, some special."""
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal(shape) * 10.0 ** rng.integers(0, 5, shape)
    if dtype[0] != "f":
        return drawn.astype(dtypes.to_numpy(dtype))
    return np.where(rng.random(shape) < 0.4, rng.choice(SPECIAL, shape), drawn).astype(dtypes.to_numpy(dtype))


ORDERED = [((5, 7), -1), ((7, 5), -2), ((3, 1000), -1), ((2, 300, 3), -2)]
"""Few by insertion, many by digits; along the last axis and another. Each dtype has digits of its own."""
OF_OTHER_LENGTHS = [((1, 1), -1), ((3, 130), -1), ((400,), -1)]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [
        *((shape, axis, dtype) for shape, axis in ORDERED for dtype in (*NUMBERS, "bool")),
        *((shape, axis, "f32") for shape, axis in OF_OTHER_LENGTHS),
    ],
)
def test_all_are_ordered(shape: tuple[int, ...], axis: int, dtype: str, descending: bool) -> None:
    x = values(shape, dtype)
    found = run("order", call("argsort", {"x": x}, axis, descending), x)
    np.testing.assert_array_equal(found, orders.argsort_numpy(x, axis, descending))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [
        ((5, 17), -1, 3),
        ((70, 5), -2, 1),
        ((3, 1000), -1, 10),
        ((2, 4160), -1, 64),
        ((3, 300), -1, 200),
        ((9, 8), -1, 2),
    ],
)
def test_the_first_are_found(shape: tuple[int, ...], axis: int, count: int, dtype: str, descending: bool) -> None:
    x = values(shape, dtype)
    of_the_first = built("order", call("argtopk", {"x": x}, axis, count, descending))
    for given in (x, np.sort(x, axis), np.flip(np.sort(x, axis), axis).copy(), np.zeros_like(x)):
        (found,) = of_the_first(given)
        np.testing.assert_array_equal(found, orders.argtopk_numpy(given, axis, count, descending))


def test_the_first_few_are_found_without_sorting() -> None:
    fast = ft.optimize(ft.parse(SCRIPT), machine=REFERENCE)
    (chosen,) = (kernel for kernel in fast.kernels if kernel.template == "order")
    assert chosen.kernel.outputs[0].body.op == "argtopk" and "argtopk(x" in chosen.source
    x = np.random.default_rng(2).standard_normal((5, 17)).astype(np.float32)
    np.testing.assert_array_equal(fast(x), -np.sort(-x, -1)[:, :3])


WRITTEN = [
    ((5, 7, 3), (4, 6, 2), (4, 6, 2), -1),
    ((5, 7, 3), (4, 6, 2), (4, 6, 2), -2),
    ((5, 7, 3), (1, 4, 1), (2, 4, 3), -2),
    ((5, 7, 3), (1, 1, 1), (5, 1, 3), -2),
    ((9, 64, 8), (4, 1, 1), (4, 64, 8), -3),
    ((300, 70), (90, 1), (90, 70), -2),
    ((7,), (9,), (9,), -1),
    ((300, 40, 40), (3, 1, 1), (3, 40, 40), -3),
    ((64, 900), (64, 800), (64, 800), -1),
    ((40, 30, 200), (40, 1, 200), (40, 30, 200), -2),
]


COMBINED = [
    *(("f32", reduce) for reduce in indices.SCATTERS),
    *(("f64", "set"), ("f64", "min"), ("i32", "prod"), ("i64", "sum"), ("i64", "max"), ("bool", "set")),
]


@pytest.mark.parametrize(("dtype", "reduce"), COMBINED)
@pytest.mark.parametrize(("shape", "at", "given", "axis"), WRITTEN)
def test_values_are_written(
    shape: tuple[int, ...], at: tuple[int, ...], given: tuple[int, ...], axis: int, dtype: str, reduce: str
) -> None:
    x, source = values(shape, dtype, 1), values(given, dtype, 2)
    places = np.random.default_rng(3).integers(0, shape[axis], at).astype(np.int32 if dtype == "f64" else np.int64)
    body = call("scatter", {"x": x, "places": places, "source": source}, axis, reduce)
    with np.errstate(all="ignore"):
        expected = indices.scatter_numpy(x, places, source, axis, reduce)
    np.testing.assert_array_equal(run("write", body, x, places, source), expected)


@pytest.mark.parametrize(
    ("shape", "at", "given", "axis"),
    [
        ((64, 900), (50, 800), (50, 800), -1),
        ((2, 64, 900), (2, 64, 800), (2, 64, 800), -1),
        ((5, 7, 6), (7, 1, 1), (7, 6, 2), -3),
        ((3, 4, 6), (2, 1, 1), (2, 3, 4), -3),
        ((5, 1, 3), (1, 1, 1), (5, 1, 3), -2),
        ((5, 3, 3), (4, 1, 3), (4, 3, 3), -3),
    ],
)
def test_values_are_written_by_chunks_of_lines_and_to_parts_of_lines(
    shape: tuple[int, ...], at: tuple[int, ...], given: tuple[int, ...], axis: int
) -> None:
    test_values_are_written(shape, at, given, axis, "i32", "sum")


@pytest.mark.parametrize("place", [-1, 5, 2**40])
def test_a_place_outside_of_the_axis_is_refused(place: int) -> None:
    x, places = np.zeros((3, 5), np.float32), np.zeros((3, 2), np.int64)
    places[2, 1] = place
    body = call("scatter", {"x": x, "places": places, "source": x[:, :2].copy()}, -1, "set")
    with pytest.raises(IndexRangeError, match=f"index {place} is outside of 0 .. 4"):
        run("write", body, x, places, x[:, :2].copy())


def test_a_buffer_may_be_written_to_itself() -> None:
    x, places = values((6, 4), "f32"), np.array([[5], [0], [3], [3], [1], [2]])
    leaf, at = (
        registry.make("input", "tensor", (), (n, s, d)) for n, s, d in (("x", (6, 4), "f32"), ("p", (6, 1), "i64"))
    )
    body = registry.make("scatter", "tensor", (leaf, at, leaf), (-2, "set"))
    kernel = Kernel("kernel", "write", (Output("y", body),), ("x", "p"), Estimate(1e-6, 0.0, 0.0))
    program = Program({"x": TensorType((6, 4), "f32"), "p": TensorType((6, 1), "i64")}, {}, (kernel,), ("y",))
    found = runtime.build(program, {})(x, places)[0]
    np.testing.assert_array_equal(found, indices.scatter_numpy(x, places, x, -2, "set"))


@pytest.mark.parametrize("op", ["order", "write"])
def test_others_are_left_to_other_templates(op: str) -> None:
    template = templates.by_name(op)
    empty = call("argsort", {"x": np.zeros((0, 3), np.float32)}, -1, False)
    nothing = {"x": np.zeros((3,)), "places": np.zeros((0,), np.int64), "source": np.zeros((0,))}
    bodies = (empty,) if op == "order" else (call("scatter", nothing, -1, "set"),)
    assert template.estimate(bodies, frozenset(), REFERENCE) is None
    with pytest.raises(LoweringError, match="template takes one"):
        template.lower("kernel", bodies, frozenset())


def test_what_is_cheaper_is_done_and_priced() -> None:
    def work(rows: int, extent: int, count: int) -> Ordering:
        found = describe((call("argtopk", {"x": np.zeros((rows, extent), np.float32)}, -1, count, False),))
        assert found is not None
        return found

    lanes = processor().width // 4
    assert work(3, 1000, 1000).units == 3 * 5 * 4 * (1000 + 256) * lanes  # four digits
    assert work(2, 1000, 1).units == pytest.approx(2 * lanes * (250 + 31 + 32 * math.log(1000)))
    assert [work(1, 1000, count).inserts for count in (1, 20, 100, 1000)] == [True, True, False, False]
    assert not work(1, 100_000, 200).inserts and work(1, 20, 20).inserts
    units = [work(1, 1000, count).units for count in range(1, 1001)]
    assert units == sorted(units)


def test_only_orders_of_values_are_described() -> None:
    x = {"x": np.zeros((3, 5), np.float32)}
    one = call("argsort", x, -1, False)
    assert describe((one,)) is not None
    assert describe((one, one)) is None and describe((call("relu", x),)) is None
    unknown = registry.make("input", "tensor", (), ("x", (Sym("n"), 5), "f32"))
    assert describe((registry.make("argsort", "tensor", (unknown,), (-1, False)),)) is None
