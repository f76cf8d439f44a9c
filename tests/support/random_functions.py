"""Random programs of torch's functions on tensors of any rank: views, folds, windows and what is made of neighbours.

Sizes are small and odd: what is looked for are combinations of indices, not long loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from hypothesis import strategies as st
from random_networks import Do, Draw, Network, one_of
from torch import Tensor, nn

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17)
MOST_ELEMENTS = 20_000
MOST_RANK = 6
LARGEST = 1e3
"""Values grow no further: products of products would lose all digits."""


class Beside(nn.Module):
    """A function, and the sum of its result with what it was computed from, where the shapes allow."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x) + x


def point_steps(draw: Draw) -> Iterator[str]:
    yield from ("torch.tanh(x)", "torch.relu(x)", "x * x", "x.abs()", "x + 0.5", "torch.sin(x)", "-x.exp().log1p()")


def axis_steps(draw: Draw, shape: Sequence[int]) -> Iterator[str]:
    """Visit functions along an axis, or of two: none of those that jump, such as the place of a maximum."""
    rank = len(shape)
    a, b = (draw(st.integers(0, rank - 1)) for _ in range(2))
    n, k = shape[a], one_of(draw, 2, 3)
    yield from (
        f"x.sum({a}, keepdim=True)", f"x - x.mean({a}, keepdim=True)", f"x.softmax({a})", f"x.logsumexp({a})",
        f"x.cumsum({a})", f"x.cummax({a})[0]", f"x.sort({a})[0]", f"x.amax({a})",
        f"x / (x.norm(dim={a}, keepdim=True) + 1)", f"x.flip({a})",
        f"x.roll({draw(st.integers(0, n))}, {a})", f"x.repeat_interleave({k}, {a})", f"torch.cat([x, x * 2], {a})",
        f"torch.cat(x.chunk({k}, {a})[::-1], {a})", f"x.transpose({a}, {b})", f"x.unsqueeze({a})",
        f"F.layer_norm(x, x.shape[{a}:], eps=1e-2)",
    )  # fmt: skip
    if n > 1:
        window = draw(st.integers(2, min(n, 4)))
        index = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n + 1))
        yield from (
            f"x.narrow({a}, 0, {n - 1}) * x.narrow({a}, 1, {n - 1})", f"x.diff(dim={a})",
            f"x.movedim({a}, 0)[{draw(st.integers(0, 1))}::{k}].movedim(0, {a})",
            f"x.index_select({a}, torch.tensor({index}))", f"x.unfold({a}, {window}, {one_of(draw, 1, 2)})",
            f"torch.stack([x.select({a}, 0), x.select({a}, {n // 2}), x.select({a}, {n - 1})], {a})",
        )  # fmt: skip


def plane_steps(draw: Draw, shape: Sequence[int]) -> Iterator[str]:
    """Visit functions of the last two axes, or of margins."""
    margins = tuple(draw(st.integers(0, 2)) for _ in range(4))
    diagonal = draw(st.integers(-1, 1))
    yield from (
        f"F.pad(x, {margins}, value=-1.0)", f"x.tril({diagonal})", f"x.triu({diagonal})", "x @ x.transpose(-1, -2)",
        "x.unsqueeze(-1) * x.unsqueeze(-2)", "x.flatten(-2)",
        "torch.einsum('...ij,...kj->...ik', x, x.tanh())",
    )  # fmt: skip
    if min(shape[-2:]) > 1:
        yield f"torch.diagonal(x, {diagonal}, -2, -1)"


def image_steps(draw: Draw, shape: Sequence[int]) -> Iterator[str]:
    """Visit functions of images of one axis or two, with the channels in front or last."""
    rank, channels = len(shape) - 2, shape[1]
    sides = shape[2:]
    stride, padding, ceil = one_of(draw, 1, 2, 3), one_of(draw, 0, 1), one_of(draw, True, False)
    smooth = ("linear", "bilinear")[rank - 1]
    weights = f"torch.linspace(-1, 1, {{}} * {3**rank}, dtype=x.dtype).sin().view({{}}, -1, {', '.join('3' * rank)})"
    yield from (
        "F.interpolate(x, scale_factor=2, mode='nearest')", f"F.interpolate(x, scale_factor=2, mode='{smooth}')",
        f"F.interpolate(x, size={tuple(2 * n + 1 for n in sides)}, mode='{smooth}')",
        f"F.adaptive_avg_pool{rank}d(x, {draw(st.integers(1, min(sides)))})", f"F.adaptive_max_pool{rank}d(x, 1)",
    )  # fmt: skip
    if min(sides) > 1:
        mode = one_of(draw, "reflect", "replicate", "circular")
        yield f"F.pad(x, {(padding,) * 2 * rank}, mode='{mode}')"
        yield "F.instance_norm(x, eps=1e-2)"
    if min(sides) > 2:
        window = f"3, {stride}, {padding}"
        full, deep = weights.format(4 * channels, 4), weights.format(channels, channels)
        yield from (
            f"F.max_pool{rank}d(x, {window}, ceil_mode={ceil})", f"F.avg_pool{rank}d(x, {window}, {ceil})",
            f"F.conv{rank}d(x, {full}, None, {stride}, {padding})",
            f"F.conv{rank}d(x, {deep}, None, {stride}, {padding}, groups={channels})",
            f"F.conv_transpose{rank}d(x, {weights.format(3 * channels, channels)}, None, {stride}, {padding})",
        )  # fmt: skip
    if min(shape[1:-1]) > 2:
        yield f"F.max_pool{rank}d(x.movedim(-1, 1), 3, 1, {padding}).movedim(1, -1)"
    if rank == 2:
        yield f"F.unfold(x, {one_of(draw, 1, 2)}, padding={padding}, stride={stride})"
        if channels % 4 == 0:
            yield "F.pixel_shuffle(x, 2)"
        if all(n % 2 == 0 for n in sides):
            yield "F.pixel_unshuffle(x, 2)"


def step(draw: Draw, shape: Sequence[int]) -> nn.Module:
    """Draw a function of a tensor."""
    kinds = [point_steps(draw)]
    if shape:
        kinds += [axis_steps(draw, shape)] * 3
    if len(shape) > 1:
        kinds.append(plane_steps(draw, shape))
    if len(shape) in (3, 4):
        kinds += [image_steps(draw, shape)] * 2
    function = Do(draw(st.sampled_from(list(draw(st.sampled_from(kinds))))))
    return Beside(function) if one_of(draw, False, False, True) else function


@st.composite
def programs(draw: Draw, most_steps: int = 8) -> tuple[Network, Tensor]:
    """Draw a program and an argument."""
    torch.manual_seed(draw(st.integers(0, 99)))
    x = value = torch.randn([draw(st.sampled_from(SIZES)) for _ in range(one_of(draw, 1, 2, 3, 3, 4, 4, 4))])
    steps: list[nn.Module] = []
    for _ in range(draw(st.integers(2, most_steps))):
        function = step(draw, value.shape)
        try:
            result = function(value)
        except RuntimeError:  # torch refuses windows that are larger than what they move over
            continue
        if 0 < result.numel() <= MOST_ELEMENTS and result.dim() <= MOST_RANK and result.abs().max() <= LARGEST:
            steps.append(function)
            value = result
    steps = steps or [nn.Identity()]
    outputs = {len(steps) - 1, draw(st.integers(0, len(steps) - 1))}
    return Network(steps, sorted(outputs)).eval(), x
