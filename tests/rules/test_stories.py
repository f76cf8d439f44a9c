"""Rules of several families together: what the algebra of weights must come to."""

from frittata.egraph.ops.registry import make, tensor
from frittata.egraph.saturate import Phase, StopReason, saturate
from frittata.egraph.terms import Term
from frittata.rules.compile import compile_families
from frittata.rules.library import builtin_families


def leaf(kind: str, name: str, *shape: int) -> Term:
    return make(kind, "tensor", (), (name, shape, "f32"))


def are_equal(before: Term, after: Term) -> bool:
    families = builtin_families()
    phase = Phase("all", tuple(family.name for family in families))
    found = saturate((before, after), compile_families(families), (phase,), lambda term: term.op == "param")
    assert found.phases[0].stop is StopReason.SATURATED
    return found.snapshot.class_by_term[before] == found.snapshot.class_by_term[after]


X = leaf("input", "x", 2, 3, 6, 6)
W = leaf("param", "w", 4, 3, 3, 3)
C = leaf("param", "c", 4, 1, 1)
TWO = tensor("full", value=make("const", "element", (), (__import__("frittata.egraph.terms", fromlist=["Scalar"]).Scalar.of(2, "f32"),)).attrs[0], shape=())


def test_batch_norm_goes_into_the_convolution() -> None:
    mean, var, weight, bias = (leaf("param", name, 4) for name in ("mean", "var", "weight", "bias"))
    conv = tensor("conv", X, W)
    before = tensor("batch_norm", conv, mean, var, weight, bias)
    assert before
