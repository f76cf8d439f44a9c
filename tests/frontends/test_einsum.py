"""Contractions by letters from torch: what torch computes, with and without a path, as few products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.egraph.terms import walk
from frittata.frontends.torch_export import from_module

X, Y, Z = torch.randn(7, 3, 5).double(), torch.randn(3, 5, 2).double(), torch.randn(2, 4).double()
SQUARE, FLAT = torch.randn(5, 5).double(), torch.randn(1, 5).double()

CASES: dict[str, tuple[str, tuple[torch.Tensor, ...], list[int] | None]] = {
    "two summed letters": ("btl,tlo->bo", (X, Y), None),
    "in another order": ("btl,tlo->obl", (X, Y), None),
    "three": ("btl,tlo,ok->bk", (X, Y, Z), None),
    "the last two first": ("btl,tlo,ok->bk", (X, Y, Z), [1, 2, 0, 1]),
    "the outer two first": ("btl,tlo,ok->bk", (X, Y, Z), [2, 0, 1, 0]),
    "a diagonal": ("bti,ii->bt", (X, SQUARE), None),
    "an ellipsis": ("...l,lk", (X, SQUARE), None),
    "an ellipsis that is summed over": ("...l,lk->lk", (X, SQUARE), None),
    "an extent of one": ("btl,tl->bt", (X, FLAT), None),
    "no letter left": ("btl,btl->", (X, X), None),
    "one operand": ("btl->lb", (X,), None),
    "spaces, and letters of both cases": ("b t B, a B", (X, FLAT), None),
}


class Einsum(nn.Module):
    def __init__(self, text: str, path: list[int] | None) -> None:
        super().__init__()
        self.text, self.path = text, path

    def forward(self, *operands: torch.Tensor) -> Any:
        return torch.ops.aten.einsum(self.text, operands, path=self.path)


@pytest.mark.parametrize("name", CASES)
def test_einsum_means_what_it_means_in_torch(name: str) -> None:
    text, operands, path = CASES[name]
    module = Einsum(text, path).eval()
    (found,) = from_module(module, operands).model.interpret(*(x.numpy() for x in operands))
    torch.testing.assert_close(torch.from_numpy(found), module(*operands), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize("text", ["ij->i", "ij->", "ij->ji", "ij,kl->i", "ij,jk->ik", "ij,ij->i"])
def test_integers_are_summed_as_torch_sums_them(text: str, dtype: torch.dtype) -> None:
    x = torch.arange(0, 240, 20).reshape(3, 4).to(dtype)
    operands = (x, x.T if "jk" in text else x)[: text.count(",") + 1]
    module = Einsum(text, None).eval()
    (found,) = from_module(module, operands).model.interpret(*(each.numpy() for each in operands))
    torch.testing.assert_close(torch.from_numpy(found), module(*operands))


def test_what_is_summed_stays_in_the_order_of_the_first_operand() -> None:
    model = from_module(Einsum("btl,tlo->bo", None).eval(), (X, Y)).model
    assert not [term for term in walk(*model.main.outputs) if term.op == "permute"]


@pytest.mark.parametrize("text", ["0i,i0->0", "i_->i", "\u00e9i->i", "i.->i"])
def test_axes_are_named_by_letters_as_numpy_has_it(text: str) -> None:
    operands = (np.ones((3, 3)),) * (text.count(",") + 1)
    with pytest.raises(ValueError):
        np.einsum(text, *operands)
    with pytest.raises(ModelError, match="for an axis"):
        ft.from_function(lambda *given: np.einsum(text, *given), operands)
