"""A causal decoder in the manner of GPT-2, with and without a cache. Source: Radford et al., 2019."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

Past = tuple[tuple[Tensor, Tensor], ...]


class Block(nn.Module):
    """Pre-norm causal attention and a dense pair with the tanh form of GELU."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(approximate="tanh"), nn.Linear(4 * d, d))

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Map (batch, tokens, d) to the same shape; keys and values (batch, heads, length, depth) grow by the tokens.

        Without a past, each token sees those before it; with one, there is one token, which sees all.
        """
        batch, tokens, d = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, d // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(d, -1)
        )
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, d))
        return x + self.mlp(self.norm2(x)), (k, v)


class GPT(nn.Module):
    """Embeddings, blocks, a final norm, and scores over the vocabulary by the embedding's own weights."""

    def __init__(
        self, d: int = 768, heads: int = 12, layers: int = 12, vocabulary: int = 50257, positions: int = 1024
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, d)
        self.positions = nn.Embedding(positions, d)
        self.layers = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (batch, tokens) to scores (batch, tokens, vocabulary)."""
        return self.decode(ids, None)[0]

    def decode(self, ids: Tensor, past: Past | None) -> tuple[Tensor, Past]:
        """Return the scores and the keys and values of all layers."""
        start = past[0][0].shape[2] if past else 0
        x = self.words(ids) + self.positions(torch.arange(start, start + ids.shape[1], device=ids.device))
        grown: list[tuple[Tensor, Tensor]] = []
        for number, layer in enumerate(self.layers):
            x, kept = layer(x, past[number] if past else None)
            grown.append(kept)
        return self.head(self.norm(x)), tuple(grown)


class Cached(nn.Module):
    """One step of decoding: a token and what was kept go in, its scores and what to keep come out."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, past: Past) -> tuple[Tensor, Past]:
        """Map ids (batch, 1) and keys and values of every layer to scores (batch, 1, vocabulary) and their next."""
        return self.model.decode(ids, past)
