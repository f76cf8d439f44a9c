"""Models: params taken out and put back, and the table of terms."""

import numpy as np
import pytest
import torch

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.egraph.model import Function, Model
from frittata.egraph.ops import registry

TEXT = """
def main(x: f32[2, 3], param fc_weight = "fc.weight": f32[3, 4], param b: f32[4]) -> f32[2, 4]:
    v1: f32[2, 4] = matmul(x, fc_weight)
    v2: f32[2, 4] = add(v1, b)
    return v2

def other(b_: f32[4]) -> f32[4]:
    v1: f32[4] = relu(b_)
    return v1
"""
W, B = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones(4, np.float32)
X = np.ones((2, 3), np.float32)


@pytest.fixture
def model() -> Model:
    parsed = ft.parse(TEXT)
    product = parsed.main.outputs[0].args[0]
    return Model(parsed.functions, {"fc.weight": W, "b": B}, {product: "layers.fc"})


def test_params_become_inputs_and_inputs_params_again(model: Model) -> None:
    apart, values = model.detach()
    assert [term.attrs[0] for term in apart.main.inputs] == ["x", "fc_weight", "b"]
    assert not apart.params and list(values) == ["fc_weight", "b"]
    np.testing.assert_array_equal(apart.interpret(X, W, B)[0], X @ W + B)
    assert set(apart.origin_by_term.values()) == {"layers.fc"}
    whole = apart.bind(values)
    np.testing.assert_array_equal(whole.interpret(X)[0], X @ W + B)
    assert whole.detach()[0] == apart
    assert apart.bind({"b": B}).main.inputs == apart.main.inputs[:2]


def test_names_stay_apart() -> None:
    text = 'def main(b: f32[4], param b_ = "b": f32[4]) -> f32[4]:\n    v1: f32[4] = add(b, b_)\n    return v1\n'
    apart, values = Model(ft.parse(text).functions, {"b": B}).detach()
    assert [term.attrs[0] for term in apart.main.inputs] == ["b", "b_"] and list(values) == ["b_"]


@pytest.mark.parametrize(
    ("values", "message"), [({"y": B}, "or param 'y'"), ({"x": B}, "input 'x' is"), ({"b": B.astype(float)}, "f64")]
)
def test_what_does_not_fit_is_not_bound(model: Model, values: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        model.detach()[0].bind(values)


def test_params_of_a_script_are_bound_to_values(model: Model) -> None:
    read = ft.parse(str(model))
    with pytest.raises(ModelError, match="no value for param"):
        read.interpret(X)
    np.testing.assert_array_equal(read.bind(model.params).interpret(X)[0], X @ W + B)
    with pytest.raises(ModelError, match="param 'b' is"):
        read.bind({"b": W})


def test_a_model_is_told_in_a_line_and_shown_as_script(model: Model) -> None:
    assert repr(model) == "Model(main(x: f32[2, 3]) -> f32[2, 4]; other(b_: f32[4]) -> f32[4])"
    shown = model._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert shown.startswith("<pre>def main(") and "-&gt; f32[2, 4]" in shown


def test_values_that_are_bound_are_copies_and_may_be_tensors(model: Model) -> None:
    apart, _ = model.detach()
    bias = B.copy()
    weight = torch.nn.Parameter(torch.tensor(W))
    whole = apart.bind({"fc_weight": weight, "b": bias})
    bias[:] = 9
    with torch.no_grad():
        weight.zero_()
    np.testing.assert_array_equal(whole.interpret(X)[0], X @ W + B)
    with pytest.raises(ModelError, match=r"detach\(\) spelled it 'fc_weight'"):
        apart.bind({"fc.weight": W})


def test_a_table_has_the_end_of_a_path() -> None:
    term = registry.tensor("exp", registry.tensor("input", name="x", shape=(3,), dtype="f32"))
    model = Model({"main": Function((term.args[0],), (term,))}, {}, {term: "/a/long/way/modules/linear.py:134"})
    assert model.table().splitlines()[3].endswith("  modules/linear.py:134")


def test_a_table_has_a_row_for_each_tensor(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    model.print_table()
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert rows[0] == ["name", "operator", "operands and attributes", "type", "origin"]
    assert ["v1", "matmul", "x, fc_weight", "f32[2, 4]", "layers.fc"] in rows
    assert ["fc_weight", "param", "f32[3, 4]"] in rows
    assert rows[-1] == ["other", "return", "v1"]
