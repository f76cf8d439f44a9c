"""Complex arrays are pairs of real ones: traced and compiled, functions of them give what numpy gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frittata as ft
from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import FrittataError, ModelError, UnsupportedOpError
from frittata.egraph.machine import REFERENCE
from frittata.frontends.arrays import trees
from frittata.frontends.arrays.trace import from_function

RNG = np.random.default_rng(0)
CONSTANT = RNG.standard_normal(7) + 1j * RNG.standard_normal(7)
SPECIAL = (0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan)

Function = Callable[..., Any]


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def complexes(*shape: int) -> Any:
    return floats(*shape) + 2j * floats(*shape)


def as_precise(value: Any, is_single: bool) -> Any:
    """Return an array in single precision, or as it is."""
    kind = {"f": np.float32, "c": np.complex64}.get(value.dtype.kind)
    return value.astype(kind) if is_single and kind else value


def assert_same(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    results = dict(trees.leaves(found))
    assert results.keys() == dict(trees.leaves(wanted)).keys()
    for path, value in trees.leaves(wanted):
        a, b = np.asarray(results[path]), np.asarray(value)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), path
        near = tolerance if b.dtype.name in ("float32", "complex64") else 1e-11
        size = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0))) if b.dtype.kind in "fc" else 1.0
        np.testing.assert_allclose(a, b, rtol=0, atol=near * size, err_msg=str(path))


def check(function: Function, args: tuple[Any, ...]) -> None:
    """Compare what a traced function means with what it returns."""
    imported = from_function(function, args)
    found = imported.model.interpret(*imported.flatten(args))
    stored = [x.astype(dtypes.to_numpy(term.dtype)) for x, term in zip(found, imported.model.main.outputs, strict=True)]
    assert_same(imported.unflatten(stored), function(*args))


CASES: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "parts": (lambda z: (z.real, z.imag, np.real(z), np.imag(z), abs(z), z.conj(), z.conjugate()), (complexes(3, 7),)),
    "angles": (
        lambda z, x: (np.angle(z), np.angle(z, deg=True), np.angle(x), np.angle(x > 0, deg=True)),
        (complexes(3, 7), floats(5)),
    ),
    "of real ones": (lambda x: (x.real, x.imag, np.conj(x), np.iscomplexobj(x), np.isreal(x)), (floats(3, 7),)),
    "differences from what is put at the ends": (
        lambda z, x: (np.diff(z, prepend=2), np.diff(z, 2, 0, append=z[:1]), np.diff(x, append=1j)),
        (complexes(3, 7), floats(5)),
    ),
    "facts": (
        lambda z: (z.real * z.ndim + z.size + z.itemsize, np.shape(z), np.iscomplexobj(z), np.isrealobj(z)),
        (complexes(1, 17),),
    ),
    "sums": (
        lambda z, w, x: (z + w, z - x, x - z, -z, +z, z + 2, 1j - z, 2 + x * 1j),
        (complexes(3, 7), complexes(7), floats(3, 1)),
    ),
    "products": (
        lambda z, w, x: (z * w, z * x, x * z, z * 3, z * 2j, (1 - 2j) * z, x * 1j, x * (1 + 0j), z**2, np.square(z)),
        (complexes(3, 1, 7), complexes(5, 1), floats(7)),
    ),
    "quotients": (
        lambda z, w, x: (z / w, z / x, x / z, z / 2, 1 / z, z / 2j, 1j / w, x / (1 + 1j), np.reciprocal(z)),
        (complexes(3, 7), complexes(7), floats(3, 1)),
    ),
    "quotients of any size": (lambda z, w: z / w, (complexes(4, 3), complexes(4, 3) * [[1e-25], [1e25], [1e-18], [1]])),
    "a quotient by nothing": (lambda z: (z[:2] / 0j, z[:2] / 0), (np.array([1 + 1j, 2 - 1j, 0]),)),
    "powers": (
        lambda z: (z**0, z**1, z**3, z**7, z**0.5, z**2.5, z**-1, z**-2, np.power(z, np.float32(3)), z ** np.array(2)),
        (complexes(3, 5),),
    ),
    "powers by tensors": (
        lambda z, w, x: (z**w, z**x, x**w, 2**z, z ** (1 - 2j), np.float_power(1j, x)),
        (np.concatenate((complexes(1, 5), [[0, 0, -2, 1j, 0]])), complexes(5) + 3, np.arange(0, 5)),
    ),
    "a power in float64": (lambda z: np.float_power(z, 3), (complexes(17),)),
    "exponentials": (
        lambda z: (np.exp(z), np.log(z), np.log2(z), np.log10(z), np.sqrt(z), np.sign(z), np.sqrt(z * 0)),
        (complexes(3, 7),),
    ),
    "trigonometry": (lambda z: (np.sin(z), np.cos(z), np.sinh(z), np.cosh(z)), (complexes(3, 7),)),
    "tangents": (lambda z: (np.tan(z), np.tanh(z), np.tanh(z * 300).real), (complexes(3, 7),)),
    "comparisons": (
        lambda z, x: (z == z[0], z != x, z == 1j, np.isreal(z * x), np.iscomplex(z.real * 1j), x == 2 + 0j),
        (complexes(3, 7), floats(7)),
    ),
    "truth": (
        lambda z: (
            z.any(0),
            np.all(z, axis=1),
            np.count_nonzero(z, 0),
            np.logical_and(z, 1),
            np.logical_or(z, z.T),
            np.logical_xor(z, z.real),
            np.logical_not(z),
            z.astype(bool),
        ),
        (np.array([[0, 1j, 0], [-1j, 1, 0], [0, np.nan, 0]]),),
    ),
    "what is finite": (
        lambda z: (np.isnan(z), np.isinf(z), np.isfinite(z)),
        (np.array([complex(re, im) for re in SPECIAL for im in SPECIAL]),),
    ),
    "moved as they are": (
        lambda z: (z.real, -z, z.conj(), z[::-1], z.reshape(7, 7).T, np.where(z == z, z, 0)),
        (np.array([complex(re, im) for re in SPECIAL for im in SPECIAL]),),
    ),
    "matrices": (
        lambda z, w, x: (
            z @ w,
            x @ w,
            z[0] @ w,
            np.einsum("ij,jk->ki", z, w),
            np.einsum("ij,jk,k->i", x, w, w[0]),
            np.dot(z, w),
            np.dot(z, 2j),
            np.inner(z, x),
            np.vdot(z, x),
            np.outer(z[0], [1j, 2]),
            np.tensordot(z, w, 1),
            np.cross(z[:, :3], x[:, 2:5]),
        ),
        (complexes(3, 5), complexes(5, 7), floats(3, 5)),
    ),
    "reductions": (
        lambda z, x: (
            z.sum(),
            np.sum(z, (0, 2), keepdims=True),
            z.mean(1),
            np.cumsum(z, 1),
            np.add.reduce(z),
            z.var(0),
            z.std((0, 1), ddof=1),
            np.trace(z[0]),
            x.sum(dtype=complex),
            x.std(dtype=complex),
            z.sum(dtype=np.complex128),
            np.linalg.norm(z),
            np.linalg.norm(z, 3, 1),
            np.diff(z, axis=1),
        ),
        (complexes(3, 5, 7), floats(7)),
    ),
    "places": (
        lambda z, x: (
            z[1:, ::2],
            z[:, -1],
            z[[2, 0]],
            z[..., None],
            z[np.arange(3), [0, 2, 4]],
            z.reshape(-1, 5),
            z.T.ravel(),
            np.roll(z, 2, 1),
            np.flip(z),
            np.take(z, [4, 0], 1),
            np.tile(z, 2),
            np.repeat(z, 2, 0),
            np.split(z, [1, 3], 1),
            np.atleast_3d(z, x),
            np.triu(z),
            np.diag(z[:, :3]),
            np.round(z, 1),
            [row * i for i, row in enumerate(z)],
        ),
        (complexes(3, 5), floats(3, 5)),
    ),
    "joins": (
        lambda z, x: (
            np.concatenate([z, x]),
            np.concatenate([x[0], [1j, 2]]),
            np.concatenate(z),
            np.stack([x, z, x > 0]),
            np.hstack([z, z]),
            np.pad(z, 1),
            np.pad(z, (1, 2), constant_values=2 - 1j),
            np.pad(z, 1, "reflect"),
        ),
        (complexes(3, 5), floats(3, 5)),
    ),
    "choices": (
        lambda z, x: (
            np.where(x > 0, z, x),
            np.where(x > 0, 1j, x),
            np.where(z, x, 1),
            np.where(x > 0, np.round(x).astype(np.float16), 2j),
            np.nan_to_num(z / np.where(x > 0, 0, 1)),
        ),
        (complexes(3, 5), floats(3, 5)),
    ),
    "like others": (
        lambda z, x: (
            np.zeros_like(z),
            np.ones_like(x, dtype=complex),
            np.ones_like(z, dtype=np.float32),
            np.full_like(z, 1 - 2j, shape=(2, 3)),
            np.full_like(z, x[0], shape=(7,)),
            np.full_like(x, 3, dtype=np.complex64),
            np.copy(z),
        ),
        (complexes(3, 5), floats(7)),
    ),
    "conversions": (
        lambda z, x, i: (
            z.astype(np.complex64),
            z.astype(np.complex128, casting="safe"),
            x.astype(complex),
            i.astype(np.complex64),
            z + i,
            i * 1j,
            z * i.astype(np.int8),
            i.astype(np.int16) * np.complex64(1j),
            z + np.round(x).astype(np.float16),
            z + np.float64(2),
            z * np.complex128(1j),
        ),
        (complexes(3, 7), floats(7), RNG.integers(-9, 9, 7)),
    ),
    "constants": (lambda x: (x * CONSTANT, CONSTANT.astype(np.complex64) + x, np.eye(7) * 1j @ x.T), (floats(7, 5).T,)),
}


@pytest.mark.parametrize("is_single", [False, True])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_of_complex_arrays_mean_what_numpy_computes(name: str, is_single: bool) -> None:
    function, args = CASES[name]
    check(function, tuple(as_precise(value, is_single) for value in args))


@pytest.mark.parametrize("dtype", [dtypes.to_numpy(name) for name in dtypes.NAMES], ids=str)
def test_real_dtypes_meet_complex_ones_as_numpy_says(dtype: Any) -> None:
    def function(x: Any, z: Any) -> Any:
        return (
            *(x + z, z * x, x / z, x == z, x * 2j, 1j + x, x * np.complex64(1j), x + np.complex128(1j)),
            *(np.where(x != 0, x, z), np.where(x != 0, x, 1j), np.concatenate([x, z]), np.stack([z, x])),
            *(np.dot(x, z), np.vdot(z, x), np.outer(x, z), np.inner(z, x), np.einsum("i,i", x, z)),
            *(np.logical_or(x, z), np.angle(x), np.angle(x, deg=True), z ** np.int8(3), np.full_like(z, x[0])),
            *(x.astype(complex), np.sum(x, dtype=np.complex64), np.mean(x, dtype=complex)),
            *(np.fft.fft(x), np.fft.ifft(x), np.fft.rfft(x), np.fft.irfft(x), np.fft.fft(z), np.fft.irfft(z)),
            *(np.fft.irfft2(x[None]), np.fft.irfftn(x, axes=(0,))),
        )

    for kind in (np.complex64, np.complex128):
        args = np.array([1, 2, 3, 1]).astype(dtype), np.array([1 + 1j, 2 - 3j, 0.5j, 2]).astype(kind)
        imported = from_function(function, args)
        types = [(shapes.concrete(term.shape), dtypes.to_numpy(term.dtype)) for term in imported.model.main.outputs]
        typed = (np.zeros(*type_) for type_ in types)
        for found, wanted in zip(imported.unflatten(typed), function(*args), strict=True):
            assert (found.dtype, found.shape) == (wanted.dtype, np.shape(wanted))


def test_powers_that_vanish_are_zero() -> None:
    z = np.array([1e150j, 1e200 + 1e200j])
    imported = from_function(lambda z: (z**-3, z**-50), (z,))
    assert not np.any(imported.model.interpret(*imported.flatten((z,))))


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_the_imaginary_part_is_lost_where_results_are_real() -> None:
    def function(z: Any) -> Any:
        return z.astype(np.float32), z.sum(dtype=float), np.cumsum(z * 4, dtype=np.int32)

    check(function, (complexes(3, 5),))


@pytest.mark.parametrize("is_single", [False, True])
@pytest.mark.parametrize("extent", [1, 2, 7, 16, 17, 129, 131, 773])
def test_transforms(extent: int, is_single: bool) -> None:
    def transformed(x: Any, z: Any) -> Any:
        half = np.fft.rfft(x)
        whole = np.fft.fft(x), np.fft.fft(z), np.fft.ifft(x), np.fft.ifft(z), np.fft.ihfft(x)
        return half, np.fft.irfft(half, extent), np.fft.irfft(z, extent), np.fft.hfft(z, extent), *whole

    args = floats(3, extent), complexes(3, extent)
    check(transformed, tuple(as_precise(value, is_single) for value in args))


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
def test_transforms_over_several_axes(norm: Any) -> None:
    def transformed(x: Any, z: Any) -> Any:
        return (
            np.fft.fft(z, 11, 1, norm),
            np.fft.ifft(x, n=3, axis=0, norm=norm),
            np.fft.rfft(x, 6, norm=norm),
            np.fft.irfft(z, 8, norm=norm),
            np.fft.irfft(x, norm=norm),
            np.fft.hfft(z, norm=norm),
            np.fft.ihfft(x, 5, norm=norm),
            np.fft.fft2(x, norm=norm),
            np.fft.ifft2(z, (3, 8), norm=norm),
            np.fft.rfft2(x, (5, -1), norm=norm),
            np.fft.irfft2(z, norm=norm),
            np.fft.irfft2(z, s=(3, 9), norm=norm),
            np.fft.fftn(z, norm=norm),
            np.fft.ifftn(z, axes=(2, 0), norm=norm),
            np.fft.rfftn(x, norm=norm),
            np.fft.irfftn(z, (4, 5), (1, 2), norm=norm),
        )

    check(transformed, (floats(2, 5, 7), complexes(2, 5, 7)))


def test_frequencies_and_shifts() -> None:
    def shifted(x: Any, z: Any, step: Any) -> Any:
        ends = (f(v, axes) for f in (np.fft.fftshift, np.fft.ifftshift) for v in (x, z) for axes in (None, 1, (0, -1)))
        return *ends, np.fft.fftfreq(7, step), z * np.fft.rfftfreq(13, 0.5), np.fft.fft(x > 0)

    check(shifted, (floats(5, 2), complexes(4, 7), np.float64(0.1)))


def test_complex_arrays_are_read_where_they_lie_and_results_are_complex(tmp_path: Path) -> None:
    def function(pair: dict[str, Any], gain: float = 2.0, *, x: Any) -> dict[str, Any]:
        spectrum = np.fft.fft(pair["z"] * gain)
        return {"filtered": (np.fft.ifft(spectrum * pair["w"]), gain), "size": np.abs(spectrum) * x}

    given = {"z": as_precise(complexes(3, 17), True), "w": as_precise(complexes(17, 3), True).T[:1]}
    x = as_precise(floats(17), True)
    fast = ft.optimize(function, (given,), {"x": x}, machine=REFERENCE)
    fast.save(tmp_path / "f.frt")
    for call in (fast, ft.load(tmp_path / "f.frt")):
        assert_same(call(given, x=x), function(given, x=x))
        turned = {name: np.flip(value) for name, value in given.items()}
        assert_same(call(turned, x=x), function(turned, x=x))
        with pytest.raises(ModelError, match="argument pair_z is no complex tensor or array"):
            call({**given, "z": given["z"].real}, x=x)
    with pytest.raises(ModelError, match="x"):
        fast(given, x=x + 0j)
    fast.verify(given, x=x).check()


def test_arguments_by_position_are_numbers_and_arrays() -> None:
    fast = ft.optimize(lambda z, w: z * w + 1, (np.complex64(2j), np.array(1 - 1j)), machine=REFERENCE)
    assert_same(fast(np.complex64(3), np.array(2j)), np.complex64(3) * np.array(2j) + 1)
    colliding = from_function(lambda z, z_0: z[0] - z_0, ([complexes(3)], complexes(3)))
    assert [term.attrs[0] for term in colliding.model.main.inputs] == ["z_0", "z_0_"]


def test_arguments_that_are_no_plain_complex_arrays_are_refused() -> None:
    z = complexes(2, 3)
    fast = ft.optimize(lambda z: z * 2, (z,), machine=REFERENCE)
    for other in (z.view(np.ma.MaskedArray), z.view(np.matrix)):
        with pytest.raises(ModelError, match=r"an argument is a (MaskedArray|matrix)"):
            fast(other)
    for other in (z.real, 1j, None):
        with pytest.raises(ModelError, match="argument z is no complex tensor or array"):
            fast(other)


def test_dims_that_are_not_known() -> None:
    def function(z: Any, x: Any) -> Any:
        return (z * np.fft.fft(x)).sum(0) * x.shape[0]

    fast = ft.optimize(
        function, (complexes(3, 8), floats(3, 8)), dynamic_shapes=({0: "n"}, {0: "n"}), machine=REFERENCE
    )
    for rows in (1, 5):
        given = complexes(rows, 8), floats(rows, 8)
        assert_same(fast(*given), function(*given))
    with pytest.raises(ModelError, match="n is 3 in one argument and 2 in 'x'"):
        fast(complexes(3, 8), floats(2, 8))


def test_tensors_written_index_by_index() -> None:
    z, w = complexes(3, 5), complexes(5, 7)

    def written(z: Any, w: Any) -> Any:
        product = ft.build((3, 7), lambda i, j: ft.fold("sum", 5, lambda r: z[i, r] * w[r, j].conj()))
        return product, ft.build(5, lambda i: z[0, 4 - i].imag + np.angle(z[1, i]) * 1j + i)

    imported = from_function(written, (z, w))
    found = imported.unflatten(imported.model.interpret(*imported.flatten((z, w))))
    assert_same(found, (z @ w.conj(), z[0, ::-1].imag + np.angle(z[1]) * 1j + np.arange(5)))


def test_a_builder_takes_complex_params_and_gives_parts() -> None:
    b, w = ft.Builder(), complexes(5)
    with b.function("main"):
        real, imag = (b.input(name, (3, 5), "f64") for name in ("real", "imag"))
        y = b.emit((real + 1j * imag) * b.param("w", w), "product")
        with pytest.raises(ModelError, match=r"an output of complex numbers(.|\n)*x\.real and x\.imag"):
            b.output(y)
        b.output(y.real, y.imag)
        with pytest.raises(ModelError, match=r"input 'z' is complex(.|\n)*real \+ 1j \* imag"):
            b.input("z", (3,), np.complex64)
    z = complexes(3, 5)
    wanted = z * w
    assert_same(b.model().interpret(z.real, z.imag), (wanted.real, wanted.imag))


def test_complex_numbers_are_told_by_the_tensor() -> None:
    z = ft.as_tensor(complexes(3, 5))
    assert repr(z) == "Tensor(complex128[3, 5])" and z.dtype == np.complex128
    assert (ft.as_tensor(2j) * np.ones(3, np.complex64)).dtype == np.complex128


REFUSED: dict[str, tuple[Function, str]] = {
    "an order": (lambda z: np.maximum(z, 1j), r"numpy\.maximum of complex numbers(.|\n)*x\.real and x\.imag"),
    "the largest": (lambda z: z.max(), r"numpy\.max of complex numbers"),
    "a place": (lambda z: np.argsort(z), r"numpy\.argsort of complex numbers"),
    "a limit": (lambda z: np.clip(z.real, 0, 1j), r"numpy\.clip of complex numbers"),
    "a product": (lambda z: z.prod(), r"numpy\.prod of complex numbers"),
    "a function": (lambda z: np.arctan(z), r"numpy\.arctan of complex numbers"),
    "places": (lambda z: np.take(z.real, z), r"numpy\.take with complex numbers for places"),
    "an index": (lambda z: z.real[z], "indexed by a Complex"),
    "a call of numpy": (lambda z: np.linalg.inv(z), "numpy.linalg.inv has no row"),
    "half of what has no other": (lambda z: np.fft.rfft(z), "complex numbers(.|\n)*numpy.fft.fft"),
    "a norm of a transform": (lambda z: np.fft.fft(z, norm="no"), "norm='no'"),  # pyright: ignore
    "an axis twice": (lambda z: np.fft.fftn(z, axes=(0, 0)), "each once"),
    "no values to transform": (lambda z: np.fft.fft(z, 0), "a transform of 0 values"),
    "no real values": (lambda z: np.fft.irfft(z[:, :1]), "to 0 real values"),
    "a number of values for each axis": (lambda z: np.fft.fftn(z, (2,), (0, 1)), "a number of values for each"),
    "an operator": (lambda z: ft.ops.softmax(z), "softmax of complex numbers"),
    "a function of the user": (lambda z: ft.extern(print, [z], out=((3,), "f64")), "extern of complex numbers"),
    "a border": (lambda z: np.pad(z.real, 1, constant_values=1j), "no value of f64"),
    "a spread of real parts": (lambda z: z.var(dtype=float), "a spread of complex numbers in a real dtype"),
    "a fill": (lambda z: np.full_like(z.real, 1j), "no value of f64"),
    "a conversion that is not safe": (lambda z: z.astype(float, casting="safe"), "which is not 'safe'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_named(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(FrittataError, match=message):
        from_function(function, (complexes(3, 5),))


def test_numpy_is_not_called_with_complex_numbers() -> None:
    with pytest.raises(UnsupportedOpError, match=r"numpy\.linalg\.inv has no row(.|\n)*given complex numbers"):
        ft.optimize(lambda z: np.linalg.inv(z), (complexes(3, 3),), machine=REFERENCE)
