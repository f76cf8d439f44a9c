"""Inverted bottlenecks whose channels are weighed by their means."""

from __future__ import annotations

from torch import Tensor, nn


class Squeezed(nn.Module):
    """An inverted bottleneck whose channels are weighed by their means. Source: Tan and Le, ICML 2019."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, widening: int) -> None:
        super().__init__()
        d, few = inputs * widening, max(1, inputs // 4)
        wide = [nn.Conv2d(inputs, d, 1, bias=False), nn.BatchNorm2d(d), nn.SiLU()] if widening > 1 else []
        window = nn.Conv2d(d, d, size, stride, size // 2, groups=d, bias=False)
        self.body = nn.Sequential(*wide, window, nn.BatchNorm2d(d), nn.SiLU())
        self.weigh = nn.Sequential(nn.Conv2d(d, few, 1), nn.SiLU(), nn.Conv2d(few, d, 1), nn.Sigmoid())
        self.last = nn.Sequential(nn.Conv2d(d, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, height, width) to (batch, outputs, height / stride, width / stride)."""
        y = self.body(x)
        y = self.last(y * self.weigh(y.mean((2, 3), keepdim=True)))
        return x + y if self.is_residual else y


_STAGES = ((1, 16, 1, 3, 1), (6, 24, 2, 3, 2), (6, 40, 2, 5, 2), (6, 80, 3, 3, 2), (6, 112, 3, 5, 1), (6, 192, 4, 5, 2))
"""For each stage: by how much it widens, its channels, its blocks, the size of windows, the stride of the first."""


class EfficientNet(nn.Module):
    """Stages of such blocks: the B0 of the paper, without its last."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU()]
        inputs = 32
        for widening, outputs, blocks, size, stride in _STAGES:
            for block in range(blocks):
                parts.append(Squeezed(inputs, outputs, size, 1 if block else stride, widening))
                inputs = outputs
        self.body = nn.Sequential(*parts, nn.Conv2d(inputs, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.SiLU())
        self.head = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to scores (batch, classes)."""
        return self.head(self.body(x).mean((2, 3)))
