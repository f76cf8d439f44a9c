"""The text form: what is printed is read back to the same terms, and what cannot be read says where."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frittata.egraph import script, script_parser
from frittata.egraph.dtypes import NAMES, itemsize, to_numpy
from frittata.egraph.errors import ModelError
from frittata.egraph.indexing import Affine, IndexMap, Quot, Rem, Var, compose, permute_map, reshape_map, slice_map
from frittata.egraph.model import Function, Model
from frittata.egraph.ops import registry
from frittata.egraph.ops.registry import element, tensor
from frittata.egraph.script import parse, show, show_attr, show_term
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Scalar, Term

N = Sym("n")
UNARY = ("neg", "abs", "exp", "tanh", "sqrt", "sigmoid")
BINARY = ("add", "sub", "mul", "div", "max", "pow")


def leaf(name: str, *shape: Any, dtype: str = "f32", op: str = "input") -> Term:
    return tensor(op, name=name, shape=shape, dtype=dtype)


def model(*outputs: Term, inputs: tuple[Term, ...] = ()) -> Model:
    return Model({"main": Function(inputs, outputs)})


@pytest.mark.parametrize("module", [script, script_parser])
def test_the_examples_in_the_documentation_hold(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


def test_the_printed_form() -> None:
    x, w = leaf("x", 2, N), leaf("fc.weight", 2, 1, op="param")
    shared = element("exp", element("load", x))
    body = element("mul", shared, element("add", shared, element("const", value=Scalar.of(0.5, "f32"))))
    built = tensor("build", body, shape=(2, N))
    half = tensor("full", value=Scalar.of(0.5, "f32"), shape=())
    printed = show(model(tensor("mul", tensor("add", built, w), half), built, inputs=(x,)))
    assert printed == (
        "def main(\n"
        "    x: f32[2, n],\n"
        '    param fc_weight = "fc.weight": f32[2, 1],\n'
        ") -> (f32[2, n], f32[2, n]):\n"
        "    e1 = exp(load(x))\n"
        "    v1: f32[2, n] = build(mul(e1, add(e1, f32(0.5))), shape=(2, n))\n"
        "    v2: f32[2, n] = add(v1, fc_weight)\n"
        "    v3: f32[2, n] = mul(v2, f32(0.5))\n"
        "    return v3, v1\n"
    )


@pytest.mark.parametrize(
    "value",
    [
        *(1, -1, True, False, 1.0, -0.0, 1e300, 5e-324, float("nan"), float("inf"), float("-inf"), None),
        *("text", "both \" and '", "line\nend", N, Sym("two words"), Sym("class"), (), (1,), (1.0, (True, N), "x")),
        *(Scalar("f32", 0x7FC00001), Scalar("f64", 1), Scalar.of(-0.0, "f32"), Scalar.of(float("nan"), "f64")),
        *(Scalar.of(value, dtype) for value in (-0.0, 3.0, -1e-3) for dtype in ("bf16", "f16", "f64")),
        slice_map((N, 9), -1, 1, 2, 4),
        compose(permute_map((3, 4, 5), (2, 0, 1)), reshape_map((60,), (3, 4, 5))),
        reshape_map((6, 4), (3, 8)),
        IndexMap((3,), (4,), (Affine(-2, ((Quot(Affine(0, ((Var("k", 7), -1),)), 3), 1), (Var(-1, 9), 2))),)),
        IndexMap((3, 2), (N,), (Affine(0, ((Rem(Affine(1, ((Var(-1, N), 1),)), 3), 1),)), Affine(1))),
    ],
    ids=repr,
)
def test_each_kind_of_attribute_comes_back(value: Any) -> None:
    text = f"def main() -> f32[2]:\n    v1: f32[2] = probe(value={show_attr(value)})\n    return v1"
    type_ = registry.tensor("full", value=Scalar.of(0, "f32"), shape=(2,)).type
    registry.register(registry.Op("probe", "tensor", (), (("value", registry.REQUIRED),), lambda types, attrs: type_))
    try:
        (found,) = parse(text).main.outputs[0].attrs
        assert repr(found) == repr(value)
        assert parse(text).main.outputs[0] is registry.tensor("probe", value=value)
    finally:
        registry.unregister("probe")


@given(st.sampled_from(NAMES).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, 2 ** (8 * itemsize(d)) - 1))))
def test_a_constant_comes_back_to_the_bit(pair: tuple[str, int]) -> None:
    dtype, bits = pair
    scalar = Scalar(dtype, bits & 1 if dtype == "bool" else bits)
    root = tensor("full", value=scalar, shape=())
    assert parse(show(model(root))).main.outputs == (root,)


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Random functions: shared tensors and elements, reductions, views, contractions, constants."""
    shape = draw(st.sampled_from([(4, 6), (3, 2, 4), (N, 4), (1, 1)]))
    x = leaf(draw(st.sampled_from(["x", "v1", "param", "0.weight", "a b", "lambda"])), *shape)
    pool = [x, leaf("w", *shape, op="param"), leaf("v1_", *shape, op="param")]
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["unary", "binary", "reduce", "build", "view", "softmax"]))
        a, b = (draw(st.sampled_from(pool)) for _ in range(2))
        match kind:
            case "unary":
                pool.append(tensor(draw(st.sampled_from(UNARY)), a))
            case "binary" if a.shape == b.shape:
                pool.append(tensor(draw(st.sampled_from(BINARY)), a, b))
            case "reduce":
                pool.append(tensor("reduce_sum", a, axis=draw(st.integers(-len(a.shape), -1))))
            case "softmax":
                pool.append(tensor("softmax", a, axis=-1))
            case "view":
                pool.append(tensor("permute", a, permutation=tuple(draw(st.permutations(range(len(a.shape)))))))
            case _:
                pool.append(tensor("build", draw(elements(a)), shape=a.shape))
    outputs = tuple(draw(st.lists(st.sampled_from(pool), max_size=3)))
    return Model({"main": Function((x,), outputs), "other": Function((x,), (pool[-1],))})


@st.composite
def elements(draw: st.DrawFn, source: Term) -> Term:
    """A random element that may be built with the shape of `source`."""
    rank = len(source.shape)
    value = st.floats(width=32).map(lambda number: element("const", value=Scalar.of(number, "f32")))
    pool = [element("load", source), element("iota", axis=-rank, extent=source.shape[0], dtype="f32"), draw(value)]
    for _ in range(draw(st.integers(1, 8))):
        a, b = (draw(st.sampled_from(pool)) for _ in range(2))
        match draw(st.sampled_from(["unary", "binary", "fold", "reindex"])):
            case "unary":
                pool.append(element(draw(st.sampled_from(UNARY)), a))
            case "fold":
                pool.append(element("fold", a, op="max", axis=-1, extent=source.shape[-1]))
            case "reindex" if source.shape == (4, 6):
                turned = compose(reshape_map((3, 8), (4, 6)), reshape_map((4, 6), (3, 8)))
                pool.append(element("reindex", a, map=draw(st.sampled_from([turned, reshape_map((4, 6), (4, 6))]))))
            case _:
                pool.append(element(draw(st.sampled_from(BINARY)), a, b))
    return pool[-1]


@given(models())
def test_a_printed_model_is_read_back_to_the_same_terms(found: Model) -> None:
    text = show(found)
    again = parse(text)
    assert again == found
    assert show(again) == text
    assert str(found) == text


def test_operators_named_as_keywords_of_python_come_back() -> None:
    a, b = leaf("a", 2, dtype="bool"), leaf("b", 2, dtype="bool")
    e = element("or", element("load", a), element("not", element("load", b)))
    found = model(tensor("and", a, tensor("build", e, shape=(2,))), inputs=(a, b))
    assert "and_(a, v1)" in show(found)
    assert parse(show(found)) == found


def test_params_come_back_without_values() -> None:
    w = leaf("w", 3, op="param")
    again = parse(show(Model({"main": Function((), (w,))}, {"w": np.zeros(3, np.float32)})))
    assert again.main.outputs == (w,)
    assert not again.params


@pytest.mark.parametrize("dtype", NAMES)
def test_params_come_back_with_their_data_on_request(dtype: str) -> None:
    shapes = {"fc.w": (3, 2), 'both " and \'': (), "a\\": (5,)}
    leaves = [leaf(name, *shape, op="param", dtype=dtype) for name, shape in shapes.items()]
    bits = np.random.default_rng(0).integers(0, 2, 64)
    values = {
        name: np.resize(bits, shape).T.reshape(shape, order="F").astype(to_numpy(dtype))
        for name, shape in shapes.items()
    }
    written = Model({"main": Function((), tuple(leaves))}, values)
    again = parse(written.script(data=True))
    assert again == written and again.params.keys() == values.keys()
    for name, value in values.items():
        assert again.params[name].dtype == value.dtype
        np.testing.assert_array_equal(again.params[name], value)
    assert parse(f"{again.script(data=True)}\ndef other() -> ():\n    return ()\n")["other"] == Function((), ())


def test_leaves_whose_names_collide_as_words_keep_their_names() -> None:
    leaves = [leaf("a.b", 2), leaf("a_b", 2), leaf("a b", 2), leaf("a_b", 2, op="param"), leaf("", 2, op="param")]
    root = leaves[0]
    for other in leaves[1:]:
        root = tensor("add", root, other)
    found = model(root, inputs=tuple(leaves[:3]))
    assert parse(show(found)) == found


def test_an_input_that_is_not_used_stays() -> None:
    x, y = leaf("x", 2), leaf("y", 3)
    assert parse(show(model(y, inputs=(x, y)))).main.inputs == (x, y)


def test_deep_and_widely_shared_terms_take_linear_time_and_no_stack() -> None:
    x = leaf("x", 3)
    root, e = x, element("load", x)
    for _ in range(1500):
        root, e = tensor("add", root, root), element("add", e, e)
    chain = element("load", x)
    for _ in range(1500):
        chain = element("exp", chain)
    found = model(root, tensor("build", e, shape=(3,)), tensor("build", chain, shape=(3,)), inputs=(x,))
    assert parse(show(found)) == found


def test_one_term_can_be_shown_alone() -> None:
    e = element("exp", element("load", leaf("x", 3)))
    assert show_term(element("mul", e, e)) == "e1 = exp(load(x))\nmul(e1, e1)"
    assert show_term(leaf("x", 3)) == "x"


def test_hand_written_scripts_may_nest_and_give_attributes_by_place() -> None:
    found = parse(
        """
        # a comment
def main(x: f32[2, 6], param w: f32[3, 6]) -> (f32[2, 3], f32[()]):  # rows
    # another
    h: f32[2, 3] = relu(
        matmul(x, permute(w, (1, 0))),
    )

    return softmax(h), f32(1)
def other() -> ():
    return ()
"""
    )
    x, w = leaf("x", 2, 6), leaf("w", 3, 6, op="param")
    product = tensor("matmul", x, tensor("permute", w, permutation=(1, 0)))
    assert found.main.outputs[0] is tensor("softmax", tensor("relu", product), axis=-1)
    assert found.main.outputs[1] is tensor("full", value=Scalar.of(1.0, "f32"), shape=())
    assert found["other"] == Function((), ())


HEAD = "def main(x: f32[2, 3]) -> f32[2, 3]:\n"
PARAM = "def main(param w: f32[2]) -> f32[2]:\n    return w\n"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "1:1", "there is no function"),
        ("x = 3", "1:1", "expected 'def'"),
        ("def main(x: f8[2]) -> f32[2]:\n    return x", "1:13", "no dtype 'f8'"),
        ("def main(x: f32[2.5]) -> f32[2]:\n    return x", "1:17", "is no dim"),
        ("def main(x: f32[2]):\n    return x", "1:20", "expected '->'"),
        ("def main(x: f32[2]) -> f32[2]\n    return x", "1:30", "expected ':', found the end of the line"),
        ("def main(x: f32[2], x: f32[2]) -> f32[2]:\n    return x", "1:21", "declared twice"),
        ("def main(x: f32[2]", "1:19", "ends too early"),
        ("def main(\n", "1:10", "ends too early|expected a name"),
        ("def main(", "1:10", "ends too early|expected a name"),
        ("def main(x: f32[2],", "1:20", "ends too early|expected a name"),
        ('def main(x = f"a": f32[2]) -> f32[2]:\n    return x', "1:14", "is no string|quoted name"),
        ('def main(x = "a\0": f32[2]) -> f32[2]:\n    return x', "1:16", "no null characters"),
        (HEAD + '    return x  # "\0"', "2:18", "no null characters"),
        ("def class(x: f32[2]) -> f32[2]:\n    return x", "1:5", "function name 'class' is no identifier"),
        (HEAD.rstrip() + " return x\n    return x", "1:38", "starts in a line of its own"),
        ("def gr\u00f6sse(x: f32[2]) -> f32[2]:\n    return x", "1:5", "function name 'gr\u00f6sse' is no identifier"),
        ("def main(3: f32[2]) -> f32[2]:\n    return x", "1:10", "expected a name, found '3'"),
        ("def main(x = y: f32[2]) -> f32[2]:\n    return x", "1:14", "expected a quoted name, found 'y'"),
        ('def main(x: f32[Sym("n"]) -> f32[2]:\n    return x', "1:24", r"expected '\)', found '\]'"),
        ('def main(x: f32[foo("n")]) -> f32[2]:\n    return x', "1:20", "expected ',', found '\\('"),
        ("def main(\n    x: f32[2],\n) -> f32[2]:\n    return y", "4:12", "y is not defined"),
        ("def main() -> (): \'\'\'", "1:1", "no body"),
        (HEAD, "1:1", "no body"),
        (HEAD + "    # nothing", "1:1", "no body"),
        (HEAD + "    def f(): pass\n    return x", "2:5", "no line of a script"),
        (HEAD + "    return relu_(x)", "2:12", "unknown tensor operator 'relu_'"),
        (HEAD + "    return notx(x)", "2:12", "unknown tensor operator 'notx'"),
        (HEAD + "    return softmax(x, axis=foo(3))", "2:28", "this is no attribute"),
        (HEAD + "    v1: f32 = relu(x)\n    return v1", "2:9", "this is no type"),
        (HEAD + "    v1: int[2, 3] = relu(x)\n    return v1", "2:9", "this is no type"),
        (HEAD + "    v1: f32[-2, 3] = relu(x)\n    return v1", "2:13", "this is no dim"),
        (HEAD + "    v1: f32[True, 3] = relu(x)\n    return v1", "2:13", "this is no dim"),
        (HEAD + "    v1: f32['a', 3] = relu(x)\n    return v1", "2:13", "this is no dim"),
        (HEAD + "    v1: f32[2, 3] = relu(x)", "2:5", "last line of a function returns"),
        (HEAD + "    return relu(y)", "2:17", "y is not defined"),
        (HEAD + "    return rleu(x)", "2:12", "unknown tensor operator 'rleu'(.|\n)*did you mean 'relu'"),
        (HEAD + "    return input(x)", "2:12", "unknown tensor operator 'input'"),
        (HEAD + "    return add(x)", "2:12", "takes 2 operands: x, y"),
        (HEAD + "    return relu(x, 1)", "2:12", "takes 1 operands and 0 attributes"),
        (HEAD + "    return softmax(x, axis=-1, eps=2)", "2:32", "no attribute eps"),
        (HEAD + "    return softmax(x, -1, axis=-1)", "2:27", "given twice"),
        (HEAD + "    return reshape(x)", "2:12", "needs attribute shape"),
        (HEAD + "    return reshape(x, shape=(5,))", "2:12", "cannot reshape"),
        (HEAD + "    return softmax(x, axis=3 + 4)", "2:28", "this is no attribute"),
        (HEAD + "    return add(x, load(x))", "2:19", "unknown tensor operator 'load'"),
        (HEAD + "    return build(x, shape=(2, 3))", "2:18", "sort tensor, needed is element"),
        (HEAD + "    y = exp(x)\n    return y", "2:13", "a line that makes a tensor says its type"),
        (HEAD + "    v1: f32[2, 4] = relu(x)\n    return v1", "2:9", r"declared f32\[2, 4\], but it is f32\[2, 3\]"),
        (HEAD + "    v1: f64[2, 3] = relu(x)\n    return v1", "2:9", "but it is f32"),
        (HEAD + "    x: f32[2, 3] = relu(x)\n    return x", "2:5", "x is defined twice"),
        (HEAD + "    return x, x", "2:5", "declared"),
        (HEAD + "    print(x)\n    return x", "2:5", "no line of a script"),
        (HEAD + "    import os\n    return x", "2:5", "no line of a script"),
        (HEAD + "    return x.shape", "2:12", "this is no tensor"),
        (HEAD + "    return add(x, i32(1.5))", "2:19", "takes a int"),
        (HEAD + "    return add(x, i32(99999999999))", "2:19", "does not fit"),
        (HEAD + "    return add(x, f32(bits=0x1ffffffff))", "2:19", "too many bits"),
        (HEAD + "    return add(x, f32(bits=0x100000000))", "2:19", "too many bits"),
        (HEAD + "    return where(bool(bits=2), x, x)", "2:18", "0x2 has too many bits for bool"),
        (HEAD + "    return add(x, i64(9223372036854775808))", "2:19", "does not fit"),
        (HEAD + "    return add(x, f32(1.0, 2.0))", "2:19", "takes one number"),
        (HEAD + "    return relu(x", "2:16", "never closed"),
        (HEAD + "    return " + "relu(" * 250 + "x" + ")" * 250, "2:", "nest"),
        (HEAD + "    return x\nv1 = x", "3:1", "outside of a function"),
        (HEAD + "    return x\n" + HEAD + "    return x", "3:1", "defined twice"),
        (HEAD + "    v1 = relu(x)\n    return v1", "2:10", r"element operator 'relu'(.|\n)*`v1: f32\[2, n\] = relu\("),
        (HEAD + "    return add(x, 0.5)", "2:19", r"this is no tensor(.|\n)*f32\(0.5\)"),
        (HEAD + '    return x\ndata "w" = "AAAA"', "3:1", "no function has a param 'w'"),
        (PARAM + 'data "w" = "AAAA"\n', "3:1", r"has 3 bytes, and f32\[2\] has 8"),
        (PARAM + 'data "w" = "AAA"\n', "3:1", "is no base64"),
        (PARAM + 'data "w": f32[2]\n', "3:1", "this is no line of data"),
        (PARAM + 'data "w\\x" = "AAAA"\n', "3:1", "this is no line of data"),
        (HEAD + "    return build(load(x), shape=6)", "2:12", r"shape of build is 6(.|\n)*a tuple of extents"),
        (HEAD + '    return sort(x, descending="no")', "2:12", "descending of sort is 'no'(.|\n)*True or False"),
        (
            HEAD + "    return build(reindex(load(x), map=index_map((2,), (3,), (a1,))), shape=(3,))",
            "2:39",
            "takes source=",
        ),
    ],
)
def test_what_cannot_be_read_says_where(text: str, place: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        script_parser.parse(text, "file.frt")
    assert caught.value.where.startswith(f"file.frt:{place}")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("(2, 3), result=(3,)", "takes source="),
        ("2, result=(3,), sources=(0, a1)", "this is no shape"),
        ("(2, 3), result=(3,), sources=a1", "one expression for each of the 2 axes"),
        ("(2, 3), result=(3,), sources=(a1,)", "one expression for each of the 2 axes"),
        *(
            (f"(2, 3), result=(3,), sources=(0, {index})", message)
            for message, indices in {
                "a product is of one axis": ["2 * a1", "3 * 2", "a1 * a1", "a1 * 2 * 3", "a1 * 0.5"],
                "is of one axis, quotient or remainder": ["(a1 + 1) * 2", "(a1 + a1) * 2"],
                "divides by positive numbers": ["a1 // 0", "a1 % -1", "a1 // n"],
                "no index arithmetic": ["x", "'a'", "True"],
            }.items()
            for index in indices
        ),
    ],
)
def test_maps_of_indices_that_cannot_be_read_are_refused(parts: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parse(HEAD + f"    e = reindex(load(x), map=index_map(source={parts}))\n    return build(e, shape=(3,))")


def test_dims_and_inputs_are_named_by_any_text() -> None:
    dims = (Sym("a b"), Sym("Sym"), Sym("n"), 0)
    type_ = 'f32[Sym("a b"), Sym, n, 0]'
    found = parse(f'def main(x = "\uff58": {type_}, param: {type_}) -> {type_}:\n    return add(x, param)')
    assert found.main.inputs == (leaf("\uff58", *dims), leaf("param", *dims))
    assert parse(show(found)) == found


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_python_ends_them(end: str) -> None:
    text = f"# one\u2028line\n{HEAD}    return x\n\f\ndef other() -> ():\n    return ()\n"
    for mark in ("", "\ufeff"):
        assert list(parse(mark + text.replace("\n", end))) == ["main", "other"]


def test_letters_that_python_takes_for_one_are_one() -> None:
    wide = "\uff58"
    with pytest.raises(ModelError, match="x is declared twice"):
        parse(f"def main({wide}: f32[2], x: f32[2]) -> f32[2]:\n    return {wide}")
    assert parse(f"def main({wide}: f32[2]) -> f32[2]:\n    return {wide}").main.inputs == (leaf("x", 2),)


def test_an_error_shows_the_line_and_a_caret() -> None:
    with pytest.raises(ModelError) as caught:
        parse(HEAD + "    return rleu(x)")
    assert "\n        return rleu(x)\n               ^" in caught.value.where


def test_a_script_is_text_and_a_model_to_compile_has_a_main() -> None:
    nothing: Any = None
    with pytest.raises(ModelError, match="a script is text, got a NoneType"):
        parse(nothing)
    with pytest.raises(ModelError, match="no function 'main': it has other"):
        _ = parse("def other(x: f32[2]) -> f32[2]:\n    return x").main
