"""A mixture of experts, one expert a token. Source: Fedus et al., Switch Transformers, JMLR 2022."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class MixtureOfExperts(nn.Module):
    """Pre-norm router and experts: the choice by argmax, its gate by gather, the experts' results by where."""

    def __init__(self, d: int, ff: int, experts: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.router = nn.Linear(d, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, ff), nn.GELU(), nn.Linear(ff, d)) for _ in range(experts)
        )
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(experts, d))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, tokens, d) to the same shape."""
        y = self.norm(x)
        weights = functional.softmax(self.router(y), -1)
        choice = weights.argmax(-1, keepdim=True)
        gate = weights.gather(-1, choice)
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mixed = torch.where(choice == number, expert(y), mixed)
        return x + gate * mixed * self.scale[choice.squeeze(-1)]
