"""Models whose dims are computed from others run at every size: they are imported anew for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from exported import to_onnx
from torch import Tensor, nn

import frittata as ft
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.machine import REFERENCE

Dim = torch.export.Dim


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {"machine": REFERENCE, "cache": tmp_path}


def module_of(function: Any) -> nn.Module:
    class Module(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return function(x)

    return Module().eval()


class Attention(nn.Module):
    """Heads side by side with the batch, positions from a table, a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out, self.places = nn.Linear(8, 24), nn.Linear(8, 8), nn.Embedding(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        x = x + self.places(torch.arange(s))
        q, k, v = self.qkv(x).reshape(b, s, 3, 2, 4).permute(2, 0, 3, 1, 4).reshape(3, b * 2, s, 4).unbind(0)
        scores = q @ k.transpose(1, 2) / 2
        scores = scores.masked_fill(torch.ones(s, s).triu(1) > 0, float("-inf"))
        mixed = (scores.softmax(-1) @ v).reshape(b, 2, s, 4).transpose(1, 2).reshape(b, s, 8)
        return self.out(mixed)


ANY = {0: Dim("b", max=64), 1: Dim("s", min=2, max=32)}
MODULES: dict[str, tuple[nn.Module, tuple[int, ...], Any, list[tuple[int, ...]]]] = {
    "attention": (Attention(), (2, 5, 8), ANY, [(2, 5, 8), (3, 7, 8), (1, 17, 8), (4, 2, 8)]),
    "an encoder": (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        (2, 5, 8),
        ANY,
        [(3, 5, 8), (2, 11, 8)],
    ),
    "flat": (module_of(lambda x: x.reshape(-1)[1:] * x.shape[0]), (2, 3), {0: Dim("n")}, [(2, 3), (5, 3), (17, 3)]),
    "twice as many": (module_of(lambda x: x.new_ones(x.shape[0] * 2)), (2, 3), {0: Dim("n")}, [(3, 3), (7, 3)]),
    "joined": (module_of(lambda x: torch.cat([x, x[:-1], x.flip(0)])), (3, 2), {0: Dim("n", min=3)}, [(3, 2), (13, 2)]),
    "a size as a number": (
        module_of(lambda x: x * math.sqrt(x.shape[0])),
        (4, 3),
        {0: Dim("n", max=9)},
        [(1, 3), (7, 3)],
    ),
    "an odd size as a number": (
        module_of(lambda x: x * math.sqrt(x.shape[0])),
        (5, 3),
        {0: 2 * Dim("half", max=9) + 1},
        [(3, 3), (7, 3)],
    ),
    "half": (module_of(lambda x: x[: x.shape[0] // 2].sum(0)), (6, 2), {0: Dim("n", min=4)}, [(6, 2), (7, 2), (13, 2)]),
    "images": (
        nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        (1, 3, 17, 19),
        {2: Dim("h", min=16, max=64), 3: Dim("w", min=16, max=64)},
        [(1, 3, 16, 23), (1, 3, 31, 17)],
    ),
    "enlarged": (
        module_of(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear")),
        (1, 2, 5, 7),
        {2: Dim("h", min=3, max=64)},
        [(1, 2, 6, 7), (1, 2, 11, 7)],
    ),
    "pairs": (module_of(lambda x: x.reshape(-1, 2, 3).sum(1)), (4, 3), {0: 2 * Dim("half", max=50)}, [(6, 3), (14, 3)]),
    "one pair": (module_of(lambda x: x.reshape(-1, 2, 3).sum(1)), (4, 3), {0: 2 * Dim("half", max=50)}, [(2, 3)]),
}


@pytest.mark.parametrize("name", MODULES)
def test_sizes_that_are_computed_from_others(name: str, options: dict[str, Any]) -> None:
    module, example, dims, shapes = MODULES[name]
    fast = ft.optimize(module.eval(), (torch.randn(example),), dynamic_shapes=(dims,), **options)
    for shape in shapes:
        x = torch.randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), module(x), atol=1e-5, rtol=1e-5)
    assert len(fast.programs) == len(shapes)


def test_half_of_a_size_names_the_dim(options: dict[str, Any]) -> None:
    module, example, dims, _ = MODULES["pairs"]
    fast = ft.optimize(module, (torch.randn(example),), dynamic_shapes=(dims,), **options)
    assert list(fast.ranges) == ["half"]
    assert fast.at(half=4).program.inputs["x"].shape == (8, 3)
    with pytest.raises(ModelError, match=r"has shape \(7, 3\), the model takes \(2\*half, 3\)"):
        fast(torch.randn(7, 3))


def test_an_exported_program_with_dims(options: dict[str, Any]) -> None:
    module = Attention().eval()
    program = torch.export.export(module, (torch.randn(2, 5, 8),), dynamic_shapes=(ANY,))
    fast = ft.optimize(program, dynamic_shapes=True, **options)
    x = torch.randn(3, 4, 8)
    torch.testing.assert_close(fast(x), module(x).detach(), atol=1e-5, rtol=1e-5)


def test_example_arguments_bind_the_dims_of_an_exported_program(options: dict[str, Any]) -> None:
    module, batch = nn.Sequential(nn.Linear(4, 3), nn.Flatten(0)).eval(), Dim("batch", max=9)
    program = torch.export.export(module, (torch.randn(2, 4),), dynamic_shapes={"input": {0: batch}})
    x = torch.randn(5, 4)
    fast = ft.optimize(program, (x,), **options)
    torch.testing.assert_close(fast(x), module(x).detach(), atol=1e-5, rtol=1e-5)
    with pytest.raises(ModelError, match="does not hold for input_0=10"):
        ft.optimize(program, (torch.randn(10, 4),), **options)


class Compares(nn.Module):
    """Branches on sizes."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x.sum() + y.sum() if x.shape[0] > y.shape[0] else x.sum() - y.sum()


def test_sizes_for_which_the_module_would_branch_otherwise_are_refused(options: dict[str, Any]) -> None:
    args = (torch.ones(8, 3), torch.ones(4, 3))
    dims = ({0: Dim.AUTO}, {0: Dim.AUTO})
    fast = ft.optimize(Compares().eval(), args, dynamic_shapes=dims, **options)
    assert fast(torch.ones(9, 3), torch.ones(5, 3)) == 42
    with pytest.raises(ModelError, match=r"does not hold for(.|\n)*without branches on sizes"):
        fast(torch.ones(3, 3), torch.ones(5, 3))
    with pytest.raises(ModelError, match=r"holds only where(.|\n)*for each size"):
        ft.from_exported_program(torch.export.export(Compares().eval(), args, dynamic_shapes=dims))


def test_operators_without_a_definition_are_told_at_once(options: dict[str, Any]) -> None:
    module = module_of(lambda x: torch.special.bessel_j0(x)[0] * x.shape[0])
    args, dims = (torch.zeros(3, 2),), ({0: Dim("n")},)
    with pytest.raises(UnsupportedOpError, match="bessel_j0"):
        ft.optimize(module, args, dynamic_shapes=dims, fallback="error", **options)
    fast = ft.optimize(module, args, dynamic_shapes=dims, **options)
    np.testing.assert_array_equal(fast(torch.zeros(5, 2)), np.full(2, 5))


def test_an_onnx_model_with_dims(options: dict[str, Any], tmp_path: Path) -> None:
    module = Attention().eval()
    model = to_onnx(module, torch.randn(2, 5, 8), dynamic_axes={"x": {0: "b", 1: "s"}})
    path = tmp_path / "attention.onnx"
    onnx.save(model, path)
    fast = ft.optimize(path, dynamic_shapes=True, **options)
    assert list(fast.ranges) == ["b", "s"]
    for shape in ((2, 5, 8), (3, 7, 8), (1, 11, 8)):
        x = torch.randn(shape)
        expected = module(x).detach().numpy()
        np.testing.assert_allclose(fast(x.numpy()), expected, atol=1e-5)
        np.testing.assert_allclose(fast(x=x.numpy()), expected, atol=1e-5)
    with pytest.raises(ModelError, match="the model takes x; got"):
        fast(z=np.zeros((1, 2, 8), np.float32))


def test_dims_of_an_onnx_model_without_names(options: dict[str, Any]) -> None:
    model = to_onnx(module_of(lambda x: x * 2), torch.ones(2, 3), dynamic_axes={"x": {0: "n"}})
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    fast = ft.optimize(model, dynamic_shapes=True, **options)
    assert list(fast.ranges) == ["x_0"]
    np.testing.assert_array_equal(fast(np.ones((5, 3), np.float32)), np.full((5, 3), 2))
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError, match="input x has no shape"):
        ft.optimize(model, dynamic_shapes=True, **options)


DIM = torch.export.Dim("n", max=64)
MISFITS: dict[str, tuple[Any, str]] = {
    "an axis too many": (({2: DIM},), r"axis 2 for an argument of shape \(5, 3\)"),
    "no argument of the name": ({"y": {0: DIM}}, r"arg names \['x'\](.|\n)*\['y'\]"),
    "no tuple": ({0: DIM}, "arg names"),
    "one too many": (({0: DIM}, {0: DIM}), "1 elements(.|\n)*2 elements"),
    "a fraction": (({0: 2.5},), "got 2.5 instead"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_dynamic_shapes_that_do_not_fit_are_refused(name: str, options: dict[str, Any]) -> None:
    dims, message = MISFITS[name]
    with pytest.raises(ModelError, match=f"dynamic_shapes(.|\n)*{message}"):
        ft.optimize(lambda x: x * 2, (torch.ones(5, 3),), dynamic_shapes=dims, **options)


def test_a_dim_without_a_name_has_that_of_its_place(options: dict[str, Any]) -> None:
    dims = ({0: torch.export.Dim.AUTO}, {-2: DIM})
    fast = ft.optimize(lambda x, y: (x * 2, y + 1), (torch.ones(5, 3),) * 2, dynamic_shapes=dims, **options)
    assert list(fast.ranges) == ["n", "x_0"]
    with pytest.raises(ModelError, match="x_0 is 1, and the model holds from 2"):
        fast(torch.ones(1, 3), torch.ones(4, 3))


class Counted(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x.relu(), x.shape[0], {"twice": x.shape[0] * 2 + 1, "half": x.shape[0] / 2}


def test_numbers_made_of_sizes_are_results(options: dict[str, Any]) -> None:
    fast = ft.optimize(Counted().eval(), (torch.zeros(4, 3),), dynamic_shapes=({0: Dim("n", max=64)},), **options)
    for n in (2, 9):
        x = torch.randn(n, 3)
        assert fast(x)[1:] == Counted()(x)[1:]
    saved = ft.load(fast.at(n=9).save(options["cache"] / "counted.frt"))
    assert saved(torch.zeros(9, 3))[1:] == (9, {"twice": 19, "half": 4.5})


BATCH = torch.export.Dim("batch", min=1, max=64)
ONE_IS_OTHER: dict[str, Callable[[Tensor], Tensor]] = {
    "branch": lambda x: x * 2 if x.shape[0] == 1 else x * 3,
    "squeeze": lambda x: x.squeeze(0).sum(-1),
    "size of what is left": lambda x: x.repeat(3, 1) if x.numel() == 4 else x + 1,
}


@pytest.mark.parametrize("name", ONE_IS_OTHER)
def test_one_of_something_may_be_another_program(name: str, options: dict[str, Any]) -> None:
    """torch.export takes for granted, without a guard, that open sizes are two at least."""
    fast = ft.optimize(ONE_IS_OTHER[name], (torch.zeros(5, 4),), dynamic_shapes=({0: BATCH},), **options)
    for batch in (1, 2, 5):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(fast(x), ONE_IS_OTHER[name](x))


def test_a_slice_ends_where_the_tensor_does(options: dict[str, Any]) -> None:
    """torch.export says that x[:n] has n lines, however long x is."""

    def shortened(x: Tensor, y: Tensor) -> Tensor:
        return y[: abs(x.shape[0] - y.shape[0]) + 1] * 2

    rows = torch.export.Dim("rows", min=1, max=64)
    shapes = ({0: BATCH}, {0: rows})
    fast = ft.optimize(shortened, (torch.zeros(5, 4), torch.zeros(3, 4)), dynamic_shapes=shapes, **options)
    for sizes in ((5, 3), (7, 2), (9, 4)):
        x, y = (torch.randn(size, 4) for size in sizes)
        torch.testing.assert_close(fast(x, y), shortened(x, y))
