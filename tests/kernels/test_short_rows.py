"""Short rows, a vector of them side by side: every length, ragged ends, views, dtypes, special values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernel_cases
import numpy as np
import pytest
from kernel_cases import Case, build, fold, load
from product_cases import assert_close, check, run

import frittata as ft
from frittata.egraph import indexing, shapes
from frittata.egraph.errors import IndexRangeError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.registry import element
from frittata.kernels.memory import MOST_COLUMNS
from frittata.kernels.processor import processor
from frittata.kernels.templates.pointwise import POINTWISE
from frittata.kernels.templates.row import ROW

RNG = np.random.default_rng(0)
LANES = processor().width // 4


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normalized(x: Any, weight: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight


def optimized(function: Callable[..., Any], args: tuple[Any, ...], cache: Path) -> Any:
    fast = ft.optimize(function, args, machine=REFERENCE, cache=cache)
    assert [kernel.template for kernel in fast.kernels] == ["row"]
    assert "side by side" in fast.compilation.executable.lowered[0].source
    return fast


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("length", range(2, 18))
def test_rows_of_every_length(length: int, cache: Path) -> None:
    for count in (LANES, 3 * LANES + 5):
        x = RNG.standard_normal((count, length)).astype(np.float32)
        weight = RNG.standard_normal(length).astype(np.float32)
        np.testing.assert_allclose(optimized(softmax, (x,), cache)(x), softmax(x), 1e-5, 1e-7)
        got = optimized(lambda x: (x * x).max(-1), (x,), cache)(x)
        np.testing.assert_array_equal(got, (x * x).max(-1))
        if length > 2:  # of two, the difference cancels
            got = ft.optimize(normalized, (x, weight), machine=REFERENCE, cache=cache)(x, weight)
            np.testing.assert_allclose(got, normalized(x, weight), 1e-3, 1e-4)


@pytest.mark.parametrize("length", [23, 31, MOST_COLUMNS])
def test_rows_longer_than_a_vector(length: int, cache: Path) -> None:
    x = RNG.standard_normal((16 * LANES + 1, length)).astype(np.float32)
    np.testing.assert_allclose(optimized(softmax, (x,), cache)(x), softmax(x), 1e-5, 1e-7)


def test_longer_rows_lie_in_order(cache: Path) -> None:
    x = RNG.standard_normal((100, MOST_COLUMNS + 1)).astype(np.float32)
    fast = ft.optimize(softmax, (x,), machine=REFERENCE, cache=cache)
    assert "side by side" not in fast.compilation.executable.lowered[0].source
    np.testing.assert_allclose(fast(x), softmax(x), 1e-5, 1e-7)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_dtypes(dtype: Any, cache: Path) -> None:
    x = RNG.integers(-50, 50, (77, 5)).astype(dtype)
    for function in (lambda x: x.max(-1), lambda x: x * 2 - x.sum(-1, keepdims=True), lambda x: x.prod(-1)):
        np.testing.assert_array_equal(optimized(function, (x,), cache)(x), function(x))


def test_bools_and_places(cache: Path) -> None:
    x = RNG.standard_normal((77, 6)).astype(np.float32)
    x[3] = x[3, 0]
    np.testing.assert_array_equal(optimized(lambda x: x.argmax(-1), (x,), cache)(x), x.argmax(-1))
    found = ft.optimize(lambda x: (x > 1).any(-1), (x,), machine=REFERENCE, cache=cache)(x)
    np.testing.assert_array_equal(found, (x > 1).any(-1))


def test_special_values(cache: Path) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e-40, 2.5], np.float32)
    x = RNG.choice(values, (101, 3))
    with np.errstate(all="ignore"):
        for function in (softmax, lambda x: x.max(-1), lambda x: x.min(-1), lambda x: x.sum(-1)):
            np.testing.assert_allclose(optimized(function, (x,), cache)(x), function(x), 1e-5, 1e-38)


VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "columns of wider rows": lambda x, y: softmax(x[:, 2:5] + y[:3]),
    "every other row": lambda x, y: softmax(x[::2, :4]),
    "reversed": lambda x, y: softmax(x[::-1, ::-1]),
    "the last rows": lambda x, y: softmax(x[3:, 4:]),
    "turned": lambda x, y: softmax(x.T[:, :5]),
    "a number for each row": lambda x, y: x - x.sum(-1, keepdims=True) * x[:, :1],
    "outer rows": lambda x, y: softmax(x.reshape(-1, 23, 7)[:, 1:]),
    "two results": lambda x, y: (x.sum(-1), x.max(-1)),
    "clamped": lambda x, y: softmax(np.pad(x, ((0, 0), (1, 1)), mode="edge")),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str, cache: Path) -> None:
    x, y = RNG.standard_normal((69, 7)).astype(np.float32), RNG.standard_normal(7).astype(np.float32)
    function = VIEWS[name]
    got, expected = ft.optimize(function, (x, y), machine=REFERENCE, cache=cache)(x, y), function(x, y)
    pairs = zip(got, expected, strict=True) if isinstance(got, tuple) else [(got, expected)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, 1e-4, 1e-6)


POINT_BY_POINT: dict[str, Callable[[Any], Any]] = {
    "turned along the row": lambda x: np.roll(x[:, :3], 1, 1) * x[:, 1:4] - np.roll(x[:, :3], 2, 1),
    "cross products": lambda x: np.cross(x[:, :3], np.exp(x[:, 3:6])),
    "squares": lambda x: x.reshape(-1, 3, 4)[:, :, :3] - np.swapaxes(x.reshape(-1, 3, 4)[:, :, 1:], 1, 2),
    "a number for each row": lambda x: np.sin(x[:, :5]) * x[:, 11:],
    "a number for each column": lambda x: x[:, 1:8] + x[0, :7],
    "other columns": lambda x: np.stack([x[:, 2] * x[:, 0], x[:, 1], np.exp(x[:, 0])], 1),
    "a border": lambda x: np.pad(x[:, :3] * 2, ((0, 0), (1, 2))),
    "outer rows": lambda x: np.roll(x.reshape(-1, 3, 4), (1, 1), (1, 2)) * x[:, :1, None],
    "other rows": lambda x: np.where(np.roll(x[::-1, :7], 3, 1) > x[:, 5:], x[:, :7], 0),
    "two results": lambda x: (np.roll(x, 1, 1) + x, np.roll(x, 2, 1) - x),
}


@pytest.mark.parametrize("name", POINT_BY_POINT)
@pytest.mark.parametrize("count", [LANES, 5 * LANES + 3])
def test_rows_without_folds(name: str, count: int, cache: Path) -> None:
    x = np.zeros((count, 12), np.float32)
    program = ft.optimize(POINT_BY_POINT[name], (x,), machine=REFERENCE, cache=cache).program
    case = Case("rows", tuple(output.body for kernel in program.kernels for output in kernel.outputs), special=True)
    assert "side by side" in ROW.lower("rows", case.bodies, frozenset()).source
    values = case.values()
    assert_close(case, run(case, values, "row"), values)


def test_rows_without_folds_are_priced_and_chosen(cache: Path) -> None:
    x = RNG.standard_normal((1000, 6)).astype(np.float32)
    function = POINT_BY_POINT["cross products"]
    np.testing.assert_allclose(optimized(function, (x,), cache)(x), function(x), 1e-4, 1e-5)
    (kernel,) = ft.optimize(lambda x: x + 1, (x,), machine=REFERENCE, cache=cache).program.kernels
    assert ROW.estimate(tuple(output.body for output in kernel.outputs), frozenset(), REFERENCE) is None


LOOKED_UP: dict[str, Callable[[Any, Any], Any]] = {
    "folded": lambda x, i: (x[0][i] * x[1, :1]).sum(-1),
    "one place for each row": lambda x, i: np.roll(x[:, :3], 1, 1) * x[0, i[:, :1]],
    "rows": lambda x, i: x[i[:, 0], :5] - np.roll(x[i[:, 0], 1:6], 1, 1),
}


@pytest.mark.parametrize("name", LOOKED_UP)
@pytest.mark.parametrize("count", [LANES, 3 * LANES + 5])
def test_what_is_looked_up_in_short_rows(name: str, count: int, cache: Path) -> None:
    function = LOOKED_UP[name]
    x = RNG.standard_normal((count, 9)).astype(np.float32)
    i = RNG.integers(0, min(9, count), (count, 4))
    fast = ft.optimize(function, (x, i), machine=REFERENCE, cache=cache)
    np.testing.assert_allclose(fast(x, i), function(x, i), 1e-5, 1e-6)
    (kernel,) = fast.program.kernels
    case = Case("rows", tuple(output.body for output in kernel.outputs))
    found = [shapes.concrete(leaf.shape) for leaf in case.operands]
    values = [i if shape == i.shape else x.ravel()[: shapes.size(shape)].reshape(shape) for shape in found]
    assert_close(case, run(case, values, "row"), values)
    i[-1, 0] = count + 9
    with pytest.raises(IndexRangeError):
        fast(x, i)


@pytest.mark.parametrize("count", [2, 9, 16, 40])
def test_parts_of_a_row_are_computed_where_they_lie(count: int) -> None:
    """Each part is a number of its own for each row, nowhere selected from others."""
    x = load("x", 1000, count)
    columns = [element("reindex", x, map=indexing.slice_map((1000, count), -1, i, 1, 1)) for i in range(count)]
    (parts, whole) = (
        build(e, 1000, count) for e in (kernel_cases.joined([element("exp", c) for c in columns]), element("exp", x))
    )
    check(Case("parts", (parts,)), "row")
    found, least = (t.estimate((body,), frozenset(), REFERENCE) for t, body in ((ROW, parts), (POINTWISE, whole)))
    assert found is not None and least is not None and found.flops < 2.5 * least.flops


@pytest.mark.parametrize("stride", [2, 3, 5, 8, 13, 17, 32, 33])
def test_points_that_lie_apart(stride: int, cache: Path) -> None:
    x = RNG.standard_normal(101 * stride).astype(np.float32)
    for start in (0, stride - 1):
        function = lambda x, start=start: np.exp(x[start::stride]) + 1  # noqa: E731
        fast = ft.optimize(function, (x,), machine=REFERENCE, cache=cache)
        np.testing.assert_allclose(fast(x), function(x), 1e-5)


@pytest.mark.parametrize("length", [2, 3, 7, 8, 15, 16, 17, 29, 32])
def test_a_row_has_the_same_bits_however_many_there_are(length: int) -> None:
    x = RNG.standard_normal((12 * LANES + 1, length)).astype(np.float32)
    x[5] = -0.0

    def results(rows: Any) -> tuple[Any, ...]:
        given = load("x", *rows.shape)
        sums = build(fold("sum", element("mul", given, given), -1, length), len(rows), 1)
        largest, total = (build(fold(op, given, -1, length), len(rows), 1) for op in ("max", "sum"))
        weights = build(kernel_cases.softmax(given, -1, length), *rows.shape)
        return tuple(run(Case("rows", (body,)), [rows], "row")[0] for body in (sums, largest, total, weights))

    whole = results(x)
    for few in (x[:6], x[:1]):
        for ours, others in zip(results(few), whole, strict=True):
            assert ours.tobytes() == others[: len(few)].tobytes()
    assert all(a.tobytes() == b[5:6].tobytes() for a, b in zip(results(x[5:6]), whole, strict=True))
