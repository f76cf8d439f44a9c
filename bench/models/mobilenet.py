"""MobileNetV2. Source: Sandler et al., CVPR 2018."""

from __future__ import annotations

from torch import Tensor, nn


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """1x1 up by `expand`, depthwise 3x3, linear 1x1 down, and the input again where the shapes allow."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        middle = inputs * expand
        self.body = nn.Sequential(
            *([_conv(inputs, middle, 1)] if expand != 1 else []),
            _conv(middle, middle, 3, stride, groups=middle),
            nn.Conv2d(middle, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, height, width) to (batch, outputs, height / stride, width / stride)."""
        return x + self.body(x) if self.adds else self.body(x)


_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks and the stride of the first block."""


class MobileNetV2(nn.Module):
    """Inverted residuals; `width` scales channels, `depth` bounds the blocks of a stage, `stages` their number."""

    def __init__(
        self, width: float = 1.0, depth: int = 4, stages: int = 7, last: int = 1280, classes: int = 1000
    ) -> None:
        super().__init__()
        inputs = round(32 * width)
        layers: list[nn.Module] = [_conv(3, inputs, 3, 2)]
        for expand, channels, blocks, stride in _STAGES[:stages]:
            for number in range(min(blocks, depth)):
                outputs = round(channels * width)
                layers.append(InvertedResidual(inputs, outputs, 1 if number else stride, expand))
                inputs = outputs
        self.features = nn.Sequential(*layers, _conv(inputs, last, 1))
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to scores (batch, classes)."""
        return self.head(nn.functional.adaptive_avg_pool2d(self.features(x), 1).flatten(1))
