"""Terms as bytes: read back as the same objects, in other processes too, and nothing else is read."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

import frittata as ft
from frittata.egraph import archive
from frittata.egraph.indexing import IndexMap, var
from frittata.egraph.ops.registry import element, make, tensor
from frittata.egraph.program import Estimate, Kernel, Output, Program
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import Scalar, TensorType, Term

SCRIPT = """
def main(x: f32[4, 8], param w: f32[8, 8]) -> f32[4, 8]:
    v1: f32[4, 8] = matmul(x, w)
    v2: f32[4, 8] = softmax(v1, axis=-1)
    return v2
"""


def x() -> Term:
    return tensor("input", name="x", shape=(4, 8), dtype="f32")


def turned() -> Term:
    """Return a body whose attributes are of every kind."""
    mapping = IndexMap((4, 8), (8, 4), (var(-1, 4), var(-2, 8)))
    moved = make("reindex", "element", (element("load", x()),), (mapping,))
    more = element("add", moved, element("const", value=Scalar.of(-0.0, "f32")))
    return tensor("build", more, shape=(8, 4))


def test_copies_and_pickles_of_terms_are_the_terms() -> None:
    body = turned()
    assert copy.copy(body) is body and copy.deepcopy(body) is body
    assert pickle.loads(pickle.dumps([body, x()])) == [body, x()]
    model = ft.parse(SCRIPT)
    assert copy.deepcopy(model) == model and pickle.loads(pickle.dumps(model)) == model


def test_a_pickled_term_is_the_same_in_another_process() -> None:
    code = f"import frittata as ft; print(pickle.loads({pickle.dumps(ft.parse(SCRIPT))!r}) == ft.parse({SCRIPT!r}))"
    done = subprocess.run([sys.executable, "-c", f"import pickle; {code}"], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_what_was_computed_of_an_index_is_not_written() -> None:
    """Hashes of names differ from process to process."""
    mapping = IndexMap((Sym("n"), 8), (8, Sym("n")), (var(-1, Sym("n")), var(-2, 8)))
    before = archive.to_bytes(mapping)
    assert len({mapping, *mapping.sources}) == 3 and mapping.sources[0].bounds() == (0, float("inf"))
    assert archive.to_bytes(mapping) == before
    assert archive.from_bytes(before) == mapping


def test_terms_are_read_back_as_the_same_objects() -> None:
    assert archive.from_bytes(archive.to_bytes({"body": turned(), "more": (x(), 1)})) == {
        "body": turned(),
        "more": (x(), 1),
    }


def test_deep_terms_are_read_back() -> None:
    deep = x()
    for _ in range(20_000):
        deep = tensor("relu", deep)
    assert archive.from_bytes(archive.to_bytes(deep)) is deep


def test_programs_are_read_back() -> None:
    kernel = Kernel("turn", "pointwise", (Output("y", turned()),), ("x",), Estimate(1e-6, 2.0, 3.0), ("a/b",))
    program = Program({"x": TensorType((4, 8), "f32")}, {}, (kernel,), ("y",), 1e-6, 0.25)
    assert archive.from_bytes(archive.to_bytes(program)) == program


def test_equal_terms_have_one_fingerprint_in_every_process() -> None:
    model = ft.parse(SCRIPT)
    here = archive.fingerprint(model.main.outputs)
    code = (
        "import frittata as ft; from frittata.egraph import archive\n"
        f"print(archive.fingerprint(ft.parse({SCRIPT!r}).main.outputs))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == here


def test_other_terms_have_other_fingerprints() -> None:
    def scaled(value: float) -> Term:
        return tensor("build", element("mul", element("load", x()), number(value)), shape=(4, 8))

    def number(value: float) -> Term:
        return element("const", value=Scalar.of(value, "f32"))

    y = tensor("input", name="y", shape=(4, 8), dtype="f32")
    others = [(x(),), (y,), (x(), y), (y, x()), (x(), x()), (turned(),), (scaled(0.0),), (scaled(-0.0),)]
    assert len({archive.fingerprint(roots) for roots in others}) == len(others)


@pytest.mark.parametrize("data", [b"", b"no archive", pickle.dumps([]), pickle.dumps([("neg", "tensor", (3,), ())])])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an archive"):
        archive.from_bytes(data)


def test_classes_from_elsewhere_are_refused() -> None:
    data = pickle.dumps([]) + pickle.dumps(subprocess.run)
    with pytest.raises(ValueError, match=r"subprocess\.run is not expected"):
        archive.from_bytes(data)
