"""The interpreter against numpy and torch: every row of the registry, both sorts, odd sizes, special values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from frittata.egraph import ops
from frittata.egraph.errors import ModelError
from frittata.egraph.indexing import permute_map, reshape_map, slice_map
from frittata.egraph.interpret import Interpreter, evaluate
from frittata.egraph.ops import registry
from frittata.egraph.ops.elements import fold_identity
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.terms import Scalar, Term

Array = np.ndarray[Any, np.dtype[Any]]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -1.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan")]
INTEGERS = [0, 1, -1, 31, 32, 63, 64, -64, 2**40, 2**63 - 1, -(2**63)]

POINTWISE: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "mod": torch.remainder,
    "floordiv": torch.floor_divide,
    "max": torch.maximum,
    "min": torch.minimum,
    "pow": torch.pow,
    "fma": lambda x, y, z: x * y + z,
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": lambda x: torch.where(x.isnan(), x, torch.sign(x)),  # NaN stays NaN, torch has 0
    "square": torch.square,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "atan": torch.atan,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "cos": torch.cos,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "not": torch.logical_not,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift,
    "where": torch.where,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
BOOL_OPERANDS = {"and": (0, 1), "or": (0, 1), "not": (0,), "where": (0,)}
OF_INTEGERS = {"bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"}
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")


def bind(*values: Array) -> tuple[list[Term], dict[str, Array]]:
    """Inputs of the types of some arrays, and their binding."""
    names = "xyzuv"[: len(values)]
    dtype = {"float64": "f64", "float32": "f32", "int64": "i64", "int32": "i32", "bool": "bool"}
    leaves = [
        tensor("input", name=name, shape=value.shape, dtype=dtype[str(value.dtype)])
        for name, value in zip(names, values, strict=True)
    ]
    return leaves, dict(zip(names, values, strict=True))


def run(make: Callable[..., Term], *values: Array, precision: Any = "f64") -> Array:
    leaves, value_by_name = bind(*values)
    return evaluate((make(*leaves),), value_by_name, precision)[0]


def operands(name: str, shapes: list[tuple[int, ...]], special: bool = False) -> list[Array]:
    random = np.random.default_rng(len(name))
    out: list[Array] = []
    for place, shape in enumerate(shapes):
        value = random.choice(SPECIAL, shape) if special else random.normal(size=shape)
        if name in OF_INTEGERS:
            value = random.integers(-99, 99, shape) if not special else random.choice(INTEGERS, shape)
        out.append(value > 0 if place in BOOL_OPERANDS.get(name, ()) else value)
    return out


def arity(name: str) -> int:
    return len(registry.get(name).operands)


def test_the_table_has_every_pointwise_row() -> None:
    rows = {op.name for op in registry.every() if op.pointwise}
    assert rows <= {*POINTWISE, "cast"}
    assert ops.names("element")


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", POINTWISE)
def test_a_pointwise_row_is_what_torch_computes(name: str, special: bool) -> None:
    values = operands(name, [(17, 7)] * arity(name), special)
    expected = POINTWISE[name](*map(torch.from_numpy, values)).numpy()
    found = run(lambda *leaves: tensor(name, *leaves), *values)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)
    assert found.dtype == expected.dtype


@pytest.mark.parametrize("name", [name for name in POINTWISE if name not in ACTIVATIONS])
def test_an_element_is_the_tensor_operator_at_each_index(name: str) -> None:
    shapes = [(7, 1, 17), (3, 1), (1, 17)][: arity(name)]
    values = operands(name, shapes)
    whole = run(lambda *leaves: tensor(name, *leaves), *values)

    def build(*leaves: Term) -> Term:
        e = element(name, *(element("load", leaf) for leaf in leaves))
        return tensor("build", e, shape=np.broadcast_shapes(*shapes))

    np.testing.assert_array_equal(run(build, *values), whole)


@pytest.mark.parametrize("shapes", [[(1,), (7,)], [(), (17, 7)], [(17, 1), (1, 7)], [(1, 1), ()], [(7,), (17, 1, 1)]])
def test_operands_broadcast_as_in_numpy(shapes: list[tuple[int, ...]]) -> None:
    values = operands("sub", shapes)
    np.testing.assert_array_equal(run(lambda x, y: tensor("sub", x, y), *values), values[0] - values[1])


def test_native_precision_rounds_each_operation() -> None:
    x = np.asarray([1.0, 1e-9, 3.0], np.float32)

    def make(leaf: Term) -> Term:
        one = tensor("full", value=Scalar.of(1.0, "f32"), shape=())
        return tensor("sub", tensor("add", leaf, one), one)

    np.testing.assert_array_equal(run(make, x, precision="native"), (x + np.float32(1)) - np.float32(1))
    np.testing.assert_allclose(run(make, x), x.astype(np.float64), rtol=1e-6, atol=1e-15)
    assert run(make, x).dtype == np.float64


def test_a_constant_is_its_rounded_value_in_any_precision() -> None:
    tenth = tensor("full", value=Scalar.of(0.1, "f32"), shape=(2,))
    assert evaluate((tenth,), {})[0][0] == float(np.float32(0.1))


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (np.asarray([1.7, -1.7, 0.0]), "i32", [1, -1, 0]),
        (np.asarray([0.5, 0.0, -0.0]), "bool", [True, False, False]),
        (np.asarray([True, False]), "f32", [1.0, 0.0]),
        (np.asarray([3, -4]), "f64", [3.0, -4.0]),
        (np.asarray([2, 0]), "bool", [True, False]),
    ],
)
def test_casts_are_those_of_torch(value: Array, dtype: str, expected: list[Any]) -> None:
    np.testing.assert_array_equal(run(lambda x: tensor("cast", x, dtype=dtype), value), expected)


@pytest.mark.parametrize("shape", [(1, 7), (7, 1), (17, 7), (3, 1, 7)])
@pytest.mark.parametrize("fold", ["sum", "prod", "max", "min"])
def test_reductions_keep_their_axis(fold: str, shape: tuple[int, ...]) -> None:
    (x,) = operands(fold, [shape])
    reduce_by_name = {"sum": torch.sum, "prod": torch.prod, "max": torch.amax, "min": torch.amin}
    for axis in range(-len(shape), 0):
        expected = reduce_by_name[fold](torch.from_numpy(x), axis, keepdim=True).numpy()
        found = run(lambda leaf, axis=axis: tensor(f"reduce_{fold}", leaf, axis=axis), x)
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)
        folded = run(lambda leaf, axis=axis: fold_tensor(leaf, fold, axis), x)
        np.testing.assert_allclose(folded, expected, rtol=1e-13, atol=1e-13)


def fold_tensor(leaf: Term, fold: str, axis: int) -> Term:
    shape: list[Any] = list(leaf.shape)
    e = element("fold", element("load", leaf), op=fold, axis=axis, extent=shape[axis])
    shape[axis] = 1
    return tensor("build", e, shape=tuple(shape))


def test_folds_of_special_values() -> None:
    x = np.asarray([[1.0, np.nan, 3.0], [np.inf, -np.inf, 0.0], [-np.inf, -np.inf, -np.inf]])
    np.testing.assert_array_equal(
        run(lambda leaf: tensor("reduce_max", leaf, axis=-1), x)[:, 0], [np.nan, np.inf, -np.inf]
    )
    np.testing.assert_array_equal(
        run(lambda leaf: tensor("reduce_sum", leaf, axis=-1), x)[:, 0], [np.nan, np.nan, -np.inf]
    )


def test_a_fold_of_an_element_that_does_not_mention_the_axis_counts_it() -> None:
    one = element("const", value=Scalar.of(1.5, "f64"))
    total = tensor("build", element("fold", one, op="sum", axis=-1, extent=7), shape=())
    assert evaluate((total,), {})[0] == 10.5


@pytest.mark.parametrize(
    ("op", "dtype", "value"),
    [("sum", "f32", 0.0), ("prod", "i64", 1), ("max", "f32", -np.inf), ("min", "i32", 2**31 - 1)],
)
def test_the_identity_of_a_fold_changes_nothing(op: str, dtype: str, value: Any) -> None:
    assert fold_identity(op, dtype).value == value


@pytest.mark.parametrize("shape", [(1, 1), (7, 17), (2, 1, 7)])
def test_softmax_and_layer_norm_are_those_of_torch(shape: tuple[int, ...]) -> None:
    x, weight, bias = operands("layer_norm", [shape, shape[-1:], shape[-1:]])
    for axis in range(-len(shape), 0):
        found = run(lambda leaf, axis=axis: tensor("softmax", leaf, axis=axis), x)
        np.testing.assert_allclose(found, torch.softmax(torch.from_numpy(x), axis).numpy(), rtol=1e-13)
    found = run(lambda *leaves: tensor("layer_norm", *leaves, eps=1e-3), x, weight, bias)
    on_torch, scale, shift = torch_all(x, weight, bias)
    expected = F.layer_norm(on_torch, list(shape[-1:]), scale, shift, eps=1e-3)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12, atol=1e-13)


def torch_all(*values: Array) -> list[Any]:
    return [torch.from_numpy(value) for value in values]


@pytest.mark.parametrize("shape", [(1, 3), (7, 3, 5), (2, 3, 7, 1)])
def test_batch_norm_is_that_of_torch(shape: tuple[int, ...]) -> None:
    x, mean, var, weight, bias = operands("batch_norm", [shape, (3,), (3,), (3,), (3,)])
    var = np.square(var)
    found = run(lambda *leaves: tensor("batch_norm", *leaves, eps=1e-3), x, mean, var, weight, bias)
    batch_norm: Any = F.batch_norm
    expected = batch_norm(*torch_all(x, mean, var, weight, bias), eps=1e-3)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (7, 17), (17, 1)])
def test_attention_is_that_of_torch(queries: int, keys: int) -> None:
    q, k, v = operands("attention", [(2, 3, queries, 5), (2, 1, keys, 5), (1, 3, keys, 4)])
    found = run(lambda *leaves: tensor("attention", *leaves, scale=0.3), q, k, v)
    whole = (np.broadcast_to(value, (2, 3, *value.shape[2:])).copy() for value in (q, k, v))
    on_torch = torch_all(*whole)
    expected = F.scaled_dot_product_attention(on_torch[0], on_torch[1], on_torch[2], scale=0.3)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("left", "right"), [((7, 1), (1, 17)), ((1, 7), (7, 1)), ((5, 1, 3, 7), (2, 7, 4))])
def test_matmul_and_dot_are_numpys(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = operands("matmul", [left, right])
    expected = np.matmul(a, b)
    np.testing.assert_allclose(run(lambda x, y: tensor("matmul", x, y), a, b), expected, rtol=1e-13, atol=1e-13)

    def build(x: Term, y: Term) -> Term:
        e = element("dot", element("load", x), element("load", y), depth=left[-1])
        return tensor("build", e, shape=expected.shape)

    np.testing.assert_allclose(run(build, a, b), expected, rtol=1e-13, atol=1e-13)


def test_linear_is_that_of_torch() -> None:
    x, weight, bias = operands("linear", [(2, 7, 5), (17, 5), (17,)])
    found = run(lambda *leaves: tensor("linear", *leaves), x, weight, bias)
    np.testing.assert_allclose(found, F.linear(*torch_all(x, weight, bias)).numpy(), rtol=1e-12, atol=1e-13)


CONVOLUTIONS = [
    # spatial, kernel, stride, padding, dilation, groups
    ((7,), (3,), (1,), (1,), (1,), 1),
    ((17,), (1,), (3,), (0,), (1,), 2),
    ((1, 1), (1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((7, 17), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((7, 17), (3, 2), (2, 3), (2, 0), (1, 2), 2),
    ((7, 7), (3, 3), (2, 2), (1, 1), (1, 1), 4),
    ((8, 9), (2, 4), (3, 1), (1, 3), (2, 2), 1),
    ((3, 4, 5), (2, 1, 3), (1, 2, 1), (1, 0, 1), (1, 1, 2), 2),
]


@pytest.mark.parametrize(("spatial", "kernel", "stride", "padding", "dilation", "groups"), CONVOLUTIONS)
def test_conv_and_window_dot_are_those_of_torch(
    spatial: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> None:
    inputs, channels = 4, 8
    x, w = operands("conv", [(2, inputs, *spatial), (channels, inputs // groups, *kernel)])
    convolve: Any = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(spatial)]
    expected = convolve(*torch_all(x, w), None, stride, padding, dilation, groups).numpy()
    window = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    found = run(lambda a, b: tensor("conv", a, b, **window), x, w)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)

    def build(a: Term, b: Term) -> Term:
        parts = {"source": (inputs, *spatial), "channels": channels, "kernel": kernel, **window}
        e = element("window_dot", element("load", a), element("load", b), **parts)
        return tensor("build", e, shape=expected.shape)

    np.testing.assert_allclose(run(build, x, w), expected, rtol=1e-12, atol=1e-13)


def test_views_are_numpys_and_so_are_their_maps() -> None:
    (x,) = operands("view", [(4, 1, 6)])
    cases: list[tuple[Any, Any, Array]] = [
        (("permute", {"permutation": (2, 0, 1)}), permute_map(x.shape, (2, 0, 1)), x.transpose(2, 0, 1)),
        (("reshape", {"shape": (2, 12)}), reshape_map(x.shape, (2, 12)), x.reshape(2, 12)),
        (("slice", {"axis": -1, "start": 1, "step": 2, "length": 3}), slice_map(x.shape, -1, 1, 2, 3), x[..., 1::2]),
    ]
    for (name, attrs), mapping, expected in cases:
        np.testing.assert_array_equal(run(lambda leaf, n=name, a=attrs: tensor(n, leaf, **a), x), expected)

        def build(leaf: Term, mapping: Any = mapping, shape: Any = expected.shape) -> Term:
            return tensor("build", element("reindex", element("load", leaf), map=mapping), shape=shape)

        np.testing.assert_array_equal(run(build, x), expected)
    np.testing.assert_array_equal(run(lambda leaf: tensor("expand", leaf, shape=(2, 4, 5, 6)), x)[1, :, 3], x[:, 0])


def test_atoms_clamp_an_index_out_of_range() -> None:
    x = np.arange(12.0).reshape(4, 3)
    (leaf,), value_by_name = bind(x)
    interpreter = Interpreter(value_by_name)
    index = {-3: np.asarray([5, 0]), -2: np.asarray([9, -4]), -1: np.asarray([-1, 7])}
    np.testing.assert_array_equal(interpreter.element_at(element("load", leaf), index), [x[3, 0], x[0, 2]])
    np.testing.assert_array_equal(interpreter.element_at(element("iota", axis=-2, extent=4), index), [3, 0])
    turned = element("reindex", element("load", leaf), map=permute_map((4, 3), (1, 0)))
    np.testing.assert_array_equal(interpreter.element_at(turned, index), [x[0, 2], x[3, 0]])
    summed = element("fold", element("load", leaf), op="sum", axis=-1, extent=3)
    np.testing.assert_array_equal(interpreter.element_at(summed, index), x.sum(1)[[3, 0]])


def test_a_missing_axis_of_the_index_is_0() -> None:
    x = np.arange(12.0).reshape(4, 3)
    (leaf,), value_by_name = bind(x)
    found = Interpreter(value_by_name).element_at(element("load", leaf), {-1: np.asarray([2])})
    np.testing.assert_array_equal(found, [2.0])


def test_a_binder_inside_a_binder_has_its_own_axis() -> None:
    x, y = operands("nested", [(4, 3), (3, 5)])

    def build(a: Term, b: Term) -> Term:
        product = element("dot", element("load", a), element("load", b), depth=3)
        centered = element("sub", product, element("fold", product, op="max", axis=-1, extent=5))
        return tensor("build", element("fold", centered, op="sum", axis=-2, extent=4), shape=(1, 5))

    z = x @ y
    expected = (z - z.max(1, keepdims=True)).sum(0, keepdims=True)
    np.testing.assert_allclose(run(build, x, y), expected, rtol=1e-12)


def test_leaves_need_values_of_their_shape() -> None:
    (leaf,), _ = bind(np.zeros(3))
    with pytest.raises(ModelError, match="no value for input 'x'"):
        evaluate((leaf,), {})
    with pytest.raises(ModelError, match="declared"):
        evaluate((leaf,), {"x": np.zeros(4)})


def test_power_is_the_same_whatever_the_layout_of_its_exponents() -> None:
    power = registry.get("pow", "element").reference
    assert power is not None
    x = np.random.default_rng(0).uniform(0, 200, 1000).astype(np.float32)
    for exponent in (-1, 0.5, 2, 3):
        one = np.full(1, exponent, np.float32)
        whole = power(x, np.full(1000, exponent, np.float32))
        np.testing.assert_array_equal(power(x, one), whole)
        np.testing.assert_array_equal([power(value, one[0]) for value in x], whole)
        assert power(x[0], one[0]).shape == ()
