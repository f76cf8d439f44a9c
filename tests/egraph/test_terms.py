"""Terms: one object for equal nodes, different nodes for what only Python calls equal, and what is refused."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from frittata.egraph import terms
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.indexing import permute_map, slice_map
from frittata.egraph.model import Function, Model
from frittata.egraph.ops import registry
from frittata.egraph.ops.registry import element, make, tensor
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import ElementType, Scalar, TensorType

N, M = Sym("n"), Sym("m")


def leaf(name: str, *shape: Any, dtype: str = "f32") -> terms.Term:
    return tensor("input", name=name, shape=shape, dtype=dtype)


def constant(value: Any, dtype: str = "f32") -> terms.Term:
    return element("const", value=Scalar.of(value, dtype))


def iota(axis: int, extent: Any, dtype: str = "i64") -> terms.Term:
    return element("iota", axis=axis, extent=extent, dtype=dtype)


def test_equal_terms_are_one_object() -> None:
    x = leaf("x", 2, 3)
    assert tensor("add", x, x) is tensor("add", leaf("x", 2, 3), x)
    assert tensor("add", x, x) is not tensor("sub", x, x)
    assert leaf("x", 2, 3) is not leaf("x", 2, 3, dtype="f64")


def test_terms_are_substituted_by_others_of_their_type() -> None:
    x, y = leaf("x", 2, 3), leaf("y", 2, 3)
    root = tensor("add", tensor("exp", x), x)
    assert terms.substitute(root, {x: y}) is tensor("add", tensor("exp", y), y)
    assert terms.substitute(root, {tensor("exp", x): y}) is tensor("add", y, x)
    with pytest.raises(ModelError, match=r"exp of type f32\[2, 3\] is replaced by input of type f32\[3\]"):
        terms.substitute(root, {tensor("exp", x): leaf("z", 3)})


def test_the_two_sorts_of_one_operator_are_apart() -> None:
    e = element("load", leaf("x", 3))
    assert element("exp", e).sort == "element"
    assert tensor("exp", leaf("x", 3)).sort == "tensor"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Scalar.of(1, "i64"), Scalar.of(1.0, "f64")),
        (Scalar.of(1, "i64"), Scalar.of(1, "i32")),
        (Scalar.of(True, "bool"), Scalar.of(1, "i32")),
        (Scalar.of(0.0, "f32"), Scalar.of(-0.0, "f32")),
        (Scalar("f32", 0x7FC00000), Scalar("f32", 0x7FC00001)),
    ],
)
def test_constants_are_known_by_dtype_and_bits(first: Scalar, second: Scalar) -> None:
    assert first != second
    assert element("const", value=first) is not element("const", value=second)


@pytest.mark.parametrize(("first", "second"), [(1, True), (1, 1.0), (0.0, -0.0), ((1, 2), (1.0, 2)), ((1,), (True,))])
def test_attributes_that_python_calls_equal_make_different_terms(first: Any, second: Any) -> None:
    assert first == second
    type_ = TensorType((2,), "f32")
    one, other = (terms.intern("probe", "tensor", (), (value,), type_) for value in (first, second))
    assert one is not other
    assert repr(one.attrs) == repr((first,))
    assert repr(other.attrs) == repr((second,))


def test_a_scalar_rounds_to_its_dtype() -> None:
    assert Scalar.of(0.1, "f32").value == float(np.float32(0.1))
    assert Scalar.of(0.1, "f64").value == 0.1
    assert Scalar.of(-1, "i32").bits == 0xFFFFFFFF
    assert Scalar.of(True, "bool").value is True


def test_types_of_elements_drop_axes_that_are_not_mentioned() -> None:
    assert element("load", leaf("x", 1, 3)).type == ElementType((3,), "f32")
    assert element("load", leaf("x", 3, 1)).type == ElementType((3, 1), "f32")
    assert iota(-2, 4).type == ElementType((4, 1), "i64")
    assert iota(-2, 1).type == ElementType((), "i64")
    folded = element("fold", element("load", leaf("x", 4, 3)), op="sum", axis=-1, extent=3)
    assert folded.type == ElementType((4, 1), "f32")


def test_build_takes_extents_of_1_or_its_own() -> None:
    e = element("add", element("load", leaf("x", 4, 1)), element("load", leaf("y", 3)))
    assert tensor("build", e, shape=(4, 3)).type == TensorType((4, 3), "f32")
    assert terms.is_well_formed_body((4, 3), ElementType(e.shape, e.dtype))
    assert tensor("build", e, shape=(2, 4, 3)).type == TensorType((2, 4, 3), "f32")


@pytest.mark.parametrize(
    ("e", "shape"),
    [
        (iota(-1, 3), (6,)),
        (iota(-1, 3), (2,)),
        (iota(-1, 3), ()),
        (iota(-1, N), (M,)),
        (iota(-1, N), (3,)),
        (iota(-2, 4), (3,)),
        (element("load", leaf("x", 4, 3)), (6, 3)),
        (element("load", leaf("x", 4, 3)), (4, 1)),
    ],
)
def test_build_refuses_an_element_of_other_extents(e: terms.Term, shape: Any) -> None:
    assert not terms.is_well_formed_body(shape, ElementType(e.shape, e.dtype))
    with pytest.raises(ModelError, match="build"):
        tensor("build", e, shape=shape)


def test_narrowing_is_an_explicit_reindex() -> None:
    e = element("load", leaf("x", 6))
    with pytest.raises(ModelError, match="reindex"):
        tensor("build", e, shape=(3,))
    narrowed = element("reindex", e, map=slice_map((6,), -1, 0, 1, 3))
    assert tensor("build", narrowed, shape=(3,)).type == TensorType((3,), "f32")


def test_binders_take_the_extent_that_their_element_has() -> None:
    e = element("load", leaf("x", 4, 3))
    with pytest.raises(ModelError, match="binds axis -1 with extent 5"):
        element("fold", e, op="sum", axis=-1, extent=5)
    with pytest.raises(ModelError, match="binds axis"):
        element("dot", e, e, depth=3)
    assert element("dot", e, element("load", leaf("y", 3, 5)), depth=3).type == ElementType((4, 5), "f32")
    with pytest.raises(ModelError, match="reindex of 2x3"):
        element("reindex", e, map=permute_map((2, 3), (1, 0)))


def test_a_binder_may_bind_an_axis_that_is_not_mentioned() -> None:
    assert element("fold", constant(1.0), op="sum", axis=-1, extent=5).type == ElementType((), "f32")


def test_reindex_mentions_the_axes_that_its_map_needs() -> None:
    column = element("load", leaf("x", 4, 1))
    turned = element("reindex", column, map=permute_map((4, 3), (1, 0)))
    assert turned.type == ElementType((4,), "f32")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: tensor("add", x, leaf("b", 2)), "do not broadcast"),
        (lambda x: tensor("add", x, leaf("b", N)), "do not broadcast"),
        (lambda x: tensor("add", x, leaf("b", 3, dtype="f64")), "dtypes f32, f64"),
        (lambda x: tensor("and", x, x), "needs bool"),
        (lambda x: tensor("exp", leaf("i", 3, dtype="i64")), "floating-point"),
        (lambda x: tensor("add", leaf("i", 3, dtype="bool"), leaf("i", 3, dtype="bool")), "arithmetic on bool"),
        (lambda x: tensor("softmax", x, axis=1), "axis 1 is not one of"),
        (lambda x: tensor("reduce_sum", x, axis=-3), "axis -3 is not one of"),
        (lambda x: tensor("permute", x, permutation=(0, 0)), "no permutation"),
        (lambda x: tensor("slice", x, axis=-1, start=2, step=1, length=2), "slice"),
        (lambda x: tensor("matmul", x, x), "depths 3 and 4 differ"),
        (lambda x: tensor("linear", x, leaf("w", 5, 2), leaf("b", 5)), "linear of"),
        (lambda x: tensor("layer_norm", x, leaf("w", 4), leaf("b", 4)), "vectors of length 3"),
        (lambda x: tensor("cast", x, dtype="f8"), "no dtype 'f8'"),
        (lambda x: tensor("softmax", x, extent=3), "no attribute extent"),
        (lambda x: tensor("reduce_sum", x), "axis"),
        (lambda x: make("add", "tensor", (x,), ()), "takes 2 operands, got 1"),
        (lambda x: make("load", "element", (element("load", x),), ()), "must be a tensor"),
        (lambda x: tensor("relu", 3), "operand x of relu must be a tensor, got 3"),  # pyright: ignore[reportArgumentType]
        (lambda x: element("fold", element("load", x), op="mean", axis=-1, extent=3), "no fold 'mean'"),
        (lambda x: element("iota", axis=1, extent=3), "must be negative"),
    ],
)
def test_terms_that_make_no_sense_are_refused(build: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build(leaf("x", 4, 3))


@pytest.mark.parametrize(
    ("asked", "named"), [("maximum", "max"), ("subtract", "sub"), ("matmull", "matmul"), ("logsoftmax", "softmax")]
)
def test_the_nearest_operator_is_a_misspelled_one_or_one_that_a_longer_name_begins_with(asked: str, named: str) -> None:
    assert registry.nearest(asked, "tensor") == named


def test_every_operator_on_tensors_says_what_it_is() -> None:
    assert not [name for name in registry.names() if not registry.get(name).doc]
    assert registry.get("max").doc == "numpy.maximum, value by value, with broadcasting."


def test_an_operator_is_of_a_sort_that_there_is() -> None:
    row: Any = registry.Op("odd", "tens", (), (), lambda types, attrs: types[0])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ModelError, match="of sort 'tens'"):
        registry.register(row)


def test_an_unknown_operator_names_the_nearest() -> None:
    with pytest.raises(UnsupportedOpError, match="did you mean 'softmax'"):
        tensor("sofmax", leaf("x", 3))


def test_a_symbol_equals_itself_and_does_not_broadcast() -> None:
    x = leaf("x", N, 3)
    assert tensor("add", x, leaf("y", N, 1)).shape == (N, 3)
    with pytest.raises(ModelError, match="do not broadcast"):
        tensor("add", x, leaf("z", M, 3))


def shared(depth: int) -> terms.Term:
    x = leaf("x", 2)
    for _ in range(depth):
        x = tensor("add", x, x)
    return x


def test_walking_and_rebuilding_are_linear_in_shared_nodes_and_need_no_stack() -> None:
    root = shared(5000)
    order = list(terms.walk(root))
    assert len(order) == 5001
    assert all(position_of_args_before(order))
    assert terms.rebuild(root, lambda term, args: make(term.op, term.sort, args, term.attrs)) is root
    assert len(repr(root)) < 1000


def position_of_args_before(order: list[terms.Term]) -> list[bool]:
    place = {term: i for i, term in enumerate(order)}
    return [place[arg] < place[term] for term in order for arg in term.args]


def test_terms_that_were_walked_do_not_outlive_what_holds_them() -> None:
    """Arrays go with the terms that stand for them."""
    root = tensor("exp", leaf("gone", 2))
    known = [weakref.ref(term) for term in terms.walk(root)]
    del root
    assert [term() for term in known] == [None, None]


def test_substitute_replaces_whole_terms() -> None:
    x, y = leaf("x", 3), leaf("y", 3)
    root = tensor("add", tensor("exp", x), x)
    assert terms.substitute(root, {x: y}) is tensor("add", tensor("exp", y), y)
    assert terms.substitute(root, {tensor("exp", x): y}) is tensor("add", y, x)


def test_a_function_declares_the_inputs_that_it_uses() -> None:
    x = leaf("x", 3)
    with pytest.raises(ModelError, match="'x' is used but not declared"):
        Function((), (tensor("exp", x),))
    with pytest.raises(ModelError, match="equal names"):
        Function((x, leaf("x", 4)), (x,))


def test_binding_dims_replaces_symbols_everywhere() -> None:
    x = leaf("x", N, 4)
    mapped = element("reindex", element("load", x), map=permute_map((N, 4), (1, 0)))
    e = element("add", mapped, iota(-1, N, "f32"))
    model = Model({"main": Function((x,), (tensor("build", e, shape=(4, N)), tensor("expand", x, shape=(2, N, 4))))})
    bound = model.bind_dims({"n": 3})
    assert [out.shape for out in bound.main.outputs] == [(4, 3), (2, 3, 4)]
    value = np.arange(12.0).reshape(3, 4)
    built, _ = bound.interpret(value)
    np.testing.assert_array_equal(built, value.T + np.arange(3))
    with pytest.raises(ModelError, match="has no number"):
        model.interpret(value)


def test_number_beyond_a_dtype_is_rounded_without_a_warning() -> None:
    assert Scalar.of(65536.0, "f16").value == float("inf")
    Scalar.of(1e30, "i32")


def test_attributes_of_numpy_are_numbers_and_lists_are_tuples() -> None:
    x, w = leaf("x", 2, 3), leaf("w", 3)
    eps = np.float64(1e-3)
    assert tensor("layer_norm", x, w, w, eps=eps) is tensor("layer_norm", x, w, w, eps=1e-3)
    assert tensor("softmax", x, axis=np.int64(-1)) is tensor("softmax", x, axis=-1)
    assert tensor("reshape", x, shape=[np.int64(3), 2]) is tensor("reshape", x, shape=(3, 2))


@pytest.mark.parametrize(
    ("op", "attrs", "wanted"),
    [
        ("sort", {"descending": 0}, "True or False"),
        ("softmax", {"axis": True}, "an integer"),
        ("permute", {"permutation": 1}, "a tuple of integers"),
        ("reshape", {"shape": (3.0, 2.0)}, "a tuple of extents"),
        ("expand", {"shape": (-1, 2, 3)}, "a tuple of extents"),
        ("full", {"value": 1.0, "shape": ()}, "a constant"),
        ("rms_norm", {"eps": "1e-5"}, "a number"),
        ("windows", {"kernel": (1,), "stride": (0,), "dilation": (1,)}, "a tuple of positive integers"),
    ],
)
def test_attributes_are_of_their_kind(op: str, attrs: dict[str, Any], wanted: str) -> None:
    operands = {"full": (), "rms_norm": (leaf("x", 2, 3), leaf("w", 3))}.get(op, (leaf("x", 2, 3),))
    with pytest.raises(ModelError, match=f"attribute .* of {op} is (.|\n)*give {wanted}"):
        tensor(op, *operands, **attrs)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": 3}, "cannot be named 3"),
        ({"name": "f32"}, "cannot be named 'f32'"),
        ({"name": "extern_2"}, "cannot be named 'extern_2'"),
        ({"name": "const"}, "const is one on elements"),
        ({"operands": ("x",)}, "with the operands(.|\n)*pairs of a name and a sort"),
        ({"operands": (("x", "scalar"),)}, "pairs of a name and a sort"),
        ({"attrs": ("k",)}, "with the attributes(.|\n)*pairs of a name and a default"),
        ({"attrs": (("x", 1),)}, "takes x, x"),
        ({"attrs": (("a b", 1),)}, "takes x, a b"),
        ({"infer": None}, "infer=None"),
        ({"reference": 3}, "reference=3"),
        ({"cost": -1.0}, "cost=-1.0"),
        ({"reference": None, "opaque": True}, "is opaque and has no reference"),
    ],
)
def test_a_row_that_says_nothing_is_refused_before_it_is_used(wrong: dict[str, Any], message: str) -> None:
    infer: Any = lambda types, attrs: types[0]  # noqa: E731
    row = registry.Op("odd", "tensor", (("x", "tensor"),), (), infer, np.abs)
    with pytest.raises(ModelError, match=message):
        registry.register(replace(row, **wrong))
    assert registry.find("odd", "tensor") is None


@pytest.mark.parametrize("type_", [TensorType([2, 3], "f32"), TensorType((2.0,), "f32"), TensorType((2,), "f33")])  # pyright: ignore
def test_a_type_rule_gives_extents_and_a_dtype(type_: TensorType) -> None:
    registry.register(registry.Op("odd", "tensor", (("x", "tensor"),), (), lambda types, attrs: type_, np.abs))
    try:
        with pytest.raises(ModelError, match=r"type rule of odd gave (.|\n)*a tuple of extents and a dtype's name"):
            tensor("odd", leaf("x", 2, 3))
    finally:
        registry.unregister("odd")


def test_attributes_of_ones_own_operators_are_what_scripts_can_say() -> None:
    registry.register(registry.Op("odd", "tensor", (("x", "tensor"),), (("k", 1),), lambda t, a: t[0], np.abs))
    try:
        assert tensor("odd", leaf("x", 2), k=[1, None, "a", (2.0,)]).attrs == ((1, None, "a", (2.0,)),)
        with pytest.raises(ModelError, match=r"attribute k of odd is (.|\n)*give a number, a truth value, a string"):
            tensor("odd", leaf("x", 2), k={"a": 1})
    finally:
        registry.unregister("odd")
