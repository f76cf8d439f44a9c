"""Residual pairs of convolutions with batch norms and leaky rectifiers. Source: Redmon and Farhadi, YOLOv3, 2018."""

from __future__ import annotations

from torch import Tensor, nn


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    window = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(window, nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1))


class Residual(nn.Module):
    """Half of the channels, all of them again, and the sum with what came in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_convolution(channels, channels // 2, 1), _convolution(channels // 2, channels, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to the same."""
        return x + self.body(x)


class Darknet(nn.Module):
    """A stem, and stages that halve the image and double the channels; `blocks` counts the residual pairs of each."""

    def __init__(self, width: int = 32, blocks: tuple[int, ...] = (1, 2, 4), anchors: int = 30) -> None:
        super().__init__()
        parts: list[nn.Module] = [_convolution(3, width, 3)]
        for count in blocks:
            parts += [_convolution(width, 2 * width, 3, 2), *(Residual(2 * width) for _ in range(count))]
            width *= 2
        self.body = nn.Sequential(*parts, nn.Conv2d(width, anchors, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to predictions (batch, anchors, height / 2^stages, ...)."""
        return self.body(x)
