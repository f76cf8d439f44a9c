"""What a mask selects: computed at all places where it goes back to them or is summed, refused elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import REFERENCE

_GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(2, 3, 4, generator=_GENERATOR)
LABELS = torch.tensor([[1, 0, -1], [-1, 1, 2]])
ROW = torch.randn(4, generator=_GENERATOR)
SOME = torch.tensor([True, False, True])
layer = nn.Linear(4, 4).eval()


def prompts(x: Tensor, labels: Tensor, row: Tensor, _: Tensor) -> Tensor:
    """As the encoder of prompts of Segment Anything adds embeddings."""
    x = x.clone()
    x[labels == -1] = 0.0
    x[labels == -1] += row
    x[labels == 0] += 2 * row
    return x


def farthest(x: Tensor, *_: Tensor) -> Tensor:
    """As PointNet++ keeps the least of distances."""
    best, mine = x[0].clone(), x[1]
    nearer = mine < best
    best[nearer] = mine[nearer]
    return best


def experts(x: Tensor, labels: Tensor, *_: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for label in range(3):
        chosen = labels == label
        out[chosen] += torch.relu(layer(x[chosen])) * x[chosen].sum(-1).unsqueeze(-1)
    return out


def bounds(_: Tensor, labels: Tensor, *__: Tensor) -> Tensor:
    """As distributions of returns are projected."""
    low, high = labels.clone(), labels.clone().abs()
    low[(high > 0) & (low == high)] -= 1
    return low


def axes(x: Tensor, _: Tensor, row: Tensor, some: Tensor) -> tuple[Tensor, ...]:
    y, z = x.clone(), x.clone()
    y[:, some] = y[:, some] * 2 + row
    z[:, :, :3][..., some] = torch.exp(x[..., :3][..., some])
    return y, z


def sums(x: Tensor, labels: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
    mask = labels > 0
    chosen = x[mask]
    totals = chosen.sum(), chosen.sum(0, keepdim=True), (chosen > 0).sum(), x[..., 0][mask].sum()
    return *totals, chosen.mean(), chosen.mean(0), chosen.amax(-1).mean(), (labels[mask] // 2).double().mean()


def written(x: Tensor, labels: Tensor, row: Tensor, some: Tensor) -> tuple[Tensor, ...]:
    """The same values at each place of a mask."""
    a, b, c = x.clone(), x.clone(), x.clone()
    a[labels > 0] = row
    b[:, some] = row
    c[..., :3][..., some] = row[:3, None]
    return a, b, c, x.index_put((labels > 0,), row[None], accumulate=True)


def of_a_mask_that_changes(x: Tensor, labels: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
    mask = labels > 0
    chosen = x[mask]
    mask.logical_not_()
    return chosen.sum(), chosen.mean(0), x[mask].sum(), mask


def of_a_mask_made_twice(x: Tensor, labels: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
    a, b = x.clone(), x.clone()
    a[labels > 0] = x[labels > 0] * 2
    b[(x > 0) & (x < 1)] = x[(x > 0) & (x < 1)].exp()
    b[labels > 0] += torch.where(a[labels > 0] > 0, a[labels > 0], x[labels > 0])
    return a, b, (a[labels > 0] * x[labels > 0]).sum(0), x[labels > 0].sum(0) - a[labels < 1].sum(0)


_FUNCTIONS = prompts, farthest, experts, bounds, axes, sums, written, of_a_mask_that_changes, of_a_mask_made_twice
CASES: dict[str, Callable[..., Any]] = {function.__name__: function for function in _FUNCTIONS}

REFUSED: dict[str, Callable[..., Any]] = {
    "a result": lambda x, labels, *_: x[labels > 0] * 2,
    "a size": lambda x, labels, *_: x[labels > 0].sum() / x[labels > 0].shape[0],
    "the size of another": lambda x, labels, *_: x.sum() / (labels > 0).nonzero().shape[0],
    "rows that see each other": lambda x, labels, *_: x.index_put((labels > 0,), x[labels > 0].softmax(0)),
    "rows in another order": lambda x, labels, *_: x.index_put((labels > 0,), x[labels > 0].flip(0)),
    "rows of another mask": lambda x, labels, *_: x.index_put((labels > 0,), x[labels < 1] * 2),
    "rows of two masks": lambda x, labels, *_: (x[labels > 0] * x[labels < 1]).sum(),
    "rows of a mask before and after": lambda x, labels, *_: (x[labels > 0] * x[labels.neg_() > 0]).sum(),
    "places of two masks": lambda x, labels, *_: (x[labels > 0].unsqueeze(0) * x[labels > 0].unsqueeze(1)).sum(),
    "rows of a mask that changed": lambda x, labels, *_: x.index_put((labels > 0,), x[labels.add_(1) > 0] * 2),
    "rows behind one more axis": lambda x, labels, *_: x.index_put((labels > 0,), x[labels > 0][None]),
    "two axes of them": lambda x, _, row, some: (row[:3][some].unsqueeze(0) * row[:3][some].unsqueeze(1)).sum(),
    "a product over them": lambda x, labels, *_: x[labels > 0].T @ x[labels > 0],
    "the largest": lambda x, labels, *_: x[labels > 0].amax(0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_selections_give_what_torch_gives(name: str, dtype: torch.dtype) -> None:
    layer.to(dtype)
    args = (X.to(dtype), LABELS, ROW.to(dtype), SOME)
    with torch.no_grad():
        fast = ft.optimize(CASES[name], args, machine=REFERENCE, fallback="error")
        for given in (args, (args[0].flip(1), LABELS.flip(0), ROW.to(dtype), ~SOME)):
            pairs = zip(pytree.tree_leaves(fast(*given)), pytree.tree_leaves(CASES[name](*given)), strict=True)
            for mine, theirs in pairs:
                torch.testing.assert_close(mine, theirs)


def test_where_nothing_is_selected_sums_are_zero_and_means_are_not_numbers() -> None:
    fast = ft.optimize(sums, (X, LABELS), machine=REFERENCE)
    for mine, theirs in zip(fast(X, LABELS * 0), sums(X, LABELS * 0), strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True)


def test_what_is_not_selected_may_be_infinite() -> None:
    spoilt = X.masked_fill((LABELS <= 0).unsqueeze(-1), float("inf"))
    fast = ft.optimize(sums, (X, LABELS), machine=REFERENCE)
    for mine, theirs in zip(fast(spoilt, LABELS), sums(spoilt, LABELS), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", REFUSED)
def test_other_uses_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match="depends on values"):
        ft.optimize(REFUSED[name], (X, LABELS, ROW, SOME), machine=REFERENCE)


def test_sizes_may_be_open() -> None:
    rows = torch.export.Dim("rows", min=2, max=9)
    shapes = ({0: rows}, {0: rows}, None, None)
    fast = ft.optimize(prompts, (X, LABELS, ROW, SOME), dynamic_shapes=shapes, machine=REFERENCE)
    x, labels = torch.cat([X, X, X]), torch.cat([LABELS, -LABELS, LABELS])
    torch.testing.assert_close(fast(x, labels, ROW, SOME), prompts(x, labels, ROW, SOME))
    assert list(fast.ranges) == ["rows"]
