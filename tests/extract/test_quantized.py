"""Quantized models: zero points and scales leave the products, which are of integers; bytes lie between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch_cases import Apply

import frittata as ft
from frittata.egraph import terms
from frittata.egraph.machine import REFERENCE
from frittata.egraph.program import Kernel
from frittata.kernels.processor import processor

RNG = np.random.default_rng(0)
Array = np.ndarray[Any, np.dtype[Any]]
STEP = 0.02


def model(nodes: Sequence[Any], constants: dict[str, Array], shape: tuple[int, ...], result: Sequence[int]) -> Any:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, result)
    known = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(list(nodes), "quantized", [x], [y], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def requantized(name: str, result: str, scale: str, zero: str) -> list[Any]:
    """Round a tensor to bytes and take them for floats again."""
    return [
        helper.make_node("QuantizeLinear", [name, scale, zero], [f"{name}_q"]),
        helper.make_node("DequantizeLinear", [f"{name}_q", scale, zero], [result]),
    ]


def sums_of_integers(fast: ft.Optimized) -> list[Kernel]:
    """Return the kernels that multiply and add integers, which are bytes in memory."""
    found: list[Kernel] = []
    for kernel in fast.program.steps:
        if isinstance(kernel, Kernel):
            for term in terms.walk(*(output.body for output in kernel.outputs)):
                if term.op == "dot" and term.dtype == "i32":
                    leaves = {leaf.dtype for leaf in terms.walk(term) if leaf.op == "input" and leaf.shape}
                    assert leaves <= {"u8", "i8"}
                    found.append(kernel)
    return found


def reference(proto: Any, x: Array) -> Array:
    """Return what ONNX's own implementation gives."""
    evaluator: Any = ReferenceEvaluator(proto)
    return evaluator.run(None, {"x": x})[0]


def check(fast: ft.Optimized, proto: Any, x: Array) -> None:
    """Compare with ONNX's own reference: a step of the last rounding apart at most, in few places."""
    expected = reference(proto, x)
    apart = np.abs(fast(x) - expected)
    assert apart.max() <= 1.01 * STEP
    assert np.mean(apart > 0.5 * STEP) < 0.01


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("operator", ["Gemm", "MatMul"])
def test_dense_layers(kind: Any, zero: int, operator: str) -> None:
    """Scales are by column in half of the cases, so that any two choices meet in every way."""
    by_column = (kind is np.int8) ^ (zero == 3) ^ (operator == "MatMul")
    w, v = (RNG.integers(-127, 128, shape).astype(np.int8) for shape in ((512, 512), (512, 256)))
    turned = operator == "Gemm"
    constants: dict[str, Array] = {
        "w": w.T.copy() if turned else w,
        "v": v.T.copy() if turned else v,
        "b": RNG.standard_normal(512).astype(np.float32),
        "s": np.float32(STEP) * np.ones(()).astype(np.float32),
        "z": np.array(zero, kind),
        "t": RNG.uniform(0.001, 0.002, 512 if by_column else ()).astype(np.float32),
        "u": np.float32(0.0007) * np.ones(()).astype(np.float32),
        "n": np.zeros(512 if by_column else (), np.int8),
        "m": np.array(0, np.int8),
    }
    axis: dict[str, Any] = {"axis": 0 if turned else 1} if by_column else {}
    ways: dict[str, Any] = {"transB": 1} if turned else {}
    nodes = [
        *requantized("x", "a", "s", "z"),
        helper.make_node("DequantizeLinear", ["w", "t", "n"], ["wf"], **axis),
        helper.make_node("DequantizeLinear", ["v", "u", "m"], ["vf"]),
        helper.make_node(operator, ["a", "wf", "b"] if turned else ["a", "wf"], ["h"], **ways),
        helper.make_node("Relu", ["h"], ["r"]),
        *requantized("r", "c", "s", "z"),
        helper.make_node(operator, ["c", "vf"], ["g"], **ways),
        *requantized("g", "y", "s", "z"),
    ]
    proto = model(nodes, constants, (64, 512), (64, 256))
    fast = ft.optimize(proto, machine=REFERENCE)
    assert len(sums_of_integers(fast)) == 2
    check(fast, proto, RNG.standard_normal((64, 512)).astype(np.float32))


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [0, 5])
def test_convolutions(kind: Any, zero: int) -> None:
    stride, padding = (2, 0) if (kind is np.int8) ^ (zero == 5) else (1, 1)
    constants: dict[str, Array] = {
        "w": RNG.integers(-127, 128, (64, 3, 3, 3)).astype(np.int8),
        "v": RNG.integers(-127, 128, (48, 64, 3, 3)).astype(np.int8),
        "b": RNG.standard_normal(64).astype(np.float32),
        "s": np.array(STEP, np.float32),
        "z": np.array(zero, kind),
        "t": RNG.uniform(0.002, 0.004, 64).astype(np.float32),
        "u": np.array(0.001, np.float32),
        "n": np.zeros(64, np.int8),
        "m": np.array(0, np.int8),
    }
    window: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": [padding] * 4}
    nodes = [
        *requantized("x", "a", "s", "z"),
        helper.make_node("DequantizeLinear", ["w", "t", "n"], ["wf"], axis=0),
        helper.make_node("DequantizeLinear", ["v", "u", "m"], ["vf"]),
        helper.make_node("Conv", ["a", "wf", "b"], ["h"], **window),
        helper.make_node("Relu", ["h"], ["r"]),
        *requantized("r", "c", "s", "z"),
        helper.make_node("Conv", ["c", "vf"], ["g"], kernel_shape=[3, 3], pads=[1] * 4),
        *requantized("g", "y", "s", "z"),
    ]
    size = (33 + 2 * padding - 3) // stride + 1
    proto = model(nodes, constants, (1, 3, 33, 33), (1, 48, size, size))
    fast = ft.optimize(proto, machine=REFERENCE)
    counted = len(sums_of_integers(fast))
    assert counted == 2 or not processor().multiplies_bytes  # pairs may be dearer than Winograd's floats
    check(fast, proto, RNG.standard_normal((1, 3, 33, 33)).astype(np.float32))


def test_zero_points_that_are_computed() -> None:
    constants: dict[str, Array] = {"w": RNG.integers(-127, 128, (256, 80)).astype(np.int8)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["y"]),
    ]
    proto = model(nodes, constants, (24, 256), (24, 80))
    fast = ft.optimize(proto, machine=REFERENCE)
    assert len(sums_of_integers(fast)) == 1
    x = RNG.standard_normal((24, 256)).astype(np.float32)
    expected = reference(proto, x)
    np.testing.assert_allclose(fast(x), expected, rtol=2e-5, atol=1e-3)


def test_zero_points_leave_sums_before_these_are_rounded() -> None:
    w = torch.from_numpy(RNG.integers(100, 128, (4096, 24)).astype(np.int8))
    x = torch.from_numpy(RNG.integers(127, 130, (9, 4096)).astype(np.uint8))

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.float() - 128) @ w.float()

    fast = ft.optimize(Apply(function).eval(), (x,), machine=REFERENCE)
    assert len(sums_of_integers(fast)) == 1
    assert torch.equal(fast(x).long(), (x.long() - 128) @ w.long())


FILTERS = torch.from_numpy(RNG.standard_normal((32, 32, 3, 3)).astype(np.float32))


@pytest.mark.parametrize(
    "image",
    [
        lambda x, q: q.float() * torch.erf(x),
        lambda x, q: (q.float() - 7) * 0.1 + 0.0 * x[:, :1, :1, :1],
        lambda x, q: (q.float() - 7) * 0.1 + torch.relu(x),
    ],
)
def test_what_other_products_read_is_stored_as_floats(image: Any) -> None:
    def function(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv2d(image(x, q), FILTERS, padding=1)

    x = torch.from_numpy(RNG.standard_normal((1, 32, 56, 56)).astype(np.float32))
    q = torch.from_numpy(RNG.integers(0, 9, (1, 32, 56, 56)).astype(np.uint8))
    fast = ft.optimize(Apply(function).eval(), (x, q), machine=REFERENCE)
    assert "winograd" in [kernel.template for kernel in fast.kernels]
    torch.testing.assert_close(fast(x, q), function(x, q), rtol=1e-3, atol=1e-3)


def test_what_no_i32_holds_is_summed_in_floats() -> None:
    big = torch.full((4, 70_000), -128, dtype=torch.int8)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.float() @ big.T.float()

    x = torch.full((3, 70_000), 255, dtype=torch.uint8)
    fast = ft.optimize(Apply(function).eval(), (x,), machine=REFERENCE)
    assert not sums_of_integers(fast)
    torch.testing.assert_close(fast(x), torch.full((3, 4), -128.0 * 255 * 70_000), rtol=1e-3, atol=0.0)


def test_products_of_integers_wrap_around() -> None:
    w = torch.from_numpy(RNG.integers(-(2**31), 2**31, (40, 24)).astype(np.int32))

    def function(x: torch.Tensor) -> torch.Tensor:
        return x @ w

    x = torch.from_numpy(RNG.integers(-(2**31), 2**31, (9, 40)).astype(np.int32))
    fast = ft.optimize(Apply(function).eval(), (x,), machine=REFERENCE)
    assert [kernel.template for kernel in fast.kernels] == ["contraction"]
    assert torch.equal(fast(x), function(x))
