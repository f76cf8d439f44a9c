"""The rows of the comparison with peers: what is run, and how much faster than the fastest peer it is to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from bench import blocks, workloads
from bench.models import (
    MODELS,
    convnext,
    darknet,
    efficientnet,
    messages,
    mixer,
    nasrnn,
    recommender,
    scan,
    volumes,
    waves,
)
from bench.models.weights import Workload, seeded

_MATRIX = (4096, 1024)
_CUBE = (128, 256, 128)


@dataclass(frozen=True)
class Row:
    """A workload; `at_least` is the wanted ratio of the fastest peer's time to ours; `twin` names the same in JAX."""

    name: str
    make: Callable[[], Workload]
    at_least: float
    twin: str = ""


def _zoo(name: str, at_least: float) -> Row:
    return Row(name, MODELS[name].make, at_least)


def _nasrnn_cell(hidden: int) -> Workload:
    return seeded(lambda: nasrnn.NasRNN(hidden), lambda: (torch.randn(1, 1, hidden), torch.randn(1, hidden)))


def _over(module: Callable[[], nn.Module], shape: tuple[int, ...]) -> Workload:
    return seeded(module, lambda: (torch.randn(shape),))


def _volumes(*shape: int) -> Workload:
    return _over(lambda: volumes.VolumeUNet(norm=volumes.instance_norm), shape)


def _messages(nodes: int, edges: int) -> Workload:
    def given() -> tuple[Tensor, ...]:
        return (torch.randn(nodes, 64), *(torch.randint(0, nodes, (edges,)) for _ in range(2)))

    return seeded(messages.Messages, given)


def _bags(batch: int, bag: int) -> Workload:
    return seeded(recommender.Recommender, lambda: (torch.randn(batch, 13), torch.randint(0, 5000, (8, batch, bag))))


def _all() -> tuple[Row, ...]:
    mlp = [Row(f"MLP 784-256-10, batch {n}", partial(workloads.mlp, batch=n), 1.2) for n in (1, 64)]
    stacks = [
        Row(f"transformer MLP 768-3072 x4, batch {n}", partial(blocks.transformer_mlp, 768, 3072, 4, n), 1.1)
        for n in (1, 8, 64, 128, 512)
    ]
    sums = [
        Row(f"sum over axis {axis} of 3", partial(blocks.sums, _CUBE, axis), 2.0, f"sum {axis}") for axis in (0, 1, 2)
    ]
    attention = [
        Row(f"attention, {label}", partial(blocks.attention, 768, 12, tokens, causal), 1.1)
        for label, tokens, causal in (("128", 128, False), ("512", 512, False), ("512, causal", 512, True))
    ]
    return (
        *mlp,
        Row("MLP 4 x 1024, batch 64", partial(blocks.dense, 4, 1024, 64), 1.1),
        *stacks,
        Row("ten point-wise, 4096x1024", partial(blocks.pointwise_chain, *_MATRIX), 2.0, "chain"),
        Row("softmax, layer norm, 4096x1024", partial(blocks.softmax_layer_norm, *_MATRIX), 2.0, "softmax, layer norm"),
        Row("softmax, 4096x1024", partial(blocks.softmax, *_MATRIX), 2.0, "softmax"),
        Row("layer norm, 4096x1024", partial(blocks.layer_norm, *_MATRIX), 2.0, "layer norm"),
        *sums,
        *attention,
        _zoo("LSTM, 16 steps", 1.2),
        _zoo("NasRNN", 1.0),
        Row("NasRNN cell, 1024 wide", partial(_nasrnn_cell, 1024), 1.0),
        _zoo("ResNet-18", 1.3),
        _zoo("ResNet-50", 1.15),
        _zoo("VGG-16", 1.6),
        _zoo("MobileNetV2", 1.1),
        _zoo("SqueezeNet 1.1", 1.1),
        _zoo("Inception-v3", 1.1),
        _zoo("ResNeXt-50 32x4d", 1.1),
        _zoo("BERT-base", 1.05),
        _zoo("ViT-B/16", 1.05),
        _zoo("GPT-2", 1.05),
        _zoo("GPT-2, cached", 1.05),
        Row("other: mixer", partial(_over, mixer.Mixer, (1, 3, 224, 224)), 1.0),
        Row("other: windows of 7 x 7", partial(_over, convnext.ConvNext, (1, 3, 224, 224)), 1.0),
        Row("other: gated waves", partial(_over, waves.GatedWaves, (1, 1, 4000)), 1.0),
        Row("other: selective scan", partial(_over, scan.SelectiveScan, (1, 32, 256)), 1.0),
        Row("other: messages", partial(_messages, 500, 3000), 1.0),
        Row("other: bags", partial(_bags, 128, 4), 1.0),
        Row("other: squeezed windows", partial(_over, efficientnet.EfficientNet, (1, 3, 224, 224)), 1.0),
        Row("other: volumes", partial(_volumes, 1, 1, 32, 48, 48), 1.0),
        Row("other: leaky residuals", partial(_over, darknet.Darknet, (1, 3, 224, 224)), 1.0),
    )


ROWS: dict[str, Row] = {row.name: row for row in _all()}
"""All rows by name, in the order of the table."""
