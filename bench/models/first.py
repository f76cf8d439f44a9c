"""Three networks of other kinds, added after the others had been tuned: see docs/measurements.md."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class MixerBlock(nn.Module):
    """A dense pair across tokens and one across channels. Source: Tolstikhin et al., NeurIPS 2021."""

    def __init__(self, tokens: int, d: int, token_width: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.across = nn.Sequential(nn.Linear(tokens, token_width), nn.GELU(), nn.Linear(token_width, tokens))
        self.along = nn.Sequential(nn.Linear(d, width), nn.GELU(), nn.Linear(width, d))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, tokens, d) to the same shape."""
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.norm2(x))


class Mixer(nn.Module):
    """Patches of an image, mixed by dense layers only."""

    def __init__(self, size: int = 224, patch: int = 16, d: int = 512, layers: int = 8, classes: int = 1000) -> None:
        super().__init__()
        tokens = (size // patch) ** 2
        self.patches = nn.Conv2d(3, d, patch, patch)
        self.blocks = nn.Sequential(*(MixerBlock(tokens, d, d // 2, 4 * d) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, size, size) to scores (batch, classes)."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


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


class GatedWaves(nn.Module):
    """Dilated one-dimensional convolutions with gates, and what they skip. Source: van den Oord et al., 2016."""

    def __init__(self, width: int = 64, layers: int = 8, classes: int = 35) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 5, stride=2)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, dilation=1 << i) for i in range(layers))
        self.ways = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, 1, samples) to scores (batch, classes)."""
        x = self.first(x)
        skipped = torch.zeros(())
        for gate, way in zip(self.gates, self.ways, strict=True):
            value, open_ = gate(functional.pad(x, (gate.dilation[0] * 2, 0))).chunk(2, 1)
            y = way(torch.tanh(value) * torch.sigmoid(open_))
            x, skipped = x + y, skipped + y
        return self.head(torch.relu(skipped).mean(2))
