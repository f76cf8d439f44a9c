"""Which layout images have is chosen by price: channels last from one convolution to the next, with nothing between."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import frittata as ft
from frittata import pipeline
from frittata.egraph.machine import REFERENCE
from frittata.egraph.program import Kernel
from frittata.options import Options


class Network(nn.Module):
    """A stem, a pool, and a residual block whose second side is 1x1."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.left = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64))
        self.right = nn.Conv2d(64, 64, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.pool(self.stem(x))
        return torch.relu(self.left(y) + self.right(y)).mean((2, 3))


def test_images_keep_their_channels_last_between_convolutions() -> None:
    torch.manual_seed(0)
    _, model = pipeline.import_model(Network().eval(), (torch.randn(2, 3, 29, 31),), "error")
    found = pipeline.saturate_model(model, pipeline.choose_rules(Options()))
    program = pipeline.extract_model(model, found, REFERENCE, Options()).program
    steps = [step for step in program.steps if isinstance(step, Kernel)]
    shapes = {step.template: step.outputs[0].body.shape for step in steps}
    assert shapes["contraction"] == (2, 15, 16, 64)
    assert not {"convolution", "channels"} & shapes.keys()
    assert not any(step.outputs[0].body.args[0].op == "reindex" for step in steps[1:])


def test_permutations_without_convolutions_stay_in_one_kernel() -> None:
    model = ft.parse("""
def main(x: f32[2, 3, 4, 5], y: f32[2, 5, 3, 4]) -> f32[2, 5, 3, 4]:
    v1: f32[2, 5, 3, 4] = permute(x, permutation=(0, 3, 1, 2))
    v2: f32[2, 5, 3, 4] = add(v1, y)
    return v2
""")
    found = pipeline.saturate_model(model, pipeline.choose_rules(Options()))
    program = pipeline.extract_model(model, found, REFERENCE, Options()).program
    assert len([step for step in program.steps if isinstance(step, Kernel)]) == 1
