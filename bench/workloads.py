"""Seeded models with their arguments, activations near unit variance, any sizes: for tests, the demo and measurements.

Each returns the module in eval mode and the arguments of a call.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

Workload = tuple[nn.Module, tuple[Tensor, ...]]


def mlp(
    inputs: int = 784, hidden: int = 256, outputs: int = 10, batch: int = 64, *, dtype: torch.dtype = torch.float32
) -> Workload:
    """Two dense layers with ReLU between them."""
    source = torch.Generator().manual_seed(1)
    module = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
    return _ready(module, source, dtype), (_normal(source, (batch, inputs), dtype),)


def encoder_layer(
    d: int = 256,
    heads: int = 4,
    ff: int = 1024,
    tokens: int = 128,
    batch: int = 2,
    *,
    dtype: torch.dtype = torch.float32,
) -> Workload:
    """A post-norm transformer encoder layer with GELU; input (batch, tokens, d)."""
    source = torch.Generator().manual_seed(2)
    module = nn.TransformerEncoderLayer(d, heads, ff, activation="gelu", batch_first=True)
    return _ready(module, source, dtype), (_normal(source, (batch, tokens, d), dtype),)


def stacked_encoder(
    layers: int = 12,
    d: int = 256,
    heads: int = 4,
    ff: int = 1024,
    tokens: int = 128,
    batch: int = 2,
    *,
    dtype: torch.dtype = torch.float32,
) -> Workload:
    """Encoder layers one after the other, each with weights of its own."""
    source = torch.Generator().manual_seed(3)
    one = (nn.TransformerEncoderLayer(d, heads, ff, activation="gelu", batch_first=True) for _ in range(layers))
    return _ready(nn.Sequential(*one), source, dtype), (_normal(source, (batch, tokens, d), dtype),)


class BasicBlock(nn.Module):
    """relu(bn(conv(relu(bn(conv(x))))) + shortcut(x)), the ResNet block. Source: He et al., CVPR 2016."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, height, width) to (batch, channels, height / stride, width / stride)."""
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.downsample(x))


def basic_block(
    channels: int = 64,
    size: int = 56,
    batch: int = 1,
    *,
    inputs: int | None = None,
    stride: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Workload:
    """A ResNet basic block on (batch, inputs, size, size); other `inputs` or `stride` add a downsampling branch."""
    source = torch.Generator().manual_seed(4)
    width = channels if inputs is None else inputs
    module = BasicBlock(width, channels, stride)
    return _ready(module, source, dtype), (_normal(source, (batch, width, size, size), dtype),)


def _normal(source: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=source, dtype=torch.float64).to(dtype)


@torch.no_grad()
def _ready(module: nn.Module, source: torch.Generator, dtype: torch.dtype) -> nn.Module:
    """Draw all weights and statistics, and switch to eval mode."""
    module = module.double()
    for part in module.modules():
        is_norm = isinstance(part, nn.LayerNorm | nn.BatchNorm1d | nn.BatchNorm2d)
        for name, weight in part.named_parameters(recurse=False):
            if is_norm and name == "weight":
                weight.copy_(1 + 0.1 * _like(weight, source))
            elif weight.dim() == 1:
                weight.copy_(0.1 * _like(weight, source))
            else:
                weight.copy_(_like(weight, source) * math.sqrt(_gain(part) / math.prod(weight.shape[1:])))
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            assert part.running_mean is not None and part.running_var is not None
            part.running_mean.copy_(0.1 * _like(part.running_mean, source))
            part.running_var.copy_(torch.exp(0.2 * _like(part.running_var, source)))
    return module.to(dtype).eval()


def _gain(part: nn.Module) -> float:
    """Return what keeps the variance at 1: after a ReLU half of the mean square is left."""
    return 2.0 if isinstance(part, nn.Conv2d) and part.kernel_size != (1, 1) else 1.0


def _like(weight: Tensor, source: torch.Generator) -> Tensor:
    return torch.randn(weight.shape, generator=source, dtype=torch.float64)
