"""Operators of ONNX that have graphs: loops are unrolled, branches taken, or both computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import parser

from frittata.egraph.errors import UnsupportedOpError
from frittata.frontends.onnx.importer import from_onnx

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


HEAD = '<ir_version: 8, opset_import: ["" : 18]> g '
WEIGHT = np.array([1, 2, 3, 4, 5], np.float32)


def by_number(x: Array) -> tuple[Array, Array]:
    a, collected = x, list[Array]()
    for i in range(4):
        collected.append(a - x)
        a = a * WEIGHT + i
    return a, np.stack(collected)


def nested(x: Array) -> tuple[Array]:
    for _ in range(2):
        inner = x
        for j in range(2):
            inner = (inner + x) * j
        x = inner
    return (x,)


def scanned(x: Array) -> tuple[Array, Array]:
    a, collected = np.zeros(5, np.float32), list[Array]()
    for row, place in zip(x[::-1], range(3), strict=True):
        a = a + row * np.arange(15).reshape(5, 3)[:, place]
        collected.append(a)
    return a, np.stack(collected[::-1], 1)


LOOPS: dict[str, tuple[str, Callable[[Array], tuple[Array, ...]]]] = {
    "a number": (
        """(float[3,5] x) => (float[3,5] y, float[4,3,5] z) <int64 n = {4}> {
        y, z = Loop(n, , x) <body = b (int64 i, bool c, float[3,5] a) => (bool on, float[3,5] next, float[3,5] s)
            <float[5] w = {1, 2, 3, 4, 5}>
            { on = Identity(c) j = Cast<to=1>(i) t = Mul(a, w) next = Add(t, j) s = Sub(a, x) }>
        }""",
        by_number,
    ),
    "a condition": (
        """(float[3,5] x) => (float[3,5] y, int64[3] z) <int64 n = {9}, int64 two = {2}, bool yes = {1}> {
        y, z = Loop(n, yes, x) <body = b (int64 i, bool c, float[3,5] a) => (bool on, float[3,5] next, int64 s)
            { on = Less(i, two) s = Mul(i, two) next = Sin(a) }>
        }""",
        lambda x: (np.sin(np.sin(np.sin(x))), np.array([0, 2, 4])),
    ),
    "a condition alone": (
        """(float[3,5] x) => (float[3,5] y) <int64 k = {0}, int64 two = {2}, int64 one = {1}, bool yes = {1}> {
        q, y = Loop(, yes, k, x) <body = b (int64 i, bool c, int64 p, float[3,5] a)
            => (bool on, int64 p2, float[3,5] next) { p2 = Add(p, one) on = Less(p2, two) next = Sin(a) }>
        }""",
        lambda x: (np.sin(np.sin(x)),),
    ),
    "no iteration": (
        """(float[3,5] x) => (float[3,5] y) <int64 n = {0}, bool yes = {1}> {
        z = Loop(n, yes, x) <body = b (int64 i, bool c, float[3,5] a) => (bool on, float[3,5] next)
            { on = Identity(c) next = Neg(a) }>
        y = Exp(z)
        }""",
        lambda x: (np.exp(x),),
    ),
    "only what is collected": (
        """(float[3,5] x) => (float[4,5] y) <int64 n = {4}> {
        y = Loop(n) <body = b (int64 i, bool c) => (bool on, float[5] s)
            { on = Identity(c) j = Cast<to=1>(i) t = ReduceMax<axes = [0], keepdims = 0>(x) s = Mul(t, j) }>
        }""",
        lambda x: (np.arange(4)[:, None] * x.max(0),),
    ),
    "one in another": (
        """(float[3,5] x) => (float[3,5] y) <int64 n = {2}, bool yes = {1}> {
        y = Loop(n, yes, x) <body = b (int64 i, bool c, float[3,5] a) => (bool on, float[3,5] next) {
            on = Identity(c)
            next = Loop(n, yes, a) <body = d (int64 j, bool c2, float[3,5] p) => (bool on2, float[3,5] q)
                { on2 = Identity(c2) r = Add(p, a) k = Cast<to=1>(j) q = Mul(r, k) }>
        }>
        }""",
        nested,
    ),
    "slices": (
        """(float[3,5] x) => (float[5] y, float[5,3] z)
            <float[5] s = {0, 0, 0, 0, 0}, float[5,3] w = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}> {
        y, z = Scan <num_scan_inputs = 2, scan_input_axes = [0, -1], scan_input_directions = [1, 0],
            scan_output_axes = [1], scan_output_directions = [1],
            body = b (float[5] a, float[5] xi, float[5] wi) => (float[5] next, float[5] f)
            { t = Mul(xi, wi) next = Add(a, t) f = Identity(next) }> (s, x, w)
        }""",
        scanned,
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_are_unrolled(name: str) -> None:
    text, law = LOOPS[name]
    x = drawn(3, 5)
    found = from_onnx(parser.parse_model(HEAD + text)).model.interpret(x)
    for ours, right in zip(found, law(x), strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-5, atol=1e-6)


def test_of_a_condition_at_run_time_both_branches_are_computed() -> None:
    text = """(float[3,5] x, bool[1] c) => (float[3,5] y, float[5] z) {
        y, z = If(c) <
            then_branch = t () => (float[3,5] a, float[5] b) { a = Neg(x) b = ReduceMax<axes = [0], keepdims = 0>(x) },
            else_branch = e () => (float[3,5] a, float[5] b) { a = Exp(x) b = ReduceMin<axes = [0], keepdims = 0>(x) }>
        }"""
    x, model = drawn(3, 5), from_onnx(parser.parse_model(HEAD + text)).model
    for condition, law in ((True, (-x, x.max(0))), (False, (np.exp(x), x.min(0)))):
        for ours, right in zip(model.interpret(x, np.array([condition])), law, strict=True):
            np.testing.assert_allclose(ours, right, rtol=1e-5)


def test_constants_of_branches_may_have_the_same_name() -> None:
    text = """(float[2] x, bool c) => (float[2] y) {
        y = If(c) <then_branch = t () => (float[2] a) <float[2] w = {1, 2}> { a = Mul(x, w) },
            else_branch = e () => (float[2] a) <float[2] w = {10, 20}> { a = Mul(x, w) }>
        }"""
    x, model = drawn(2), from_onnx(parser.parse_model(HEAD + text)).model
    for condition, factors in ((True, (1, 2)), (False, (10, 20))):
        np.testing.assert_allclose(model.interpret(x, np.array(condition))[0], x * factors, rtol=1e-5)


def test_branches_of_other_types_need_a_known_condition() -> None:
    text = """(float[3,5] x, bool c) => (float[n,5] y) {
        y = If(c) <then_branch = t () => (float[3,5] a) { a = Neg(x) },
            else_branch = e () => (float[5] a) { a = ReduceMin<axes = [0], keepdims = 0>(x) }>
        }"""
    with pytest.raises(UnsupportedOpError, match=r"computed at run time, and y is f32\[3, 5\] or f32\[5\]"):
        from_onnx(parser.parse_model(HEAD + text))


def test_constants_of_a_body_are_one_for_all_iterations() -> None:
    text = """(float[3,2] x) => (float[3,2] y) <int64 n = {4}> {
        y = Loop(n, , x) <body = b (int64 i, bool c, float[3,2] a) => (bool on, float[3,2] next)
            { on = Identity(c) k = Constant<value = float[2] {1, 2}>() next = Mul(a, k) }>
        }"""
    assert list(from_onnx(parser.parse_model(HEAD + text)).model.params) == ["k"]


def test_a_body_that_stops_where_no_condition_is_given_is_refused() -> None:
    text = """(float[3,5] x) => (float[3,5] y) <int64 n = {4}, int64 most = {1}> {
        y = Loop(n, , x) <body = b (int64 i, bool c, float[3,5] a) => (bool on, float[3,5] next)
            { on = Less(i, most) next = Neg(a) }>
        }"""
    with pytest.raises(UnsupportedOpError, match="no condition is given, and the body stops"):
        from_onnx(parser.parse_model(HEAD + text))


@pytest.mark.parametrize(
    ("inputs", "count", "going", "step", "reason"),
    [
        ("float[3,5] x, int64 n", "", "Identity(c)", "Neg(a)", "how often it runs is computed at run time"),
        ("float[3,5] x", "int64 n = {4}", "Cast<to=9>(t)", "Neg(a)", "whether it runs again is computed at run time"),
        ("float[3,5] x", "int64 n = {4000}", "Identity(c)", "Neg(a)", "more than 256 iterations"),
        ("float[3,5] x", "int64 n = {2}", "Identity(c)", "Unique(a)", "Unique x2 at y/0/next, y/1/next"),
    ],
)
def test_loops_that_cannot_be_unrolled(inputs: str, count: str, going: str, step: str, reason: str) -> None:
    text = f"""({inputs}) => (float[3,5] y) <{count}{", " if count else ""}bool yes = {{1}}> {{
        y = Loop(n, yes, x) <body = b (int64 i, bool c, float[3,5] a) => (bool on, float[3,5] next)
            {{ t = ReduceSum<keepdims = 0>(a) on = {going} next = {step} }}>
        }}"""
    with pytest.raises(UnsupportedOpError, match=reason):
        from_onnx(parser.parse_model(HEAD + text))


def test_a_scan_of_as_many_operands_as_its_body_takes() -> None:
    text = """(float[3,5] x, float[5] s) => (float[5] y, float[3,5] z) {
        y, z = Scan<num_scan_inputs = 1, body = b (float[5] a, float[5] v) => (float[5] c, float[5] d)
            { c = Add(a, v) d = Mul(a, v) }>(s, s, x)
        }"""
    with pytest.raises(UnsupportedOpError, match="3 operands for a body of 2"):
        from_onnx(parser.parse_model(HEAD + text))


def test_what_no_iteration_collects_is_empty() -> None:
    text = """(float[3,5] x) => (float[3,5] y, float[k,3,5] z) <int64 n = {0}> {
        y, z = Loop(n, , x) <body = b (int64 i, bool c, float[3,5] a) => (bool on, float[3,5] next, float[3,5] s)
            { on = Identity(c) next = Neg(a) s = Exp(a) }>
        }"""
    with pytest.raises(UnsupportedOpError, match="no iteration, after which what it collects is empty"):
        from_onnx(parser.parse_model(HEAD + text))


# ---- folding ---------------------------------------------------------------------------------------------------------
