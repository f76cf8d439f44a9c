"""Numbers alone are what the model says, and no rule inverts a divisor whose reciprocal is infinite."""

import numpy as np
import pytest

import frittata as ft
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Function, Model
from frittata.egraph.numbers import settled
from frittata.egraph.ops.registry import make, tensor
from frittata.egraph.terms import Scalar

SIZES = np.array([0.0, -0.0, 1e-44, 1e-40, -2.5, 1e-3, 1e30, -3e38, np.inf, -np.inf, np.nan, 1.0])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("divisor", [2.0**-149, -1e-40, 2.9e-39, 2.0**-126, 1e-38, 3e38])
def test_a_quotient_by_a_number_near_the_least_is_what_it_is(dtype: str, divisor: float) -> None:
    scale, to = (1.0, np.float32) if dtype == "f32" else (2.0**-896, np.float64)
    x = (SIZES * scale).astype(to)
    by = to(divisor * scale)
    with np.errstate(all="ignore"):
        expected = x / by
    fast = ft.optimize(lambda x: x / by, (x,), machine=REFERENCE)
    np.testing.assert_allclose(fast(x), expected, rtol=1e-6)


@pytest.mark.parametrize("divisor", ["f32(1e-45)", "f32(-1e-40)", "f64(5e-324)", "f64(-1e-310)"])
def test_scaling_a_quotient_rounds_nothing(divisor: str) -> None:
    dtype, tiny = divisor[:3], {"f32": 2.0**-126, "f64": 2.0**-1022}[divisor[:3]]
    model = ft.parse(f"""
def main(x: {dtype}[600]) -> {dtype}[600]:
    v1: {dtype}[600] = div(x, {divisor})
    return v1
""")
    rng = np.random.default_rng(0)
    to = np.float32 if dtype == "f32" else np.float64
    with np.errstate(all="ignore"):
        x = np.ldexp(rng.uniform(-4 * tiny, 4 * tiny, 600), rng.integers(-30, 2040, 600)).astype(to)
        expected = x / to(divisor[4:-1])
    after = settled(model)
    assert any(term.op == "mul" for term in after.main.walk())
    (found,) = after.interpret(x, precision="native")
    np.testing.assert_array_equal(found, expected)
    assert np.isfinite(expected).any() and np.isinf(expected).any()


@pytest.mark.parametrize(
    ("numbers", "operators", "expected"),
    [
        ((2.5, 3e38), ("mul",), np.inf),
        ((2.5, 3e38, 0.0), ("mul", "mul"), np.nan),
        ((2.0**-100, 2.0**-100, 2.0**100), ("mul", "mul"), 0.0),
        ((1.0, 2.0**-25, 2.0**-24), ("add", "add"), 1.0),
        ((1e-45, 1e-45), ("div",), 1.0),
    ],
)
def test_numbers_alone_are_what_their_dtype_makes_of_them(
    numbers: tuple[float, ...], operators: tuple[str, ...], expected: float
) -> None:
    first, *others = (tensor("full", value=Scalar.of(number, "f32"), shape=()) for number in numbers)
    for operator, other in zip(operators, others, strict=True):
        first = tensor(operator, first, other)
    x = make("input", "tensor", (), ("x", (3,), "f32"))
    model = Model({"main": Function((x,), (tensor("mul", x, first),))})
    value = np.array([1.0, -2.0, 0.5], np.float32)
    np.testing.assert_array_equal(ft.optimize(model, machine=REFERENCE)(value), value * np.float32(expected))


def test_numbers_lose_their_shape_and_what_they_meet_is_spread_after() -> None:
    model = ft.parse("""
def main(x: f32[3], y: f32[1]) -> (f32[3], f32[3], f32[3]):
    v1: f32[3] = full(value=f32(2.0), shape=(3,))
    v2: f32[3] = mul(x, v1)
    v3: f32[3] = mul(y, v1)
    v4: f32[3] = full(value=f32(1e-40), shape=(3,))
    v5: f32[3] = div(y, v4)
    return (v2, v3, v5)
""")
    alone, *spread = settled(model).main.outputs
    assert alone.args[1].shape == ()
    for one, op in zip(spread, ("mul", "div"), strict=True):
        (made,) = one.args
        assert (one.op, one.shape) == ("expand", (3,))
        assert (made.op, made.args[1].op, made.args[1].shape) == (op, "full", ())


def test_numbers_that_spread_a_tensor_do_not_meet_beyond_the_range() -> None:
    x = np.array([1e-30], np.float32)
    huge, ten = np.full(5, 3e38, np.float32), np.float32(10)
    fast = ft.optimize(lambda x: x * np.full(5, 3e38, np.float32) * np.float32(10), (x,), machine=REFERENCE)
    np.testing.assert_allclose(fast(x), x * huge * ten, rtol=1e-6)
