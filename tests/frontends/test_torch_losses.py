"""Losses that look at values in torch, or whose labels end where they say: written out, they are what it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.torch_arrays import array_of
from frittata.frontends.torch_export import from_module
from frittata.frontends.torch_functions import as_module

DICE = torch.Generator().manual_seed(0)
X, Y = torch.randn(7, 3, 5, generator=DICE), torch.randn(7, 3, 5, generator=DICE)
LABELS = torch.tensor([[1, 2, 2], [3, 4, 0], [1, 1, 1]])
SPOKEN, WANTED = torch.tensor([7, 6, 4]), torch.tensor([3, 2, 3])  # three equal labels need five times
ENDS = torch.tensor([7, 0, 0]), torch.tensor([0, 0, 2])
ENDING = torch.tensor([[0, 2, -1, 1, 1], [3, -1, 0, 0, 0], [4, 3, 2, 1, 0]])  # labels behind -1 do not count
SPECIAL = torch.tensor([0.5, torch.inf, -1.5, torch.nan, 2])


def ctc(*rest: Any, **named: Any) -> Callable[..., Tensor]:
    return lambda x, *lengths: F.ctc_loss(x.log_softmax(-1), *(lengths or rest), **named)


CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "labels": (ctc(reduction="none"), (X, LABELS, SPOKEN, WANTED)),
    "lengths that are known": (ctc(LABELS, (7, 6, 5), [3, 2, 3]), (X,)),
    "no path": (ctc(zero_infinity=True, reduction="sum"), (X, LABELS, SPOKEN, WANTED)),
    "nothing said, nothing wanted": (ctc(reduction="none"), (X, LABELS, *ENDS)),
    "no time": (ctc(), (X, LABELS, *ENDS)),
    "another blank": (ctc(blank=4), (X, LABELS % 4, SPOKEN, WANTED - 1)),
    "labels in a row": (ctc(reduction="sum"), (X, torch.tensor([1, 2, 4, 1, 3, 4]), SPOKEN, torch.tensor([3, 1, 2]))),
    "labels in a row, of known lengths": (ctc(torch.tensor([1, 2, 4, 1, 3, 4]), (7, 6, 4), (3, 1, 2)), (X,)),
    "no batch": (ctc(), (X[:, 0], LABELS[0, :2], torch.tensor(7), torch.tensor(2))),
    "one label": (lambda x, y: nn.CTCLoss()(x.log_softmax(-1), y, (7,) * 3, (1,) * 3), (X.double(), LABELS[:, :1])),
    "several labels": (lambda x, y: F.multilabel_margin_loss(x, y, reduction="none"), (X[0], ENDING)),
    "labels of one row": (lambda x, y: F.multilabel_margin_loss(x, y), (SPECIAL, ENDING[0])),
    "a class without an axis": (F.multilabel_margin_loss, (X[0, 0, 0], torch.tensor(0))),
    "several labels, added": (lambda x, y: nn.MultiLabelMarginLoss(reduction="sum")(x, y), (X[1].double(), ENDING)),
    "variances": (F.gaussian_nll_loss, (X, Y, Y.abs())),
    "a variance of each row": (lambda x, y, v: F.gaussian_nll_loss(x, y, v, reduction="none"), (X, Y, Y[..., 0].exp())),
    "one variance": (lambda x, y: nn.GaussianNLLLoss(full=True, eps=2, reduction="sum")(x, y, 0.5), (X, Y)),
    "a variance of each column": (F.gaussian_nll_loss, (X, Y, Y[:1].exp())),
}


@pytest.mark.parametrize("name", CASES)
def test_losses_are_as_torch_has_them(name: str) -> None:
    function, args = CASES[name]
    (law,) = from_module(as_module(function), args, fallback="error").model.interpret(*map(array_of, args))
    torch.testing.assert_close(torch.from_numpy(law), function(*args).double(), rtol=1e-5, atol=1e-5, equal_nan=True)


def test_a_loss_is_compiled_to_what_it_is() -> None:
    function, args = CASES["labels"][0], (X[:4], LABELS, SPOKEN.clamp(max=4), WANTED.clamp(max=2))
    fast = ft.optimize(function, args, machine=REFERENCE, fallback="error")
    torch.testing.assert_close(fast(*args), function(*args), rtol=1e-5, atol=1e-5)


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str]] = {
    "too many times": (ctc(), (X.repeat(40, 1, 1), LABELS, SPOKEN, WANTED), "280 times, more than 256"),
    "variances of another shape": (F.gaussian_nll_loss, (X, Y, Y[:2].exp()), "variances of shape"),
    "another reduction": (lambda x: F.gaussian_nll_loss(x, x, x.exp(), reduction="all"), (X,), "reduction='all'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name: str) -> None:
    function, args, what = REFUSED[name]
    with pytest.raises(ModelError, match=what):
        ft.optimize(function, args, machine=REFERENCE)
