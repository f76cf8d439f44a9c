"""Dilated one-dimensional convolutions over samples of sound."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


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
