"""Workloads written once more in JAX: from a module of `bench.blocks`, a function of its arguments as JAX arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from torch import nn

Twin = Callable[[nn.Module], Callable[..., Any]]


def _chain(_module: nn.Module) -> Callable[..., Any]:
    def chain(x: Any, row: Any, column: Any) -> Any:
        y = jax.nn.gelu(x * row + column, approximate=False)
        y = jnp.tanh(y - row) * jax.nn.sigmoid(x)
        return jax.nn.relu(y + column) * 0.5

    return chain


def _softmax(_module: nn.Module) -> Callable[..., Any]:
    return lambda x: jax.nn.softmax(x, -1)


def _layer_norm(module: nn.Module) -> Callable[..., Any]:
    (norm,) = (part for part in module.modules() if isinstance(part, nn.LayerNorm))
    weight, bias = (jnp.asarray(value.detach().numpy()) for value in (norm.weight, norm.bias))

    def layer_norm(x: Any) -> Any:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + norm.eps) * weight + bias

    return layer_norm


def _softmax_layer_norm(module: nn.Module) -> Callable[..., Any]:
    layer_norm = _layer_norm(module)
    return lambda x: layer_norm(jax.nn.softmax(x, -1))


def _sum(axis: int) -> Twin:
    return lambda _module: lambda x: x.sum(axis)


TWINS: dict[str, Twin] = {
    "chain": _chain,
    "softmax": _softmax,
    "layer norm": _layer_norm,
    "softmax, layer norm": _softmax_layer_norm,
    "sum 0": _sum(0),
    "sum 1": _sum(1),
    "sum 2": _sum(2),
}
"""By the names that rows of `bench.rows` give."""
