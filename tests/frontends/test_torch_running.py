"""Exports of torch: from several threads, and of modules that do not do the same in each call."""

import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import REFERENCE
from frittata.frontends import torch_running
from frittata.frontends.torch_export import from_module
from frittata.frontends.torch_functions import as_module

calls_of_all, calls_of_modules = 0, [0]

X = torch.linspace(-1, 1, 8).reshape(2, 4)


@torch.fx.wrap
def doubled(x: Tensor) -> Tensor:
    return x * 2


def test_several_threads_export_at_once() -> None:
    def imported(width: int) -> tuple[Any, ...]:
        module = nn.Sequential(nn.Linear(4, width), nn.Softsign()).eval()  # Softsign is decomposed
        return from_module(module, (X,)).model.main.outputs[0].shape

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(imported, range(2, 10))) == [(2, width) for width in range(2, 10)]


class Pauses(nn.Module):
    """Gives other threads time while it is exported."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.is_exported = seconds, threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        self.is_exported.set()  # max, min and math.pow are torch's own now
        time.sleep(self.seconds)
        return x + 1

    def begin(self) -> threading.Thread:
        """Begin to export it in another thread."""
        thread = threading.Thread(target=from_module, args=(self.eval(), (X,)))
        thread.start()
        assert self.is_exported.wait(60)
        return thread


def test_numba_begins_beside_an_export(tmp_path: Path) -> None:
    run = "import test_torch_running as own; own.compile_beside()"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", run], check=True, cwd=Path(__file__).parent, env=environment)


def compile_beside() -> None:
    thread = Pauses(3).begin()
    fast = ft.optimize(np.sort, (X.numpy(),), machine=REFERENCE)
    np.testing.assert_array_equal(fast(X.numpy()), np.sort(X.numpy()))
    thread.join()


def test_plain_kernels_are_compiled_beside_an_export(tmp_path: Path) -> None:
    places = np.array([0, 1, 1])
    plain = ft.optimize(lambda x, at: x[at] + 1, (X.numpy(), places), machine=REFERENCE, cache=tmp_path, form="plain")
    thread = Pauses(1).begin()
    np.testing.assert_array_equal(plain(X.numpy(), places), X.numpy()[places] + 1)
    thread.join()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_of_a_fork_beside_an_export_waits_for_none(tmp_path: Path) -> None:
    layer = nn.Linear(X.shape[-1], 2).eval()
    fast = ft.optimize(layer, (X,), machine=REFERENCE, cache=tmp_path, freeze=False)
    expected = fast(X)
    thread = Pauses(0.5).begin()
    child = os.fork()
    if not child:
        signal.alarm(30)
        code = 1
        try:
            code = int(not torch.equal(fast(X), expected))
        finally:
            os._exit(code)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_torch_warns_of_nothing_of_its_own() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ft.optimize(lambda x: torch.special.bessel_j0(x), (X,), machine=REFERENCE)


class Counter(nn.Module):
    """Counts its calls, and remembers what it has seen."""

    def __init__(self, function: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__()
        self.count, self.width = 0, None
        self.inner, self.function = nn.ReLU(), function

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.width = x.shape[-1]
        vars(self.inner)["width"] = self.width
        return self.function(self.inner(x) * self.width, self.count)


USES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "a number": lambda x, count: x + count,
    "a tensor": lambda x, count: x + torch.tensor(count),
    "a branch": lambda x, count: -x if count % 2 else x,
}


@pytest.mark.parametrize("name", USES)
def test_a_module_that_counts_its_calls_is_refused_and_left_as_it_was(name: str) -> None:
    module = Counter(USES[name]).eval()
    with pytest.raises(ModelError, match=r"Counter changes self.count, self.width, self.inner.width while it runs"):
        from_module(module, (X,))
    assert (module.count, module.width) == (0, None) and "width" not in vars(module.inner)


def test_a_module_may_remember_what_no_result_depends_on() -> None:
    module = Counter(lambda x, _: x).eval()
    assert from_module(module, (X,)).model.main.outputs[0].shape == (2, 4)
    assert (module.count, module.width) == (0, None)


class Slots:
    """An object without a dict."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count: Any = 0


class Remembers(nn.Module):
    """Has tensors and numbers that are no buffers."""

    def __init__(self, forward: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.seen, self.list, self.nested, self.last = torch.zeros(4), [torch.zeros(4)], {"deep": [0]}, None
        self.queue, self.object = deque([1.0], maxlen=2), Slots()
        self.function = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def sums(self: Any, x: Tensor) -> Tensor:
    self.seen = self.seen + x
    return self.seen * 2


def sums_in_a_list(self: Any, x: Tensor) -> Tensor:
    self.list[0] = self.list[0] + x
    return self.list[0] * 2


def grows(self: Any, x: Tensor) -> Tensor:
    self.list.append(x)
    return torch.stack([part.sum() for part in self.list])


def counts(self: Any, x: Tensor) -> Tensor:
    self.nested["deep"][0] += 1
    return x * self.nested["deep"][0]


def queues(self: Any, x: Tensor) -> Tensor:
    self.queue.append(2.0)
    return x * self.queue[0] + self.queue[-1]


def counts_in_an_object(self: Any, x: Tensor) -> Tensor:
    self.object.count += 1
    return x * self.object.count


def makes_an_object(self: Any, x: Tensor) -> Tensor:
    if self.last is None:
        self.last = Slots()
        self.last.count = x * 0
    self.last.count = self.last.count + x
    return self.last.count * 1


def counts_for_all(self: Any, x: Tensor) -> Tensor:
    calls_of_modules[0] += 1
    return x * calls_of_modules[0]


def returns_more(self: Any, x: Tensor) -> Any:
    self.list.append(torch.ones(4))
    return [x + part for part in self.list]


def keeps_the_first(self: Any, x: Tensor) -> Tensor:
    self.last = x * 2 if self.last is None else self.last
    return x + self.last


def sums_beside_a_gradient(self: Any, x: Tensor) -> Tensor:
    self.seen = self.seen + x.sum(0)
    return torch.func.grad(lambda y: (y * self.seen).sin().sum())(x)


KEPT: dict[str, tuple[Callable[[Any, Tensor], Any], str]] = {
    "a tensor": (sums, "self.seen"),
    "a tensor beside a gradient": (sums_beside_a_gradient, "self.seen"),
    "a tensor in a list": (sums_in_a_list, r"self.list\[0\]"),
    "a list that grows": (grows, r"self.list\[1\]"),
    "a number in a list in a dict": (counts, r"self.nested\['deep'\]\[0\]"),
    "a queue": (queues, r"self.queue\[1\]"),
    "a number in an object": (counts_in_an_object, "self.object.count"),
    "more results": (returns_more, r"self.list\[1\]"),
    "an object that was none": (makes_an_object, "self.last"),
    "a global list": (counts_for_all, r"calls_of_modules\[0\]"),
    "a tensor that was none": (keeps_the_first, "self.last"),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_the_next_call_would_compute_otherwise_is_refused(name: str) -> None:
    function, path = KEPT[name]
    module = Remembers(function).eval()
    before = module.seen, module.list, module.list[0]
    with pytest.raises(ModelError, match=rf"Remembers changes {path}(.|\n)*register_buffer"):
        from_module(module, (X,))
    assert all(a is b for a, b in zip((module.seen, module.list, module.list[0]), before, strict=True))
    assert (len(module.list), module.nested, module.last) == (1, {"deep": [0]}, None)
    assert (list(module.queue), module.object.count, calls_of_modules) == ([1.0], 0, [0])


def test_loggers_that_are_made_during_an_export_are_no_change_of_the_module() -> None:
    """Torch makes some as it loads its own modules: the module was exported again, and the loggers were lost."""
    made = "made during an export"
    log = logging.getLogger(__name__)

    class Logs(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            log.debug("a call")
            logging.getLogger(made)
            return x + 1

    from_module(Logs(), (X,))
    assert made in logging.Logger.manager.loggerDict


def test_functions_that_change_what_they_have_from_elsewhere_are_refused() -> None:
    total = [0]

    def counted(x: Tensor) -> Tensor:
        total[0] += 1
        return x * total[0]

    number = 0

    def counts_here(x: Tensor) -> Tensor:
        nonlocal number
        number += 1
        return x * number

    def counts_for_all(x: Tensor) -> Tensor:
        global calls_of_all
        calls_of_all += 1
        return x * calls_of_all

    for function, name in ((counted, r"total\[0\]"), (counts_here, "number"), (counts_for_all, "calls_of_all")):
        with pytest.raises(ModelError, match=rf"changes {name} while it runs"):
            from_module(as_module(function), (X,))
    assert (total, number, calls_of_all) == ([0], 0, 0)


def makes_a_table(self: Any, x: Tensor) -> Tensor:
    self.last = torch.arange(x.shape[-1]) * 0.5 if self.last is None else self.last
    return x + self.last


def makes_a_table_of_each_size(self: Any, x: Tensor) -> Tensor:
    if x.shape[-1] not in self.nested:
        self.nested[x.shape[-1]] = torch.linspace(0, 1, x.shape[-1]).cos()
    return x * self.nested[x.shape[-1]]


TABLES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "one": makes_a_table,
    "in a dict": makes_a_table_of_each_size,
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_the_first_call_makes_are_constants(name: str) -> None:
    module = Remembers(TABLES[name]).eval()
    fast = ft.optimize(module, (X,), machine=REFERENCE)
    assert module.last is None and list(module.nested) == ["deep"]
    torch.testing.assert_close(fast(X * 2), module(X * 2))


def test_modules_whose_hooks_count_are_refused() -> None:
    calls = [0]

    def hook(_: nn.Module, __: Any, result: Tensor) -> Tensor:
        calls[0] += 1
        return result * calls[0]

    module = nn.Sequential(nn.Linear(4, 4))
    module[0].register_forward_hook(hook)
    with pytest.raises(ModelError, match=r"Sequential changes calls\[0\]"):
        from_module(module.eval(), (X,))
    assert calls == [0]


def test_a_module_may_keep_tensors_that_no_call_reads() -> None:
    def kept(self: Any, x: Tensor) -> Tensor:
        self.last = {"twice": x * 2}
        self.list.append(x)
        self.object = Slots()
        return x + self.last["twice"]

    module = Remembers(kept).eval()
    assert from_module(module, (X,)).model.main.outputs[0].shape == (2, 4)
    assert module.last is None and len(module.list) == 1


DRAWS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: np.random.rand(4),
    "a normal number of numpy": np.random.normal,
    "Python": random.random,
}


@pytest.mark.parametrize("name", DRAWS)
def test_what_draws_from_a_global_generator_is_refused(name: str) -> None:
    draw = DRAWS[name]
    with pytest.raises(ModelError, match=r"draws random numbers(.|\n)*default_rng"):
        ft.from_function(lambda x: x * draw(), (X.numpy(),))
    with pytest.raises(ModelError, match="draws random numbers"):
        from_module(as_module(lambda x: x * torch.as_tensor(draw())), (X,))


class Dropped(nn.Module):
    """Drops its layer in training, and draws in each call. Source: Fan et al., LayerDrop, ICLR 2020."""

    def __init__(self, draw: Callable[[], Any], most: float = 0.5) -> None:
        super().__init__()
        self.draw, self.most, self.layer = draw, most, nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        drawn = self.draw()
        return self.layer(x) if not self.training or drawn > self.most else x


NUMBERS: dict[str, Callable[[], Any]] = {
    "random": lambda: random.random(),
    "uniform": lambda: random.uniform(0, 1),
    "numpy's random": lambda: np.random.random(),
    "numpy's rand": lambda: np.random.rand(),
    "numpy's uniform": lambda: np.random.uniform(),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_is_drawn_and_not_looked_at_is_no_reason_to_refuse(name: str) -> None:
    module = Dropped(NUMBERS[name]).eval()
    (found,) = from_module(module, (X,)).model.interpret(X.numpy())
    np.testing.assert_allclose(found, module(X).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert isinstance(NUMBERS[name](), float)


LOOKS: dict[str, Callable[[Any, Any], Any]] = {
    "a comparison": lambda x, drawn: x if drawn < 0.5 else x * 2,
    "a product": lambda x, drawn: x * drawn,
    "a truth value": lambda x, drawn: x if drawn else x * 2,
    "a text": lambda x, drawn: x * len(f"{drawn}"),
    "a rounded number": lambda x, drawn: x * round(drawn),
    "a tensor": lambda x, drawn: x * torch.tensor(drawn),
    "a key": lambda x, drawn: x * {}.get(drawn, 2),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_number_that_is_drawn_and_looked_at_is_refused(look: Callable[[Any, Any], Any]) -> None:
    for draw in NUMBERS.values():
        with pytest.raises(ModelError, match="random number"):
            from_module(as_module(lambda x, draw=draw: look(x, draw())), (X,))


def test_a_look_at_what_is_drawn_whose_error_is_caught_is_refused() -> None:
    def caught(x: Any) -> Any:
        try:
            return x if random.random() < 0.5 else x * 2
        except Exception:
            return x

    with pytest.raises(ModelError, match="random number"):
        from_module(as_module(caught), (X,))


def test_a_number_that_is_drawn_and_kept_is_refused() -> None:
    kept: list[Any] = []
    with pytest.raises(ModelError, match="random number"):
        from_module(as_module(lambda x: (kept.append(random.random()), x)[1]), (X,))


def test_a_generator_of_its_own_is_a_constant() -> None:
    imported = ft.from_function(lambda x: x * np.random.default_rng(3).random(4), (X.numpy(),))
    assert list(imported.model.params) and imported.model.main.outputs[0].dtype == "f64"


def test_autocast_around_the_import_is_refused() -> None:
    message = r"autocast(.|\n)*inside of the model's"
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ModelError, match=message):
        from_module(nn.Linear(4, 2).eval(), (X,))


def test_torch_logs_nothing_of_an_error_that_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ModelError, match="same reduction dim"):
        from_module(nn.Linear(3, 2).eval(), (X,))
    assert all(record.levelno < logging.WARNING for record in caplog.records)


def test_a_function_that_torch_wraps_as_it_traces_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubles(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return doubled(x)

    monkeypatch.setattr(torch_running, "_is_next_the_same", lambda *_: pytest.fail("it was exported again"))
    (found,) = from_module(Doubles().eval(), (X,)).model.interpret(X.numpy())
    np.testing.assert_array_equal(found, 2 * X.numpy())
