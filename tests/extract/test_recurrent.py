"""Steps of a recurrence: equal ones have as many candidates, and the best choice is proven best."""

from functools import partial, reduce
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import frittata as ft
from bench.models import nasrnn, recurrent, vit
from bench.models.weights import seeded
from frittata.egraph import shapes
from frittata.egraph.indexing import IndexMap, permute_map, slice_map
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Function, Model
from frittata.egraph.ops.registry import make, tensor
from frittata.egraph.saturate import StopReason
from frittata.egraph.snapshot import Node
from frittata.egraph.terms import Scalar, Term
from frittata.extract.choose import ENOUGH, ENOUGH_AGAIN, Extraction
from frittata.extract.layouts import computed
from frittata.frontends.torch_export import from_module
from frittata.options import Options
from frittata.pipeline import choose_rules, extract_model, saturate_model

SIZE = 8
CELLS = {"lstm": recurrent.UnrolledLSTM, "gru": recurrent.UnrolledGRU}


def extraction(module: nn.Module, args: tuple[torch.Tensor, ...]) -> Extraction:
    model = from_module(*seeded(lambda: module, lambda: args)).model
    options = Options()
    return extract_model(model, saturate_model(model, choose_rules(options)), REFERENCE, options)


def unrolled(name: str, steps: int) -> Extraction:
    return extraction(CELLS[name](SIZE, SIZE), (torch.randn(1, steps, SIZE),))


@pytest.mark.parametrize("steps", [(4, 6, 8), (9, 11, 13)])  # their outputs are joined in one kernel, or may be in many
@pytest.mark.parametrize("name", CELLS)
def test_a_step_more_costs_as_many_candidates_as_the_one_before(name: str, steps: tuple[int, ...]) -> None:
    found = [unrolled(name, count) for count in steps]  # the state of the first is known
    assert all(extraction.solution.gap == 0 for extraction in found)
    few, some, many = (len(extraction.problem.numbers()) for extraction in found)
    assert many - some <= 1.1 * (some - few) < 130


def test_many_products_that_meet_in_one_cell_are_proven_best_to_a_thousandth() -> None:
    found = extraction(nasrnn.NasRNN(SIZE), (torch.randn(1, 2, SIZE), torch.randn(1, SIZE)))
    assert found.solution.gap <= ENOUGH
    assert len(found.problem.numbers()) < 400
    assert len(found.problem.covers) >= 32  # every product stands in some kernel


def test_a_layer_over_an_image_costs_few_candidates() -> None:
    """The bias of the convolution before them may be had in two layouts: point-wise in each, so kernels end there."""
    image = torch.randn(1, 3, 32, 32)
    found = [extraction(vit.ViT((32, 32), d=12, heads=3, layers=layers, classes=5), (image,)) for layers in (2, 3)]
    few, many = (len(extraction.problem.numbers()) for extraction in found)
    assert many - few < 300
    assert max(extraction.solution.gap for extraction in found) <= ENOUGH_AGAIN  # proven, not out of time


@pytest.mark.parametrize("steps", [3, 6])
def test_the_inputs_of_all_steps_are_one_product_and_its_rows_are_not_copied(steps: int) -> None:
    program = unrolled("lstm", steps).program
    products = [kernel for kernel in program.kernels if kernel.template == "contraction"]
    assert len(products) == 1 + steps - 1  # the first step has no state: its product is known
    assert [products[0].outputs[0].body.shape, products[1].outputs[0].body.shape] == [
        (1, steps, 4 * SIZE),
        (1, 4 * SIZE),
    ]
    assert len(program.kernels) <= 2 * steps + 2


class Seam(nn.Module):
    """Least sums on ways down an image, of which each step goes to one of three neighbours."""

    def forward(self, e: torch.Tensor) -> torch.Tensor:
        rows = [e[0]]
        for line in e[1:]:
            left, right = nn.functional.pad(rows[-1][:-1], (1, 0)), nn.functional.pad(rows[-1][1:], (0, 1))
            rows.append(line + torch.minimum(rows[-1], torch.minimum(left, right)))
        return torch.stack(rows)


def test_of_long_bodies_few_are_kept() -> None:
    fewer, more = (len(extraction(Seam(), (torch.randn(lines, 40),)).problem.numbers()) for lines in (8, 12))
    assert more - fewer <= 4 * 45


class Scan(nn.Module):
    """States of a linear recurrence, of which each step gives a weighted sum. Source: Gu and Dao, 2023."""

    def forward(self, decays: torch.Tensor, inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Map (steps, channels, states), the same, and (steps, states) to (steps, channels)."""
        state, sums = torch.zeros_like(decays[0]), []
        for decay, given, weight in zip(decays, inputs, weights, strict=True):
            state = torch.exp(decay) * state + given
            sums.append((state * weight).sum(-1))
        return torch.stack(sums)


def test_states_are_stored_and_not_computed_again_for_each_of_their_sums() -> None:
    """What is computed from a state meets again in the last step alone, where no kernel could hold it."""

    def flops(steps: int) -> float:
        given = (torch.randn(steps, 512, 16), torch.randn(steps, 512, 16), torch.randn(steps, 16))
        return sum(kernel.estimate.flops for kernel in extraction(Scan(), given).program.kernels)

    assert flops(12) < 4 * flops(6)  # up to eight sums are one kernel; each from the first state would be 13 times


@pytest.mark.parametrize(
    ("mapping", "is_layout"),
    [
        (permute_map((3, 4, 5), (2, 0, 1)), True),
        (slice_map((3, 8), -2, 0, 1, 1), False),  # the first row: its index is 0, as that of an axis of extent 1
        (slice_map((3, 8), -2, 2, 1, 1), False),
        (slice_map((3, 8), -1, 0, 1, 4), False),
    ],
)
def test_only_views_of_all_values_are_layouts(mapping: IndexMap, is_layout: bool) -> None:
    product = Node("dot", "element", (0, 1), (8,), 0)
    view = Node("reindex", "element", (2,), (mapping,), 0)
    assert computed([product, view]) == ([product] if is_layout else [product, view])
    assert computed([view]) == [view]


def steps_of(count: int) -> tuple[tuple[Term, ...], list[Term]]:
    """Return the inputs of a recurrence that is point-wise, and the product of each of its states with a matrix."""
    x, w, state = (
        make("input", "tensor", (), (*given, "f32")) for given in (("x", (count, 8)), ("w", (8, 8)), ("s", (1, 8)))
    )
    inputs, outputs = (x, w, state), list[Term]()
    for step in range(count):
        row = tensor("slice", x, axis=-2, start=step, step=1, length=1)
        state = tensor("add", tensor("mul", tensor("sigmoid", row), tensor("sub", state, row)), row)
        outputs.append(tensor("matmul", state, w))
    return inputs, outputs


def test_states_that_could_be_computed_from_the_first_do_not_nest_calls() -> None:
    inputs, outputs = steps_of(240)
    model, options = Model({"main": Function(inputs, (outputs[-1],))}), Options()
    found = extract_model(model, saturate_model(model, choose_rules(options)), REFERENCE, options)
    assert len(found.program.kernels) < 4


def test_a_filter_that_begins_with_zeros_saturates() -> None:
    """Zero times a number is zero, so a product of it with two numbers would be one with ever new numbers."""
    x = make("input", "tensor", (), ("x", (12, 8), "f32"))
    y, before = (make("full", "tensor", (), (Scalar.of(0.0, "f32"), (8,))) for _ in range(2))
    outputs = list[Term]()
    for step in range(12):
        row = tensor("reshape", tensor("slice", x, axis=-2, start=step, step=1, length=1), shape=(8,))
        past = (tensor("mul", value, full(factor)) for value, factor in ((y, 0.5), (before, -0.3)))
        y, before = reduce(partial(tensor, "add"), past, tensor("mul", row, full(0.2))), y
        outputs.append(y)
    model, options = Model({"main": Function((x,), tuple(outputs))}), Options()
    found = saturate_model(model, choose_rules(options))
    assert all(phase.stop is StopReason.SATURATED for phase in found.phases)
    assert sum(map(len, found.snapshot.nodes)) < 2000


def full(number: float) -> Term:
    """Return a number as a tensor."""
    return make("full", "tensor", (), (Scalar.of(number, "f32"), ()))


def test_steps_that_read_and_write_rows_of_their_own_are_compiled_once(tmp_path: Path) -> None:
    inputs, outputs = steps_of(72)
    model = Model({"main": Function(inputs, (reduce(partial(tensor, "concat", axis=-2), outputs),))})
    fast = ft.optimize(model, machine=REFERENCE, cache=tmp_path)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shapes.concrete(term.shape)).astype(np.float32) for term in inputs]
    np.testing.assert_allclose(np.asarray(fast(*values)), model.interpret(*values)[0], rtol=0, atol=1e-4)
    assert len(fast.program.kernels) > 72
    assert fast.compilation.executable.distinct_kernels < 48
