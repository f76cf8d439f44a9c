"""Inception-v3 without the auxiliary classifier. Source: Szegedy et al., CVPR 2016."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

Kernel = int | tuple[int, int]


class Conv(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: Kernel, stride: int = 1, padding: Kernel = 0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, height, width) to (batch, outputs, height', width')."""
        return functional.relu(self.bn(self.conv(x)), inplace=True)


class Branches(nn.Module):
    """Several ways from one input, put side by side along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to (batch, channels', height', width')."""
        return torch.cat([branch(x) for branch in self.branches], 1)


def _average(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(3, 1, padding=1), Conv(inputs, outputs, 1))


def block_a(inputs: int, pooled: int, w: int) -> Branches:
    """1x1; 5x5; two 3x3; average pool."""
    return Branches(
        Conv(inputs, 4 * w, 1),
        nn.Sequential(Conv(inputs, 3 * w, 1), Conv(3 * w, 4 * w, 5, padding=2)),
        nn.Sequential(Conv(inputs, 4 * w, 1), Conv(4 * w, 6 * w, 3, padding=1), Conv(6 * w, 6 * w, 3, padding=1)),
        _average(inputs, pooled),
    )


def block_b(inputs: int, w: int) -> Branches:
    """Halve the size: 3x3; two 3x3; max pool."""
    return Branches(
        Conv(inputs, 24 * w, 3, 2),
        nn.Sequential(Conv(inputs, 4 * w, 1), Conv(4 * w, 6 * w, 3, padding=1), Conv(6 * w, 6 * w, 3, 2)),
        nn.MaxPool2d(3, 2),
    )


def block_c(inputs: int, middle: int, w: int) -> Branches:
    """1x1; 1x7 and 7x1; these twice; average pool."""
    row, column = (1, 7), (7, 1)
    beside, below = (0, 3), (3, 0)
    out = 12 * w
    return Branches(
        Conv(inputs, out, 1),
        nn.Sequential(
            Conv(inputs, middle, 1), Conv(middle, middle, row, 1, beside), Conv(middle, out, column, 1, below)
        ),
        nn.Sequential(
            Conv(inputs, middle, 1),
            Conv(middle, middle, column, 1, below),
            Conv(middle, middle, row, 1, beside),
            Conv(middle, middle, column, 1, below),
            Conv(middle, out, row, 1, beside),
        ),
        _average(inputs, out),
    )


def block_d(inputs: int, w: int) -> Branches:
    """Halve the size: 3x3; 1x7, 7x1 and 3x3; max pool."""
    out = 12 * w
    return Branches(
        nn.Sequential(Conv(inputs, out, 1), Conv(out, 20 * w, 3, 2)),
        nn.Sequential(
            Conv(inputs, out, 1),
            Conv(out, out, (1, 7), 1, (0, 3)),
            Conv(out, out, (7, 1), 1, (3, 0)),
            Conv(out, out, 3, 2),
        ),
        nn.MaxPool2d(3, 2),
    )


def block_e(inputs: int, w: int) -> Branches:
    """1x1; 1x3 beside 3x1; the same after a 3x3; average pool."""
    out = 24 * w

    def split() -> Branches:
        return Branches(Conv(out, out, (1, 3), 1, (0, 1)), Conv(out, out, (3, 1), 1, (1, 0)))

    return Branches(
        Conv(inputs, 20 * w, 1),
        nn.Sequential(Conv(inputs, out, 1), split()),
        nn.Sequential(Conv(inputs, 28 * w, 1), Conv(28 * w, out, 3, padding=1), split()),
        _average(inputs, 12 * w),
    )


class InceptionV3(nn.Module):
    """The stem and blocks A to E; `width` is a sixteenth of the channels, `depth` bounds repeats of a block."""

    def __init__(self, width: int = 16, depth: int = 4, classes: int = 1000) -> None:
        super().__init__()
        w = width
        self.stem = nn.Sequential(
            Conv(3, 2 * w, 3, 2),
            Conv(2 * w, 2 * w, 3),
            Conv(2 * w, 4 * w, 3, padding=1),
            nn.MaxPool2d(3, 2),
            Conv(4 * w, 5 * w, 1),
            Conv(5 * w, 12 * w, 3),
            nn.MaxPool2d(3, 2),
        )
        layers: list[nn.Module] = [block_a(12 * w, 2 * w, w)]
        layers += [block_a(16 * w if not i else 18 * w, 4 * w, w) for i in range(min(2, depth))]
        layers.append(block_b(18 * w, w))
        layers += [block_c(48 * w, middle * w, w) for middle in (8, 10, 10, 12)[:depth]]
        layers.append(block_d(48 * w, w))
        layers += [block_e(80 * w if not i else 128 * w, w) for i in range(min(2, depth))]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Dropout(), nn.Flatten(), nn.Linear(128 * w, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width), each side at least 75, to scores (batch, classes)."""
        return self.head(self.layers(self.stem(x)))
