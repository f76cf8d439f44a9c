"""Models built by hand, operators by name, and calls of Python functions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frittata as ft
from frittata.egraph.errors import FrittataError, ModelError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Array

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((6, 3)).astype(np.float32)


def test_a_model_with_a_param_and_a_named_result(tmp_path: Path) -> None:
    b = ft.Builder()
    with b.function("main"):
        x = b.input("x", (4, 6))
        w = b.param("w", W)
        hidden = b.emit(np.maximum(x @ w, 0), "hidden")
        b.output(ft.ops.softmax(hidden, axis=-1), hidden)
    model = b.model()
    assert "param w: f32[6, 3]" in str(model)
    assert model.origin_by_term[model.main.outputs[1]] == "hidden"
    np.testing.assert_array_equal(model.params["w"], W)
    soft, rectified = ft.optimize(model, machine=REFERENCE, cache=tmp_path)(X)
    np.testing.assert_allclose(rectified, np.maximum(X @ W, 0), 1e-5)
    np.testing.assert_allclose(soft.sum(-1), 1, 1e-5)


def test_inputs_are_given_first_or_last_or_one_by_one() -> None:
    x, w = ft.input("x", (4, 6)), ft.input("w", (6, 3), np.float32)
    first, last, declared = ft.Builder(), ft.Builder(), ft.Builder()
    with first.function("main", [x, w]):
        first.output(x @ w)
    with last.function("main"):
        last.output(x @ w, inputs=[x, w])
    with declared.function("main"):
        declared.output(declared.input("x", (4, 6)) @ declared.input("w", (6, 3)))
    assert first.model() == last.model() == declared.model()
    assert len({first.model(), last.model()}) == 1


def test_a_model_is_a_mapping_of_functions() -> None:
    b = ft.Builder()
    for name in ("main", "other"):
        with b.function(name):
            b.output(np.exp(b.input("x", (3,))))
    model = b.model()
    assert list(model) == ["main", "other"]
    assert model["main"] == model["other"]


def _two_outputs(b: ft.Builder) -> None:
    with b.function("main"):
        b.output(b.input("x", (3,)))
        b.output(1.0)


def _no_output(b: ft.Builder) -> None:
    with b.function("main"):
        b.input("x", (3,))


def _within(b: ft.Builder) -> None:
    with b.function("main"), b.function("other"):
        pass


def _twice(b: ft.Builder) -> None:
    for _ in range(2):
        with b.function("main"):
            b.output(b.input("x", (3,)))


def _undeclared(b: ft.Builder) -> None:
    with b.function("main"):
        b.output(ft.input("x", (3,)))


def _two_values(b: ft.Builder) -> None:
    b.param("w", np.ones(3))
    b.param("w", np.zeros(3))


def _no_input(b: ft.Builder) -> None:
    exponential: Any = np.exp(ft.input("x", (3,)))
    with b.function("main", [exponential]):
        pass


REFUSED = {
    "outside of a function": (lambda b: b.input("x", (3,)), "outside of a function"),
    "a second output": (_two_outputs, "has an output already"),
    "no output": (_no_output, "has no output"),
    "a function within another": (_within, "within 'main'"),
    "a second function of the name": (_twice, "already"),
    "an input that is not declared": (_undeclared, "used but not declared"),
    "another value of a param": (_two_values, "another value"),
    "what is no input": (_no_input, "is no input"),
    "no function": (lambda b: b.model(), "not complete"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_ill_built_is_an_error(name: str) -> None:
    build, message = REFUSED[name]
    with pytest.raises(ModelError, match=message):
        build(ft.Builder())  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]


def test_operators_by_name_take_numbers_and_keywords() -> None:
    x = ft.input("x", (4, 6))
    assert ft.ops.softmax(x).term is ft.ops.softmax(x=x, axis=-1).term
    assert ft.ops.softmax(x, axis=0).term is ft.ops.softmax(x, axis=-2).term
    with pytest.raises(ModelError, match="axis 2 of a tensor with 2 axes"):
        ft.ops.sort(x, axis=2)
    assert str(ft.ops.max(x, 0).term.type) == "f32[4, 6]"
    assert ft.ops.and_(x > 0, x < 1).dtype == np.bool_
    assert not hasattr(ft.ops, "sofmax") and "Builder" in dir(ft)
    assert "softmax" in dir(ft.ops) and ft.ops.get("softmax").doc == ft.ops.softmax.__doc__
    assert ft.ops.pad(x, (0, 1), [1, 0], 2).shape == (5, 7)
    for tensor_, number in ((ft.input("i", (3,), "i32"), 1.5), (ft.input("i", (3,), "i32"), 2**40), (x > 0, 2)):
        with pytest.raises(ModelError, match="convert the tensor before"):
            ft.ops.add(tensor_, number)
    for made, message in (
        (lambda: ft.ops.pad(x, (0, 1), (1, 0), "x"), "pad with value 'x'"),
        (lambda: ft.ops.pad(ft.input("i", (3,), "u8"), (0,), (1,), 300), "300 is no value of u8"),
        (lambda: ft.ops.rms_norm(x, ft.input("w", (6,)), (1, 1)), r"rms_norm with eps \(1, 1\)"),
        (lambda: ft.ops.attention(x, x, x, "f32"), "attention with scale 'f32'"),
        (lambda: ft.ops.full(1, 3), "attribute shape of full is 3"),
        (lambda: ft.ops.expand(x, (0, 4, 6)), r"expand of shape \(0, 4, 6\)"),
        (lambda: ft.ops.argtopk(x, -1, 1.5, False), "attribute count of argtopk is 1.5"),
    ):
        with pytest.raises(ModelError, match=message):
            made()
    with pytest.raises(FrittataError, match="softmax"):
        _ = ft.ops.softmx
    with pytest.raises(ModelError, match="unexpected keyword argument 'axes'"):
        ft.ops.softmax(x, axes=1)


def running(x: Array, result: Array) -> None:
    """Sum along the rows."""
    assert x.dtype == np.float32
    np.cumsum(x, axis=1, out=result)


def called(x: Any) -> Any:
    return ft.extern(running, (x * 2,), out=(x.shape, x.dtype)) + 1


def test_a_call_writes_its_result(tmp_path: Path) -> None:
    fast = ft.optimize(called, (X,), machine=REFERENCE, cache=tmp_path)
    np.testing.assert_allclose(fast(X), np.cumsum(X * 2, 1) + 1, 1e-6)
    np.testing.assert_allclose(fast.compilation.model.interpret(X)[0], fast(X), 1e-5)
    assert "host" in [kernel.template for kernel in fast.kernels]
    assert ft.ops.get("running").doc == "Sum along the rows."
    ft.ops.unregister("running")


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (3, "with out=3"),
        ((3,), r"with out=\(3,\)"),
        (((3, -1), "f32"), r"of shape \(3, -1\)"),
        (((3.5,), "f32"), "each at least 1"),
        ((3, "f33"), "no element type"),
    ],
)
def test_what_a_call_cannot_return(out: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ft.extern(running, (X,), out=out)


def test_a_number_is_the_shape_of_a_vector() -> None:
    assert ft.extern(running, (X,), out=(7, "f4")).shape == (7,)
    ft.ops.unregister("running")


def test_a_call_is_an_alternative_by_a_rule(tmp_path: Path) -> None:
    def product(a: Array, b: Array, result: Array) -> None:
        np.matmul(a, b, out=result)

    one = ft.extern(product, (X, W), ((4, 3), "f32"), reference=np.matmul)
    again = ft.extern(product, (X, W), ((4, 3), "f32"))
    assert one.term is again.term
    rules = tmp_path / "own.rules"
    rules.write_text(
        'call-product: matmul(a, b) => product(a, b, (*shape(a)[:-1], shape(b)[-1]), "f32", "f32 f32")\n'
        '              if rank(a) == 2 and rank(b) == 2 and dtype(a) == "f32"  [reassoc]\n'
    )
    fast = ft.optimize(lambda x: x @ W, (X,), rules=rules, machine=REFERENCE, cache=tmp_path)
    assert any(node.op == "product" for nodes in fast.compilation.saturation.snapshot.nodes for node in nodes)
    assert "host" in [rival.template for rival in fast.explain("matmul").rivals]  # with its price
    np.testing.assert_allclose(fast(X), X @ W, 1e-5)
    ft.ops.unregister("product")


def test_a_call_that_returns_its_result_is_refused(tmp_path: Path) -> None:
    def doubled(x: Array, result: Array) -> Array:
        return x * 2

    def tripled(x: Array, result: Array) -> Array:
        return np.multiply(x, 3, out=result)

    def call(function: Any) -> Any:
        traced = lambda x: ft.extern(function, (x,), out=(x.shape, x.dtype))  # noqa: E731
        return ft.optimize(traced, (X,), machine=REFERENCE, cache=tmp_path)

    fast = call(doubled)
    with pytest.raises(ModelError, match="doubled returned an array"):
        fast(X)
    with pytest.raises(ModelError, match="doubled returned an array"):
        fast.compilation.model.interpret(X)
    np.testing.assert_array_equal(call(tripled)(X), X * 3)
    ft.ops.unregister("doubled")
    ft.ops.unregister("tripled")


def test_a_call_cannot_change_what_it_reads(tmp_path: Path) -> None:
    def spoil(x: Array, result: Array) -> None:
        x[...] = 0

    fast = ft.optimize(
        lambda x: ft.extern(spoil, (x * 2,), out=(x.shape, x.dtype)), (X,), machine=REFERENCE, cache=tmp_path
    )
    with pytest.raises(ValueError, match="read-only"):
        fast(X)
    with pytest.raises(ModelError, match=r"another operator 'spoil'(.|\n)*unregister\('spoil'\)"):
        ft.extern(spoil, (X, X), out=((3,), "f32"))
    with pytest.raises(ModelError, match=r"spoil of sort tensor is registered already(.|\n)*unregister\('spoil'\)"):
        ft.ops.register(ft.ops.get("spoil"))
    with pytest.raises(ModelError, match=r"choose another name$"):
        ft.ops.register(ft.ops.get("relu"))
    ft.ops.unregister("spoil")
