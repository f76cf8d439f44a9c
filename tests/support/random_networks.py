"""Random networks of torch's layers: images of one to three axes, sequences, and heads that make one of the other.

Sizes are drawn from what kernels treat apart: one, primes, and multiples of a vector's lanes and of a register tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn

Draw = Callable[[st.SearchStrategy[Any]], Any]

BATCHES = (1, 2, 3, 8, 16)
CHANNELS = (1, 3, 4, 8, 16, 17, 24, 32, 48, 64)
LENGTHS = (1, 2, 4, 7, 8, 13, 16, 32, 48, 65)
SIDES = {1: (1, 5, 16, 33, 64), 2: (2, 5, 7, 8, 12, 16, 19), 3: (2, 3, 4, 6, 8)}
MOST_ELEMENTS = 60_000
ACTIVATIONS = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Hardsigmoid,
    nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Softsign, nn.Identity,
)  # fmt: skip


class Network(nn.Module):
    """Layers one after the other; the outputs of some of them are outputs of the network."""

    def __init__(self, layers: Sequence[nn.Module], outputs: Sequence[int]) -> None:
        super().__init__()
        self.layers, self.outputs = nn.ModuleList(layers), tuple(outputs)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        values = []
        for layer in self.layers:
            x = layer(x)
            values.append(x)
        return tuple(values[i] for i in self.outputs)

    def extra_repr(self) -> str:
        return f"outputs={self.outputs}"


class Do(nn.Module):
    """A function of one tensor, named by its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.function: Callable[[Tensor], Tensor] = eval(f"lambda x: {text}", {"torch": torch, "F": F})

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)

    def extra_repr(self) -> str:
        return self.text


class Join(nn.Module):
    """Several layers on the same tensor, and what is made of their results."""

    WAYS: ClassVar[dict[str, Callable[..., Tensor]]] = {
        "sum": lambda x, a, b: x + 0.2 * a,
        "cat": lambda x, a, b: torch.cat([a, x, b], 1),
        "gate": lambda x, a, b: a * torch.sigmoid(b),
        "tanh gate": lambda x, a, b: torch.tanh(a) * torch.sigmoid(b) + x,
        "largest": lambda x, a, b: torch.maximum(a, b),
        "stack": lambda x, a, b: torch.stack([a, b, x]).mean(0),
        "where": lambda x, a, b: torch.where(x > 100, a, b),
    }

    def __init__(self, way: str, a: nn.Module, b: nn.Module) -> None:
        super().__init__()
        self.way, self.a, self.b = way, a, b

    def forward(self, x: Tensor) -> Tensor:
        return self.WAYS[self.way](x, self.a(x), self.b(x))

    def extra_repr(self) -> str:
        return self.way


class Attention(nn.Module):
    """Attention over the middle axis; `way` says over which keys and with which scores."""

    WAYS = ("self", "causal", "few keys", "positions", "linear", "one query", "shared keys", "rotated")

    def __init__(self, way: str, width: int, heads: int) -> None:
        super().__init__()
        self.way, self.heads = way, heads
        kept = width // heads if way == "shared keys" else width
        self.q, self.o = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = nn.Linear(width, kept), nn.Linear(width, kept)
        self.near = nn.Parameter(torch.randn(heads, 1, 1))
        self.points = nn.Parameter(torch.randn(1, 16, width))

    def split(self, x: Tensor) -> Tensor:
        shape = (x.shape[0], x.shape[1], -1, self.q.out_features // self.heads)
        return x.view(shape).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        others = self.points.expand(x.shape[0], -1, -1) if self.way == "few keys" else x
        q, k, v = self.split(self.q(x)), self.split(self.k(others)), self.split(self.v(others))
        if self.way == "one query":
            q = q[:, :, -1:]
        if self.way == "rotated":
            q, k = self.rotate(q), self.rotate(k)
        if self.way == "linear":
            found = torch.softmax(q, -1) @ (F.elu(k).transpose(-1, -2) @ v)
        elif self.way == "positions":
            at = torch.arange(x.shape[1], dtype=x.dtype)
            scores = q @ k.transpose(-1, -2) / 3 - self.near.exp() * (at[:, None] - at[None]).abs() / 8
            found = torch.softmax(scores, -1) @ v
        else:
            if self.way == "shared keys":
                k, v = k.expand_as(q), v.expand_as(q)
            found = F.scaled_dot_product_attention(q, k, v, is_causal=self.way == "causal")
        return self.o(found.transpose(1, 2).flatten(2))

    def rotate(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        angles = torch.arange(x.shape[2], dtype=x.dtype)[:, None] / 10
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    def extra_repr(self) -> str:
        return f"{self.way}, heads={self.heads}"


class Recurrent(nn.Module):
    """The outputs of a recurrent layer over the middle axis."""

    def __init__(self, kind: Callable[..., nn.Module], width: int, hidden: int, both: bool) -> None:
        super().__init__()
        self.inner = kind(width, hidden, batch_first=True, bidirectional=both)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[0]


class Rms(nn.Module):
    """A norm by the root of the mean square of an axis."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(self.axis, keepdim=True) + 1e-2)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


def of_rank(name: str, rank: int) -> Callable[..., nn.Module]:
    return getattr(nn, f"{name}{rank}d")


def one_of(draw: Draw, *options: Any) -> Any:
    return draw(st.sampled_from(options))


def activation(draw: Draw) -> nn.Module:
    return draw(st.sampled_from(ACTIVATIONS))()


def window(draw: Draw, shape: Sequence[int], same: bool) -> nn.Module:
    """Draw a convolution of an image (batch, channels, lines ...); `same` keeps the sizes of its axes."""
    channels, rank = shape[1], len(shape) - 2
    out = draw(st.sampled_from(CHANNELS))
    groups = one_of(draw, 1, 1, channels, *(g for g in (2, 4, 8) if channels % g == 0))
    size, stride, dilation = one_of(draw, 1, 3, 3, 5), one_of(draw, 1, 1, 2), one_of(draw, 1, 1, 1, 2)
    if same or groups > 1:
        out = channels
    given = {"stride": 1 if same else stride, "padding": (size - 1) * dilation // 2, "dilation": dilation}
    return of_rank("Conv", rank)(channels, out, size, **given, groups=groups, bias=one_of(draw, True, False))


def norm(draw: Draw, shape: Sequence[int]) -> nn.Module:
    channels, rank = shape[1], len(shape) - 2
    names = ["BatchNorm", "GroupNorm", "Rms", "LocalResponse"]
    if prod(shape[2:]) > 3:
        names.append("InstanceNorm")
    match draw(st.sampled_from(names)):
        case "GroupNorm":
            return nn.GroupNorm(one_of(draw, *(g for g in (1, 2, 4) if channels % g == 0)), channels, eps=1e-2)
        case "Rms":
            return Rms(1)
        case "LocalResponse":
            return nn.LocalResponseNorm(3, 0.1)
        case name:
            made = of_rank(name, rank)(channels, eps=1e-2, affine=True)
            for statistics in made.buffers():
                if statistics.dtype.is_floating_point:
                    statistics.uniform_(0.5, 2)
            return made


def image_layer(draw: Draw, shape: Sequence[int], same: bool = False, depth: int = 0) -> nn.Module:
    """Draw a layer for an image; `same` keeps its shape."""
    channels, rank, sides = shape[1], len(shape) - 2, shape[2:]
    kinds = ["window", "window", "activation", "norm", "convolution block", "pool", "scale", "shuffle"]
    if depth < 2:
        kinds += ["join", "join", "inner"]
    if not same:
        kinds += ["strided pool", "resize", "transposed", "pad", "halves", "flip", "turn", "adaptive", "softmax"]
    match draw(st.sampled_from(kinds)):
        case "window":
            return window(draw, shape, same)
        case "activation":
            return activation(draw)
        case "norm":
            return norm(draw, shape)
        case "convolution block":
            first = window(draw, shape, same)
            return nn.Sequential(first, norm(draw, shape_after(first, shape)), activation(draw))
        case "pool":
            return of_rank(one_of(draw, "MaxPool", "AvgPool"), rank)(3, 1, 1)
        case "strided pool":
            if min(sides) < 2:
                return nn.Identity()
            return of_rank(one_of(draw, "MaxPool", "AvgPool"), rank)(2, 2, ceil_mode=one_of(draw, False, True))
        case "scale":
            axes = tuple(range(2, rank + 2))
            squeezed = nn.Sequential(Do(f"x.{one_of(draw, 'mean', 'amax')}({axes}, keepdim=True)"),
                of_rank("Conv", rank)(channels, max(channels // 4, 1), 1), activation(draw),
                of_rank("Conv", rank)(max(channels // 4, 1), channels, 1))  # fmt: skip
            return Join("gate", nn.Identity(), squeezed)
        case "shuffle":
            groups = one_of(draw, *(g for g in (1, 2, 4) if channels % g == 0))
            return Do(f"x.unflatten(1, ({groups}, -1)).transpose(1, 2).flatten(1, 2)")
        case "join":
            way = draw(st.sampled_from([w for w in Join.WAYS if w != "cat" or not same]))
            return Join(way, *(image_layer(draw, shape, True, depth + 1) for _ in range(2)))
        case "inner":
            return nn.Sequential(*(image_layer(draw, shape, True, depth + 1) for _ in range(2)))
        case "resize":
            smooth = ("linear", "bilinear", "trilinear")[rank - 1]
            return nn.Upsample(scale_factor=2, mode=one_of(draw, "nearest", smooth))
        case "transposed":
            out, size, stride = draw(st.sampled_from(CHANNELS)), draw(st.sampled_from((2, 3, 4))), one_of(draw, 1, 2)
            return of_rank("ConvTranspose", rank)(channels, out, size, stride, min(1, size // 2))
        case "pad":
            mode = one_of(draw, "constant", "replicate", *(("reflect", "circular") if min(sides) > 1 else ()))
            return Do(f"F.pad(x, {(1, 1) * rank}, {mode!r})")
        case "halves":
            if channels % 2:
                return Do("x[:, ::2] * 2")
            return Do(one_of(draw, "F.glu(x, 1)", "x[:, : x.shape[1] // 2] - x[:, x.shape[1] // 2 :]"))
        case "flip":
            return Do("x.flip(-1)")
        case "turn":
            return Do("x.transpose(1, 2)" if rank == 1 else f"x.transpose({one_of(draw, 1, 2)}, -1)")
        case "adaptive":
            return of_rank(one_of(draw, "AdaptiveAvgPool", "AdaptiveMaxPool"), rank)(one_of(draw, 1, 2, 3))
        case _:
            return Do("torch.softmax(x, 1)")


def sequence_layer(draw: Draw, shape: Sequence[int], same: bool = False, depth: int = 0) -> nn.Module:
    """Draw a layer for tokens (batch, tokens, width); `same` keeps the shape."""
    width = shape[2]
    kinds = ["linear", "attention", "norm", "activation", "mlp", "sums", "mix", "softmax"]
    if depth < 2:
        kinds += ["join", "residual", "residual"]
    if not same:
        kinds += ["recurrent", "slice", "turn", "halves", "split"]
    match draw(st.sampled_from(kinds)):
        case "linear":
            return nn.Linear(width, width if same else draw(st.sampled_from(CHANNELS)), one_of(draw, True, False))
        case "attention":
            heads = one_of(draw, *(h for h in (1, 2, 4) if width % h == 0))
            refused = {"one query"} if same else set[str]()
            refused |= {"rotated"} if width // heads % 2 else set()
            return Attention(draw(st.sampled_from([way for way in Attention.WAYS if way not in refused])), width, heads)
        case "norm":
            return one_of(draw, nn.LayerNorm(width, eps=1e-2), Rms(-1))
        case "activation":
            return activation(draw)
        case "mlp":
            return nn.Sequential(nn.Linear(width, 4 * width), activation(draw), nn.Linear(4 * width, width))
        case "sums":
            return Do(one_of(draw, "x.cumsum(1) / 8", "x - x.mean(1, keepdim=True)", "x.cummax(1)[0]"))
        case "mix":
            return nn.Sequential(Do("x.transpose(1, 2)"), nn.Linear(shape[1], shape[1]), Do("x.transpose(1, 2)"))
        case "softmax":
            return Do(f"torch.{one_of(draw, 'softmax', 'log_softmax')}(x, {one_of(draw, 1, 2)})")
        case "join":
            way = draw(st.sampled_from([w for w in Join.WAYS if w != "cat" or not same]))
            return Join(way, *(sequence_layer(draw, shape, True, depth + 1) for _ in range(2)))
        case "residual":
            inner = nn.Sequential(nn.LayerNorm(width, eps=1e-2), sequence_layer(draw, shape, True, depth + 1))
            return Join("sum", inner, nn.Identity())
        case "recurrent":
            kind, hidden = one_of(draw, nn.GRU, nn.LSTM, nn.RNN), one_of(draw, 4, 17, 32)
            return Recurrent(kind, width, hidden, one_of(draw, False, True))
        case "slice":
            return Do(one_of(draw, "x[:, 1:]", "x[:, ::2]", "x[:, -1:]", "F.pad(x, (0, 0, 1, 0))", "x.roll(1, 1)"))
        case "turn":
            return Do("x.transpose(1, 2)")
        case "halves":
            return Do("F.glu(x, -1)" if width % 2 == 0 else "x[..., ::2]")
        case _:
            parts = one_of(draw, *(p for p in (1, 2, 4) if width % p == 0))
            return Do(f"x.unflatten(2, ({parts}, -1)).transpose(1, 2).flatten(1, 2)")


def shape_after(layer: nn.Module, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of what a layer returns, one without elements if torch refuses."""
    try:
        return tuple(layer.eval()(torch.zeros(*shape)).shape)
    except RuntimeError:  # an average of volumes wants as many lines as its window has
        return (0,)


@st.composite
def networks(draw: Draw, most_layers: int = 6) -> tuple[Network, Tensor]:
    """Draw a network in evaluation mode and an argument."""
    torch.manual_seed(draw(st.integers(0, 99)))
    rank = one_of(draw, 0, 1, 2, 2, 3)
    batch, channels = draw(st.sampled_from(BATCHES)), draw(st.sampled_from(CHANNELS))
    sides = [draw(st.sampled_from(SIDES[rank])) for _ in range(rank)]
    first = shape = (batch, channels, *sides) if rank else (batch, draw(st.sampled_from(LENGTHS)), channels)
    layers: list[nn.Module] = []
    for _ in range(draw(st.integers(1, most_layers))):
        if rank and one_of(draw, *range(10)) == 9:
            layer, rank = Do("x.flatten(2).transpose(1, 2)"), 0
        else:
            layer = (image_layer if rank else sequence_layer)(draw, shape)
        after = shape_after(layer, shape)
        if 0 < prod(after) <= MOST_ELEMENTS:
            layers.append(layer)
            shape = after
    layers = layers or [nn.Identity()]
    outputs = {len(layers) - 1, draw(st.integers(0, len(layers) - 1))}
    return Network(layers, sorted(outputs)).eval().requires_grad_(False), torch.randn(*first)
