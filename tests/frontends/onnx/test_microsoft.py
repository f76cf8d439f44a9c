"""Operators that ONNX Runtime's quantizer makes: each is floats in between, rounded to bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import frittata as ft
from frittata.egraph.errors import UnsupportedOpError
from frittata.egraph.machine import REFERENCE

Array = np.ndarray[Any, np.dtype[Any]]
ONE, TWO, THREE = (np.array(scale, np.float32) for scale in (0.02, 0.03, 0.05))
ODD = np.array(0.0317, np.float32)
"""A scale by which no quotient lies halfway between two integers."""
ZERO, FIVE = np.array(3, np.uint8), np.array(5, np.int8)


def optimized(node: Any, operands: dict[str, Array], inputs: str, result: Any) -> ft.Optimized:
    """Import one operator; operands that are no inputs are known."""
    of = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in operands.items()}
    given = [helper.make_tensor_value_info(n, of[n], operands[n].shape) for n in operands if n in inputs]
    known = [numpy_helper.from_array(value, name) for name, value in operands.items() if name not in inputs]
    y = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(result)), None)
    graph = helper.make_graph([node], "one", given, [y], known)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return ft.optimize(helper.make_model(graph, opset_imports=domains), machine=REFERENCE)


def floats(q: Array, scale: Array, zero: Array) -> Array:
    return (q.astype(np.float64) - zero) * scale.astype(np.float64)


def rounded(y: Array, scale: Array, zero: Array) -> Array:
    info = np.iinfo(zero.dtype)
    return np.clip(np.round(y / scale.astype(np.float64)) + zero, info.min, info.max).astype(zero.dtype)


def drawn(shape: tuple[int, ...], kind: Any) -> Array:
    return np.random.default_rng(len(shape)).integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)


def check(fast: ft.Optimized, given: list[Array], expected: Array) -> None:
    found = fast(*given)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    apart = np.abs(found.astype(np.int64) - expected.astype(np.int64))
    assert apart.max() <= 1 and np.mean(apart) < 0.05


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("rounds", [True, False])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_gemm(turned: int, rounds: bool, alpha: float) -> None:
    a, b = drawn((9, 33), np.uint8), drawn((33, 17), np.int8)
    rng = np.random.default_rng(0)
    by_column, none = rng.uniform(0.001, 0.002, 17).astype(np.float32), np.zeros(17, np.int8)
    c = rng.integers(-99, 99, 17).astype(np.int32)
    operands = {"a": a, "sa": ONE, "za": ZERO, "b": b.T.copy() if turned else b, "sb": by_column, "zb": none, "c": c}
    if rounds:
        operands |= {"sy": THREE, "zy": FIVE}
    node = helper.make_node("QGemm", list(operands), ["y"], domain="com.microsoft", transB=turned, alpha=alpha)
    fast = optimized(node, operands, "a", np.int8 if rounds else np.float32)
    product = floats(a, ONE, ZERO) @ (b * by_column.astype(np.float64))
    product = alpha * (product + c * (ONE * by_column.astype(np.float64)))
    if rounds:
        check(fast, [a], rounded(product, THREE, FIVE))
    else:
        np.testing.assert_allclose(fast(a), product, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "operator"), [("QLinearAdd", np.add), ("QLinearMul", np.multiply)])
def test_two_operands(name: str, operator: Callable[..., Array]) -> None:
    a, b = drawn((5, 7), np.int8), drawn((7,), np.int8)
    operands = {"a": a, "sa": ONE, "za": FIVE, "b": b, "sb": TWO, "zb": np.array(-2, np.int8), "sy": THREE, "zy": FIVE}
    fast = optimized(helper.make_node(name, list(operands), ["y"], domain="com.microsoft"), operands, "ab", np.int8)
    check(fast, [a, b], rounded(operator(floats(a, ONE, FIVE), floats(b, TWO, operands["zb"])), THREE, FIVE))


@pytest.mark.parametrize(
    ("name", "attributes", "meaning"),
    [
        ("QLinearSigmoid", {}, lambda x: 1 / (1 + np.exp(-x))),
        ("QLinearLeakyRelu", {"alpha": 0.25}, lambda x: np.where(x < 0, 0.25 * x, x)),
        ("QLinearGlobalAveragePool", {"channels_last": 0}, lambda x: x.mean((2, 3), keepdims=True)),
        (
            "QLinearAveragePool",
            {"kernel_shape": [2, 2], "strides": [2, 2], "channels_last": 0},
            lambda x: x.reshape(2, 3, 4, 2, 3, 2).mean((3, 5)),
        ),
    ],
)
def test_one_operand(name: str, attributes: dict[str, Any], meaning: Callable[[Array], Array]) -> None:
    x = drawn((2, 3, 8, 6), np.uint8)
    operands = {"x": x, "sx": ONE, "zx": ZERO, "sy": ODD, "zy": ZERO}
    node = helper.make_node(name, list(operands), ["y"], domain="com.microsoft", **attributes)
    check(optimized(node, operands, "x", np.uint8), [x], rounded(meaning(floats(x, ONE, ZERO)), ODD, ZERO))


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_without_zero_points_bytes_are_of_the_kind_of_the_operand(kind: Any) -> None:
    x, none = drawn((2, 3, 8, 6), kind), np.zeros((), kind)
    for name, second, law in (
        ("QLinearLeakyRelu", {}, lambda x: np.where(x < 0, 0.01 * x, x)),
        ("QLinearAveragePool", {}, lambda x: x.reshape(2, 3, 4, 2, 3, 2).mean((3, 5))),
        ("QLinearMul", {"b": x[0], "sb": ONE, "_": none}, lambda x: x * x[0]),
    ):
        operands = {"x": x, "sx": ONE, "": none} | second | {"sy": ODD}
        names = [key if key.isalpha() else "" for key in operands]
        pool: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]} if "Pool" in name else {}
        node = helper.make_node(name, names, ["y"], domain="com.microsoft", **pool)
        fast = optimized(node, {key: operands[key] for key in names if key}, "x", kind)
        check(fast, [x], rounded(law(floats(x, ONE, none)), ODD, none))


def test_concat() -> None:
    a, b = drawn((2, 3, 4), np.uint8), drawn((2, 5, 4), np.uint8)
    operands = {"sy": THREE, "zy": ZERO, "a": a, "sa": ONE, "za": ZERO, "b": b, "sb": TWO, "zb": ZERO}
    node = helper.make_node("QLinearConcat", list(operands), ["y"], domain="com.microsoft", axis=1)
    joined = np.concatenate([floats(a, ONE, ZERO), floats(b, TWO, ZERO)], 1)
    check(optimized(node, operands, "ab", np.uint8), [a, b], rounded(joined, THREE, ZERO))


def test_channels_last_is_refused() -> None:
    x = drawn((2, 8, 6, 3), np.uint8)
    operands = {"x": x, "sx": ONE, "zx": ZERO, "sy": ONE, "zy": ZERO}
    node = helper.make_node(
        "QLinearGlobalAveragePool", list(operands), ["y"], domain="com.microsoft", channels_last=1
    )
    with pytest.raises(UnsupportedOpError, match="channels_last"):
        optimized(node, operands, "x", np.uint8)
