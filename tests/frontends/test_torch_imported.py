"""Calls of what came from torch: by position or by name, with and without defaults, as the module takes them."""

import pytest
import torch
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import REFERENCE
from frittata.frontends.torch_export import from_module

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def test_a_call_may_give_defaults_and_names() -> None:
    class Shifted(nn.Module):
        def forward(self, x: Tensor, n: int = 2, *, shift: Tensor | None = None, tag: str = "a") -> Tensor:
            return x * n if shift is None else x * n + shift

    imported = from_module(Shifted().eval(), (X,), {"shift": X + 1})
    for args, kwargs in (((X,), {"n": 2}), ((X, 2), {"tag": "a"}), ((), {"x": X})):
        first, second = imported.flatten(args, {**kwargs, "shift": X + 2})
        assert first is X and torch.equal(second, X + 2)
    with pytest.raises(ModelError, match=r"argument n is 3 and was 2(.|\n)*only tensors may have others"):
        imported.flatten((X, 3), {"shift": X})
    given = from_module(Shifted().eval(), (X, 4))
    assert given.flatten((X,), {"n": 4}) == [X]
    with pytest.raises(ModelError, match="argument n is 2 and was 4"):
        given.flatten((X,))


def test_an_argument_that_nothing_reads_may_be_empty() -> None:
    fast = ft.optimize(lambda x, unused: x * 2, (X, X[:0]), machine=REFERENCE)
    assert torch.equal(fast(X, X[:0]), X * 2)
    with pytest.raises(ModelError, match=r"'unused' must be float32\[0, 4\]"):
        fast(X, X)


@pytest.mark.parametrize("freeze", [None, False])
def test_without_tensors_among_the_arguments_results_are_tensors(freeze: bool | None) -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(8, 3)

        def forward(self, count: int) -> tuple[Tensor, dict[str, Tensor], int]:
            turns = torch.polar(self.table.weight, self.table.weight)
            return torch.arange(count), {"rows": self.table(torch.arange(count)), "turns": turns}, count

    module = Positions().eval()
    fast = ft.optimize(module, (4,), machine=REFERENCE, freeze=freeze)
    with torch.no_grad():
        found, expected = fast(4), module(4)
    torch.testing.assert_close(found, expected)
    found[0].add_(1)
    torch.testing.assert_close(fast(4)[0], expected[0])
