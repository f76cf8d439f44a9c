"""Long formulas that share values are few kernels; tensors that read the same are computed together."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Beta, Dirichlet, Gamma

import frittata as ft
from bench.acceptance import relative_error
from frittata.egraph.machine import REFERENCE
from frittata.extract.cuts import find_cuts
from frittata.options import Options
from frittata.pipeline import choose_rules, saturate_model

SHARED = """
def main(x: f32[40, 30]) -> (f32[40, 1], f32[1, 30]):
    a: f32[40, 30] = add(x, f32(1.0))
    b: f32[40, 30] = sin(a)
    c: f32[40, 30] = log(b)
    d: f32[40, 30] = max(c, f32(0.0))
    s: f32[40, 1] = reduce_sum(where(lt(c, a), d, b), axis=-1)
    t: f32[1, 30] = reduce_sum(div(a, sub(d, b)), axis=-2)
    return s, t
"""
"""Sums along two axes are two kernels, and both need a, b and d."""


class Module(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> tuple[Tensor, ...]:
        return self.function(*args)


def beta(a: Tensor, b: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    found = Beta(a, b, validate_args=False)
    return found.log_prob(x), found.entropy()


def dirichlet(a: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    found = Dirichlet(a, validate_args=False)
    return found.log_prob(x), found.entropy()


def gamma(a: Tensor, b: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    found = Gamma(a, b, validate_args=False)
    return found.log_prob(x), found.entropy()


def gelu(x: Tensor) -> tuple[Tensor, ...]:
    """The function and its derivative: alone the first is a product with a sigmoid, beside the second with a tanh."""
    inner = 0.7978845608 * (x + 0.044715 * x**3)
    t = torch.tanh(inner)
    return 0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608 * (1 + 3 * 0.044715 * x * x)


def amsgrad(p: Tensor, g: Tensor, m: Tensor, v: Tensor, most: Tensor) -> tuple[Tensor, ...]:
    """A step of an optimizer. Source: Reddi et al., On the convergence of Adam and beyond, 2018."""
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    most = torch.maximum(most, v)
    return p - 1e-3 * m / (most.sqrt() + 1e-8), m, v, most


def between(*shape: int) -> Tensor:
    return 0.1 + 0.8 * torch.rand(shape)


CASES: dict[str, tuple[Callable[..., tuple[Tensor, ...]], tuple[Tensor, ...], int]] = {
    "beta": (beta, (between(3, 2), between(3, 2), between(3, 2)), 2),
    "beta, large": (beta, (between(300, 200), between(300, 200), between(300, 200)), 2),
    "dirichlet": (dirichlet, (between(7, 5), between(7, 5)), 2),
    "gamma": (gamma, (between(5, 4), between(5, 4), between(5, 4)), 1),
    "logarithm and derivative of gamma": (lambda x: (torch.lgamma(x), torch.digamma(x)), (between(40, 30),), 1),
    "bessel": (lambda x: (torch.special.i0(x), torch.special.i0e(x), torch.special.i1(x)), (between(40, 30),), 1),
    "gelu and derivative": (gelu, (torch.randn(64, 128),), 1),
    "amsgrad": (amsgrad, tuple(between(64, 32) for _ in range(5)), 1),
    "sums of rows": (lambda x: (x.exp().sum(-1), (x * x).sum(-1), x.amax(-1)), (torch.randn(200, 100),), 1),
    "other shapes": (lambda x: (x.sum(-1), x.sum(0)), (torch.randn(20, 30),), 2),
    "nothing in common": (lambda x, y: (x.exp(), y.exp()), (torch.randn(20, 30), torch.randn(20, 30)), 2),
    "products": (lambda x, v, w: (x @ v, x @ w), tuple(torch.randn(32, 32) for _ in range(3)), 2),
    "calls": (lambda x: (torch.special.bessel_j0(x), torch.special.bessel_j1(x)), (torch.randn(9),), 2),
}


@pytest.mark.parametrize("name", CASES)
def test_what_shares_values_is_few_kernels(name: str, tmp_path: Path) -> None:
    function, args, kernels = CASES[name]
    fast = ft.optimize(Module(function).eval(), args, machine=REFERENCE, cache=tmp_path)
    for found, wanted in zip(fast(*args), function(*(arg.double() for arg in args)), strict=True):
        assert relative_error(found, wanted) < 1e-5
    assert len(fast.program.kernels) == kernels
    assert fast.report.gap < 1e-3


def test_of_many_siblings_some_are_computed_together(tmp_path: Path) -> None:
    def powers(x: Tensor) -> tuple[Tensor, ...]:
        return tuple((x * 0.1 * n).sin() for n in range(1, 12))

    x = torch.randn(40, 30)
    fast = ft.optimize(Module(powers).eval(), (x,), machine=REFERENCE, cache=tmp_path)
    assert all(relative_error(found, wanted) < 1e-5 for found, wanted in zip(fast(x), powers(x), strict=True))
    assert sorted(len(kernel.outputs) for kernel in fast.program.kernels) == [3, 8]


def test_what_several_kernels_share_is_worth_storing_where_it_takes_much() -> None:
    main = (model := ft.parse(SHARED)).main
    snapshot = saturate_model(model, choose_rules(Options())).snapshot
    cuts = find_cuts(snapshot, [snapshot.class_by_term[term] for term in main.outputs])
    shared = {term.op: snapshot.class_by_term[term] for term in main.walk() if term.shape == (40, 30)}
    assert {op for op, class_ in shared.items() if class_ in cuts.may} == {"input", "sin", "log"}
