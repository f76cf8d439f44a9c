"""torch.compile(backend="frittata"): graphs are compiled once each, and give what eager gives."""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.utils import _pytree as pytree

import frittata
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.machine import REFERENCE
from frittata.frontends import torch_compile


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing that torch.compile remembers."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `optimize` returned, in order."""
    programs: list[Any] = []
    optimize = frittata.optimize

    def noted(*args: Any, **options: Any) -> Any:
        programs.append(optimize(*args, **options))
        return programs[-1]

    monkeypatch.setattr(frittata, "optimize", noted)
    return programs


@pytest.fixture
def compile(tmp_path: Path) -> Callable[..., Any]:
    options: Any = {"machine": REFERENCE, "cache": tmp_path}
    return lambda module, **given: torch.compile(module.eval(), backend="frittata", options=options, **given)


class Broken(nn.Module):
    """A graph break in the middle, and a number that a caller may change."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 2)
        self.shift = torch.ones(2)

    def forward(self, x: Tensor, factor: float = 2.0) -> Tensor:
        y = F.relu(self.first(x))
        print(end="")  # which torch.compile cannot capture
        return self.second(y) * factor + self.shift


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "mlp": lambda: (nn.Sequential(nn.Linear(7, 13), nn.GELU(), nn.Linear(13, 3)), torch.randn(5, 7)),
    "cnn": lambda: (
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        torch.randn(2, 2, 7, 9),
    ),
}


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", MODELS)
def test_models_agree_with_eager_and_are_compiled_once(name: str, context: Any, compile: Any, compiled: Any) -> None:
    module, x = MODELS[name]()
    fast = compile(module)
    with context():
        for _ in range(2):
            same(fast(x), module(x))
    assert len(compiled) == 1


def test_each_side_of_a_graph_break_is_a_program_with_the_names_of_the_model(compile: Any, compiled: Any) -> None:
    module, x = Broken(), torch.randn(4, 3)
    fast = compile(module)
    with torch.no_grad():
        same(fast(x), module(x))
        same(fast(x), module(x))
    names = [set(program.compilation.imported.parameters) for program in compiled]
    assert names == [{"first.weight", "first.bias"}, {"second.weight", "second.bias", "shift"}]


def test_changed_weights_are_noticed_and_compiled_anew(compile: Any, compiled: Any) -> None:
    module, x = nn.Linear(3, 2), torch.randn(4, 3)
    fast = compile(module)
    with torch.no_grad():
        same(fast(x), module(x))
        module.weight.mul_(2)
        same(fast(x), module(x))
        module.weight = nn.Parameter(torch.randn(2, 3))
        same(fast(x), module(x))
    assert len(compiled) == 3


def test_each_shape_and_each_number_has_its_program(compile: Any) -> None:
    module = Broken()
    fast = compile(module)
    with torch.no_grad():
        for rows, factor in ((4, 2.0), (5, 2.0), (6, 3.0), (6, 4.0)):
            x = torch.randn(rows, 3)
            same(fast(x, factor), module(x, factor))


def test_of_many_sizes_one_is_compiled_once_torch_has_run_for_as_long(
    compile: Any, compiled: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(torch_compile, "perf_counter", lambda: next(ticks))  # to compile takes one, as to run
    module = nn.Linear(3, 2)
    fast = compile(module, dynamic=True)
    counts: list[int] = []
    with torch.no_grad():
        for rows in (*range(2, 10), 10, 11, 10, 10, 2, 11):
            x = torch.randn(rows, 3)
            same(fast(x), module(x))
            counts.append(len(compiled))
    assert counts == [*range(1, 9), 8, 8, 9, 9, 9, 10]
    assert sum(record.message.startswith("a graph has 8 programs: ") for record in caplog.records) == 1


def test_numbers_that_are_equal_and_not_the_same_have_their_own_programs(compile: Any, compiled: Any) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, factor: float) -> Tensor:
            return x * factor

    fast, x = compile(Scaled()), torch.ones(3)
    with torch.no_grad():
        for factor in (2.0, 3.0, 0.0, -0.0, math.nan, math.nan):
            found = fast(x, factor)
            torch.testing.assert_close(found, x * factor, equal_nan=True)
            assert math.isnan(factor) or torch.equal(found.signbit(), (x * factor).signbit())
    assert len(compiled) == 5


def test_arrays_of_numpy_are_arguments(compile: Any, compiled: Any) -> None:
    class Waves(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return (np.sin(x) * 2 + y).sum(0)

    fast, waves = compile(Waves()), Waves()
    with torch.no_grad():
        for rows in (4, 4, 1):
            x, y = np.random.rand(rows, 3), np.random.rand(3)
            found = fast(x, y)
            assert isinstance(found, np.ndarray)
            np.testing.assert_allclose(found, waves(x, y))
    assert len(compiled) == 2


def test_a_graph_that_returns_nothing_is_run_by_torch(compile: Any) -> None:
    class Turned(nn.Module):
        """Its view is made beside the graph, which is empty."""

        def forward(self, x: Tensor) -> Tensor:
            return x.T

    x = torch.randn(3, 4)
    with torch.no_grad():
        assert torch.equal(compile(Turned())(x), x.T)


def test_two_modules_of_one_class_do_not_share_weights(compile: Any) -> None:
    x = torch.randn(4, 3)
    modules = [Broken(), Broken()]
    with torch.no_grad():
        for module in modules:
            same(compile(module)(x), module(x))


def test_what_a_mask_selects_may_be_empty(compile: Any, compiled: Any) -> None:
    class Selected(nn.Module):
        """The graph breaks at the mask, and the first of what it selects is left out."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = x[x > 1]
            return y.sum() * self.scale + x.mean(), y[1:].sum()

    module = Selected()
    fast = compile(module)
    with torch.no_grad():
        for _ in range(2):
            for values in ([0.0, 2, 3], [0.0, 0.5], [0.0, 7], [4.0, 5, 6, 7]):
                for found, expected in zip(fast(torch.tensor(values)), module(torch.tensor(values)), strict=True):
                    same(found, expected)
            module.scale.mul_(3)
    assert {0, 1} <= {extent for fast in compiled for type_ in fast.program.inputs.values() for extent in type_.shape}


def test_what_only_torch_can_say_of_empty_tensors_is_run_by_torch(compile: Any, compiled: Any) -> None:
    def places(x: Tensor, ends: Tensor) -> Tensor:
        return torch.searchsorted(ends, x) + 1

    x, ends = torch.randn(5), torch.arange(3.0)
    options: Any = {"machine": REFERENCE}
    fast = torch.compile(places, backend="frittata", options=options, dynamic=False)
    assert torch.equal(fast(x, ends[:0]), places(x, ends[:0])) and not compiled
    assert torch.equal(fast(x, ends), places(x, ends)) and compiled


class Noisy(nn.Module):
    """Draws random numbers, which a caller may keep out of the graph."""

    def __init__(self, draw: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.draw, self.fc = draw, nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.relu()) + self.draw(x) * 0


def test_what_is_refused_stays_out_of_the_graph_if_it_is_disabled(compile: Any) -> None:
    def draw(x: Tensor) -> Tensor:
        return torch.rand(x.shape[0], 2)

    x = torch.randn(4, 3)
    with torch.no_grad(), pytest.raises(UnsupportedOpError, match=r"under @torch\.compiler\.disable"):
        compile(Noisy(draw))(x)
    disabled: Any = torch.compiler.disable(draw)
    kept = Noisy(disabled)
    with torch.no_grad():
        torch.testing.assert_close(compile(kept)(x), kept(x))


def test_gradients_are_refused(compile: Any) -> None:
    with pytest.raises(ModelError, match="this backend is for inference"):
        compile(nn.Linear(3, 2))(torch.randn(4, 3))


@pytest.mark.parametrize(
    ("mode", "pipeline", "tune"),
    [
        ("default", "default", None),
        ("reduce-overhead", "default", None),
        ("max-autotune", "max", "measure"),
        ("max-autotune-no-cudagraphs", "max", "measure"),
    ],
)
def test_modes_of_torch_are_options(
    mode: str, pipeline: str, tune: str | None, tmp_path: Path, compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = nn.Linear(3, 2), torch.randn(4, 3)
    here = partial(frittata.optimize, machine=REFERENCE, cache=tmp_path)
    monkeypatch.setattr(frittata, "optimize", here)
    with torch.no_grad():
        same(torch.compile(module, backend="frittata", mode=mode)(x), module(x))
    (program,) = compiled
    assert (program.compilation.options.pipeline.name, program.compilation.options.tune) == (pipeline, tune)


def test_a_mode_that_torch_does_not_have_is_refused() -> None:
    with torch.no_grad(), pytest.raises(BackendCompilerFailed, match="no mode 'fastest'"):
        torch.compile(nn.Linear(3, 2), backend="frittata", mode="fastest")(torch.randn(4, 3))


def changes_a_view(x: Tensor) -> Any:
    part = x[1:]
    part.add_(1)
    print(end="")  # a graph break
    part.mul_(2)
    return x * 1


def changes_what_it_returns(x: Tensor) -> Any:
    x.add_(1)
    return x


def returns_a_transpose(x: Tensor) -> Any:
    turned = x.t()
    print(end="")
    turned.add_(3)
    return x + 1, x.sum(0)


def returns_rows(x: Tensor) -> Any:
    y = torch.cumsum(x, 0)
    x.mul_(y)
    return x[0], y[0], x


VIEWS: dict[str, Callable[[Tensor], Any]] = {
    "a part that is changed in two graphs": changes_a_view,
    "an argument": changes_what_it_returns,
    "a transpose": returns_a_transpose,
    "rows": returns_rows,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", VIEWS)
def test_results_that_are_views_of_arguments_stay_views(name: str, dynamic: bool | None, tmp_path: Path) -> None:
    torch.compiler.reset()
    options: Any = {"machine": REFERENCE, "cache": tmp_path}
    fast = torch.compile(VIEWS[name], backend="frittata", options=options, dynamic=dynamic)
    x, expected = torch.ones(3, 3), torch.ones(3, 3)
    with torch.no_grad():
        for found, wanted in zip(*map(pytree.tree_leaves, (fast(x), VIEWS[name](expected))), strict=True):
            same(found.mul_(5), wanted.mul_(5))
    same(x, expected)


def changed_after_a_break(x: Tensor) -> Any:
    y = x + 1
    flat = y.view(-1)
    print(end="")  # a graph break
    flat.add_(1)
    return y


RESULTS_OF_ONE_MEMORY: dict[str, Callable[[Tensor], Any]] = {
    "changed after a graph break": changed_after_a_break,
    "flat": lambda x: (lambda y: (y, y.view(-1), y[0]))(x + 1),
    "the whole is the last": lambda x: (lambda y: (y.t()[1], y))(x + 1),
    "no one is the whole": lambda x: (lambda y: (y[:2], y[1:]))(x + 1),
    "as integers": lambda x: (lambda y: (y, y.view(torch.int32)))(x + 1),
    "nothing in common": lambda x: (x + 1).chunk(3, -1),
    "nothing at all": lambda x: (lambda y: (y, y.view(-1), x * 1))(x[:0] + 1),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", RESULTS_OF_ONE_MEMORY)
def test_results_that_share_memory_go_on_sharing_it(name: str, dynamic: bool | None, tmp_path: Path) -> None:
    function = RESULTS_OF_ONE_MEMORY[name]
    options: Any = {"machine": REFERENCE, "cache": tmp_path}
    fast = torch.compile(function, backend="frittata", options=options, dynamic=dynamic)
    x = torch.randn(3, 3)
    with torch.no_grad():
        found, expected = (pytree.tree_leaves(called(x)) for called in (fast, function))
        for changed, wanted in zip(found, expected, strict=True):
            changed.add_(1)
            wanted.add_(1)
        for changed, wanted in zip(found, expected, strict=True):
            same(changed, wanted)


def test_results_without_an_element_in_common_are_compiled(compile: Any, compiled: Any) -> None:
    class Heads(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return (x + 1).chunk(2, -1)

    with torch.no_grad():
        same(compile(Heads())(torch.zeros(3, 4))[1], torch.ones(3, 2))
    assert len(compiled) == 1


LAYER = nn.Linear(4, 4)


def through_the_global(x: Tensor) -> Tensor:
    return LAYER(x)


def test_two_models_of_one_name_keep_their_weights(tmp_path: Path) -> None:
    def function(x: Tensor, LAYER: nn.Module) -> Tensor:
        return through_the_global(x) + 2 * LAYER(x)

    options: Any = {"machine": REFERENCE, "cache": tmp_path}
    x, other = torch.randn(2, 4), nn.Linear(4, 4)
    with torch.no_grad():
        same(torch.compile(function, backend="frittata", options=options)(x, other), function(x, other))


def test_an_attribute_that_is_replaced_does_not_hide_the_weights(compile: Any) -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total, self.fc = torch.ones(4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            self.total = self.total + x.sum(0)
            return self.fc(x) + self.total

    module = Sum()
    fast = compile(module)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for calls in (1, 2):
            same(fast(x), module.fc(x) + 1 + calls * x.sum(0))


READ_OTHERWISE: dict[str, tuple[Callable[[Tensor], Any], torch.dtype]] = {
    "conjugated": (lambda z: (z.conj(), z * 2), torch.complex64),
    "a part": (lambda z: (z.imag, z * 2), torch.complex64),
    "as integers": (lambda x: (x.view(torch.int32), x * 2), torch.float32),
}


@pytest.mark.parametrize("name", READ_OTHERWISE)
def test_views_that_read_an_argument_otherwise_are_what_torch_makes(name: str, tmp_path: Path) -> None:
    torch.compiler.reset()
    function, dtype = READ_OTHERWISE[name]
    options: Any = {"machine": REFERENCE, "cache": tmp_path}
    fast = torch.compile(function, backend="frittata", options=options)
    x = torch.randn(3, 4, dtype=dtype)
    with torch.no_grad():
        for found, wanted in zip(fast(x), function(x), strict=True):
            assert torch.equal(found, wanted) and found.dtype == wanted.dtype
