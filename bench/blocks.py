"""Parts of networks and single operators at the sizes that the peers are compared at, in plain torch, seeded."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.models.weights import Workload, seeded


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Tensor) -> Tensor:
        """Call the function."""
        return self._function(*args)


class Attention(nn.Module):
    """Multi-head self-attention with its projections. Source: Vaswani et al., NeurIPS 2017."""

    def __init__(self, d: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, tokens, d) to the same shape."""
        batch, tokens, d = x.shape
        split = (batch, tokens, self.heads, d // self.heads)
        q, k, v = (part.view(split).transpose(1, 2) for part in self.qkv(x).split(d, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(attended.transpose(1, 2).reshape(batch, tokens, d))


def dense(layers: int, width: int, batch: int) -> Workload:
    """Square dense layers with ReLU between them."""

    def build() -> nn.Module:
        first = [part for _ in range(layers - 1) for part in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(*first, nn.Linear(width, width))

    return seeded(build, lambda: (torch.randn(batch, width),))


def transformer_mlp(d: int, ff: int, pairs: int, batch: int) -> Workload:
    """The dense pairs of transformer layers, one after the other: together their weights exceed most caches."""

    def build() -> nn.Module:
        return nn.Sequential(*(p for _ in range(pairs) for p in (nn.Linear(d, ff), nn.GELU(), nn.Linear(ff, d))))

    return seeded(build, lambda: (torch.randn(batch, d),))


def attention(d: int, heads: int, tokens: int, causal: bool) -> Workload:
    """One attention block on a batch of one."""
    return seeded(lambda: Attention(d, heads, causal), lambda: (torch.randn(1, tokens, d),))


def pointwise_chain(rows: int, columns: int) -> Workload:
    """Ten point-wise operators on a matrix, a row and a column."""
    shapes = (rows, columns), (columns,), (rows, 1)
    return seeded(lambda: Function(_chain), lambda: tuple(map(torch.randn, shapes)))


def _chain(x: Tensor, row: Tensor, column: Tensor) -> Tensor:
    y = functional.gelu(x * row + column)
    y = torch.tanh(y - row) * torch.sigmoid(x)
    return torch.relu(y + column) * 0.5


def softmax(rows: int, columns: int) -> Workload:
    """Softmax along rows."""
    return seeded(lambda: nn.Softmax(-1), lambda: (torch.randn(rows, columns),))


def layer_norm(rows: int, columns: int) -> Workload:
    """Layer norm along rows, with scale and shift."""
    return seeded(lambda: nn.Sequential(nn.LayerNorm(columns)), lambda: (torch.randn(rows, columns),))


def softmax_layer_norm(rows: int, columns: int) -> Workload:
    """Softmax, then layer norm, along the same rows."""
    return seeded(lambda: nn.Sequential(nn.Softmax(-1), nn.LayerNorm(columns)), lambda: (torch.randn(rows, columns),))


def sums(shape: tuple[int, ...], axis: int) -> Workload:
    """The sum over one axis."""
    return seeded(lambda: Function(lambda x: x.sum(axis)), lambda: (torch.randn(shape),))
