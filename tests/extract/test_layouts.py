"""Convolutions that leave their results with channels last: what goes on in their kernels, what stands between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from frittata.egraph.indexing import permute_map, reshape_map, slice_map
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.registry import tensor
from frittata.egraph.phases import Phase
from frittata.egraph.program import Program
from frittata.egraph.saturate import saturate
from frittata.egraph.script import parse
from frittata.egraph.snapshot import Node, Snapshot
from frittata.egraph.terms import Sort, Term, walk
from frittata.extract import choose
from frittata.extract.choose import extract
from frittata.extract.layouts import computed, ends, layouts
from frittata.kernels.templates import TEMPLATES
from frittata.rules.compile import compile_families
from frittata.rules.library import builtin_families


def chosen(root: Term) -> Program:
    """Extract a program."""
    levels = ("exact", "reassoc")
    admitted = (replace(f, rules=tuple(r for r in f.rules if r.level.kind in levels)) for f in builtin_families())
    families = tuple(admitted)
    phase = Phase("all", tuple(family.name for family in families))
    found = saturate((root,), compile_families(families), (phase,), lambda term: term.op == "param")
    inputs = tuple(term for term in walk(root) if term.op == "input")
    return extract(found.snapshot, inputs, (root,), TEMPLATES, REFERENCE, found.rule_names).program


def layers(count: int) -> Term:
    """Return so many layers conv(x) + r, relu."""
    x = tensor("input", name="x", shape=(1, 48, 24, 24), dtype="f32")
    r = tensor("input", name="r", shape=(1, 48, 24, 24), dtype="f32")
    for layer in range(count):
        w = tensor("param", name=f"w{layer}", shape=(48, 48, 3, 3), dtype="f32")
        x = tensor("relu", tensor("add", tensor("conv", x, w, padding=(1, 1)), r))
    return x


def test_what_stands_beside_convolutions_goes_where_their_channels_are_last() -> None:
    """`x` and `r` are permuted once each; what follows a convolution goes on in its kernel."""
    program = chosen(layers(3))
    names = [kernel.template for kernel in program.kernels]
    assert len(names) <= 6 and names.count("winograd") == 3
    bodies = [output.body for kernel in program.kernels for output in kernel.outputs if kernel.template == "winograd"]
    assert all({"winograd_dot", "add", "max"} <= {term.op for term in walk(body)} for body in bodies)


def test_lines_have_their_channels_last_between_convolutions() -> None:
    """Only the input is permuted; products read their rows where they lie."""
    x = tensor("input", name="x", shape=(1, 64, 400), dtype="f32")
    for layer in range(3):
        w = tensor("param", name=f"w{layer}", shape=(64, 64, 9), dtype="f32")
        x = tensor("relu", tensor("conv", x, w, stride=(1,), padding=(4,), dilation=(1,)))
    kernels = chosen(x).kernels
    names = [kernel.template for kernel in kernels]
    assert names.count("contraction") == 3 and "convolution" not in names
    assert not any(output.body.args[0].op == "reindex" for kernel in kernels[1:-1] for output in kernel.outputs)


def test_what_follows_a_transposed_convolution_goes_on_in_its_kernel() -> None:
    """Where each place is reached by one value it is a product for each phase, stored with its phases joined."""
    x = tensor("input", name="x", shape=(1, 32, 20, 20), dtype="f32")
    w, v = (tensor("param", name=name, shape=(32, 32, 2, 2), dtype="f32") for name in "wv")
    b = tensor("param", name="b", shape=(32, 1, 1), dtype="f32")
    up = tensor("relu", tensor("add", tensor("conv_transpose", x, w, stride=(2, 2)), b))
    program = chosen(tensor("conv", up, v))
    first, *_ = (k.outputs[0].body for k in program.kernels if k.template == "contraction")
    assert first.shape == (1, 40, 40, 32) and {"dot", "reindex", "max"} <= {term.op for term in walk(first)}


@pytest.mark.parametrize("places", [(24, 25), (600,)])
def test_windows_over_tokens_read_and_write_them_as_they_lie(places: tuple[int, ...]) -> None:
    """A window of each channel between two products is one kernel, which needs no copy."""
    x = tensor("input", name="x", shape=(1, 600, 32), dtype="f32")
    v, w = (tensor("param", name=f"w{n}", shape=(n, 128), dtype="f32") for n in (32, 16))
    taps = tensor("param", name="taps", shape=(128, 1, *(3 for _ in places)), dtype="f32")
    turned = tensor("permute", tensor("matmul", x, v), permutation=(0, 2, 1))
    image = tensor("reshape", turned, shape=(1, 128, *places)) if len(places) > 1 else turned
    ones = tuple(1 for _ in places)
    image = tensor("relu", tensor("conv", image, taps, stride=ones, padding=ones, dilation=ones, groups=128))
    flat = tensor("reshape", image, shape=(1, 128, 600)) if len(places) > 1 else image
    tokens = tensor("permute", flat, permutation=(0, 2, 1))
    kernels = chosen(tensor("matmul", tokens, tensor("permute", w, permutation=(1, 0)))).kernels
    assert len(kernels) == 3 and [k.template for k in kernels][::2] == ["contraction", "contraction"]
    (body,) = (output.body for output in kernels[1].outputs)
    assert body.shape[-1] == 128


def test_a_fold_is_stored_where_it_is_spread_along_an_axis_of_another_extent() -> None:
    """The sum over 32 is no row of the maximum over 64: each is one."""
    x = tensor("input", name="x", shape=(500, 32), dtype="f32")
    y = tensor("input", name="y", shape=(500, 64), dtype="f32")
    total = tensor("reduce_sum", tensor("square", x), axis=-1)
    names = [kernel.template for kernel in chosen(tensor("softmax", tensor("add", total, y), axis=-1)).kernels]
    assert names == ["row", "row"]


def test_what_adds_nothing_is_no_way_to_have_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """With y = y + 0 the permutation that y is was another layout of what is computed, and y had no kernel."""
    monkeypatch.setattr(choose, "everywhere", lambda _: pytest.fail("the analysis of cuts leads to no program"))
    model = parse("""
        def main(x: f32[1, 5, 8], y: f32[1, 5, 8]) -> f32[1, 8, 5]:
            p: f32[1, 8, 5] = permute(x, permutation=(0, 2, 1))
            q: f32[1, 8, 5] = permute(y, permutation=(0, 2, 1))
            v1: f32[1, 8, 5] = add(f32(0.0), p)
            v2: f32[1, 8, 5] = add(v1, q)
            return v2
    """)
    (kernel,) = chosen(*model.main.outputs).kernels
    assert {term.op for term in walk(kernel.outputs[0].body)} == {"build", "add", "reindex", "load", "input"}


def test_layouts_of_the_same_values_are_told_from_parts_and_from_what_is_not_computed() -> None:
    turn, turn_back = permute_map((6, 4), (1, 0)), permute_map((4, 6), (1, 0))

    def element(op: str, *args: int, **attrs: Any) -> Node:
        return Node(op, "element", args, tuple(attrs.values()), 0)

    classes = {
        "x": [element("load", 9)],
        "y": [element("load", 9), element("exp", 0)],
        "turned": [element("load", 9), element("reindex", 1, map=turn), element("exp", 5)],
        "longer": [element("exp", 5), element("reindex", 2, map=reshape_map((4, 6), (4, 1, 6)))],
        "rows": [element("exp", 5), element("reindex", 1, map=slice_map((6, 4), -2, 3, 1, 2))],
        "x turned": [element("reindex", 0, map=turn)],
        "z": [element("neg", 2)],
        "z turned": [element("reindex", 6, map=turn_back)],
        "both": [element("add", 7, 3)],
        "memory": [],
    }
    sorts: list[Sort] = ["tensor" if name == "memory" else "element" for name in classes]
    snapshot = Snapshot([*classes.values()], sorts)
    number = {name: at for at, name in enumerate(classes)}
    for same in ((), ((number["y"], number["rows"]),)):
        layout_of = layouts(snapshot, same)
        joined = ["y", "turned", "longer", *(["rows"] if same else [])]
        assert [name for name in classes if layout_of(number[name]) == layout_of(number["y"])] == joined
        assert len({layout_of(at) for at in number.values()}) == len(classes) + 1 - len(joined)
    assert ends(snapshot) == {number["y"], number["z"]}
    turned = classes["turned"]
    assert computed(turned) == turned[2:] and computed(turned, {number["y"]}) == turned[1:]
    assert computed(classes["rows"]) == classes["rows"]
    assert computed(classes["z turned"]) == classes["z turned"]
