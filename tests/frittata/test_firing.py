"""Why rules fired or did not."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import frittata as ft
from frittata.egraph.errors import RuleError
from frittata.egraph.machine import REFERENCE
from frittata.firing import search_of
from frittata.optimized import Optimized
from frittata.rules import library

RULES = """
marked: exp(tanh(x)) [one kernel]
found: tanh(exp(x)) [one kernel]
lacks-exp: exp(x) * exp(y) => exp(x + y)  [reassoc]
one-x: exp(x) * tanh(x) => tanh(x) * exp(x)
constant: exp(x) * tanh(y) => tanh(y) * exp(x) if const(x)
cube: exp(x) * tanh(y) => tanh(y) * exp(x) if rank(x) == 3
attribute: permute(x, (1, 0)) => permute(x, (1, 0))
number: x + 2 => 2 + x
swapped: relu(x) ~> gelu(x)
replaced: cos(x) ~> sin(x)
nowhere: floor(ceil(x)) => ceil(x)
several: p = tanh(x), q = floor(x) => q = floor(x), p = tanh(x)
turned: exp(x) * tanh(y) => tanh(y) * exp(x)
scaled: full(c, s) ~> full(c * 2, s)
"""
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def function(a: Any, b: Any) -> Any:
    return (np.tanh(np.exp(np.exp(a) * np.tanh(b) + 3)) + np.cos(a))[None].transpose(0, 2, 1)


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Optimized:
    folder = tmp_path_factory.mktemp("firing")
    (folder / "mine.rules").write_text(RULES)
    options: dict[str, Any] = {"machine": REFERENCE, "cache": folder, "rules": [folder / "mine.rules"]}
    return ft.optimize(function, (X, X), **options)


MISSES = {
    "marked": "at exp .*asks for tanh, and there is (add|input)",
    "lacks-exp": "at mul .*asks for exp, and there is tanh",
    "one-x": "x would stand for two things, input a of type .* and input b of type",
    "constant": "but not the guard: x is known before run time; x is input a of type",
    "cube": r"but not the guard: rank\(x\) == 3; x is input a of type f32\[3, 4\]",
    "scaled": r"at full of type f32\[\]: all of it fits, but what it makes of it has no value: c \* 2: unsupported",
    "attribute": r"attributes of permute are others: \(0, 2, 1\)",
    "number": "asks for 2, and there is full",
    "swapped": "It asks for relu, and there is none",
    "nowhere": "It asks for floor, and there is none",
    "several": "It asks for tanh and floor, and one of them is not there",
}


@pytest.mark.parametrize("name", MISSES)
def test_what_a_rule_lacked(name: str, fast: Optimized) -> None:
    found = fast.explain_rule(f"mine/{name}")
    assert not found.matches
    text = " ".join(str(found).split())
    assert "took part and matched nothing" in text
    assert found.miss is None or found.miss.why in text
    assert re.search(MISSES[name], text)


def test_what_a_rule_did(fast: Optimized) -> None:
    assert fast.explain_rule("turned").matches
    assert fast.explain_rule("found").kernels == (fast.kernels[0].name,)
    assert fast.explain_rule("replaced").matches == 1
    built = fast.explain_rule("legalize/build-tanh")
    assert built.matches == 2 and built.nodes and built.kernels
    assert "matched 2 times" in str(built)
    assert json.loads(json.dumps(built.to_dict()))["rule"] == "legalize/build-tanh"


def test_a_rule_without_a_part_in_it(tmp_path: Path) -> None:
    (tmp_path / "mine.rules").write_text(RULES)
    options: dict[str, Any] = {"machine": REFERENCE, "cache": tmp_path, "rules": [tmp_path / "mine.rules"]}
    fast = ft.optimize(np.exp, (X,), opt_level=1, disable=["mine/turned", "scalar"], numerics="exact", **options)
    for name, absent in {
        "mine/turned": "it is disabled",
        "scalar/drop-add-zero": "it is disabled",
        "layout/last-mul": "layout is of opt_level 2, and the level is 1",
        "lacks-exp": "its level is reassoc, and numerics is exact",
    }.items():
        assert fast.explain_rule(name).absent == absent
        assert f"took no part: {absent}" in str(fast.explain_rule(name))
    legalized = ft.optimize(np.exp, (X,), pipeline="zero", machine=REFERENCE, cache=tmp_path)
    assert "leaves layout out" in legalized.explain_rule("layout/last-mul").absent
    with pytest.raises(RuleError, match=r"no rule 'build-expp'(.|\n)*build-exp"):
        fast.explain_rule("build-expp")


def test_a_rule_is_placed_in_its_file_whatever_the_file_is_called(tmp_path: Path) -> None:
    file = tmp_path / "my rules.txt"
    file.write_text("turned: exp(x) * tanh(y) => tanh(y) * exp(x)\n", encoding="utf-8-sig")
    options: dict[str, Any] = {"machine": REFERENCE, "cache": tmp_path, "rules": file}
    fast = ft.optimize(lambda x: np.exp(x) * np.tanh(x), (X,), **options)
    assert str(fast.explain_rule("turned")).startswith("my rules/turned, my rules.txt:1:1\n")
    saved = ft.load(fast.save(tmp_path / "model.frt"), cache=tmp_path)
    assert saved.explain_rule("turned").matches == 1
    for name, near in (("turned", "my rules/turned"), ("legalise", "legalize")):
        with pytest.raises(RuleError, match=f"nothing to disable is called '{name}'(.|\n)*mean {near}"):
            ft.optimize(np.exp, (X,), disable=name, **options)


def test_the_search_finds_what_saturation_matched(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 4), nn.Softmax(-1)).eval()
    fast = ft.optimize(module, (torch.randn(3, 6),), machine=REFERENCE, cache=tmp_path)
    rule_by_name = {rule.full_name: rule for family in library.builtin_families() for rule in family.rules}
    matched = [rule_by_name[row.name] for row in fast.report.rules if row.matches and row.name in rule_by_name]
    assert len(matched) > 10
    snapshot = fast.account.snapshot
    for rule in matched:
        miss = search_of(snapshot).nearest(rule, range(len(snapshot.nodes)))
        assert miss is not None and miss.why.startswith("all of it fits, but saturation"), rule.full_name


def test_what_is_folded_stands_on_rules(tmp_path: Path) -> None:
    layers = nn.Sequential(nn.Linear(32, 64, bias=False), nn.Linear(64, 8, bias=False)).eval()
    fast = ft.optimize(layers, (torch.randn(4, 32),), machine=REFERENCE, cache=tmp_path)
    found = fast.explain_rule("linear_algebra/chain-matmuls")
    assert len(fast.kernels) == len(found.folded) == 1
    (kernel,) = fast.kernels
    stands = f"On it stand kernels: {kernel.name}; constants folded before run time: {found.folded[0]}."
    assert str(found).endswith(stands)


def test_a_rule_that_only_joins_gives_no_price_as_reason(tmp_path: Path) -> None:
    (tmp_path / "mine.rules").write_text("root: max(sqrt(x), 0.0) => sqrt(x) [reassoc]")
    rules: dict[str, Any] = {"machine": REFERENCE, "cache": tmp_path, "rules": [tmp_path / "mine.rules"]}
    fast = ft.optimize(lambda x: np.tanh(np.maximum(np.sqrt(x), np.float32(0))), (X,), **rules)
    found = fast.explain_rule("mine/root")
    assert found.matches and not found.nodes and "it joined what is equal" in str(found)


def test_a_rule_whose_result_is_the_same_operator_is_on_the_way(tmp_path: Path) -> None:
    """Of two such nodes in a class the one that the kernel was derived from counts."""
    (tmp_path / "mine.rules").write_text("drop: argmax(exp(x), a) => argmax(x, a) [reassoc]")
    rules: dict[str, Any] = {"machine": REFERENCE, "cache": tmp_path, "rules": [tmp_path / "mine.rules"]}
    fast = ft.optimize(lambda x: np.argmax(np.exp(x), -1), (np.ones((64, 128), np.float32),), **rules)
    (kernel,) = fast.kernels
    assert "exp" not in kernel.op and fast.explain_rule("drop").kernels == (kernel.name,)


def test_two_roots_are_two_things(tmp_path: Path) -> None:
    p, q = "p = slice(z, -1, 0, 1, shape(x)[-1])", "q = slice(z, -1, shape(x)[-1], 1, shape(y)[-1])"
    guard = "rank(x) > 0 and rank(x) == rank(y) and shape(x)[:-1] == shape(y)[:-1]"
    left, right = "p = exp(x), q = exp(y)", f"z = exp(concat(x, y, -1)), {p}, {q}"
    (tmp_path / "mine.rules").write_text(f"both: {left} => {right} if {guard}")
    rules: dict[str, Any] = {"machine": REFERENCE, "cache": tmp_path, "rules": [tmp_path / "mine.rules"]}
    found = ft.optimize(lambda x: np.exp(x) + 1, (X,), **rules).explain_rule("both")
    assert not found.matches and "p and q would be one thing" in str(found)


def test_a_limit_that_ended_saturation_is_told(tmp_path: Path) -> None:
    pipeline = ft.Pipeline("short", (), {"round_limit": 2})
    fast = ft.optimize(function, (X, X), machine=REFERENCE, cache=tmp_path, pipeline=pipeline)
    found = fast.explain_rule("legalize/build-exp")
    assert found.stopped == "round limit" and "ended at the round limit" in str(found)


def test_the_report_has_all_rules_of_ones_own_first(fast: Optimized) -> None:
    names = [line.partition(":")[0] for line in RULES.split("\n") if line]
    rows = {row.name: row.matches for row in fast.report.rules[: len(names)]}
    assert set(rows) == {f"mine/{name}" for name in names}
    assert rows["mine/replaced"] == rows["mine/turned"] == 1 and rows["mine/nowhere"] == 0
    text = str(fast.report)
    assert all(f"mine/{name}" in text for name in names)
