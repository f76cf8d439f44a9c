"""Import of fx graphs: as torch.export has it, unless a converter says otherwise."""

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import frittata as ft
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Scalar, Term
from frittata.frontends.torch_export import from_module
from frittata.frontends.torch_fx import CONVERTERS, converter, from_fx
from frittata.frontends.torch_imported import Imported


class Own(nn.Module):
    """Functions, methods, operators, modules, attributes, a default and a nested result."""

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.rest = nn.Sequential(nn.Conv1d(2, 2, 1), nn.BatchNorm1d(2))
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: Tensor, factor: float = 2.0) -> dict[str, Any]:
        y = self.first(x).relu() + self.shift
        return {"a": F.softmax(y, -1) * factor, "b": [self.rest(x[None]), torch.cosh(x), 3]}


class Factors(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.geqrf(x)[0] + torch.geqrf(x)[0].geqrf()[0]


class Leaves(fx.Tracer):
    """Keeps the modules within a model."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


@pytest.fixture
def registered() -> Iterator[dict[Any, Any]]:
    """The registered converters, put back afterwards."""
    before = dict(CONVERTERS)
    yield CONVERTERS
    CONVERTERS.clear()
    CONVERTERS.update(before)


def traced(module: nn.Module) -> fx.GraphModule:
    """Trace with source lines."""
    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    return fx.GraphModule(module, tracer.trace(module))


def number(value: float) -> Term:
    return tensor("full", value=Scalar.of(value, "f32"), shape=())


def cosh(x: Term) -> Term:
    e = tensor("exp", x)
    return tensor("div", tensor("add", e, tensor("reciprocal", e)), number(2))


def check(imported: Imported, module: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        expected = module(x)
    found = imported.unflatten(imported.model.interpret(x.numpy()))
    assert list(found) == list(expected) and found["b"][2] == 3
    np.testing.assert_allclose(found["a"], expected["a"], atol=1e-6)
    for ours, law in zip(found["b"][:2], expected["b"][:2], strict=True):
        np.testing.assert_allclose(ours, law, atol=1e-5)


def test_a_traced_module_is_the_module() -> None:
    torch.manual_seed(0)
    module, x = Own().eval(), torch.randn(2, 3)
    imported = from_fx(fx.symbolic_trace(module), (x,))
    check(imported, module, x)
    assert imported.model == from_module(module, (x,)).model
    assert from_fx(fx.symbolic_trace(module), [(2, 3)]).model == imported.model


def test_converters_take_functions_methods_and_modules_and_get_terms() -> None:
    torch.manual_seed(0)
    module, x = Own().eval(), torch.randn(2, 3)
    seen: list[Any] = []

    def linear(parts: Any, value: Term) -> Term:
        seen.append((value.op, parts.weight.attrs[0], parts.bias.shape, parts.in_features))
        return tensor("linear", value, parts.weight, parts.bias)

    def relu(value: Term) -> Term:
        seen.append(value.op)
        return tensor("max", value, number(0))

    imported = from_fx(fx.symbolic_trace(module), (x,), converters={nn.Linear: linear, "relu": relu, torch.cosh: cosh})
    check(imported, module, x)
    assert ("input", "first.weight", (4,), 3) in seen and "linear" in seen
    assert {"max", "reciprocal"} <= {term.op for term in imported.model.main.walk()}
    assert {"first.weight", "first.bias"} <= imported.parameters.keys()


def test_converters_return_and_take_structures() -> None:
    def forward(x: Tensor) -> Any:
        pair = torch.aminmax(x, dim=1, keepdim=True)
        return torch.cat([pair[0], pair[1]], dim=1), torch.clamp(operator.neg(pair[1]), None, 0.5)

    def aminmax(x: Term, dim: int, keepdim: bool) -> tuple[Term, Term]:
        assert (dim, keepdim) == (1, True)
        return tensor("reduce_min", x, axis=-1), tensor("reduce_max", x, axis=-1)

    def cat(parts: list[Term], dim: int) -> Term:
        return tensor("concat", *parts, axis=dim - len(parts[0].shape))

    def clamp(x: Term, low: None, high: float) -> Term:
        assert low is None
        return tensor("min", x, number(high))

    x = torch.tensor([[1.0, 5.0, 3.0], [0.0, -2.0, 4.0]])
    table = {torch.aminmax: aminmax, torch.cat: cat, torch.clamp: clamp}
    imported = from_fx(fx.symbolic_trace(forward), (x,), converters=table)
    found = imported.unflatten(imported.model.interpret(x.numpy()))
    for ours, law in zip(found, forward(x), strict=True):
        np.testing.assert_array_equal(ours, law)


def test_registered_converters_are_used_and_given_ones_go_first(registered: dict[Any, Any]) -> None:
    @converter("relu", torch.relu)
    def gelu(x: Term) -> Term:
        return tensor("gelu", x)

    graph = fx.symbolic_trace(lambda x: torch.relu(x).relu())  # pyright: ignore[reportUnknownLambdaType]
    assert {registered["relu"], registered[torch.relu]} == {gelu}
    ops = [term.op for term in from_fx(graph, [(2,)]).model.main.walk()]
    assert ops == ["input", "gelu", "gelu"]
    ops = [
        term.op for term in from_fx(graph, [(2,)], converters={"relu": lambda x: tensor("tanh", x)}).model.main.walk()
    ]
    assert ops == ["input", "gelu", "tanh"]


def test_a_missing_target_is_named_with_its_node_and_line_and_what_to_do() -> None:
    with pytest.raises(UnsupportedOpError) as error:
        from_fx(traced(Factors().eval()), [(3, 3)])
    text = str(error.value)
    assert "aten.geqrf.default x3" in text
    assert "node 'geqrf' (torch.geqrf) at" in text and "node 'geqrf_2' (method 'geqrf') at" in text
    assert f"{__file__}:" in text
    assert "converters={target: function from terms to terms}" in text


@pytest.mark.parametrize(
    ("convert", "message"),
    [
        (lambda x: 3, "converter <lambda> returned 3"),
        (lambda x: {}["no"], "converter <lambda> raised KeyError: 'no'"),
        (lambda x: x * 2, r"converter <lambda> raised TypeError(.|\n)*frittata.as_tensor\(x\)"),
        (lambda x: tensor("reduce_sum", x, axis=-1), r"<lambda> returned f32\[1\], and the call returns f32\[2\]"),
        (lambda x: ft.as_tensor(x) > 0, r"<lambda> returned bool\[2\], and the call returns f32\[2\]"),
        (lambda x: (x,), r"<lambda> returned a structure of f32\[2\], and the call returns f32\[2\]"),
        (lambda x: tensor("reshape", x, shape=(5,)), "reshape"),
    ],
)
def test_a_converter_that_fails_is_named_with_its_node(convert: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message) as error:
        from_fx(fx.symbolic_trace(lambda x: torch.cosh(x)), [(2,)], converters={torch.cosh: convert})  # pyright: ignore
    assert "node 'cosh' (torch.cosh)" in error.value.where


def test_what_a_converter_returns_is_compared_with_what_the_call_returns() -> None:
    class Counted(nn.Linear):
        calls = 0

        def forward(self, input: Tensor) -> Any:
            self.calls += 1
            return super().forward(input), None

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Counted(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.half())[0]

    around = Around().eval().half()
    graph = fx.GraphModule(around, Leaves().trace(around))

    def read(convert: Any) -> Imported:
        return from_fx(graph, [(2, 3)], converters={Counted: convert})

    made = read(lambda parts, x: (tensor("linear", x, parts.weight, parts.bias),))
    assert str(made.model.main.outputs[0].type) == "f16[2, 4]"  # computed in f32, and rounded as torch does
    with pytest.raises(ModelError, match=r"returned f16\[2, 3\], and the call returns a structure of f16\[2, 4\]"):
        read(lambda parts, x: x)
    assert around.inner.calls == 0


@pytest.mark.parametrize(
    ("target", "convert", "message"),
    [
        (3, lambda x: x, "a converter is for 3"),
        ("rleu", lambda x: x, "a converter is for 'rleu'"),
        ("relu", "gelu", "the converter for 'relu' is 'gelu'"),
    ],
)
def test_a_converter_is_a_function_for_what_graphs_call(target: Any, convert: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_fx(fx.symbolic_trace(lambda x: x.relu()), [(2,)], converters={target: convert})
    with pytest.raises(ModelError, match=message):
        converter(target)(convert)


def test_what_is_no_graph_no_shape_and_no_table_is_told() -> None:
    graph: Any = fx.symbolic_trace(lambda x: x.relu())
    wrong: Any = [torch.relu]
    with pytest.raises(ModelError, match=r"from_fx of a Linear(.|\n)*symbolic_trace"):
        from_fx(nn.Linear(2, 2).eval(), [(2,)])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ModelError, match=r"an argument of shape \(3, -8\)"):
        from_fx(graph, [(3, -8)])
    with pytest.raises(ModelError, match=r"converters=\[(.|\n)*give {target: function"):
        from_fx(graph, [(2,)], converters=wrong)


def test_a_converter_may_write_with_tensors() -> None:
    table = {"relu": lambda x: ft.as_tensor(x) * 2 + 1, torch.cosh: ft.ops.tanh}
    graph = fx.symbolic_trace(lambda x: torch.cosh(x.relu()))
    ops = " ".join(term.op for term in from_fx(graph, [(2,)], converters=table).model.main.walk())
    assert ops == "input full mul full add tanh"


def test_the_mode_of_the_modules_that_are_called_counts() -> None:
    module = Own()
    module.eval()
    from_fx(fx.symbolic_trace(module), [(2, 3)])
    module.rest[1].train()
    with pytest.raises(ModelError, match="training mode"):
        from_fx(fx.symbolic_trace(module), [(2, 3)])


def test_optimize_takes_graphs_exported_programs_and_what_is_imported(tmp_path: Any) -> None:
    module, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval(), torch.randn(2, 3)
    imported = ft.from_fx(fx.symbolic_trace(module), (x,), converters={nn.ReLU: lambda parts, x: tensor("relu", x)})
    program = torch.export.export(module, (x,))
    for source in (fx.symbolic_trace(module), program, imported, ft.from_exported_program(program)):
        fast = ft.optimize(source, (x,), machine=REFERENCE, cache=tmp_path)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), module(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(ModelError, match=r"cannot import 1\.0, of type float"):
        ft.optimize(1.0)
