"""U-Net of volumes, with batch norms or instance norms, and leaky rectifiers.

Source: Cicek et al., 3D U-Net, MICCAI 2016; Isensee et al., nnU-Net, Nature Methods 2021.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Norm = Callable[[int], nn.Module]


def instance_norm(channels: int) -> nn.Module:
    """Return the norm of the later source."""
    return nn.InstanceNorm3d(channels, affine=True)


def _double(inputs: int, outputs: int, norm: Norm) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers += [nn.Conv3d(width, outputs, 3, padding=1), norm(outputs), nn.LeakyReLU(0.01)]
    return nn.Sequential(*layers)


class VolumeUNet(nn.Module):
    """Down and up again through `depth` levels with skip connections."""

    def __init__(self, width: int = 16, depth: int = 2, classes: int = 3, norm: Norm = nn.BatchNorm3d) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.first = _double(1, width, norm)
        self.downs = nn.ModuleList(_double(n, 2 * n, norm) for n in widths[:-1])
        self.ups = nn.ModuleList(nn.ConvTranspose3d(2 * n, n, 2, 2) for n in reversed(widths[:-1]))
        self.convs = nn.ModuleList(_double(2 * n, n, norm) for n in reversed(widths[:-1]))
        self.head = nn.Conv3d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map volumes (batch, 1, depth, height, width), divisible by 2^levels, to scores (batch, classes, ...)."""
        skips = [self.first(x)]
        for down in self.downs:
            skips.append(down(functional.max_pool3d(skips[-1], 2)))
        y = skips.pop()
        for up, convs in zip(self.ups, self.convs, strict=True):
            y = convs(torch.cat([skips.pop(), up(y)], 1))
        return self.head(y)
