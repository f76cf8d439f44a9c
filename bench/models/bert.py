"""BERT. Source: Devlin et al., NAACL 2019."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Layer(nn.Module):
    """Post-norm attention under a mask and a dense pair with GELU."""

    def __init__(self, d: int, heads: int, ff: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, ff), nn.Linear(ff, d)
        self.norm1, self.norm2 = nn.LayerNorm(d, eps=1e-12), nn.LayerNorm(d, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map (batch, tokens, d) to the same shape; `mask` (batch, 1, 1, tokens) tells which tokens may be seen."""
        batch, tokens, d = x.shape
        split = (batch, tokens, self.heads, d // self.heads)
        q, k, v = (project(x).view(split).transpose(1, 2) for project in (self.query, self.key, self.value))
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm1(self.out(attended.transpose(1, 2).reshape(batch, tokens, d)) + x)
        return self.norm2(self.down(functional.gelu(self.up(x))) + x)


class BERT(nn.Module):
    """Embeddings of words, positions and segments, encoder layers, and the pooler of the first token."""

    def __init__(
        self, d: int = 768, heads: int = 12, layers: int = 12, vocabulary: int = 30522, positions: int = 512
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, d, padding_idx=0)
        self.positions = nn.Embedding(positions, d)
        self.segments = nn.Embedding(2, d)
        self.norm = nn.LayerNorm(d, eps=1e-12)
        self.layers = nn.ModuleList(Layer(d, heads, 4 * d) for _ in range(layers))
        self.pooler = nn.Linear(d, d)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Map ids (batch, tokens) to (batch, tokens, d) and (batch, d); `mask` is 1 for tokens and 0 for padding."""
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.positions(places) + self.segments(segments))
        visible = mask[:, None, None, :] != 0
        for layer in self.layers:
            x = layer(x, visible)
        return x, torch.tanh(self.pooler(x[:, 0]))
