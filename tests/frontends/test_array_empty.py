"""Empty arrays in functions of arrays: what is computed of them is numpy's, at import."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frittata as ft
from frittata.egraph.errors import EmptyError, ModelError
from frittata.egraph.machine import REFERENCE

X = np.linspace(-2, 1, 12).reshape(3, 4)
NONE = X[:0]

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "an argument": (lambda x: np.exp(x) * 2, (NONE,)),
    "a product": (lambda x, y: x @ y + 1, (X[:, :0], X.T[:0])),
    "results among others": (lambda x: (x[:0], {"a": x[:, 2:2].T, "b": x + 1}), (X,)),
    "complex results": (lambda z: (z * 2, z.sum(), z.real), (NONE.astype(np.complex64),)),
    "a join": (lambda past, x: np.concatenate([past, x]) * 2, (NONE, X.astype(np.float32))),
    "a join of rows": (lambda x: np.hstack([x, x[:, :0].astype(np.float64), x]), (X.astype(np.float32),)),
    "a sum beside others": (lambda x: x[:0].sum(0) + x, (X,)),
    "what is broadcast": (lambda x, y: (x * y, np.divmod(x, y), x @ y.T), (X[:1], NONE)),
    "a mask": (lambda x: x[x > 0], (NONE,)),
    "masks that choose nothing": (lambda x: (x[[False] * 3], x[np.zeros((3, 4), bool)], x * 2), (X,)),
    "indices of nothing": (lambda x: (x[[]], x[np.zeros((0, 2), int), 1], x[np.array([0]), :0].sum(1) + x[0]), (X,)),
    "joins with empty lists": (lambda x: (np.concatenate([[], x[0]]), np.hstack(((), x[0], x[1]))), (X,)),
    "columns": (lambda x: np.column_stack([x[:, :0], x[:, 0], x]), (X,)),
}


@pytest.mark.parametrize("name", CASES)
def test_empty_arrays_give_what_numpy_gives(name: str, tmp_path: Path) -> None:
    function, args = CASES[name]
    fast = ft.optimize(function, args, machine=REFERENCE)
    for one in (fast, ft.load(fast.save(tmp_path / "empty.ft"))):
        _same(one(*args), function(*args))
    with pytest.raises(ModelError, match="must be"):
        fast(*(np.ones((2, 2), array.dtype) for array in args))


def test_sizes_may_be_zero() -> None:
    def joined(past: Any, x: Any) -> Any:
        return np.concatenate([past, x]) @ x.T, x[1:], len(past)

    fast = ft.optimize(joined, (X, X), dynamic_shapes=({0: "before"}, {0: "now"}), machine=REFERENCE)
    assert fast.ranges == {"before": (0, None), "now": (0, None)}
    for before, now in ((0, 2), (2, 0), (0, 0), (3, 1)):
        _same(fast(X[:before], X[:now]), joined(X[:before], X[:now]))


def test_functions_of_tensors_beside_empty_arrays_are_refused() -> None:
    with pytest.raises(EmptyError, match=r"shape \(0,\), which is empty, meets a tensor"):
        ft.optimize(lambda x, y: np.isin(x, y), (X, X[0, :0]), machine=REFERENCE)


def test_joins_of_shapes_that_do_not_fit_are_refused_by_numpy() -> None:
    with pytest.raises(ValueError, match="must match exactly"):
        ft.optimize(lambda x, y: np.concatenate([x, y]), (X, X[:0, 1:]), machine=REFERENCE)


def _same(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        found, expected = tuple(found.values()), tuple(expected.values())
    if isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            _same(one, other)
        return
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.shape(found) == np.shape(expected)
    assert np.asarray(found).dtype == np.asarray(expected).dtype
