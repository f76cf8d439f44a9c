"""egglog as it is run."""

import os
from pathlib import Path

import numpy as np

import frittata as ft
from frittata.egraph.errors import SaturationError
from frittata.egraph.machine import REFERENCE


def test_a_fork_of_a_process_that_has_optimized_says_that_it_cannot() -> None:
    """It would wait for ever for threads that it does not have."""
    x = np.ones((3, 5), np.float32)
    fast = ft.optimize(lambda x: np.exp(x) + 1, (x,), machine=REFERENCE)
    child = os.fork()
    if not child:
        code = 1
        try:
            assert (fast(x) == fast(x)).all()
            ft.optimize(lambda x: np.tanh(x) * 3, (x,), machine=REFERENCE)
        except SaturationError as error:
            code = 0 if "'spawn'" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_rule_that_matches_what_it_makes_in_pairs_stops(tmp_path: Path) -> None:
    """Its products are squared from round to round: the limit holds before the round that would never end."""
    left, guard = "p = matmul(x, v), q = matmul(x, w)", "if const(v, w) and rank(v) == 2 and rank(w) == 2"
    right = "y = matmul(x, concat(v, w, -1)), p = slice(y, -1, 0, 1, shape(v)[1])"
    (tmp_path / "mine.rules").write_text(f"pair: {left} => {right} {guard} [reassoc]\n")
    x, v, w = (np.ones(shape, np.float32) for shape in ((4, 8), (8, 5), (8, 5)))
    fast = ft.optimize(
        lambda x: (x @ v, np.exp(x @ (w + 1))), (x,), machine=REFERENCE, cache=tmp_path, rules=tmp_path / "mine.rules"
    )
    (phase,) = fast.report.phases
    assert phase.stop == "node limit" and phase.nodes < 100_000
    np.testing.assert_allclose(fast(x)[0], x @ v)
