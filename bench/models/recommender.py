"""Looked-up vectors and how they go together."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Recommender(nn.Module):
    """Bags of rows of large tables, and how they go together. Source: Naumov et al., 2019."""

    def __init__(self, tables: int = 8, rows: int = 5000, d: int = 32, numbers: int = 13) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, d, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(numbers, 128), nn.ReLU(), nn.Linear(128, d), nn.ReLU())
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.top = nn.Sequential(nn.Linear(d + pairs.shape[1], 256), nn.ReLU(), nn.Linear(256, 1))
        self.register_buffer("pairs", pairs)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        """Map numbers (batch, numbers) and ids (tables, batch, bag) to probabilities (batch, 1)."""
        dense = self.bottom(x)
        vectors = torch.stack([dense, *(table(ids[n]) for n, table in enumerate(self.tables))], 1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([dense, products], 1)))
