"""Calls with torch tensors by address: quick, never wrong, and left to the long way where something is odd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import IndexRangeError, ModelError
from frittata.egraph.machine import REFERENCE
from frittata.kernels.runtime import Executable
from frittata.optimized import Optimized
from frittata.parameters import Guard
from frittata.tensor_calls import TensorCalls, allocator

X, B = torch.linspace(-1, 1, 24).reshape(4, 6), torch.linspace(1, 2, 6)


class Shifted(nn.Module):
    """Two results of one pass."""

    def forward(self, x: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        y = x + b
        return y, y > 1.5


@pytest.fixture(scope="module")
def shifted(cache: Path) -> Optimized:
    return ft.optimize(Shifted().eval(), (X, B), machine=REFERENCE, cache=cache)


@pytest.fixture(scope="module")
def calls(shifted: Optimized) -> TensorCalls:
    executable = shifted.compilation.executable
    assert isinstance(executable, Executable) and executable.runs_at_addresses
    return TensorCalls(executable, Guard({}, None))


def test_results_are_tensors_of_their_own(calls: TensorCalls) -> None:
    one, two = calls([X, B]), calls([X, B])
    assert one is not None and two is not None
    for found in (one, two):
        torch.testing.assert_close(found, list(Shifted()(X, B)), rtol=0, atol=0)
    assert len({tensor.data_ptr() for tensor in (*one, *two, X, B)}) == 6


@pytest.mark.parametrize("module", ["torch._C._dynamo.guards", "torch", "there.is.none"])
def test_results_are_allocated_whatever_torch_has(module: str) -> None:
    found = allocator(module)((3, 5), (5, 1), torch.float64)
    assert (found.shape, found.stride(), found.dtype, found.device.type) == ((3, 5), (5, 1), torch.float64, "cpu")


def unaligned() -> Tensor:
    memory = bytearray(4 * X.numel() + 1)
    x = torch.frombuffer(memory, dtype=torch.uint8)[1:].view(torch.uint8)
    array = np.frombuffer(memory, np.float32, X.numel(), 1).reshape(4, 6)
    assert x.data_ptr() == array.ctypes.data
    array[...] = X.numpy()
    return torch.from_numpy(array)


LONG_WAY: dict[str, Callable[[], Any]] = {
    "transposed": lambda: X.t().contiguous().t(),
    "a slice": lambda: torch.cat([X, X], 1)[:, :6],
    "another shape": lambda: X[:2],
    "another dtype": lambda: X.double(),
    "sparse": X.to_sparse,
    "on no device": lambda: X.to("meta"),
    "negative": lambda: torch.view_as_complex(torch.stack([X, -X], -1)).conj().imag,
    "a subclass": lambda: X.as_subclass(type("Own", (Tensor,), {})),
    "an array": X.numpy,
    "a number": lambda: 1.0,
    "unaligned": unaligned,
}


@pytest.mark.parametrize("name", LONG_WAY)
def test_what_kernels_cannot_read_as_it_lies_is_left_to_the_long_way(name: str, calls: TensorCalls) -> None:
    assert calls([LONG_WAY[name](), B]) is None
    assert calls([X]) is None


class Nested(nn.Module):
    """What a call takes is in a list."""

    def forward(self, pair: list[Tensor]) -> Tensor:
        return pair[0] + pair[1]


def test_calls_like_the_last_one_go_to_the_kernels_at_once(
    shifted: Optimized, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nested = ft.optimize(Nested().eval(), ([X, B],), machine=REFERENCE, cache=cache)
    expected = shifted(X, B)
    torch.testing.assert_close(nested([X, B]), expected[0], rtol=0, atol=0)
    for args, kwargs in (((X, B, B), {}), ((X[:2], B), {}), ((X,), {"c": B})):
        with pytest.raises(ModelError):
            shifted(*args, **kwargs)
    torch.testing.assert_close(shifted(X, b=B), expected, rtol=0, atol=0)
    for args in ((X.numpy(), B.numpy()), (X, B.numpy()), (X.t().t(), B)):
        np.testing.assert_array_equal(shifted(*args)[0], expected[0])
    monkeypatch.setattr(Optimized, "_flat_call", lambda *_: pytest.fail("the long way"))
    torch.testing.assert_close(shifted(X, B), expected, rtol=0, atol=0)
    for fast, args in ((nested, ([X, B],)), (shifted, (X.numpy(), B.numpy()))):
        with pytest.raises(pytest.fail.Exception):
            fast(*args)


def test_arrays_by_position_are_no_call_of_what_was_given_by_name(cache: Path) -> None:
    def function(a: Any, b: Any = 1.0, c: Any = None) -> Any:
        return a + b if c is None else a * c

    fast = ft.optimize(function, (X.numpy(),), {"c": X.numpy()}, machine=REFERENCE, cache=cache)
    for _ in range(2):
        torch.testing.assert_close(fast(X, c=X), X * X, rtol=0, atol=0)
    with pytest.raises(ModelError, match=r"argument b is tensor(.|\n)*and was 1\.0"):
        fast(X, X)


TAKEN: dict[str, Callable[[], Tensor]] = {
    "a parameter": lambda: nn.Parameter(X),
    "with gradients": lambda: X.clone().requires_grad_(),
    "of inference mode": lambda: torch.inference_mode()(X.clone)(),
    "from the middle of another": lambda: torch.cat([X, X])[2:6].copy_(X),
}


@pytest.mark.parametrize("name", TAKEN)
def test_dense_tensors_of_any_origin_are_read_in_place(name: str, calls: TensorCalls) -> None:
    x = TAKEN[name]()
    found = calls([x, B])
    assert found is not None and not found[0].requires_grad
    torch.testing.assert_close(found[0], x.detach() + B, rtol=0, atol=0)


def test_tensors_without_memory_are_not_read(shifted: Optimized) -> None:
    with pytest.raises(ft.FrittataError):
        torch.vmap(lambda x: shifted(x, B)[0])(torch.stack([X, X]))


def test_indices_out_of_range_are_refused_and_the_next_call_is_not(cache: Path) -> None:
    table = torch.randn(9, 4)

    class Look(nn.Module):
        def forward(self, ids: Tensor) -> Tensor:
            return nn.functional.embedding(ids, table).exp()

    good, bad = torch.tensor([0, 8, 3]), torch.tensor([0, 9, 3])
    look = ft.optimize(Look().eval(), (good,), machine=REFERENCE, cache=cache)
    for _ in range(2):
        with pytest.raises(IndexRangeError, match="index 9 is outside"):
            look(bad)
        torch.testing.assert_close(look(good), table[good].exp())
