"""Four networks of other kinds, slower than a peer when they were first compared: see docs/measurements.md."""

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


class Squeezed(nn.Module):
    """An inverted bottleneck whose channels are weighed by their means. Source: Tan and Le, ICML 2019."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, widening: int) -> None:
        super().__init__()
        d, few = inputs * widening, max(1, inputs // 4)
        wide = [nn.Conv2d(inputs, d, 1, bias=False), nn.BatchNorm2d(d), nn.SiLU()] if widening > 1 else []
        window = nn.Conv2d(d, d, size, stride, size // 2, groups=d, bias=False)
        self.body = nn.Sequential(*wide, window, nn.BatchNorm2d(d), nn.SiLU())
        self.weigh = nn.Sequential(nn.Conv2d(d, few, 1), nn.SiLU(), nn.Conv2d(few, d, 1), nn.Sigmoid())
        self.last = nn.Sequential(nn.Conv2d(d, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, height, width) to (batch, outputs, height / stride, width / stride)."""
        y = self.body(x)
        y = self.last(y * self.weigh(y.mean((2, 3), keepdim=True)))
        return x + y if self.is_residual else y


_STAGES = ((1, 16, 1, 3, 1), (6, 24, 2, 3, 2), (6, 40, 2, 5, 2), (6, 80, 3, 3, 2), (6, 112, 3, 5, 1), (6, 192, 4, 5, 2))
"""For each stage: by how much it widens, its channels, its blocks, the size of windows, the stride of the first."""


class EfficientNet(nn.Module):
    """Stages of such blocks: the B0 of the paper, without its last."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU()]
        inputs = 32
        for widening, outputs, blocks, size, stride in _STAGES:
            for block in range(blocks):
                parts.append(Squeezed(inputs, outputs, size, 1 if block else stride, widening))
                inputs = outputs
        self.body = nn.Sequential(*parts, nn.Conv2d(inputs, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.SiLU())
        self.head = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to scores (batch, classes)."""
        return self.head(self.body(x).mean((2, 3)))
