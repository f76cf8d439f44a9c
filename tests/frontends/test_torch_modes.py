"""Modules in training mode: refused where one looks at its mode, taken where it makes no difference."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial, wraps

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import REFERENCE
from frittata.frontends.torch_export import from_module

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Wrapper(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 1


class ByName(Wrapper):
    def forward(self, x: Tensor) -> Tensor:
        return x if getattr(self, "training") else self.inner(x)  # noqa: B009


class OfAMethod(Wrapper):
    @property
    def factor(self) -> int:
        return 2 if self.training else 3

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * self.factor


def decorated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @wraps(function)
    def called(*args: Tensor) -> Tensor:
        return function(*args)

    return called


class Decorated(Wrapper):
    @decorated
    def forward(self, x: Tensor) -> Tensor:
        return [x, self.inner(x)][int(not self.training)]


class Derived(Decorated):
    """It inherits what looks at the mode."""


class OfTheInstance(Wrapper):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self.forward = lambda x: inner(x) * (2 if self.training else 3)


class Cached(Wrapper):
    @cached_property
    def factor(self) -> int:
        return 2 if self.training else 3

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * self.factor


def scaled(module: nn.Module, x: Tensor) -> Tensor:
    return x * (2 if module.training else 3)


class Bound(Wrapper):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self.scaled = partial(scaled, self)

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(self.inner(x))


def hooked(module: nn.Module) -> nn.Module:
    def hook(module: nn.Module, _: object, result: Tensor) -> Tensor:
        return result * (2 if module.training else 3)

    module.register_forward_hook(hook)
    return module


REFUSED = {
    "dropout": nn.Sequential(nn.Linear(3, 3), nn.Dropout()),
    "a part of a part": Wrapper(Wrapper(nn.BatchNorm1d(3))),
    "a property": OfAMethod(nn.Linear(3, 3)),
    "by name": ByName(nn.Linear(3, 3)),
    "decorated": Decorated(nn.Linear(3, 3)),
    "derived": Derived(nn.Linear(3, 3)),
    "an attribute": OfTheInstance(nn.Linear(3, 3)),
    "cached": Cached(nn.Linear(3, 3)),
    "bound": Bound(nn.Linear(3, 3)),
    "a hook": hooked(nn.Linear(3, 3)),
    "a hook of torch": nn.utils.spectral_norm(nn.Linear(3, 3)),
}
NAMES = {"dropout": r"1 \(Dropout\)", "a part of a part": r"inner.inner \(BatchNorm1d\)", "derived": "which Derived"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_module_that_looks_at_its_mode_is_refused_in_training(name: str) -> None:
    module = REFUSED[name].train()
    with pytest.raises(ModelError, match=rf"training mode(.|\n)*{NAMES.get(name, '')}(.|\n)*model.eval\(\)"):
        from_module(module, (X,))
    (found,) = from_module(module.eval(), (X,)).model.interpret(X.numpy())
    np.testing.assert_allclose(found, module(X).detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("inner", [nn.Linear(3, 3), nn.Sequential(nn.LayerNorm(3), nn.GELU()), nn.Dropout().eval()])
def test_a_mode_that_nothing_looks_at_makes_no_difference(inner: nn.Module) -> None:
    module = Wrapper(inner)
    assert module.training
    (found,) = from_module(module, (X,)).model.interpret(X.numpy())
    np.testing.assert_allclose(found, module(X).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_what_is_put_in_the_place_of_a_method_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Wrapper(nn.Linear(3, 3))
    from_module(module, (X,))
    monkeypatch.setattr(Wrapper, "forward", ByName.forward)
    with pytest.raises(ModelError, match="training mode"):
        from_module(module, (X,))


def test_a_function_has_no_mode() -> None:
    dropout = nn.Dropout().eval()
    fast = ft.optimize(lambda x: dropout(x) if dropout.training else x + 1, (X,), machine=REFERENCE)
    torch.testing.assert_close(fast(X), X + 1)


def test_a_name_that_is_not_bound_yet_is_passed_over() -> None:
    class Refers(Wrapper):
        def later(self) -> int:
            return factor

    (found,) = from_module(Refers(nn.Identity()), (X,)).model.interpret(X.numpy())
    np.testing.assert_allclose(found, X.numpy() + 1, rtol=1e-6)
    factor = 2
    assert Refers(nn.Identity()).later() == factor
