"""What a kernel would compute again and again may be stored, and is if that is cheaper."""

from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path

import pytest
import torch
from kernel_cases import build, element, load
from torch import Tensor, nn

import frittata as ft
from bench.acceptance import relative_error
from frittata.egraph.indexing import slice_map
from frittata.egraph.machine import REFERENCE
from frittata.kernels.templates.nest import NEST
from frittata.kernels.work import work_units


class Heat(nn.Module):
    """Explicit steps of the heat equation on a torus."""

    def forward(self, u: Tensor) -> Tensor:
        for _ in range(6):
            around = u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1)
            u = u + 0.2 * (around - 4 * u)
        return u


class Routing(nn.Module):
    """How far votes agree with their weighted sum, squashed. Source: Sabour et al., 2017."""

    def forward(self, votes: Tensor, weights: Tensor) -> Tensor:
        """Map (batch, inputs, outputs, width) and (batch, inputs, outputs) to (batch, inputs, outputs)."""
        total = (weights[..., None] * votes).sum(1, keepdim=True)
        norm = total.square().sum(-1, keepdim=True)
        return (votes * (norm / (1 + norm) * total / (norm + 1e-6).sqrt())).sum(-1)


class Averages(nn.Module):
    """Exponential moving averages along the last axis, and how far values are from them."""

    def forward(self, x: Tensor) -> Tensor:
        found = [x[:, 0]]
        for t in range(1, x.shape[1]):
            found.append(0.9 * found[-1] + 0.1 * x[:, t])
        return x - torch.stack(found, 1)


class Gates(nn.Module):
    """States of a linear recurrence, of which each step gives a function."""

    def forward(self, x: Tensor) -> Tensor:
        state, found = x[0], [x[0].tanh()]
        for step in x[1:]:
            state = state * torch.sigmoid(step) + step
            found.append(state.tanh())
        return torch.stack(found)


class Leaves(nn.Module):
    """How likely an example reaches each leaf of a tree: each level halves what the one before gives."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, trees, depth) to (batch, trees, 2**depth)."""
        right, leaves = torch.sigmoid(x), torch.ones(*x.shape[:2], 1)
        for level in range(x.shape[-1]):
            here = right[..., level : level + 1]
            leaves = torch.cat([leaves * here, leaves * (1 - here)], -1)
        return leaves


class Merged(nn.Module):
    """Four neighbours of every second pixel side by side, normalized. Source: Liu et al., Swin Transformer, 2021."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, height, width, channels) to (batch, height / 2, width / 2, 4 * channels)."""
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return nn.functional.layer_norm(torch.cat(parts, -1), (4 * x.shape[-1],))


CASES: dict[str, tuple[nn.Module, tuple[Tensor, ...], list[tuple[int, ...]]]] = {
    "heat": (Heat(), (torch.randn(96, 96),), [(96, 96)] * 5),
    "routing": (Routing(), (torch.randn(3, 40, 5, 16), torch.randn(3, 40, 5)), [(3, 1, 5, 16)]),
    "merged": (Merged(), (torch.randn(1, 28, 28, 96),), [(1, 14, 14, 384)]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_stored_between_kernels(name: str, tmp_path: Path) -> None:
    module, args, stored = CASES[name]
    fast = ft.optimize(module.eval(), args, machine=REFERENCE, cache=tmp_path)
    assert relative_error(fast(*args), module(*args)) < 1e-5
    assert [kernel.outputs[0].body.shape for kernel in fast.program.kernels[:-1]] == stored


@pytest.mark.parametrize(("module", "shape"), [(Averages(), (300, 24)), (Gates(), (24, 8, 128))])
def test_the_parts_of_a_long_join_do_not_each_begin_with_the_first(
    module: nn.Module, shape: tuple[int, ...], tmp_path: Path
) -> None:
    args = (torch.randn(shape),)
    fast = ft.optimize(module.eval(), args, machine=REFERENCE, cache=tmp_path)
    assert relative_error(fast(*args), module(*args)) < 1e-5
    assert sum(kernel.estimate.flops for kernel in fast.program.kernels) < 60 * args[0].numel()  # else hundreds


def test_levels_are_stored_of_which_the_next_shows_all_twice(tmp_path: Path) -> None:
    """Each level is computed from the one before, which is multiplied by two factors; both products are joined."""
    x = torch.randn(64, 16, 8)
    fast = ft.optimize(Leaves().eval(), (x,), machine=REFERENCE, cache=tmp_path)
    assert relative_error(fast(x), Leaves()(x)) < 1e-5
    assert sum(kernel.estimate.flops for kernel in fast.program.kernels) < 20 * x.numel() / 8 * 2**8


LOOKED_UP: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "beside a product": (
        lambda q, k, table, at: q @ k + torch.gather(table, -1, at),
        (torch.randn(2, 17, 7), torch.randn(2, 7, 13), torch.randn(2, 17, 30), torch.randint(0, 30, (2, 17, 13))),
    ),
    "turned, beside a product": (
        lambda q, k, table, at: (q @ k).exp() * torch.gather(table, -1, at).transpose(-1, -2),
        (torch.randn(17, 7), torch.randn(7, 13), torch.randn(13, 30), torch.randint(0, 30, (13, 17))),
    ),
    "rows beside a product": (
        lambda x, w, table, at: (x @ w) * table[at][:, :13],
        (torch.randn(17, 7), torch.randn(7, 13), torch.randn(30, 20), torch.randint(0, 30, (17,))),
    ),
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_what_is_looked_up_does_not_make_a_loop_nest_of_a_product(name: str, tmp_path: Path) -> None:
    function, args = LOOKED_UP[name]

    class Module(nn.Module):
        def forward(self, *args: Tensor) -> Tensor:
            return function(*args)

    fast = ft.optimize(Module().eval(), args, machine=REFERENCE, cache=tmp_path)
    assert relative_error(fast(*args), function(*args)) < 1e-5
    assert "contraction" in {kernel.template for kernel in fast.program.kernels}


def test_a_nest_is_priced_by_how_often_it_computes_what_is_inside() -> None:
    """The sum over the inputs varies with the innermost loop, which runs for each input."""
    votes, weights = load("votes", 3, 40, 5, 16), load("weights", 3, 40, 5, 1)
    total = element("fold", element("mul", weights, votes), op="sum", axis=-3, extent=40)
    agreed = element("fold", element("mul", votes, total), op="sum", axis=-1, extent=16)
    found = NEST.estimate((build(agreed, 3, 40, 5, 1),), frozenset(), REFERENCE)
    assert found is not None and found.flops >= 3 * 40 * 5 * 16 * 40


def test_a_view_of_what_is_computed_computes_it_for_itself() -> None:
    x = element("exp", load("x", 64))
    shifted = [element("reindex", x, map=slice_map((64,), -1, start, 1, 61)) for start in range(4)]
    four = build(reduce(partial(element, "add"), shifted), 61)
    one = build(shifted[0], 61)
    assert work_units((four,)) >= 4 * (work_units((one,)) - 61)


def test_what_a_broadcast_repeats_is_stored_if_it_takes_much(tmp_path: Path) -> None:
    model = ft.parse("""
def main(x: f32[500, 7, 64], b: f32[7, 64]) -> (f32[500, 7, 64], f32[500, 7, 64]):
    c: f32[7, 64] = exp(b)
    d: f32[7, 64] = sin(c)
    e: f32[500, 7, 64] = mul(x, d)
    f: f32[7, 64] = add(b, b)
    g: f32[500, 7, 64] = sub(x, f)
    return e, g
""")
    program = ft.optimize(model, machine=REFERENCE, cache=tmp_path).program
    small = [output for kernel in program.kernels for output in kernel.outputs if output.body.shape == (7, 64)]
    assert [output.body.args[0].op for output in small] == ["sin"]


def test_a_nest_is_priced_with_what_its_loops_repeat() -> None:
    """A value of the inner axes is computed again in each turn of the outer loop; one of the outer axes, once."""
    x = load("x", 20, 16, 100)
    inner, outer = (
        NEST.estimate((build(element("mul", x, element("exp", small)), 20, 16, 100),), frozenset(), REFERENCE)
        for small in (load("b", 16, 100), load("b", 20, 16, 1))
    )
    assert inner is not None and outer is not None and inner.flops > 2 * outer.flops
