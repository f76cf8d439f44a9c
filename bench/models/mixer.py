"""Dense layers across the patches of an image and along their channels."""

from __future__ import annotations

from torch import Tensor, nn


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
