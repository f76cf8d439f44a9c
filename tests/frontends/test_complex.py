"""Complex tensors are pairs of real ones: imported and compiled they give what torch gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import ModelError, SharedMemoryError, StaleParametersError, UnsupportedOpError
from frittata.egraph.machine import REFERENCE

Forward = Callable[..., Any]


def floats(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def complexes(*shape: int) -> Tensor:
    return torch.complex(floats(*shape), floats(*shape).flip(0) * 2)


def assert_same(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    for a, b in zip(_tensors(found), _tensors(wanted), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        scale = max(1.0, float(b.abs().nan_to_num(0, 0, 0).max())) if b.dtype != torch.bool else 1
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance * scale, equal_nan=True)


def _tensors(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else list(found)


def rotated(x: Tensor, turns: Tensor) -> Tensor:
    """Rotary positions as Llama's authors wrote them."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[None, :, None]).flatten(-2)


def assigned(x: Tensor) -> Tensor:
    out = torch.zeros(x.shape[0], 5, dtype=torch.cfloat)
    out[:, :3] = torch.fft.rfft(x)[:, :3] * 2j
    out[:, -1] = x[:, 0]
    return torch.view_as_real(out)


CASES: dict[str, tuple[Forward, tuple[Tensor, ...]]] = {
    "rotary": (
        lambda x: rotated(x, torch.polar(torch.ones(7, 4), torch.outer(torch.arange(7.0), 0.1 * torch.arange(1.0, 5)))),
        (floats(2, 7, 3, 8),),
    ),
    "parts": (lambda z: (z.real, z.imag, z.abs(), z.angle(), z.conj(), z.conj().imag), (complexes(3, 5),)),
    "norms": (
        lambda z: (torch.linalg.vector_norm(z, dim=1), torch.linalg.vector_norm(z, 3, dtype=torch.complex128)),
        (complexes(3, 5),),
    ),
    "of real ones": (lambda x: (torch.angle(x), torch.real(x), torch.conj(x), torch.sgn(x)), (floats(3, 5),)),
    "sums": (lambda z, x: (z + x, x - z, z - 2, 1j + z, z.sum(1), z.mean(), z.cumsum(0)), (complexes(3, 5), floats(5))),
    "sums with a factor": (
        lambda z, x: (torch.add(z, z[0], alpha=2j), torch.sub(x, z, alpha=1 - 2j), torch.rsub(z, x, alpha=1j)),
        (complexes(3, 5), floats(5)),
    ),
    "truth": (lambda z: (z.bool(), torch.where(z.bool(), z, 1)), (torch.tensor([0j, 1j, 1, -1j]),)),
    "numbers that are real": (
        lambda x: (x * (1 + 0j), x * 0j, x / (2 + 0j), (x * (1 + 0j)).imag, torch.sqrt(x.abs() * complex(1))),
        (floats(3, 5),),
    ),
    "moved values": (
        lambda z: (
            torch.fliplr(z).flipud().rot90().unfold(-1, 3, 2),
            F.pixel_shuffle(z.reshape(1, 4, 2, 3), 2),
            F.pixel_unshuffle(z.reshape(1, 1, 4, 6), 2),
            F.channel_shuffle(z.reshape(1, 4, 2, 3), 2),
            F.fold(F.unfold(z.reshape(1, 1, 4, 6), 2), (4, 6), 2),
            z.put(torch.tensor([3, -1]), z[0, :2], accumulate=True),
            z.masked_scatter(z.real > 0, z * 2),
        ),
        (complexes(4, 6),),
    ),
    "convolutions": (
        lambda z, w, b: (
            F.conv1d(z, w, b, 2, 1, 2),
            F.conv1d(z[0], w, b, padding="same"),
            F.conv1d(z[:, :2], w[:, :1], groups=2),
            F.conv_transpose2d(z[..., None], w[..., None], b, (2, 1)),
        ),
        (complexes(2, 4, 9), complexes(4, 4, 3), complexes(4)),
    ),
    "products that are added": (
        lambda z, x: (
            torch.addcmul(z, z[0], z * 2, value=1 - 2j),
            torch.addcdiv(z, x, z + 3, value=2),
            torch.cross(z[:, :3], z[:1, 1:4], -1),
        ),
        (complexes(3, 5), floats(5)),
    ),
    "spreads": (lambda z: (z.std(0), z.var((0, 1), correction=0), z.std(1, keepdim=True)), (complexes(3, 5),)),
    "logarithms and trigonometry": (
        lambda z: (z.log2(), z.log10(), z.sin(), z.cos(), z.sinh(), z.cosh()),
        (torch.cat((complexes(3, 5), torch.tensor([[0, 1j, -2, -3j, 1]]))),),
    ),
    "sines of 0 times what is too large": (
        lambda z: (z.sin(), z.cos(), z.sinh(), z.cosh()),
        (torch.tensor([100, -100 + 0j, 100j, -100j, torch.inf, complex(-torch.inf, -0.0)]),),
    ),
    "compared in place": (
        lambda z: ((z * 1).eq_(z), (z + 1).ne_(z[0]), (z * z.real.gt(0)).logical_not_()),
        (complexes(3, 5),),
    ),
    "truths": (
        lambda z: (
            z.any(0),
            z.all(),
            z.count_nonzero(1),
            torch.logical_not(z),
            torch.logical_and(z, z[:1].real),
            torch.logical_or(z, z.T),
            torch.logical_xor(z, z.T),
        ),
        (torch.tensor([[0j, 1j, 0], [-1j, 1, 0], [0, torch.nan, 0]]),),
    ),
    "like others": (
        lambda z: (torch.ones_like(z), torch.zeros_like(z, dtype=torch.float32), z.new_ones(2, dtype=torch.float32)),
        (complexes(3, 5),),
    ),
    "of two shapes": (lambda x, y: torch.complex(x, y), (floats(3, 5), floats(5))),
    "exponentials": (lambda z: z.exp(), (torch.tensor([200 + 0j, -0.5 + 2j, torch.inf + 0j]),)),
    "products": (
        lambda z, w, x: (z * w, z * x, x * z, z * 2, z * 3j, z * (1 + 2j), x * 2j, -z, z**2, z.square()),
        (complexes(3, 5), complexes(5), floats(3, 1)),
    ),
    "quotients": (
        lambda z, w, x: (z / w, x / z, z / x, z / 2, 1 / z, z / 2j, 1j / w, z.reciprocal()),
        (complexes(3, 5), complexes(5), floats(3, 1)),
    ),
    "of any size": (lambda z, w: z / w, (complexes(4, 4), complexes(4, 4) * torch.tensor([1e-25, 1e25, 1e-18, 1.0]))),
    "matrices": (
        lambda z, w, x: (
            z @ w,
            x.to(w.dtype) @ w,
            torch.einsum("ij,jk->ki", z, w),
            torch.addmm(z[:, :1], z, w, beta=2j),
            torch.nn.functional.linear(z, w.mT.conj(), w[0]),
        ),
        (complexes(3, 5), complexes(5, 7), floats(3, 5)),
    ),
    "functions": (lambda z: (z.exp(), z.log(), z.sgn(), (z * 0).sgn(), z.sqrt(), (z * 0).sqrt()), (complexes(3, 5),)),
    "powers": (lambda z: (z**2.5, z**-2, z**3, z**0.5, z**1, z**-1), (complexes(3, 5),)),
    "powers by tensors": (
        lambda z, w, x: (z**w, z**x, 2**z),
        (torch.cat((complexes(1, 5), torch.tensor([[0, 0, -2, 1j, 0]]))), complexes(5) + 3, torch.arange(1, 6)),
    ),
    "tangents": (
        lambda z: (z.tan(), z.tanh()),
        (torch.cat((complexes(3, 5), torch.tensor([[0, 1j, -50, 100 + 1j, 1.5707963 + 1e-4j]]))),),
    ),
    "comparisons": (lambda z, w: (z == w, z != z[0], torch.isnan(z * torch.inf), z.isfinite()), (complexes(3, 3),) * 2),
    "places": (
        lambda z, x: (
            torch.cat([z, z.flip(0)], 1),
            torch.stack([z, z * 2]),
            torch.cat([z, x], 0),
            z[:, 1:3],
            z[[0, 2]],
            z.roll(1, 0).unbind(1)[2],
            torch.where(x > 0, z, x),
            torch.where(x > 0, x, z * 1j),
            z.masked_fill(x > 0, 2 - 1j),
            torch.nn.functional.pad(z, (1, 2), value=3.0),
            torch.triu(z),
            z.reshape(5, 3).transpose(0, 1).to(torch.complex128),
            x.to(torch.complex64),
        ),
        (complexes(3, 5), floats(3, 5)),
    ),
    "constants": (
        lambda x: x * torch.ones(5, dtype=torch.cfloat) + torch.full((5,), 2 - 1j) + torch.complex(x, x * 2),
        (floats(3, 5),),
    ),
    "assigned": (assigned, (floats(3, 8),)),
    "frequencies": (
        lambda x: [x[0, 0] * f(n, 0.5) for f in (torch.fft.fftfreq, torch.fft.rfftfreq) for n in (1, 4, 7)],
        (floats(3, 5),),
    ),
    "shifted": (lambda x: torch.fft.fftshift(torch.fft.fft(x), 1).abs(), (floats(3, 7),)),
}


@pytest.mark.parametrize("name", CASES)
def test_complex_numbers(name: str) -> None:
    function, args = CASES[name]
    assert_same(ft.optimize(function, args, machine=REFERENCE)(*args), function(*args))


TRANSFORMED = {
    1: "nothing to turn",
    2: "a half that is its own mirror image throughout",
    17: "one product, of an odd extent",
    128: "the longest of one product",
    129: "two products, of an odd extent",
    131: "a prime of one product",
    256: "two products, of an even extent",
    390: "pairs, of which there is an odd number",
    524: "pairs, whose rows are long ones themselves",
    773: "a prime that is convolved",
}


@pytest.mark.parametrize("extent", TRANSFORMED)
def test_fourier_transforms(extent: int) -> None:
    """There and back: what a half begins with has an imaginary part, which is not read."""

    def transformed(x: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return torch.fft.rfft(x), torch.fft.fft(z), torch.fft.irfft(z, n=extent)

    args = floats(3, extent), complexes(3, extent)
    assert_same(ft.optimize(transformed, args, machine=REFERENCE)(*args), transformed(*args))


@pytest.mark.parametrize("extent", [6, 129])
def test_fourier_transforms_are_inverted(extent: int) -> None:
    def transformed(x: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return torch.fft.irfft(torch.fft.rfft(x), n=extent), torch.fft.ifft(z), torch.fft.hfft(z, n=extent)

    args = floats(3, extent), complexes(3, extent)
    assert_same(ft.optimize(transformed, args, machine=REFERENCE)(*args), transformed(*args))


@pytest.mark.parametrize("extent", [1, 2, 15, 16, 200, 256])
def test_what_is_its_own_mirror_image_is_real(extent: int) -> None:
    x = floats(20, extent)
    found, wanted = (call(x).imag for call in (ft.optimize(torch.fft.rfft, (x,), machine=REFERENCE), torch.fft.rfft))
    for at in (0, -1) if extent % 2 == 0 else (0,):
        assert torch.equal(found[:, at].signbit(), wanted[:, at].signbit()) and not found[:, at].any()


def test_fourier_transforms_over_several_axes() -> None:
    """Of each kind by each factor, but for those of the tests above, which have no norm."""

    def transformed(x: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        half = torch.fft.rfft2(x, norm="forward")
        return (
            half,
            torch.fft.irfft2(half, s=(6, 9), norm="ortho"),
            torch.fft.irfft(half, n=4, dim=0, norm="forward"),
            torch.fft.fftn(x),
            torch.fft.ifftn(z, dim=(0, 2), norm="ortho"),
            torch.fft.rfft(x, n=5, dim=0, norm="ortho"),
            torch.fft.fft(z, n=11, dim=1, norm="forward"),
        )

    args = floats(4, 6, 9), complexes(4, 6, 9)
    assert_same(ft.optimize(transformed, args, machine=REFERENCE)(*args), transformed(*args))


def test_spectrograms() -> None:
    window = torch.hann_window(64)

    def spectrum(x: Tensor) -> Tensor:
        return torch.stft(x, 64, 16, window=window, return_complex=True).abs().square()

    def back(x: Tensor) -> Tensor:
        whole = torch.stft(x, 64, 16, window=window, return_complex=True)
        return torch.istft(whole * 0.5, 64, 16, window=window, length=x.shape[-1])

    x = floats(2, 400)
    for function in (spectrum, back):
        assert_same(ft.optimize(function, (x,), machine=REFERENCE)(x), function(x))


class Spectral(nn.Module):
    """A layer of a Fourier neural operator."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3, 4, 5, 5, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(x)
        out = torch.zeros(x.shape[0], 4, x.shape[-2], x.shape[-1] // 2 + 1, dtype=torch.cfloat)
        out[:, :, :5, :5] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :5, :5], self.weight)
        return torch.fft.irfft2(out, s=x.shape[-2:])


def test_complex_parameters_are_watched_read_anew_and_saved(tmp_path: Path) -> None:
    model, x = Spectral().eval(), floats(2, 3, 16, 16)
    with torch.no_grad():
        fast = ft.optimize(model, (x,), machine=REFERENCE)
        assert_same(fast(x), model(x))
        fast.save(tmp_path / "spectral.frt")
        assert_same(ft.load(tmp_path / "spectral.frt")(x), model(x))
        anew = ft.optimize(model, (x,), machine=REFERENCE, freeze=False)
        model.weight.mul_(1j)
        assert_same(anew(x), model(x))
        with pytest.raises(StaleParametersError):
            fast(x)
        model.weight = nn.Parameter(model.weight * 2)
        assert_same(anew(x), model(x))


def test_complex_arguments_are_changed_in_place() -> None:
    def function(z: Tensor) -> Tensor:
        return z.mul_(2j).real

    fast, z, w = ft.optimize(function, (complexes(3, 5),), machine=REFERENCE), complexes(3, 5), complexes(3, 5)
    array: Any = complexes(5, 3).numpy().T
    wanted = function(torch.tensor(array))
    assert_same((fast(z), z), (function(w), w))
    np.testing.assert_allclose(fast(array), wanted)
    np.testing.assert_allclose(array.real, wanted)


def test_conjugates_are_read_before_what_changes_and_never_beside_it() -> None:
    fast = ft.optimize(lambda x, z: x.mul_(2) * z, (floats(5), complexes(5)), machine=REFERENCE)
    x, z = floats(5), complexes(5)
    assert_same(fast(x.clone(), z.conj()), 2 * x * z.conj())
    with pytest.raises(SharedMemoryError):
        fast(z.real, z.conj())


class Averaged(nn.Module):
    """Changes a complex buffer in each call."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", complexes(5))

    def forward(self, z: Tensor) -> Tensor:
        return self.mean.mul_(0.5j).add_(z.mean(0)) * 2


def test_complex_buffers_are_changed_in_place(tmp_path: Path) -> None:
    model, law, z = Averaged().eval(), Averaged().eval(), complexes(3, 5)
    fast = ft.optimize(model, (z,), machine=REFERENCE)
    loaded = ft.load(fast.save(tmp_path / "averaged.frt"))
    for _ in range(2):
        wanted = law(z)
        for call in (fast, loaded):
            assert_same(call(z), wanted)
        assert_same(model.mean, law.mean)


def test_parameters_that_are_negated_lazily_are_read() -> None:
    imaginary, x = complexes(5).conj().imag, floats(3, 5)
    assert imaginary.is_neg()
    for function in (lambda x: x * imaginary, lambda x: x + imaginary.bfloat16().conj()):
        assert_same(ft.optimize(function, (x,), machine=REFERENCE)(x), function(x))


def test_complex_arguments_and_results_in_trees_numpy_and_files(tmp_path: Path) -> None:
    def function(pair: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"product": pair["z"] * pair["w"], "size": pair["z"].abs()}

    given = {"z": complexes(3, 5), "w": complexes(5)}
    fast = ft.optimize(function, (given,), machine=REFERENCE)
    fast.save(tmp_path / "f.frt")
    for call in (fast, ft.load(tmp_path / "f.frt")):
        assert_same(call(given).values(), function(given).values())
        turned = {name: value.conj() for name, value in given.items()}
        assert_same(call(turned).values(), function(turned).values())
        found = call({name: value.numpy() for name, value in given.items()})["product"]
        np.testing.assert_allclose(found, function(given)["product"].numpy(), rtol=1e-5)
        with pytest.raises(ModelError, match="is no complex tensor or array"):
            call({"z": given["z"].real, "w": given["w"]})


@pytest.mark.parametrize(
    "function",
    [
        lambda z, x: (z * torch.fft.fft(x)).real,
        lambda z, x: (z * torch.fft.fft(x)).real * float(x.shape[0]) ** 0.5,  # exported for each size
    ],
)
def test_dims_that_are_not_known(function: Forward) -> None:
    args = complexes(3, 8), floats(3, 8)
    dims = {0: torch.export.Dim("n", min=1, max=64)}
    fast = ft.optimize(function, args, dynamic_shapes=(dims, dims), machine=REFERENCE)
    for rows in (1, 5):
        given = complexes(rows, 8), floats(rows, 8)
        assert_same(fast(*given), function(*given))


def test_torch_compile_takes_complex_numbers() -> None:
    x, z = floats(3, 8), complexes(3, 5)
    compiled = torch.compile(lambda x, z: torch.fft.irfft(torch.fft.rfft(x) * z), backend="frittata")
    assert_same(compiled(x, z), torch.fft.irfft(torch.fft.rfft(x) * z))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda z: z.atan(), r"atan.default \(of complex numbers\) x1"),
        (lambda z: z.index_add(0, torch.tensor([1]), z[:1], alpha=2j), r"index_add.*\(of complex numbers\) x1"),
        (lambda z: torch.view_as_real(z).prod() * z.prod(), "prod.default"),
    ],
)
def test_what_has_no_meaning_is_named(function: Forward, message: str) -> None:
    with pytest.raises(UnsupportedOpError, match=message):
        ft.optimize(function, (complexes(2, 4),), machine=REFERENCE)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_complex_numbers_of_halves_are_refused() -> None:
    with pytest.raises(ModelError, match=r"input z has torch.complex32"):
        ft.optimize(lambda z: z + 1, (complexes(2, 4).to(torch.complex32),), machine=REFERENCE)
