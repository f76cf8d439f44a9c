"""Operators of ONNX against its own reference, against ONNX Runtime where there is one, and against numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import frittata as ft
from frittata.egraph import dtypes
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import REFERENCE
from frittata.frontends.onnx.importer import from_onnx

Array = np.ndarray[Any, np.dtype[Any]]
Law = Callable[..., Any]
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def model_of(
    nodes: Sequence[Any], inputs: Mapping[str, Array], known: Mapping[str, Array], opset: int, results: int = 1
) -> ModelProto:
    """Return a model with the results y0, y1, ...; operands that are no inputs are known."""
    of = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in inputs.items()}
    given = [helper.make_tensor_value_info(name, of[name], array.shape) for name, array in inputs.items()]
    stored = [numpy_helper.from_array(array, name) for name, array in known.items()]
    outputs = [ValueInfoProto(name=f"y{at}") for at in range(results)]
    graph = helper.make_graph(list(nodes), "one", given, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def one(name: str, inputs: Mapping[str, Array], opset: int = 17, results: int = 1, **options: Any) -> ModelProto:
    """Return a model of one operator; operands in capitals are known, those without letters are left out."""
    operands = [key if key.isalpha() else "" for key in inputs]
    node = helper.make_node(name, operands, [f"y{at}" for at in range(results)], **options)
    known = {key: array for key, array in inputs.items() if key.isupper()}
    return model_of([node], {key: inputs[key] for key in operands if key.islower()}, known, opset, results)


def laws(model: ModelProto, inputs: Mapping[str, Array]) -> dict[str, list[Array]]:
    """Return what ONNX Runtime says, if it is installed and has the operator, and what the reference says."""
    found: dict[str, Any] = {"reference": ReferenceEvaluator(model).run(None, dict(inputs))}
    if find_spec("onnxruntime"):
        runtime: Any = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        try:
            session = runtime.InferenceSession(model.SerializeToString(), options)
        except Exception:  # there are operators that it does not have for each dtype
            return found
        found["runtime"] = session.run(None, dict(inputs))
    return found


def agrees(model: ModelProto, given: Mapping[str, Array], law: Law | None = None, compiled: bool = False) -> None:
    """Compare results: with those of a law in numpy, else with those of all who run models."""
    inputs = {value.name: given[value.name] for value in model.graph.input}
    imported = from_onnx(model, list(inputs.values()))
    expected = {"numpy": [np.asarray(law(*given.values()))]} if law else laws(model, inputs)
    found = [imported.model.interpret(*inputs.values())]
    kinds = [term.dtype for term in imported.model.main.outputs]
    if compiled:
        result = ft.optimize(imported, machine=REFERENCE)(*inputs.values())
        found.append(result if isinstance(result, tuple) else (result,))
    for who, arrays in expected.items():
        for ours in found:
            for mine, right, kind in zip(ours, arrays, kinds, strict=True):
                assert np.shape(mine) == right.shape and dtypes.from_numpy(right.dtype) == kind, who
                np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-5, err_msg=who)


# ---- empty tensors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [{"x": (1, 2, 5, 8)}, {"x": (1, 5, 16), "num_heads": 2}])
def test_rotations_of_all_of_a_head(axes: dict[str, Any]) -> None:
    """The part that passes by is empty."""
    shape = axes["x"]
    operands = {"x": drawn(*shape), "c": drawn(1, 5, 4), "s": drawn(1, 5, 4)}
    options = {name: value for name, value in axes.items() if name != "x"}
    agrees(one("RotaryEmbedding", operands, 23, **options), operands)


def test_empty_parts_are_joined() -> None:
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=1),
        helper.make_node("Slice", ["x", "two", "one", "one"], ["c"]),
        helper.make_node("Neg", ["c"], ["d"]),
        helper.make_node("Shape", ["d"], ["shape"]),
        helper.make_node("Concat", ["a", "c", "b", "d"], ["e"], axis=-1),
        helper.make_node("Expand", ["e", "rest"], ["y0"]),
    ]
    known = {"sizes": ints(0, 3), "two": ints(2), "one": ints(1), "rest": ints(2, 1, 3)}
    operands = {"x": drawn(1, 3)}
    agrees(model_of(nodes, operands, known, 17), operands)
    with pytest.raises(ModelError, match=r"c is empty: shape 1x0"):
        from_onnx(model_of([*nodes[:2], helper.make_node("Mul", ["c", "x"], ["y0"])], operands, known, 17))


# ---- folding ---------------------------------------------------------------------------------------------------------


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
