"""U-Net, upsampling by bilinear interpolation or by transposed convolution. Source: Ronneberger et al., MICCAI 2015."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def _double(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers += [nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class Up(nn.Module):
    """Twice the size, padded to that of the skip connection, beside it, and two convolutions."""

    def __init__(self, inputs: int, outputs: int, bilinear: bool) -> None:
        super().__init__()
        self.up: nn.Module
        if bilinear:
            self.up = nn.Sequential(
                nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(inputs, outputs, 1)
            )
        else:
            self.up = nn.ConvTranspose2d(inputs, outputs, 2, 2)
        self.convs = _double(2 * outputs, outputs)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """Map (batch, inputs, h, w) and (batch, outputs, height, width) to the latter shape."""
        x = self.up(x)
        high, wide = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
        x = functional.pad(x, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
        return self.convs(torch.cat([skip, x], 1))


class UNet(nn.Module):
    """Down and up again through `depth` levels with skip connections."""

    def __init__(self, bilinear: bool, width: int = 32, depth: int = 4, classes: int = 2) -> None:
        super().__init__()
        self.first = _double(3, width)
        self.downs = nn.ModuleList(_double(width << i, width << (i + 1)) for i in range(depth))
        self.ups = nn.ModuleList(Up(width << (i + 1), width << i, bilinear) for i in reversed(range(depth)))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to scores (batch, classes, height, width)."""
        skips = [self.first(x)]
        for down in self.downs:
            skips.append(down(functional.max_pool2d(skips[-1], 2)))
        y = skips.pop()
        for up in self.ups:
            y = up(y, skips.pop())
        return self.head(y)
