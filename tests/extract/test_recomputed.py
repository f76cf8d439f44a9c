"""What a kernel would compute again and again may be stored, and is if that is cheaper."""

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


CASES: dict[str, tuple[nn.Module, tuple[Tensor, ...], list[tuple[int, ...]]]] = {
    "heat": (Heat(), (torch.randn(96, 96),), [(96, 96)] * 5),
    "routing": (Routing(), (torch.randn(3, 40, 5, 16), torch.randn(3, 40, 5)), [(3, 1, 5, 16)]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_stored_between_kernels(name: str, tmp_path: Path) -> None:
    module, args, stored = CASES[name]
    fast = ft.optimize(module.eval(), args, machine=REFERENCE, cache=tmp_path)
    assert relative_error(fast(*args), module(*args)) < 1e-5
    assert [kernel.outputs[0].body.shape for kernel in fast.program.kernels[:-1]] == stored


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
