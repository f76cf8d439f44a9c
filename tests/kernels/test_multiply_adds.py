"""Products of several narrow values in a lane: which instruction is chosen, and that sums are those of integers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernel_cases import Case, build, element, load, number, reindex, transposed
from product_cases import executable

from frittata.egraph import dtypes, indexing
from frittata.egraph.machine import REFERENCE
from frittata.egraph.terms import Term
from frittata.kernels import multiply_adds
from frittata.kernels.gemm_kernel import sizes_of
from frittata.kernels.intervals import interval
from frittata.kernels.multiply_adds import MultiplyAdd, choose
from frittata.kernels.processor import processor
from frittata.kernels.templates.contraction import CONTRACTION, HALVES, describe
from frittata.options import Options
from frittata.pipeline import templates_for

BYTES, PAIRS = MultiplyAdd(4, "u8", "i8", "i32"), MultiplyAdd(2, "i16", "i16", "i32")
SIZES = [(1, 1, 1), (1, 17, 33), (5, 64, 40), (7, 31, 70), (13, 130, 257), (100, 1030, 50)]
SIDES = [("u8", "i8"), ("i8", "u8"), ("i8", "i8"), ("u8", "u8"), ("i16", "i16"), ("u16", "i8"), ("i32", "i8")]

Array = np.ndarray[Any, np.dtype[Any]]


def side(name: str, *shape: int, dtype: str, wide: str = "i32") -> Term:
    loaded = load(name, *shape, dtype=dtype)
    return loaded if dtype == wide else element("cast", loaded, dtype=wide)


def every(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Draw any values of a dtype of integers, the least and the greatest among them."""
    info = np.iinfo(dtypes.to_numpy(dtype))
    values = np.random.default_rng(seed).integers(info.min, info.max, shape, endpoint=True)
    values.ravel()[::7] = info.min
    values.ravel()[3::7] = info.max
    return values.astype(dtypes.to_numpy(dtype))


def run(case: Case, values: dict[str, Array], constants: str, template: str = "contraction") -> Array:
    known = {name: value for name, value in values.items() if name in constants}
    rest = [values[leaf.attrs[0]] for leaf in case.operands if leaf.attrs[0] not in constants]
    (result,) = executable(case, template, known)(*rest)
    return result


def with_processor(monkeypatch: pytest.MonkeyPatch, **has: bool) -> None:
    none = replace(processor(), multiplies_pairs=False, multiplies_bytes=False, multiplies_halves=False)
    found = replace(none, **has)
    monkeypatch.setattr(multiply_adds, "processor", lambda: found)


def chosen(left: Term, right: Term, depth: int, *, flushes: bool = False) -> MultiplyAdd:
    work = describe((build(element("dot", left, right, depth=depth), 5, 6),))
    assert work is not None
    return choose(work, frozenset("b"), flushes=flushes)


@pytest.mark.parametrize("constants", ["", "a", "b"])
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
@pytest.mark.parametrize(("left", "right"), SIDES)
def test_integers_are_summed_exactly(left: str, right: str, m: int, k: int, n: int, constants: str) -> None:
    a, b = side("a", m, k, dtype=left), side("b", k, n, dtype=right)
    values = {"a": every((m, k), left, 1), "b": every((k, n), right, 2)}
    found = run(Case("product", (build(element("dot", a, b, depth=k), m, n),)), values, constants)
    np.testing.assert_array_equal(found, (values["a"].astype(np.int64) @ values["b"].astype(np.int64)).astype(np.int32))


@pytest.mark.parametrize("constants", ["", "b"])
@pytest.mark.parametrize(("left", "right"), SIDES[:5])
def test_transposed_weights_and_batches(left: str, right: str, constants: str) -> None:
    a, b = side("a", 3, 9, 21, dtype=left), transposed(side("b", 3, 18, 21, dtype=right))
    values = {"a": every((3, 9, 21), left, 1), "b": every((3, 18, 21), right, 2)}
    found = run(Case("product", (build(element("dot", a, b, depth=21), 3, 9, 18),)), values, constants)
    expected = values["a"].astype(np.int64) @ values["b"].astype(np.int64).swapaxes(-1, -2)
    np.testing.assert_array_equal(found, expected.astype(np.int32))


@pytest.mark.parametrize("has", [{}, {"multiplies_pairs": True}])
def test_whatever_the_processor_multiplies_sums_are_the_same(has: dict[str, bool], monkeypatch: Any) -> None:
    with_processor(monkeypatch, **has)
    a, b = side("a", 9, 37, dtype="u8"), side("b", 37, 20, dtype="i8")
    values = {"a": every((9, 37), "u8", 1), "b": every((37, 20), "i8", 2)}
    found = run(Case("product", (build(element("dot", a, b, depth=37), 9, 20),)), values, "b")
    np.testing.assert_array_equal(found, values["a"].astype(np.int32) @ values["b"].astype(np.int32))


@pytest.mark.parametrize("channels", [3, 4, 8])
def test_windows_of_bytes_are_read_in_place_where_runs_fill_lanes(channels: int, monkeypatch: Any) -> None:
    with_processor(monkeypatch, multiplies_pairs=True, multiplies_bytes=True)
    depth = 9 * channels
    windows = indexing.patches_map((1, 7, 9, channels), (3, 3), (2, 2), (1, 1))
    rows = reindex(side("a", 1, 7, 9, channels, dtype="u8"), windows)
    product = element("dot", rows, side("b", depth, 5, dtype="i8"), depth=depth)
    case = Case("windows", (build(product, 1, 3, 4, 5),))
    work = describe(case.bodies)
    assert work is not None
    found = sizes_of(work, frozenset("b"))
    assert (found.left, found.depth) == ("direct" if channels % 4 == 0 else "scratch", -(-depth // 4))
    if not processor().multiplies_bytes:
        return
    values = {"a": every((1, 7, 9, channels), "u8", 1), "b": every((depth, 5), "i8", 2)}
    image = values["a"].astype(np.int64)[0]
    taken = [image[2 * y : 2 * y + 3, 2 * x : 2 * x + 3].ravel() for y in range(3) for x in range(4)]
    expected = np.stack(taken).reshape(1, 3, 4, depth) @ values["b"].astype(np.int64)
    np.testing.assert_array_equal(run(case, values, "b"), expected)


def test_the_most_products_at_once_are_chosen_that_values_fit(monkeypatch: Any) -> None:
    u8, i8, i16, u16 = (side("a", 5, 8, dtype=dtype) for dtype in ("u8", "i8", "i16", "u16"))
    right = side("b", 8, 6, dtype="i8")
    with_processor(monkeypatch, multiplies_pairs=True, multiplies_bytes=True)
    assert chosen(u8, right, 8) == BYTES
    assert chosen(i8, side("b", 8, 6, dtype="u8"), 8) == replace(BYTES, left="i8", right="u8")
    assert chosen(i8, right, 8) == chosen(i16, right, 8) == PAIRS
    assert chosen(u16, right, 8).steps == 1
    assert chosen(element("sub", u8, load("z", dtype="i32")), right, 8).steps == 1
    assert chosen(element("sub", u8, side("z", dtype="u8")), right, 8) == PAIRS
    assert chosen(element("add", i8, number(128, "i32")), right, 8) == BYTES
    with_processor(monkeypatch, multiplies_pairs=True)
    assert chosen(u8, right, 8) == PAIRS
    with_processor(monkeypatch)
    assert chosen(u8, right, 8).steps == 1


def test_products_of_integers_are_no_faster_than_prices_say(monkeypatch: Any) -> None:
    product = element("dot", side("a", 64, 512, dtype="u8"), side("b", 512, 512, dtype="i8"), depth=512)
    bodies = (build(product, 64, 512),)
    seconds: list[float] = []
    for has in ({}, {"multiplies_pairs": True}, {"multiplies_pairs": True, "multiplies_bytes": True}):
        with_processor(monkeypatch, **has)
        estimate = CONTRACTION.estimate(bodies, frozenset("b"), REFERENCE)
        assert estimate is not None
        seconds.append(estimate.seconds)
    assert seconds[0] > 1.5 * seconds[1] > 2.2 * seconds[2]


def halves(m: int, k: int, n: int) -> Case:
    sides = (side(name, *shape, dtype="bf16", wide="f32") for name, shape in (("a", (m, k)), ("b", (k, n))))
    return Case("halves", (build(element("dot", *sides, depth=k), m, n),))


@pytest.mark.parametrize("constants", ["", "a", "b"])
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_halves_are_multiplied_in_pairs(m: int, k: int, n: int, constants: str) -> None:
    case, rng = halves(m, k, n), np.random.default_rng(0)
    if not processor().multiplies_halves:
        assert HALVES.estimate(case.bodies, frozenset(constants), REFERENCE) is None
        return
    drawn = {"a": (m, k), "b": (k, n)}
    values = {name: rng.standard_normal(shape).astype(dtypes.to_numpy("bf16")) for name, shape in drawn.items()}
    a, b = (values[name].astype(np.float64) for name in "ab")
    assert np.all(np.abs(run(case, values, constants, "halves") - a @ b) <= 1e-6 * (np.abs(a) @ np.abs(b)) + 1e-30)
    values["a"].ravel()[0], values["b"].ravel()[-1] = np.nan, np.inf
    a, b = (values[name].astype(np.float64) for name in "ab")
    with np.errstate(invalid="ignore"):
        expected = a @ b
    found = run(case, values, constants, "halves")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(expected))


def test_pairs_of_halves_are_not_exact(monkeypatch: Any) -> None:
    with_processor(monkeypatch, multiplies_halves=True)
    (body,) = halves(8, 64, 32).bodies
    assert HALVES.estimate((body,), frozenset("b"), REFERENCE) is not None
    assert HALVES not in templates_for(Options(numerics="exact"))
    assert HALVES in templates_for(Options())
    mixed = element("dot", load("a", 8, 64), side("b", 64, 32, dtype="bf16", wide="f32"), depth=64)
    assert HALVES.estimate((build(mixed, 8, 32),), frozenset("b"), REFERENCE) is None
    with_processor(monkeypatch)
    assert HALVES.estimate((body,), frozenset("b"), REFERENCE) is None


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: x, (-128, 127)),
        (lambda x: element("neg", x), (-127, 128)),
        (lambda x: element("sub", x, number(3, "i32")), (-131, 124)),
        (lambda x: element("max", x, number(0, "i32")), (0, 127)),
        (lambda x: element("min", x, number(5, "i32")), (-128, 5)),
        (lambda x: element("where", load("c", 4, dtype="bool"), x, number(300, "i32")), (-128, 300)),
        (lambda x: element("cast", element("add", x, number(128, "i32")), dtype="u8"), (0, 255)),
        (lambda x: element("cast", element("add", x, number(127, "i32")), dtype="u8"), (0, 255)),
        (lambda x: element("cast", element("min", x, number(5, "i32")), dtype="i16"), (-128, 5)),
        (lambda x: element("mul", x, x), (-(2**31), 2**31 - 1)),
        (lambda x: element("add", x, number(2**31 - 1, "i32")), (-(2**31), 2**31 - 1)),
        (lambda x: element("cast", load("f", 4), dtype="i8"), (-128, 127)),
    ],
)
def test_intervals(make: Any, expected: tuple[int, int]) -> None:
    assert interval(make(side("x", 4, dtype="i8"))) == expected


def test_floats_have_no_interval() -> None:
    assert interval(load("x", 4)) is None
