"""Import of ONNX models: what torch exports agrees with torch; what cannot be imported is said at once."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from exported import drawn, to_onnx
from onnx import AttributeProto, TensorProto, helper, parser
from onnx.external_data_helper import set_external_data
from onnx_models import agrees as agrees_with_others
from onnx_models import drawn as values
from onnx_models import one
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.machine import REFERENCE
from frittata.frontends.onnx.importer import ImportedOnnx, from_onnx


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(12, 3, 17, batch_first=True, activation="gelu")
        self.table, self.out = nn.Embedding(11, 12), nn.Linear(12, 11)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.out(self.layers(self.table(x))), -1)


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(10, 30)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(x.shape[0], x.shape[1], 3, 2, 5).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.Conv2d(4, 6, 3, padding="same", groups=2, dilation=2),
        nn.Hardswish(),
        nn.AvgPool2d(2, 1, 1, count_include_pad=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )


def upsampling() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1, padding=1),
        nn.Upsample(size=(9, 10)),
        nn.InstanceNorm2d(3, affine=True),
        nn.LeakyReLU(0.1),
        nn.GroupNorm(3, 3),
        nn.SiLU(),
        nn.PReLU(),
        nn.Softplus(),
        nn.ELU(),
    )


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "mlp": lambda: (nn.Sequential(nn.Linear(7, 13), nn.GELU(), nn.Linear(13, 1), nn.Sigmoid()), torch.randn(5, 7)),
    "convolutions": lambda: (convolutional(), torch.randn(3, 2, 17, 15)),
    "upsampling": lambda: (upsampling(), torch.randn(1, 2, 5, 7)),
    "encoder": lambda: (Encoder(), torch.randint(0, 11, (2, 7))),
    "causal attention": lambda: (Causal(), torch.randn(2, 5, 10)),
}


def agrees(imported: ImportedOnnx, module: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        expected = module(x).numpy()
    found = imported.unflatten(imported.model.interpret(x.numpy()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", MODELS)
def test_what_torch_exports_agrees_with_torch(name: str) -> None:
    torch.manual_seed(0)
    module, x = MODELS[name]()
    agrees(from_onnx(to_onnx(drawn(module), x)), module, x)


@pytest.mark.parametrize("name", ["encoder", "convolutions"])
def test_what_the_newer_exporter_of_torch_gives_agrees_with_torch(name: str) -> None:
    torch.manual_seed(0)
    module, x = MODELS[name]()
    agrees(from_onnx(to_onnx(drawn(module), x, dynamo=True)), module, x)


def test_a_path_is_optimized_and_called_with_arrays(tmp_path: Path) -> None:
    module, x = MODELS["mlp"]()
    path = tmp_path / "model.onnx"
    onnx.save(to_onnx(drawn(module), x), path)
    fast = ft.optimize(path, machine=REFERENCE, cache=tmp_path)
    with torch.no_grad():
        expected = module(x).numpy()
    for found in (fast(x.numpy()), fast(x=x.numpy())):
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(ModelError, match="the model takes x; got 0 by position and y by name"):
        fast(y=x.numpy())


def test_symbolic_dims_are_bound_by_examples_or_by_name() -> None:
    module, x = MODELS["mlp"]()
    model = to_onnx(drawn(module), x, dynamic_axes={"x": {0: "batch"}})
    for imported in (
        from_onnx(model, [np.zeros((3, 7))]),
        from_onnx(model, [(3, 7)]),
        from_onnx(model, dims={"batch": 3}),
    ):
        agrees(imported, module, x[:3])
    with pytest.raises(ModelError, match="axis 0 of input x has the symbolic extent batch"):
        from_onnx(model)
    with pytest.raises(ModelError, match="axis 1 of input x is 7, not 8"):
        from_onnx(model, [(3, 8)])


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"batch": -3}, r"-3 is no extent\n  where: dims={'batch': ...}\n  to do: give an integer"),
        ({"batch": 2.5}, "2.5 is no extent"),
        ({"batch": "3"}, "'3' is no extent"),
        ({"batch": True}, "True is no extent"),
        ({"batch": 3, "rows": 4}, r"no input has a dim rows\n  to do: its symbolic dims are batch"),
    ],
)
def test_dims_that_bind_nothing_are_refused(dims: dict[str, Any], message: str) -> None:
    module, x = MODELS["mlp"]()
    model = to_onnx(drawn(module), x, dynamic_axes={"x": {0: "batch"}})
    with pytest.raises(ModelError, match=message):
        from_onnx(model, dims=dims)
    numbers: Any = {"batch": np.int64(3)}
    assert from_onnx(model, dims=numbers).model.main.inputs[0].shape == (3, 7)


def test_shapes_of_examples_are_of_integers() -> None:
    module, x = MODELS["mlp"]()
    model = to_onnx(drawn(module), x, dynamic_axes={"x": {0: "batch"}})
    with pytest.raises(ModelError, match=r"-3 is no extent\n  where: axis 0 of input x"):
        from_onnx(model, [(-3, 7)])
    with pytest.raises(ModelError, match="it has no symbolic dims"):
        from_onnx(to_onnx(drawn(module), x), dims={"batch": 3})


def test_known_inputs_have_their_dtypes() -> None:
    model = graph([helper.make_node("Neg", ["x"], ["y"])], ["y"])
    imported = from_onnx(model, known={"x": [[1, 2, 3], [4, 5, 6.5]]})
    assert imported.model.main.outputs[0].dtype == "f32"
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    assert from_onnx(model, known={"x": np.zeros((2, 3), np.int32)}).model.main.outputs[0].dtype == "i64"
    with pytest.raises(ModelError, match=r"known={'x': ...} is of float64\n  to do: input x takes int64"):
        from_onnx(model, known={"x": np.zeros((2, 3))})
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT8
    with pytest.raises(ModelError, match="is of int64, with numbers beyond int8"):
        from_onnx(model, known={"x": [[1, 2, 3], [4, 5, 300]]})


@pytest.mark.parametrize("dynamic_shapes", [None, True])
def test_a_file_that_is_no_model_is_an_error_that_keeps_its_cause(tmp_path: Path, dynamic_shapes: Any) -> None:
    text, empty, outer = (tmp_path / name for name in ("text.onnx", "empty.onnx", "outer.onnx"))
    text.write_text("a text\n")
    empty.touch()
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], np.ones(3, np.float32).tobytes(), raw=True)
    set_external_data(weight, "gone.bin")
    weight.ClearField("raw_data")
    outer.write_bytes(graph([helper.make_node("Mul", ["x", "w"], ["y"])], ["y"], [weight]).SerializeToString())
    for path, message, cause in (
        (tmp_path / "none.onnx", "none.onnx cannot be read: No such file", FileNotFoundError),
        (tmp_path, "cannot be read: Is a directory", IsADirectoryError),
        (text, "text.onnx is no ONNX model", Exception),
        (outer, "outer.onnx has weights that cannot be read", Exception),
        (empty, "empty.onnx is no ONNX model: it has no graph", None),
    ):
        with pytest.raises(ModelError, match=message) as error:
            ft.optimize(str(path), machine=REFERENCE, dynamic_shapes=dynamic_shapes)
        assert error.value.do
        assert isinstance(error.value.__cause__, cause) if cause else error.value.__cause__ is None
    with pytest.raises(ModelError, match="what these 7 bytes hold is no ONNX model"):
        ft.optimize(text.read_bytes(), machine=REFERENCE, dynamic_shapes=dynamic_shapes)
    with pytest.raises(ModelError, match="a int is no ONNX model"):
        from_onnx(3)


def test_the_bytes_of_a_file_are_a_model() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    model = graph([helper.make_node("Neg", ["x"], ["y"])], ["y"])
    fast = ft.optimize(model.SerializeToString(), machine=REFERENCE)
    np.testing.assert_array_equal(fast(x), -x)


def test_a_weight_that_is_not_there_is_an_error() -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], np.ones(3, np.float32).tobytes(), raw=True)
    set_external_data(weight, "gone.bin")
    weight.ClearField("raw_data")
    short = helper.make_tensor("w", TensorProto.FLOAT, [3], np.ones(3, np.float32).tobytes(), raw=True)
    short.raw_data = short.raw_data[:5]
    for stored in (weight, short):
        with pytest.raises(ModelError, match="initializer w cannot be read: ") as error:
            from_onnx(graph([helper.make_node("Mul", ["x", "w"], ["y"])], ["y"], [stored]))
        assert error.value.__cause__ is not None


def graph(nodes: Sequence[Any], outputs: Sequence[str], initializers: Sequence[Any] = (), **options: Any) -> Any:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    made = helper.make_graph(list(nodes), "g", inputs, declared, list(initializers))
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", options.pop("opset", 21))], **options)


def test_all_operators_without_a_row_are_listed_with_counts() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Unique", ["b"], ["c"], name="unique"),
        helper.make_node("NonZero", ["x"], ["d"]),
        helper.make_node("Resize", ["x", "", "scales"], ["e"], mode="sharp"),
    ]
    scales = helper.make_tensor("scales", TensorProto.FLOAT, [2], [2.0, 2.0])
    with pytest.raises(UnsupportedOpError) as error:
        from_onnx(graph(nodes, ["c", "d", "e"], [scales]))
    text = str(error.value)
    assert "NonZero x2 at a, d" in text and "Unique x1 at unique" in text and "Resize (mode sharp) x1 at e" in text
    assert "Relu" not in text


def test_an_attribute_without_a_meaning_may_be_what_it_is_unless_told() -> None:
    """What torch exports has every attribute: LSTM has `input_forget`."""
    given = {"x": values(2, 1, 3), "W": values(1, 16, 3), "R": values(1, 16, 4)}
    agrees_with_others(one("LSTM", given, hidden_size=4, input_forget=0), given)
    with pytest.raises(UnsupportedOpError, match="attribute input_forget"):
        from_onnx(one("LSTM", given, hidden_size=4, input_forget=1), [given["x"]])


def test_a_result_without_a_definition_is_an_error_only_where_it_is_used() -> None:
    nodes = [
        helper.make_node("BatchNormalization", ["x", *("w",) * 4], ["y", "mean"]),
        helper.make_node("Neg", ["mean"], ["z"]),
    ]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    assert from_onnx(graph(nodes[:1], ["y"], [weight])).model.main.outputs[0].op == "batch_norm"
    with pytest.raises(UnsupportedOpError, match=r"BatchNormalization \(result 1\) x1 at y"):
        from_onnx(graph(nodes, ["y", "z"], [weight]))


@pytest.mark.parametrize("opset", [7, 9, 13])
def test_a_batch_norm_of_old_that_gives_statistics_is_one_in_training(opset: int) -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    alone, all_ = (
        helper.make_node("BatchNormalization", ["x", *("w",) * 4], ["y", *more]) for more in ((), ("a", "b", "c", "d"))
    )
    assert from_onnx(graph([alone], ["y"], [weight], opset=opset)).model.main.outputs[0].op == "batch_norm"
    with pytest.raises(ModelError, match="batch norm with the statistics of the batch"):
        from_onnx(graph([all_], ["y"], [weight], opset=opset))


@pytest.mark.parametrize("options", [{}, {"is_test": 0}, {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}])
def test_a_batch_norm_before_opset_7_is_one_in_training_unless_it_says_otherwise(options: dict[str, Any]) -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    node = helper.make_node("BatchNormalization", ["x", *("w",) * 4], ["y"], **options)
    model = graph([node], ["y"], [weight], opset=5)
    if options.get("is_test"):
        assert from_onnx(model).model.main.outputs[0].op == "batch_norm"
    else:
        with pytest.raises(ModelError, match="batch norm with the statistics of the batch"):
            from_onnx(model)


def test_shape_arithmetic_is_folded_and_weights_stay_params() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["columns"]),
        helper.make_node("Mul", ["columns", "two"], ["wide"]),
        helper.make_node("Reshape", ["w", "wide"], ["v"]),
        helper.make_node("Slice", ["v", "zero", "columns"], ["row"]),
        helper.make_node("Add", ["x", "row"], ["y"]),
    ]
    numbers = [helper.make_tensor(n, TensorProto.INT64, [1], [i]) for i, n in enumerate(("zero", "one", "two"))]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 3], np.arange(6.0).tolist())
    model = from_onnx(graph(nodes, ["y"], [*numbers, weight])).model
    assert set(model.params) == {"w"}
    assert {term.op for term in model.main.walk()} == {"input", "param", "reshape", "slice", "add"}
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(model.interpret(x)[0], x + np.arange(3.0))


def test_functions_of_a_model_are_imported_with_their_attributes() -> None:
    body = [helper.make_node("Constant", [], ["c"]), helper.make_node("Mul", ["a", "c"], ["b"])]
    body[0].attribute.append(AttributeProto(name="value_float", type=AttributeProto.FLOAT, ref_attr_name="by"))
    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function("own", "Scale", ["a"], ["b"], body, opsets, ["by"])
    node = helper.make_node("Scale", ["x"], ["y"], domain="own", by=2.5)
    model = graph([node], ["y"], functions=[function])
    model.opset_import.append(helper.make_opsetid("own", 1))
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(from_onnx(model).model.interpret(x)[0], 2.5 * x)


def scaled_by(factor: float, name: str = "Scale", **options: Any) -> Any:
    """Return a function of one operand."""
    body = [helper.make_node("Constant", [], ["c"], value_float=factor), helper.make_node("Mul", ["a", "c"], ["b"])]
    return helper.make_function("own", name, ["a"], ["b"], body, [helper.make_opsetid("", 21)], **options)


def test_functions_may_have_the_names_of_operators_that_are_no_rows() -> None:
    for name in ("Shape", "Size", "If"):
        model = graph([helper.make_node(name, ["x"], ["y"], domain="own")], ["y"], functions=[scaled_by(3, name=name)])
        x = np.ones((2, 3), np.float32)
        np.testing.assert_array_equal(from_onnx(model).model.interpret(x)[0], 3 * x)


def test_functions_of_one_name_are_told_apart() -> None:
    functions = [scaled_by(2, overload="two"), scaled_by(5, overload="five")]
    nodes = [helper.make_node("Scale", ["x"], [kind], domain="own", overload=kind) for kind in ("two", "five")]
    x = np.ones((2, 3), np.float32)
    two, five = from_onnx(graph(nodes, ["two", "five"], functions=functions)).model.interpret(x)
    np.testing.assert_array_equal(two, 2 * x)
    np.testing.assert_array_equal(five, 5 * x)


def test_attributes_of_a_function_are_known_in_the_graphs_of_its_nodes() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18, "own" : 1]> g (float[2] x, bool c) => (float[2] y)
        { y = own.Leaky <slope = 0.25> (x, c) }
        <domain: "own", opset_import: ["" : 18]> Leaky <slope> (a, c) => (b) { b = If(c) <
            then_branch = t () => (float[2] r) { r = LeakyRelu<alpha: float = @slope>(a) },
            else_branch = e () => (float[2] r) { r = Neg(a) }> }"""
    model = from_onnx(parser.parse_model(text)).model
    x = np.array([-4, 4], np.float32)
    np.testing.assert_array_equal(model.interpret(x, np.array(True))[0], [-1, 4])


def test_the_branch_of_a_known_condition_is_imported() -> None:
    output = [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)]
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["r"])], "then", [], output)
    other = helper.make_graph([helper.make_node("Unique", ["x"], ["r"])], "else", [], output)
    nodes = [
        helper.make_node("Size", ["x"], ["size"]),
        helper.make_node("Equal", ["size", "six"], ["condition"]),
        helper.make_node("If", ["condition"], ["y"], then_branch=then, else_branch=other),
    ]
    six = helper.make_tensor("six", TensorProto.INT64, [], [6])
    assert from_onnx(graph(nodes, ["y"], [six])).model.main.outputs[0].op == "neg"


@pytest.mark.parametrize(("opset", "extents"), [(12, (1, 6)), (13, (2, 3))])
def test_rows_are_chosen_by_opset(opset: int, extents: tuple[int, int]) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = from_onnx(graph([node], ["y"], opset=opset)).model.interpret(x)
    wide = np.exp(x).reshape(extents)
    expected = wide / wide.sum(1 if opset == 12 else 0, keepdims=True)
    np.testing.assert_allclose(found, expected.reshape(2, 3), rtol=1e-5)


def test_an_input_that_is_no_tensor_or_has_no_dtype_of_ours_is_refused() -> None:
    model = graph([helper.make_node("Relu", ["x"], ["y"])], ["y"])
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT8E5M2
    with pytest.raises(ModelError, match="input x has FLOAT8E5M2"):
        from_onnx(model)
    model.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None))
    with pytest.raises(ModelError, match="input x is no tensor"):
        from_onnx(model)
