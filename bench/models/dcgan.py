"""The generator of DCGAN. Source: Radford et al., ICLR 2016."""

from __future__ import annotations

from torch import Tensor, nn


class Generator(nn.Module):
    """Transposed convolutions from noise to an image of 64 times its size."""

    def __init__(self, noise: int = 100, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = noise
        for factor, stride, padding in ((8, 1, 0), (4, 2, 1), (2, 2, 1), (1, 2, 1)):
            layers += [
                nn.ConvTranspose2d(inputs, factor * width, 4, stride, padding, bias=False),
                nn.BatchNorm2d(factor * width),
                nn.ReLU(inplace=True),
            ]
            inputs = factor * width
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(inputs, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, z: Tensor) -> Tensor:
        """Map (batch, noise, 1, 1) to images (batch, 3, 64, 64)."""
        return self.layers(z)
