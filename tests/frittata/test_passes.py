"""Transforms in Python, pipelines, levels, contexts, and instruments that watch."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frittata as ft
from frittata.egraph.errors import ExtractionError, FrittataError, ModelError, RuleError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Function, Model
from frittata.egraph.ops import registry
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Scalar, Term
from frittata.optimized import Optimized

MODEL = ft.parse("""
def main(x: f32[6, 5], param w: f32[5, 4]) -> f32[6, 4]:
    v1: f32[6, 4] = matmul(x, w)
    v2: f32[6, 4] = relu(v1)
    v3: f32[6, 4] = mul(v2, f32(3.0))
    return v3
""")
X = np.linspace(-1, 1, 30, dtype=np.float32).reshape(6, 5)
W = np.linspace(1, -2, 20, dtype=np.float32).reshape(5, 4)


@pytest.fixture
def model() -> Model:
    return Model(MODEL.functions, {"w": W})


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {"machine": REFERENCE, "cache": tmp_path}


@ft.transform
def square_for_relu(term: Term) -> Term | None:
    return tensor("square", *term.args) if term.op == "relu" else None


@ft.transform(name="times", opt_level=1, requires=["square_for_relu"])
def scaled(term: Term, factor: float = 2.0) -> Term | None:
    if term.op != "full":
        return None
    return tensor("full", value=Scalar.of(term.attrs[0].value * factor, term.dtype), shape=term.shape)


@ft.transform(of="models")
def negated(model: Model) -> Model:
    def replace(term: Term, args: tuple[Term, ...]) -> Term:
        return tensor("neg", *args) if term.op == "square" else registry.make(term.op, term.sort, args, term.attrs)

    return model.rewritten(replace)


def test_a_transform_of_terms_and_one_with_arguments(model: Model, options: dict[str, Any]) -> None:
    pipeline = ft.Pipeline("mine", [square_for_relu, scaled.given(factor=10.0)])
    fast = ft.optimize(model, pipeline=pipeline, **options)
    np.testing.assert_allclose(fast(X), np.square(X @ W) * 30, 1e-4, 1e-4)
    assert (scaled.info.name, scaled.info.opt_level, scaled.info.requires) == ("times", 1, ("square_for_relu",))


def test_a_transform_may_write_with_tensors(model: Model) -> None:
    @ft.transform
    def leaky(term: Term) -> Any:
        return np.maximum(x := ft.as_tensor(term.args[0]), x * 0.1) if term.op == "relu" else None

    @ft.transform
    def smooth(term: Term) -> Any:
        return ft.ops.gelu(*term.args) if term.op == "relu" else None

    product = X @ W
    np.testing.assert_allclose(leaky(model).interpret(X)[0], np.maximum(product, product * 0.1) * 3, 1e-5)
    assert "gelu(v1)" in str(smooth(model))


def test_a_transform_is_called_with_a_model(model: Model) -> None:
    once = square_for_relu(model)
    assert "square" in str(once) and "relu" in str(model)
    assert square_for_relu(once) == once
    term: Any = model.main.outputs[0]
    with pytest.raises(ModelError, match=r"transform square_for_relu of a Term(.|\n)*give a Model"):
        square_for_relu(term)


def test_a_transform_of_models(model: Model, options: dict[str, Any]) -> None:
    fast = ft.optimize(model, pipeline=ft.Pipeline("mine", (square_for_relu, negated)), **options)
    np.testing.assert_allclose(fast(X), -(X @ W) * 3, 1e-4, 1e-4)


def test_levels_requirements_and_names_decide_what_runs(model: Model, options: dict[str, Any]) -> None:
    pipeline = ft.Pipeline("mine", [square_for_relu, scaled])

    def names(**given: Any) -> list[str]:
        timing = ft.Timing()
        ft.optimize(model, pipeline=pipeline, instruments=timing, **options, **given)
        return [stage.name for stage in timing.stages if stage.name in ("times", "square_for_relu")]

    assert names() == ["square_for_relu", "times"]
    assert names(opt_level=0) == ["square_for_relu"]
    assert names(opt_level=0, required="times") == ["square_for_relu", "times"]
    assert names(disable="times") == ["square_for_relu"]
    with pytest.raises(ModelError, match="times requires square_for_relu"):
        names(disable="square_for_relu")
    with pytest.raises(RuleError, match="nothing to require is called 'tims'"):
        names(required="tims")
    with pytest.raises(RuleError, match="equal terms are one term"):
        names(disable="cse")


def test_what_a_transform_may_not_return(model: Model) -> None:
    @ft.transform
    def wrong(term: Term) -> Any:
        return tensor("cast", term, dtype="f64") if term.op == "relu" else None

    @ft.transform(of="models")
    def none(model: Model) -> Any:
        return None

    with pytest.raises(ModelError, match=r"wrong replaces relu of type f32\[6, 4\] by f64\[6, 4\]"):
        wrong(model)
    with pytest.raises(ModelError, match="none returned a NoneType"):
        none(model)
    with pytest.raises(FrittataError, match="a transform of 'nodes'"):
        ft.transform(of="nodes")
    with pytest.raises(FrittataError, match="a transform of opt_level 3"):
        ft.transform(opt_level=3)
    with pytest.raises(FrittataError, match="transform times: got an unexpected keyword argument 'factors'"):
        scaled.given(factors=3.0)
    with pytest.raises(FrittataError, match="multiple values for argument 'term'"):
        scaled.given(term=3.0)


def templates(fast: Optimized) -> list[str]:
    return [kernel.template for kernel in fast.kernels]


def test_level_zero_is_one_operator_a_kernel(model: Model, options: dict[str, Any]) -> None:
    counts = [len(ft.optimize(model, opt_level=level, **options).kernels) for level in (0, 1, 2)]
    assert counts == [3, 1, 1]
    for level in (0, 1, 2):
        fast = ft.optimize(model, opt_level=level, **options)
        np.testing.assert_allclose(fast(X), np.maximum(X @ W, 0) * 3, 1e-4, 1e-4)


def test_pipelines_by_name(model: Model, options: dict[str, Any]) -> None:
    zero = ft.optimize(model, pipeline="zero", **options)
    assert len(zero.kernels) == 1
    assert {family.name for family in zero.compilation.families} == {"constants", "fusion", "legalize", "views"}
    longer = ft.optimize(model, pipeline="max", **options)
    assert longer.compilation.saturation.phases[0].stop.value == "saturated"
    ft.register_pipeline(ft.Pipeline("squares", [square_for_relu, "zero"]))
    squares = ft.optimize(model, pipeline=ft.Pipeline("mine", ["squares", ("scalar",)]), **options)
    np.testing.assert_allclose(squares(X), np.square(X @ W) * 3, 1e-4, 1e-4)
    assert [phase.name for phase in squares.compilation.saturation.phases] == ["0", "1"]
    assert ft.get_pipeline("squares").steps[1] == "zero"
    for wrong, message in (
        ("zer", "no pipeline 'zer'"),
        (ft.Pipeline("mine", [("scaler",)]), "names no family: scaler(.|\n)*families are (.|\n)*scalar"),
        (ft.Pipeline("mine", [("scalar/square-neg",)]), "names no family: scalar/square-neg"),
    ):
        with pytest.raises(FrittataError, match=message):
            ft.optimize(model, pipeline=wrong, **options)
    with pytest.raises(FrittataError, match="comes with the package"):
        ft.register_pipeline(ft.Pipeline("zero", ()))


@pytest.mark.parametrize(
    ("steps", "limits", "message"),
    [
        ([3], {}, "has a step of type int"),
        ([(3,)], {}, "has a step of type tuple"),
        ("default", {}, "has the steps 'default'(.|\n)*a list"),
        ([], {"nodes": 3}, "the limits {'nodes': 3}(.|\n)*round_limit, node_limit, time_limit_s"),
        ([], {"node_limit": "many"}, "the limits {'node_limit': 'many'}"),
        ([], {"node_limit": 0}, "greater than 0"),
        ([], 3, "the limits 3"),
    ],
)
def test_what_is_no_pipeline(steps: Any, limits: Any, message: str) -> None:
    with pytest.raises(FrittataError, match=message):
        ft.Pipeline("mine", steps, limits)


@pytest.mark.parametrize(("limit", "value"), [("round_limit", 1), ("node_limit", 1), ("time_limit_s", 1e-9)])
def test_limits_that_leave_no_program_are_named(
    model: Model, options: dict[str, Any], limit: str, value: float
) -> None:
    ended = limit.removesuffix("_s").replace("_", " ")
    with pytest.raises(ExtractionError, match=f"ended at the {ended} before(.|\n)*longer limits"):
        ft.optimize(model, pipeline=ft.Pipeline("short", (), {limit: value}), **options)


def test_a_pipeline_in_itself(model: Model, options: dict[str, Any]) -> None:
    ft.register_pipeline(ft.Pipeline("egg", ["hen"]))
    hen = ft.register_pipeline(ft.Pipeline("hen", ["egg", square_for_relu]))
    with pytest.raises(FrittataError, match="'hen' contains itself"):
        ft.optimize(model, pipeline=hen, **options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"machine": "x"}, "machine='x'(.|\n)*egraph.machine.Machine, such as REFERENCE"),
        ({"cache": 3}, "cache=3(.|\n)*a folder"),
        ({"time_limit_s": "long"}, "time_limit_s='long'(.|\n)*seconds"),
        ({"time_limit_s": -1}, "time_limit_s=-1(.|\n)*at least 0"),
        ({"library": "no"}, "library='no'(.|\n)*True or False"),
        ({"freeze": "yes"}, "no freeze 'yes'"),
        ({"numerics": "fast"}, "no numerics 'fast'(.|\n)*'exact', 'reassoc'"),
        ({"rules": 3}, "rules=3(.|\n)*a list of names"),
        ({"opt_level": -1}, "no opt_level -1(.|\n)*0, 1, 2"),
        ({"opt_level": 3}, "no opt_level 3"),
        ({"pipeline": 3}, "pipeline=3"),
    ],
)
def test_options_that_are_none(model: Model, given: dict[str, Any], message: str) -> None:
    with pytest.raises(FrittataError, match=message):
        ft.optimize(model, **given)


def test_rules_of_ones_own_join_every_phase(model: Model, options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "mine.rules").write_text("rectify: relu(x) => max(x, full(scalar(0, dtype(x)), shape(x)))\n")
    fast = ft.optimize(model, pipeline="zero", rules=tmp_path / "mine.rules", **options)
    assert fast.compilation.saturation.phases[0].statistics.matches_by_rule["mine/rectify"] == 1


def test_a_context_gives_options_to_what_is_in_it(model: Model, options: dict[str, Any]) -> None:
    with ft.Context(**options, opt_level=0):
        assert len(ft.optimize(model).kernels) == 3
        with ft.Context(pipeline="zero"):
            inner = ft.optimize(model).compilation.options
            assert (inner.opt_level, inner.pipeline.name) == (0, "zero")
        assert len(ft.optimize(model, opt_level=1).kernels) == 1
    with pytest.raises(FrittataError, match="no option level"):
        ft.Context(level=1)


class Order(ft.Instrument):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def before(self, stage: Any) -> None:
        self.seen.append(f"{stage.name}...")

    def after(self, stage: Any) -> None:
        self.seen.append(stage.name)


def test_instruments_are_told_of_stages_transforms_and_rounds(model: Model, options: dict[str, Any]) -> None:
    order, timing = Order(), ft.Timing()
    fast = ft.optimize(model, pipeline=ft.Pipeline("mine", [square_for_relu]), instruments=[order, timing], **options)
    expected = ["import...", "import", "transform...", "square_for_relu...", "square_for_relu", "transform"]
    assert order.seen[:6] == expected
    places = [order.seen.index(name) for name in ("rules", "saturate...", "all 1...", "saturate")]
    assert places == sorted(places)
    stages = {stage.name: stage for stage in timing.stages}
    matched = fast.compilation.saturation.phases[0].statistics.matches_by_rule
    assert stages["saturate"].matches == sum(matched.values())
    assert stages["all 1"].size and stages["compile"].size == len(fast.kernels)
    assert stages["import"].size == 6
    assert "square_for_relu" in str(timing)


def test_names_of_rules_are_checked_before_transforms_run(model: Model, options: dict[str, Any]) -> None:
    order = Order()
    with pytest.raises(RuleError, match="nothing to disable"):
        ft.optimize(model, disable="relu-relus", instruments=order, **options)
    assert order.seen == ["import...", "import", "rules..."]


def test_a_snapshot_writes_what_stages_made(model: Model, options: dict[str, Any]) -> None:
    file = io.StringIO()
    snapshot = ft.Snapshot(file)
    fast = ft.optimize(model, pipeline=ft.Pipeline("mine", [square_for_relu]), instruments=snapshot, **options)
    assert "relu" in snapshot.texts["import"] and "square" in snapshot.texts["square_for_relu"]
    assert snapshot.texts["compile"] == str(fast)
    assert "# after square_for_relu" in file.getvalue()


def test_a_transform_that_returns_more(model: Model, options: dict[str, Any]) -> None:
    @ft.transform(of="models")
    def twice(model: Model) -> Model:
        main = model.main
        return Model({"main": Function(main.inputs, main.outputs * 2)}, model.params, model.origin_by_term)

    pipeline = ft.Pipeline("mine", [twice, "default"])
    for freeze in (None, False):
        first, second = ft.optimize(model, pipeline=pipeline, freeze=freeze, **options)(X)
        np.testing.assert_array_equal(first, second)
    with pytest.raises(ModelError, match="a transform left 2 outputs of 1"):
        ft.optimize(np.exp, (X,), pipeline=pipeline, **options)


@ft.transform
def fails(term: Term) -> None:
    raise KeyError("oops")


class Failing(ft.Instrument):
    """Raises after a stage."""

    def after(self, stage: Any) -> None:
        raise KeyError("oops")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pipeline": ft.Pipeline("mine", [fails])}, "transform fails raised KeyError: 'oops'"),
        ({"instruments": Failing()}, "instrument Failing raised KeyError: 'oops'(.|\n)*stage import"),
    ],
)
def test_what_the_caller_gave_and_raises_is_named(model: Model, given: dict[str, Any], message: str) -> None:
    with pytest.raises(FrittataError, match=message) as caught:
        ft.optimize(model, machine=REFERENCE, **given)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_transform_is_made_of_a_function() -> None:
    number: Any = 3
    with pytest.raises(FrittataError, match="a transform of a int"):
        ft.transform(number)
