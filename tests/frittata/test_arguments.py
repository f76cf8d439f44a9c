"""Arguments as arrays, wherever they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import frittata
from frittata import arguments, dynamo
from frittata.egraph.errors import ModelError


class OnDevice:
    """A tensor that says it lies on a device."""

    is_cuda = True
    device = torch.device("cuda:0")

    def __init__(self, value: torch.Tensor) -> None:
        self._value = value

    def detach(self) -> Any:
        return self

    def cpu(self) -> torch.Tensor:
        return self._value


OnDevice.__module__ = "torch"


def test_what_lies_on_a_device_is_copied_to_the_host_only_where_that_is_wanted() -> None:
    value = torch.randn(3, 5)
    there = OnDevice(value)
    assert arguments.of(there, True) is there
    with pytest.raises(ModelError, match=r'on cuda:0(.|\n)*target="cuda"'):
        arguments.of(there, False)
    found = arguments.on_host(there)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, value.numpy())


def test_what_lies_on_the_host_is_not_copied() -> None:
    value = torch.randn(3)
    assert np.shares_memory(arguments.on_host(value), value.numpy())


@pytest.mark.parametrize("options", [{}, {"numerics": "exact"}, {"target": "other"}])
def test_torch_compile_compiles_for_the_device_of_the_arguments(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(dynamo, "CapturedGraph", lambda graph, optimize: optimize)
    monkeypatch.setattr(frittata, "optimize", lambda module, args, **options: given.append(options))
    optimize: Any = dynamo.backend(None, (), options=options)
    value = torch.randn(3)
    for args in ([value], [value, OnDevice(value)]):
        optimize(None, args)
    assert given == [options, {"target": "cuda", **options}]
