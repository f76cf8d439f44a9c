"""Recurrent cells written by hand and unrolled, and torch's own LSTM and GRU over the same sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LSTMCell(nn.Module):
    """Source: Hochreiter and Schmidhuber, 1997, with forget gates."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(inputs, 4 * hidden), nn.Linear(hidden, 4 * hidden)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Map x (batch, inputs) and h, c (batch, hidden) to the next h and c."""
        h, c = state
        i, f, g, o = (self.x(x) + self.h(h)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class GRUCell(nn.Module):
    """Source: Cho et al., EMNLP 2014."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(inputs, 3 * hidden), nn.Linear(hidden, 3 * hidden)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """Map x (batch, inputs) and h (batch, hidden) to the next h."""
        xr, xz, xn = self.x(x).chunk(3, -1)
        hr, hz, hn = self.h(h).chunk(3, -1)
        z = torch.sigmoid(xz + hz)
        n = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
        return (1 - z) * n + z * h


class UnrolledLSTM(nn.Module):
    """An LSTM over all steps of a sequence."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.cell = LSTMCell(inputs, hidden)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map (batch, steps, inputs) to all h (batch, steps, hidden) and the last c (batch, hidden)."""
        h = c = x.new_zeros(x.shape[0], self.hidden)
        out: list[Tensor] = []
        for step in x.unbind(1):
            h, c = self.cell(step, (h, c))
            out.append(h)
        return torch.stack(out, 1), c


class UnrolledGRU(nn.Module):
    """A GRU over all steps of a sequence."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.cell = GRUCell(inputs, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, steps, inputs) to all h (batch, steps, hidden)."""
        h = x.new_zeros(x.shape[0], self.hidden)
        out: list[Tensor] = []
        for step in x.unbind(1):
            h = self.cell(step, h)
            out.append(h)
        return torch.stack(out, 1)


class Framework(nn.Module):
    """nn.LSTM or nn.GRU over a sequence."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], inputs: int, hidden: int) -> None:
        super().__init__()
        self.layer = kind(inputs, hidden, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, steps, inputs) to all h (batch, steps, hidden)."""
        return self.layer(x)[0]
