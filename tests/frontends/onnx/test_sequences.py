"""Sequences and optional values are resolved at import: what is left is what the reference computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from frittata.egraph.errors import FrittataError
from frittata.frontends.onnx.importer import from_onnx

HEAD = '<ir_version: 8, opset_import: ["" : 18]> g '
X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)

CASES = {
    "parts of one length": """(float[3,5] x) => (float[3,1] y, float[n,2] z) <int64 two = {2}, int64 last = {-1}> {
        s = SplitToSequence<axis = 1>(x, two)
        y = SequenceAt(s, last) t = SequenceErase(s, last) z = ConcatFromSequence<axis = 0>(t)
        }""",
    "parts of given lengths": """(float[3,5] x) => (float[2,5] y, int64 n) <int64[2] two = {1, 2}, int64 at = {1}> {
        s = SplitToSequence(x, two) y = SequenceAt(s, at) n = SequenceLength(s)
        }""",
    "rows": """(float[3,5] x) => (float[5,3] y, int64[3] n) {
        s = SplitToSequence<keepdims = 0>(x) y = ConcatFromSequence<axis = -1, new_axis = 1>(s)
        dims = Shape(x) sizes = SplitToSequence<keepdims = 0>(dims) t = Constant<value = int64 {7}>()
        more = SequenceInsert(sizes, t) n = ConcatFromSequence<axis = 0, new_axis = 1>(more)
        }""",
    "one after another": """(float[3,5] x) => (float[12,5] y) <int64 n = {4}, bool yes = {1}> {
        e = SequenceEmpty()
        s = Loop(n, yes, e) <body = b (int64 i, bool c, seq(float[3,5]) a) => (bool on, seq(float[3,5]) next)
            { on = Identity(c) j = Cast<to=1>(i) t = Mul(x, j) same = Identity(a) next = SequenceInsert(same, t) }>
        y = ConcatFromSequence<axis = 0>(s)
        }""",
    "at the front": """(float[3,5] x) => (float[6,5] y) <int64 back = {-1}> {
        m = Neg(x) s = SequenceConstruct(x) t = SequenceInsert(s, m, back) u = SequenceErase(t)
        v = SequenceInsert(u, m) y = ConcatFromSequence<axis = 0>(v)
        }""",
}


@pytest.mark.parametrize("name", CASES)
def test_sequences_are_resolved(name: str) -> None:
    model = parser.parse_model(HEAD + CASES[name])
    expected: Any = ReferenceEvaluator(model).run(None, {"x": X})
    for found, law in zip(from_onnx(model).model.interpret(X), expected, strict=True):
        assert found.shape == np.shape(law)
        np.testing.assert_allclose(found, law, rtol=1e-6)


def test_optional_values() -> None:
    text = """(float[3,5] x) => (float[3,5] y, bool has, bool has_none, bool has_nothing) {
        some = Optional(x) has = OptionalHasElement(some) y = OptionalGetElement(some)
        none = Optional<type = float[3,5]>() has_none = OptionalHasElement(none) has_nothing = OptionalHasElement()
        }"""
    y, *has = from_onnx(parser.parse_model(HEAD + text)).model.interpret(X)
    np.testing.assert_array_equal(y, X)
    assert [bool(each) for each in has] == [True, False, False]


REFUSED = {
    "sequence of 2": "y = SequenceAt(s, far)",
    "a tensor in the place of a sequence": "y = SequenceAt(x, zero)",
    "s is a sequence": "y = Neg(s)",
    "which tensor of a sequence is meant is computed at run time(.|\n)*known={'at': array}": "y = SequenceAt(s, at)",
    "lengths of parts are computed at run time(.|\n)*known={'at': array}": "t = SplitToSequence(x, at)\n"
    "y = SequenceAt(t, zero)",
    "a sequence without tensors": "e = SequenceEmpty()\ny = ConcatFromSequence<axis = 0>(e)",
    "optional value that is none": "e = Optional<type = float[3,5]>()\ny = OptionalGetElement(e)",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_not_known_or_not_there_is_refused(reason: str) -> None:
    text = f"""(float[3,5] x, int64 at) => (float[3,5] y) <int64 far = {{2}}, int64 zero = {{0}}> {{
        s = SequenceConstruct(x, x) {REFUSED[reason]}
        }}"""
    with pytest.raises(FrittataError, match=reason):
        from_onnx(parser.parse_model(HEAD + text))
