"""Models of one operator of ONNX, and what ONNX Runtime and the reference say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from onnx import ModelProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import frittata as ft
from frittata.egraph import dtypes
from frittata.egraph.machine import REFERENCE
from frittata.frontends.onnx.importer import from_onnx

Array = np.ndarray[Any, np.dtype[Any]]
Law = Callable[..., Any]
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def integers(low: int, high: int, *shape: int, dtype: Any = np.int64) -> Array:
    return RNG.integers(low, high, shape).astype(dtype)


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
