"""What functions of torch tensors have from elsewhere is found wherever their code finds it, and guarded."""

import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import ModelError, StaleParametersError
from frittata.egraph.machine import REFERENCE

X = torch.linspace(-1, 1, 6).reshape(2, 3)

layer, scale = nn.Linear(3, 3).eval(), nn.Parameter(torch.full((3,), 2.0))
linear = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
half = nn.Linear(3, 3).eval()


def helper(x: Tensor) -> Tensor:
    return layer(x)


def repeated(x: Tensor, times: int = 2) -> Tensor:
    return repeated(x, times - 1) if times else helper(x)


def within(x: Tensor) -> Tensor:
    def inner(y: Tensor) -> Tensor:
        return layer(y)

    return inner(x)


class Held(nn.Module):
    """A module with parameters that it has not registered."""

    def __init__(self) -> None:
        super().__init__()
        self.factors, self.layers = [nn.Parameter(torch.ones(3))], {"first": nn.Linear(3, 3).eval()}
        self.act: Callable[[Tensor], Tensor] = lambda x: x * scale

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.layers["first"](x) * self.factors[0])


HELD = Held().eval()


class Spare:
    """A class that has a layer."""

    layer = nn.Linear(3, 3).eval()


class Slotted:
    """An object that has its attributes in slots, one of them empty."""

    __slots__ = ("__layer", "nothing")

    def __init__(self, inner: nn.Module) -> None:
        self.__layer = inner

    def __call__(self, x: Tensor) -> Tensor:
        return self.__layer(x)


slotted = Slotted(nn.Linear(3, 3).eval())
nested: dict[str, Any] = {"a": [{"b": ({"c": [{"d": [nn.Linear(3, 3).eval()]}]},)}]}
deep = nested["a"][0]["b"][0]["c"][0]["d"][0]

this = types.ModuleType("this")
this.layer = nn.Linear(3, 3).eval()  # type: ignore[attr-defined]


def by_default(x: Tensor, layer: nn.Module = half, *, other: nn.Module = layer) -> Tensor:
    return layer(x) + other(x)


SOURCES: dict[str, tuple[Callable[[Tensor], Any], Tensor]] = {
    "a parameter": (lambda x: x * scale, scale),
    "by another function": (lambda x: helper(x), layer.weight),
    "by functions that call themselves": (repeated, layer.weight),
    "in a list of values": (lambda x: torch.stack([layer(x) * i for i in range(3)]), layer.bias),
    "in a function within": (within, layer.weight),
    "partial": (partial(lambda by, x: x * by, scale), scale),
    "named as methods of modules": (lambda x: half(x), half.weight),
    "of a class": (lambda x: Spare.layer(x), Spare.layer.weight),
    "of a module of Python": (lambda x: this.layer(x), this.layer.weight),
    "defaults": (by_default, half.bias),
    "defaults by name": (by_default, layer.bias),
    "in a slot": (lambda x: slotted(x), slotted._Slotted__layer.bias),  # type: ignore[attr-defined]
    "in many lists and dicts": (lambda x: nested["a"][0]["b"][0]["c"][0]["d"][0](x), deep.bias),
    "in a list of a module": (HELD, HELD.factors[0]),
    "a module in a dict of one": (HELD, HELD.layers["first"].bias),
    "by a function that a module has": (HELD, scale),
}


@pytest.mark.parametrize("name", SOURCES)
def test_writes_to_what_a_function_has_from_elsewhere_are_noticed(name: str, tmp_path: Path) -> None:
    source, parameter = SOURCES[name]
    fast = ft.optimize(source, (X,), machine=REFERENCE, cache=tmp_path)
    live = ft.optimize(source, (X,), machine=REFERENCE, cache=tmp_path, freeze=False)
    with torch.no_grad():
        torch.testing.assert_close(fast(X), source(X))
        parameter.mul_(1.5)
        with pytest.raises(StaleParametersError, match="was changed"):
            fast(X)
        torch.testing.assert_close(live(X), source(X))


def test_the_mode_of_modules_counts_where_another_function_calls_them(tmp_path: Path) -> None:
    dropout = nn.Dropout(0.5)

    def dropped(x: Tensor) -> Tensor:
        return dropout(x)

    with pytest.raises(ModelError, match="training mode"):
        ft.optimize(lambda x: dropped(x) + 1, (X,), machine=REFERENCE, cache=tmp_path)


def test_an_attribute_is_no_global_of_its_name(tmp_path: Path) -> None:
    """F.linear is not the module `linear` here, which is in training mode."""
    weight = torch.ones(2, 3)
    fast = ft.optimize(lambda x: torch.nn.functional.linear(x, weight), (X,), machine=REFERENCE, cache=tmp_path)
    torch.testing.assert_close(fast(X), X.sum(1, keepdim=True).expand(2, 2))
    assert linear.training
