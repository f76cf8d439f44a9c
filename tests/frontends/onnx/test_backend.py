"""ONNX's own tests of single operators, run by the interpreter."""

import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from frittata.egraph import dtypes
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.frontends.onnx import backend
from frittata.frontends.onnx.rows import ROWS
from frittata.frontends.onnx.tables import DTYPE_BY_ONNX

# What operators with a row refuse: each line is an answer that some case gets, and no case gets another.
REFUSED = (
    r"is empty",
    r"dropout in training mode is random",
    r"reads bits",
    r"the form of opset 8, which has a batch",
    r"the output_shape .* which is not",
)
LEAST_RIGHT = 1532

# Cases that align corners by what a scale asks for, 2.4 values; by the specification, ONNX Runtime and torch it
# is by what there is, 2 values.
LEFT_OUT = {f"test_resize_downsample_scales_{mode}_align_corners" for mode in ("linear", "cubic")}


def cases() -> Iterator[tuple[str, ModelProto, Sequence[Any]]]:
    """Yield name, model and data of the cases whose tensors have dtypes of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    for case in found:
        assert case.model is not None and case.data_sets is not None
        if case.name not in LEFT_OUT and all(kind in DTYPE_BY_ONNX for kind in kinds(case.model)):
            yield case.name, case.model, case.data_sets


def kinds(model: ModelProto) -> Iterator[int]:
    """Yield the dtypes of inputs, outputs and casts; 0 for what is no tensor."""
    for value in (*model.graph.input, *model.graph.output):
        yield value.type.tensor_type.elem_type
    for node in model.graph.node:
        yield from (attribute.i for attribute in node.attribute if attribute.name in ("to", "dtype"))


def array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def without_row(error: ModelError) -> bool:
    """Whether a list of operators has one without a row."""
    named = re.findall(r"^  (?:[\w.]+::)?(\w+) x\d", error.what, re.M) if isinstance(error, UnsupportedOpError) else []
    assert not set(named) & ROWS.keys()
    return bool(named)


def assert_near(name: str, ours: Any, law: Any) -> None:
    """Compare results: halves are rounded between operators there, and a tie in float32 is none in float64."""
    is_half = dtypes.is_float(dtypes.from_numpy(law.dtype)) and law.dtype.itemsize == 2
    rtol, atol = 1e-2 if is_half else 1e-3, 1 if name.startswith("test_dynamicquantizelinear") else 1e-5
    np.testing.assert_allclose(ours.astype("f8"), law.astype("f8"), rtol=rtol, atol=atol, err_msg=name)


def test_the_cases_of_operators_with_a_row_are_right_or_refused_for_a_reason_that_is_listed() -> None:
    right, answers = 0, list[str]()
    for name, model, data in cases():
        try:
            for inputs, outputs in data:
                found = backend.run_model(model, [array(value) for value in inputs])
                for ours, law in zip(found, map(array, outputs), strict=False):
                    assert (ours.dtype, ours.shape) == (law.dtype, law.shape), name
                    assert_near(name, ours, law)
            right += 1
        except ModelError as error:
            if not without_row(error):
                answers.append(f"{name}: {error.what}")
    assert not [answer for answer in answers if not any(re.search(reason, answer) for reason in REFUSED)]
    assert not [reason for reason in REFUSED if not any(re.search(reason, answer) for answer in answers)]
    assert right >= LEAST_RIGHT


def test_only_the_cpu_is_supported() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")


def test_as_many_inputs_are_given_as_the_model_has() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy")
    model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y]))
    (found,) = backend.run_model(model, [np.array([[-1, 2]], np.float32)])
    assert found.tolist() == [[0, 2]]
    with pytest.raises(ModelError, match="the model takes 1 inputs, got 2"):
        backend.run_model(model, [found, found])
