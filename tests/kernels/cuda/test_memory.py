"""Arguments on the device: which are read where they lie, and which are copied. Host memory stands for the device's."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numba import cuda

from frittata.egraph.errors import ModelError
from frittata.kernels.cuda import device
from frittata.kernels.cuda.device import Stream

SIDE = Stream(7)


class Lent:
    """An array of another library's, as numba sees it: reshaped, it keeps the order of its memory."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.dtype, self.shape, self.strides, self.size = array.dtype, array.shape, array.strides, array.size
        self.__cuda_array_interface__ = {"data": (array.ctypes.data, False)}

    def is_c_contiguous(self) -> bool:
        return self.array.flags.c_contiguous

    def view(self, dtype: Any) -> Lent:
        return Lent(self.array.view(dtype))

    def reshape(self, size: int) -> Lent:
        return Lent(self.array.reshape(size, order="A"))

    def copy_to_host(self) -> Any:
        return self.array.copy(order="K")

    def copy_to_device(self, source: Lent, stream: Any) -> None:
        assert stream == f"stream {SIDE.handle}"
        self.array[...] = source.array


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What numba does to memory, in order."""
    done: list[str] = []

    class Default:
        def synchronize(self) -> None:
            done.append("waited")

    def to_device(array: Any) -> Lent:
        done.append("uploaded")
        return Lent(array.copy())

    def aligned(size: int, dtype: Any) -> Lent:
        bytes_ = np.empty(size * np.dtype(dtype).itemsize + device.ALIGNMENT, np.uint8)
        start = -bytes_.ctypes.data % device.ALIGNMENT
        return Lent(bytes_[start : start + size * np.dtype(dtype).itemsize].view(dtype))

    monkeypatch.setattr(cuda, "as_cuda_array", lambda value: value)
    monkeypatch.setattr(cuda, "to_device", to_device)
    monkeypatch.setattr(cuda, "device_array", aligned)
    monkeypatch.setattr(cuda, "default_stream", Default)
    monkeypatch.setattr(cuda, "external_stream", lambda handle: f"stream {handle}")
    return done


X = np.arange(48, dtype=np.float32).reshape(6, 8)


@pytest.mark.parametrize(
    "array",
    [X.T, X[:, ::2], X[1:5, 2:6], np.broadcast_to(X[0], (3, 8)), X.reshape(2, 3, 8).transpose(1, 0, 2)],
    ids=["turned", "every other", "window", "repeated", "axes"],
)
def test_arrays_of_other_libraries_are_read_row_by_row(array: Any, done: list[str]) -> None:
    found = device.settled(Lent(array), SIDE)
    np.testing.assert_array_equal(found.array, array.reshape(-1))
    assert found.strides == (4,)
    assert done == ["uploaded", "waited"]


@pytest.mark.parametrize("first", [0, 1])
def test_row_major_arrays_are_copied_only_to_be_aligned_in_the_stream_of_the_call(first: int, done: list[str]) -> None:
    memory = device.empty(49, np.float32).array
    array = memory[first : first + 48].reshape(6, 8)
    array[...] = X
    found = device.settled(Lent(array), SIDE)
    np.testing.assert_array_equal(found.array, X.reshape(-1))
    assert np.shares_memory(found.array, array) == (first == 0)
    assert device.address(found) % device.ALIGNMENT == 0
    assert done == []


def test_negative_strides_are_refused(done: list[str]) -> None:
    with pytest.raises(ModelError, match=r"negative strides: \(-32, 4\)(?s:.*)row-major copy"):
        device.settled(Lent(X[::-1]), SIDE)


def test_an_upload_ends_before_anything_else_starts(done: list[str]) -> None:
    device.upload(X[0])
    assert done == ["uploaded", "waited"]


def test_equal_constants_are_once_on_a_device_while_somebody_holds_them(done: list[str]) -> None:
    first, again, elsewhere = device.constant(X[0], 0), device.constant(X[0].copy(), 0), device.constant(X[0], 1)
    as_integers = device.constant(X[0].view(np.int32), 0)
    assert again is first and elsewhere is not first and as_integers is not first
    assert done.count("uploaded") == 3
    given = X[1].copy()
    kept = device.constant(given, 0)
    given[0] = 7
    np.testing.assert_array_equal(device.constant(given, 0).array, given)
    np.testing.assert_array_equal(kept.array, X[1])
    del first, again
    device.constant(X[0], 0)
    assert done.count("uploaded") == 6


def negated(x: torch.Tensor) -> torch.Tensor:
    return torch._neg_view(x)  # pyright: ignore


def imaginary(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(x, x).conj().imag[:1, :1]


@pytest.mark.parametrize("view", [negated, imaginary])
def test_lazily_negated_tensors_are_negated(view: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "is_torch", torch.is_tensor)
    given = view(torch.ones(2, 3))
    assert given.is_neg()
    found = device.settled(given, SIDE)
    assert not found.is_neg()
    np.testing.assert_array_equal(found.numpy(), -np.ones(given.shape))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_memory_are_refused() -> None:
    x = torch.ones(2, 3)
    device.require_memory(x)
    for tensor in (x.to_sparse(), torch.nested.nested_tensor([x, x])):
        with pytest.raises(ModelError, match=r"kernels cannot read(?s:.*)dense tensors"):
            device.require_memory(tensor)

    def under_vmap(row: torch.Tensor) -> torch.Tensor:
        device.require_memory(row)
        return row

    with pytest.raises(ModelError, match=r"outside of torch\.func"):
        torch.func.vmap(under_vmap)(x)


@pytest.mark.parametrize(("there", "is_entered"), [(1, False), (0, True), (None, True)])
def test_a_device_is_made_the_current_one_only_if_it_is_not(
    there: int | None, is_entered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = nullcontext(), nullcontext()
    monkeypatch.setattr(device, "driver", lambda: SimpleNamespace(cuCtxGetDevice=lambda: ("a status", there)))
    monkeypatch.setattr(cuda, "gpus", [first, second])
    assert (device.on(1) is second) == is_entered
