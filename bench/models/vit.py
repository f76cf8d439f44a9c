"""The vision transformer. Source: Dosovitskiy et al., ICLR 2021."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Pre-norm attention over all tokens and a dense pair with GELU, each added to its input."""

    def __init__(self, d: int, heads: int, ff: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d, eps=1e-6), nn.LayerNorm(d, eps=1e-6)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, ff), nn.GELU(), nn.Linear(ff, d))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, tokens, d) to the same shape."""
        batch, tokens, d = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(batch, tokens, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, d))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Patches as tokens behind a class token, with learned positions."""

    def __init__(
        self,
        size: tuple[int, int],
        patch: int = 16,
        d: int = 768,
        heads: int = 12,
        layers: int = 12,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, d, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, d))
        self.position = nn.Parameter(0.5 * torch.randn(1, 1 + (size[0] // patch) * (size[1] // patch), d))
        self.layers = nn.Sequential(*(Block(d, heads, 4 * d) for _ in range(layers)))
        self.norm = nn.LayerNorm(d, eps=1e-6)
        self.head = nn.Linear(d, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) of the size given to scores (batch, classes)."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1) + self.position
        return self.head(self.norm(self.layers(tokens))[:, 0])
