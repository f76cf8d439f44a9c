"""Example arguments that are given by name, as functions and modules take them that have no other way."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import REFERENCE

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Scaled(nn.Module):
    def forward(self, x: Tensor, *, scale: Tensor) -> Tensor:
        return x * scale + 1


def scaled(x: Any, *, scale: Any) -> Any:
    return x * scale + 1


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {"machine": REFERENCE, "cache": tmp_path}


@pytest.mark.parametrize("model", [Scaled().eval(), scaled, torch.fx.symbolic_trace(Scaled().eval())])
def test_a_model_with_keywords(model: Any, options: dict[str, Any]) -> None:
    fast = ft.optimize(model, (X,), {"scale": X}, verify=True, tune="measure", **options)
    torch.testing.assert_close(fast(X, scale=X * 2), X * X * 2 + 1)
    assert fast.measure()


def test_a_function_of_arrays(options: dict[str, Any]) -> None:
    fast = ft.optimize(scaled, kwargs={"scale": X.numpy(), "x": X.numpy()}, verify=True, **options)
    np.testing.assert_allclose(fast(X.numpy(), scale=X.numpy()), X * X + 1, 1e-6)


def test_any_size(options: dict[str, Any]) -> None:
    dims = {"x": {0: torch.export.Dim("n")}, "scale": None}
    fast = ft.optimize(Scaled().eval(), (X,), {"scale": X[0]}, dynamic_shapes=dims, **options)
    torch.testing.assert_close(fast(X[:2], scale=X[0]), X[:2] * X[0] + 1)


def test_models_whose_inputs_have_places(options: dict[str, Any]) -> None:
    model = ft.parse("def main(x: f32[3]) -> f32[3]:\n    v: f32[3] = relu(x)\n    return v\n")
    with pytest.raises(ModelError, match=r"of a Model by name(.|\n)*by position"):
        ft.optimize(model, (), {"x": np.ones(3, np.float32)}, **options)
    with pytest.raises(ModelError, match=r"of an ONNX model by name(.|\n)*by position"):
        ft.optimize("model.onnx", (), {"x": np.ones(3, np.float32)}, **options)
