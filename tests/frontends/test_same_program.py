"""One model through three front ends is one program."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from exported import drawn, to_onnx
from torch import fx, nn

import frittata as ft
from frittata.egraph import terms
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Function, Model
from frittata.egraph.ops import registry
from frittata.egraph.terms import Term
from frittata.frontends.onnx.importer import from_onnx
from frittata.frontends.torch_export import from_module
from frittata.frontends.torch_fx import from_fx
from frittata.options import Options
from frittata.pipeline import choose_rules, saturate_model

MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(
        nn.Linear(7, 13), nn.ReLU(), nn.Linear(13, 5), nn.GELU(), nn.Linear(5, 3), nn.Softmax(-1)
    ),
    "cnn": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, stride=2, bias=False),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 2),
    ),
}
SHAPES = {"mlp": (5, 7), "cnn": (2, 3, 9, 11)}


def renamed(model: Model) -> Model:
    """Number inputs and params by their first use."""
    name_by_leaf: dict[Term, str] = {}
    for term in model.main.walk():
        if term.op in ("input", "param"):
            name_by_leaf[term] = f"{term.op}{len(name_by_leaf)}"

    def rebuild(term: Term, args: tuple[Term, ...]) -> Term:
        attrs = (name_by_leaf[term], *term.attrs[1:]) if term in name_by_leaf else term.attrs
        return registry.make(term.op, term.sort, args, attrs)

    made = terms.rebuild_all((*model.main.inputs, *model.main.outputs), rebuild)
    count = len(model.main.inputs)
    params = {name: model.params[leaf.attrs[0]] for leaf, name in name_by_leaf.items() if leaf.op == "param"}
    return Model({"main": Function(made[:count], made[count:])}, params)


@pytest.fixture(params=MODELS)
def imported(request: pytest.FixtureRequest) -> dict[str, Model]:
    torch.manual_seed(0)
    module, x = drawn(MODELS[request.param]()), torch.randn(SHAPES[request.param])
    # Left to itself, torch's exporter folds the norm into the convolution.
    plain: dict[str, Any] = {"do_constant_folding": False, "training": torch.onnx.TrainingMode.PRESERVE}
    return {
        "export": renamed(from_module(module, (x,)).model),
        "fx": renamed(from_fx(fx.symbolic_trace(module), (x,)).model),
        "onnx": renamed(from_onnx(to_onnx(module, x, **plain)).model),
    }


def test_the_terms_meet_in_one_class(imported: dict[str, Model]) -> None:
    roots = tuple(output for model in imported.values() for output in model.main.outputs)
    joint = Model({"main": Function(imported["export"].main.inputs, roots)})
    snapshot = saturate_model(joint, choose_rules(Options())).snapshot
    assert len({snapshot.class_by_term[root] for root in roots}) == 1


def test_the_kernels_are_the_same(imported: dict[str, Model], tmp_path: Any) -> None:
    programs = {name: ft.optimize(model, machine=REFERENCE, cache=tmp_path) for name, model in imported.items()}
    kernels = {
        name: [(kernel.name, re.sub(r"#.*", "", kernel.source)) for kernel in program.kernels]
        for name, program in programs.items()
    }
    assert kernels["export"] == kernels["fx"] == kernels["onnx"]
    assert len({str(program) for program in programs.values()}) == 1
