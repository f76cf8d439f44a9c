"""What a program has to do at least, on programs whose work is known."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bench.blocks import Function
from bench.floors import Work, work_of
from frittata import pipeline
from frittata.egraph.machine import REFERENCE
from frittata.options import Options


def works(module: nn.Module, *args: torch.Tensor, near_bytes: float = 0.0) -> tuple[Work, ...]:
    options = Options()
    _, model = pipeline.import_model(module.eval(), args, options.fallback)
    found = pipeline.saturate_model(model, pipeline.choose_rules(options))
    return work_of(pipeline.extract_model(model, found, REFERENCE, options).program, near_bytes)


def work(module: nn.Module, *args: torch.Tensor) -> Work:
    """Return the work of all kernels together, with caches that hold everything."""
    found = works(module, *args, near_bytes=1e12)
    return Work(
        sum(one.flops for one in found),
        sum(one.read_bytes for one in found),
        sum(one.written_bytes for one in found),
        sum(one.again_bytes for one in found),
    )


def test_a_product_is_two_flops_a_step_and_its_matrices_once() -> None:
    found = work(nn.Linear(17, 7, bias=False), torch.zeros(5, 17))
    assert found == Work(2 * 5 * 17 * 7, 4 * (5 * 17 + 17 * 7), 4 * 5 * 7)


def test_what_stands_around_a_product_adds_no_flops() -> None:
    found = work(nn.Sequential(nn.Linear(17, 7), nn.GELU()), torch.zeros(5, 17))
    assert found == Work(2 * 5 * 17 * 7, 4 * (5 * 17 + 17 * 7 + 7), 4 * 5 * 7)


def test_a_convolution_counts_the_inputs_of_a_group() -> None:
    found = work(nn.Conv2d(4, 6, (3, 1), groups=2, bias=False), torch.zeros(1, 4, 5, 5))
    assert found == Work(2 * 6 * 3 * 5 * 2 * 3, 4 * (4 * 25 + 6 * 2 * 3), 4 * 6 * 3 * 5)


def test_a_convolution_of_channels_stored_last_counts_the_same() -> None:
    convolution = nn.Conv2d(64, 64, 3, groups=16, bias=False)
    channels_last = Function(lambda x: convolution(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))
    found = work(channels_last, torch.zeros(1, 15, 15, 64))
    assert found.flops == 2 * 64 * 13**2 * 9 * 4


def test_a_sum_of_squares_is_no_product() -> None:
    assert work(Function(lambda x: (x * x).sum(-1)), torch.zeros(7, 17)).flops == 0


def test_weights_between_kernels_count_and_what_passes_between_them_does_not() -> None:
    found = work(nn.Sequential(nn.Linear(17, 7), nn.Softmax(-1), nn.Linear(7, 3)), torch.zeros(5, 17))
    assert found == Work(2 * 5 * 7 * (17 + 3), 4 * (5 * 17 + 17 * 7 + 7 + 7 * 3 + 3), 4 * 5 * 3)


def test_of_a_table_only_what_is_looked_up_is_read() -> None:
    found = work(nn.Embedding(1009, 7), torch.zeros(5, dtype=torch.int64))
    assert found == Work(0, 4 * 5 * 7 + 8 * 5, 4 * 5 * 7)


@pytest.mark.parametrize("times", [1, 3])
def test_an_argument_is_read_once_however_often_it_is_used(times: int) -> None:
    def product(x: torch.Tensor) -> torch.Tensor:
        for _ in range(times):
            x = (x @ x).softmax(-1)
        return x

    found = work(Function(product), torch.zeros(7, 7))
    assert found == Work(times * 2 * 7**3, 4 * 49, 4 * 49)


def test_the_work_of_each_kernel_is_its_own() -> None:
    network = nn.Sequential(nn.Linear(200, 300, bias=False), nn.ReLU(), nn.Linear(300, 100, bias=False))
    found = [one for one in works(network, torch.zeros(400, 200)) if one.flops]
    assert found == [
        Work(2 * 400 * 200 * 300, 4 * (400 * 200 + 200 * 300), 0),
        Work(2 * 400 * 300 * 100, 4 * 300 * 100, 4 * 400 * 100),
    ]


@pytest.mark.parametrize(("near", "again"), [(0, 2 * 4 * 200**2), (300, 2 * (4 * 200**2 - 300)), (1e6, 0)])
def test_what_the_near_caches_do_not_hold_is_read_again(near: float, again: float) -> None:
    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = (x @ w).relu()
        return x

    found = works(Function(product), torch.zeros(300, 200), torch.zeros(200, 200), near_bytes=near)
    assert sum(one.read_bytes for one in found) == 4 * (300 * 200 + 200**2)
    assert sum(one.again_bytes for one in found) == again
