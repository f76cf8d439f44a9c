"""Models that change their buffers or arguments in place: the calls of a compiled one leave what the module's leave."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import frittata as ft
from frittata.egraph.errors import IndexRangeError, ModelError, SharedMemoryError, StaleParametersError
from frittata.egraph.machine import REFERENCE
from frittata.kernels.updates import written_over
from frittata.optimized import Optimized


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


class Counts(nn.Module):
    """Counts its calls in a buffer, and keeps what it was given last without reading it."""

    total: Tensor
    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("total", torch.zeros((), dtype=torch.int32))
        self.register_buffer("last", torch.zeros(3), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.total += 1
        self.last.copy_(x)
        return self.linear(x) * self.total, self.last


class Replaces(nn.Module):
    """Puts a new tensor in the place of a buffer, and changes one of a part of it."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.part = Counts()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.5 * self.mean + x
        return self.part(self.mean * 2)[0] + self.mean


class ChangesArguments(nn.Module):
    """Writes to slices of its arguments, one of which it does not read."""

    def forward(self, x: Tensor, by_name: dict[str, Tensor]) -> Tensor:
        before = x * 2
        x[1:] -= 1
        by_name["out"][::2] = x[0]
        return before + x


class Learns(nn.Module):
    """Changes a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.mul_(0.5)
        return x * self.weight


class Turns(nn.Module):
    """Has complex state."""

    phase: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("phase", torch.ones(3, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        self.phase.mul_(1j).add_(x)
        return self.phase.abs()


class Shifts(nn.Module):
    """Keeps the last lines that it was given, and how they were before."""

    lines: Tensor
    before: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("lines", torch.zeros(5, 7))
        self.register_buffer("before", torch.zeros(5, 7))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.before.mT @ self.lines
        self.before.copy_(self.lines.flip(0) * 2)
        self.lines.copy_(torch.cat([self.lines[1:], x[None]]))
        return self.lines.sum(0) + self.before[0], mean


class Attention(nn.Module):
    """Decodes one token of several with a cache of keys and values, of a size that is fixed."""

    keys: Tensor
    values: Tensor

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.project, self.size = nn.Linear(6, 18), size
        self.register_buffer("keys", torch.zeros(1, 2, size, 3))
        self.register_buffer("values", torch.zeros(1, 2, size, 3))

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        q, k, v = (part.view(1, -1, 2, 3).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        self.keys.index_copy_(2, place, k)
        self.values[:, :, place] = v
        mask = torch.arange(self.size) <= place[:, None]
        attended = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        return attended.transpose(1, 2).flatten(2)


Arguments = Callable[[int], tuple[Any, ...]]
MODELS: dict[str, tuple[Callable[[], nn.Module], Arguments]] = {
    "a count, and a buffer that is only written": (Counts, lambda i: (drawn(3, seed=i),)),
    "a buffer that is replaced, and one within": (Replaces, lambda i: (drawn(3, seed=i),)),
    "arguments": (ChangesArguments, lambda i: (drawn(3, seed=i), {"out": drawn(5, seed=i + 9)})),
    "a parameter": (Learns, lambda i: (drawn(3, seed=i),)),
    "lines that move": (Shifts, lambda i: (drawn(7, seed=i),)),
    "complex numbers": (Turns, lambda i: (drawn(3, seed=i),)),
    "a cache of keys": (Attention, lambda i: (drawn(1, 1, 6, seed=i), torch.tensor([i]))),
}


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


def fits(found: Any, expected: Any) -> None:
    for one, other in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True):
        torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other))


def compare(fast: Any, own: nn.Module | None, module: nn.Module, arguments: Arguments, as_numpy: bool = False) -> None:
    """Call both on the same, three times, and compare results, arguments after the call, and what the modules hold."""
    for i in range(3):
        args, others = copy.deepcopy((arguments(i), arguments(i)))
        if as_numpy:
            args = pytree.tree_map(lambda tensor: tensor.numpy(), args)
        with torch.no_grad():
            result = fast(*args)
            expected = module(*others)
        fits((result, args), (expected, others))
        assert not as_numpy or all(isinstance(leaf, np.ndarray) for leaf in pytree.tree_leaves(result))
        if own is not None:
            fits(tensors_of(own), tensors_of(module))


OPTIONS: dict[str, dict[str, Any]] = {
    "parameters are read anew": {"freeze": False},
    "without a guard": {"freeze": True},
    "plain": {"form": "plain"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_state_is_kept_under_other_options(name: str) -> None:
    own = Replaces().eval()
    module = copy.deepcopy(own)
    fast = ft.optimize(own, (drawn(3),), machine=REFERENCE, **OPTIONS[name])
    compare(fast, own, module, lambda i: (drawn(3, seed=i),))


@pytest.mark.parametrize("name", MODELS)
def test_calls_leave_what_those_of_the_module_leave(name: str) -> None:
    make, arguments = MODELS[name]
    own = make().eval()
    module = copy.deepcopy(own)
    fast = ft.optimize(own, arguments(0), machine=REFERENCE)
    fits(tensors_of(own), tensors_of(module))
    compare(fast, own, module, arguments)
    compare(fast, own, module, arguments, as_numpy=True)


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_goes_on_from_the_state_that_it_was_saved_in(name: str, tmp_path: Path) -> None:
    make, arguments = MODELS[name]
    module = make().eval()
    fast = ft.optimize(module, arguments(0), machine=REFERENCE)
    compare(fast, module, copy.deepcopy(module), arguments)
    loaded = ft.load(fast.save(tmp_path / "model.ft"))
    compare(loaded, None, copy.deepcopy(module), arguments)
    compare(ft.load(tmp_path / "model.ft"), None, copy.deepcopy(module), arguments, as_numpy=True)


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_program_keeps_its_state(name: str) -> None:
    make, arguments = MODELS[name]
    module = make().eval()
    with torch.no_grad():
        program = torch.export.export(copy.deepcopy(module), arguments(0))
    compare(ft.optimize(program, machine=REFERENCE), None, module, arguments)


@pytest.mark.parametrize("name", MODELS)
def test_torch_compile_keeps_the_state_of_modules(name: str) -> None:
    make, arguments = MODELS[name]
    own = make().eval()
    module = copy.deepcopy(own)
    torch.compiler.reset()
    options: Any = {"machine": REFERENCE}
    compare(torch.compile(own, backend="frittata", options=options), own, module, arguments)


class Scales(nn.Module):
    """Changes a buffer, and has a parameter that is not registered."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.factors = [nn.Parameter(drawn(3, seed=1))]

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x)
        return x + self.factors[0] * self.total


def test_parameters_in_lists_are_guarded_beside_state() -> None:
    own = Scales().eval()
    fast = ft.optimize(own, (drawn(3),), machine=REFERENCE)
    compare(fast, own, Scales().eval(), lambda i: (drawn(3, seed=i),))
    with torch.no_grad():
        own.factors[0].add_(1)
    with pytest.raises(StaleParametersError):
        fast(drawn(3))


class Force(nn.Module):
    """Differentiates, which torch.export cannot follow, and counts."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.steps.add_(1)
        x.mul_(2)
        return torch.func.grad(lambda x: (x.sin() * self.steps).sum())(x)


def test_a_module_that_differentiates_may_have_state() -> None:
    own = Force().eval()
    compare(ft.optimize(own, (drawn(3),), machine=REFERENCE), own, Force().eval(), lambda i: (drawn(3, seed=i),))


def test_programs_of_several_sizes_share_the_state() -> None:
    own = Attention().eval()
    module = copy.deepcopy(own)
    tokens = torch.export.Dim("tokens", min=1, max=8)
    examples = drawn(1, 3, 6), torch.arange(3)
    fast = ft.optimize(own, examples, dynamic_shapes=({1: tokens}, {0: tokens}), machine=REFERENCE)
    for first, last in ((0, 4), (4, 5), (5, 6), (2, 6)):
        args = drawn(1, last - first, 6, seed=first), torch.arange(first, last)
        with torch.no_grad():
            fits(fast(*args), module(*args))
        fits(own.state_dict(), module.state_dict())
    assert len(fast.programs) == 2


def test_state_is_read_where_the_module_has_it_now() -> None:
    module = Counts().eval()
    fast = ft.optimize(module, (drawn(3),), machine=REFERENCE)
    module.total = torch.tensor(41, dtype=torch.int32)
    with torch.no_grad():
        fits(fast(drawn(3))[0], module.linear(drawn(3)) * 42)
    assert module.total == 42


def test_verifying_and_measuring_change_nothing() -> None:
    module = Counts().eval()
    fast = ft.optimize(module, (drawn(3),), machine=REFERENCE, verify=True)
    fast.measure()
    assert fast.verify().is_right and module.total == 0


def test_changed_memory_is_nobody_elses() -> None:
    x, views, apart = drawn(3), drawn(6), drawn(6)
    fast = ft.optimize(lambda x, y: x.add_(y), (x, drawn(3)), machine=REFERENCE)
    for args in ((x, x), (views[:3], views[2:5]), (x.numpy(), x.numpy())):
        with pytest.raises(ModelError, match=r"shares memory with another(.|\n)*clone"):
            fast(*args)
    fast(apart[::2], apart[1::2])
    fits(apart[::2], drawn(6)[::2] + drawn(6)[1::2])


def optimized(model: Any, *args: Any) -> tuple[Optimized, dict[int, int]]:
    """Return a compiled model, and which of its outputs are written over inputs."""
    fast = ft.optimize(model, args, machine=REFERENCE)
    return fast, written_over(fast.program, fast.compilation.imported.state.changes)


def test_what_is_written_or_computed_where_it_was_is_not_copied() -> None:
    def adds(x: Tensor, y: Tensor) -> None:
        x.add_(y)

    sums, values = drawn(5, 7), drawn(5, 7, seed=1)
    fast, over = optimized(adds, sums, values)
    fast(sums, values)
    assert over == {0: 0} and sums._version == 1
    fits(sums, drawn(5, 7) + values)
    _, over = optimized(Attention().eval(), drawn(1, 1, 6), torch.tensor([0]))
    assert len(over) == 2
    fast, over = optimized(Shifts().eval(), drawn(7))
    assert list(fast.program.inputs).index("lines") not in over.values()


@pytest.mark.parametrize("size", [(70, 50), (96, 67), (101, 96), (64, 64)])
def test_what_is_computed_twice_is_not_written_over_what_it_is_computed_from(size: tuple[int, int]) -> None:
    """Tiles in which x is transposed reach over the end, unless the sizes are multiples of theirs."""

    def averages(mean: Tensor, x: Tensor) -> None:
        mean.mul_(0.5).add_(x.mT)

    mean, x = drawn(*size), drawn(*size[::-1], seed=1)
    fast, over = optimized(averages, mean, x)
    fast(mean, x)
    fits(mean, 0.5 * drawn(*size) + x.mT)
    assert over == ({0: 0} if size == (64, 64) else {})


def test_one_kernel_may_write_over_several_of_what_it_reads() -> None:
    """Each becomes what is computed from both; where lines are turned around, x would be read after it is written."""

    def exchanges(x: Tensor, y: Tensor) -> None:
        before = x * 2 + y
        x.copy_(y * 3 - x)
        y.copy_(before)

    def turns(x: Tensor, y: Tensor) -> None:
        before = x.flip(0) + y
        x.add_(y)
        y.copy_(before)

    x, y = drawn(40, 29), drawn(40, 29, seed=1)
    for model, expected in ((exchanges, {0: 0, 1: 1}), (turns, {1: 1})):
        args = x.clone(), y.clone()
        fast, over = optimized(model, *args)
        assert len(fast.program.kernels) == 1 and over == expected
        others = copy.deepcopy(args)
        fast(*args)
        model(*others)
        fits(args, others)


def test_a_place_that_is_refused_is_not_written_to() -> None:
    module = Attention().eval()
    fast, over = optimized(module, drawn(1, 1, 6), torch.tensor([0]))
    with torch.no_grad():
        fast(drawn(1, 1, 6), torch.tensor([2]))
        before = {name: tensor.clone() for name, tensor in tensors_of(module).items()}
        with pytest.raises(IndexRangeError):
            fast(drawn(1, 1, 6), torch.tensor([8]))
    assert over
    fits(before, tensors_of(module))


def test_guards_of_other_models_see_what_a_call_changes() -> None:
    module = Counts().eval()
    reader = ft.optimize(lambda x: x + module.total, (drawn(3),), machine=REFERENCE)
    fast = ft.optimize(module, (drawn(3),), machine=REFERENCE)
    fits(reader(drawn(3)), drawn(3))
    with torch.no_grad():
        fast(drawn(3))
    with pytest.raises(StaleParametersError):
        reader(drawn(3))


class Weighs(nn.Module):
    """Changes its argument, and reads a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        x.add_(1)
        return x * self.weight


@pytest.mark.parametrize("freeze", [None, True, False])
def test_a_parameter_is_no_argument_that_is_changed(freeze: bool | None) -> None:
    module = Weighs().eval()
    fast = ft.optimize(module, (drawn(3),), machine=REFERENCE, freeze=freeze)
    with torch.no_grad(), pytest.raises(SharedMemoryError):
        fast(module.weight)
    assert module.weight.tolist() == [1, 1, 1]


def test_gradients_do_not_flow_through_what_is_changed() -> None:
    fast = ft.optimize(Weighs().eval(), (drawn(3),), machine=REFERENCE)
    x = drawn(3).requires_grad_() * 2
    with pytest.raises(ModelError, match=r"gradients are wanted(.|\n)*no_grad"):
        fast(x)
    with torch.no_grad():
        fits(fast(x), drawn(3) * 2 + 1)


def test_views_that_are_conjugated_or_negated_are_changed_where_they_lie() -> None:
    fast = ft.optimize(lambda z: z.add_(1j), (torch.zeros(2, dtype=torch.complex64),), machine=REFERENCE)
    z = torch.zeros(2, dtype=torch.complex64)
    version = z._version
    fast(z.conj())
    assert z.tolist() == [-1j, -1j] and z._version > version
    sums = ft.optimize(lambda x, y: x.add_(1) + y, (drawn(3), drawn(3)), machine=REFERENCE)
    z = torch.zeros(3, dtype=torch.complex64)
    with pytest.raises(SharedMemoryError):
        sums(z.imag, z.conj().imag)
    sums(z.real, z.conj().imag)
    assert z.tolist() == [1, 1, 1]


def test_what_a_refused_call_may_have_changed_is_counted() -> None:
    def writes(cache: Tensor, places: Tensor, x: Tensor) -> None:
        cache.index_copy_(0, places, x)

    cache = torch.zeros(4, 2)
    fast = ft.optimize(writes, (cache, torch.tensor([0, 1]), drawn(2, 2)), machine=REFERENCE)
    version = cache._version
    with pytest.raises(IndexRangeError):
        fast(cache, torch.tensor([0, 9]), drawn(2, 2))
    assert cache._version > version and not cache[1:].any()


def test_threads_change_state_one_after_the_other() -> None:
    module = Counts().eval()
    fast = ft.optimize(module, (drawn(3),), machine=REFERENCE)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: fast(drawn(3).numpy()), range(100)))
    assert module.total == 100


class Grows(nn.Module):
    """Adds to many values, slowly."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(200, 200))

    def forward(self, x: Tensor) -> Tensor:
        self.total += x.sum() + 0 * self.total.tanh().sin()
        return self.total[0]


def test_threads_change_state_one_after_the_other_at_several_sizes() -> None:
    module, sizes = Grows().eval(), (2, 3)
    fast = ft.optimize(module, (drawn(2),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},), machine=REFERENCE)
    for size in sizes:
        fast.at(n=size)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda size: [fast(torch.ones(size)) for _ in range(500)], sizes))
    assert torch.equal(module.total, torch.full((200, 200), 2500.0))


class Clock(nn.Module):
    """Takes nothing."""

    time: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("time", torch.zeros(2))

    def forward(self) -> Tensor:
        return self.time.add_(1) * 2


def test_a_module_that_takes_nothing_returns_tensors() -> None:
    own = Clock().eval()
    compare(ft.optimize(own, (), machine=REFERENCE), own, Clock().eval(), lambda _: ())


def test_what_cannot_be_written_to_is_refused() -> None:
    fast = ft.optimize(lambda x: x.add_(1), (drawn(3),), machine=REFERENCE)
    fixed = drawn(3).numpy()
    fixed.flags.writeable = False
    with pytest.raises(ModelError, match=r"this ndarray cannot be written to(.|\n)*a numpy array that may be"):
        fast(fixed)


UNFIT = {
    "expanded": (lambda: drawn(1).expand(3), r"in one place: it is expanded(.|\n)*x\.clone\(\)"),
    "of inference mode": (torch.inference_mode()(lambda: drawn(3).clone()), r"made under torch\.inference_mode"),
    "sparse": (lambda: drawn(3).to_sparse(), "no dense tensor"),
    "nested": (lambda: torch.nested.nested_tensor([drawn(2), drawn(1)], layout=torch.jagged), "no dense tensor"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_torch_would_not_write_to_is_refused_before_anything_has_changed(name: str) -> None:
    made, message = UNFIT[name]

    def twice(first: Tensor, second: Tensor) -> None:
        first.add_(1)
        second.add_(1)

    fast = ft.optimize(twice, (drawn(3), drawn(3)), machine=REFERENCE)
    other = drawn(3)
    with torch.no_grad(), pytest.raises(ModelError, match=message):
        fast(other, made())
    assert torch.equal(other, drawn(3))


def test_what_is_read_beside_a_change_has_to_be_dense() -> None:
    fast = ft.optimize(lambda x, y: x.add_(y), (drawn(3), drawn(3)), machine=REFERENCE)
    with pytest.raises(ModelError, match="numpy cannot read"):
        fast(drawn(3), drawn(3).to_sparse())


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_what_is_resized_in_place_is_refused() -> None:
    x, at = drawn(6), torch.tensor([2])
    message = r"changes the shape of out from \[\d\] to \[1\](.|\n)*give out= a tensor of"
    for out in (torch.zeros(6), torch.zeros(0)):
        with pytest.raises(ModelError, match=message):
            ft.optimize(lambda x, at, out: torch.take(x, at, out=out), (x, at, out), machine=REFERENCE)
    out = torch.zeros(1)
    fast = ft.optimize(lambda x, at, out: torch.take(x, at, out=out), (x, at, out), machine=REFERENCE)
    fast(x, at, out)
    assert torch.equal(out, x[at])
