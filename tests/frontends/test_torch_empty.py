"""Empty tensors in torch models: nothing is computed of them, and results are those of torch."""

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
from frittata.egraph.errors import EmptyError, ModelError, StaleParametersError
from frittata.egraph.machine import REFERENCE
from frittata.frontends import torch_empty
from frittata.frontends.torch_export import from_module

X = torch.linspace(-2, 1, 12).reshape(3, 4)
NONE, NOWHERE = X[:0], torch.zeros(0, dtype=torch.long)


class WithBuffer(nn.Module):
    """Has a memory that is empty yet, and that another may replace."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.start = nn.Buffer(torch.zeros(0, 4)), nn.Parameter(torch.ones(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.memory, self.start, x]).exp()


class Changes(nn.Module):
    """Writes to a buffer without values, to its argument, and to a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.total = nn.Buffer(torch.zeros(0, 4)), nn.Buffer(torch.ones(4))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        self.memory.add_(1)
        self.total.add_(x.sum(0))
        x.mul_(2)
        return x, x[1:], x.T, self.memory, self.total + 1


def _lower(x: Tensor) -> Tensor:
    rows, columns = torch.tril_indices(3, 3)
    return x[..., rows, columns]


def _shifted(x: Tensor) -> tuple[Tensor, ...]:
    y, z = x.clone(), x.clone()
    y[:, 1:] += x[:, :-1]
    z.diagonal(-5).fill_(1)
    z[4:].zero_()
    return y, z


def _masked(x: Tensor) -> tuple[Tensor, ...]:
    nothing = torch.tensor([False, False, False])
    y = x.clone()
    y[nothing, 1] = x[nothing, 2]
    return x[nothing], y


Case = tuple[Callable[..., Any], tuple[Tensor, ...]]

JOINED: dict[str, Case] = {
    "a slice": (lambda x: torch.cat([x[:, :0], x, x.new_zeros(x.shape[0], 0)], 1) * 2, (X,)),
    "a dtype": (lambda x: torch.cat([x[:, :0].double(), x.half(), x], 1), (X,)),
    "integers": (lambda x: torch.cat([torch.zeros(0), x.long()[0]]), (X,)),
    "no axes": (lambda x: torch.cat([torch.tensor([], dtype=torch.float64), x], 1), (X,)),
    "several": (lambda x: torch.cat([torch.cat([x[:0], x[:0]]).exp(), x]), (X,)),
    "an input": (lambda past, new: torch.cat([past, new], 1).softmax(1), (torch.zeros(2, 0, 3), X.reshape(2, 2, 3))),
    "places of a triangle": (_lower, (X,)),
    "triangles": (lambda x: (torch.triu_indices(4, 4, 1) * x[0, 0], torch.tril_indices(3, 5, -1)), (X,)),
    "blocks": (lambda x: torch.block_diag(x, x[:2], x[0, 0]), (X,)),
}

RESULTS: dict[str, Case] = {
    "of an input": (lambda x: (x * 2).exp(), (NONE,)),
    "among others": (lambda x: {"a": x[:0], "b": [x * 2, x[:, :0], 3], "c": x + 1}, (X,)),
    "complex": (lambda z, x: (z * 2, z.real, torch.complex(x, x)), (torch.zeros(0, 3, dtype=torch.complex64), X)),
    "of bytes and halves": (lambda x: (x.byte(), x.bfloat16(), x > 0), (NONE,)),
    "a join": (lambda x: torch.cat([x[:0], x[:0]]), (X,)),
    "both of one call": (lambda x: x.max(1), (NONE,)),
    "some of one call": (lambda x: x.split([0, 3]), (X,)),
    "of masks": (_masked, (X,)),
    "where an empty mask says so": (lambda x: (x[x > 0], x.nonzero(), x[x.sum(1) > 0] + 1), (NONE,)),
    "of a solution": (lambda z: [*torch.linalg.lstsq(z, z, driver="gelss")], (torch.zeros(2, 0, dtype=torch.cfloat),)),
    "of layers": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()).eval(), (torch.ones(0, 3, 5, 5),)),
    "of a recurrence": (nn.LSTM(3, 4, batch_first=True).eval(), (torch.zeros(0, 5, 3),)),
}

CONSTANTS: dict[str, Case] = {
    "a product": (lambda x, y: x @ y, (torch.zeros(5, 0), torch.zeros(0, 10))),
    "a complex product": (lambda x: x.H @ x + 1, (torch.zeros(0, 3, dtype=torch.complex64),)),
    "reductions": (lambda x: (x.sum(0), x.prod(0), x.mean(), x.any(0), x.logsumexp(0)), (NONE,)),
    "a sum beside others": (lambda x: x[:, :0].exp().sum(1) + x[:, 0], (X,)),
    "a border": (lambda x: F.pad(x[:, :0], (1, 2), value=3), (X,)),
    "determinants": (lambda x: torch.linalg.slogdet(x), (torch.zeros(2, 0, 0),)),
    "factors": (lambda x: torch.linalg.qr(x[:, :0], mode="complete"), (X,)),
    "new tensors": (lambda x: (x.new_zeros(3), x.new_full((2,), 4), x.new_empty((2,)).fill_(1)), (NONE,)),
    "new complex tensors": (lambda z: z.new_ones(3), (torch.zeros(0, dtype=torch.complex64),)),
    "a dtype": (lambda x, y: x.to(y), (X, torch.zeros(0, dtype=torch.long))),
}

BESIDE: dict[str, Case] = {
    "a bias": (F.linear, (torch.zeros(5, 0), torch.zeros(4, 0), X[0])),
    "a sum of products": (lambda b, x, y: torch.addmm(b, x, y, beta=2, alpha=3), (X[0], torch.ones(5, 0), NONE)),
    "batches": (lambda b, x, y: torch.baddbmm(b, x, y, beta=0), (X, torch.ones(2, 3, 0), torch.ones(2, 0, 4))),
    "no keys": (lambda q, k: F.scaled_dot_product_attention(q, k, k), (X, NONE)),
    "no members": (lambda x, y: torch.isin(x, y, invert=True), (X, NONE[:, 0])),
    "rows that are added": (lambda x, at, y: x.index_add(0, at, y).exp(), (X, NOWHERE, NONE)),
    "rows that are added in place": (lambda x, at, y: x.clone().index_add_(0, at, y) + 1, (X, NOWHERE, NONE)),
    "places": (lambda x, at, y: x.index_put((at,), y, accumulate=True), (X, NOWHERE, NONE)),
    "scattered values": (lambda x, at, y: x.scatter(0, at[:, None], y) * 2, (X, NOWHERE, NONE)),
}


@pytest.mark.parametrize("name", JOINED)
def test_empty_parts_of_a_join_are_left_out(name: str) -> None:
    _check(*JOINED[name])


@pytest.mark.parametrize("name", RESULTS)
def test_empty_results_have_the_shapes_and_dtypes_of_torch(name: str) -> None:
    _check(*RESULTS[name])


@pytest.mark.parametrize("name", CONSTANTS)
def test_what_is_computed_of_empty_tensors_alone_is_a_constant(name: str) -> None:
    assert len(_check(*CONSTANTS[name]).kernels) <= 1


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_left_beside_empty_tensors_is_computed(name: str) -> None:
    _check(*BESIDE[name])


def test_what_is_written_to_an_empty_part_changes_nothing() -> None:
    fast = ft.optimize(_shifted, (X,), dynamic_shapes=({1: "steps"},), machine=REFERENCE)
    for x in (X, X[:, :1]):
        torch.testing.assert_close(fast(x), _shifted(x))


SIZES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], tuple[dict[int, str], ...]]] = {
    "rows": (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.LayerNorm(3)).eval(), (X,), ({0: "rows"},)),
    "of complex rows": (lambda z: (z * 2, z.abs().sum(0)), (torch.complex(X, X),), ({0: "rows"},)),
    "what is contracted": (lambda x, y, b: F.linear(x, y, b), (X, X, X[0, :3]), ({1: "n"}, {1: "n"}, {})),
    "keys": (lambda q, k: F.scaled_dot_product_attention(q, k, k), (X, X[:2]), ({}, {0: "keys"})),
    "two": (lambda x, y: (x[:, None] + y, x.sum(), y[1:]), (X, X[:2]), ({0: "n"}, {0: "m"})),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_may_be_zero(name: str) -> None:
    source, args, dims = SIZES[name]
    fast = ft.optimize(source, args, dynamic_shapes=dims, machine=REFERENCE)
    parts = [tuple(slice(0, 0 if axis in own else None) for axis in range(2)) for own in dims]
    for given in ([x[part] if own else x for x, part, own in zip(args, parts, dims, strict=True)], args):
        with torch.no_grad():
            torch.testing.assert_close(fast(*given), source(*given))


def test_branches_on_a_size_of_zero_are_taken() -> None:
    class Pooled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum(0) if x.shape[0] else x.new_ones(2)

    module = Pooled().eval()
    fast = ft.optimize(module, (X,), dynamic_shapes=({0: "rows"},), machine=REFERENCE)
    assert fast.ranges == {"rows": (0, None)}
    for x in (X, NONE, X[:1]):
        assert torch.equal(fast(x), module(x))
    exported = torch.export.export(module, (X,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    with pytest.raises(ModelError, match="is 0, and the model holds from 1"):  # the export knows one branch
        ft.optimize(exported, dynamic_shapes=True, machine=REFERENCE)(NONE)


@pytest.mark.parametrize("rows", [0, 3])
def test_what_is_changed_in_place_may_be_empty(rows: int) -> None:
    module, expected = Changes().eval(), Changes().eval()
    fast = ft.optimize(module, (X[:rows],), machine=REFERENCE)
    for _ in range(2):
        x, y = X[:rows].clone(), X[:rows].clone()
        torch.testing.assert_close(fast(x), expected(y))
        torch.testing.assert_close((x, module.total), (y, expected.total))


def test_an_empty_buffer_is_guarded() -> None:
    for freeze in (None, False):
        module = WithBuffer().eval()
        fast = ft.optimize(module, (X,), machine=REFERENCE, freeze=freeze)
        torch.testing.assert_close(fast(X), module(X))
        module.memory = nn.Buffer(X)
        with pytest.raises(StaleParametersError, match="'memory'"):
            fast(X)


def test_empty_results_are_of_the_library_of_the_arguments(tmp_path: Path) -> None:
    def halved(x: Tensor) -> dict[str, Tensor]:
        return {"a": x[:0], "b": x * 0.5, "c": torch.complex(x, x)[:, :0]}

    fast = ft.optimize(halved, (X,), machine=REFERENCE)
    plain = ft.optimize(halved, (X,), form="plain", machine=REFERENCE)
    for one in (fast, ft.load(fast.save(tmp_path / "halved.ft")), plain):
        torch.testing.assert_close(one(X), halved(X))
        for found, expected in zip(one(X.numpy()).values(), halved(X).values(), strict=True):
            assert type(found) is np.ndarray and np.array_equal(found, expected)
            assert found.dtype == expected.numpy().dtype


def test_a_program_that_computes_nothing_is_held_to_its_arguments() -> None:
    fast = ft.optimize(lambda x: x * 2, (NONE,), machine=REFERENCE)
    assert not fast.kernels and fast.verify().is_right
    with pytest.raises(ModelError, match=r"'x' must be float32\[0, 4\], got float32\[3, 4\]"):
        fast(X)
    with pytest.raises(ModelError, match=r"got float64\[0, 4\]"):
        fast(NONE.double())


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str]] = {
    "an operator of its own": (
        lambda x, t: torch.linalg.householder_product(x @ x.T, t[:0]) + 1,
        (X, X[0]),
        r"slice_1 is empty: shape 0(.|\n)*aten.linalg_householder_product(.|\n)*outside of the model",
    ),
    "another shape than that of the export": (
        lambda z: F.pixel_unshuffle(z, 3),
        (torch.zeros(0, 0, 6, 6, dtype=torch.complex64),),
        r"torch gives \[0, 0, 6, 6\] of empty tensors, where torch.export takes it to be \[0, 0, 2, 2\]",
    ),
    "rows of another length": (
        lambda x, at, y: x.index_add(0, at, y),
        (X, NOWHERE, X[:0, 1:]),
        "torch cannot compute it: source tensor shape must match",
    ),
    "values for no places": (
        lambda x, at, y: x.index_put((at,), y),
        (X, NOWHERE, X[:2]),
        "torch cannot compute it: shape mismatch",
    ),
    "an argument that becomes empty": (lambda x: x.resize_(0), (X,), "torch cannot decompose what it exported"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_torch_does_not_say_what_is_left_the_empty_tensor_is_named(name: str) -> None:
    source, args, message = REFUSED[name]
    with pytest.raises(ModelError, match=message) as caught:
        ft.optimize(source, args, machine=REFERENCE)
    assert isinstance(caught.value, EmptyError) == (name == "an operator of its own")


def test_statistics_of_a_norm_that_nobody_uses_do_not_concern(monkeypatch: pytest.MonkeyPatch) -> None:
    """In evaluation they have no values, where torch makes a graph functional for a change through a view."""

    class Rectified(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            y[0].relu_()
            return y

    monkeypatch.setattr(torch_empty, "_graph_of", lambda *_: pytest.fail("the norm was decomposed"))
    module = nn.Sequential(nn.BatchNorm1d(3), Rectified()).eval()
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    (found,) = from_module(module, (x,)).model.interpret(x.numpy())
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-6)


def _check(source: Callable[..., Any], args: tuple[Tensor, ...]) -> ft.Optimized:
    """Hold a compiled model to the source itself."""
    fast = ft.optimize(source, args, machine=REFERENCE)
    with torch.no_grad():
        torch.testing.assert_close(fast(*args), source(*args), equal_nan=True)
    return fast
