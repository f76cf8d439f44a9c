"""Convolution by tiles: the algorithm against the direct sum, in float64; what is not finite; types."""

from __future__ import annotations

import numpy as np
import pytest

from frittata.egraph.errors import ModelError
from frittata.egraph.interpret import Interpreter, evaluate
from frittata.egraph.ops.contractions import window_dot_numpy
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.ops.winograd import as_window_dot, conv_winograd_numpy
from frittata.egraph.terms import Scalar


def direct(x: np.ndarray, w: np.ndarray, padding: tuple[int, int]) -> np.ndarray:
    out = window_dot_numpy(x.transpose(0, 3, 1, 2), w, (1, 1), padding, (1, 1), 1)
    return out.transpose(0, 2, 3, 1)


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("seed", range(6))
def test_tiles_give_the_convolution(tile: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    padding = int(rng.integers(0, 3)), int(rng.integers(0, 3))
    lines, pixels = (int(rng.integers(max(1, 3 - 2 * p), 12)) for p in padding)
    batch, inputs, outputs = map(int, rng.integers(1, 6, 3))
    x, w = rng.standard_normal((batch, lines, pixels, inputs)), rng.standard_normal((outputs, inputs, 3, 3))
    expected = direct(x, w, padding)
    np.testing.assert_allclose(conv_winograd_numpy(x, w, padding, tile), expected, rtol=0, atol=1e-12)


def test_small_tiles_keep_nan_and_infinity_in_their_windows() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 9, 8, 2)), rng.standard_normal((3, 2, 3, 3))
    x[0, 4, 3, 1], x[0, 7, 7, 0] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        tiled, plain = conv_winograd_numpy(x, w, (1, 1), 2), direct(x, w, (1, 1))
    np.testing.assert_array_equal(np.isfinite(tiled), np.isfinite(plain))


def test_the_error_of_small_tiles_is_that_of_a_plain_sum() -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((1, 12, 12, 64)), rng.standard_normal((16, 64, 3, 3)) / 24
    law = direct(x, w, (1, 1))
    narrow = x.astype(np.float32), w.astype(np.float32)
    error = {tile: np.abs(conv_winograd_numpy(*narrow, (1, 1), tile) - law).max() for tile in (2, 4)}
    plain = np.abs(direct(*narrow, (1, 1)) - law).max()
    assert error[2] < 3 * plain
    assert error[4] < 100 * plain


def test_elements_are_the_convolution_at_any_index() -> None:
    rng = np.random.default_rng(2)
    x = element("load", tensor("input", name="x", shape=(2, 5, 6, 3), dtype="f64"))
    w = element("load", tensor("input", name="w", shape=(4, 3, 3, 3), dtype="f64"))
    values = {"x": rng.standard_normal((2, 5, 6, 3)), "w": rng.standard_normal((4, 3, 3, 3))}
    at = {axis: rng.integers(-2, 9, 50) for axis in range(-5, 0)}
    for tile in (2, 4):
        e = element("winograd_dot", x, w, source=(5, 6, 3), channels=4, padding=(1, 0), tile=tile)
        assert e.shape == (2, 5, 4, 4)
        tiled, plain = (Interpreter(values).element_at(one, at) for one in (e, as_window_dot(e)))
        np.testing.assert_allclose(tiled, plain, rtol=0, atol=1e-12)


def test_an_element_that_does_not_mention_the_channels() -> None:
    x = element("load", tensor("input", name="x", shape=(5, 6, 1), dtype="f64"))
    w = element("const", value=Scalar.of(1.0, "f64"))
    e = element("winograd_dot", x, w, source=(5, 6, 3), channels=2, padding=(0, 0), tile=2)
    values = {"x": np.arange(30.0).reshape(5, 6, 1)}
    (found,) = evaluate((tensor("build", e, shape=(3, 4, 2)),), values)
    windows = np.lib.stride_tricks.sliding_window_view(values["x"][..., 0], (3, 3)).sum((-1, -2))
    np.testing.assert_allclose(found, 3 * windows[..., None].repeat(2, -1))


@pytest.mark.parametrize(
    ("image", "weights", "tile"),
    [((1, 5, 5, 3), (4, 2, 3, 3), 2), ((1, 5, 5, 3), (4, 3, 5, 5), 2), ((1, 5, 5, 3), (4, 3, 3, 3), 3)],
)
def test_what_does_not_fit_is_refused(image: tuple[int, ...], weights: tuple[int, ...], tile: int) -> None:
    x, w = (tensor("input", name=n, shape=s, dtype="f32") for n, s in (("x", image), ("w", weights)))
    with pytest.raises(ModelError):
        tensor("conv_winograd", x, w, tile=tile)


def test_integers_are_refused() -> None:
    x, w = (tensor("input", name=n, shape=s, dtype="i32") for n, s in (("x", (1, 5, 5, 3)), ("w", (4, 3, 3, 3))))
    with pytest.raises(ModelError, match="floats"):
        tensor("conv_winograd", x, w)
