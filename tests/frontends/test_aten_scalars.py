"""Rows at one value: quotients, activations and logarithms mean what they mean in torch, special values included."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_cases import Forward, assert_compiled, assert_imported, drawn

import frittata as ft
from frittata.egraph.machine import REFERENCE

X = drawn(3, 5) * 2
SPECIAL = torch.tensor(
    [[0.0, -0.0, 1.0, -1.0, 0.5], [math.inf, -math.inf, math.nan, 1e300, -0.7], [2.5, -2.5, 1e-3, -3.0, 25.0]],
    dtype=torch.float64,
)
INTS = torch.tensor([[-7, -3, 0, 5, 7], [6, -6, 1, 2, -1], [4, 4, -4, -5, 3]])
DIVISORS = torch.tensor([[-2, 2, 3, -3, 4], [4, 4, -1, 5, 2], [-3, 3, 3, 2, -7]])

UNARY: dict[str, Forward] = {
    "logarithms": lambda x: (torch.log1p(x), torch.log2(x), torch.log10(x)),
    "exponentials": lambda x: (torch.expm1(x), torch.exp2(x), torch.sinh(x), torch.cosh(x)),
    "angles": lambda x: (torch.atan(x), torch.asin(x), torch.acos(x), torch.tan(x)),
    "inverses": lambda x: (torch.asinh(x), torch.acosh(x), torch.atanh(x)),
    "rounding": lambda x: (torch.trunc(x), torch.fix(x), x.round(decimals=2), x.round(decimals=-1)),
    "fractions": lambda x: torch.frac(x),
    "classes": lambda x: (x.isnan(), x.isinf(), x.isfinite(), x.isposinf(), x.isneginf(), x.signbit()),
    "replaced": lambda x: (torch.nan_to_num(x), torch.nan_to_num(x, 1.0, 2.0, 3.0)),
    "elu": lambda x: (F.elu(x), F.elu(x, 0.7), F.selu(x), F.celu(x, 1.3)),
    "softplus": lambda x: (F.softplus(x), F.softplus(x, 2.0, 3.0), F.mish(x), F.logsigmoid(x)),
    "hard": lambda x: (F.hardtanh(x), F.hardswish(x), F.hardsigmoid(x), F.relu6(x), F.leaky_relu(x, 0.2)),
    "shrinking": lambda x: (F.softshrink(x), F.hardshrink(x), F.tanhshrink(x), F.threshold(x, 0.3, 2.0)),
    "others": lambda x: (F.softsign(x), F.rrelu(x), F.glu(x[:, :4]), F.glu(x[:2], 0), F.log_softmax(x, 1)),
    "sums of exponentials": lambda x: (torch.logsumexp(x, 1), torch.logsumexp(x, (0, 1), True)),
    "norms": lambda x: (
        x.norm(),
        x.norm(1, 1),
        x.norm(math.inf, 0),
        x.norm(3, 1, True),
        x.norm(0, 1),
        x.norm(-math.inf),
    ),
    "normalized": lambda x: (F.normalize(x, dim=1), F.cosine_similarity(x, x + 1, 1)),
    "with numbers": lambda x: (x % 3, x // 2, x % -0.7, 2.0 // x, torch.remainder(5, x), torch.fmod(x, 3)),
}


@pytest.mark.parametrize("x", [X, SPECIAL], ids=["plain", "special"])
@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_tensor(name: str, x: torch.Tensor) -> None:
    assert_imported(UNARY[name], x, tolerance=1e-11)


ODD = ("sinh", "asinh", "atanh", "tanh", "tan", "asin", "atan", "sin", "expm1", "log1p", "erf")


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_precise_near_zero(name: str) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        y = getattr(torch, name)(x)
        return torch.where(x == 0, 1 / y, y / x)

    x = torch.tensor([[-0.0, 0.0, -1e-9, 1e-5, 1e-30, -1e-3]], dtype=torch.float64)
    assert_imported(forward, x)
    assert_compiled(forward, x)


@pytest.mark.parametrize("numerics", ["exact", "reassoc"])
@pytest.mark.parametrize("name", ["sinh", "cosh"])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 89.4), (torch.float64, 710.4)])
def test_hyperbolic_functions_are_finite_as_far_as_they_are_in_numpy(
    dtype: torch.dtype, most: float, name: str, numerics: str, tmp_path: Path
) -> None:
    x = torch.linspace(-most, most, 1001, dtype=dtype)
    fast = ft.optimize(getattr(torch, name), (x,), numerics=numerics, machine=REFERENCE, cache=tmp_path)
    expected = getattr(np, name)(x.numpy())
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(fast(x), expected, rtol=8 * torch.finfo(dtype).eps)


def test_numbers_have_the_default_dtype_of_torch(tmp_path: Path) -> None:
    def forward(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        steps = torch.arange(0.0, 0.3, 0.1), torch.linspace(0, 1, 3)
        made = *steps, torch.ones(3) * 0.1, torch.full((3,), 0.1), torch.eye(3)
        parts = (x + part for part in made)
        return *parts, i / 3, i * 0.1, i.sqrt(), torch.where(i > 1, 0.1, 0.7), torch.tensor(0.1) * i

    args = torch.rand(3, dtype=torch.float32), torch.arange(3)
    for dtype in (torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            expected = forward(*args)
            fast = ft.optimize(forward, args, machine=REFERENCE, cache=tmp_path)
        finally:
            torch.set_default_dtype(torch.float32)
        for found, wanted in zip(fast(*args), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=4 * torch.finfo(dtype).eps, atol=0)


QUOTIENTS: dict[str, Forward] = {
    "remainders": lambda x, y: (torch.remainder(x, y), torch.fmod(x, y)),
    "quotients": lambda x, y: (
        torch.floor_divide(x, y),
        torch.div(x, y, rounding_mode="floor"),
        torch.div(x, y, rounding_mode="trunc"),
        torch.div(x, y),
    ),
}
BINARY: dict[str, Forward] = {
    **QUOTIENTS,
    "signs": lambda x, y: (torch.copysign(x, y), torch.copysign(x, -1.5)),
    "angles": lambda x, y: torch.atan2(x, y),
    "lengths": torch.hypot,
    "sums of exponentials": lambda x, y: torch.logaddexp(x, y),
    "slopes": lambda x, y: (F.prelu(x, y[0]), *(F.prelu(part, y[0, :1]) for part in (x, x[0], x[0, 0]))),
    "mixtures": lambda x, y: (torch.addcmul(x, x, y, value=0.3), torch.addcdiv(x, y, x), torch.lerp(x, y, 0.7)),
    "mixtures by a tensor": lambda x, y: torch.lerp(x, y, y.abs() / 2),
    "bounds": lambda x, y: (torch.clamp(x, y, y + 1), torch.maximum(x, y), torch.fmax(x, y), torch.fmin(x, y)),
    "logic": lambda x, y: (torch.logical_xor(x, y), (x > 0) ^ (y > 0)),
}


@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_tensors(name: str) -> None:
    assert_imported(BINARY[name], X, drawn(3, 5, seed=1))


@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_special_values_in_all_pairs(name: str) -> None:
    values = SPECIAL.flatten()
    assert_imported(BINARY[name], *torch.meshgrid(values, values, indexing="ij"))


@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotients_of_integers_round_as_in_torch(name: str) -> None:
    assert_imported(QUOTIENTS[name], INTS, DIVISORS)
    assert_compiled(QUOTIENTS[name], INTS, DIVISORS)


OF_INTEGERS: dict[str, Forward] = {
    "powers": lambda x, y: (x**4, x**7, x ** y.abs(), 2 ** y.abs(), x**y, (-1) ** y),
    "rounding": lambda x, y: (torch.floor(x), torch.ceil(x), torch.round(y), torch.trunc(y)),
    "bounds that are floats": lambda x, y: (F.hardtanh(x, -2.7, 3.2), F.hardtanh(y)),
}


def test_truth_values_have_signs_and_squares() -> None:
    assert_compiled(lambda x: (torch.sign(x), torch.sgn(x), torch.square(x), x**2), INTS > 0)
    assert_compiled(lambda x, y: (torch.outer(x[0], x[1]), torch.outer(x[0], y[0])), INTS > 0, INTS)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64])
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_a_function_of_integers_gives_integers(name: str, dtype: torch.dtype) -> None:
    assert_compiled(OF_INTEGERS[name], INTS.to(dtype), DIVISORS.to(dtype))


@pytest.mark.parametrize("name", QUOTIENTS)
def test_the_least_integer_has_no_magnitude(name: str) -> None:
    ends = torch.tensor([-(2**63), 1 - 2**63, -7, -1, 0, 5, 2**63 - 1])
    x, y = torch.meshgrid(ends, torch.tensor([-(2**63), -3, 2, 7, 2**63 - 1]), indexing="ij")
    assert_compiled(QUOTIENTS[name], x, y)
    assert_compiled(QUOTIENTS[name], x.clamp(-(2**31), 2**31 - 1).int(), y.clamp(-(2**31), 2**31 - 1).int())


BY_ZERO: tuple[Forward, ...] = (
    lambda x: x // 0,
    lambda x: x % 0,
    lambda x: torch.fmod(x, 0),
    lambda x: torch.div(x, 0, rounding_mode="trunc"),
    lambda x: torch.div(x.half() if x.is_floating_point() else x.to(torch.int8), 0, rounding_mode="floor"),
)


@pytest.mark.parametrize("function", BY_ZERO)
def test_integers_are_not_divided_by_zero(function: Forward) -> None:
    with pytest.raises(ft.FrittataError, match="integers are divided by zero"):
        ft.optimize(function, (INTS,), machine=REFERENCE)
    assert_imported(function, INTS.double())


@pytest.mark.parametrize("function", [torch.fmod, torch.remainder])
def test_a_remainder_of_zero_has_the_sign_of_the_dividend(function: Forward) -> None:
    x, y = torch.meshgrid(torch.tensor([0.0, -0.0, 6.0, -6.0]), torch.tensor([3.0, -3.0, math.inf]), indexing="ij")
    found = ft.optimize(function, (x, y), machine=REFERENCE)(x, y)
    torch.testing.assert_close(found, function(x, y))
    assert torch.equal(torch.signbit(found), torch.signbit(function(x, y)))


def test_zeros_have_their_signs() -> None:
    def zeros(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.nan_to_num(x, -0.0), F.pad(x, (1, 1), value=-0.0)

    x = torch.tensor([0.0, -0.0, -0.25, 0.25, math.nan])
    for found, expected in zip(ft.optimize(zeros, (x,), machine=REFERENCE)(x), zeros(x), strict=True):
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert torch.equal(found.signbit() & (found == 0), expected.signbit() & (expected == 0))


def test_the_factor_of_a_quotient_is_that_of_the_dividend() -> None:
    """As torch computes it: it may overflow, and be too small to count."""
    x, y = torch.ones(4), torch.tensor([3e38, 1e-45, 1.0, math.inf])
    found = ft.optimize(lambda x, y: torch.addcdiv(x, y, y, value=2.5), (x, y), machine=REFERENCE, numerics="exact")
    torch.testing.assert_close(found(x, y), torch.addcdiv(x, y, y, value=2.5), equal_nan=True)


def test_steps_of_integers_are_rounded_towards_zero_from_the_nearer_end() -> None:
    """What steps from one end alone are rounded to is another number here and there."""
    for start, end, steps in ((-3, 7, 4), (5, -5, 7), (2.9, 9.9, 3), (-2.5, 8.7, 1), (0, 100, 37), (0, 2, 9)):
        for dtype in (torch.int64, torch.int8):
            given = partial(torch.linspace, start, end, steps, dtype=dtype)
            assert_imported(lambda x, made=given: (x, made()), X)


def test_evenly_spaced_values() -> None:
    assert_imported(
        lambda x: (x, torch.arange(5.0), torch.arange(3, 9, 2), torch.arange(10, 0, -3), torch.arange(0.5, 4)), X
    )
    assert_imported(lambda x: (x, torch.linspace(0, 1, 7), torch.arange(0, 1, 0.1)), X, tolerance=1e-7)


@pytest.mark.parametrize(
    "name", ["logarithms", "exponentials", "angles", "inverses", "elu", "softplus", "shrinking", "with numbers"]
)
def test_it_compiles(name: str) -> None:
    assert_compiled(UNARY[name], X)


def test_a_length_is_precise_where_its_square_is_not_there() -> None:
    x = drawn(1000).float() * 10 ** torch.linspace(-40, 38, 1000)
    y = drawn(1000, seed=1).float() * 10 ** torch.linspace(-40, 38, 1000)
    found = ft.optimize(torch.hypot, (x, y), machine=REFERENCE)(x, y)
    torch.testing.assert_close(found, torch.hypot(x, y), rtol=3e-7, atol=1e-44)


ROWS = torch.tensor([[0.0, math.nan, 1.0], [0.0, math.inf, 1.0], [1.0, 2.0, 3.0], [math.nan, math.nan, 0.5]])


@pytest.mark.parametrize("order", [0.0, 0.5, 1.0, 2.0, 3.0, math.inf])
def test_distances_of_rows(order: float) -> None:
    others = torch.tensor([[0.0, 1.0, 1.0], [math.inf, 1.0, 1.0], [-math.inf, math.inf, 1.0]])
    forwards: list[tuple[Forward, tuple[torch.Tensor, ...]]] = [
        (lambda x, y: torch.cdist(x, y, p=order), (ROWS.double(), others.double())),
        (lambda x, y: torch.cdist(x, y, p=order), (drawn(3, 1, 9, 5), drawn(2, 11, 5))),
        (lambda x: torch.cdist(x, x, p=order), (drawn(3, 5),)),
    ]
    for forward, args in forwards:
        assert_imported(forward, *args)
        assert "host" not in assert_compiled(forward, *args)


def test_distances_of_pairs_of_rows() -> None:
    for order in (0.0, 0.5, 1.0, 2.0, math.inf):
        assert_imported(lambda x, p=order: (torch.pdist(x, p), torch.pdist(x[2:], p)), ROWS.double())
    assert "host" not in assert_compiled(torch.pdist, drawn(9, 5))


BITS: dict[str, Forward] = {
    "operators": lambda x, y: (x & y, x | y, x ^ y, ~x),
    "with numbers": lambda x, y: (x & 3, 5 | x, x ^ -7, 3 & y),
    "shifts": lambda x, y: (x << y, x >> y, x >> 2, y << 5, 3 << x, -77 >> y, torch.bitwise_right_shift(x, 40)),
    "of booleans": lambda x, y: ((x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), ~(x > y), (x > 0) & True),
}


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", BITS)
def test_bits_of_integers(name: str, dtype: torch.dtype) -> None:
    given = torch.tensor([0, 1, -1, 5, 31, 32, 63, 64, -64, 2**31 - 1, -(2**31)], dtype=dtype)
    x, y = torch.meshgrid(given, given, indexing="ij")
    assert_imported(BITS[name], x, y)
    assert_compiled(BITS[name], x, y)
