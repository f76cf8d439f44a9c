"""Rows of computed indices: imported and compiled they give what torch gives, and refuse the indices it refuses."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import frittata as ft
from frittata.egraph.errors import IndexRangeError, ModelError, UnsupportedOpError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.script import parse, show
from frittata.frontends import (
    aten_indices,
    aten_layers,
    aten_quantized,
    aten_recurrent,
    aten_scalars,
    aten_special,
    aten_views,
    aten_windows,
)
from frittata.frontends.torch_export import from_module

Forward = Callable[..., Any]


def _crossed_anywhere(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch wishes for an axis
        return (torch.cross(x, y),)


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def floats(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _copied(x: Tensor, y: Tensor, i: Tensor, half: Tensor) -> tuple[Tensor, ...]:
    z = x.clone()
    z[:, 0] = y[:, 0]
    z[1:3] = y[0]
    z[-1].copy_(y[0])
    z[0] = i
    z[:, 3] = half
    z[2, 1:4].copy_(i[:3] > 0)
    z.view(-1)[::5] = 7
    return z, x.clone().copy_(i), i.clone().copy_(x[0] * 3)


def _diagonals(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    z, cube = y.clone(), x.clone()
    z.t()[1:].add_(1).fill_(2).relu_()
    z.diagonal().mul_(2)
    z.diagonal(1).copy_(y[:, 0])
    cube.diagonal(-1, 0, 2).fill_(torch.nan)
    return z, cube, torch.diagonal_scatter(x, y[:3, :4], 1, 2, 0)


def _filled_diagonals(*tensors: Tensor) -> list[Tensor]:
    return [x.clone().fill_diagonal_(9.0, wrap=wrap) for x in tensors for wrap in (False, x.ndim == 2)]


def _strided(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    z = x.clone()
    z.as_strided((3, 2), (7, 2), 3).mul_(2)
    return (
        z,
        x.as_strided((3, 4), (7, 2), 1) * 2,
        (x * 2).as_strided((3, 4, 2), (1, 2, 5), 1),
        x.as_strided_scatter(y, (3, 2), (7, 2), 3),
        x.as_strided_scatter(y[0], (2,), (4,), 1),
        x.as_strided_scatter(y[0, 0], (), (), 41),
    )


def ints(high: int, *shape: int, low: int = 0) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(high + sum(shape)))


def assert_same(found: Any, expected: Any) -> None:
    for ours, theirs in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True):
        ours, theirs = np.asarray(ours), theirs.numpy()
        assert ours.shape == theirs.shape
        assert ours.dtype.kind == theirs.dtype.kind
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5, equal_nan=True)


W, X = floats(23, 17), floats(3, 5, 7)
ROWS, IDS = ints(23, 2, 7), ints(23, 3, 5)
Q, K, V = floats(2, 4, 5, 8), floats(2, 2, 7, 8), floats(2, 2, 7, 6)

READS: dict[str, tuple[Forward, tuple[Any, ...]]] = {
    "places in what is ordered": (
        lambda b, x: (
            torch.searchsorted(b, x),
            torch.searchsorted(b, x, right=True),
            torch.searchsorted(b.flip(0), x, side="right", sorter=torch.arange(5).flip(0)),
            torch.bucketize(x, b, out_int32=True),
            torch.bucketize(x, b[:1], right=True),
            torch.searchsorted(b, 0.1),
            torch.bucketize(2.5, torch.arange(1, 5)),
        ),
        (torch.tensor([-1, 0, 0, 0.5, math.nan]), torch.tensor([[-2, -1, -0.0], [0.5, 3, math.nan]])),
    ),
    "places in ordered rows": (lambda b, x: torch.searchsorted(b.sort(-1)[0], x), (floats(3, 17), floats(3, 9))),
    "places among integers": (lambda b, x: torch.bucketize(x / 2, b), (ints(9, 7).sort()[0], torch.arange(-3, 22))),
    "embedding": (lambda w, i: (F.embedding(i, w), F.embedding(i, w, padding_idx=3) * 2), (W, ROWS)),
    "embedding of 32-bit indices": (lambda w, i: F.embedding(i, w), (W, ROWS.int())),
    "index_select": (
        lambda x, i: (
            x.index_select(0, i),
            x.index_select(1, i),
            x.index_select(-1, i),
            x.sum().index_select(0, i[1:2]),
        ),
        (X, torch.tensor([2, 0, 0, 1])),
    ),
    "gather": (
        lambda x, i: (x.gather(0, i.clamp(max=2)), x.gather(1, i), x.gather(-1, i[:2, :1]), x.gather(2, i[:, :, :1])),
        (X, ints(5, 2, 5, 3)),
    ),
    "gather of one value": (
        lambda x, i: (x.gather(0, i), x.gather(0, i[:1]), x.gather(-1, i[0])),
        (X[0, 0, 0], torch.zeros(3, dtype=torch.int64)),
    ),
    "take_along_dim": (
        lambda x, i: (
            torch.take_along_dim(x, i, 1),
            torch.take_along_dim(x, i.clamp(-3, 2), 0),
            torch.take_along_dim(x, i.abs()),
        ),
        (X, ints(5, 3, 1, 7, low=-5)),
    ),
    "take": (lambda x, i: torch.take(x, i), (X, ints(105, 4, 3, low=-105))),
    "one index": (lambda x, i: (x[i], x[:, i], x[..., i], x[:, :, i[0]], x[i[:1, 0]]), (X, ints(3, 2, 2, low=-3))),
    "several indices": (
        lambda x, i, j: (x[i, j], x[i, :, j], x[:, i, j], x[i[:, :1], j[0]], x[i, j, i], x[:, None, :, i][:, 0, j]),
        (X, ints(3, 4, 2, low=-3), ints(5, 4, 2)),
    ),
    "one-hot": (lambda i: (F.one_hot(i, 23), F.one_hot(i, 30).float()), (IDS,)),
    "reversed and rolled": (
        lambda x: (x.flip(0), x.flip(1, 2), x.roll(2, 1), x.roll((1, -3), (0, 2)), x.roll(4), torch.fliplr(x)),
        (X,),
    ),
    "a reversed value": (
        lambda x: (x[0, 0, 0].flip(-1),),
        (X,),
    ),
    "cross products": (
        lambda x, y: (
            torch.cross(x, y, dim=0),
            torch.linalg.cross(x[:, :1], y, dim=0),
            torch.linalg.cross(x.transpose(0, 2), y.transpose(0, 2)),
            torch.cross((x * 9).long(), (y * 9).long(), dim=-3),
            *_crossed_anywhere(x.transpose(0, 1), y.transpose(0, 1)),
        ),
        (X, floats(3, 5, 7).flip(2)),
    ),
    "bags of an embedding": (
        lambda i, w, s: (
            *(F.embedding_bag(i, w, mode=how) for how in ("sum", "mean", "max")),
            F.embedding_bag(i, w, mode="sum", per_sample_weights=s),
            F.embedding_bag(i[0], w, torch.arange(5), mode="mean"),
            F.embedding_bag(i[0], w, torch.arange(0, 6, 5), mode="sum", include_last_offset=True),
        ),
        (ints(23, 4, 5), W, floats(4, 5)),
    ),
    "diagonals": (
        lambda x: (x.diagonal(), x.diagonal(1, 1, 2), x.diagonal(-2, 2, 1), torch.diagonal(x[0], -1), x[0].diag()),
        (X,),
    ),
    "repeated": (lambda x: (x.repeat_interleave(3, 1), x.repeat_interleave(2), torch.eye(3), torch.eye(2, 5)), (X,)),
    "grouped attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        (Q, K, V),
    ),
    "grouped attention with a mask": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.4, enable_gqa=True),
        (Q, K, V, floats(5, 7) > 0),
    ),
    "attention with an added mask per batch": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        (Q[:, :2], K, V, floats(2, 1, 1, 7)),
    ),
    "attention with hidden rows": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        (Q[:, :2], K, V, torch.arange(7) < torch.arange(5)[:, None]),
    ),
    "causal grouped attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        (Q, K, V),
    ),
}

WRITES: dict[str, tuple[Forward, tuple[Any, ...]]] = {
    "scatter": (
        lambda x, i, s: (x.scatter(1, i, s), x.scatter(0, i.clamp(max=2), 2.5), x.scatter(2, i[:, :1], s)),
        (X, torch.stack([torch.randperm(5)] * 6, -1)[None].repeat(2, 1, 1), floats(3, 5, 7)),
    ),
    "scatter that adds": (
        lambda x, i, s: (
            x.scatter_add(1, i, s),
            x.scatter_reduce(1, i, s, "prod"),
            x.scatter(0, i.clamp(max=2), 1.5, reduce="add"),
        ),
        (X, ints(5, 3, 4, 7), floats(3, 5, 7)),
    ),
    "scatter that reduces": (
        lambda x, i, s: [
            x.scatter_reduce(1, i, s, how, include_self=own)
            for how in ("sum", "prod", "amax", "amin", "mean")
            for own in (True, False)
        ],
        (X, ints(4, 3, 4, 7), floats(3, 5, 7)),
    ),
    "truth values that are combined": (
        lambda x, i, s: (
            x.scatter_add(1, i, s),
            *(x.scatter_reduce(1, i, s, how, include_self=False) for how in ("sum", "prod", "amin")),
            *(x.scatter_reduce(1, i, s, how) for how in ("sum", "prod", "amax")),
            *(x.index_add(1, i[0, 0, :5], s, alpha=alpha) for alpha in (True, False)),
            x.index_put((i[:, 0, 0] % 3,), s[0], accumulate=True),
            x.put(i[:, 0], s[:4, 0], accumulate=True),
        ),
        (X > 0, ints(5, 3, 4, 7), floats(3, 5, 7) > 0),
    ),
    "index_add and kin": (
        lambda x, i, s: (
            x.index_add(1, i, s),
            x.index_add(1, i, s, alpha=2),
            x.index_copy(1, i[:2], s[:, :2]),
            x.scatter_add(1, i[None, :, None].expand(3, 3, 7), s),
            x.scatter_reduce(1, i[:, None].expand_as(s), s, "amax"),
            x.scatter_add(1, i[:, None].expand(3, 3, 7)[:, :2], s),
            x.scatter_add(1, i[:, None].expand(2, 3, 4), s),
            x.scatter_add(1, i[:1, None, None].expand(3, 3, 7), s),
            x[0].scatter_add(1, i[None], s[0]),
            x.index_fill(1, i, -1.0),
        ),
        (X, torch.tensor([4, 0, 0]), floats(3, 3, 7)),
    ),
    "index_reduce": (
        lambda x, i, s: [
            x.index_reduce(1, i, s, how, include_self=own)
            for how in ("prod", "amax", "amin", "mean")
            for own in (True, False)
        ],
        (X, torch.tensor([4, 0, 0]), floats(3, 3, 7)),
    ),
    "put": (
        lambda x, i, s: (x.put(i, s), x.put(i - 2, s, accumulate=True), x[0, 0, 0].put(i[:1, :1] * 0, s[:1, :1])),
        (X, torch.tensor([[1, 0], [70, 11]]), floats(2, 2)),
    ),
    "index_put": (
        lambda x, i, j, v, one: (
            x.index_put((i, j), v),
            x.index_put((i, j), one, accumulate=True),
            x.index_put((i - 3,), one),
            torch.ops.aten.index_put(x, [None, j], v[:, None, :]),
            torch.ops.aten.index_put(torch.stack([x, -x]), [None, i, None, j], v[:, :1, None]),
        ),
        (X, torch.tensor([0, 2, 1]), torch.tensor([4, 1, 0]), floats(3, 7), torch.tensor(2.0)),
    ),
    "masked writes": (
        lambda x, m, v: (x.index_put((m,), v), x.masked_fill(m, 3.0), x.index_put((m[0],), v)),
        (X[:, :3, :3].contiguous(), floats(3, 3, 3) > 0, torch.tensor(2.0)),
    ),
    "written slices": (
        lambda x, s: (
            x.slice_scatter(s, 1, 1, 4),
            x.slice_scatter(s[:, :2], 1, 1, 5, 2),
            x.slice_scatter(s[:, :2], 1, -2),
            x.select_scatter(s[:, 0], 1, -1),
            x.select_scatter(s[0, :, :].T[:5], 0, 1) if x.shape[2] == 3 else x,
        ),
        (X, floats(3, 3, 7)),
    ),
    "copies into slices": (_copied, (floats(6, 7), floats(6, 7) + 1, torch.arange(7), floats(6).half())),
    "diagonals": (_diagonals, (floats(5, 3, 6), floats(5, 6))),
    "filled diagonals": (_filled_diagonals, tuple(floats(*n) for n in ((6, 7), (7, 6), (9, 3), (3, 3, 3), (1, 4)))),
    "strides": (_strided, (floats(6, 7), floats(3, 2))),
}


SPECIAL = torch.tensor([[1.0, torch.nan, 3.0, torch.nan], [2.0, 5.0, 5.0, 0.0], [-0.0, 0.0, -torch.inf, -1.0]])

ORDERS: dict[str, tuple[Forward, tuple[Any, ...]]] = {
    "places of extremes": (
        lambda x: (
            x.argmax(),
            x.argmin(0),
            x.argmax(-1, True),
            x.max(1),
            x.min(-1, True),
            x.sum().argmax(),
            x.aminmax(),
        ),
        (X,),
    ),
    "places of ties and NaN": (lambda x: (x.argmax(-1), x.argmin(-1), x.max(0), x.min(1), x.argmax()), (SPECIAL,)),
    "places in integers": (lambda i: (i.argmax(0), i.min(-1), (i > 3).max(1), i.argmin()), (ints(9, 6, 8),)),
    "running sums": (
        lambda x, i: (x.cumsum(0), x.cumsum(1) * 2, x.cumsum(-1), i.cumsum(0), (i > 3).cumsum(-1), x.sum().cumsum(0)),
        (X, ints(9, 6, 8)),
    ),
    "running sums in logarithms": (
        lambda x, y: (x.logcumsumexp(0), x.logcumsumexp(-1), y.logcumsumexp(1), y.sum().logcumsumexp(0)),
        (SPECIAL, X),
    ),
    "running products and extremes": (
        lambda x: (x.cumprod(1), x.cummax(-1)[0], x.cummin(0).values, x.cumsum(0, dtype=torch.float64)),
        (X,),
    ),
    "places of running extremes": (
        lambda x, i: (x.cummax(-1), x.cummin(0), i.cummax(1), i.cummin(-1), x.sum().cummax(0), (i > 3).cummax(1)),
        (SPECIAL, ints(9, 6, 8)),
    ),
    "sorting": (
        lambda x: (
            x.sort(),
            x.sort(1, descending=True),
            x.argsort(0),
            x.topk(3),
            x.topk(2, 0, largest=False),
            x.sort(0)[0],
        ),
        (X,),
    ),
    "sorting with ties and NaN": (
        lambda x: (x.sort(stable=True), torch.sort(x, stable=True, descending=True), x.argsort(dim=0, stable=True)),
        (SPECIAL,),
    ),
    "values in the middle": (
        lambda x: (
            x.median(),
            x.median(0),
            x.median(-1, keepdim=True),
            x.kthvalue(2),
            x.kthvalue(3, 1, True),
            x.msort(),
        ),
        (X,),
    ),
    "values in the middle among NaN": (
        lambda x: (x.median(), x.median(0)[0], x.median(1)[0], x.median(-1)[1]),
        (SPECIAL,),
    ),
    "masked scatter": (
        lambda x, m, s: (x.masked_scatter(m, s), x[0].masked_scatter(m[0], s)),
        (X, X > 0, floats(11, 10)),
    ),
    "counting": (lambda x, b: (x.count_nonzero(), b.count_nonzero(1), b.any(), b.all(-1)), (SPECIAL, SPECIAL > 0)),
    "top places as indices": (
        lambda x, w: w[x.topk(2)[1]].sum(-1) + w[x.argmax(-1)][..., None, :1],
        (floats(5, 23), W),
    ),
}


def check(function: Forward, args: tuple[Any, ...], *others: tuple[Any, ...], library: bool = True) -> ft.Model:
    """Compare with torch what is imported for the first arguments and compiled once, for these and others."""
    module = Apply(function).eval()
    imported = from_module(module, args)
    assert parse(show(imported.model)) == imported.model
    fast = ft.optimize(module, args, machine=REFERENCE, library=library)
    for given in (args, *others):
        with torch.no_grad():
            expected = module(*given)
        found = imported.model.interpret(*[arg.numpy() for arg in imported.flatten(given)])
        assert_same(imported.unflatten(found), expected)
        assert_same(fast(*given), expected)
    return imported.model


@pytest.mark.parametrize("name", READS)
def test_what_is_read_at_computed_indices_is_what_torch_reads(name: str) -> None:
    check(*READS[name])


BAGS: dict[str, Forward] = {
    "of different lengths": lambda i, w, _: [
        F.embedding_bag(i, w, begins) for begins in (torch.arange(2) * 3, torch.arange(7) // 2 * 2)
    ],
    "one is empty": lambda i, w, _: F.embedding_bag(i, w, torch.arange(9).clamp(max=7)),
    "what is after the last is left out": lambda i, w, _: F.embedding_bag(
        i, w, torch.arange(3) * 3, mode="sum", include_last_offset=True
    ),
    "padding": lambda i, w, _: [F.embedding_bag(i, w, torch.arange(7), padding_idx=at) for at in (3, 0)],
    "padding in a matrix": lambda i, w, _: [
        F.embedding_bag(i[:6].view(2, 3), w, mode=mode, padding_idx=3) for mode in ("sum", "mean")
    ],
    "begin where a tensor says": F.embedding_bag,
    "begin where a tensor says, with padding": lambda i, w, o: F.embedding_bag(i, w, o, mode="sum", padding_idx=7),
    "end where a tensor says": lambda i, w, o: F.embedding_bag(i, w, o, mode="sum", include_last_offset=True),
    "with weights": lambda i, w, o: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=w[:7, 0]),
    "the greatest": lambda i, w, _: F.embedding_bag(i[:6].view(3, 2), w, mode="max"),
}


@pytest.mark.parametrize("name", BAGS)
def test_bags_of_rows_are_those_of_torch(name: str) -> None:
    weight = floats(23, 17)
    weight[9], weight[7], weight[3, 2] = torch.nan, torch.inf, torch.nan
    indices = ([3, 9, 3, 7, 9, 5, 0], [3, 3, 3, 3, 7, 1, 3], [5, 9, 9, 5, 1, 2, 4])
    check(BAGS[name], *((torch.tensor(of_bags), weight, torch.tensor([0, 3, 3])) for of_bags in indices))


MAXIMA: dict[str, Forward] = {
    "different lengths": lambda i, w, _: F.embedding_bag(i, w, torch.arange(2) * 3, mode="max"),
    "padding": lambda i, w, _: F.embedding_bag(i, w, torch.arange(7), mode="max", padding_idx=3),
}


@pytest.mark.parametrize("name", MAXIMA)
def test_greatest_values_of_some_bags_are_found_by_torch(name: str) -> None:
    args = (ints(23, 7), W, torch.tensor([0, 3, 3]))
    module = Apply(MAXIMA[name]).eval()
    with pytest.raises(UnsupportedOpError, match=name):
        from_module(module, args)
    assert_same(ft.optimize(module, args, machine=REFERENCE)(*args), MAXIMA[name](*args))


@pytest.mark.parametrize("name", ORDERS)
def test_orders_along_an_axis_are_those_of_torch(name: str) -> None:
    check(*ORDERS[name])


HOLES = X.masked_fill((X > 0.5) | (ints(7, 3, 5, 1) == 0), torch.nan)
COUNTS: dict[str, tuple[Forward, Forward, tuple[Any, ...]]] = {
    "values in the middle of numbers": (
        lambda x, y, i: x.nanmedian(1)[0],
        lambda x, y, i: (
            x.nanmedian(),
            *(values.nanmedian(axis, axis > 0)[0] for values in (x, i, x[0, 0, 0]) for axis in (0, -1)),
            y.nanmedian(1),
        ),
        (HOLES, SPECIAL, ints(9, 6, 7)),
    ),
    "most frequent values": (
        lambda i, x: i.mode(),
        lambda i, x: (i.mode(0, True), (i > 1).mode(1)[0], x.mode(1)[0], i[0, 0].mode(), i[:, :1].mode()),
        (ints(4, 6, 9), torch.tensor([[-0.0, 0.0, 1.0], [math.inf, 2.0, math.inf], [3.0, 2.0, 1.0]])),
    ),
    "histograms": (
        lambda x, y, e: torch.histc(e / 10, 10, 0, 10),
        lambda x, y, e: (
            *(torch.histc(x, bins, low, high) for bins in (1, 7, 100) for low, high in ((-1, 1.5), (3, 3), (8, 9))),
            *(torch.histc(e, bins) for bins in (11, 60)),
            *(torch.histc(values, 5) for values in (x[0, 0, 0], e * 0 + 3)),
            torch.histc(y, 5, -2, 2),
        ),
        (X, SPECIAL, torch.arange(-10, 111, dtype=torch.float32)),
    ),
}


@pytest.mark.parametrize("name", COUNTS)
def test_what_is_counted_is_what_torch_counts(name: str) -> None:
    compiled, function, args = COUNTS[name]
    check(compiled, args)
    imported = from_module(Apply(function).eval(), args)
    assert_same(imported.unflatten(imported.model.interpret(*(arg.numpy() for arg in args))), function(*args))


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_at_computed_indices_is_what_torch_writes(name: str) -> None:
    torch.manual_seed(0)
    check(*WRITES[name])


BAD: dict[str, tuple[Forward, tuple[Any, ...], int]] = {
    "embedding, too large": (lambda w, i: F.embedding(i, w), (W, IDS), 23),
    "embedding, negative": (lambda w, i: F.embedding(i, w), (W, IDS), -1),
    "gather along the lanes": (lambda x, i: x.gather(-1, i), (W, ints(17, 23, 17)), 17),
    "an index below the wrapped ones": (lambda x, i: x[:, i], (W, ints(17, 9)), -18),
    "the second of two indices": (lambda x, i: x[i.clamp(0, 4), i], (W, ints(17, 9)), 17),
    "one-hot": (lambda i: F.one_hot(i, 23), (IDS,), 23),
    "embedding in a norm": (lambda w, i: F.layer_norm(F.embedding(i, w), (17,)), (W, IDS), 10**12),
    "scatter": (lambda x, i: x.scatter(1, i, 1.0), (W, ints(17, 23, 3)), 17),
}


@pytest.mark.parametrize("name", BAD)
def test_an_index_that_torch_refuses_is_refused(name: str) -> None:
    function, args, index = BAD[name]
    fast = ft.optimize(Apply(function).eval(), args, machine=REFERENCE)
    assert_same(fast(*args), function(*args))
    wrong = args[-1].clone()
    wrong.view(-1)[wrong.numel() // 2] = index
    with pytest.raises((IndexError, RuntimeError)):
        function(*args[:-1], wrong)
    with pytest.raises(IndexRangeError, match="outside of 0"):
        fast(*args[:-1], wrong)
    assert_same(fast(*args), function(*args))


def test_strides_through_an_argument_ask_that_it_lies_in_order(tmp_path: Path) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    fast = ft.optimize(lambda x: x.as_strided((2, 3), (3, 1), 0) + 1, (x,), machine=REFERENCE)
    fast.save(tmp_path / "strided.frt")
    turned = x.reshape(3, 2).t()
    for call in (fast, ft.load(tmp_path / "strided.frt")):
        assert_same(call(x), x + 1)
        assert_same(torch.from_numpy(call(x.numpy())), x + 1)
        for view in (turned, torch.arange(12.0)[3:9].reshape(2, 3), turned.numpy()):
            with pytest.raises(ModelError, match=r"contiguous\(\).clone"):
                call(view)
        assert_same(call(turned.contiguous().clone()), turned + 1)


STRIDES: dict[str, tuple[Forward, str]] = {
    "of a transposed view": (lambda x: x.t().as_strided((3, 4), (7, 2), 1) + 1, "view of shape"),
    "of a part": (lambda x: x[2:].as_strided((3, 4), (7, 2)) + 1, "view of shape"),
    "beyond a part": (lambda x: x[:2].as_strided((5, 4), (7, 2)) + 1, "lead out of"),
}


@pytest.mark.parametrize("name", STRIDES)
def test_strides_through_memory_that_no_term_has_are_refused(name: str) -> None:
    function, message = STRIDES[name]
    with pytest.raises(ModelError, match=message):
        ft.optimize(function, (floats(6, 7),), machine=REFERENCE)


def test_no_operator_stands_in_two_tables() -> None:
    parts = (aten_indices, aten_layers, aten_quantized, aten_recurrent, aten_scalars, aten_special)
    counts = Counter(name for part in (*parts, aten_views, aten_windows) for name in part.ROWS)
    assert not [name for name, count in counts.items() if count > 1]
