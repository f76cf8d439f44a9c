"""Tensors written index by index mean what is written, and become the kernels that whole tensors become."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import REFERENCE
from frittata.frontends.arrays.trace import from_function

RNG = np.random.default_rng(0)
A, B, V = RNG.standard_normal((5, 7)), RNG.standard_normal((7, 4)), RNG.standard_normal(7)
PLACES = RNG.integers(0, 5, (7,))

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "a product": (
        lambda a, b: ft.build((5, 4), lambda i, j: ft.fold("sum", 7, lambda r: a[i, r] * b[r, j])),
        lambda a, b: a @ b,
        (A, B),
    ),
    "a transpose": (lambda a: ft.build((7, 5), lambda i, j: a[j, i] * 2), lambda a: a.T * 2, (A,)),
    "a vector": (lambda v: ft.build(7, lambda i: v[6 - i] + i), lambda v: v[::-1] + np.arange(7), (V,)),
    "windows": (
        lambda a: ft.build((3, 5), lambda i, j: ft.fold("max", (3, 3), lambda u, v: a[i + u, j + v])),
        lambda a: sliding_window_view(a, (3, 3)).max((2, 3)),
        (A,),
    ),
    "steps": (lambda a: ft.build((2, 3), lambda i, j: a[2 * i + 1, 2 * j]), lambda a: a[1:5:2, 0:6:2], (A,)),
    "quotients": (
        lambda a: ft.build((10, 7), lambda i, j: np.where((i + j) % 2 == 0, a[i // 2, j], -1.0)),
        lambda a: np.where(np.indices((10, 7)).sum(0) % 2 == 0, np.repeat(a, 2, 0), -1.0),
        (A,),
    ),
    "joined axes": (lambda a: ft.build(35, lambda i: a[i // 7, i % 7]), lambda a: a.ravel(), (A,)),
    "a number": (
        lambda a: ft.build((2, 3), lambda i, j: 1.5) + a[0, 0],
        lambda a: np.full((2, 3), 1.5) + a[0, 0],
        (A,),
    ),
    "indices alone": (
        lambda: ft.build((2, 3), lambda i, j: 3 - i * 2 + j),
        lambda: np.array([[3, 4, 5], [1, 2, 3]]),
        (),
    ),
    "indices and numbers": (
        lambda a: ft.build((3, 3), lambda i, j: a[i - j + 2, 1 + j] * (i - j)),
        lambda a: np.array([[a[i - j + 2, 1 + j] * (i - j) for j in range(3)] for i in range(3)]),
        (A,),
    ),
    "a number in a fold": (
        lambda: ft.build((2, 4), lambda i, j: ft.fold("sum", 3, lambda k: 2.0) + i * j),
        lambda: 6.0 + np.outer(np.arange(2), np.arange(4)),
        (),
    ),
    "looked up": (lambda a, p: ft.build((7, 7), lambda i, j: a[p[i], j]), lambda a, p: a[p], (A, PLACES)),
    "clamped": (
        lambda v: ft.build(7, lambda i: v[np.clip(i - 1, 0, 6)]),
        lambda v: v[np.clip(np.arange(7) - 1, 0, 6)],
        (V,),
    ),
    "a fold in a fold": (
        lambda a, v: ft.build(
            5, lambda i: ft.fold("sum", 7, lambda r: a[i, r] * ft.fold("max", 7, lambda s: v[s] * v[r]))
        ),
        lambda a, v: a @ np.outer(v, v).max(0),
        (A, V),
    ),
    "two folds": (
        lambda a: ft.build(5, lambda i: ft.fold("sum", 7, lambda r: a[i, r]) / ft.fold("max", 7, lambda s: a[i, s])),
        lambda a: a.sum(1) / a.max(1),
        (A,),
    ),
    "a fold of what does not vary": (
        lambda v: ft.build(7, lambda i: ft.fold("sum", (2, 3), lambda r, s: v[i])),
        lambda v: v * 6,
        (V,),
    ),
    "a fold alone": (lambda v: ft.fold("prod", 7, lambda r: v[r]), lambda v: v.prod(), (V,)),
    "an array from elsewhere": (
        lambda a: ft.build((5, 7), lambda i, j: a[i, j] * ft.as_tensor(A)[i, j] + ft.as_tensor([1, 2, 3])[i % 3]),
        lambda a: a * A + np.array([1, 2, 3, 1, 2])[:, None],
        (A,),
    ),
    "axes of one": (lambda v: ft.build((1, 7, 1), lambda i, j, k: v[j] + i + k), lambda v: v[None, :, None], (V,)),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_index_by_index(name: str) -> None:
    written, expected, args = CASES[name]
    imported = from_function(written, args)
    (got,) = imported.model.interpret(*imported.flatten(args))
    wanted = np.asarray(expected(*args))
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, 1e-12)


def test_a_product_is_one(tmp_path: Path) -> None:
    def product(a: Any, b: Any) -> Any:
        return ft.build((65, 33), lambda i, j: ft.fold("sum", 70, lambda r: a[i, r] * b[r, j]))

    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((65, 70), (70, 33)))
    fast = ft.optimize(product, (a, b), machine=REFERENCE, cache=tmp_path)
    assert [kernel.template for kernel in fast.kernels] == ["contraction"]
    np.testing.assert_allclose(fast(a, b), a @ b, 1e-4, 1e-4)


def _escaped(a: Any) -> Any:
    kept: list[Any] = []

    def body(i: Any) -> Any:
        kept.append(i)
        return a[i, 0]

    ft.build(5, body)
    return ft.build(5, lambda i: a[kept[0], 0])


def _number_escaped(a: Any) -> Any:
    kept: list[Any] = []
    ft.build(5, lambda i: kept.append(a[i, 0]) or 0.0)
    return ft.build((5, 5), lambda i, j: kept[0] + a[i, j])


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "beyond an axis": (lambda a: ft.build(5, lambda i: a[i + 1, 0]), "index 1 to 5 on axis 0"),
    "before an axis": (lambda a: ft.build(5, lambda i: a[i - 1, 0]), "index -1 to 3 on axis 0"),
    "too few indices": (lambda a: ft.build(5, lambda i: a[i]), "1 indices"),
    "a whole tensor": (lambda a: ft.build((5, 7), lambda i, j: a), "index whole tensors"),
    "a row": (lambda a: ft.build((5, 7), lambda i, j: a[0]), "index whole tensors"),
    "a tensor beside a number": (lambda a: ft.build((5, 7), lambda i, j: a * a[i, j]), "index whole tensors"),
    "an array beside a number": (lambda a: ft.build(5, lambda i: a[i, 0] * V), "index whole tensors"),
    "no number": (lambda a: ft.build(5, lambda i: None), "value at an index is None"),
    "two numbers": (lambda a: ft.build(5, lambda i: (a[i, 0], a[i, 1])), "return one number"),
    "no extent": (lambda a: ft.build((-5,), lambda i: 0.0), "each at least 1"),
    "half an extent": (lambda a: ft.build((2.5,), lambda i: 0.0), "each at least 1"),  # pyright: ignore
    "no extents": (lambda a: ft.fold("sum", None, lambda r: 0.0), "fold of shape None"),  # pyright: ignore
    "a slice": (lambda a: ft.build(5, lambda i: a[i, 1:3].sum()), "index whole tensors"),
    "a sum over indices": (lambda a: ft.build((5, 7), lambda i, j: a[i, j].sum()), "which has no axes"),
    "an extreme over indices": (lambda a: ft.build(5, lambda i: np.max(a[i, 0])), "which has no axes"),
    "a running sum": (lambda a: ft.build(5, lambda i: np.cumsum(a[i, 0])[0]), "which has no axes"),
    "a product of matrices": (lambda a: ft.build((5, 5), lambda i, j: a[i, 0] @ a[j, 0]), "which has no axes"),
    "a fold of a ufunc": (lambda a: ft.build(5, lambda i: np.add.reduce(a[i, 0])), "which has no axes"),
    "a part of a number": (lambda a: ft.build(5, lambda i: a[i, 0][0]), "which has no axes"),
    "a turned number": (lambda a: ft.build(5, lambda i: a[i, 0].T), "which has no axes"),
    "a number that has left": (_number_escaped, "outside of its build"),
    "a build within another": (lambda a: ft.build(5, lambda i: ft.build(5, lambda j: a[j, 0])), "within another"),
    "an index that has left": (_escaped, "outside of its build"),
    "an array": (lambda a: ft.build((5, 7), lambda i, j: A[i, j]), "frittata.as_tensor"),
    "a list": (lambda a: ft.build(5, lambda i: [1, 2, 3, 4, 5][i]), "frittata.as_tensor"),
    "an unknown fold": (lambda a: ft.fold("mean", 3, lambda r: a[r, 0]), "fold by 'mean'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_means_nothing_is_an_error(name: str) -> None:
    written, message = REFUSED[name]
    with pytest.raises(ModelError, match=message):
        from_function(written, (A,))
