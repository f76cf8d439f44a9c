"""Models with symbolic dims run at every size within their ranges, each with a program of its own."""

import gc
import math
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import frittata as ft
from frittata.egraph.errors import ModelError, StaleParametersError
from frittata.egraph.machine import REFERENCE
from frittata.optimized import Optimized

BATCH = torch.export.Dim("batch", min=1, max=64)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3), nn.Softmax(-1)).eval()


class SizeAsNumber(nn.Module):
    """What torch exports only for sizes that it knows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / math.sqrt(x.shape[0])


def written(module: nn.Sequential) -> None:
    with torch.no_grad():
        module[0].get_parameter("weight").mul_(2)


def replaced(module: nn.Sequential) -> None:
    module[0].register_parameter("weight", nn.Parameter(torch.ones(5, 6)))


def a_layer(module: nn.Sequential) -> None:
    module[0] = nn.Linear(6, 5)


CHANGES = {change.__name__: change for change in (written, replaced, a_layer)}


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {"machine": REFERENCE, "cache": tmp_path}


def test_a_module_runs_at_every_batch(options: dict[str, Any]) -> None:
    module = mlp()
    fast = ft.optimize(module, (torch.zeros(4, 6),), dynamic_shapes=({0: BATCH},), **options)
    assert list(fast.ranges) == ["batch"] and not fast.programs
    assert repr(fast) == "Dynamic(batch from 1 to 64: 0 programs)"
    with torch.no_grad():
        for batch in (5, 17, 64, 5):
            x = torch.randn(batch, 6)
            torch.testing.assert_close(fast(x), module(x))
    assert [dict(sizes)["batch"] for sizes in fast.programs] == [5, 17, 64]
    assert fast.at(batch=17).kernels[0].estimate.flops > fast.at(batch=5).kernels[0].estimate.flops
    with pytest.raises(ModelError, match=r"batch is 65, and the model holds from \d to 64"):
        fast(torch.zeros(65, 6))
    with torch.no_grad():
        next(module.parameters()).add_(1)
    with pytest.raises(StaleParametersError):
        fast(torch.zeros(5, 6))


@pytest.mark.parametrize("freeze", [None, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("last", [nn.Identity, SizeAsNumber])
def test_parameters_that_changed_since_are_noticed_at_a_new_size(
    last: type[nn.Module], change: str, freeze: bool | None, options: dict[str, Any]
) -> None:
    module = nn.Sequential(*mlp().children(), last()).eval()
    fast = ft.optimize(module, (torch.zeros(4, 6),), dynamic_shapes=({0: BATCH},), freeze=freeze, **options)
    fast(torch.zeros(5, 6))
    CHANGES[change](module)
    with pytest.raises(StaleParametersError, match=r"was changed(.|\n)*optimize again"):
        fast(torch.zeros(6, 6))


def test_without_freezing_parameters_are_read_at_every_size(options: dict[str, Any]) -> None:
    module = nn.Sequential(*mlp().children()).eval()
    fast = ft.optimize(module, (torch.zeros(4, 6),), dynamic_shapes=({0: BATCH},), freeze=False, **options)
    with torch.no_grad():
        for batch, change in zip((5, 6, 7, 8), (*CHANGES.values(), CHANGES["written"]), strict=True):
            x = torch.randn(batch, 6)
            torch.testing.assert_close(fast(x), module(x))
            change(module)
            torch.testing.assert_close(fast(x), module(x))


class Pauses(nn.Module):
    """Counts its calls in a buffer, and gives other threads time while it is exported."""

    calls: torch.Tensor

    def __init__(self, is_exported: threading.Event) -> None:
        super().__init__()
        self.linear, self.is_exported = nn.Linear(6, 5), is_exported
        self.register_buffer("calls", torch.zeros(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting():
            self.is_exported.set()
            time.sleep(0.3)
        return self.linear(x) + self.calls.add_(1)


@pytest.mark.parametrize("freeze", [None, False])
def test_a_size_that_is_met_in_another_thread_disturbs_no_call(freeze: bool | None, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    is_exported = threading.Event()
    module = Pauses(is_exported).eval()
    fast = ft.optimize(module, (torch.ones(4, 6),), dynamic_shapes=({0: BATCH},), freeze=freeze, **options)
    expected = fast(torch.ones(4, 6)) + 1
    is_exported.clear()
    with ThreadPoolExecutor(2) as threads:
        alone = [threads.submit(fast.at, batch=1) for _ in range(2)]  # exported anew: it is a size of one
        assert is_exported.wait(60)
        assert torch.allclose(fast(torch.ones(4, 6)), expected)
    assert alone[0].result() is alone[1].result()
    assert torch.equal(module.calls, torch.full((5,), 2.0))


def test_each_size_is_verified_on_its_first_arguments(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    verify = Optimized.verify
    monkeypatch.setattr(Optimized, "verify", lambda *args: counted.append(len(args[1])) or verify(*args))
    fast = ft.optimize(mlp(), (torch.zeros(4, 6),), dynamic_shapes=({0: BATCH},), verify=True, **options)
    fast.at(batch=5)
    for batch in (5, 6, 5, 6):
        fast(torch.randn(batch, 6))
    assert counted == [5, 6]


def test_what_is_deleted_from_programs_is_gone(options: dict[str, Any]) -> None:
    fast = ft.optimize(mlp(), (torch.zeros(4, 6),), dynamic_shapes=({0: BATCH},), verify=True, **options)
    fast(torch.randn(5, 6))
    kept = weakref.ref(fast.at(batch=5).compilation.executable)
    fast.programs.clear()
    gc.collect()
    assert kept() is None


def test_dims_of_a_model_as_script(options: dict[str, Any]) -> None:
    model = ft.parse("""
def main(x: f32[n, 4], y: f32[m, 4]) -> (f32[n, 4], f32[m, 4]):
    v1: f32[n, 4] = softmax(x, axis=-1)
    v2: f32[m, 4] = relu(y)
    return v1, v2
""")
    fast = ft.optimize(model, dynamic_shapes=True, **options)
    soft, rectified = fast(np.ones((3, 4), np.float32), y=np.full((2, 4), -1, np.float32))
    np.testing.assert_allclose(soft, np.full((3, 4), 0.25))
    np.testing.assert_array_equal(rectified, np.zeros((2, 4)))
    loaded = ft.load(fast.at(n=3, m=2).save(options["cache"] / "model.frt"), cache=options["cache"])
    np.testing.assert_array_equal(loaded(np.ones((3, 4), np.float32), np.ones((2, 4), np.float32))[0], soft)
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"n": 3}, "sizes of n"),
        ({"n": 3, "k": 2}, "sizes of n, k"),
        ({"n": 0, "m": 1}, "n is 0"),
        ({"n": "3", "m": 1}, "n is '3'(.|\n)*an integer"),
        ({"n": 3.5, "m": 1}, "n is 3.5(.|\n)*an integer"),
    )
    for given, message in refused:
        with pytest.raises(ModelError, match=message):
            fast.at(**given)
    three: Any = np.int64(3)
    assert fast.at(n=three, m=2) is fast.at(n=3, m=2)
    with pytest.raises(ModelError, match="the model takes"):
        fast(np.ones(3, np.float32), np.ones((2, 4), np.float32))


def test_dims_of_a_module_may_be_names(options: dict[str, Any]) -> None:
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
            return x + others[0]

    x = torch.zeros(4, 6)
    fast = ft.optimize(Sum().eval(), (x, [x]), dynamic_shapes={"x": {0: "rows"}, "others": [("rows", None)]}, **options)
    assert list(fast.ranges) == ["rows"]
    assert torch.equal(fast(torch.ones(3, 6), [torch.ones(3, 6)]), torch.full((3, 6), 2.0))
    for dims, message in (("rows", "='rows'"), (3, "dynamic_shapes=3"), (({0: "my rows"}, None), "'my rows'")):
        with pytest.raises(ModelError, match=message):
            ft.optimize(Sum().eval(), (x, [x]), dynamic_shapes=dims, **options)


class Pair(NamedTuple):
    left: Any
    right: Any


def test_names_of_dims_may_stand_in_a_named_tuple(options: dict[str, Any]) -> None:
    class Sum(nn.Module):
        def forward(self, pair: Pair) -> torch.Tensor:
            return pair.left + pair.right

    ones = Pair(torch.ones(4, 6), torch.ones(4, 6))
    fast = ft.optimize(Sum().eval(), (ones,), dynamic_shapes=(Pair({0: "rows"}, {0: "rows"}),), **options)
    assert list(fast.ranges) == ["rows"]
    assert torch.equal(fast(ones), torch.full((4, 6), 2.0))


def test_what_a_program_has_is_asked_of_one(options: dict[str, Any]) -> None:
    fast = ft.optimize(mlp(), (torch.zeros(4, 6),), dynamic_shapes=({0: BATCH},), **options)
    with pytest.raises(AttributeError, match=r"ask one, at\(batch=...\).report"):
        attrgetter("report")(fast)
    assert not hasattr(fast, "nothing")


def test_sizes_must_agree(options: dict[str, Any]) -> None:
    model = ft.parse("def main(x: f32[n], y: f32[n]) -> f32[n]:\n    v1: f32[n] = add(x, y)\n    return v1\n")
    fast = ft.optimize(model, dynamic_shapes=True, **options)
    with pytest.raises(ModelError, match="n is 3 in one argument and 4 in 'y'"):
        fast(np.ones(3, np.float32), np.ones(4, np.float32))


def test_what_has_no_such_dims_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="no dim of the model is symbolic"):
        ft.optimize(mlp(), (torch.zeros(4, 6),), dynamic_shapes=True, **options)
    with pytest.raises(ModelError, match="dynamic_shapes=True for a function"):
        ft.optimize(lambda x: x, (np.ones(3),), dynamic_shapes=True, **options)
    with pytest.raises(ModelError, match="dynamic_shapes=True"):
        ft.optimize(ft.parse("def main(x: f32[n]) -> f32[n]:\n    return x\n"), **options)


def centred(x: Any, params: dict[str, Any], parts: int = 2) -> Any:
    """A function that does with sizes what it likes."""
    hidden = x @ params["w"] / len(x) + np.arange(x.shape[0])[:, None]
    return hidden.reshape(-1, parts), (hidden[1:] if len(x) > 3 else hidden).mean(0)


NAMED = [
    ({0: "n"}, None),
    [("n", None), {}],
    {"x": {0: torch.export.Dim("n", min=2, max=9)}},
    {"x": ("n", "d"), "params": {"w": {0: "d"}}},
]


@pytest.mark.parametrize("dims", NAMED)
def test_a_function_of_arrays_is_traced_for_each_size(dims: Any, options: dict[str, Any]) -> None:
    params = {"w": np.linspace(-1, 1, 24).reshape(6, 4)}
    fast = ft.optimize(centred, (np.ones((5, 6)), params), dynamic_shapes=dims, **options)
    assert set(fast.ranges) <= {"n", "d"}
    for n in (2, 7):
        x = np.random.default_rng(n).standard_normal((n, 6))
        for found, expected in zip(fast(x, params), centred(x, params), strict=True):
            np.testing.assert_allclose(found, expected, 1e-12)
    if fast.ranges["n"] == (2, 9):
        with pytest.raises(ModelError, match="n is 10, and the model holds from 2 to 9"):
            fast(np.ones((10, 6)), params)
    with pytest.raises(ModelError, match=r"\(n, 6\)|d is 6 in one argument and 5|d is 5 in one argument and 6"):
        fast(np.ones((3, 5)), params)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"y": {0: "n"}}, "dynamic_shapes={'y'"),
        (({0: "n"}, None, None, None), r"dynamic_shapes=\("),
        ("n", "dynamic_shapes='n'"),
        ({"x": "n"}, "dynamic_shapes of x, which has 2 axes"),
        ({"x": {2: "n"}}, "dynamic_shapes of x, which has 2 axes: {2: 'n'}"),
        ({"x": {0: 3}}, "dynamic_shapes of x"),
        ({"x": {0: 2 * BATCH}}, "dynamic_shapes of x"),
        ({"x": ("n", "n")}, "n is 5 in one argument and 6"),
        ({}, "no dim of the model is symbolic"),
    ],
)
def test_dims_of_a_function_fit_its_arguments(dims: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ft.optimize(centred, (np.ones((5, 6)), {"w": np.ones((6, 4))}), dynamic_shapes=dims)


def test_a_model_built_by_hand_has_dims_by_name(options: dict[str, Any]) -> None:
    builder = ft.Builder()
    with builder.function("main"):
        x = builder.input("x", ("n", 6))
        weight = builder.param("w", np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3))
        builder.output(ft.ops.softmax(x @ weight))
        with pytest.raises(ModelError, match=r"dim n of .* has no number here"):
            x.reshape(x.shape[0], 2, 3)
        with pytest.raises(ModelError, match=r"dim n of .* has no number here"):
            ft.build(6, lambda j: x[0, j])
    model = builder.model()
    assert str(model.main.outputs[0].type) == "f32[n, 3]"
    fast = ft.optimize(model, dynamic_shapes=True, **options)
    for n in (1, 4):
        assert fast(np.ones((n, 6), np.float32)).shape == (n, 3)


def test_dims_that_are_known_have_to_fit() -> None:
    dims = {0: torch.export.Dim("n", min=2)}
    program = torch.export.export(nn.Linear(4, 2).eval(), (torch.ones(3, 4),), dynamic_shapes=(dims,))
    fast = ft.optimize(program, dynamic_shapes=True, machine=REFERENCE)
    with pytest.raises(ModelError, match=r"has shape \(5, 3\), the model takes \(\w+, 4\)"):
        fast(torch.ones(5, 3))
    with pytest.raises(ModelError, match=r"the model takes \(\w+, 4\)"):
        ft.optimize(program, (torch.ones(5, 3),), machine=REFERENCE)
