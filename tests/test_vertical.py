"""Three models through the whole chain: results, structure, and tests that a small error would fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from perturbation import perturbed

import frittata as ft
from bench import workloads
from frittata.egraph import interpret
from frittata.egraph.interpret import Interpreter
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Function, Model
from frittata.egraph.ops.registry import tensor
from frittata.egraph.program import Kernel
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import walk
from frittata.optimized import Optimized

MODELS: dict[str, Any] = {
    "mlp": lambda dtype: workloads.mlp(dtype=dtype),
    "mlp-odd": lambda dtype: workloads.mlp(17, 7, 1, batch=3, dtype=dtype),
    "mlp-one": lambda dtype: workloads.mlp(1, 1, 1, batch=1, dtype=dtype),
    "encoder": lambda dtype: workloads.encoder_layer(64, 4, 128, tokens=16, batch=2, dtype=dtype),
    "encoder-odd": lambda dtype: workloads.encoder_layer(21, 3, 37, tokens=17, batch=3, dtype=dtype),
    "encoder-one": lambda dtype: workloads.encoder_layer(6, 2, 5, tokens=1, batch=1, dtype=dtype),
    "block": lambda dtype: workloads.basic_block(16, 14, batch=2, dtype=dtype),
    "block-odd": lambda dtype: workloads.basic_block(7, 17, batch=3, dtype=dtype),
    "block-one": lambda dtype: workloads.basic_block(1, 1, batch=1, dtype=dtype),
}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def compiled(name: str, cache: Path, dtype: torch.dtype = torch.float32, **options: Any) -> tuple[Optimized, Any, Any]:
    module, args = MODELS[name](dtype)
    return ft.optimize(module, args, machine=REFERENCE, cache=cache, **options), module, args


def error(found: Any, expected: Any) -> float:
    """The largest difference relative to the largest expected value."""
    expected = np.asarray(expected, np.float64)
    return float(np.max(np.abs(np.asarray(found, np.float64) - expected)) / np.max(np.abs(expected)))


@pytest.mark.parametrize("library", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_results_are_the_models_own(name: str, library: bool, cache: Path) -> None:
    fast, module, args = compiled(name, cache, library=library)
    with torch.no_grad():
        eager = module(*args)
    (law,) = fast.compilation.model.interpret(*(a.numpy() for a in args))
    found = fast(*args)
    assert 0.2 < float(eager.std(correction=0)) + (name.endswith("one")) < 5
    assert error(found, eager) < TOLERANCE[torch.float32]
    assert error(found, law) < TOLERANCE[torch.float32]


@pytest.mark.parametrize("name", MODELS)
def test_float64_throughout(name: str, cache: Path) -> None:
    fast, module, args = compiled(name, cache, torch.float64)
    with torch.no_grad():
        eager = module(*args)
    (law,) = fast.compilation.model.interpret(*(a.numpy() for a in args))
    found = fast(*args)
    assert found.dtype is torch.float64
    assert error(found, eager) < TOLERANCE[torch.float64]
    assert error(found, law) < TOLERANCE[torch.float64]


@pytest.mark.parametrize("name", [name for name in MODELS if "-" in name and name != "encoder-one"])
def test_plain_form_gives_the_same(name: str, cache: Path) -> None:
    fast, module, args = compiled(name, cache, form="plain")
    with torch.no_grad():
        eager = module(*args)
    assert error(fast(*args), eager) < TOLERANCE[torch.float32]


@pytest.mark.parametrize("name", ["mlp-odd", "encoder-odd", "block-odd"])
def test_one_percent_in_any_kernel_would_be_noticed(name: str, cache: Path) -> None:
    fast, module, args = compiled(name, cache)
    with torch.no_grad():
        eager = module(*args)
    given = zip(fast.program.inputs, args, strict=True)
    interpreter = Interpreter({**fast.compilation.model.params, **{name: arg.numpy() for name, arg in given}}, "f64")
    for kernel in fast.program.kernels:
        (wrong,) = map(interpreter.tensor, perturbed(fast.program, kernel).to_terms())
        assert error(wrong, eager) > 10 * TOLERANCE[torch.float32], kernel.name


def binders(kernel: Kernel) -> list[str]:
    return [t.op for o in kernel.outputs for t in walk(o.body) if t.op in ("dot", "window_dot", "fold")]


def operators(kernel: Kernel) -> set[str]:
    return {t.op for o in kernel.outputs for t in walk(o.body) if t.sort == "element"}


def test_mlp_is_two_kernels_and_no_transpose(cache: Path) -> None:
    fast, _, _ = compiled("mlp", cache, library=False)
    first, second = fast.program.kernels
    assert operators(first) == {"dot", "load", "add", "max", "const"}
    assert operators(second) == {"dot", "load", "add"}
    assert len(fast.compilation.executable.lowered) == 2


def test_encoder_layer_is_at_most_eight_kernels(cache: Path) -> None:
    fast, _, _ = compiled("encoder", cache, library=False)
    kernels = fast.program.kernels
    assert len(kernels) == fast.compilation.executable.steps <= 8
    folding = [k for k in kernels if "fold" in operators(k)]
    assert len(folding) == 2  # two layer norms, each in one
    assert sum("attend" in operators(k) for k in kernels) == 1
    assert sum("sqrt" in operators(k) or "rsqrt" in operators(k) for k in kernels) == 2
    (gelu,) = [k for k in kernels if "erf" in operators(k)]
    assert "dot" in operators(gelu)
    assert all(k in folding or "dot" in operators(k) or operators(k) <= {"load", "reindex"} for k in kernels)


class HandWrittenLayer(torch.nn.Module):
    """A post-norm encoder layer as one writes it oneself: three projections, batch first throughout."""

    def __init__(self, d: int, heads: int, ff: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.heads = heads
        self.q, self.k, self.v, self.o = (torch.nn.Linear(d, d) for _ in range(4))
        self.up, self.down = torch.nn.Linear(d, ff), torch.nn.Linear(ff, d)
        self.first, self.second = torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = (*x.shape[:2], self.heads, x.shape[2] // self.heads)
        q, k, v = (project(x).view(split).transpose(1, 2) for project in (self.q, self.k, self.v))
        attended = torch.softmax(q @ k.transpose(-1, -2) / split[-1] ** 0.5, -1) @ v
        x = self.first(x + self.o(attended.transpose(1, 2).reshape(x.shape)))
        return self.second(x + self.down(torch.nn.functional.gelu(self.up(x))))


def test_residuals_stand_in_the_epilogues_of_a_hand_written_layer(cache: Path) -> None:
    module, x = HandWrittenLayer(64, 4, 128).eval(), torch.randn(2, 17, 64)
    fast = ft.optimize(module, (x,), machine=REFERENCE, cache=cache, library=False)
    with torch.no_grad():
        assert error(fast(x), module(x)) < 1e-5
    kernels = fast.program.kernels
    assert len(kernels) == 9
    alone = [operators(k) for k in kernels if "dot" not in operators(k)]
    assert len(alone) == 2 and all("fold" in ops for ops in alone)  # two norms
    computed = {output.name for kernel in kernels for output in kernel.outputs}
    for kernel in kernels:
        if "dot" not in operators(kernel):
            assert len(computed & set(kernel.operands)) == 1  # the sum is there already


def test_batch_norm_is_gone_into_the_convolutions(cache: Path) -> None:
    fast, _, _ = compiled("block", cache, library=False)
    found = [operators(kernel) for kernel in fast.program.kernels]
    assert sum(bool(ops & {"window_dot", "winograd_dot", "dot"}) for ops in found) == 2
    assert not set().union(*found) & {"mul", "sub", "div", "sqrt", "rsqrt", "reciprocal"}


class TwoAdds(torch.nn.Module):
    """A dense layer whose result feeds two additions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dense = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        d = self.dense(x)
        return d + y, d + z


def test_a_dense_layer_feeding_two_adds_is_computed_once(cache: Path) -> None:
    module, args = TwoAdds().eval(), tuple(torch.randn(32, 64) for _ in range(3))
    fast = ft.optimize(module, args, machine=REFERENCE, cache=cache, library=False)
    assert sum("dot" in operators(k) for k in fast.program.kernels) == 1
    with torch.no_grad():
        for found, expected in zip(fast(*args), module(*args), strict=True):
            assert error(found, expected) < 1e-5


class ConstantsAroundConv(torch.nn.Module):
    """conv + 2 (c + c) + c, twice, summed."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 3, bias=False)
        self.c = torch.nn.Parameter(torch.randn(8, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x) + 2 * (self.c + self.c)
        return (y + self.c) + (y + self.c)


def test_equal_convolutions_and_constants_are_computed_once(cache: Path) -> None:
    module, args = ConstantsAroundConv().eval(), (torch.randn(1, 3, 9, 9),)
    fast = ft.optimize(module, args, machine=REFERENCE, cache=cache, library=False)
    (kernel,) = fast.program.kernels
    assert binders(kernel) == ["window_dot"]
    folded = [t for t in fast.program.constants.values() if any(leaf.attrs[:1] == ("c",) for leaf in walk(t))]
    assert len(folded) == 1
    with torch.no_grad():
        assert error(fast(*args), module(*args)) < 1e-5


@pytest.mark.parametrize(("name", "count"), [("mlp-odd", 5), ("block-odd", 7)])
def test_without_the_fusion_equation_each_operator_is_a_kernel(name: str, count: int, cache: Path) -> None:
    fast, module, args = compiled(name, cache, disable=["fusion/index-built", "layout", "winograd"], library=False)
    assert len(fast.program.kernels) == count
    with torch.no_grad():
        assert error(fast(*args), module(*args)) < 1e-5


def test_twelve_layers_are_chosen_with_a_proven_optimum(cache: Path) -> None:
    module, args = workloads.stacked_encoder(12, 16, 2, 16, tokens=5, batch=1)
    fast = ft.optimize(module, args, machine=REFERENCE, cache=cache, library=False)
    assert fast.program.gap < 0.01
    with torch.no_grad():
        assert error(fast(*args), module(*args)) < 1e-5


def test_nan_and_infinity_go_where_eager_sends_them(cache: Path) -> None:
    fast, module, args = compiled("mlp-odd", cache)
    x = args[0].clone()
    x[0, 0], x[1, 1] = float("nan"), float("inf")
    with torch.no_grad():
        torch.testing.assert_close(fast(x), module(x), equal_nan=True, rtol=1e-4, atol=1e-4)


def test_changed_parameters_are_an_error(cache: Path) -> None:
    fast, module, args = compiled("mlp-odd", cache)
    fast(*args)
    with torch.no_grad():
        module[0].weight.mul_(2)
    with pytest.raises(ft.FrittataError, match="changed after optimize"):
        fast(*args)


def test_wrong_arguments_are_clear_errors(cache: Path) -> None:
    fast, _, (x,) = compiled("mlp-odd", cache)
    for wrong in ((), (x, x), (x[:2],), (x.double(),), (3,)):
        with pytest.raises(ft.FrittataError):
            fast(*wrong)


def test_symbolic_dims_are_bound_before_kernels_are_written(cache: Path) -> None:
    x = tensor("input", name="x", shape=(Sym("n"), 3), dtype="f32")
    model = Model({"main": Function((x,), (tensor("relu", x),))})
    with pytest.raises(ft.FrittataError, match="symbolic dims"):
        ft.optimize(model, machine=REFERENCE, cache=cache)
    fast = ft.optimize(model.bind_dims({"n": 5}), machine=REFERENCE, cache=cache)
    value = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
    np.testing.assert_array_equal(fast(value), np.maximum(value, 0))


def test_a_users_rule_fires_and_a_wrong_one_is_refused(cache: Path, tmp_path: Path) -> None:
    good, wrong, swap = tmp_path / "good.rules", tmp_path / "wrong.rules", tmp_path / "swap.rules"
    good.write_text("silu-by-hand: x * sigmoid(x) => silu(x)\n")
    wrong.write_text("relu-is-gelu: relu(x) => gelu(x)\n")
    swap.write_text("relu-to-gelu: relu(x) ~> gelu(x)\n")
    x = tensor("input", name="x", shape=(4, 7), dtype="f64")
    model = Model({"main": Function((x,), (tensor("mul", x, tensor("sigmoid", x)),))})
    fast = ft.optimize(model, machine=REFERENCE, cache=cache, rules=[good])
    names = {rule for phase in fast.compilation.saturation.phases for rule in phase.statistics.matches_by_rule}
    assert "good/silu-by-hand" in names
    with pytest.raises(ft.FrittataError, match="left:"):
        ft.optimize(model, machine=REFERENCE, cache=cache, rules=[wrong])
    relu = Model({"main": Function((x,), (tensor("relu", x),))})
    value = np.random.default_rng(0).standard_normal((4, 7))
    changed = ft.optimize(relu, machine=REFERENCE, cache=cache, rules=[swap])
    (expected,) = interpret.evaluate((tensor("gelu", x),), {"x": value})
    np.testing.assert_allclose(changed(value), expected, rtol=1e-12)


@pytest.mark.parametrize("form", ["fast", "plain"])
def test_padding_meets_infinite_weights_as_in_eager(form: str, cache: Path) -> None:
    module = torch.nn.Conv2d(3, 4, 3, padding=1).eval()
    x = torch.randn(1, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        module.weight[0, 0, 0, 0], module.weight[1, 0, 2, 2] = float("inf"), float("nan")
        expected = module(x)
    fast = ft.optimize(module, (x,), machine=REFERENCE, cache=cache, form=form)
    torch.testing.assert_close(fast(x), expected, equal_nan=True, rtol=1e-4, atol=1e-4)


def test_what_is_written_both_ways_round_is_computed_once(cache: Path) -> None:
    def both(a: Any, b: Any, w: Any) -> Any:
        return (a * b) @ w, np.maximum(b * a, a + b) + (b * a) @ w, np.maximum(b + a, a * b)

    a, b, w = (np.random.default_rng(seed).standard_normal((24, 24)) for seed in range(3))
    fast = ft.optimize(both, (a, b, w), machine=REFERENCE, cache=cache)
    assert [kernel.template for kernel in fast.kernels].count("contraction") == 1
    for found, expected in zip(fast(a, b, w), both(a, b, w), strict=True):
        np.testing.assert_allclose(found, expected, 1e-12, 1e-12)
