"""The model zoo: published architectures in plain torch, each at full size, at odd sizes, and narrowed for tests.

`full` is the published size on the usual input. `odd` has the same weights' shapes on batch 3, 17 tokens and 33 x 47
images, or the nearest that the architecture takes. `narrow` is the odd input on fewer channels and layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bench.models import (
    bert,
    dcgan,
    gpt,
    inception,
    mobilenet,
    moe,
    nasrnn,
    recurrent,
    resnet,
    squeezenet,
    unet,
    vgg,
    vit,
    volumes,
)
from bench.models.weights import Args, Workload, seeded

Variant = Literal["full", "odd", "narrow"]
Sizes = Mapping[str, Any]

ODD = (3, 33, 47)


@dataclass(frozen=True)
class Entry:
    """A model of the zoo: how to build it and its inputs, and the sizes of each variant."""

    module: Callable[..., nn.Module]
    inputs: Callable[..., Args]
    sizes: Mapping[Variant, tuple[Sizes, Sizes]]
    """Keyword arguments of `module` and of `inputs`."""

    def make(self, variant: Variant = "full") -> Workload:
        """Return the module in eval mode with seeded weights, and its arguments."""
        of_module, of_inputs = self.sizes[variant]
        return seeded(lambda: self.module(**of_module), lambda: self.inputs(**of_inputs))


def images(batch: int = 1, height: int = 224, width: int = 224) -> Args:
    """Random images with three channels."""
    return (torch.randn(batch, 3, height, width),)


def _sequences(batch: int, steps: int, features: int) -> Args:
    return (torch.randn(batch, steps, features),)


def _bert(batch: int, tokens: int, vocabulary: int) -> Args:
    mask = torch.ones(batch, tokens, dtype=torch.int64)
    mask[-1, tokens - tokens // 4 :] = 0
    return torch.randint(0, vocabulary, (batch, tokens)), mask, torch.randint(0, 2, (batch, tokens))


def _ids(batch: int, tokens: int, vocabulary: int) -> Args:
    return (torch.randint(0, vocabulary, (batch, tokens)),)


def _cached(batch: int, past: int, vocabulary: int, d: int, heads: int, layers: int) -> Args:
    def kept() -> Tensor:
        return torch.randn(batch, heads, past, d // heads)

    return torch.randint(0, vocabulary, (batch, 1)), tuple((kept(), kept()) for _ in range(layers))


def _nasrnn(batch: int, steps: int, hidden: int) -> Args:
    return torch.randn(batch, steps, hidden), torch.randn(batch, hidden)


def _volumes(batch: int, size: tuple[int, int, int]) -> Args:
    return (torch.randn(batch, 1, *size),)


def _noise(batch: int, noise: int, size: tuple[int, int] = (1, 1)) -> Args:
    return (torch.randn(batch, noise, *size),)


def _images(
    module: Callable[..., nn.Module],
    narrow: Sizes,
    odd: tuple[int, int, int] = ODD,
    full: tuple[int, int, int] = (1, 224, 224),
    sized: bool = False,
) -> Entry:
    """An entry for images: `sized` models take the size of the image too."""

    def both(of_module: Sizes, shape: tuple[int, int, int]) -> tuple[Sizes, Sizes]:
        batch, height, width = shape
        known = {"size": (height, width)} if sized else {}
        return {**of_module, **known}, {"batch": batch, "height": height, "width": width}

    return Entry(module, images, {"full": both({}, full), "odd": both({}, odd), "narrow": both(narrow, odd)})


def _resnet(blocks: tuple[int, ...], groups: int = 0, group_width: int = 64) -> Callable[..., nn.Module]:
    return lambda **given: resnet.ResNet(**{"blocks": blocks, "groups": groups, "group_width": group_width, **given})


def _decoder(d: int, heads: int, layers: int, vocabulary: int) -> nn.Module:
    return gpt.Cached(gpt.GPT(d, heads, layers, vocabulary))


def _recurrent(module: Callable[..., nn.Module]) -> Entry:
    full, narrow = {"inputs": 256, "hidden": 256}, {"inputs": 11, "hidden": 13}
    return Entry(
        module,
        _sequences,
        {
            "full": (full, {"batch": 1, "steps": 16, "features": 256}),
            "odd": (full, {"batch": 3, "steps": 17, "features": 256}),
            "narrow": (narrow, {"batch": 3, "steps": 3, "features": 11}),
        },
    )


_BERT_NARROW = {"d": 21, "heads": 3, "layers": 2, "vocabulary": 101, "positions": 19}
_GPT = {"d": 768, "heads": 12, "layers": 12, "vocabulary": 50257}
_GPT_NARROW = {"d": 21, "heads": 3, "layers": 2, "vocabulary": 101}

MODELS: dict[str, Entry] = {
    "ResNet-18": _images(_resnet((2, 2, 2, 2)), {"blocks": (2, 1), "width": 5, "classes": 7}),
    "ResNet-50": _images(_resnet((3, 4, 6, 3), 1), {"blocks": (2, 1), "width": 4, "group_width": 5, "classes": 7}),
    "MobileNetV2": _images(mobilenet.MobileNetV2, {"width": 0.2, "depth": 2, "stages": 3, "last": 37, "classes": 7}),
    "SqueezeNet 1.1": _images(squeezenet.SqueezeNet, {"width": 3, "squeezes": ((1, 1), (2,)), "classes": 7}),
    "VGG-16": _images(vgg.VGG16, {"width": 3, "hidden": 19, "classes": 7, "pooled": 3, "depth": 1}),
    "Inception-v3": _images(
        inception.InceptionV3, {"width": 1, "depth": 1, "classes": 7}, odd=(3, 79, 83), full=(1, 299, 299)
    ),
    "ResNeXt-50 32x4d": _images(
        _resnet((3, 4, 6, 3), 32, 4), {"blocks": (2, 1), "width": 4, "groups": 3, "group_width": 2, "classes": 7}
    ),
    "U-Net, bilinear": _images(
        lambda **given: unet.UNet(bilinear=True, **given), {"width": 3, "depth": 2}, full=(1, 128, 128)
    ),
    "U-Net, transposed": _images(
        lambda **given: unet.UNet(bilinear=False, **given), {"width": 3, "depth": 2}, full=(1, 128, 128)
    ),
    "U-Net of volumes": Entry(
        volumes.VolumeUNet,
        _volumes,
        {
            "full": ({}, {"batch": 1, "size": (32, 48, 48)}),
            "odd": ({}, {"batch": 3, "size": (4, 12, 20)}),
            "narrow": ({"width": 3, "depth": 1}, {"batch": 3, "size": (2, 6, 10)}),
        },
    ),
    "DCGAN generator": Entry(
        dcgan.Generator,
        _noise,
        {
            "full": ({}, {"batch": 1, "noise": 100}),
            "odd": ({}, {"batch": 3, "noise": 100, "size": (1, 2)}),
            "narrow": ({"noise": 7, "width": 3}, {"batch": 3, "noise": 7, "size": (1, 2)}),
        },
    ),
    "ViT-B/16": _images(vit.ViT, {"d": 21, "heads": 3, "layers": 2, "classes": 7}, sized=True),
    "BERT-base": Entry(
        bert.BERT,
        _bert,
        {
            "full": ({}, {"batch": 1, "tokens": 128, "vocabulary": 30522}),
            "odd": ({}, {"batch": 3, "tokens": 17, "vocabulary": 30522}),
            "narrow": (_BERT_NARROW, {"batch": 3, "tokens": 17, "vocabulary": 101}),
        },
    ),
    "GPT-2": Entry(
        gpt.GPT,
        _ids,
        {
            "full": (_GPT, {"batch": 1, "tokens": 64, "vocabulary": 50257}),
            "odd": (_GPT, {"batch": 3, "tokens": 17, "vocabulary": 50257}),
            "narrow": ({**_GPT_NARROW, "positions": 19}, {"batch": 3, "tokens": 17, "vocabulary": 101}),
        },
    ),
    "GPT-2, cached": Entry(
        _decoder,
        _cached,
        {
            "full": (_GPT, {**_GPT, "batch": 1, "past": 64}),
            "odd": (_GPT, {**_GPT, "batch": 3, "past": 17}),
            "narrow": (_GPT_NARROW, {**_GPT_NARROW, "batch": 3, "past": 17}),
        },
    ),
    "LSTM, 16 steps": _recurrent(recurrent.UnrolledLSTM),
    "GRU, 16 steps": _recurrent(recurrent.UnrolledGRU),
    "nn.LSTM": _recurrent(lambda **given: recurrent.Framework(nn.LSTM, **given)),
    "nn.GRU": _recurrent(lambda **given: recurrent.Framework(nn.GRU, **given)),
    "NasRNN": Entry(
        nasrnn.NasRNN,
        _nasrnn,
        {
            "full": ({"hidden": 512}, {"batch": 1, "steps": 5, "hidden": 512}),
            "odd": ({"hidden": 512}, {"batch": 3, "steps": 7, "hidden": 512}),
            "narrow": ({"hidden": 13}, {"batch": 3, "steps": 2, "hidden": 13}),
        },
    ),
    "Mixture of experts": Entry(
        moe.MixtureOfExperts,
        _sequences,
        {
            "full": ({"d": 256, "ff": 1024, "experts": 4}, {"batch": 1, "steps": 128, "features": 256}),
            "odd": ({"d": 256, "ff": 1024, "experts": 4}, {"batch": 3, "steps": 17, "features": 256}),
            "narrow": ({"d": 21, "ff": 23, "experts": 3}, {"batch": 3, "steps": 17, "features": 21}),
        },
    ),
}
"""All models by name."""
