"""Messages along the edges of a graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Messages(nn.Module):
    """Each node of a graph gets the mean of what its neighbours send. Source: Gilmer et al., ICML 2017."""

    def __init__(self, d: int = 64, width: int = 128) -> None:
        super().__init__()
        self.sent, self.kept = nn.Linear(d, width), nn.Linear(width, d)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Map (nodes, d), with the two ends of each edge, to the same shape."""
        sent = self.sent(x)
        total = torch.zeros_like(sent).index_add(0, target, functional.relu(sent[source]))
        count = torch.zeros(len(x)).index_add(0, target, torch.ones(len(target)))
        return self.kept(functional.relu(total / count.clamp(min=1)[:, None] + sent))
