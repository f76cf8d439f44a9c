"""Functions of numpy that are written with others: values, shapes and dtypes are numpy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frittata.egraph import dtypes
from frittata.egraph.errors import UnsupportedOpError
from frittata.frontends.arrays import trees
from frittata.frontends.arrays.trace import from_function

RNG = np.random.default_rng(0)
A, M, I = RNG.standard_normal((3, 5, 7)).astype("f4"), RNG.standard_normal((5, 7)), RNG.integers(-9, 9, (5, 7))  # noqa: E741
GAPS = np.where(RNG.random((5, 7)) < 0.4, np.nan, M)
GAPS[2], GAPS[3, 1:], GAPS[4, 0] = np.nan, np.nan, np.inf
AT = np.cumsum(RNG.random(7))
ODD = np.array([0.0, -0.0, 2.5, -3.75, np.inf, -np.inf, np.nan, 7, 1e300])

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sums of numbers": (lambda g, i: (np.nansum(g), np.nansum(g, 1), np.nanprod(g, 0), np.nansum(i, -1)), (GAPS, I)),
    "extremes of numbers": (
        lambda g, a, i: (np.nanmax(g, 1), np.nanmin(g), np.nanmin(a, (0, 2), keepdims=True), np.nanmax(i, 0)),
        (GAPS, A, I),
    ),
    "means of numbers": (
        lambda g, a, i: (np.nanmean(g, 1), np.nanmean(a), np.nanmean(i, 0, keepdims=True), np.nanmean(a, (0, 1))),
        (GAPS, A, I),
    ),
    "variances of numbers": (
        lambda g, a: (np.nanvar(g, 1), np.nanstd(g, 1, ddof=1), np.nanvar(a, keepdims=True), np.nanstd(a, (0, 2))),
        (GAPS[:4], A),
    ),
    "medians": (
        lambda g, a, i: (np.median(g, 1), np.median(a), np.median(a, -2, keepdims=True), np.median(i, 1)),
        (GAPS, A, I),
    ),
    "medians of what is added beyond its dtype": (
        lambda i, b: (np.median(i), np.median(i.astype(np.int32), 0), np.median(b), np.median(b, 1, keepdims=True)),
        (np.array([2**31 - 1, 2**31 - 3, 2**31 - 1]), I > 0),
    ),
    "variances beside infinities": (lambda x: (np.nanvar(x), np.nanstd(x[:5], ddof=1)), (ODD,)),
    "covariances": (
        lambda m, a, i: (np.cov(m), np.cov(a[0].T, bias=True), np.cov(m[0]), np.cov(m[0], m[1], ddof=0), np.cov(i)),
        (M, A, I),
    ),
    "covariances of columns": (lambda m: (np.cov(m, rowvar=False), np.cov(m[:2], m[2:4], False)), (M,)),
    "covariances of columns with a row": (
        lambda m: (np.cov(m[0], m[1:2], rowvar=False), np.cov(m[:, :1], m[:, 1:2], rowvar=False)), (M,)
    ),
    "correlations": (lambda m: (np.corrcoef(m), np.corrcoef(m[0], m[1]), np.corrcoef(m[0])), (M,)),
    "areas": (
        lambda m, a, t: (
            *(np.trapezoid(m), np.trapezoid(a, dx=0.5, axis=0), np.trapezoid(m, t), np.trapezoid(m, m, axis=0)),
        ),
        (M, A, AT),
    ),
    "slopes": (
        lambda a, m, i: (np.gradient(a), np.gradient(m, 0.5), np.gradient(m, 2, 3.0), np.gradient(i, axis=1)), (A, M, I)
    ),
    "slopes at the ends": (
        lambda v, m, t: (np.gradient(m, t, axis=-1), np.gradient(m, 2, t, edge_order=2), np.gradient(v, edge_order=2)),
        (A[0, 0], M, AT),
    ),
    "slopes of two values": (lambda m, t: (np.gradient(m[:2]), np.gradient(m[:, :2], t[:2], axis=1)), (M, AT)),
    "slopes beside infinities": (lambda x: np.gradient(x[:6]), (ODD,)),
    "near": (
        lambda x, i: (
            *(np.isclose(x, x + 1e-6), np.isclose(x, x, equal_nan=True), np.isclose(i, i.T[:5, :1])),
            *(np.allclose(x, x), np.allclose(i, i + 1, atol=2), np.isclose(i > 0, True)),
        ),
        (ODD, I),
    ),
    "equal": (lambda m, i: (np.array_equal(m, m), np.array_equal(i, i + 1), m * np.array_equal(m, i[:4])), (M, I)),
    "grids": (
        lambda t, v: (np.meshgrid(t, v, t[:2]), np.meshgrid(v, t, indexing="ij"), np.meshgrid(t, v, sparse=True)),
        (AT, AT[:3]),
    ),
    "products": (lambda m, a, i: (np.kron(m, a[0, :2, :3]), np.kron(a, m[0]), np.kron(i, i[0])), (M, A, I)),
    "powers": (lambda t, i: (np.vander(t), np.vander(i[0], 3, increasing=True), np.vander(t, 1)), (AT, I)),
    "polynomials": (lambda m, t, i: (np.polyval([1, 2.5, -3], m), np.polyval(t, m), np.polyval([2, 1], i)), (M, AT, I)),
    "a polynomial of its own class": (lambda m: np.polyval(np.poly1d([1, 2.5, -3]), m), (M,)),
    "turns": (lambda a: tuple(np.rot90(a, k, (1, 2)) for k in range(-2, 3)), (A,)),
    "waves": (lambda x, i: (np.sinc(x[:4]), np.sinc(i)), (ODD, I)),
    "parts of integers": (lambda i: np.modf(i), (I,)),
    "parts": (lambda x, i: (np.modf(x), np.divmod(x, 2.5), divmod(i, 4), np.divmod(7, i * 2 + 1)), (ODD, I)),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_functions_mean_what_numpy_computes(name: str) -> None:
    function, args = CASES[name]
    imported = from_function(function, args)
    outputs = imported.model.interpret(*imported.flatten(args))
    found, kinds, wanted = (
        dict(trees.leaves(tree))
        for tree in (imported.unflatten(outputs), imported.unflatten(imported.model.main.outputs), function(*args))
    )
    assert found.keys() == wanted.keys()
    for path, value in wanted.items():
        assert dtypes.to_numpy(kinds[path].dtype) == np.asarray(value).dtype, path
        assert found[path].shape == np.shape(value), path
        np.testing.assert_allclose(found[path], value, rtol=2e-5, atol=1e-6, err_msg=str(path))


LEFT: dict[str, Callable[..., Any]] = {
    "weights": lambda m: np.cov(m, aweights=np.arange(7)),
    "halves": lambda m: np.nanmean(m.astype(np.float16)),
    "complex numbers": lambda m: np.nanmean(m + 1j),
    "a choice": lambda m: np.nansum(m, where=m > 0),
    "a dtype": lambda m: np.nansum(m, 0, np.float32),
    "several axes": lambda m: np.median(m, (0, 1)),
    "no columns": lambda m: np.vander(m[0], 0),
    "powers of two axes": lambda m: np.vander(m, 3),
    "a turn of one axis": lambda m: np.rot90(m, 2, (1, -1)),
    "an axis twice": lambda m: np.gradient(m, axis=(0, -2)),
    "slopes of one value": lambda m: np.gradient(m[0, 0]),
    "slopes of truth values": lambda m: np.gradient(m > 0),
    "an area of one value": lambda m: np.trapezoid(m[:, :1]),
    "parts of truth values": lambda m: np.modf(m > 0),
    "degrees of freedom that are no integer": lambda m: np.cov(m, ddof=1.5),  # type: ignore[arg-type]
    "equal beside NaN": lambda m: np.array_equal(m, m, equal_nan=True),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_they_do_not_take_is_left_to_numpy(name: str) -> None:
    with pytest.raises(UnsupportedOpError, match="has no row"):
        from_function(LEFT[name], (M,))
