"""Tensors of narrow dtypes: torch's results, bit by bit where it rounds once, from each front end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch_cases import Apply

import frittata as ft
from frittata.egraph.errors import ModelError, NarrowError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.registry import tensor
from frittata.egraph.script import parse, show
from frittata.egraph.terms import Scalar
from frittata.frontends.torch_export import from_module

INTEGERS = [torch.uint8, torch.int8, torch.int16]
HALVES = [torch.bfloat16, torch.float16]
EPS = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 2**-22}


def drawn(dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=source).to(dtype)
    values = torch.randint(-300, 300, shape, generator=source).to(dtype)
    return torch.where(values == 0, torch.ones_like(values), values)


def check(function: Callable[..., Any] | nn.Module, *args: Tensor, ulps: float = 0) -> None:
    """Compare with torch: dtypes, and values up to so many roundings of the largest; two of float32."""
    module = function if isinstance(function, nn.Module) else Apply(function)
    fast = ft.optimize(module.eval(), args, machine=REFERENCE, verify=True)
    with torch.no_grad():
        found, expected = fast(*args), module(*args)
    for ours, theirs in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        many = 1 if theirs.dtype is torch.float32 else ulps
        eps = EPS.get(theirs.dtype, 0.0)
        ours, theirs = ours.double(), theirs.double()
        scale = float(theirs[theirs.isfinite()].abs().max())
        torch.testing.assert_close(ours, theirs, rtol=0, atol=many * eps * scale, equal_nan=True)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_computed_wide_and_wrap(dtype: torch.dtype) -> None:
    x, y = drawn(dtype, 7, 33), drawn(dtype, 7, 33, seed=1)
    check(lambda x, y: (x + y, x * y, x - y, -x, x // y, x % y, x * 3 + 200), x, y)
    check(lambda x, y: (x & y, x | y, x ^ y, ~x, x << 2, x >> 1, x > y, x == y), x, y)
    check(lambda x, y: (x.clamp(3, 100), torch.maximum(x, y), x / 3, x * 0.5, x.sign(), x.to(torch.bool)), x, y)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_folded(dtype: torch.dtype) -> None:
    x = drawn(dtype, 5, 33)
    check(lambda x: (x.sum(), x.sum(1), x.amax(1), x.argmin(1), x.cumsum(1), x.prod(1), x.sum(0, dtype=x.dtype)), x)
    check(lambda x: (x.sort(1)[0], x.topk(3, 1)[0], x.float().mean(1), x.max(0)[0], x.any(1)), x)


@pytest.mark.parametrize("dtype", [*INTEGERS, *HALVES])
def test_values_are_moved_as_they_are(dtype: torch.dtype) -> None:
    x, y, at = drawn(dtype, 7, 33), drawn(dtype, 7, 33, seed=1), torch.tensor([3, 0, 6])
    check(lambda x, y: (torch.where(x > y, x, y), torch.cat([x, y], 1), torch.stack([x, y]), x.T.contiguous()), x, y)
    check(lambda x: (F.pad(x, (1, 2)), x[:, ::2], x.flip(1), x.roll(2, 1), x.expand(2, 7, 33), x.view(-1, 3)), x)
    check(lambda x, at: (x[at], x.index_select(0, at), x.index_copy(0, at, x[:3]), x.masked_fill(x > 1, 2)), x, at)
    check(lambda x: (torch.zeros_like(x), torch.ones(3, dtype=dtype) + x[0, 0], torch.arange(5, dtype=dtype)), x)


@pytest.mark.parametrize("dtype", HALVES)
def test_each_operator_of_halves_is_rounded_once(dtype: torch.dtype) -> None:
    x, y = drawn(dtype, 7, 33), drawn(dtype, 7, 33, seed=1)
    check(lambda x, y: (x + y, x * y, x / y, -x, x * 0.1 + y, x.clamp(-1, 1), x.abs(), x.double(), x > y), x, y)
    check(lambda x, y: (x.exp(), x.sigmoid(), F.gelu(x), x.softmax(1), x.sum(1), x.mean(), x.var(1)), x, y, ulps=1)
    assert not ft.optimize(lambda x: x.renorm(2, 0, 0.5), (x,), machine=REFERENCE).report.externs
    check(lambda x: (x.renorm(2, 0, 0.5), torch.xlogy(x.abs(), 2)), x, ulps=2)
    odd = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 65504, 6e-8, 3e-8, 6e-5, -3e38, 1.5]).to(dtype)
    check(lambda x: (x + x, x.float(), x.float().to(dtype), x.double().to(dtype), x == x), odd.repeat(3))


@pytest.mark.parametrize("dtype", HALVES)
def test_factors_of_halves_are_rounded_and_their_quotients_between(dtype: torch.dtype) -> None:
    """As torch has it where values lie side by side; of one divisor nothing is rounded between."""
    x, y, one = drawn(dtype, 7, 32), drawn(dtype, 7, 32, seed=1), drawn(dtype, 1, 1)
    check(lambda x, y: (x.add(y, alpha=0.3), x.sub(y, alpha=3.7), torch.rsub(x, y, alpha=0.3)), x, y)
    check(lambda x: (x.add(0.7, alpha=0.3), x.sub(0.7, alpha=3.7), torch.rsub(x, 0.7, alpha=2)), x)

    def quotients(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return torch.div(x, y, rounding_mode="trunc"), torch.div(x, y, rounding_mode="floor"), 7.3 // y

    check(quotients, x * 100, y * 0.01)
    check(quotients, x * 100, one * 0.01)
    odd = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 6e-8, -3e-8, 0.5, -0.5, 3.0, -7.0]).to(dtype)
    fast = ft.optimize(quotients, (odd[:, None], odd), machine=REFERENCE)
    for ours, theirs in zip(fast(odd[:, None], odd), quotients(odd[:, None], odd), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(ours.signbit()[~ours.isnan()], theirs.signbit()[~theirs.isnan()])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bounds_are_of_the_dtype_that_is_clamped(dtype: torch.dtype) -> None:
    """A negative bound of bytes is a large one, as torch has it, and one that is too large is refused."""
    x, low, high = drawn(dtype, 7, 33), torch.tensor(-5), torch.tensor(200)
    check(lambda x: (x.clamp(-5, 100), x.clamp(min=-5), x.clamp(max=-5), x.clamp(-2.5, 300.5), x.clamp(10, 5)), x)
    check(lambda x, low, high: (x.clamp(low, high), torch.clamp_min(x, low), torch.maximum(x, high)), x, low, high)
    check(lambda x: (F.threshold(x, -5, 3), F.threshold(x, 100, -5), x.masked_fill(x > 3, -7)), x)


BEYOND: tuple[Callable[[Tensor, int], Tensor], ...] = (
    lambda x, number: x.clamp(max=number),
    lambda x, number: x.masked_fill(x > 3, number),
    lambda x, number: torch.where(x > 3, x, number),
    lambda x, number: torch.full_like(x, number) + x,
    lambda x, number: F.threshold(x, 3, number),
    lambda x, number: x.index_fill(0, torch.tensor([1]), number),
)


@pytest.mark.parametrize("function", BEYOND)
def test_numbers_that_a_tensor_cannot_hold_are_refused(function: Callable[[Tensor, int], Tensor]) -> None:
    for dtype in (*INTEGERS, torch.int32):
        for number in (torch.iinfo(dtype).max + 1, -torch.iinfo(dtype).max - 2):
            x = drawn(dtype, 7, 33)
            with pytest.raises(RuntimeError, match="without overflow"):
                function(x, number)
            with pytest.raises(ModelError, match=f"{number} is no value of"):
                ft.optimize(lambda x, number=number: function(x, number), (x,), machine=REFERENCE)
    with pytest.raises(ModelError, match=r"70000 is no value of f16"):
        ft.optimize(lambda x: function(x, 70000), (drawn(torch.float16, 7, 33),), machine=REFERENCE)
    check(lambda x: function(x, 70000), drawn(torch.bfloat16, 7, 33))


@pytest.mark.parametrize(
    "function",
    [lambda x: F.pad(x, (1, 1), value=-5), lambda x: x.masked_fill(x > 3, -0.5), lambda x: torch.fill(x, -1.5)],
)
def test_negative_floats_are_no_bytes(function: Callable[[Tensor], Tensor]) -> None:
    x = drawn(torch.uint8, 7, 33)
    with pytest.raises(RuntimeError, match="without overflow"):
        function(x)
    with pytest.raises(ModelError, match="is no value of u8"):
        ft.optimize(function, (x,), machine=REFERENCE)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.int32])
def test_integers_have_no_negative_powers(dtype: torch.dtype) -> None:
    for exponent in (-1, -5):
        with pytest.raises(ModelError, match=f"integers to the power of {exponent}"):
            ft.optimize(lambda x, exponent=exponent: x**exponent, (drawn(dtype, 5),), machine=REFERENCE)


def test_extremes_of_truth_values() -> None:
    x, y = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    check(lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), x.clamp(min=y), x.clamp(max=y)), x, y)


@pytest.mark.parametrize("dtype", HALVES)
def test_models_of_halves(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(33, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 5))
    check(dense.to(dtype), drawn(dtype, 7, 33), ulps=4)
    image = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 8, 3)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)),
    )
    check(image.to(dtype), drawn(dtype, 2, 3, 17, 17), ulps=4)
    check(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).to(dtype), drawn(dtype, 2, 9, 32), ulps=4)


def test_images_of_bytes_and_weights_of_bytes() -> None:
    image = drawn(torch.uint8, 2, 17, 19, 3)
    check(lambda x: (x.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25, image)
    weight, scale = drawn(torch.int8, 24, 33), torch.rand(24, 1)
    check(lambda x: F.linear(x, weight.float() * scale), drawn(torch.float32, 5, 33))


def test_roundings_are_dropped_where_that_is_allowed() -> None:
    """Halves between two operators are values of float32 then."""
    x = drawn(torch.bfloat16, 5, 33)
    module = Apply(lambda x: (x * 1.7 + 0.3).exp().float()).eval()

    def roundings(numerics: str) -> int:
        (kernel,) = ft.optimize(module, (x,), numerics=numerics, machine=REFERENCE).kernels
        return kernel.source.count(", bf16)")

    assert (roundings("reassoc"), roundings("loose")) == (3, 0)


def test_what_torch_rounds_in_its_own_way_is_left_to_torch() -> None:
    image = drawn(torch.uint8, 1, 3, 8, 8)
    check(lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"), image)
    check(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), image)
    fast = ft.optimize(lambda x: F.interpolate(x, (5, 5), mode="bicubic"), (image,), machine=REFERENCE)
    for seed in range(30):
        other = drawn(torch.uint8, 1, 3, 8, 8, seed=seed)
        assert torch.equal(fast(other), F.interpolate(other, (5, 5), mode="bicubic"))
    with pytest.raises(ModelError, match="interpolation of u8"):
        from_module(Apply(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear")).eval(), (image,))


@pytest.mark.parametrize("dtype", HALVES)
def test_a_dtype_of_a_sum_is_that_of_what_is_summed(dtype: torch.dtype) -> None:
    """In torch each value is rounded, then the sum; of a mean only the result is."""
    ints = torch.tensor([[2049, 2051, 2049], [-257, 3, 12]])
    for x in (ints, ints.double(), ints.float()):
        check(lambda x: (x.sum(1, dtype=dtype), x.sum(dtype=dtype), x.cumsum(1, dtype=dtype)), x)
        check(lambda x: (x.prod(0, dtype=dtype), x.mean(1, dtype=dtype)), x)


@pytest.mark.parametrize("dtype", HALVES)
def test_limits_are_those_of_the_dtype(dtype: torch.dtype) -> None:
    odd = torch.tensor([1.5, torch.inf, -torch.inf, torch.nan, 65504.0]).to(dtype).repeat(4)
    check(lambda x: (torch.nan_to_num(x), torch.nan_to_num(x, 1.0, 2.0), x.cumsum(0), x.cummax(0)[0]), odd)
    x, grid = drawn(dtype, 1, 2, 9, 9), drawn(dtype, 1, 5, 5, 2, seed=1).clamp(-1, 1)
    check(lambda x: (*torch.aminmax(x, dim=2), x[0, 0, 0, 0].unfold(0, 1, 1)), x)
    check(lambda x: (x.cumprod(3), F.rms_norm(x, (9,))), x, ulps=2)
    check(lambda x, grid: F.grid_sample(x, grid, align_corners=False), x, grid, ulps=8)


def test_numpy_and_scripts_have_the_dtypes() -> None:
    def function(x: Any, y: Any) -> Any:
        return np.add(x, y), np.maximum(x, y), x * 2, x**2, x.astype(np.float32)

    for dtype in (np.uint8, np.int16, np.float16, ml_dtypes.bfloat16):
        x, y = (np.arange(250 + i, 255 + i).astype(dtype) for i in range(2))
        fast = ft.optimize(function, (x, y), machine=REFERENCE)
        for ours, theirs in zip(fast(x, y), function(x, y), strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
    model = parse('def main(x: bf16[3], y: u8[3]) -> (bf16[3], f32[3]):\n    return x, cast(y, dtype="f32")\n')
    assert parse(show(model)) == model
    for dtype, value in (("bf16", 0.1), ("f16", -2.5), ("u8", 255), ("i8", -128)):
        scalar = Scalar.of(value, dtype)
        assert str(tensor("full", value=scalar, shape=(2,))).startswith(f"full({dtype}(")


def test_what_would_compute_narrow_says_what_to_do() -> None:
    x = tensor("input", name="x", shape=(3,), dtype="u8")
    with pytest.raises(NarrowError, match=r"add of u8.*\n.*cast to i32, and back"):
        tensor("add", x, x)
    with pytest.raises(NarrowError, match="indices of u8"):
        tensor("take", tensor("input", name="t", shape=(9,), dtype="f32"), x, axis=-1)
    with pytest.raises(ModelError, match="numpy sums u8 in uint64"):
        ft.optimize(np.sum, (np.zeros(3, np.uint8),))


def quantized() -> onnx.ModelProto:
    """Return a convolution and a product as quantization tools write them."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.integers(-128, 128, (8, 3, 3, 3)).astype(np.int8),
        "w_scale": rng.uniform(0.01, 0.02, 8).astype(np.float32),
        "w_zero": np.zeros(8, np.int8),
        "scale": np.float32(0.03),
        "zero": np.uint8(121),
        "v": rng.integers(0, 256, (8 * 36, 5)).astype(np.uint8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wd"], axis=0),
        helper.make_node("Conv", ["d", "wd"], ["c"], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "scale", "zero"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMulInteger", ["f", "v", "zero", "zero"], ["y"]),
    ]
    shapes = {"x": (TensorProto.FLOAT, [2, 3, 8, 8]), "y": (TensorProto.INT32, [2, 5]), "p": (TensorProto.UINT8, None)}
    values = {name: helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in shapes.items()}
    graph = helper.make_graph(
        nodes, "quantized", [values["x"]], [values["y"], values["p"]],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def test_a_quantized_onnx_model_gives_what_its_definition_says() -> None:
    from onnx.reference import ReferenceEvaluator

    x = np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype(np.float32)
    model = quantized()
    found, levels = ft.optimize(model, (x,), machine=REFERENCE)(x)
    found_by_onnx: Any = ReferenceEvaluator(model).run(None, {"x": x})
    product, expected = found_by_onnx
    assert levels.dtype == np.uint8 and found.dtype == np.int32
    assert np.abs(levels.astype(int) - expected.astype(int)).max() <= 1  # a rounding may go the other way
    off = levels.astype(int) - expected.astype(int)
    weights = quantized().graph.initializer[-1]
    v = numpy_helper.to_array(weights).astype(int) - 121
    np.testing.assert_array_equal(found, product + off.reshape(2, -1) @ v)


@pytest.mark.parametrize("dtype", HALVES)
def test_numbers_beside_halves_are_rounded_where_torch_does(dtype: torch.dtype) -> None:
    x = torch.tensor([0.1, 0.3, 300.0, 7.0]).to(dtype)
    check(lambda x: (x <= 0.1, x == 0.1, x >= 0.3, x < 0.3, x != 0.3, F.hardshrink(x, 0.1)), x)
    check(lambda x: (F.threshold(x, 0.1, -9.0), F.threshold(x, 0.3, -9.0)), x)
    check(lambda x: (torch.remainder(x, 0.3), torch.fmod(x, 0.1), x // 0.7, x.div(0.7, rounding_mode="trunc")), x)
    check(lambda x, y: (x <= y, x == y, x + y, x * y, torch.remainder(x, y)), x, torch.tensor(0.1))
    check(lambda x, y: (x == y, x > y, x * y), x, torch.tensor([2049, 1, 300, 7]))


def test_numbers_beside_integers_wrap() -> None:
    x = torch.tensor([255, 44, 7, 0], dtype=torch.uint8)
    check(lambda x: (x == -1, x > -1, x == 300, x % -3, x // -3, x + 300, x * -2, x & -2, x / 300), x)
    check(lambda x, y: (x == y, x > y, torch.maximum(x, y)), x, torch.tensor(300))
    check(lambda x: (x << 256, x >> 65538, x << 2**31), x)


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_bytes_as_indices_are_the_mask_that_they_are_in_torch() -> None:
    x, mask = torch.arange(4.0), torch.tensor([0, 1, 1, 0], dtype=torch.uint8)
    check(lambda x: torch.index_put(x, [mask], torch.tensor(9.0), accumulate=True), x)
    with pytest.raises(ModelError, match="which are a mask"):
        from_module(Apply(lambda x: torch.index_put(x, [mask], torch.tensor(9.0), accumulate=True)).eval(), (x,))


@pytest.mark.parametrize("dtype", HALVES)
def test_pools_of_halves(dtype: torch.dtype) -> None:
    x = drawn(dtype, 1, 3, 9, 9)
    check(lambda x: (F.avg_pool2d(x, 3), F.adaptive_avg_pool2d(x, 2), F.avg_pool2d(x, 2, 1, 1)), x, ulps=1)


def test_names_of_own_functions_are_not_shadowed() -> None:
    def bf16_value(f16_rounded: Any, u8_pointer: Any) -> Any:
        return f16_rounded.astype(np.float32).sum(-1) + u8_pointer.astype(np.float32).sum(-1)

    args = np.ones((3, 5), np.float16), np.ones((3, 5), np.uint8)
    for form in ("fast", "plain"):
        fast = ft.optimize(bf16_value, args, machine=REFERENCE, form=form)
        np.testing.assert_array_equal(fast(*args), bf16_value(*args))


def node_model(node: onnx.NodeProto, kind: int, opset: int, *, domain: str = "") -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, kind, [1, 2, 4, 4]) for name in ("x", node.output[0]))
    graph = helper.make_graph([node], "one", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)])


def test_onnx_nodes_by_either_name_of_the_domain_and_before_their_time() -> None:
    from frittata.frontends.onnx.importer import from_onnx

    relu = helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx")
    for kind in (TensorProto.FLOAT, TensorProto.FLOAT16):
        assert from_onnx(node_model(relu, kind, 17, domain="ai.onnx")).model.main.outputs[0].shape == (1, 2, 4, 4)
        early = node_model(helper.make_node("Gelu", ["x"], ["y"]), kind, 17)
        assert from_onnx(early).model.main.outputs[0].shape == (1, 2, 4, 4)
    pool = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[1, 1])
    assert from_onnx(node_model(pool, TensorProto.FLOAT16, 19)).model.main.outputs[0].dtype == "f16"
    quantize = helper.make_node("QuantizeLinear", ["x", "x"], ["y"], output_dtype=TensorProto.INT4)
    with pytest.raises(ModelError, match=f"output_dtype {TensorProto.INT4}"):
        from_onnx(node_model(quantize, TensorProto.FLOAT, 21))
    window = helper.make_node("ConvInteger", ["x", "x"], ["y"], bogus=1)
    with pytest.raises(ModelError, match="attribute bogus"):
        from_onnx(node_model(window, TensorProto.UINT8, 17))
