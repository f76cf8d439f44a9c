"""Recurrent layers of torch and of ONNX: what torch computes in double precision."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from frittata.egraph.errors import ModelError
from frittata.frontends.onnx.importer import from_onnx
from frittata.frontends.torch_export import from_exported_program, from_module

STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 4, 6
LAYERS: dict[str, Callable[..., nn.RNNBase]] = {
    "lstm": nn.LSTM,
    "lstm with projections": lambda *sizes, **given: nn.LSTM(*sizes, proj_size=2, **given),
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **given: nn.RNN(*sizes, nonlinearity="relu", **given),
}


class Flat(nn.Module):
    """A layer whose state and results are tensors beside each other."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        begun = state[0] if len(state) == 1 else state or None
        found, last = self.layer(x, begun)
        return (found, *last) if isinstance(last, tuple) else (found, last)


def made(name: str, **given: Any) -> nn.RNNBase:
    torch.manual_seed(0)
    return LAYERS[name](INPUTS, HIDDEN, **given).double().eval().requires_grad_(False)


def states(layer: nn.RNNBase) -> tuple[Tensor, ...]:
    count = layer.num_layers * (1 + layer.bidirectional)
    widths = (layer.proj_size or HIDDEN, HIDDEN) if isinstance(layer, nn.LSTM) else (HIDDEN,)
    return tuple(torch.randn(count, BATCH, width, dtype=torch.float64) for width in widths)


def assert_equal(found: tuple[Any, ...], law: tuple[Tensor, ...]) -> None:
    assert len(found) == len(law)
    for ours, theirs in zip(found, law, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_torch_layers_in_all_their_forms(name: str) -> None:
    """Half of all ways: any four of the five choices meet in every way."""
    for layers, both, first, bias in product((1, 2), *((False, True),) * 3):
        begun = (layers == 2) ^ both ^ first ^ bias
        layer = made(name, num_layers=layers, bidirectional=both, batch_first=first, bias=bias)
        x = torch.randn((BATCH, STEPS, INPUTS) if first else (STEPS, BATCH, INPUTS), dtype=torch.float64)
        args = (x, *(states(layer) if begun else ()))
        model = from_module(Flat(layer).eval(), args).model
        assert_equal(model.interpret(*(arg.numpy() for arg in args)), Flat(layer)(*args))


def test_one_sequence_without_a_batch() -> None:
    layer, x = made("lstm"), torch.randn(STEPS, INPUTS, dtype=torch.float64)
    model = from_module(Flat(layer).eval(), (x,)).model
    assert_equal(model.interpret(x.numpy()), Flat(layer)(x))


def test_dropout_in_training_mode_is_refused() -> None:
    layer = nn.LSTM(INPUTS, HIDDEN, num_layers=2, dropout=0.5)
    program = torch.export.export(Flat(layer).train(), (torch.randn(STEPS, BATCH, INPUTS),))
    with pytest.raises(ModelError, match="random"):
        from_exported_program(program)


ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
"""The gates as ONNX has them, by number in torch's order."""


def onnx_model(layer: nn.RNNBase, op: str, direction: str, layout: int, **given: Any) -> onnx.ModelProto:
    """Write a layer of torch as the one operator of a graph with its first state as inputs."""
    ways = ["", "_reverse"] if direction == "bidirectional" else [""]

    def stacked(*names: str) -> np.ndarray[Any, Any]:
        parts = [[getattr(layer, f"{name}_l0{way}").numpy() for name in names] for way in ways]
        turned = [[np.concatenate([np.split(p, len(ORDERS[op]))[n] for n in ORDERS[op]]) for p in way] for way in parts]
        return np.stack([np.concatenate(way) for way in turned])

    weights = {"w": stacked("weight_ih"), "r": stacked("weight_hh"), "b": stacked("bias_ih", "bias_hh")}
    begun = ["h", "c"][: 2 if op == "LSTM" else 1]
    results = ["y", "y_h", "y_c"][: 1 + len(begun)]
    node = helper.make_node(
        op, ["x", *weights, "", *begun], results, hidden_size=HIDDEN, direction=direction, layout=layout, **given
    )
    ends = [BATCH, len(ways), HIDDEN] if layout else [len(ways), BATCH, HIDDEN]
    shapes = {"x": [BATCH, STEPS, INPUTS] if layout else [STEPS, BATCH, INPUTS], **dict.fromkeys(begun, ends)}
    inputs = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name, shape in shapes.items()]
    outputs = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in results]
    stored = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph([node], "layer", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("op", "name", "given"),
    [
        ("LSTM", "lstm", {}),
        ("GRU", "gru", {"linear_before_reset": 1, "activations": ["Sigmoid", "Tanh"]}),
        ("RNN", "tanh", {}),
        ("RNN", "relu", {"activations": ["Relu", "Relu"]}),
    ],
)
def test_onnx_operators_in_all_directions(
    op: str, name: str, given: dict[str, Any], direction: str, layout: int
) -> None:
    layer = made(name, bidirectional=direction == "bidirectional")
    x, begun = torch.randn(STEPS, BATCH, INPUTS, dtype=torch.float64), states(layer)
    found, *last = Flat(layer)(x.flip(0) if direction == "reverse" else x, *begun)
    found = (found.flip(0) if direction == "reverse" else found).unflatten(2, (-1, HIDDEN)).transpose(1, 2)
    if layout:
        x, begun = x.transpose(0, 1), tuple(part.transpose(0, 1) for part in begun)
        found, last = found.permute(2, 0, 1, 3), [part.transpose(0, 1) for part in last]
    imported = from_onnx(onnx_model(layer, op, direction, layout, **given))
    assert_equal(imported.model.interpret(x.numpy(), *(part.numpy() for part in begun)), (found, *last))


def test_what_onnx_can_say_and_we_cannot_is_refused() -> None:
    for op, name, given in (
        ("RNN", "tanh", {"activations": ["Affine"]}),
        ("RNN", "tanh", {"clip": 1.0}),
        ("GRU", "gru", {"activations": ["Sigmoid", "Relu"]}),
        ("LSTM", "lstm", {"activations": ["HardSigmoid", "Tanh", "Tanh"]}),
    ):
        with pytest.raises(ModelError, match=rf"{op} \((activations|attribute clip)"):
            from_onnx(onnx_model(made(name), op, "forward", 0, **given))


@pytest.mark.parametrize("are_known", [False, True])
@pytest.mark.parametrize(("op", "name", "given"), [("LSTM", "lstm", {}), ("GRU", "gru", {"linear_before_reset": 1})])
def test_sequences_of_several_lengths(op: str, name: str, given: dict[str, Any], are_known: bool) -> None:
    layer = made(name, bidirectional=True)
    x, begun, lengths = torch.randn(STEPS, BATCH, INPUTS, dtype=torch.float64), states(layer), [STEPS, 0, 2]
    rows = []
    for at, length in enumerate(lengths):
        state = tuple(part[:, at] for part in begun)
        if length:
            found, *last = Flat(layer)(x[:length, at], *state)
        else:  # as ONNX Runtime has it, not the state that it begins with
            found, last = torch.zeros(0, 2 * HIDDEN, dtype=torch.float64), [torch.zeros_like(part) for part in state]
        padded = torch.cat([found, torch.zeros(STEPS - length, 2 * HIDDEN, dtype=torch.float64)])
        rows.append((padded.unflatten(1, (2, HIDDEN)), *last))
    law = tuple(torch.stack(parts, dim=-2) for parts in zip(*rows, strict=True))
    model = onnx_model(layer, op, "bidirectional", 0, **given)
    model.graph.node[0].input[4] = "lengths"
    values = np.array(lengths, np.int32)
    if are_known:
        model.graph.initializer.append(numpy_helper.from_array(values, "lengths"))
    else:
        model.graph.input.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [BATCH]))
    args = (x.numpy(), *(part.numpy() for part in begun), *(() if are_known else (values,)))
    assert_equal(from_onnx(model).model.interpret(*args), law)


def test_sequences_that_are_known_to_be_whole_need_no_mask() -> None:
    model = onnx_model(made("tanh"), "RNN", "forward", 0)
    model.graph.node[0].input[4] = "lengths"
    model.graph.node.insert(0, helper.make_node("Constant", [], ["lengths"], value_ints=[STEPS] * BATCH))
    plain = from_onnx(onnx_model(made("tanh"), "RNN", "forward", 0)).model
    assert str(from_onnx(model).model) == str(plain)
