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


def test_a_model_alone(options: dict[str, Any]) -> None:
    text = "def main(x: f32[3], y: f32[3]) -> f32[3]:\n    v: f32[3] = sub(x, y)\n    return v\n"
    x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    fast = ft.optimize(ft.parse(text), kwargs={"y": y, "x": x}, verify=True, **options)
    for got in (fast(x, y), fast(x, y=y), fast(y=y, x=x)):
        np.testing.assert_array_equal(got, x - y)
    with pytest.raises(ModelError, match=r"takes no z(.|\n)*call it as f\(x=\*, y=\*\)"):
        fast(x, y, z=y)
    with pytest.raises(ModelError, match="x is given by position and by name"):
        fast(x, x=x)
    with pytest.raises(ModelError, match="lacks y"):
        fast(x)


def test_an_input_may_be_called_self(options: dict[str, Any]) -> None:
    script = ft.parse("def main(self: f32[n]) -> f32[n]:\n    v: f32[n] = add(self, self)\n    return v\n")
    fast = ft.optimize(script, dynamic_shapes=True, **options)
    one = np.ones(3, np.float32)
    assert fast(self=one).sum() == fast.at(n=3)(self=one).sum() == 6
    assert fast.at(n=3).verify(self=one).is_right


def test_onnx_inputs_have_places(options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"of an ONNX model by name(.|\n)*by position"):
        ft.optimize("model.onnx", (), {"x": np.ones(3, np.float32)}, **options)
