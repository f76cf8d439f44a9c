"""Explanations: chains of rules, alternatives with prices, and why neighbours are apart."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import frittata as ft
from frittata.egraph.machine import REFERENCE
from frittata.explain import rival_rows
from frittata.optimized import Optimized

SHARED = """
def main(
    x: f32[64, 64],
    y: f32[64, 64],
) -> (f32[64, 64], f32[64, 64]):
    v1: f32[64, 64] = exp(x)
    v2: f32[64, 64] = add(v1, y)
    v3: f32[64, 64] = mul(v1, y)
    return v2, v3
"""


def test_chains_lead_from_imported_operators_to_nodes(fast: Optimized) -> None:
    chains = {d.nodes: (d.origin, d.rules) for d in fast.explain("matmul_relu").derivations}
    assert ("relu", ("legalize/build-relu",)) in chains.values()
    assert ("matmul", ("legalize/build-matmul",)) in chains.values()
    softmax = fast.explain("softmax")
    assert ("softmax", ("legalize/split-softmax", "legalize/build-exp")) in [
        (d.origin, d.rules) for d in softmax.derivations
    ]
    assert softmax.derivations[0].texts[0].startswith("split-softmax: softmax(x, a) =>")


def test_the_fusing_equation_is_named(fast: Optimized) -> None:
    assert fast.explain("softmax").fusing_rules == ("fusion/index-built",)
    fused = [kernel.name for kernel in fast.kernels if "fusion/index-built" in kernel.rules]
    assert "softmax" in fused
    assert fast.explain_rule("fusion/index-built").kernels == tuple(fused)


def test_what_is_one_operator_is_not_fused(cache: Path) -> None:
    fast = ft.optimize(np.exp, (np.ones(8, np.float32),), machine=REFERENCE, cache=cache)
    assert fast.explain("exp").fusing_rules == ()


@pytest.mark.parametrize("without", [{"opt_level": 0}, {"disable": ["fusion"]}])
def test_without_fusion_that_is_why_neighbours_are_apart(cache: Path, without: dict[str, Any]) -> None:
    fast = ft.optimize(ft.parse(SHARED), machine=REFERENCE, cache=cache, **without)
    found = fast.explain("exp").boundaries
    assert {b.consumer for b in found} == {"add", "mul"}
    assert all("nothing is fused, for fusion/index-built took no part" in b.reason for b in found)
    assert fast.explain_rule("fusion/index-built").absent


def test_the_operators_held_are_those_of_the_model(fast: Optimized) -> None:
    held = {(h.op, h.is_result) for h in fast.explain("matmul_relu").holds}
    assert held == {("relu", True), ("add", False), ("matmul", False)}


def test_boundaries_name_the_limit(fast: Optimized) -> None:
    reasons = {(b.producer, b.consumer): b.reason for b in fast.explain("softmax").boundaries}
    assert reasons["matmul_relu", "softmax"] == (
        "a limit: a fold (max) of softmax stands over it, and may not stand over a contraction"
    )
    assert reasons["softmax", "matmul"].endswith("may not stand over a fold")


def test_alternatives_have_prices_for_the_whole_program(cache: Path) -> None:
    fast = ft.optimize(ft.parse(SHARED), machine=REFERENCE, cache=cache)
    rivals = [rival for kernel in fast.kernels for rival in fast.explain(kernel.name).rivals]
    assert rivals
    for rival in rivals:
        assert rival.program_delta_s is None or rival.program_delta_s >= -1e-12
    assert "Other candidates" in str(fast.explain(fast.kernels[0].name))


def test_what_is_read_is_told_apart_and_the_chosen_candidate_is_among_the_others(cache: Path) -> None:
    w = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    x = np.ones((8, 64), np.float32)
    fast = ft.optimize(lambda x: x @ w + x @ np.sqrt(w), (x,), machine=REFERENCE, cache=cache, library=False)
    (kernel,) = fast.kernels
    found = fast.explain(kernel.name)
    loads = [rival.loads for rival in found.rivals]
    assert any(re.fullmatch(r"matmul #\d+", name) for names in loads for name in names)
    assert all(len(set(names)) == len(names) for names in loads)
    chosen, *others = rival_rows(found)
    assert chosen[2] == "chosen" and len(others) == len(found.rivals)
    assert "chosen" in str(found)


def test_folded_constants_of_a_kernel_are_told(fast: Optimized) -> None:
    assert [row.term for row in fast.explain("matmul").folded] == ["mul(v, v)"]


def test_text_fits_a_page(fast: Optimized) -> None:
    for kernel in fast.kernels:
        assert max(map(len, str(fast.explain(kernel.name)).splitlines())) <= 100


def test_explanation_is_json(fast: Optimized) -> None:
    assert json.loads(json.dumps(fast.explain("softmax").to_dict()))["kernel"]["name"] == "softmax"


def test_an_unknown_name_is_an_error_that_names_the_nearest(fast: Optimized) -> None:
    with pytest.raises(ft.FrittataError, match=r"did you mean .*softmax"):
        fast.explain("softmux")


@pytest.fixture(scope="module")
def pooled(cache: Path) -> Optimized:
    """A network that is computed with the channels last, though the model has them first."""
    first, second = nn.Conv2d(3, 64, 7, 2, 3), nn.Conv2d(64, 64, 3, padding=1)
    layers = (first, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Sigmoid(), second, nn.Flatten())
    return ft.optimize(nn.Sequential(*layers).eval(), (torch.zeros(1, 3, 64, 64),), machine=REFERENCE, cache=cache)


def test_kernels_of_another_layout_have_names_and_operators_of_the_model(pooled: Optimized) -> None:
    held = {kernel.name: {(h.op, h.type) for h in pooled.explain(kernel.name).holds} for kernel in pooled.kernels}
    assert ("relu", "f32[1, 64, 32, 32]") in held["matmul_relu"]
    assert ("batch_norm", "f32[1, 64, 32, 32]") in held["matmul_relu"]
    assert {op for op, _ in held["sigmoid"]} == {"sigmoid", "max_pool"}
    assert pooled.explain("max_pool").kernel.name == "sigmoid"


def test_all_that_an_operator_of_the_source_becomes_has_its_place(pooled: Optimized) -> None:
    origins = {h.op: h.origin for h in pooled.explain("conv_winograd_add").holds}
    assert origins["conv"] == origins["add"] and origins["add"].startswith("modules/conv.py:")


def test_a_change_of_layout_computes_no_operator(pooled: Optimized) -> None:
    turns = [kernel.name for kernel in pooled.kernels if kernel.name in ("permute", "channels_first")]
    assert turns
    assert not [held for name in turns for held in pooled.explain(name).holds]


def test_an_operator_without_a_kernel_is_told_from_one_that_there_is_not(pooled: Optimized) -> None:
    with pytest.raises(ft.FrittataError, match="no kernel computes reshape: it was folded, became a view"):
        pooled.explain("reshape")


def test_operators_of_a_function_have_its_lines(cache: Path) -> None:
    def scaled(x: np.ndarray) -> np.ndarray:
        e = np.exp(x)
        return e / np.sum(e, axis=-1, keepdims=True)

    fast = ft.optimize(scaled, (np.ones((8, 8)),), machine=REFERENCE, cache=cache, library=False)
    (kernel,) = fast.kernels
    found = fast.explain(kernel.name)
    first = scaled.__code__.co_firstlineno
    places = {held.op: held.origin for held in found.holds}
    assert places["exp"] == f"frittata/test_explain.py:{first + 1}"
    assert places["div"] == places["reduce_sum"] == f"frittata/test_explain.py:{first + 2}"
