"""Arrays of other libraries: taken as they lie in memory, and given back as that library's."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import frittata as ft
from frittata.egraph.errors import FrittataError, ModelError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Array


class Other:
    """An array of another library, which shares memory with numpy's and has nothing but DLPack."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Standard(Other):
    """One of a library that has the array API as well."""

    def __array_namespace__(self) -> Any:
        return SimpleNamespace(from_dlpack=lambda array: Standard(np.from_dlpack(array)))


class Elsewhere(Other):
    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("the array is on another device")


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def test_the_kind_of_array_that_comes_in_goes_out(tmp_path: Path) -> None:
    fast = ft.optimize(lambda x, y: x * 2 + y, (Standard(X), X), machine=REFERENCE, cache=tmp_path)
    result = fast(Standard(X), X)
    assert type(result) is Standard
    np.testing.assert_allclose(result.array, X * 3)
    np.testing.assert_allclose(fast(X, Standard(X)).array, X * 3)
    assert type(fast(Other(X), Other(X))) is np.ndarray
    np.testing.assert_allclose(fast["main"](X, X), X * 3)


def test_complex_results_are_numpys_and_complex_arguments_have_to_be() -> None:
    fast = ft.optimize(lambda x: x * 1j, (Standard(X),), machine=REFERENCE)
    np.testing.assert_array_equal(fast(Standard(X)), X * 1j)
    with pytest.raises(ModelError, match=r"argument z is a complex Standard(.|\n)*numpy.from_dlpack"):
        ft.optimize(lambda z: z * 2, (Standard(X * 1j),), machine=REFERENCE)


def test_what_is_no_array_or_lies_elsewhere_is_refused(tmp_path: Path) -> None:
    fast = ft.optimize(lambda x: x * 2, (X,), machine=REFERENCE, cache=tmp_path)
    with pytest.raises(ModelError, match="an argument is a list"):
        ft.optimize(ft.parse("def main(x: f32[1]) -> f32[1]:\n    return x\n"), machine=REFERENCE, cache=tmp_path)(
            [1.0]
        )
    with pytest.raises(ModelError, match="numpy cannot read"):
        fast(Elsewhere(X))
    with pytest.raises(FrittataError, match="no compiled function 'other'"):
        fast["other"]
