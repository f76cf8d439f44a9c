"""What a call or a model may be that is not as it should: a clear error, or what torch gives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import REFERENCE
from frittata.optimized import Optimized

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Layer(nn.Module):
    """A product with weights, a choice by truth values, and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor, chosen: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.inner(x)
        return torch.where(chosen, y, -y) * scale, x, x


@pytest.fixture(scope="module")
def layer() -> nn.Module:
    torch.manual_seed(0)
    return Layer().eval()


CHOSEN, SCALE = torch.tensor([True, False, True, True]), torch.tensor(2.0)


@pytest.fixture(scope="module")
def compiled(layer: nn.Module, cache: Path) -> Optimized:
    return ft.optimize(layer, (X, CHOSEN, SCALE), machine=REFERENCE, cache=cache)


MISFITS: dict[str, tuple[tuple[Any, ...], str]] = {
    "too few": ((X, CHOSEN), r"f\(\*, \*\) has another structure than the export f\(\*, \*, \*\): missing .*'scale'"),
    "too many": ((X, CHOSEN, SCALE, X), "another structure .*: too many positional arguments"),
    "nested": (([X], CHOSEN, SCALE), r"f\(\[\*\], \*, \*\)"),
    "another batch": ((X[:1], CHOSEN, SCALE), r"argument 'x' must be float32\[2, 4\], got float32\[1, 4\]"),
    "an empty batch": ((X[:0], CHOSEN, SCALE), r"got float32\[0, 4\]"),
    "another rank": ((X[0], CHOSEN, SCALE), r"got float32\[4\]"),
    "another dtype": ((X.double(), CHOSEN, SCALE), r"got float64\[2, 4\]"),
    "numbers for truth values": ((X, CHOSEN.int(), SCALE), r"'chosen' must be bool\[4\], got int32\[4\]"),
    "half precision": ((X.bfloat16(), CHOSEN, SCALE), r"got bfloat16\[2, 4\]"),
    "quarter precision": ((X.to(torch.float8_e5m2), CHOSEN, SCALE), "numpy cannot read(.|\n)*Float8"),
    "another device": ((X.to("meta"), CHOSEN, SCALE), "on meta(.|\n)*move it to the CPU"),
    "a sparse tensor": ((X.to_sparse(), CHOSEN, SCALE), "numpy cannot read(.|\n)*dense"),
    "a Python number": ((X, CHOSEN, 2.0), "argument scale is 2.0 and was a tensor"),
    "nothing": ((X, CHOSEN, None), "argument scale is None and was a tensor"),
    "the other byte order": ((X.numpy().astype(">f4"), CHOSEN, SCALE), "got >f4"),
    "a matrix": ((X.numpy().view(np.matrix), CHOSEN, SCALE), "a matrix(.|\n)*numpy arrays"),
    "a masked array": ((np.ma.masked_array(X.numpy()), CHOSEN, SCALE), "MaskedArray"),  # pyright: ignore
}


@pytest.mark.parametrize("name", MISFITS)
def test_arguments_that_do_not_fit_are_refused_in_words(name: str, compiled: Optimized) -> None:
    args, message = MISFITS[name]
    with pytest.raises(ModelError, match=message):
        compiled(*args)


ODD: dict[str, Callable[[Tensor], Any]] = {
    "transposed": lambda x: x.t().contiguous().t(),
    "a slice": lambda x: torch.cat([x, x], 1)[:, :4],
    "expanded": lambda x: x[:1].expand(2, 4),
    "with gradients": lambda x: x.clone().requires_grad_(),
    "a parameter": nn.Parameter,
    "of inference mode": lambda x: torch.inference_mode()(x.clone)(),
    "with a negative bit": lambda x: torch.view_as_complex(torch.stack([x, -x], -1)).conj().imag,
    "read-only": lambda x: np.frombuffer(x.numpy().tobytes(), np.float32).reshape(2, 4),
    "reversed": lambda x: x.numpy()[::-1, ::-1],
    "of a subclass": lambda x: x.numpy().view(np.memmap),
    "misaligned": lambda x: np.frombuffer(b"\0" + x.numpy().tobytes(), np.float32, 8, 1).reshape(2, 4),
}


@pytest.mark.parametrize("name", ODD)
def test_any_tensor_of_the_right_type_is_taken(name: str, compiled: Optimized, layer: nn.Module) -> None:
    x = ODD[name](X)
    given = torch.from_numpy(np.array(x)) if isinstance(x, np.ndarray) else x.detach()
    with torch.no_grad():
        wanted = layer(given, CHOSEN, SCALE)
    for found, one in zip(compiled(x, CHOSEN, SCALE), wanted, strict=True):
        torch.testing.assert_close(torch.as_tensor(found), one)


def test_results_share_memory_with_nothing(compiled: Optimized) -> None:
    x = X.clone()
    _, first, second = compiled(x, CHOSEN, SCALE)
    first.zero_()
    assert torch.equal(second, X) and torch.equal(x, X)


def test_one_tensor_may_be_several_arguments(cache: Path) -> None:
    class Sum(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + y.relu()

    fast = ft.optimize(Sum().eval(), (X, X), machine=REFERENCE, cache=cache)
    torch.testing.assert_close(fast(X, X), X + X.relu())
    torch.testing.assert_close(fast(X, -X), X + (-X).relu())


def test_an_example_may_be_a_parameter_or_another_tensor_of_the_function(cache: Path) -> None:
    weight = torch.linspace(-1, 1, 16).reshape(4, 4)
    fast = ft.optimize(lambda x: x * weight, (weight,), machine=REFERENCE, cache=cache)
    torch.testing.assert_close(fast(weight + 1), (weight + 1) * weight)
    linear = nn.Linear(4, 4, bias=False).eval()
    found = ft.optimize(linear, (linear.weight,), machine=REFERENCE, cache=cache)(weight)
    torch.testing.assert_close(found, weight @ linear.weight.detach().T)


class Refused(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def fails(x: Tensor) -> Tensor:
    raise ValueError("not today")


class Holds(nn.Module):
    """A function of a module with two buffers, and a tensor that is none."""

    one: Tensor
    other: Tensor

    def __init__(self, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.function: Any = function
        self.plain = torch.zeros(3)
        self.register_buffer("one", torch.zeros(3))
        self.register_buffer("other", torch.zeros(3))
        self.register_buffer("none", None)
        self.weight = nn.Parameter(torch.ones(3))
        self.left, self.right = nn.ReLU(), nn.Tanh()

    def forward(self, x: Tensor) -> Any:
        self.function(self, x)
        return x + self.one


def replaces_a_buffer_by_an_argument(self: Any, x: Tensor) -> None:
    self.one = x


def writes_one_value_twice(self: Any, x: Tensor) -> None:
    self.one.copy_(x * 2)
    self.other = self.one


def registers(self: Any, x: Tensor) -> None:
    if "made" not in self._buffers:
        self.register_buffer("made", torch.arange(3.0), persistent=False)


def fills(self: Any, x: Tensor) -> None:
    self.none = x * 2 if self.none is None else self.none


def grows(self: Any, x: Tensor) -> None:
    self.other = torch.cat([self.other, x])


def casts(self: Any, x: Tensor) -> None:
    self.other = self.other.double() + x


def exchanges_parts(self: Any, x: Tensor) -> None:
    self.left, self.right = self.right, self.left


def replaces_a_parameter(self: Any, x: Tensor) -> None:
    self.weight = nn.Parameter(self.weight * 2)


STATES: dict[str, tuple[Callable[[Any, Tensor], Any], str]] = {
    "no buffer": (lambda self, x: self.plain.add_(x), r"changes plain in place(.|\n)*register_buffer"),
    "a new buffer": (registers, r"the buffer made(.|\n)*__init__"),
    "a buffer that was none": (fills, "the buffer none"),
    "a buffer that grows": (grows, "the buffer other"),
    "a buffer of another dtype": (casts, "the buffer other"),
    "parts": (exchanges_parts, "replaces the part left"),
    "a parameter": (replaces_a_parameter, "replaces the parameter weight"),
    "a buffer that becomes an argument": (replaces_a_buffer_by_an_argument, r"replaces its buffer one(.|\n)*copy_"),
    "one value of two buffers": (writes_one_value_twice, r"one value to two of its buffers(.|\n)*clone"),
}


@pytest.mark.parametrize("name", STATES)
def test_state_that_torch_cannot_export_is_refused_with_advice(name: str) -> None:
    function, message = STATES[name]
    module = Holds(function).eval()
    before = module.state_dict(keep_vars=True), dict(module.named_children())
    with pytest.raises(ModelError, match=message):
        ft.optimize(module, (torch.ones(3),))
    assert all(value is module.state_dict(keep_vars=True)[name] for name, value in before[0].items())
    assert dict(module.named_children()) == before[1] and list(dict(module.named_buffers())) == ["one", "other"]
    assert not module.one.any()


def test_a_buffer_that_is_read_by_another_name_when_it_was_changed_is_refused() -> None:
    module = Holds(lambda self, x: self.other.add_(x)).eval()
    module.register_buffer("one", module.other[:])
    with pytest.raises(ModelError, match=r"shares memory(.|\n)*by one name"):
        ft.optimize(module, (torch.ones(3),))


MODELS: dict[str, tuple[Callable[[Tensor], Any], tuple[Any, ...], str]] = {
    "no arguments": (torch.relu, (), "do not fit Refused.forward(.|\n)*missing"),
    "too many arguments": (torch.relu, (X, X), "do not fit Refused.forward(.|\n)*too many"),
    "no results": (lambda x: None, (X,), "returns nothing"),
    "a model that raises": (fails, (X,), "cannot follow Refused: not today(.|\n)*call the model"),
    "control flow on values": (lambda x: x if x.sum() > 0 else -x, (X,), "cannot follow(.|\n)*torch.where"),
    "shapes that depend on values": (lambda x: x[x > 0], (X,), "depends on values|data-dependent"),
    "a number as a result": (lambda x: float(x.sum()), (X,), "cannot follow"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_models_that_cannot_be_compiled_are_refused_in_words(name: str, cache: Path) -> None:
    function, args, message = MODELS[name]
    with pytest.raises(ModelError, match=message) as caught:
        ft.optimize(Refused(function).eval(), args, machine=REFERENCE, cache=cache)
    assert caught.value.do


def test_a_parameter_without_values_is_refused(cache: Path) -> None:
    with pytest.raises(ModelError, match="meta device"):
        ft.optimize(nn.Linear(4, 3, device="meta").eval(), (X.to("meta"),), machine=REFERENCE, cache=cache)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("0.weight", float("nan")),
        ("0.weight", float("inf")),
        ("0.bias", -float("inf")),
        ("1.weight", float("inf")),
        ("1.running_mean", float("inf")),
        ("1.running_var", float("inf")),
    ],
)
def test_weights_that_are_not_finite_spoil_the_results_that_they_spoil_in_torch(
    name: str, value: float, cache: Path
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()).eval()
    x = torch.randn(2, 2, 5, 5)
    with torch.no_grad():
        model.state_dict()[name].view(-1)[1] = value
        wanted = model(x)
    found = ft.optimize(model, (x,), machine=REFERENCE, cache=cache)(x)
    finite = wanted.isfinite()
    assert torch.equal(found.isfinite(), finite)
    torch.testing.assert_close(found[finite], wanted[finite], rtol=1e-4, atol=1e-5)


def test_a_numpy_scalar_is_an_argument_without_axes() -> None:
    model = ft.parse("def main(x: f32[()], y: f32[3]) -> f32[3]:\n    z: f32[3] = mul(x, y)\n    return z")
    fast = ft.optimize(model, machine=REFERENCE)
    assert np.array_equal(fast(np.float32(2), np.ones(3, np.float32)), np.full(3, 2, np.float32))


def test_a_result_may_be_every_other_value_of_a_parameter() -> None:
    module = Every()
    assert torch.equal(ft.optimize(module, (X,), machine=REFERENCE)(X)[0], module.weight[1::2])


class Every(nn.Module):
    """Returns a part of a parameter beside what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(14.0), requires_grad=False)
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.weight[1::2], x + 1


def test_name_that_is_no_text_and_path_that_is_none_are_refused(compiled: Optimized) -> None:
    for ask, named in ((compiled.explain, "kernel"), (compiled.kernel, "kernel"), (compiled.explain_rule, "rule")):
        for name in (None, 0):
            with pytest.raises(ModelError, match=f"a {named} is named by a text, got {name}"):
                ask(name)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ModelError, match="a kernel is named by a text, got 0"):
        compiled.egraph.graph(around=0)  # pyright: ignore[reportArgumentType]
    for write in (compiled.show, compiled.save):
        with pytest.raises(ModelError, match="a path is a text or a Path, got 3"):
            write(3)  # pyright: ignore[reportArgumentType]


def test_a_compiled_model_is_no_source() -> None:
    fast = ft.optimize(lambda x: x + 1, (np.ones(3, "f4"),), machine=REFERENCE)
    with pytest.raises(ModelError, match="the model is compiled already"):
        ft.optimize(fast, (np.ones(3, "f4"),), machine=REFERENCE)


def test_operators_that_are_built_in_stay() -> None:
    with pytest.raises(ModelError, match="'relu' is built in"):
        ft.ops.unregister("relu")
