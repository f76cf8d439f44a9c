"""A recurrence whose states decay as the input says."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class SelectiveScan(nn.Module):
    """A state for each channel that decays as the input says, one step after the other. Source: Gu and Dao, 2023."""

    def __init__(self, d: int = 256, states: int = 16, rank: int = 16) -> None:
        super().__init__()
        self.states, self.rank = states, rank
        self.given, self.taken = nn.Linear(d, 4 * d, bias=False), nn.Linear(2 * d, d, bias=False)
        self.window = nn.Conv1d(2 * d, 2 * d, 4, groups=2 * d, padding=3)
        self.read = nn.Linear(2 * d, rank + 2 * states, bias=False)
        self.pace = nn.Linear(rank, 2 * d)
        self.decay = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(2 * d, 1))
        self.skip = nn.Parameter(torch.ones(2 * d))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, steps, d) to the same shape."""
        steps = x.shape[1]
        u, gate = self.given(x).chunk(2, -1)
        u = functional.silu(self.window(u.transpose(1, 2))[..., :steps]).transpose(1, 2)
        pace, entry, exit_ = self.read(u).split([self.rank, self.states, self.states], -1)
        pace = functional.softplus(self.pace(pace))
        kept = torch.exp(pace[..., None] * -self.decay.exp())
        added = pace[..., None] * entry[:, :, None] * u[..., None]
        state, out = torch.zeros_like(added[:, 0]), []
        for step in range(steps):
            state = kept[:, step] * state + added[:, step]
            out.append((state * exit_[:, step, None]).sum(-1))
        return self.taken((torch.stack(out, 1) + u * self.skip) * functional.silu(gate))
