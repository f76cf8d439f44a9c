"""Seeded weights that keep unit variance through any depth: each layer is scaled by what one forward pass shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Args = tuple[Any, ...]
Workload = tuple[nn.Module, Args]

_BATCH_NORMS = (nn.BatchNorm2d, nn.BatchNorm3d)
_NORMS = (*_BATCH_NORMS, nn.LayerNorm)
_LINEAR = (nn.Linear, nn.Conv2d, nn.ConvTranspose2d, nn.Conv3d, nn.ConvTranspose3d)


def seeded(build: Callable[[], nn.Module], inputs: Callable[[], Args], seed: int = 0) -> Workload:
    """Build a module and its arguments from one seed, and calibrate the module on these arguments.

    Source: layer-sequential unit variance, Mishkin and Matas, All you need is a good init, ICLR 2016.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        module, args = build().eval(), inputs()
        for part in module.modules():
            if isinstance(part, nn.RNNBase):
                _widen(part)
        handles = [part.register_forward_hook(_Calibrate()) for part in module.modules() if _is_scaled(part)]
        module(*args)
    for handle in handles:
        handle.remove()
    return module, args


def _widen(part: nn.RNNBase) -> None:
    """Bring the matrices from torch's uniform draw to unit variance of a row's sum; the layer is one operator."""
    for weight in part.parameters():
        weight.mul_(3**0.5)


def _is_scaled(part: nn.Module) -> bool:
    return isinstance(part, _LINEAR + _NORMS)


class _Calibrate:
    """A hook that, the first time that a layer sees more than zeros, makes its output have about unit variance."""

    def __init__(self) -> None:
        self.done = False

    def __call__(self, part: Any, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        if self.done or not args[0].any():
            return None
        self.done = True
        if isinstance(part, _NORMS):
            return _settle_norm(part, args[0])
        scale = 1 / float(output.square().mean().sqrt().clamp_min(1e-3))
        part.weight.mul_(scale)
        if part.bias is not None:
            part.bias.mul_(scale)
        return output * scale


def _settle_norm(part: nn.BatchNorm2d | nn.BatchNorm3d | nn.LayerNorm, x: Tensor) -> Tensor:
    """Draw scales, shifts and statistics.

    A batch norm that takes its statistics from the data amplifies rounding by about 1.2 a layer, with ReLU: dozens of
    layers would compare noise. Source: Yang et al., A Mean Field Theory of Batch Normalization, ICLR 2019.
    """
    part.weight.copy_(1 + 0.1 * torch.randn_like(part.weight))
    part.bias.copy_(0.1 * torch.randn_like(part.bias))
    if isinstance(part, _BATCH_NORMS):
        assert part.running_mean is not None and part.running_var is not None
        part.running_mean.copy_(0.1 * torch.randn_like(part.running_mean))
        part.running_var.copy_(torch.exp(0.2 * torch.randn_like(part.running_var)))
    return part.forward(x)
