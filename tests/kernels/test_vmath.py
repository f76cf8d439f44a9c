"""Element operators against numpy in a wider type, and against C's rules for special values."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from llvmlite import ir

from frittata.egraph.dtypes import to_numpy
from frittata.kernels import piecewise, simd, transcendental, vmath
from frittata.kernels.compile import CompiledKernel, compile_kernel
from frittata.kernels.expressions import Expr
from frittata.kernels.flow import for_range
from frittata.kernels.intrinsics import make_tile_intrinsic, table_pointer, table_value
from frittata.kernels.memory import load, store
from frittata.kernels.processor import processor
from frittata.kernels.simd import Lane

Array = np.ndarray[Any, np.dtype[Any]]
Emit = Callable[..., Any]


def run_each(
    emitters: dict[str, Emit], lane: Lane, inputs: list[Array], results: str | None = None
) -> dict[str, Array]:
    """Apply every emitter to the same inputs, in one compiled kernel; names tell apart what emitters emit."""
    count, outputs = len(inputs[0]), {}
    assert count % lane.lanes == 0
    for name in emitters:
        outputs[name] = np.zeros(count, to_numpy(results or lane.dtype))

    def emit(builder: Any, table: Any) -> None:
        sources = [table_pointer(builder, table, 1 + i, lane.dtype) for i in range(len(inputs))]
        for position, emitter in enumerate(emitters.values()):
            target = table_pointer(builder, table, 1 + len(inputs) + position, results or lane.dtype)

            def body(i: Any, _: Any, emitter: Emit = emitter, target: Any = target) -> list[Any]:
                store(builder, emitter(builder, *(load(builder, lane, source, i) for source in sources)), target, i)
                return []

            for_range(builder, 0, table_value(builder, table, 0), lane.lanes, [], body)

    source = "def probe(table, chunk):\n    apply(table)\n"
    key = f"{sorted(emitters)} {lane} {results}"
    kernel = compile_kernel(source, "probe", {"apply": make_tile_intrinsic("apply", emit, 0)}, key=key)
    call(kernel, np.array([count, *(a.ctypes.data for a in [*inputs, *outputs.values()])], np.int64))
    return outputs


def call(kernel: CompiledKernel, table: Array) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(kernel.address)(table.ctypes.data, 0)


def operators(*names: str) -> dict[str, Emit]:
    return {name: lambda builder, *args, name=name: vmath.emit(name, builder, *args) for name in names}


def error_in_ulps(result: Array, exact: Array) -> Array:
    """Return how far results are off in units of the last place; 0 where both are the same special value."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(result.dtype)
        unit = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, np.finfo(result.dtype).max)))
        error = np.abs(result.astype(exact.dtype) - exact) / unit
    same = (result == rounded) | (np.isnan(result) & np.isnan(rounded))
    return np.where(same, np.minimum(np.nan_to_num(error, nan=0.0, posinf=0.0), 1.0), np.nan_to_num(error, nan=np.inf))


def erf_exact(x: Array) -> Array:
    """Return erf in the precision of x, at some points through float64, elsewhere through mpmath."""
    with mpmath.workdps(25):
        values = [mpmath.nan if np.isnan(v) else mpmath.erf(mpmath.mpf(float(v))) for v in x]
        high = np.array([float(v) for v in values], x.dtype)
        pairs = zip(values, high, strict=True)
        low = [float(v - mpmath.mpf(float(h))) if np.isfinite(h) else 0.0 for v, h in pairs]
    return high + np.array(low, x.dtype)


def sigmoid_exact(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


UNARY: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "atan": np.arctan,
    "tanh": np.tanh,
    "sigmoid": sigmoid_exact,
    "erf": erf_exact,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "square": np.square,
}
EXACT: dict[str, Callable[..., Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "trunc": np.trunc,
}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 88.72, -103.9, 709.7, -745.1]


def samples(dtype: str, count: int) -> Array:
    """Return special values, every magnitude at random, and the ranges in which functions bend."""
    generator = np.random.default_rng(7)
    numpy = to_numpy(dtype)
    limits = np.finfo(numpy)
    special = [*SPECIAL, limits.max, -limits.max, limits.tiny, -limits.tiny, limits.smallest_subnormal, limits.eps]
    patterns = generator.integers(0, 256, count * numpy.itemsize, np.uint8).view(numpy)
    ranges = [generator.uniform(-width, width, count).astype(numpy) for width in (0.1, 1.0, 5.0, 20.0, 110.0, 800.0)]
    near_one = (1 + generator.uniform(-1e-3, 1e-3, count)).astype(numpy)
    values = np.concatenate([np.array(special, numpy), patterns, *ranges, near_one])
    return np.resize(values, -(-len(values) // 16) * 16)


@pytest.mark.parametrize("lanes", [16, 8, 1])
def test_functions_in_single_precision_are_within_two_ulps(lanes: int) -> None:
    x = samples("f32", 4000)
    results = run_each(operators(*UNARY), Lane("f32", lanes), [x])
    worst = {}
    for name, exact in UNARY.items():
        with np.errstate(all="ignore"):
            worst[name] = error_in_ulps(results[name], exact(x.astype(np.float64))).max()
    assert max(worst.values()) <= 2.0, worst


def let_fuse(fuses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emit as for a processor that fuses multiplications and additions, or for one that does not."""
    other = replace(processor(), fuses=fuses)
    for module in (simd, transcendental, vmath):
        monkeypatch.setattr(module, "processor", lambda: other)
    if not fuses:
        monkeypatch.setattr(simd, "fma", lambda builder, a, b, c: builder.fadd(builder.fmul(a, b), c))


@pytest.mark.parametrize("fuses", [True, False])
def test_sines_are_right_beside_multiples_of_half_pi(fuses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    let_fuse(fuses, monkeypatch)
    generator = np.random.default_rng(5)
    multiples = np.concatenate([generator.integers(1, most, 4096) for most in (1 << 14, 1 << 27)])
    x = (multiples * (np.pi / 2)).astype(np.float32)
    results = run_each(operators("sin", "cos"), Lane("f32", 8), [x])
    for name in ("sin", "cos"):
        exact = getattr(np, name)(x.astype(np.float64))
        assert error_in_ulps(results[name], exact).max() <= 2.0, name


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sines_in_double_precision_are_right_beside_multiples_of_half_pi(name: str) -> None:
    generator = np.random.default_rng(5)
    x = np.concatenate([generator.integers(1, most, 400) for most in (1 << 8, 1 << 20, 1 << 29, 1 << 40)]) * (np.pi / 2)
    (result,) = run_each(operators(name), Lane("f64", 4), [x]).values()
    with mpmath.workdps(60):
        exact = [getattr(mpmath, name)(mpmath.mpf(float(v))) for v in x]
        error = [abs(mpmath.mpf(float(r)) - e) / np.spacing(abs(float(e))) for r, e in zip(result, exact, strict=True)]
    assert max(error) <= 2.0


def test_functions_in_double_precision_are_within_four_ulps() -> None:
    x = samples("f64", 400)
    results = run_each(operators(*UNARY), Lane("f64", 4), [x])
    worst = {}
    for name, exact in UNARY.items():
        with np.errstate(all="ignore"):
            worst[name] = error_in_ulps(results[name], exact(x.astype(np.longdouble))).max()
    assert max(worst.values()) <= 4.0, worst


def assert_same(result: Array, expected: Array, name: str) -> None:
    """Compare bit by bit but for the payload of NaNs."""
    same = (result == expected) & (np.signbit(result) == np.signbit(expected)) | (np.isnan(result) & np.isnan(expected))
    assert same.all(), (name, np.flatnonzero(~same)[:5], result[~same][:5], expected[~same][:5])


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 8), ("f32", 1), ("f64", 4)])
def test_rounding_and_signs_are_those_of_numpy(dtype: str, lanes: int) -> None:
    x = samples(dtype, 400)
    results = run_each(operators(*EXACT), Lane(dtype, lanes), [x])
    for name, exact in EXACT.items():
        with np.errstate(all="ignore"):
            assert_same(results[name], exact(x), name)


def pairs(dtype: str) -> tuple[Array, Array]:
    """Return all pairs of special values, and random ones."""
    limits = np.finfo(to_numpy(dtype))
    special = np.array([*SPECIAL, 2.0, 3.0, -3.0, 7.0, limits.max, limits.smallest_subnormal], to_numpy(dtype))
    a, b = (grid.ravel() for grid in np.meshgrid(special, special))
    generator = np.random.default_rng(3)
    more = generator.normal(0, 10, (2, 2000)).astype(to_numpy(dtype))
    a, b = np.concatenate([a, more[0]]), np.concatenate([b, more[1]])
    size = -(-len(a) // 8) * 8
    return np.resize(a, size), np.resize(b, size)


FLOAT_PAIRS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "mod": np.mod,
    "floordiv": np.floor_divide,
}
EXTREMA: dict[str, Callable[..., Array]] = {"max": np.maximum, "min": np.minimum}
COMPARISONS: dict[str, Callable[..., Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 8), ("f32", 1), ("f64", 4)])
def test_arithmetic_is_that_of_numpy(dtype: str, lanes: int) -> None:
    a, b = pairs(dtype)
    results = run_each(operators(*FLOAT_PAIRS, *EXTREMA), Lane(dtype, lanes), [a, b])
    with np.errstate(all="ignore"):
        for name, exact in FLOAT_PAIRS.items():
            assert_same(results[name], exact(a, b), name)
        for name, exact in EXTREMA.items():
            np.testing.assert_array_equal(results[name], exact(a, b), err_msg=name)


@pytest.mark.parametrize("fuses", [True, False])
@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 16), ("f32", 1), ("f64", 8)])
def test_remainders_are_exact_beside_multiples_of_the_divisor(
    dtype: str, lanes: int, fuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_fuse(fuses, monkeypatch)
    generator, numpy = np.random.default_rng(11), to_numpy(dtype)
    most, size = np.finfo(numpy).nmant, 1 << 16
    b = np.ldexp(generator.uniform(1, 2, size), generator.integers(-most, most, size)).astype(numpy)
    whole = np.rint(np.exp2(generator.uniform(0, most + 2, size)))
    a = (b * whole).astype(numpy)
    a = np.where(generator.random(size) < 0.5, a, np.nextafter(a, generator.choice([-np.inf, np.inf], size)))
    a, b = (np.where(generator.random(size) < 0.5, x, -x).astype(numpy) for x in (a, b))
    results = run_each(operators("mod", "floordiv"), Lane(dtype, lanes), [a, b])
    assert_same(results["mod"], np.mod(a, b), "mod")
    assert_same(results["floordiv"], np.floor_divide(a, b), "floordiv")


def test_extrema_order_signed_zeros() -> None:
    a, b = np.array([0.0, -0.0] * 4, np.float32), np.array([-0.0, 0.0] * 4, np.float32)
    results = run_each(operators("max", "min"), Lane("f32", 8), [a, b])
    assert not np.signbit(results["max"]).any()
    assert np.signbit(results["min"]).all()


@pytest.mark.parametrize(("dtype", "lanes"), [("f32", 8), ("f32", 1), ("f64", 4)])
@pytest.mark.parametrize("bound", [0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan])
def test_extrema_with_a_number_are_those_without(dtype: str, lanes: int, bound: float) -> None:
    x = samples(dtype, 8)
    bounds = np.full_like(x, bound)

    def constant_on(side: int, op: str) -> Emit:
        def emit(builder: Any, value: Any) -> Any:
            pair = [value, simd.splat(builder, simd.constant(Lane(dtype), bound), lanes)]
            return vmath.emit(op, builder, *(pair if side else reversed(pair)))

        return emit

    emitters = {f"{op} {bound} {side}": constant_on(side, op) for op in ("max", "min") for side in (0, 1)}
    results = run_each(emitters, Lane(dtype, lanes), [x])
    expected = run_each(operators("max", "min"), Lane(dtype, lanes), [x, bounds])
    for name, result in results.items():
        assert_same(result, expected[name.split()[0]], name)


@pytest.mark.parametrize("lanes", [16, 1])
@pytest.mark.parametrize("bound", [0.0, 6.0])
def test_to_bound_a_value_by_a_number_takes_no_function(bound: float, lanes: int) -> None:
    lane = Lane("f32", lanes)
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(lane.type, [lane.type]), "bounded")
    builder = ir.IRBuilder(function.append_basic_block())
    for number in (simd.constant(lane, bound), simd.splat(builder, simd.constant(Lane("f32"), bound), lanes)):
        vmath.emit("max", builder, function.args[0], number)
    assert not any(isinstance(i, ir.CallInstr) for i in function.blocks[0].instructions)


@pytest.mark.parametrize("lanes", [32, 16, 8, 4, 2, 1])
@pytest.mark.parametrize("pieces", [4, 16] if processor().width == 64 else [4])
def test_each_lane_takes_the_entry_of_its_piece(pieces: int, lanes: int) -> None:
    numbers = np.arange(32, dtype=np.float32)

    def emit(builder: Any, value: Any) -> Any:
        piece = vmath.cast(builder, value, "i32")
        return piecewise.entry(Expr(builder, value), piece, tuple(range(10, 10 + pieces))).value

    (result,) = run_each({f"entry of {pieces}": emit}, Lane("f32", lanes), [numbers]).values()
    np.testing.assert_array_equal(result, 10 + numbers % pieces)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_vectors_of_any_number_of_lanes_have_the_same_bits(dtype: str) -> None:
    x = samples(dtype, 200)
    x = np.resize(x, len(x) // 32 * 32)
    names = ("exp", "sigmoid") if dtype == "f64" else ("exp", "sigmoid", "tanh", "erf", "pow")

    def emitters() -> dict[str, Emit]:
        return {n: lambda builder, x, n=n: vmath.emit(n, builder, x, *[x] * (n == "pow")) for n in names}

    wide, *others = (run_each(emitters(), Lane(dtype, lanes), [x]) for lanes in (32, 16, 8, 2, 1))
    for other in others:
        for name in names:
            assert_same(other[name], wide[name], name)


@pytest.mark.parametrize(("name", "end"), [("erf", 3.93), ("tanh", 9.1), ("sigmoid", 17.4)])
def test_what_tends_to_one_ends_there_and_never_exceeds_it(name: str, end: float) -> None:
    x = np.concatenate([np.linspace(0.8 * end, 1.2 * end, 80_000), [1e30, np.inf] * 4]).astype(np.float32)
    found = run_each(operators(name), Lane("f32", 8), [x])[name]
    assert found.max() == 1.0
    assert (found[x >= end] == 1.0).all()


@pytest.mark.parametrize(("dtype", "lanes", "ulps"), [("f32", 8, 1.0), ("f32", 1, 1.0), ("f64", 4, 1.0)])
def test_powers_are_those_of_numpy(dtype: str, lanes: int, ulps: float) -> None:
    a, b = pairs(dtype)
    power = run_each(operators("pow"), Lane(dtype, lanes), [a, b])["pow"]
    with np.errstate(all="ignore"):
        exact = np.power(a.astype(np.longdouble), b.astype(np.longdouble))
        assert error_in_ulps(power, exact).max() <= ulps
        zeros = exact == 0
        np.testing.assert_array_equal(np.signbit(power[zeros]), np.signbit(exact[zeros]))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
def test_comparisons_are_false_for_nan_except_ne(dtype: str) -> None:
    a, b = pairs(dtype) if dtype[0] == "f" else integer_pairs(dtype)
    results = run_each(operators(*COMPARISONS), Lane(dtype, 4), [a, b], results="bool")
    for name, exact in COMPARISONS.items():
        np.testing.assert_array_equal(results[name], exact(a, b), err_msg=name)


def integer_pairs(dtype: str) -> tuple[Array, Array]:
    numpy = to_numpy(dtype)
    limits = np.iinfo(numpy)
    special = np.array([0, 1, -1, 2, -2, 3, -7, 10, limits.max, limits.min, limits.min + 1], numpy)
    a, b = (grid.ravel() for grid in np.meshgrid(special, special))
    generator, bits = np.random.default_rng(17), limits.bits - 1
    divisor = generator.integers(limits.min, limits.max, 4000, numpy) >> generator.integers(0, bits, 4000, numpy)
    multiple = divisor * (limits.max // np.maximum(np.abs(divisor), 1) >> generator.integers(0, bits, 4000, numpy))
    a = np.concatenate([a, multiple + generator.integers(-1, 2, 4000, numpy)])
    b = np.concatenate([b, divisor])
    size = -(-len(a) // 8) * 8
    return np.resize(a, size), np.resize(b, size)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize("lanes", [8, 1])
def test_integers_wrap_and_divide_as_in_numpy(dtype: str, lanes: int) -> None:
    a, b = integer_pairs(dtype)
    expected: dict[str, Callable[..., Array]] = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
        "mod": np.mod,
        "floordiv": np.floor_divide,
        "bitwise_and": np.bitwise_and,
        "bitwise_or": np.bitwise_or,
        "bitwise_xor": np.bitwise_xor,
        "left_shift": np.left_shift,
        "right_shift": np.right_shift,
    }
    unary: dict[str, Callable[..., Array]] = {"neg": np.negative, "abs": np.abs, "sign": np.sign, "square": np.square}
    results = run_each(operators(*expected), Lane(dtype, lanes), [a, b])
    results |= run_each(operators(*unary), Lane(dtype, lanes), [a])
    with np.errstate(all="ignore"):
        for name, exact in expected.items():
            np.testing.assert_array_equal(results[name], exact(a, b), err_msg=name)
        for name, exact in unary.items():
            np.testing.assert_array_equal(results[name], exact(a), err_msg=name)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize("lanes", [8, 1])
def test_integers_are_divided_by_numbers_as_in_numpy(dtype: str, lanes: int) -> None:
    generator, limits = np.random.default_rng(13), np.iinfo(to_numpy(dtype))
    least, most, bits = int(limits.min), int(limits.max), limits.bits - 1
    powers = [2**k + d for k in (1, 2, 3, 15, 16, bits // 2, bits // 2 + 1, bits - 2, bits - 1) for d in (-1, 0, 1)]
    divisors = {7, 10, 641, most, most - 1, -1, -3, least, *powers, *generator.integers(2, most, 9).tolist()}
    drawn = generator.integers(least, most, 400, endpoint=True) >> generator.integers(0, bits, 400)
    multiples = [k * n + d for n in divisors for k in (1, -1, most // abs(n), -(most // abs(n))) for d in (-1, 0, 1)]
    values = [least, most, 0, 1, -1, *drawn.tolist(), *(v for v in multiples if least <= v <= most)]
    a = np.resize(np.array(values, to_numpy(dtype)), -(-len(values) // lanes) * lanes)

    def divide(op: str, divisor: int) -> Emit:
        return lambda builder, x: vmath.emit(op, builder, x, simd.constant_like(x, divisor))

    ops: dict[str, Callable[..., Array]] = {"mod": np.mod, "floordiv": np.floor_divide}
    results = run_each({f"{op} {n}": divide(op, n) for op in ops for n in divisors}, Lane(dtype, lanes), [a])
    with np.errstate(all="ignore"):
        for name, result in results.items():
            op, divisor = name.split()
            np.testing.assert_array_equal(result, ops[op](a, a.dtype.type(divisor)), err_msg=name)


def test_booleans_combine() -> None:
    a, b = np.array([0, 0, 1, 1] * 2, np.bool_), np.array([0, 1] * 4, np.bool_)
    results = run_each(operators("and", "or", "max", "min", "add", "mul"), Lane("bool", 8), [a, b])
    for name in ("and", "min", "mul"):
        np.testing.assert_array_equal(results[name], a & b)
    for name in ("or", "max", "add"):
        np.testing.assert_array_equal(results[name], a | b)
    np.testing.assert_array_equal(run_each(operators("not"), Lane("bool", 8), [a])["not"], ~a)


def test_where_takes_either_side_with_its_nan() -> None:
    a, b = pairs("f32")

    def choose(builder: Any, a: Any, b: Any) -> Any:
        return vmath.emit("where", builder, vmath.emit("lt", builder, a, b), a, b)

    assert_same(run_each({"where": choose}, Lane("f32", 8), [a, b])["where"], np.where(a < b, a, b), "where")


@pytest.mark.parametrize("lanes", [8, 1])
@pytest.mark.parametrize("source", ["bool", "i32", "i64", "f32", "f64"])
@pytest.mark.parametrize("target", ["bool", "i32", "i64", "f32", "f64"])
def test_casts_are_those_of_numpy(source: str, target: str, lanes: int) -> None:
    if source[0] == "f":
        edge = [2.0**31, -(2.0**31), 2.0**31 - 129, 2.0**63, -(2.0**63), 1e30, -(2.0**31) - 0.5]
        x = np.array([*SPECIAL, *edge, 7.9], to_numpy(source))
    else:
        x = integer_pairs("i64")[0].astype(to_numpy(source))
    emitters = {"cast": lambda builder, value: vmath.cast(builder, value, target)}
    result = run_each(emitters, Lane(source, lanes), [x], results=target)["cast"]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, x.astype(to_numpy(target)))


def test_gelu_has_a_good_tail() -> None:
    x = np.linspace(-12, 6, 8000, dtype=np.float32)

    def gelu(builder: Any, x: Any) -> Any:
        scaled = vmath.emit("mul", builder, x, vmath.constant_like(x, 0.7071067811865476))
        half = vmath.emit("mul", builder, x, vmath.constant_like(x, 0.5))
        one = vmath.constant_like(x, 1.0)
        return vmath.emit("mul", builder, half, vmath.emit("add", builder, one, vmath.emit("erf", builder, scaled)))

    result = run_each({"gelu": gelu}, Lane("f32", 8), [x])["gelu"]
    wide = x.astype(np.float64)
    exact = wide * 0.5 * (1 + erf_exact(wide / np.sqrt(2)))
    # the tail is absolutely good to 1e-7; on the right the results themselves grow, and their rounding with them
    assert (np.abs(result - exact) <= 1e-7 * (1 + np.maximum(x, 0))).all()


def test_an_operator_without_code_is_refused() -> None:
    with pytest.raises(Exception, match="no vector code for tanh on i32"):
        run_each(operators("tanh"), Lane("i32", 8), [np.zeros(8, np.int32)])
