"""What torch cannot export is told in words that fit: the operator, the class or the dim, and nothing is printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right

import frittata as ft
from frittata.egraph.errors import FrittataError
from frittata.egraph.machine import REFERENCE


@dataclass
class Pair:
    x: Tensor
    mask: Tensor | None = None


@dataclass
class Unknown:
    x: Tensor


torch.export.register_dataclass(Pair)
X = torch.linspace(-2, 1, 12).reshape(3, 4)


@pytest.mark.parametrize("mask", [None, torch.ones(3, 1)])
def test_functions_take_and_return_dataclasses(mask: Tensor | None) -> None:
    def doubled(pair: Pair) -> Pair:
        return Pair(pair.x * 2, pair.x.mean() if pair.mask is None else pair.mask + 1)

    fast = ft.optimize(doubled, (Pair(X, mask),), machine=REFERENCE)
    found, expected = fast(Pair(X + 1, mask)), doubled(Pair(X + 1, mask))
    assert isinstance(found, Pair)
    torch.testing.assert_close((found.x, found.mask), (expected.x, expected.mask))


def test_tensors_within_objects_make_a_function_one_of_torch() -> None:
    fast = ft.optimize(lambda inner: inner["pair"].x + 1, ({"pair": Pair(X)},), machine=REFERENCE)
    torch.testing.assert_close(fast({"pair": Pair(X)}), X + 1)


def _branches(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


class Masked(nn.Linear):
    """A layer whose weights are masked before each product, as masked convolutions do it."""

    def forward(self, input: Tensor) -> Tensor:
        self.weight.data *= torch.ones(3, 3).tril()
        return super().forward(input)


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(4, 2, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.layer(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))[1]


ERRORS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str, str]] = {
    "a class among arguments": (lambda u: u.x * 2, (Unknown(X),), "Unknown", "register_dataclass"),
    "a class that is built in": (lambda x, at: x[at], (X, slice(0, 2)), "slice", "make it of them in the model"),
    "a size of values": (lambda x: x.nonzero(), (X,), "nonzero.*depends on values", "choose with torch.where"),
    "a class among results": (lambda x: Unknown(x * 2), (X,), "Unknown", "register_dataclass"),
    "a gradient of a solution": (
        torch.func.grad(lambda x: torch.linalg.solve(x @ x.T, x).sum()), (X,), "raises on values", "derivative out"
    ),
    "complex numbers": (lambda x: torch.complex(x, x).atan(), (X,), r"atan.*\(of complex numbers\)", "without them"),
    "no shape": (
        lambda x: torch.ctc_loss(x[:, None], torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2])),
        (X,),
        "_ctc_loss.*no shape",
        "other operators",
    ),
    "a number": (lambda x: x * torch.equal(x, x), (X,), "aten.equal.*depends on values", "other operators"),
    "a meaning in place": (lambda x: x.clone().polygamma_(1), (X,), "cannot export aten::polygamma_", "new tensor"),
    "a fraction of truth": (lambda x: torch.add(x > 0, x > 0, alpha=1.5), (X,), "alpha=1.5 beside bool", "an integer"),
    "a number that is a result": (lambda x: x[0, 0].item(), (X,), "made of the values", "leave it a tensor"),
    "a size": (lambda x: x.repeat(x[0, 0].int().item(), 1), (X,), "made of the values", "leave it a tensor"),
    "sizes of parts": (
        lambda x, at: torch.tensor_split(x, at), (X, torch.tensor([1])), "made of the values", "leave it a tensor"
    ),
    "a shape, and what is made of it": (
        lambda x: 2 * torch.masked_select(x, x > 0), (X,), "masked_select.*depends on values", "without them"
    ),
    "complex numbers of halves": (lambda x: x.chalf(), (X,), r"_to_copy.default has torch.complex32", "convert"),
    "two masks": (lambda x: x[x[:, 0] > 0, x[0] < -1], (X,), r"x\[mask_a, mask_b\]", "one mask for all places"),
    "a branch": (_branches, (X,), "data-dependent", "made of values by tensors; or torch.compile"),
    "an assignment to data": (Masked(3, 3).eval(), (X[:, :3],), "cannot follow Masked", "write in place"),
    "arguments of a distribution": (
        # torch.compile switches these checks off for the process
        lambda x: torch.distributions.Categorical(logits=x, validate_args=True).entropy(),
        (X,),
        "data-dependent",
        "validate_args=False",
    ),
    "dropout as it is given": (lambda x: F.dropout(x), (X,), "dropout.*random", "training=self.training"),
    "statistics that change": (
        lambda x: F.batch_norm(x, x[0].clone(), x[1].clone(), training=True), (X,), "statistics", "takes None"
    ),
    "a class that no tree is": (lambda x: (x, torch.sin), (X,), "not a known type", "in tuples, lists and dicts"),
    "packed sequences": (Packed().eval(), (X[None], torch.tensor([2])), "cannot follow Packed", "on padded sequences"),
    "a check of values": (lambda x: x if torch.any(x < 0) else -x, (X,), "data-dependent", "torch.where"),
}


def test_parameters_keep_their_values_where_an_assignment_to_data_is_refused() -> None:
    module = Masked(3, 3).eval()
    before = module.weight.detach().clone()
    with pytest.raises(FrittataError, match="cannot follow Masked"):
        ft.optimize(module, (X[:, :3],), machine=REFERENCE)
    torch.testing.assert_close(module.weight.detach(), before)
    assert torch.equal(module(X[:, :3]), F.linear(X[:, :3], before.tril(), module.bias))


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_says_what_it_is_and_nothing_is_printed(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    source, args, what, do = ERRORS[name]
    with pytest.raises(FrittataError, match=what) as caught:
        ft.optimize(source, args, machine=REFERENCE)
    assert do in caught.value.do
    assert "def forward" not in "".join(capfd.readouterr())


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("made", [torch.jit.script, lambda module: torch.jit.trace(module, (X,))])
@pytest.mark.parametrize(("model", "which"), [(lambda part: part, ""), (nn.Sequential, "0 ")], ids=["whole", "part"])
def test_what_torch_jit_made_is_refused(
    made: Callable[[nn.Module], Any], model: Callable[[nn.Module], nn.Module], which: str
) -> None:
    with pytest.raises(FrittataError, match=rf"torch\.jit scripted or traced {which}") as caught:
        ft.optimize(model(made(nn.Linear(4, 2).eval())), (X,), machine=REFERENCE)
    assert "nn.Module" in caught.value.do


def test_what_cannot_be_exported_is_left_to_torch_as_the_error_says() -> None:
    def function(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, causal_lower_right(3, 3)) + 1

    x = X[None, None]
    with pytest.raises(FrittataError, match="cannot follow") as caught:
        ft.optimize(function, (x,), machine=REFERENCE)
    assert 'torch.compile(model, backend="frittata")' in caught.value.do
    torch.testing.assert_close(torch.compile(function, backend="frittata")(x), function(x))


class Quantized(nn.Module):
    """A layer whose weights are integers with a scale, as those of `convert_to_reference_fx` are."""

    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.quantize_per_tensor(X, 0.1, 0, torch.qint8))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight.dequantize()


QUANTIZED: dict[str, tuple[Callable[[], Callable[..., Tensor]], str, str]] = {
    "a module": (
        lambda: nn.Sequential(torch.ao.nn.quantized.Quantize(0.1, 0, torch.qint8)).eval(),
        r"0 \(Quantize\) computes with quantized tensors",
        "PT2E",
    ),
    "weights": (Quantized, "quantized", "PT2E"),
    "a call": (lambda: lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(), "qint8", "without"),
}


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_tensors_are_refused(name: str) -> None:
    make, what, do = QUANTIZED[name]
    with pytest.raises(FrittataError, match=what) as caught:
        ft.optimize(make(), (X,), machine=REFERENCE)
    assert do in caught.value.do


def test_what_a_dim_has_to_be_is_told() -> None:
    half, rows = torch.export.Dim("half", min=1, max=100), torch.export.Dim("rows", min=2, max=50)

    def imported(function: Callable[..., Tensor], length: int) -> Any:
        given, dims = (torch.ones(length, 2), torch.ones(3)), ({0: 2 * half}, {0: rows})
        return ft.optimize(function, given, dynamic_shapes=dims, machine=REFERENCE, fallback="error")

    with pytest.raises(FrittataError, match=r"of the form 2\*half"):
        imported(lambda x, y: x.sum() + y + torch.ones(3), 5)
    fast = imported(lambda x, y: x.sum() + y + torch.ones(3), 4)  # for each size by itself
    assert torch.equal(fast(torch.ones(6, 2), torch.ones(3)), torch.full((3,), 14.0))
    with pytest.raises(FrittataError, match="broadcast a dimension of length 3"):
        fast(torch.ones(6, 2), torch.ones(4))
    with pytest.raises(FrittataError, match=r"Constraints violated \(rows\)!\n(.|\n)*rows = 3"):
        imported(lambda x, y: x.sum() + torch.special.bessel_j0(y) + torch.ones(3), 4)  # not even for one size


@pytest.mark.parametrize(
    "function",
    [lambda x: torch.linalg.eigvals(x.T @ x).abs(), lambda x: torch.sparse.mm(x.to_sparse(), x.T)],
)
def test_operands_without_a_definition_are_not_told_of_twice(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(FrittataError) as caught:
        ft.optimize(function, (torch.ones(5, 2),), machine=REFERENCE)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3 and ("no element type" in lines[1] or "sparse_coo" in lines[1])


LOSSES: dict[str, Callable[[Tensor], Any]] = {
    "cosine": lambda x: F.cosine_embedding_loss(x, x.roll(1, 0), torch.tensor([1.0, -1, 1])),
    "hinge": lambda x: F.hinge_embedding_loss(x, x.sign()),
    "overwritten": lambda x: (torch.empty(3, 4).fill_(2) * x, torch.empty_like(x).zero_(), x.new_empty(3, 4).copy_(x)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_tensors_without_values_are_overwritten(name: str) -> None:
    fast = ft.optimize(LOSSES[name], (X,), machine=REFERENCE)
    torch.testing.assert_close(fast(X), LOSSES[name](X))
    assert not fast.report.externs


@pytest.mark.parametrize(
    ("function", "args", "do"),
    [
        (nn.Linear(4, 2).eval(), (np.ones((3, 4), np.float32),), "give torch tensors as example arguments"),
        (lambda x: ft.ops.softmax(x), (X,), "numpy's, and frittata's, are for functions whose example arguments are"),
        (lambda x: np.tanh(x.numpy()), (X,), "call torch's functions"),
    ],
)
def test_what_is_for_arrays_says_so(function: Any, args: tuple[Any, ...], do: str) -> None:
    with pytest.raises(FrittataError) as error:
        ft.optimize(function, args, machine=REFERENCE)
    assert do in error.value.do
