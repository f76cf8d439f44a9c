"""Opaque operators run as host steps between compiled kernels, and everything told of a program covers them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import frittata as ft
from frittata.egraph import interpret
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Model
from frittata.egraph.ops import registry
from frittata.egraph.program import HOST
from frittata.graphs import to_dot
from frittata.optimized import Optimized

SCRIPT = """
def main(x: f32[5, 7], param w: f32[5, 7]) -> (f32[5, 7], f32[7, 5], f32[5, 7], f32[5, 7], f32[5, 7]):
    v1: f32[5, 7] = exp(x)
    v2: f32[5, 7] = ordered(v1)
    v3: f32[5, 7] = add(v2, v1)
    v4: f32[5, 7] = ordered(x, axis=-2)
    v5: f32[7, 5] = reshape(v4, shape=(7, 5))
    v6: f32[7, 5] = ordered(v5)
    v7: f32[5, 7] = ordered(w)
    v8: f32[5, 7] = mul(v7, x)
    v9: f32[5, 7] = extern_1(x, call="aten.sort.default(x0, -1, True)", result=0, shape=(5, 7), dtype="f32")
    v10: i64[5, 7] = extern_1(x, call="aten.sort.default(x0, -1, True)", result=1, shape=(5, 7), dtype="i64")
    v11: f32[5, 7] = cast(v10, dtype="f32")
    v12: f32[5, 7] = add(v9, v11)
    v13: f32[5, 7] = relu(v2)
    v14: f32[5, 7] = ordered(v13)
    return v3, v6, v8, v12, v14
"""
X = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def ordered() -> Iterator[None]:
    """A user's operator without a definition."""
    registry.register(
        registry.Op(
            "ordered",
            "tensor",
            (("x", "tensor"),),
            (("axis", -1),),
            lambda types, attrs: types[0],
            lambda x, axis: np.sort(x, axis),
            cost=20.0,
            opaque=True,
        )
    )
    yield
    registry.unregister("ordered")


@pytest.fixture(scope="module")
def model() -> Model:
    parsed = ft.parse(SCRIPT)
    return Model(parsed.functions, {"w": np.random.default_rng(1).standard_normal((5, 7)).astype(np.float32)})


@pytest.fixture(scope="module")
def hosted(model: Model, cache: Path) -> Optimized:
    return ft.optimize(model, machine=REFERENCE, cache=cache)


def test_host_steps_and_kernels_compute_the_model_together(model: Model, hosted: Optimized) -> None:
    law = model.interpret(X)
    for _ in range(2):
        for found, wanted in zip(hosted(X), law, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_the_chosen_program_means_the_model(model: Model, hosted: Optimized) -> None:
    for found, wanted in zip(hosted.model.interpret(X), model.interpret(X), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_the_plain_form_calls_them_too(model: Model, cache: Path) -> None:
    plain = ft.optimize(model, machine=REFERENCE, cache=cache, form="plain")
    for found, wanted in zip(plain(X), model.interpret(X), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_one_call_gives_all_of_its_results(hosted: Optimized) -> None:
    called = [kernel for kernel in hosted.program.kernels if kernel.name == "sort"]
    assert len(called) == 1 and {output.body.dtype for output in called[0].outputs} == {"f32", "i64"}


def test_only_pure_calls_of_torch_count_as_externs(hosted: Optimized) -> None:
    steps = [kernel.name for kernel in hosted.program.kernels if kernel.template == HOST]
    assert hosted.report.externs == ("sort",)
    assert len(steps) == 5 and "fallbacks to the framework: sort" in str(hosted.report)
    assert not hosted.report.library


def test_a_constant_is_not_ordered_at_run_time(hosted: Optimized) -> None:
    (folded,) = hosted.report.folded
    assert folded.term.startswith("ordered(w")


def test_every_step_is_measured(hosted: Optimized) -> None:
    measured = hosted.measure(X)
    assert set(measured) == {kernel.name for kernel in hosted.kernels}
    assert all(seconds > 0 for seconds in measured.values())


def test_script_reads_back(hosted: Optimized) -> None:
    assert ft.parse(str(hosted)) == hosted.model


def test_every_account_covers_host_steps(hosted: Optimized, tmp_path: Path) -> None:
    explained = str(hosted.explain("ordered_2"))
    assert "ordered_2: f32[5, 7] = ordered(exp, axis=-1)" in explained
    assert "has no definition by elements: it runs in Python" in explained
    assert "aten.sort.default(x0, -1, True)[1] of x" in hosted.kernel("sort").source
    assert hosted.graph().nodes["sort"]["template"] == HOST
    chosen = [data for _, data in hosted.egraph.graph().nodes(data=True) if data.get("chosen")]
    assert {"ordered", "extern_1"} <= {data["op"] for data in chosen}
    assert to_dot(hosted.egraph.graph()) and to_dot(hosted.graph())
    page = hosted.show(tmp_path / "page.html").read_text()
    for kernel in hosted.kernels:
        assert f'data-panel="{kernel.name}"' in page
    assert len(hosted.report.to_dict()["kernels"]) == len(hosted.kernels)


def test_a_reference_that_disagrees_with_its_type_is_an_error(cache: Path) -> None:
    model = ft.parse("""
def main(x: f32[5, 7]) -> f32[2]:
    v1: f32[2] = extern_1(x, call="aten.sum.default(x0)", result=0, shape=(2,), dtype="f32")
    return v1
""")
    fast = ft.optimize(model, machine=REFERENCE, cache=cache)
    with pytest.raises(ModelError, match=r"extern_1 returned shape \(\), its type says \(2,\)"):
        fast(X)


def test_callers_in_several_threads_do_not_disturb_each_other(model: Model, hosted: Optimized) -> None:
    from concurrent.futures import ThreadPoolExecutor

    inputs = [X * scale for scale in (1, 2, 3, 4)]
    laws = [model.interpret(x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for found, law in zip(pool.map(hosted, inputs * 5), laws * 5, strict=True):
            for one, wanted in zip(found, law, strict=True):
                np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-5)


def test_reference_cannot_change_what_it_reads() -> None:
    def greedy(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    registry.register(registry.Op("greedy", "tensor", (("x", "tensor"),), (), lambda t, a: t[0], greedy, opaque=True))
    try:
        x = np.ones(4, np.float32)
        model = ft.parse("def main(x: f32[4]) -> f32[4]:\n    v1: f32[4] = greedy(x)\n    return v1\n")
        with pytest.raises(ValueError, match="read-only"):
            ft.optimize(model, machine=REFERENCE)(x)
        with pytest.raises(ValueError, match="read-only"):
            interpret.evaluate(model.main.outputs, {"x": x}, "native")
        assert x.sum() == 4
    finally:
        registry.unregister("greedy")
