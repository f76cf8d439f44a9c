"""numpy's functions on tensors that are traced give numpy's values, shapes and dtypes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from frittata.egraph import dtypes
from frittata.egraph.errors import FrittataError, ModelError, UnsupportedOpError
from frittata.egraph.model import Array
from frittata.frontends.arrays import trees
from frittata.frontends.arrays.tensor import input
from frittata.frontends.arrays.trace import from_function
from frittata.frontends.arrays.ufuncs import UFUNCS

SPECIAL = np.array([-np.inf, -2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.5, 7.0, np.inf, np.nan])
RNG = np.random.default_rng(0)
A = RNG.standard_normal((3, 5, 7)).astype(np.float32)
M = RNG.standard_normal((5, 7))
S = RNG.standard_normal((7, 7))
V = RNG.standard_normal(7).astype(np.float32)
I = RNG.integers(-9, 9, (5, 7)).astype(np.int32)  # noqa: E741
B = M > 0

DIVIDING = (np.floor_divide, np.remainder, np.fmod, np.reciprocal)

Case = tuple[Callable[..., Any], tuple[Any, ...]]

CASES: dict[str, Case] = {
    "operators": (lambda a, m: (-a + m * 2 - 1) / (m**2 + 1) % 3 // 0.5, (A, M)),
    "weak numbers": (lambda a, i: (a * 2.5, a + 1, i * 2, i + 1.5, 2 ** i.astype(float), 3 - i, True + i), (V, I)),
    "lists beside arrays": (
        lambda v, i: (v * [1, 2, 3, 4, 5, 6, 7], [0.5] * 7 - i, np.minimum(i, (0,) * 7), np.clip(v, [0] * 7, 1)),
        (V, I),
    ),
    "comparisons": (lambda a, m: (a > m) & (a <= 1) | ~(m == a) ^ (a != 0), (A, M)),
    "powers": (
        lambda a, i: (a**2, a**3, a**0.5, a**-1, i**0, i**1, i**3, np.power(a, 2.5), np.abs(a) ** a, np.abs(a) ** -a),
        (A, I),
    ),
    "numbers that a dtype cannot hold, beside it": (
        lambda i: (i < 300, i != -129, i >= 2**70, i == 2**33, i.astype(np.uint8) > -1, np.less(-(2**64), i)),
        (I.astype(np.int8),),
    ),
    "the least and the largest integer": (lambda i: (np.maximum(i, -128) & 127, i * -128), (I.astype(np.int8),)),
    "matmul": (lambda a, s, v: (a @ s, s @ v, v @ s, v @ v, a @ v), (A, S, V)),
    "sums": (lambda a, i, b: (a.sum(), np.sum(a, 1), a.sum((0, 2), keepdims=True), i.sum(0), b.sum(-1)), (A, I, B)),
    "means": (
        lambda a, i: (a.mean(), a.mean(1, keepdims=True), i.mean(0), np.var(a, 1), a.std((0, 1), ddof=1)),
        (A, I),
    ),
    "corrections": (lambda a: (np.std(a, 1, correction=1), np.var(a, correction=1), a.std(0, ddof=1)), (A,)),
    "extremes": (lambda a, b: (a.max(), a.min(1), np.ptp(a, 0), b.any(0), b.all(), np.amax(a, (0, 2))), (A, B)),
    "products": (lambda a, i: (a.prod(1), i.prod(0), np.cumprod(a, 1), np.cumsum(i, 0), np.cumsum(a)), (A, I)),
    "places": (lambda a: (a.argmax(), a.argmin(1), np.argmax(a, -1, keepdims=True)), (A,)),
    "counts": (lambda a, b: (np.count_nonzero(b), np.count_nonzero(b, axis=1), np.count_nonzero(a)), (A, B)),
    "shapes": (
        lambda a: (a.reshape(3, -1), a.reshape((7, 15)), a.T, a.transpose(1, 0, 2), a.ravel(), a.flatten()),
        (A,),
    ),
    "orders": (
        lambda a: (a.reshape(15, 7, order="F"), np.reshape(a, (-1, 3), "F"), a.ravel("F"), a.flatten(order="F")),
        (A,),
    ),
    "attributes": (
        lambda a, i: (a.mT, a.real, i.imag, a.conj(), np.real(i), np.imag(a), np.linalg.matrix_transpose(i)),
        (A, I),
    ),
    "sizes": (lambda a, i: (a * a.nbytes, i * i.itemsize), (A, I)),
    "rounded": (lambda m: (round(m.sum(), 1), round(m.mean()) * 1.0, np.round(m, 2)), (M,)),
    "axes": (
        lambda a: (
            a.swapaxes(0, -1),
            np.moveaxis(a, 0, -1),
            np.moveaxis(a, (0, 1), (2, 0)),
            np.expand_dims(a, (0, 2)),
            np.squeeze(a[:1], 0),
            np.broadcast_to(a[0], (2, 5, 7)),
        ),
        (A,),
    ),
    "at least": (lambda v, m: (np.atleast_1d(v), np.atleast_2d(v), np.atleast_3d(v), np.atleast_3d(m)), (V, M)),
    "joins": (
        lambda a, b, v: (
            np.concatenate([a, b]),
            np.concatenate((a, v[None]), axis=0),
            np.concatenate([a, b], axis=None),
            np.stack([a, b], axis=1),
            np.hstack([a, b]),
            np.hstack([v, v]),
            np.vstack([v, a]),
            np.dstack([a, b]),
            np.column_stack([v, v]),
            np.concatenate(a, -1),
            np.vstack(a),
            np.stack(a, -1),
        ),
        (M, M + 1, V),
    ),
    "what has no axes": (
        lambda v: (
            *(v[0].cumsum(), np.cumsum(v[0], 0), np.cumprod(v[0], -1), np.broadcast_to(v[0], (2, 3))),
            *(np.repeat(v[0], 2), np.repeat(v[0], 1, 0), np.repeat(v[0], 3, -1)),
        ),
        (V,),
    ),
    "numbers that are arrays": (
        lambda v, i: (
            *(np.stack([x[0], number]) for x in (v, i[0], i[0] > 0) for number in (1, 0.5, True)),
            *(np.einsum("i,->i", x, number) for x in (v, i[0]) for number in (1, 0.5)),
            *(np.concatenate([v, number], axis=None) for number in (1, 0.5)),
        ),
        (V, I),
    ),
    "splits": (lambda a: (*np.split(a, 7, 1), *np.split(a, [2, 5], -1), *np.array_split(a, 3, 1)), (M,)),
    "repeats": (
        lambda a, v: (np.tile(v, 3), np.tile(v, (2, 2)), np.tile(a, 2), np.repeat(a, 2, 1), v.repeat(3)),
        (M, V),
    ),
    "moves": (
        lambda a: (np.roll(a, 2), np.roll(a, -1, 0), np.roll(a, (1, 2), (0, 1)), np.flip(a), np.flip(a, 1)),
        (M,),
    ),
    "mirrors": (lambda a: (np.fliplr(a), np.flipud(a)), (M,)),
    "borders": (
        lambda a: (
            np.pad(a, 1),
            np.pad(a, ((1, 2), (0, 3)), constant_values=2.5),
            np.pad(a, 2, mode="edge"),
            np.pad(a, ((1, 2), (3, 0)), mode="reflect"),
            np.pad(a, 2, mode="wrap"),
            np.pad(a, ((0, 12), (17, 7)), mode="wrap"),
            np.pad(a, ((5, 1), (0, 7)), mode="symmetric"),
        ),
        (M,),
    ),
    "choices": (
        lambda a, b, i: (np.where(b, a, 0), np.where(a > 0, 1, i), np.clip(a, -0.5, 0.5), i.clip(0)),
        (M, B, I),
    ),
    "clips to bounds of several dtypes": (
        lambda v, i: (np.clip(i.astype(np.int8), 0.5, v), np.clip(i, v, 3), np.clip(i > 0, 0, 1)),
        (V, I),
    ),
    "bounds that a dtype cannot hold": (
        lambda i: (np.clip(i, -200, 3), i.clip(0, 300), np.clip(i, -200, 300), np.clip(i, -200, 2.5)),
        (I.astype(np.int8),),
    ),
    "a number that is clipped": (lambda v, i: (np.clip(2, v, v + 1), np.clip(1.5, i, 3)), (V, I.astype(np.int8))),
    "clips": (lambda a, v: (np.clip(a, None, v), np.clip(a, -v, v), a.clip(max=0.5)), (M, V)),
    "look-ups": (
        lambda a, i: (
            np.take(a, [0, 2, -1], axis=1),
            a.take(i),
            np.take_along_axis(a, i % 5, 0),
            np.take_along_axis(a, i[:1] % 7, 1),
            np.take_along_axis(a[:1], i[:, :2] % 7, 1),
            a[i % 5],
            a[i % 5, i % 7],
            a[:, [1, 3]],
            a[[[0], [1]], [2, 3]],
        ),
        (M, np.abs(I)),
    ),
    "look-ups by narrow integers": (
        lambda a, i: (a[i], a[1, i % 7], np.take(a, i, 1), np.take_along_axis(a, i, 0), a.take(-i.astype(np.int8))),
        (M, np.abs(I % 5).astype(np.uint8)),
    ),
    "look-ups beyond the ends": (
        lambda a, i: (*(np.take(a, i, axis, mode=mode) for axis in (None, 0, 1) for mode in ("clip", "wrap", "clip")),),
        (M, I.astype(np.int8)),
    ),
    "masks that are known": (
        lambda a: (
            *(a[:, np.arange(5) % 2 == 0], a[[True, False, True]], a[..., np.arange(7) > 2], a[np.ones((3, 5), bool)]),
            *(a[0, np.eye(5, 7) > 0], a[None, [True, False, True], ..., [1, 2]], a[:, np.eye(5, 7) > 0]),
        ),
        (A,),
    ),
    "slices": (
        lambda a: (
            *(a[0], a[-1, 2], a[:, 1:3], a[..., ::2], a[::-1, :, 5:1:-2], a[None, 0, ..., None], a[1:, -2:]),
            *(a[-3], a[:, 3:1:-1], a[np.int64(1)]),
        ),
        (A,),
    ),
    "an ellipsis for no axes": (
        lambda a, i: (
            *(a[:, [0, 2, 1], ..., [[1], [2]]], a[:, i[0] % 5, ..., i[:, :1] % 7], a[:, 0, ..., [1, 2]]),
            a[:, [0, 2, 1], [1, 2, 3], ...],
        ),
        (A, np.abs(I)),
    ),
    "order": (lambda a: (np.sort(a), np.sort(a, 0), np.argsort(a), a.argsort(0), np.sort(a, axis=None)), (M,)),
    "diagonals": (
        lambda s, v: (
            np.diag(v),
            np.diag(v, 2),
            np.diag(v, -1),
            np.diag(s, 1),
            s.diagonal(-2),
            np.trace(s),
            s.trace(1),
            np.trace(s.astype(np.int32)),
            np.trace(s, dtype=np.float32),
            np.tril(s),
            np.triu(s, 1),
            np.tril(v),
        ),
        (S, V),
    ),
    "products of vectors": (
        lambda a, v, s: (np.dot(s, v), v.dot(v), np.dot(a, s), np.inner(s, s), np.outer(v, v), np.vdot(s, s)),
        (A, V, S),
    ),
    "dot of many axes": (lambda a, s: (np.dot(s, a.transpose(0, 2, 1)), np.dot(a, 2)), (A, S)),
    "tensordot": (
        lambda a, m: (np.tensordot(a, m), np.tensordot(a, m, ([1, 2], [0, 1])), np.tensordot(a, m, 0)),
        (A, M),
    ),
    "einsum": (
        lambda a, m, s, v: (
            np.einsum("bij,jk->bik", a, s),
            np.einsum("bij,ij->b", a, m),
            np.einsum("ij,ij,j", m, m, v),
            np.einsum("ii->i", s),
            np.einsum("ii", s),
            np.einsum("...j,kj->...k", a, m),
            np.einsum("i,j->ji", v, v),
            np.einsum("ij->j", m),
        ),
        (A, M, S, V),
    ),
    "cross": (lambda a, b: (np.cross(a, b), np.cross(a.T, b.T, axis=0)), (M[:, :3], M[:, 3:6])),
    "norms": (
        lambda a: (
            np.linalg.norm(a),
            np.linalg.norm(a, axis=1),
            np.linalg.norm(a, 1, -1, keepdims=True),
            np.linalg.norm(a, np.inf, 0),
            np.linalg.norm(a, 3, 0),
        ),
        (M,),
    ),
    "likes": (
        lambda a: (
            *(np.zeros_like(a), np.ones_like(a, dtype=np.int32), np.full_like(a, 3), np.full_like(a, a[0])),
            *(np.full_like(a, 2.7, int), np.full_like(a, np.inf)),
        ),
        (M,),
    ),
    "rounding": (lambda a, i: (np.round(a), a.round(1), np.round(i)), (M * 9, I)),
    "not a number": (lambda a: (np.nan_to_num(a), np.nan_to_num(a, nan=1.0, posinf=2.0, neginf=3.0)), (SPECIAL,)),
    "differences": (lambda a, b: (np.diff(a), np.diff(a, 2, 0), np.diff(b)), (M, B)),
    "differences from what is put at the ends": (
        lambda a, v, i, b: (
            *(np.diff(v, prepend=0), np.diff(v, append=v[:2]), np.diff(a, 2, 0, prepend=a[:1], append=2)),
            *(np.diff(b, prepend=False), np.diff(a, 0, prepend=1), np.diff(i, prepend=0.5)),
        ),
        (M, V, I, B),
    ),
    "numpy's numbers as axes": (
        lambda a: (
            a.max(axis=np.int64(1)),
            a.sum(axis=(np.int64(0),)),
            a.reshape(np.int64(7), -1),
            np.roll(a, np.int64(2), np.int32(1)),
            np.roll(a, (1, 2), 0),
            np.roll(a, 1, ()),
            np.tile(a, np.int64(2)),
            np.split(a, np.array([3, 5]), 1),
            a.transpose(np.argsort([1, 0])),
            np.pad(a, np.array([[1, 1], [0, 2]])),
            np.repeat(a, np.int64(2), 0),
        ),
        (M,),
    ),
    "facts": (lambda a: (a * a.ndim + a.size - len(a) + np.size(a, 1), np.shape(a)[0] + a), (M,)),
    "folds of ufuncs": (
        lambda a, b: (np.add.reduce(a), np.maximum.reduce(a, axis=1), np.logical_and.reduce(b)),
        (M, B),
    ),
    "running folds": (lambda a: (np.add.accumulate(a), np.multiply.accumulate(a, axis=1)), (M,)),
    "running extremes": (
        lambda a, b, i: (
            *(np.maximum.accumulate(np.where(a > 1, np.nan, a)), np.minimum.accumulate(a, axis=-1)),
            np.maximum.accumulate(i),
            *(np.logical_or.accumulate(b), np.logical_and.accumulate(a > -1, 1), np.maximum.accumulate(b, axis=1)),
        ),
        (M, B, I),
    ),
    "pairs": (
        lambda a, v, i: (
            *(np.subtract.outer(a, v), np.maximum.outer(v, [1.0, 2.0]), np.less.outer(2, i), np.add.outer(i, a)),
        ),
        (M, V, I),
    ),
    "rows": (lambda a: [row * i for i, row in enumerate(a)], (M,)),
    "conversions": (
        lambda a, b: (a.astype(np.float32), b.astype(int), (a * 9).astype(np.int32), a.astype(bool)),
        (M, B),
    ),
    "conversions as they may be written": (
        lambda v, i: (
            *(i.astype(None), v.astype("i4", copy=False), i.astype(float, "C", "safe")),
            *(v.copy("F"), v.copy(), np.copy(v, "F")),
        ),
        (V, I),
    ),
    "constants": (
        lambda a: (
            a + np.ones((1, 7)) * np.ones(7),
            np.eye(7) + a[:, :1, None],
            np.arange(7) * a,
            a + np.float32(2),
            np.ones(3),
        ),
        (M,),
    ),
}


def operands_of(ufunc: np.ufunc) -> Iterator[tuple[Array, ...]]:
    """Give values that are special, in all pairs, of each dtype that a universal function takes."""
    if ufunc is np.matmul:
        yield M, S
        return
    for dtype in (np.float64, np.float32, np.int64, np.int32, np.bool_):
        values = SPECIAL if np.dtype(dtype).kind == "f" else np.arange(-3, 5)
        one = values.astype(dtype)
        given = (one,) if ufunc.nin == 1 else (one[:, None], one)
        try:
            list(map(dtypes.from_numpy, ufunc.resolve_dtypes((*(x.dtype for x in given), None))))
        except (TypeError, FrittataError):
            continue
        yield given


def check(function: Callable[..., Any], args: tuple[Any, ...], rtol: float) -> None:
    """Compare what a traced function means with what it returns."""
    with np.errstate(all="ignore"):
        expected = function(*args)
        imported = from_function(function, args)
        got = imported.unflatten(imported.model.interpret(*imported.flatten(args)))
        typed = imported.unflatten(imported.model.main.outputs)
    wanted, found, terms_ = (dict(trees.leaves(tree)) for tree in (expected, got, typed))
    assert wanted.keys() == found.keys()
    for path, value in wanted.items():
        assert terms_[path].shape == np.shape(value), path
        assert dtypes.to_numpy(terms_[path].dtype) == np.asarray(value).dtype, path
        near = 1e-3 if np.asarray(value).dtype == np.float16 else rtol  # what numpy makes of truth values
        np.testing.assert_allclose(found[path], value, near, near, err_msg=str(path))


@pytest.mark.parametrize("name", CASES)
def test_functions_mean_what_numpy_computes(name: str) -> None:
    check(*CASES[name], rtol=2e-5)


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda ufunc: ufunc.__name__)
def test_universal_functions_mean_what_numpy_computes(ufunc: np.ufunc) -> None:
    tried = 0
    for given in operands_of(ufunc):
        is_integer = given[0].dtype.kind == "i"
        if ufunc is np.power and given[0].dtype.kind != "f":
            with pytest.raises(UnsupportedOpError):
                from_function(ufunc, given)
            continue
        if ufunc in DIVIDING and is_integer:  # by zero there is no value that means anything
            given = (*given[:-1], np.where(given[-1] == 0, 1, given[-1]).astype(given[-1].dtype))
        check(lambda *args: ufunc(*args), given, rtol=1e-5)
        tried += 1
    assert tried


def test_arrays_from_elsewhere_are_copied() -> None:
    weight = np.ones(7)
    imported = from_function(lambda x: x * weight, (M,))
    weight[:] = 2
    np.testing.assert_array_equal(imported.model.interpret(M)[0], M)
    assert list(imported.model.params) == [next(iter(from_function(lambda x: x * np.ones(7), (M,)).model.params))]


def _put_into_zeros(x: Any) -> Array:
    out = np.zeros(5)
    out[2] = x[0].sum()
    return out


@dataclass
class Pair:
    x: Any
    y: Any


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a branch": (lambda x: x if x.sum() > 0 else -x, "not known while a function is traced"),
    "a number": (lambda x: float(x[0, 0]), "not known"),
    "a text": (lambda x: f"{x:.3f}", "not known"),
    "an array": (lambda x: np.asarray(x), "not known"),
    "in place": (lambda x: x.__iadd__(1), "in place"),
    "a mask": (lambda x: x[x > 0], "mask(.|\n)*choose among them: numpy.where"),
    "an index": (lambda x: x[5], "index 5"),
    "too many indices": (lambda x: x[0, 0, 0], "3 indices"),
    "no row": (lambda x: np.percentile(x, 50), "no row"),
    "no ufunc": (lambda x: np.spacing(x), "no row"),
    "an argument": (lambda x: np.sum(x, where=[True]), "where"),
    "an attribute": (lambda x: x.nonzero(), "has no attribute 'nonzero'(.|\n)*with others"),
    "what is done in place": (lambda x: x.sort(), "has no attribute 'sort'(.|\n)*write numpy.sort"),
    "an order": (lambda x: x.reshape(35, order="A"), "in the order 'A'"),
    "a vector as a matrix": (lambda x: x[0].mT, "at least two axes"),
    "an axis in a list": (lambda x: np.mean(x, axis=[0]), "axis \\[0\\](.|\n)*a tuple of integers"),
    "two axes for one": (lambda x: x.argmax((0, 1)), r"axis=\(0, 1\)(.|\n)*give an integer"),
    "no such axis to take from": (lambda x: np.take(x, [0], 4), "axis 4"),
    "no such axis to split": (lambda x: np.split(x, 1, 4), "axis 4"),
    "no such axis to transpose": (lambda x: x.transpose(0, 3), "axis 3"),
    "no such diagonal": (lambda x: x.diagonal(0, 0, 3), "axis 3"),
    "no such axes to sum": (lambda x: np.tensordot(x, x, 3), "axis -3"),
    "an axis that is missing": (lambda x: x.transpose((0,)), "give all axes"),
    "no parts": (lambda x: np.split(x, 0), "split into 0 parts"),
    "a difference less than once": (lambda x: np.diff(x, n=-1), "-1 times"),
    "two corrections": (lambda x: np.std(x, ddof=1, correction=1), "one of them"),
    "a place for a result": (lambda x: np.sum(x, out=np.zeros(())), "numpy.sum with out"),
    "an index that is known": (lambda x: x[[0, -9]], r"index -9 of axis 0 of f64\[5, 7\]"),
    "an index to take": (lambda x: np.take(x, [7], 1), "index 7 of axis 1"),
    "an index along an axis": (lambda x: np.take_along_axis(x, np.array([[5]]), 0), "index 5 of axis 0"),
    "rounded truth": (lambda x: np.round(x > 0), "round of truth values"),
    "nothing as a number": (lambda x: x + None, "arithmetic with a NoneType"),
    "an option": (lambda x: np.add(x, 1, dtype=np.float32), "dtype"),
    "a number that is too large": (lambda x: x.astype(np.int32) + 2**33, "a wider dtype"),
    "a bound that is too large": (lambda x: np.clip(x.astype(np.uint8), 300, None), "a wider dtype"),
    "no such axis of a number": (lambda x: x[0, 0].sum(1), "axis 1 of a tensor with 0 axes"),
    "no such axis to search": (lambda x: x[0, 0].argmax(3), "axis 3 of a tensor with 0 axes"),
    "no axis to look up along": (lambda x: np.take_along_axis(x[0, 0], x[0, 0].argmax(), 0), "without axes"),
    "shifts for other axes": (lambda x: np.roll(x, (1, 2, 3), (0, 1)), r"by \(1, 2, 3\) along \(0, 1\)"),
    "a mask of other extents": (lambda x: x[[True, False]], r"shape \(2,\) for axes of \(5,\)"),
    "a truth value": (lambda x: x[True], "a truth value as an index"),
    "a way to look up": (lambda x: np.take(x, [0], 0, mode="nearest"), "mode='nearest'"),  # pyright: ignore
    "a diagonal of no square": (lambda x: np.einsum("ii", x), "extents 5 and 7"),
    "an axis twice": (lambda x: x.sum((0, -2)), "one of them twice"),
    "an axis that is a float": (lambda x: x.sum(1.0), "give integers"),
    "axes of two extents": (lambda x: np.tensordot(x, x[:, :1], ([1], [1])), "axes of one extent"),
    "no such axis": (lambda x: np.expand_dims(x, 5), "axis 5"),
    "a tensor as an axis": (lambda x: np.roll(x, x.argmax()), "a tensor as shift"),
    "a masked array": (lambda x: x + np.ma.masked_less(np.ones(7), 2), "a constant is a MaskedArray"),
    "a mean of integers": (lambda x: np.mean(x, dtype=np.int32), "a mean of dtype i32"),
    "tens of integers": (lambda x: np.round(x.astype(int), -1), "to tens"),
    "no repetition": (lambda x: np.repeat(x, 0), "numpy.repeat by 0"),
    "two unknown extents": (lambda x: x.reshape(-1, -1), "one of them -1 at most"),
    "borders of three": (lambda x: np.pad(x, ((1, 2, 3),) * 2), "two for each axis"),
    "a slice of floats": (lambda x: x[:, 0:1.5], r"axis 1 .* slice\(0, 1.5, None\)"),  # pyright: ignore
    "an order of a norm": (lambda x: np.linalg.norm(x, "foo", 0), "order 'foo'"),  # pyright: ignore
    "a number to fill with that is too large": (lambda x: np.full_like(x, 2**33, np.int32), "is no value of i32"),
    "no number to fill with": (lambda x: np.full_like(x, "a"), "a is no value of f64"),
    "a border that is too large": (lambda x: np.pad(x.astype(np.int8), 1, constant_values=300), "300 is no value"),
    "a change in place": (lambda x: np.nan_to_num(x, copy=False), "copy=False changes its argument"),
    "arrays for values": (lambda x: np.nan_to_num(x, nan=np.ones(7)), "arrays in the place of values"),  # pyright: ignore
    "a triangle without axes": (lambda x: np.tril(x[0, 0]), r"a triangle of f64\[\]"),
    "a diagonal without axes": (lambda x: np.diag(x[0, 0]), r"numpy.diag of f64\[\]"),
    "an extent that is kept": (lambda x: np.broadcast_to(x, (2, -1, 7)), "extents of at least 1"),
    "widths by axis": (lambda x: np.pad(x, {0: 1}), "two widths for each axis in a tuple"),
    "a norm over one axis": (lambda x: np.linalg.norm(x, "fro", 1), "order fro over 1 axes"),
    "an extent that is nothing": (lambda x: x.reshape(0, -1), r"reshape to \(0, -1\)"),
    "a result that gives tensors out": (lambda x: (row for row in x), "returns a generator of tensors"),
    "a result that has tensors": (lambda x: {"out": Pair(x, 1.0)}, "returns a Pair of tensors"),
    "a value of an array": (_put_into_zeros, "a value of an array is written: (.|\n)*not known(.|\n)*numpy.stack"),
    "a flip without axes": (lambda x: np.flipud(x[0, 0]), "axis 0 of a tensor without axes"),
    "a join without axes": (lambda x: np.concatenate(x[0]), "axis 0 of a tensor without axes"),
    "axes that are not there": (lambda x: np.swapaxes(x[0, 0], 1, 1), "axis 1 of a tensor without axes"),
    "a difference without axes": (lambda x: np.diff(x[0, 0]), "axis -1 of a tensor without axes"),
    "a roll without axes": (lambda x: np.roll(x[0, 0], 1, 0), "axis 0 of a tensor without axes"),
    "a repetition along no axis": (lambda x: np.repeat(x[0, 0], 2, 1), "axis 1"),
    "a vector of three and one of two": (lambda x: np.cross(x[:, :3], x[:, :2]), "vectors of three"),
    "two ellipses": (lambda x: x[..., 0, ...], "two ellipses"),
    "a negative border": (lambda x: np.pad(x, -1), "at least 0"),
    "a conversion that is not safe": (lambda x: x.astype(int, casting="safe"), "as int64, which is not 'safe'"),
    "a dtype": (lambda x: x.astype("datetime64[s]"), "datetime64"),
    "places of values": (lambda x: np.where(x > 0), "static shape"),
    "torch": (lambda x: __import__("torch").relu(x), "torch.relu"),
    "an array of an array": (lambda x: np.asarray(x) + 1, r"numpy.asarray(.|\n)*frittata.as_tensor"),
    "an array of tensors": (lambda x: np.array([x[0], -x[1]]), r"numpy.array(.|\n)*numpy.stack"),
    "einsum": (lambda x: np.einsum("ij,jk->ik", x, x), "j has extents"),
    "einsum of too few": (lambda x: np.einsum("ij,jk->ik", x), "of 1 operands"),
    "axes that einsum would drop": (lambda x: np.einsum("...j->j", x), "the result has 'j'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_traced_is_an_error_that_says_why(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(FrittataError, match=message):
        from_function(function, (M,))


def test_what_asks_for_attributes_learns_that_there_are_none() -> None:
    assert not hasattr(input("x", (3,)), "detach")


@pytest.mark.parametrize("kind", [np.matrix, np.ma.MaskedArray])
def test_arrays_that_mean_something_else_are_refused(kind: type[Array]) -> None:
    with pytest.raises(ModelError, match=r"argument x is a (matrix|MaskedArray)(.|\n)*numpy.asarray"):
        from_function(lambda x: x * x, (S.view(kind),))


def test_arrays_that_no_tensor_can_be_are_named() -> None:
    with pytest.raises(ModelError, match=r"no element type(.|\n)*argument b"):
        from_function(lambda a, b: a + b, (M, M.astype("U4")))


def test_a_root_by_float_power_is_a_power() -> None:
    """numpy's `power` takes the square root in its place, which is not a number where minus infinity is."""
    x = np.array([-np.inf, -0.0, 4.0])
    for function in (lambda x: np.float_power(x, 0.5), lambda x: x**0.5):
        (found,) = from_function(function, (x,)).model.interpret(x)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(found, function(x))
