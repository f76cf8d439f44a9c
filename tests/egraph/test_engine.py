"""egglog as it is run."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frittata as ft
from frittata.egraph.errors import SaturationError
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.registry import tensor
from frittata.egraph.phases import Phase
from frittata.egraph.saturate import StopReason, saturate
from frittata.rules.compile import compile_families
from frittata.rules.parse import parse_family

RNG = np.random.default_rng(0)


def test_a_fork_of_a_process_that_has_optimized_says_that_it_cannot(tmp_path: Path) -> None:
    """It would wait for ever for threads that it does not have."""
    x = np.ones((3, 5), np.float32)
    fast = ft.optimize(lambda x: np.exp(x) + 1, (x,), machine=REFERENCE, cache=tmp_path)
    child = os.fork()
    if not child:
        code = 1
        try:
            assert (fast(x) == fast(x)).all()
            ft.optimize(lambda x: np.tanh(x) * 3, (x,), machine=REFERENCE, cache=tmp_path)
        except SaturationError as error:
            code = 0 if "'spawn'" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


PAIR = """
pair: p = matmul(x, v), q = matmul(x, w)
      => y = matmul(x, concat(v, w, -1)),
         p = slice(y, -1, 0, 1, shape(v)[1]), q = slice(y, -1, shape(v)[1], 1, shape(w)[1])
      if const(v, w) and rank(v) == 2 and rank(w) == 2 [reassoc]
"""


def products(count: int) -> tuple[Any, np.ndarray[Any, Any]]:
    """A function of one operand that has so many products with it, of different widths."""
    x, *weights = (RNG.standard_normal(shape, np.float32) for shape in ((4, 8), *((8, 16 + i) for i in range(count))))
    return lambda x: tuple(np.exp(x @ w) for w in weights), x


@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_rule_of_two_results_merges_neighbours_and_ends(count: int, tmp_path: Path) -> None:
    """So many neighbours have k (k - 1) / 2 runs of two and more; nothing merges with what it is part of."""
    (tmp_path / "mine.rules").write_text(PAIR)
    function, x = products(count)
    fast = ft.optimize(function, (x,), machine=REFERENCE, cache=tmp_path, rules=tmp_path / "mine.rules")
    assert [phase.stop for phase in fast.report.phases] == ["saturated"]
    assert fast.explain_rule("mine/pair").matches == count * (count - 1) // 2
    for found, wanted in zip(fast(x), function(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("right", "count"),
    [("p = log(exp(p)), q = log(exp(q))", 6), ("z = concat(x, y, -1), p = log(exp(p)), q = tanh(q)", 6)],
)
def test_a_rule_of_two_results_that_merges_nothing_matches_all_pairs(right: str, count: int) -> None:
    programs = compile_families((parse_family(f"both: p = relu(x), q = relu(y) => {right}", "mine.rules"),))
    x = tensor("input", name="x", shape=(3,), dtype="f32")
    roots = tuple(tensor("relu", tensor(op, x)) for op in ("exp", "tanh", "neg"))
    (phase,) = saturate(roots, programs, (Phase("all", ("mine",)),), lambda term: False).phases
    assert phase.stop is StopReason.SATURATED and phase.statistics.matches_by_rule["mine/both"] == count


def test_rules_that_match_in_pairs_what_others_make_stop() -> None:
    """Their matches are squared from round to round: the limit holds before the round that would never end."""
    pair = "pair: p = exp(x), q = tanh(y) => z = relu(p * q), p = log(z)"
    rules = f"{pair}\nfirst: relu(x) => exp(x)\nsecond: relu(x) => tanh(x)"
    x = tensor("input", name="x", shape=(3,), dtype="f32")
    roots = tensor("exp", x), tensor("tanh", x)
    programs = compile_families((parse_family(rules, "mine.rules"),))
    (phase,) = saturate(roots, programs, (Phase("all", ("mine",)),), lambda term: False).phases
    assert phase.stop is StopReason.NODES and phase.nodes < 100_000


def test_numbers_that_rules_make_are_known_before_run_time() -> None:
    """In a model without params and numbers only such a rule lets those about constants match."""
    rules = "bounded: relu(x) => max(x, 0)\nturned: max(x, c) => exp(x) if const(c)"
    root = tensor("relu", tensor("input", name="x", shape=(3,), dtype="f32"))
    programs = compile_families((parse_family(rules, "mine.rules"),))
    (phase,) = saturate((root,), programs, (Phase("all", ("mine",)),), lambda term: False).phases
    assert phase.statistics.matches_by_rule["mine/turned"] == 1
