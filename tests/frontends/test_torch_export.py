"""Import from torch: the interpreter on the imported model gives what the module gives, and refusals are clear."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import frittata as ft
from bench import workloads
from frittata.egraph.errors import ModelError, StaleParametersError, UnsupportedOpError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.script import parse, show
from frittata.egraph.shapes import Sym
from frittata.frontends.torch_export import from_exported_program, from_module
from frittata.frontends.torch_imported import Imported

Forward = Callable[..., Any]


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def module_of(function: Forward | nn.Module) -> nn.Module:
    return (function if isinstance(function, nn.Module) else Apply(function)).eval()


def drawn(shape: tuple[int, ...], kind: str = "f") -> Tensor:
    """A tensor of random values: f floats, i integers, b bools."""
    source = torch.Generator().manual_seed(len(shape) + sum(shape))
    if kind == "f":
        return torch.randn(shape, generator=source, dtype=torch.float64)
    return (
        torch.randint(0, 2, shape, generator=source).bool()
        if kind == "b"
        else torch.randint(-5, 6, shape, generator=source)
    )


def agrees(module: nn.Module, args: tuple[Any, ...], tolerance: float = 1e-12) -> Imported:
    """Import the module in double precision and compare every output."""
    module = module.double()
    imported = from_module(module, args)
    with torch.no_grad():
        expected = module(*args)
    outputs = imported.model.interpret(*[arg.numpy() for arg in imported.flatten(args)])
    flat = pytree.tree_leaves(expected)
    found = pytree.tree_leaves(imported.unflatten(outputs))
    assert len(flat) == len(found)
    for value, other in zip(flat, found, strict=True):
        if isinstance(value, Tensor):
            wanted = value.numpy()
            assert wanted.dtype.kind == other.dtype.kind
            scale = max(1.0, float(np.abs(wanted, where=np.isfinite(wanted), out=np.zeros(wanted.shape)).max()))
            np.testing.assert_allclose(other, wanted, rtol=0, atol=tolerance * scale)
    return imported


WORKLOADS = {
    "mlp": lambda: workloads.mlp(13, 17, 7, batch=5),
    "encoder layer": lambda: workloads.encoder_layer(36, 3, 65, 17, 2),
    "encoder layer of one token": lambda: workloads.encoder_layer(8, 1, 9, 1, 1),
    "stacked encoder": lambda: workloads.stacked_encoder(3, 16, 4, 20, 7, 2),
    "basic block": lambda: workloads.basic_block(6, 9, 2),
    "basic block, downsampling": lambda: workloads.basic_block(8, 7, 1, inputs=5, stride=2),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_workloads_are_imported(name: str) -> None:
    module, args = WORKLOADS[name]()
    imported = agrees(module, tuple(arg.double() for arg in args))
    assert parse(show(imported.model)) == imported.model


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_workloads_in_single_precision_keep_their_activations_near_unit_variance(name: str) -> None:
    module, args = WORKLOADS[name]()
    imported = from_module(module, args)
    with torch.no_grad():
        expected = module(*args).numpy()
    (found,) = imported.model.interpret(*[arg.numpy() for arg in args])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(found).max())
    assert 0.2 < found.std() < 2
    again, _ = WORKLOADS[name]()
    for first, second in zip(module.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(first, second)


class Attention(nn.Module):
    """Multi-head attention written by hand."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(d, d, bias=i == 3) for i in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, d = x.shape
        q, k, v = (f(x).view(batch, tokens, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(d // self.heads), dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, d))


class PreNorm(nn.Module):
    """A pre-norm block with fused projections and a causal mask."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.ff = nn.LayerNorm(12), nn.Linear(12, 36), nn.Linear(12, 12, bias=False)
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=True).squeeze(1)
        x = x + y * self.scale
        return x + F.dropout(F.gelu(self.ff(x), approximate="tanh"), 0.5, self.training)


class Tied(nn.Module):
    """Two names for one weight, and a parameter that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 5, bias=False), nn.Linear(5, 5, bias=False)
        self.second.weight = self.first.weight
        self.unused = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu_())


def normalized(norm: nn.Module) -> nn.Module:
    """Draw weights and statistics of a normalization."""
    for name, value in norm.state_dict().items():
        if value.dtype.is_floating_point:
            value.copy_(torch.rand_like(value) + (0.5 if name.endswith("var") else 0))
    return norm


LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(7, 5), (3, 7)),
    "linear without bias": (lambda: nn.Linear(7, 1, bias=False), (2, 3, 7)),
    "linear of a vector": (lambda: nn.Linear(7, 5), (7,)),
    "activations": (lambda: nn.Sequential(nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Sigmoid(), nn.Tanh()), (3, 7)),
    "more activations": (lambda: nn.Sequential(nn.LeakyReLU(), nn.Hardswish(), nn.Hardsigmoid(), nn.ReLU6()), (3, 7)),
    "softmax": (lambda: nn.Softmax(dim=0), (3, 7)),
    "log softmax": (lambda: nn.LogSoftmax(dim=-1), (3, 7)),
    "layer norm": (lambda: normalized(nn.LayerNorm(7)), (3, 7)),
    "layer norm of two axes": (lambda: normalized(nn.LayerNorm([3, 7])), (2, 3, 7)),
    "layer norm without weights": (lambda: nn.LayerNorm(7, elementwise_affine=False), (3, 7)),
    "layer norm without bias": (lambda: nn.LayerNorm(7, bias=False), (3, 7)),
    "batch norm 1d": (lambda: normalized(nn.BatchNorm1d(5)), (3, 5)),
    "batch norm of a sequence": (lambda: normalized(nn.BatchNorm1d(5, affine=False)), (3, 5, 7)),
    "batch norm 2d": (lambda: normalized(nn.BatchNorm2d(5)), (2, 5, 1, 7)),
    "batch norm 2d of the batch": (lambda: normalized(nn.BatchNorm2d(5, track_running_stats=False)), (2, 5, 3, 7)),
    "conv 1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), (2, 4, 17)),
    "conv 2d": (lambda: nn.Conv2d(3, 5, (3, 2), padding=(2, 0), bias=False), (1, 3, 7, 9)),
    "conv 2d without batch": (lambda: nn.Conv2d(3, 5, 3), (3, 7, 9)),
    "conv 2d, same": (lambda: nn.Conv2d(3, 5, 3, padding="same"), (1, 3, 7, 9)),
    "conv 3d": (lambda: nn.Conv3d(2, 3, 2), (1, 2, 3, 4, 5)),
    "dropout": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Identity(), nn.Dropout2d(0.5)), (2, 3, 4, 5)),
    "flatten": (lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2, 30))), (2, 3, 4, 5)),
    "pooling to one place": (lambda: nn.AdaptiveAvgPool2d(1), (2, 3, 4, 5)),
    "attention by hand": (lambda: Attention(12, 3), (2, 7, 12)),
    "multi-head attention": (lambda: SelfAttention(12, 3), (2, 7, 12)),
    "pre-norm block": (PreNorm, (2, 7, 12)),
    "tied weights": (Tied, (3, 5)),
    **{
        f"encoder, {activation}, batch first {first}": (
            lambda a=activation, b=first: nn.TransformerEncoderLayer(12, 3, 17, activation=a, batch_first=b),
            (5, 4, 12),
        )
        for activation in ("relu", "gelu")
        for first in (True, False)
    },
    "pre-norm encoder": (lambda: nn.TransformerEncoderLayer(12, 3, 17, norm_first=True, batch_first=True), (2, 5, 12)),
}


class SelfAttention(nn.Module):
    """nn.MultiheadAttention on one input, weights and all."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d, heads, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        return self.attention(x, x, x)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_means_what_it_means_in_torch(name: str) -> None:
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    agrees(make().eval(), (drawn(shape),))


X, Y, Z = drawn((3, 4)), drawn((4,)), drawn((2, 3, 4))
INTS, B = drawn((3, 4), "i"), drawn((3, 4), "b")
Q, K, V = drawn((2, 3, 5, 4)), drawn((2, 3, 7, 4)), drawn((2, 3, 7, 6))
SINGLE = ((X * 8).round() / 8).float()  # few bits, so that sums are exact

FUNCTIONS: dict[str, tuple[Forward, tuple[Any, ...]]] = {
    "arithmetic with numbers": (lambda x: (2 * x + 1 - x / 3) ** 2 - 1.5 * (1 - x), (X,)),
    "arithmetic with alpha": (lambda x, y: torch.add(x, y, alpha=2) - torch.sub(x, y, alpha=0.5), (X, Y)),
    "broadcasting": (lambda x, y: x[:, :, None] * y, (X, drawn((2, 1, 4, 5)))),
    "powers": (lambda x: (x**2, x**3, x**0, x**1, x.abs() ** 0.5, x**-1, x**-2, x.abs() ** -0.5, x.abs() ** 1.7), (X,)),
    "powers of tensors": (lambda x, y: (x.abs() ** y, 2.0**x), (X, Y)),
    "integers and numbers": (lambda i: (i + 1, i * 2.0, i / 2, i > 0, i**2, -i, i.float().sqrt().isnan()), (INTS,)),
    "integers and floats": (lambda i, x: (i + x, i * x, torch.maximum(i.double(), x)), (INTS, X)),
    "a scalar tensor does not widen": (lambda x, s: (x * s, s * 2, s + x), (SINGLE, torch.tensor(0.5))),
    "any and all over none": (lambda b, x: (b.any(()), x.all(()), b.any((0,)), x.all((0, 1)), x.any((), True)), (B, X)),
    "bools and alpha": (lambda b, x: [torch.add(b, x > 0, alpha=alpha) for alpha in (0, 2, False, True)], (B, X)),
    "truths in sums": (lambda b, x: (torch.sum(b, dtype=torch.bool), x.sum(1, dtype=torch.bool), b.prod(0)), (B, X)),
    "bools": (lambda b, x: (b & (x > 0), b | b, ~b, b * x, b.float(), b.any(), b.all(1), b.sum(0), b + b), (B, X)),
    "comparisons": (lambda x, y: (x < y, x <= 0, x > y, x >= 0.5, x == x, x != y), (X, Y)),
    "where": (lambda x, y: (torch.where(x > y, x, y), torch.where(x > 0, x, 0.0), torch.where(x > 0, 1.5, x)), (X, Y)),
    "masks": (lambda x, b: (x.masked_fill(b, -1), x.masked_fill(b, float("-inf"))), (X, B)),
    "clamp": (lambda x, y: (x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(max=y), torch.clamp(x, y, y + 1)), (X, Y)),
    "unary functions": (lambda x: [f(x) for f in (torch.exp, torch.tanh, torch.sin, torch.cos, torch.erf, abs)], (X,)),
    "roots and logarithms": (lambda x: (x.sqrt(), x.rsqrt(), x.log(), x.reciprocal(), x.square()), (X.abs() + 0.1,)),
    "rounding": (lambda x: (x.floor(), x.ceil(), (x * 2).round(), x.sign(), x.neg()), (X,)),
    "sums": (
        lambda x: (x.sum(), x.sum(0), x.sum((0, 2)), x.sum(-1, keepdim=True), x.mean(), x.mean((1, -1), True)),
        (Z,),
    ),
    "sums of integers": (lambda i: (i.sum(), i.sum(1), i.prod(0), i.amax(), i.float().mean(1)), (INTS,)),
    "extremes": (
        lambda x: (x.amax(), x.amin(0), x.amax((0, 2), True), x.max(), x.max(-1)[0], x.min(0, True).values),
        (Z,),
    ),
    "variances": (
        lambda x: (x.var(), x.var(0), x.var((1, 2), correction=0), x.std(-1, False), torch.var_mean(x, 1)),
        (Z,),
    ),
    "a layer norm by hand": (
        lambda x: (x - x.mean(-1, True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt(),
        (Z,),
    ),
    "matrix products": (
        lambda x, y: (x @ y.T, x.mm(y.t()), torch.addmm(x[0, :3], x, y.T, beta=2, alpha=0.5)),
        (X, drawn((3, 4))),
    ),
    "batched products": (lambda x, y: (x @ y, x.bmm(y), torch.baddbmm(x @ y, x, y)), (Z, drawn((2, 4, 5)))),
    "products that are summed": (
        lambda x, y, w: (
            torch.addbmm(x[0] @ y[0], x, y, beta=2, alpha=3),
            F.bilinear(x, x * 2, w),
            F.bilinear(x, x, w, w[:, 0, 0]),
        ),
        (Z, drawn((2, 4, 5)), drawn((6, 4, 4))),
    ),
    "a bias for all outputs": (
        lambda x, w, b: (F.linear(x, w, b), F.linear(x[0], w, b)),
        (Z, drawn((5, 4)), drawn((1,))),
    ),
    "products of vectors": (lambda x, y: (x @ y, y @ y, y @ x.T, x.mv(y), y.dot(y), torch.outer(y, y)), (X, Y)),
    "products that broadcast": (lambda x, y: (x @ y, y.mT @ x.mT), (drawn((5, 1, 3, 4)), drawn((2, 4, 3)))),
    "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), (Z, Z)),
    "views": (
        lambda x: (
            x.view(6, 4),
            x.reshape(2, -1),
            x.flatten(1),
            x.unsqueeze(1),
            x[:, :1].squeeze(1),
            x.unflatten(2, (2, -1)),
        ),
        (Z,),
    ),
    "transpositions": (
        lambda x: (x.transpose(0, 2), x.permute(2, 0, 1), x.mT, x.movedim(0, 1), x.contiguous(), x.swapaxes(0, 1)),
        (Z,),
    ),
    "expansion": (lambda x: (x.expand(2, 3, 4), x[:, :1].expand(-1, 5), x.repeat(2, 3), x.expand_as(x)), (X,)),
    "slices": (
        lambda x: (x[:, 1:], x[..., ::2], x[0], x[-1, 1:3, -1], x[:, None, 0], x.narrow(1, 1, 2), x.select(0, 1)),
        (Z,),
    ),
    "pieces": (lambda x: (*x.split(2, 1), *x.chunk(2, 2), *x.unbind(0), *x.split([1, 3], 2)), (Z,)),
    "conversions": (
        lambda x: (x.float(), x.to(torch.int32), x.long(), x.bool(), x.float().double(), x.to(x.dtype)),
        (SINGLE.double(),),
    ),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (Q, K, V)),
    "attention with a scale": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), (Q, K, V)),
    "causal attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (Q, K, V)),
    "causal attention, fewer keys": (lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), (K, Q)),
    "masked attention": (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), (Q, K, V, drawn((5, 7)))),
    "attention, a query sees nothing": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        (Q, K, V, torch.arange(7) < torch.arange(5)[:, None]),
    ),
    "a causal mask by hand": (
        lambda x: torch.softmax((x @ x.mT).masked_fill(torch.ones(3, 3).tril() == 0, float("-inf")), -1),
        (Z,),
    ),
    "created tensors": (
        lambda x: (
            x + torch.arange(4),
            torch.zeros(2, 3),
            torch.ones_like(x),
            torch.full((2,), 7),
            torch.arange(3, 9, 2),
        ),
        (X,),
    ),
    "triangles": (lambda x: (x.tril(), x.triu(1), torch.triu(x, -1)), (Z,)),
    "constants in the forward": (lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64), (X,)),
    "no gradients inside": (lambda x: torch.no_grad()(lambda y: y.exp())(x) + 1, (X,)),
    "in place on an intermediate": (lambda x: (x + 1).mul_(2).relu_(), (X,)),
    "an input returned": (lambda x: (x, x + 0), (X,)),
    "softmax of integers as floats": (lambda i: torch.softmax(i, 1, dtype=torch.float64), (INTS,)),
    "softmax of a scalar": (lambda x: torch.softmax(x.sum(), 0), (X,)),
    "group norm": (lambda x: F.group_norm(x, 2), (drawn((2, 4, 3)),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_means_what_it_means_in_torch(name: str) -> None:
    function, args = FUNCTIONS[name]
    imported = agrees(module_of(function), args)
    assert parse(show(imported.model)) == imported.model


SPECIAL = torch.tensor(
    [[0.0, -0.0, 1.0, -1.0], [math.inf, -math.inf, math.nan, 1e300], [2.5, -2.5, 1e-320, -3.0]], dtype=torch.float64
)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.relu(), x.clamp(-1, 1), x.clamp(min=0), F.leaky_relu(x), F.gelu(x), F.silu(x), x.sigmoid()),
        lambda x: (x.amax(1), x.amin(), x.max(0)[0], torch.maximum(x, x.T.reshape(3, 4)), x.sum(1), x.mean()),
        lambda x: (x.sign(), x.isnan(), x.isinf(), x.round(), x.bool(), x == x, x**2, x**0.5, x**-1),
        lambda x: (torch.softmax(x, 1), torch.where(x > 0, x, 0), x.masked_fill(x != x, 0), F.hardswish(x)),
    ],
)
def test_special_values_go_the_way_they_go_in_torch(function: Forward) -> None:
    agrees(module_of(function), (SPECIAL,))


def test_composites_keep_their_names() -> None:
    module, args = workloads.encoder_layer(12, 3, 17, 5, 2)
    counted = [term.op for term in from_module(module, args).model.main.walk()]
    assert [counted.count(op) for op in ("linear", "attention", "layer_norm", "gelu", "softmax")] == [4, 1, 2, 1, 0]
    module, args = workloads.basic_block(4, 5, inputs=3)
    counted = [term.op for term in from_module(module, args).model.main.walk()]
    assert [counted.count(op) for op in ("conv", "batch_norm", "relu", "add")] == [3, 3, 2, 1]


def test_params_share_the_memory_of_the_module_and_are_its_own_tensors() -> None:
    module = nn.Linear(3, 2).eval()
    imported = from_module(module, (torch.ones(1, 3),))
    assert set(imported.model.params) == {"weight", "bias"}
    assert imported.parameters["weight"] is module.weight
    with torch.no_grad():
        module.weight.fill_(2)
        module.bias.zero_()
    np.testing.assert_array_equal(imported.model.interpret(np.ones((1, 3)))[0], [[6, 6]])


def test_only_params_in_use_are_kept_and_a_tied_weight_is_one_param() -> None:
    imported = from_module(Tied().eval(), (torch.ones(1, 5),))
    assert len(imported.model.params) == len(imported.parameters) == 1


def test_a_param_named_as_an_input_gets_another_name() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = nn.Parameter(torch.full((3,), 2.0))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.x

    imported = agrees(Scale().eval(), (drawn((2, 3)),))
    assert set(imported.model.params) == {"self.x"}


def test_arguments_and_outputs_keep_their_structure() -> None:
    def function(pair: Any, table: Any, flag: bool, scale: float) -> Any:
        left, right = pair
        out = left + right if flag else left
        return {"sum": out * scale, "rest": [table["b"], None, 3], "pair": (left - 1,)}

    args = ((X, X + 1), {"b": Y}, True, 2.5)
    imported = from_module(module_of(function), args)
    assert len(imported.model.main.inputs) == 3
    flat = imported.flatten(args)
    assert all(given is wanted for given, wanted in zip(flat, (X, args[0][1], Y), strict=True))
    found = imported.unflatten(imported.model.interpret(*[value.numpy() for value in flat]))
    assert list(found) == ["sum", "rest", "pair"]
    assert found["rest"][1:] == [None, 3]
    np.testing.assert_allclose(found["sum"], (2 * X + 1) * 2.5)
    with pytest.raises(ModelError, match="structure"):
        imported.flatten((X,))
    with pytest.raises(ModelError, match="is False and was True at the export"):
        imported.flatten((args[0], args[1], False, 2.5))


def test_keyword_arguments_come_in_any_order() -> None:
    class Sub(nn.Module):
        def forward(self, x: Tensor, *, a: Tensor, b: Tensor) -> Tensor:
            return x * a - b

    imported = from_module(Sub().eval(), (X,), {"a": X + 1, "b": X + 2})
    first = imported.flatten((X,), {"a": X + 1, "b": X + 2})
    second = imported.flatten((X,), {"b": X + 2, "a": X + 1})
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_what_no_result_is_computed_from_is_left_out() -> None:
    """It may be anything: here half of it is empty, and half in half precision."""

    def eliminated(x: Tensor) -> Tensor:
        columns: list[Tensor] = []
        while len(columns) < 3:
            columns.append(F.pad(x[:, 0], (len(columns), 0)))
            x = x[1:, 1:] - x[1:, :1] * x[:1, 1:]
            x.half().add_(1)
        return torch.stack(columns, 1)

    x = drawn((3, 3))
    imported = from_module(module_of(eliminated), (x,))
    np.testing.assert_allclose(imported.model.interpret(x.numpy())[0], eliminated(x), atol=1e-12)
    assert not any(term.op == "cast" for term in imported.model.main.walk())


def test_terms_know_the_line_of_the_user() -> None:
    imported = from_module(module_of(PreNorm()), (torch.randn(1, 3, 12),))
    origins = {term.op: origin for term, origin in imported.model.origin_by_term.items()}
    assert "test_torch_export.py:" in origins["layer_norm"]
    assert "param" not in origins


def test_an_exported_program_is_imported() -> None:
    program = torch.export.export(nn.Linear(3, 2).eval(), (torch.ones(1, 3),))
    assert from_exported_program(program).model.main.outputs[0].op == "linear"


def test_a_dynamic_dim_is_a_symbol_of_its_name() -> None:
    module, (x,) = workloads.mlp(5, 7, 3)
    imported = from_module(module, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert imported.model.main.inputs[0].shape == (Sym("batch"), 5)
    assert imported.model.main.outputs[0].shape == (Sym("batch"), 3)
    assert imported.range_by_dim["batch"][0] <= 2
    assert imported.range_by_dim["batch"][1] is None
    bound = imported.model.bind_dims({"batch": 4})
    with torch.no_grad():
        np.testing.assert_allclose(bound.interpret(x[:4].numpy())[0], module(x[:4]), atol=1e-5)


def test_dynamic_dims_go_through_views_that_keep_them() -> None:
    module = Attention(12, 3).eval()
    dims = {0: torch.export.Dim("b"), 1: torch.export.Dim("t")}
    imported = from_module(module.double(), (drawn((2, 5, 12)),), dynamic_shapes=(dims,))
    x = drawn((3, 4, 12))
    (found,) = imported.model.bind_dims({"b": 3, "t": 4}).interpret(x.numpy())
    np.testing.assert_allclose(found, module(x).detach(), atol=1e-12)


def branches(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


def changes_statistics(x: Tensor) -> Tensor:
    return F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True)


def changes_statistics_of_instances(x: Tensor) -> Tensor:
    return F.instance_norm(x[None], torch.zeros(3), torch.ones(3))


REFUSED: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "control flow on data": (branches, (X,), "cannot follow(.|\n)*test_torch_export.py(.|\n)*torch.where"),
    "a number of values": (lambda x: F.elu(x, x.max().item()), (X,), "values of a tensor(.|\n)*x.max"),
    "shapes that do not fit": (nn.Linear(3, 2), (X.float(),), "same reduction dim(.|\n)*call the model"),
    "quarter precision": (lambda x: x.float() + 1, (X.to(torch.float8_e5m2),), "float8_e5m2(.|\n)*convert to"),
    "quarter precision inside": (lambda x: x.to(torch.float8_e5m2).double(), (X,), "torch.float8_e5m2"),
    "dropout at work": (lambda x: F.dropout(x, 0.5, True), (X,), r"model.eval\(\)"),
    "statistics that change": (changes_statistics, (X,), "running statistics"),
    "statistics of instances": (changes_statistics_of_instances, (X,), "running statistics(.|\n)*None"),
    "a sparse input": (lambda x: x.to_dense() + 1, (X.to_sparse(),), "layout"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_imported_is_refused_with_advice(name: str) -> None:
    function, args, message = REFUSED[name]
    with pytest.raises(ModelError, match=message) as caught:
        from_module(module_of(function), args)
    assert caught.value.do
    assert not isinstance(caught.value, UnsupportedOpError)


def test_a_view_that_mixes_dynamic_dims_is_refused() -> None:
    dims = {0: torch.export.Dim("n")}
    with pytest.raises(ModelError, match=r"cannot reshape nx4(.|\n)*axis of its own"):
        from_module(module_of(lambda x: x.reshape(-1)), (X,), dynamic_shapes=((dims,),))
    with pytest.raises(ModelError, match="computed from symbolic dims"):
        from_module(module_of(lambda x: x.new_zeros(x.shape[0] * 2)), (X,), dynamic_shapes=((dims,),))


def test_all_operators_without_a_definition_are_listed_at_once_with_counts_and_lines() -> None:
    def function(x: Tensor) -> Any:
        y = torch.special.ndtri(x) + torch.special.ndtri(x * 2)
        z, (n, c, inner) = torch.linalg.eigvals(y.mT @ y).real.sum(), (*x.shape[:2], x[0, 0].numel())
        return F.elu(y) * z, torch.native_group_norm(x, None, None, n, c, inner, 1, 1e-5)[1], x.geqrf()

    with pytest.raises(UnsupportedOpError) as caught:
        from_module(module_of(function), (Q,))
    text = str(caught.value)
    means = "native_group_norm.default (result 1)"
    for wanted in ("ndtri", "linalg_eig", "aten.geqrf", means, "test_torch_export.py:"):
        assert wanted in text
    assert "x2" in text


class Holder:
    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def __call__(self, x: Tensor) -> Tensor:
        return self.layer(x) + 1


def applied(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x) - 1


HOLDERS: dict[str, Callable[[nn.Module], Callable[[torch.Tensor], torch.Tensor]]] = {
    "a closure": lambda layer: lambda x: layer(x) * 2,
    "a dict": lambda layer: (lambda held: lambda x: held["a"]["b"](x))({"a": {"b": layer}}),
    "a list": lambda layer: (lambda held: lambda x: held[0](x))([layer]),
    "an object": lambda layer: (lambda held: lambda x: held.layer(x))(Holder(layer)),
    "a method": lambda layer: layer.forward,
    "an object that is called": Holder,
    "a partial function": lambda layer: partial(applied, layer),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_modules_that_a_function_calls_are_guarded(name: str, tmp_path: Path) -> None:
    layer = nn.Sequential(nn.Linear(4, 3), nn.Dropout()).eval()
    function, x = HOLDERS[name](layer), torch.randn(2, 4)
    fast = ft.optimize(function, (x,), machine=REFERENCE, cache=tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), function(x))
    layer[0].weight = nn.Parameter(torch.ones(3, 4))
    with pytest.raises(StaleParametersError, match="weight"):
        fast(x)
    with pytest.raises(ModelError, match="training mode"):
        ft.optimize(HOLDERS[name](layer.train()), (x,), machine=REFERENCE, cache=tmp_path)


def test_functions_that_are_not_written_in_python(tmp_path: Path) -> None:
    x = torch.randn(2, 4)
    for function in (torch.relu, partial(torch.add, other=x)):
        fast = ft.optimize(function, (x,), machine=REFERENCE, cache=tmp_path)
        torch.testing.assert_close(fast(x), function(x))


@pytest.mark.parametrize("kind", [nn.ReLU, Holder])
def test_a_class_is_no_model(kind: type) -> None:
    with pytest.raises(ModelError, match=r"is a class(.|\n)*an instance of it"):
        ft.optimize(kind, (torch.zeros(3),))
