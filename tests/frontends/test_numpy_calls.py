"""Functions of numpy that have no row are calls of numpy between kernels, if shapes do not depend on values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frittata as ft
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops import externs
from frittata.frontends.arrays import trees

_RNG = np.random.default_rng(0)
X, Y = _RNG.random((6, 6)) + 6 * np.eye(6), _RNG.random(6)
AT = np.array([3, 1, 2, 1, 0, 5])

CASES: dict[str, Callable[..., Any]] = {
    "a solution": lambda x, y, _: np.tanh(np.linalg.solve(x, 2 * y)) @ x,
    "named results": lambda x, *_: np.linalg.eigh(x @ x.T),
    "one of several": lambda x, *_: np.linalg.qr(x).R,
    "numbers of narrow dtypes": lambda x, y, at: (
        np.hypot(y.astype(np.float32), np.float32(3)), np.gcd(at.astype(np.int8), np.int8(4))
    ),
    "a range": lambda x, y, _: np.percentile(y, range(0, 100, 30)),
    "quantiles": lambda x, *_: np.percentile(x, [25, 50, 75], axis=0),
    "weights": lambda x, y, _: np.average(x, axis=0, weights=y),
    "a constant array": lambda x, y, _: np.interp(y, np.array([0, 0.5, 1]), np.array([0, 2, 3.0])),
    "a tuple, text and a dtype": lambda x, y, _: (
        np.histogram(y, bins=4, range=(0, 1)),
        np.searchsorted([0.2, 0.5], y, side="right"),
        np.cumulative_sum(y, dtype=np.float32),
    ),
    "a list of tensors": lambda x, y, _: np.select([y > 0.5, y > 0.2], [y, -y]),
    "a list of results": lambda x, *_: np.hsplit(x, 2),
    "universal functions": lambda x, y, at: (np.hypot(x, y), np.gcd(at, 4), np.modf(x)),
    "integers": lambda x, y, at: np.bincount(at, minlength=10),
    "arguments that a row does not take": lambda x, y, at: (
        *(np.sum(x, 0, where=x > 1), y.mean(where=at > 1), np.max(x, initial=9), np.concatenate([y, at], dtype="f4")),
        *(np.pad(y, 2, mode="mean"), np.repeat(y, [1, 2, 3, 1, 2, 3]), np.linalg.norm(x, "nuc"), np.sum(x, axis=())),
        *(at ** abs(at), np.add(y, at, dtype=np.float32), np.round(at, -1)),
    ),
    "a truth": lambda x, y, _: np.where(np.array_equiv(x, y), x, -x),
}


@pytest.mark.parametrize("name", CASES)
def test_numpy_is_called(name: str) -> None:
    args = (X, Y, AT)
    fast = ft.optimize(CASES[name], args, machine=REFERENCE)
    found, wanted = (dict(trees.leaves(value)) for value in (fast(*args), CASES[name](*args)))
    assert found.keys() == wanted.keys() and fast.report.externs
    for path, value in wanted.items():
        assert np.asarray(found[path]).dtype == np.asarray(value).dtype
        np.testing.assert_allclose(found[path], value, rtol=1e-12, atol=1e-12)


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a shape that depends on values": (lambda x, at: np.unique(at), "shape or dtype of its result depends on values"),
    "a shape that has gaps tell": (lambda x, at: np.nonzero(x), "shape or dtype of its result depends on values"),
    "a dtype that depends on values": (lambda x, at: np.linalg.eig(x), "depends on values|no element type"),
    "complex numbers": (lambda x, at: np.sort_complex(x[0]), "no element type for complex128"),
    "a change in place": (lambda x, at: np.put(x, [1], 2.0), "read-only"),
    "a function as argument": (lambda x, at: np.apply_along_axis(sum, 0, x), "no text form"),
    "what numpy refuses": (lambda x, at: np.linalg.solve(x, x[:3]), "numpy refuses numpy.linalg.solve"),
    "text": (lambda x, at: np.array2string(x), "it returns a str"),
    "what may be empty": (lambda x, at: x[0] * np.setdiff1d(at, np.arange(7)).size, "its result is empty"),
    "arguments as room for others": (lambda x, at: np.median(x, overwrite_input=True), "read-only"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_array_of_one_shape_is_refused(name: str) -> None:
    function, why = REFUSED[name]
    with pytest.raises(UnsupportedOpError, match=why) as caught:
        ft.optimize(function, (X, AT), machine=REFERENCE)
    assert "frittata.extern" in caught.value.do


def test_results_are_not_written_into_arrays() -> None:
    held = np.zeros(6)
    for function in (
        lambda x: np.median(x, axis=0, out=held) + held,
        lambda x: np.hypot(x[0], x[1], out=held),
        lambda x: np.hypot(x[0], x[1], where=x[0] > 6),
    ):
        with pytest.raises(ModelError, match=r"with (out|where)(.|\n)*take what it returns"):
            ft.optimize(function, (X,), machine=REFERENCE)
    assert not held.any()


@pytest.mark.parametrize("call", ["numpy.f2py.os.getcwd()", "numpy.save('x', x0)", "numpy.load('x')", "load_library()"])
def test_the_text_of_a_call_names_pure_functions_only(call: str) -> None:
    with pytest.raises(ModelError, match="has no call"):
        externs.run(call, [X])


def test_nothing_is_written_while_a_function_is_traced(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOpError, match="pure functions"):
        ft.optimize(lambda x: np.save(tmp_path / "x.npy", x), (X,), machine=REFERENCE)
    assert not list(tmp_path.iterdir())


def test_numpy_is_not_called_if_that_is_an_error() -> None:
    with pytest.raises(UnsupportedOpError, match=r"^numpy\.percentile has no row\n"):
        ft.optimize(lambda x: np.percentile(x, 50), (X,), machine=REFERENCE, fallback="error")


def test_values_that_numpy_refuses_or_makes_complex_are_errors() -> None:
    fast = ft.optimize(lambda x: np.linalg.inv(x), (X,), machine=REFERENCE)
    with pytest.raises(ModelError, match=r"numpy refuses numpy\.linalg\.inv.*Singular"):
        fast(np.zeros((6, 6)))
    roots = ft.optimize(lambda x: np.emath.sqrt(x), (X,), machine=REFERENCE)
    np.testing.assert_array_equal(roots(X), np.sqrt(X))
    with pytest.raises(ModelError, match="returned complex128, its type says float64"):
        roots(-X)


def test_calls_are_saved_and_made_for_each_size(tmp_path: Path) -> None:
    fast = ft.optimize(lambda x: np.percentile(2 * x, 50, axis=0), (X,), machine=REFERENCE)
    fast.save(tmp_path / "median.frt")
    np.testing.assert_array_equal(ft.load(tmp_path / "median.frt")(X), fast(X))
    sizes = ft.optimize(lambda x: np.percentile(x, 50, axis=0), (X,), machine=REFERENCE, dynamic_shapes=({0: "n"},))
    np.testing.assert_array_equal(sizes(X[:3]), np.median(X[:3], axis=0))
