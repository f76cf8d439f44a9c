"""Numbers that are made of values: what `item()` gives, indices without axes, and what Python computes with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import frittata as ft
from frittata.egraph.errors import IndexRangeError, ModelError
from frittata.egraph.machine import REFERENCE

_GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(4, 5, generator=_GENERATOR)
WHOLE = torch.randint(-5, 9, (4, 5), generator=_GENERATOR)
AT, T = torch.tensor(2), torch.tensor(1.5)


def viterbi(scores: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
    """The best path: (times, states), (states, states) -> (times), ()."""
    best, back = scores[0], list[Tensor]()
    for score in scores[1:]:
        best, at = (best[:, None] + steps).max(0)
        best = best + score
        back.append(at)
    last = best.argmax()
    path = [last]
    for at in reversed(back):
        last = at[last]
        path.append(last)
    return torch.stack(path[::-1]), best.max()


def written(x: Tensor, at: Tensor, t: Tensor, whole: Tensor) -> list[Tensor]:
    """Arrays that numbers without axes were written to, and at such places."""
    results = [x.clone(), x.clone(), x.clone(), whole.to(torch.int8)]
    results[0][at] = t
    results[1][None, 1:3, -at] = x.double()[:1, :2]
    results[2][at, at - 1] *= 2
    results[3][..., at.int()] = 7
    return results


def written_beside_others(x: Tensor, at: Tensor, t: Tensor, whole: Tensor) -> list[Tensor]:
    """Arrays that were written to at such places, met with indices that have axes."""
    results, cubes = [x.clone() for _ in range(4)], [torch.zeros(3, 4, 5) for _ in range(5)]
    results[0][at, torch.tensor([3, 1])] = x[0, :2]
    results[1][torch.tensor([2, 0, -1]), at] = t
    results[2][at - 4, [True, False, True, True, False]] = 2
    results[3][x > 1] = t
    cubes[0][at - 1, :, torch.tensor([0, 4])] = x[:2].T[:4]
    cubes[1][..., torch.tensor([[0], [3]]), at] = 1.5
    cubes[2][torch.tensor([0, 2]), None, at, 1::2] = x[:2, None, :2]
    cubes[3][at, torch.tensor([1, 3]), torch.tensor([0, 4])] += x[0, :2]
    cubes[4][torch.ones(3, 4).tril() == 1, at] = -1
    return [*results, *cubes]


def read_beside_others(x: Tensor, at: Tensor, t: Tensor, whole: Tensor) -> list[Tensor]:
    """What is read at such places, met with indices that have axes."""
    cube, some = x[:3, :, None] * x[0], torch.tensor([2, 0, -1])
    return [
        *(x[at, some], x[some, at], cube[at - 1, :, some]),
        *(cube[..., some[:, None], at], cube[some, None, at, 1::2], cube[at, at, some], cube[some, at, 1 - some]),
    ]


CASES: dict[str, Callable[..., Any]] = {
    "written": written,
    "written beside others": written_beside_others,
    "read beside others": read_beside_others,
    "a scale": lambda x, *_: x / x.max().item(),
    "arithmetic": lambda x, at, t, _: x * (2 * x.max().item() + 1) - (t.item() / 3 - at.item()),
    "powers": lambda x, at, t, _: (x ** at.item(), t.item() ** x, x / at.item() ** 0.5),
    "bounds": lambda x, at, t, _: (x.clamp(max=x.max().item() / 2), x.clamp(t.item() - 2, at.item())),
    "choices": lambda x, at, t, _: (torch.where(x > 0, x, t.item()), x.masked_fill(x > 0, -t.item())),
    "filled": lambda x, at, t, _: (torch.full((3,), t.item()), torch.full_like(x, at.item()), torch.tensor(t.item())),
    "slices": lambda x, at, *_: (x[at], x[:, at], x[-at.item()], x[at - 4], x[at.item() + 1 - at.item() // 2]),
    "comparisons": lambda x, at, t, w: (x > t.item(), w > t.item(), w == at.item(), w % 3 <= at.item() % 2),
    "integers": lambda x, at, t, w: (w + at.item(), w * t.item(), w / at.item(), w // at.item(), w % at.item()),
    "narrow integers": lambda x, at, t, w: (w.to(torch.int8) + at.item(), w.to(torch.uint8) * t.item()),
    "halves": lambda x, at, t, _: (x.half() * t.item(), x.bfloat16() + t.item(), x.half() > t.item()),
    "halves that round": lambda x, at, t, _: tuple(
        value
        for half in (x.half(), x.bfloat16(), torch.full_like(x, 0.1).half())
        for number in [(t / 15).item()]
        for value in (half < number, half == number, half % number, torch.fmod(half, number), half.abs() ** number)
    ),
    "halves without axes": lambda x, at, t, _: (
        t.half() * t.item(), t.bfloat16() - at.item(), t.half() / at.item(), t.bfloat16().clamp(max=at.item())
    ),
    "doubles": lambda x, *_: x.double() * x.max().item(),
    "no axes": lambda x, at, t, _: (t * t.item(), t + at.item(), at * t.item(), at + at.item()),
    "the other way round": lambda x, at, t, _: (t.item() - x, t.item() / x, torch.lerp(x, 2 * x, t.item())),
}


@pytest.mark.parametrize("name", CASES)
def test_they_take_part_as_they_do_in_torch(name: str) -> None:
    args = (X, AT, T, WHOLE)
    wanted = CASES[name](*args)
    others = X.flip(0) / 2, AT - 1, T + 1, WHOLE.flip(1)
    found = ft.optimize(CASES[name], others, machine=REFERENCE, fallback="error")(*args)
    for one, other in zip(pytree.tree_leaves(found), pytree.tree_leaves(wanted), strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


def test_a_path_is_walked_by_indices_without_axes() -> None:
    args = (X.repeat(3, 1), torch.randn(5, 5, generator=_GENERATOR))
    others = tuple(map(torch.zeros_like, args))
    found = ft.optimize(viterbi, others, machine=REFERENCE, fallback="error")(*args)
    torch.testing.assert_close(found, viterbi(*args))


def test_an_index_out_of_range_is_an_error() -> None:
    fast = ft.optimize(lambda x, at: x[at], (X, AT), machine=REFERENCE)
    torch.testing.assert_close(fast(X, torch.tensor(-4)), X[0])
    for at in (4, -5):
        with pytest.raises(IndexRangeError, match=r"outside of 0 \.\. 3"):
            fast(X, torch.tensor(at))


def test_a_byte_is_no_index() -> None:
    with pytest.raises(ModelError, match="uint8, which is a mask"):
        ft.optimize(lambda x, at: x[at], (X, torch.tensor(2, dtype=torch.uint8)), machine=REFERENCE)


def test_dims_take_part_in_numbers() -> None:
    shapes = ({0: torch.export.Dim("n")}, None)
    fast = ft.optimize(lambda x, t: x * (x.shape[0] * t.item()), (X, T), machine=REFERENCE, dynamic_shapes=shapes)
    torch.testing.assert_close(fast(X[:3], T), X[:3] * 4.5)


REFUSED: dict[str, Callable[..., Any]] = {
    "a shape": lambda x, at, _: torch.arange(at.item()),
    "an extent": lambda x, at, _: x[: at.item()],
    "a distance": lambda x, at, _: torch.roll(x, at.item(), 0),
    "a slope": lambda x, at, t: F.leaky_relu(x, t.item()),
    "a factor by name": lambda x, at, t: torch.add(x, x, alpha=t.item()),
    "a result": lambda x, at, t: (x, t.item()),
    "complex numbers": lambda x, at, t: torch.where(x > 0, torch.complex(x, x), t.item()).real,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_takes_only_numbers_that_are_known_says_so(name: str) -> None:
    with pytest.raises(ModelError, match="made of the values") as caught:
        ft.optimize(REFUSED[name], (X, AT, T), machine=REFERENCE)
    assert caught.value.do.startswith("leave it a tensor: x.max() in place of x.max().item()")


class Cache(nn.Module):
    """Keeps rows at the places where it is, in three of the ways to write that."""

    rows: Tensor
    at: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(7, 5))
        self.register_buffer("at", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.rows[self.at] = x[0]
        self.rows[self.at] += 1
        self.rows[self.at + torch.arange(1, 3)] = x[1:3]
        self.at.add_(2)
        return self.rows.sum(0)


def test_a_cache_is_written_where_its_buffer_says_at_each_call() -> None:
    model, other = Cache().eval(), Cache().eval()
    fast = ft.optimize(model, (X,), machine=REFERENCE, fallback="error")
    for scale in (1, 2, 3):
        torch.testing.assert_close(fast(X * scale), other(X * scale))
    assert model.at == 6
    with pytest.raises(IndexRangeError, match=r"index [78] is outside of 0 \.\. 6"):
        fast(X)
