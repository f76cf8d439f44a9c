"""What sums and views tell of their operands: forms of one constant are one class."""

import pytest
import torch
from consistency import inconsistencies
from torch import nn

from frittata.egraph.ops.registry import tensor
from frittata.egraph.phases import Phase
from frittata.egraph.saturate import Saturation, StopReason, saturate
from frittata.egraph.terms import Term
from frittata.frontends.torch_export import from_module
from frittata.options import Options
from frittata.pipeline import choose_rules, saturate_model
from frittata.rules.compile import compile_families
from frittata.rules.parse import parse_family


def saturated(*roots: Term, rules: str, over_reals: bool) -> Saturation:
    programs = compile_families((parse_family(rules, "my.rules"),))
    phase = Phase("all", ("my",))
    return saturate(roots, programs, (phase,), lambda term: term.op == "param", over_reals=over_reals)


def settled(module: nn.Module, name: str, shape: tuple[int, ...], most: int) -> Saturation:
    """Saturate a module to the end, with fewer e-nodes than `most`, and hold its classes to their values."""
    torch.manual_seed(1)
    x = torch.randn(shape, dtype=torch.float64)
    model = from_module(module.eval(), (x,)).model
    found = saturate_model(model, choose_rules(Options()))
    assert found.phases[0].stop is StopReason.SATURATED
    assert found.phases[0].nodes < most
    assert not inconsistencies(found.snapshot, {**model.params, name: x.numpy()})
    return found


@pytest.mark.parametrize(
    ("shape", "addend", "dtype", "over_reals", "is_one"),
    [
        ((2, 4), (4,), "f32", True, True),
        ((2, 4), (2, 1), "i32", True, True),
        ((2, 4), (4,), "f32", False, False),  # zeros of both signs give the same sum
        ((0, 4), (4,), "f32", True, False),  # sums without values tell nothing
        ((2, 4), (), "f32", True, False),
    ],
)
def test_a_sum_tells_its_constant(
    shape: tuple[int, ...], addend: tuple[int, ...], dtype: str, over_reals: bool, is_one: bool
) -> None:
    x = tensor("input", name="x", shape=shape, dtype=dtype)
    a = tensor("param", name="a", shape=addend, dtype=dtype)
    again = tensor("neg", tensor("neg", a))
    rules = "twice: x + a => x + neg(neg(a)) if varies(x) and const(a)"
    found = saturated(tensor("add", x, a), again, rules=rules, over_reals=over_reals)
    class_of = found.snapshot.class_by_term
    assert (class_of[a] == class_of[again]) == is_one


@pytest.mark.parametrize(("view", "given"), [("reshape", {"shape": (6,)}), ("permute", {"permutation": (1, 0)})])
def test_a_view_of_all_values_tells_them(view: str, given: dict[str, tuple[int, ...]]) -> None:
    x = tensor("input", name="x", shape=(2, 3), dtype="f32")
    again = tensor("neg", tensor("neg", x))
    rules = f"twice: {view}(x, s) => {view}(neg(neg(x)), s)"
    found = saturated(tensor(view, x, **given), again, rules=rules, over_reals=False)
    assert found.snapshot.class_by_term[x] == found.snapshot.class_by_term[again]


def test_a_chain_of_norms_has_one_form_of_each_factor_and_shift() -> None:
    norms = [nn.BatchNorm2d(3, dtype=torch.float64) for _ in range(6)]
    settled(nn.Sequential(*norms), "input", (2, 3, 4, 5), 5000)


class Chain(nn.Module):
    """Layers with biases, one after the other, and the mean of what they give taken off."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(4, 4, dtype=torch.float64) for _ in range(length)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, 4) to (batch, 4)."""
        y = self.layers(x)
        return y - y.mean(-1, keepdim=True)


def test_a_chain_of_biased_products_has_one_form_of_each_bias() -> None:
    torch.manual_seed(0)
    settled(Chain(4), "x", (3, 4), 10_000)


class Residuals(nn.Module):
    """Branches with two shifts each, whose results are added one after the other, with nothing between."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4, dtype=torch.float64)
        self.branches = nn.ModuleList(nn.Linear(4, 4, dtype=torch.float64) for _ in range(length))
        self.norms = nn.ModuleList(nn.BatchNorm1d(4, dtype=torch.float64) for _ in range(length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, 4) to (batch, 4)."""
        x = self.stem(x)
        for branch, norm in zip(self.branches, self.norms, strict=True):
            x = x + norm(branch(x.tanh()))
        return x


def test_a_chain_of_residuals_has_one_form_of_each_sum() -> None:
    torch.manual_seed(0)
    found = settled(Residuals(8), "x", (3, 4), 3000)
    assert max(map(len, found.snapshot.nodes)) < 20


def test_what_is_bare_is_no_sum_with_a_constant() -> None:
    x = tensor("input", name="x", shape=(2, 4), dtype="f32")
    a = tensor("param", name="a", shape=(4,), dtype="f32")
    square = [tensor("mul", value, value) for value in (x, tensor("add", x, a))]
    found = saturated(*square, tensor("neg", x), rules="mine: x * x => neg(x) if bare(x)", over_reals=False)
    plain, shifted = (found.snapshot.class_by_term[term] for term in square)
    assert [node.op for node in found.snapshot.nodes[plain]] == ["mul", "neg"]
    assert [node.op for node in found.snapshot.nodes[shifted]] == ["mul"]
