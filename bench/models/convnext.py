"""Depthwise windows of 7 x 7 and dense pairs over the channels."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConvNextBlock(nn.Module):
    """A depthwise window of 7 x 7, then a dense pair over the channels, scaled. Source: Liu et al., CVPR 2022."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.window, self.norm = nn.Conv2d(d, d, 7, padding=3, groups=d), nn.LayerNorm(d, eps=1e-6)
        self.pair = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.scale = nn.Parameter(torch.rand(d))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, d, height, width) to the same shape."""
        y = self.pair(self.norm(self.window(x).permute(0, 2, 3, 1)))
        return x + (self.scale * y).permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """Stages of such blocks, each on half the resolution."""

    def __init__(self, widths: tuple[int, ...] = (96, 192, 384), depth: int = 2, classes: int = 1000) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4)]
        for i, d in enumerate(widths):
            if i:
                parts.append(nn.Conv2d(widths[i - 1], d, 2, 2))
            parts += [ConvNextBlock(d) for _ in range(depth)]
        self.body, self.head = nn.Sequential(*parts), nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to scores (batch, classes)."""
        return self.head(self.body(x).mean((2, 3)))
