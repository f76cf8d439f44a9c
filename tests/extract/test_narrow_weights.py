"""Weights that are stored narrow are read narrow: kernels widen them, and scale what comes out."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch_cases import Apply

import frittata as ft
from frittata.egraph.machine import REFERENCE
from frittata.egraph.terms import size_bytes

X = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32))
RNG = np.random.default_rng(1)
BYTES = torch.from_numpy(RNG.integers(-128, 128, (512, 256)).astype(np.int8))
SCALE = torch.from_numpy(RNG.uniform(0.01, 0.02, (512, 1)).astype(np.float32))
BIAS = torch.from_numpy(RNG.standard_normal(512).astype(np.float32))


def read_bytes(fast: ft.Optimized) -> int:
    """Return the bytes of the constants of a program."""
    return sum(map(size_bytes, fast.program.constants.values()))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.linear(x, BYTES.float() * SCALE, BIAS),
        lambda x: F.linear(x, BYTES.float() * SCALE),
        lambda x: F.linear(x, SCALE * BYTES.float()),
        lambda x: x @ (BYTES.float() * SCALE).T,
        lambda x: x @ (BYTES.T.float() * SCALE.flatten()),
        lambda x: F.linear(x, BYTES.float() * 0.125, BIAS),
        lambda x: F.linear(x, BYTES.float()) * SCALE.flatten(),
    ],
)
def test_scales_are_taken_out_of_narrow_weights(function: object) -> None:
    fast = ft.optimize(Apply(function).eval(), (X,), machine=REFERENCE)  # type: ignore[arg-type]
    assert [kernel.template for kernel in fast.kernels] == ["contraction"]
    assert read_bytes(fast) <= 512 * 256 + 4 * 2 * 512
    assert "cast(load(" in fast.kernels[0].source
    torch.testing.assert_close(fast(X), function(X), rtol=1e-4, atol=1e-4)  # type: ignore[operator]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_weights_of_halves_stay_halves(dtype: torch.dtype, rows: int) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(256, 512).to(dtype).eval()
    x = torch.randn(rows, 256).to(dtype)
    fast = ft.optimize(layer, (x,), machine=REFERENCE)
    assert read_bytes(fast) <= 2 * 512 * 256 + 4 * 512
    with torch.no_grad():
        expected = layer(x)
    torch.testing.assert_close(fast(x).float(), expected.float(), rtol=2e-2, atol=2e-2)


def test_windows_read_weights_of_halves() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(32, 48, 5, stride=2).bfloat16().eval()
    x = torch.randn(1, 32, 15, 15).bfloat16()
    fast = ft.optimize(layer, (x,), machine=REFERENCE)
    assert read_bytes(fast) <= 2 * 48 * 32 * 25 + 4 * 48
    with torch.no_grad():
        expected = layer(x)
    torch.testing.assert_close(fast(x).float(), expected.float(), rtol=2e-2, atol=2e-2)


def test_weights_of_a_quantized_model_are_read_as_bytes() -> None:
    arrays = {"w": BYTES.numpy(), "s": SCALE.numpy().ravel(), "z": np.zeros(512, np.int8)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0),
        helper.make_node("Gemm", ["x", "d"], ["y"], transB=1),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, k]) for n, k in (("x", 256), ("y", 512)))
    stored = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "dense", [x], [y], stored), opset_imports=[onnx.helper.make_opsetid("", 21)]
    )
    fast = ft.optimize(model, (X.numpy(),), machine=REFERENCE)
    assert read_bytes(fast) <= 512 * 256 + 4 * 512
    expected = X @ (BYTES.float() * SCALE).T
    np.testing.assert_allclose(fast(X.numpy()), expected.numpy(), rtol=1e-4, atol=1e-4)


def test_what_is_not_narrow_is_folded_as_before() -> None:
    weight = Tensor(BYTES.float())
    fast = ft.optimize(Apply(lambda x: F.linear(x, weight * SCALE)).eval(), (X,), machine=REFERENCE)
    assert read_bytes(fast) == 4 * 512 * 256
