"""Empty tensors in ONNX models: what is computed of them and of what is known is the reference's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import frittata as ft
from frittata.egraph.errors import EmptyError, ModelError
from frittata.egraph.machine import REFERENCE

HEAD = '<ir_version: 8, opset_import: ["" : 18]> g '
LAYER = """(float[n,3] x) => (float[n,2] y, int64 count) <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, -1}> {
    z = Gemm(x, w, b) y = Softmax(z) count = Size(y)
    }"""
CASES = {
    "a layer": (LAYER, (0, 3)),
    "a layer at another size": (LAYER, (4, 3)),
    "an image": (
        """(float[n,3,5,5] x) => (float[n,2,2,2] y) <float[2,3,2,2] w = {"""
        + ", ".join(["1"] * 24)
        + """}> { z = Conv(x, w) r = Relu(z) y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r) }""",
        (0, 3, 5, 5),
    ),
    "a product": ("(float[3,n] x) => (float[3,3] y) { t = Transpose(x) z = MatMul(x, t) y = Exp(z) }", (3, 0)),
    "some of several": (
        """(float[3,n] x) => (float[3,m] a, float[3,n] y, float[k,n] b) <int64[2] sizes = {0, 3}> {
        b, y = Split<axis = 0>(x, sizes) a = Cast<to = 1>(x)
        }""",
        (3, 0),
    ),
    "beside values": (
        """(float[3,4] x) => (float[k,4] a, float[3,4] y) <int64[2] sizes = {0, 3}> {
        a, b = Split<axis = 0>(x, sizes) y = Neg(b)
        }""",
        (3, 4),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_empty_tensors_are_what_the_reference_makes_of_them(name: str, tmp_path: Path) -> None:
    text, shape = CASES[name]
    x, model = np.random.default_rng(0).standard_normal(shape).astype(np.float32), parser.parse_model(HEAD + text)
    expected: Any = ReferenceEvaluator(model).run(None, {"x": x})
    fast = ft.optimize(model, (x,), machine=REFERENCE)
    for one in (fast, ft.load(fast.save(tmp_path / "empty.ft"))):
        found = one(x)
        for result, law in zip(found if isinstance(found, tuple) else [found], expected, strict=True):
            np.testing.assert_allclose(result, law, rtol=1e-5)
            assert result.shape == np.shape(law) and result.dtype == np.asarray(law).dtype
    with pytest.raises(ModelError, match="'x' must be"):
        fast(np.ones((2, 2), np.float32))


def test_dims_may_be_zero() -> None:
    model = parser.parse_model(HEAD + LAYER)
    fast = ft.optimize(model, dynamic_shapes=True, machine=REFERENCE)
    assert fast.ranges == {"n": (0, None)}
    assert [fast(np.ones((rows, 3), np.float32))[0].shape for rows in (2, 0)] == [(2, 2), (0, 2)]


def test_what_meets_values_of_the_run_is_refused() -> None:
    text = "(float[1,4] x, float[n,4] none) => (float[n,4] y) { y = Add(x, none) }"
    with pytest.raises(EmptyError, match="none is empty: shape 0x4"):
        ft.optimize(parser.parse_model(HEAD + text), (np.ones((1, 4)), np.ones((0, 4))), machine=REFERENCE)
