"""egglog as it is run."""

import os

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
