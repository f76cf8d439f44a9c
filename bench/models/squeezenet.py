"""SqueezeNet 1.1. Source: Iandola et al., arXiv 1602.07360, 2016."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Fire(nn.Module):
    """A 1x1 squeeze, then 1x1 and 3x3 side by side."""

    def __init__(self, inputs: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.one = nn.Conv2d(squeeze, expand, 1)
        self.three = nn.Conv2d(squeeze, expand, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, height, width) to (batch, 2 expand, height, width)."""
        x = self.relu(self.squeeze(x))
        return torch.cat([self.relu(self.one(x)), self.relu(self.three(x))], 1)


class SqueezeNet(nn.Module):
    """Fire modules between max pools that round up, and a 1x1 convolution as classifier.

    `width` is a sixteenth of the first squeeze; `squeezes` gives the modules of each stage as multiples of it.
    """

    def __init__(
        self,
        width: int = 16,
        squeezes: tuple[tuple[int, ...], ...] = ((1, 1), (2, 2), (3, 3, 4, 4)),
        classes: int = 1000,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 4 * width, 3, 2), nn.ReLU(inplace=True)]
        inputs = 4 * width
        for stage in squeezes:
            layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
            for squeeze in stage:
                layers.append(Fire(inputs, squeeze * width, 4 * squeeze * width))
                inputs = 8 * squeeze * width
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Dropout(0.5), nn.Conv2d(inputs, classes, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to scores (batch, classes)."""
        return self.head(self.features(x)).flatten(1)
