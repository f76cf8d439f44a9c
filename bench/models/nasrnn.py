"""The cell that architecture search found. Source: Zoph and Le, ICLR 2017; as a graph, Jia et al., TASO, SOSP 2019."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class NasRNN(nn.Module):
    """Eight pairs of products of x and h, combined in a tree, unrolled over a sequence."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.x = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(8))
        self.h = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(8))

    def cell(self, x: Tensor, h: Tensor) -> Tensor:
        """Map x and h (batch, hidden) to the next h."""
        t = [from_h(h) + from_x(x) for from_h, from_x in zip(self.h, self.x, strict=True)]
        m = [torch.sigmoid(t[0]), torch.relu(t[1]), torch.sigmoid(t[2]), torch.relu(t[3])]
        m += [torch.tanh(t[4]), torch.sigmoid(t[5]), torch.tanh(t[6]), torch.sigmoid(t[7])]
        left = torch.tanh(torch.sigmoid(m[0] + m[1]) * torch.tanh(m[2] + m[3]))
        right = torch.tanh(torch.tanh(m[4] * m[5]) + functional.relu(m[6] + m[7]))
        return torch.tanh(left * right)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """Map x (batch, steps, hidden) and h (batch, hidden) to the last h."""
        for step in x.unbind(1):
            h = self.cell(step, h)
        return h
