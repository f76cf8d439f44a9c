"""What is known in an ONNX model is computed at import, as ONNX says, not as its reference does it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from onnx_models import Array, agrees, drawn, ints, model_of

from frittata.egraph.errors import IndexRangeError, ModelError, UnsupportedOpError
from frittata.frontends.onnx.importer import from_onnx


@pytest.mark.parametrize("opset", [9, 12])
def test_what_is_known_is_folded_as_the_opset_of_the_model_says(opset: int) -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["count"], ["shape"], axes=[0]),
        helper.make_node("Softmax", ["numbers"], ["shares"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["row"]),
        helper.make_node("Mul", ["row", "share"], ["y0"]),
    ]
    nodes.insert(2, helper.make_node("ReduceMax", ["shares"], ["share"], keepdims=0))
    scalar = [helper.make_node("Constant", [], ["numbers"], value=numpy_helper.from_array(np.ones((2, 2), np.float32)))]
    operands = {"x": drawn(1, 3)}
    model = model_of([*scalar, *nodes], operands, {"count": np.array(3)}, opset)
    agrees(model, operands, lambda x: x[0] / 4)


@pytest.mark.parametrize(
    ("opset", "axes", "shape"), [(9, [1, 0], (1, 1, 3)), (11, [-2, -1], (3, 1, 1)), (12, [2, 0], (1, 3, 1))]
)
def test_axes_of_what_is_known_are_inserted_in_any_order(opset: int, axes: list[int], shape: tuple[int, ...]) -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["numbers"], ["wide"], axes=axes),
        helper.make_node("Add", ["x", "wide"], ["y0"]),
    ]
    operands = {"x": np.zeros((3, 3, 3), np.int64)}
    model = model_of(nodes, operands, {"numbers": ints(3, 4, 5)}, opset)
    agrees(model, operands, lambda x: x + ints(3, 4, 5).reshape(shape))
    nodes[0].attribute[0].ints[0] = 7
    with pytest.raises(ModelError, match="axis 7"):
        from_onnx(model_of(nodes, operands, {"numbers": ints(3, 4, 5)}, opset))


WIDE = np.array([[[1, -2, 3], [-4, 5, 6]]], np.float32)


@pytest.mark.parametrize(
    ("name", "options", "law"),
    [
        ("GlobalMaxPool", {}, WIDE.max(-1, keepdims=True)),
        ("LpNormalization", {"p": 1}, WIDE / np.abs(WIDE).sum(-1, keepdims=True)),
        ("MaxPool", {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_LOWER"}, WIDE[..., ::2]),
    ],
)
def test_layers_of_what_is_known_are_computed_by_their_rows(name: str, options: dict[str, Any], law: Array) -> None:
    """The reference has these otherwise, or without some of the axes."""
    nodes = [
        helper.make_node("Constant", [], ["wide"], value=numpy_helper.from_array(WIDE)),
        helper.make_node(name, ["wide"], ["found"], **options),
        helper.make_node("Add", ["x", "found"], ["y0"]),
    ]
    operands = {"x": np.zeros(1, np.float32)}
    agrees(model_of(nodes, operands, {}, 13), operands, lambda x: x + law)


def test_known_values_beyond_all_integers_are_quantized_to_the_bound() -> None:
    nodes = [
        helper.make_node("Constant", [], ["wide"], value=numpy_helper.from_array(np.array([3e9, -3e9, 4], np.float32))),
        helper.make_node("QuantizeLinear", ["wide", "scale"], ["bytes"]),
        helper.make_node("Cast", ["bytes"], ["found"], to=1),
        helper.make_node("Add", ["x", "found"], ["y0"]),
    ]
    operands = {"x": np.zeros(3, np.float32)}
    model = model_of(nodes, operands, {"scale": np.array(2, np.float32)}, 13)
    agrees(model, operands, lambda x: x + np.array([255, 0, 2], np.float32))


def test_known_indices_out_of_range_are_refused() -> None:
    nodes = [
        helper.make_node("GatherElements", ["a", "i"], ["found"], axis=1),
        helper.make_node("Add", ["x", "found"], ["y0"]),
    ]
    table, operands = np.arange(12).reshape(3, 4), {"x": np.zeros((1, 1), np.int64)}
    for places, law in ((((-1, 0), (2, 1)), [[3, 0], [6, 5]]), (((1,),), [[1]])):
        model = model_of(nodes, operands, {"a": table, "i": np.array(places)}, 17)
        agrees(model, operands, lambda x, by=law: x + by)
    with pytest.raises(IndexRangeError, match="index 4 is outside of"):
        model = model_of(nodes, operands, {"a": table, "i": np.array([[4], [0], [0]])}, 17)
        from_onnx(model).model.interpret(*operands.values())


def test_a_long_range_does_not_drift() -> None:
    first, last, step = (np.array(value, np.float32) for value in (1000, 2000, 0.1))
    nodes = [helper.make_node("Range", ["a", "b", "c"], ["r"]), helper.make_node("Add", ["x", "r"], ["y0"])]
    operands = {"x": np.zeros(1, np.float32)}
    model = model_of(nodes, operands, {"a": first, "b": last, "c": step}, 17)
    (found,) = from_onnx(model).model.interpret(*operands.values())
    np.testing.assert_allclose(found, 1000 + np.arange(10000) * step.astype(np.float64), rtol=1e-7)


def test_what_the_reference_draws_is_not_folded() -> None:
    nodes = [
        helper.make_node("Constant", [], ["wide"], value=numpy_helper.from_array(WIDE)),
        helper.make_node("Dropout", ["wide", "ratio", "training"], ["found"]),
        helper.make_node("Add", ["x", "found"], ["y0"]),
    ]
    known = {"ratio": np.array(0.5, np.float32), "training": np.array(True)}
    with pytest.raises(ModelError, match="dropout in training mode is random"):
        from_onnx(model_of(nodes, {"x": WIDE}, known, 13))


def test_what_the_reference_cannot_fold_is_left_to_the_row() -> None:
    value = numpy_helper.from_array(np.array([[[3, 4]]], np.float32))
    nodes = [
        helper.make_node("Constant", [], ["c"], value=value),
        helper.make_node("GlobalLpPool", ["c"], ["norm"]),
        helper.make_node("Mul", ["x", "norm"], ["y0"]),
    ]
    operands = {"x": drawn(1, 1, 3)}
    agrees(model_of(nodes, operands, {}, 17), operands, lambda x: x * 5)


def test_a_number_takes_the_dtype_of_what_is_computed_and_stays_known() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
        g (float16[3,5] x, int64[4] pads) => (float16[n,m] y) <float low = {-1e30}> {
        fill = CastLike(low, x) y = Pad(x, pads, fill)
        }"""
    model = parser.parse_model(text)
    with pytest.raises(UnsupportedOpError, match=r"Pad \(operand 1 is computed at run time\)") as caught:
        from_onnx(model)
    assert "known={'pads': array}" in caught.value.do
    (padded,) = from_onnx(model, known={"pads": ints(0, 1, 0, 0)}).model.interpret(drawn(3, 5).astype(np.float16))
    assert padded.shape == (3, 6) and np.isneginf(padded[:, 0]).all()


def test_filters_of_the_mel_scale_of_any_size() -> None:
    numbers = {"bins": 80, "length": 512, "rate": 16000, "low": 20.0, "high": 7600.0}
    (law,) = ReferenceEvaluator(helper.make_node("MelWeightMatrix", [*numbers], ["y"])).run(None, numbers)
    nodes = [helper.make_node("MelWeightMatrix", [*numbers], ["w"]), helper.make_node("MatMul", ["x", "w"], ["y0"])]
    operands = {"x": drawn(3, 257)}
    model = model_of(nodes, operands, {name: np.asarray(number) for name, number in numbers.items()}, 18)
    agrees(model, operands, lambda x: x @ law)
