"""Exported quantized models: rounding to integers and back is arithmetic, and their products are of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # pyright: ignore[reportUnusedImport]  # it registers the operators
from torch import Tensor, nn
from torch_cases import Apply

import frittata as ft
from frittata.egraph import terms
from frittata.egraph.machine import REFERENCE
from frittata.egraph.program import Kernel

QUANTIZED: Any = torch.ops.quantized_decomposed
ATEN: Any = torch.ops.aten
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(6, 5, 7, generator=GENERATOR) * 4
X[0, 0, :4] = torch.tensor([0.125, -0.125, -0.0, 1e9])
INTEGERS = torch.randint(-128, 128, (6, 5, 7), generator=GENERATOR, dtype=torch.int8)
WORDS = torch.randint(-(2**31), 2**31 - 1, (6, 5, 7), generator=GENERATOR, dtype=torch.int32)
SCALES = torch.tensor([0.25, 0.05, 0.01, 1.0, 0.3])
ZEROS = torch.tensor([0, 3, -128, 127, -5])
WIDE = (-128, 127, torch.int8)
LONG = (-(2**31), 2**31 - 1, torch.int32)

CASES: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "numbers": (lambda x: QUANTIZED.quantize_per_tensor(x, 0.25, 3, *WIDE), (X,)),
    "narrow bounds": (lambda x: QUANTIZED.quantize_per_tensor(x, 0.05, 20, 1, 200, torch.uint8), (X,)),
    "sixteen bits": (lambda x: QUANTIZED.quantize_per_tensor(x, 0.001, -7, -(2**15), 2**15 - 1, torch.int16), (X,)),
    "halves": (lambda x: QUANTIZED.quantize_per_tensor(x, 0.25, 3, *WIDE), (X.bfloat16(),)),
    "tensors": (
        lambda x, s, z: QUANTIZED.quantize_per_tensor.tensor(x, s, z, *WIDE),
        (X, torch.tensor([0.05]), torch.tensor([-9])),
    ),
    "bounds that are tensors": (
        lambda x, s, z, low, high: QUANTIZED.quantize_per_tensor.tensor2(x, s, z, low, high, torch.int8),
        (X, torch.tensor(0.05, dtype=torch.float64), torch.tensor(4), torch.tensor(-7), torch.tensor(8)),
    ),
    "channels": (lambda x, s, z: QUANTIZED.quantize_per_channel(x, s, z, 1, *WIDE), (X, SCALES, ZEROS)),
    "channels in float64": (
        lambda x, s, z: QUANTIZED.quantize_per_channel(x, s, z, -2, *WIDE),
        (X, SCALES.double(), ZEROS),
    ),
    "back": (lambda q: QUANTIZED.dequantize_per_tensor(q, 0.05, 3, *WIDE), (INTEGERS,)),
    "back, to halves": (
        lambda q: QUANTIZED.dequantize_per_tensor(q, 0.5, 0, *WIDE, out_dtype=torch.float16),
        (INTEGERS,),
    ),
    "back, by tensors": (
        lambda q, s, z: QUANTIZED.dequantize_per_tensor.tensor(q, s, z, *WIDE),
        (INTEGERS, torch.tensor(0.05, dtype=torch.float64), torch.tensor(4)),
    ),
    "back, channels": (lambda q, s, z: QUANTIZED.dequantize_per_channel(q, s, z, 1, *WIDE), (INTEGERS, SCALES, ZEROS)),
    "back, channels without zero points": (
        lambda q, s: QUANTIZED.dequantize_per_channel(q, s, None, 1, *WIDE),
        (INTEGERS, SCALES),
    ),
    "back, words": (
        lambda q, s, z: QUANTIZED.dequantize_per_channel(q, s, z, 1, *LONG),
        (WORDS, SCALES, ZEROS),
    ),
    "back, words by a number": (
        lambda q: QUANTIZED.dequantize_per_tensor(q, 2**-31, 2**30, *LONG),
        (WORDS,),
    ),
    "back, words by a tensor": (
        lambda q, z: QUANTIZED.dequantize_per_tensor.tensor(q, torch.tensor(2**-31), z, *LONG),
        (WORDS, torch.tensor(-(2**30), dtype=torch.int32)),
    ),
    "fake": (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.05, 3, 0, 255), (X,)),
    "fake, by tensors": (
        lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s, z, 0, 255),
        (X, torch.tensor(0.05), torch.tensor(3, dtype=torch.int32)),
    ),
    "fake, channels": (
        lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 1, -128, 127),
        (X, SCALES, ZEROS.int()),
    ),
    "fake, decomposed beside others": (
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.05, 3, 0, 255) + torch.special.entr(x),
        (X,),
    ),
    "a product": (lambda q: ATEN._int_mm(q.flatten(0, 1), q.flatten(0, 1).T), (INTEGERS,)),
    "signed bits": (lambda x: x.view(torch.uint8).int() * x.view(torch.uint8).view(torch.int8), (INTEGERS,)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("is_frozen", [False, True])
def test_results_are_those_of_torch(name: str, is_frozen: bool) -> None:
    function, given = CASES[name]
    taken, constants = (given[:1], given[1:]) if is_frozen else (given, ())
    module = WithBuffers(function, constants).eval()
    fast = ft.optimize(module, taken, machine=REFERENCE, numerics="exact", fallback="error", verify=True)
    torch.testing.assert_close(fast(*taken), function(*given), rtol=1e-6, atol=1e-6)


class WithBuffers(nn.Module):
    """A function of arguments and of buffers after them."""

    def __init__(self, function: Callable[..., Any], values: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.function, self.count = function, len(values)
        for number, value in enumerate(values):
            self.register_buffer(f"b{number}", value)

    def forward(self, *given: Tensor) -> Any:
        return self.function(*given, *(getattr(self, f"b{number}") for number in range(self.count)))


def test_floats_as_zero_points_are_left_to_torch() -> None:
    zeros = torch.tensor([0.5, 1.0, -1.0, 2.25, 0.0])
    module = Apply(lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, zeros, 1, -128, 127)).eval()
    fast = ft.optimize(module, (X,), machine=REFERENCE)
    assert fast.report.externs
    torch.testing.assert_close(fast(X), module(X))


def test_a_quantized_layer_multiplies_integers() -> None:
    weight = torch.randint(-127, 128, (512, 512), generator=GENERATOR, dtype=torch.int8)
    scales = torch.rand(512, generator=GENERATOR) * 0.01

    def function(x: Tensor) -> Tensor:
        rounded = QUANTIZED.quantize_per_tensor(x, 0.05, -7, *WIDE)
        x = QUANTIZED.dequantize_per_tensor(rounded, 0.05, -7, *WIDE)
        return nn.functional.linear(x, QUANTIZED.dequantize_per_channel(weight, scales, None, 0, *WIDE))

    x = torch.randn(64, 512, generator=GENERATOR)
    fast = ft.optimize(Apply(function).eval(), (x,), machine=REFERENCE)
    bodies = [step.outputs[0].body for step in fast.program.steps if isinstance(step, Kernel)]
    assert any(term.op == "dot" and term.dtype == "i32" for term in terms.walk(*bodies))
    torch.testing.assert_close(fast(x), function(x), rtol=1e-4, atol=1e-3)
