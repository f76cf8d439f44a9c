"""Roundings that are drawn move what they may decide, and nothing else."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frittata.egraph import interpret
from frittata.egraph.shaken import Shaken
from frittata.frontends.arrays.trace import from_function

RNG = np.random.default_rng(0)
WHOLE = RNG.integers(-9, 10, (20, 20)).astype(np.float32)
REAL = RNG.standard_normal((20, 20)).astype(np.float32)
TENTHS = (np.arange(-50, 50) / 10).astype(np.float32)

Case = tuple[Callable[..., Any], tuple[Any, ...]]

FIRM: dict[str, Case] = {
    "products of integers": (lambda x: np.floor(x @ x.T / 2) - x.sum(-1), (WHOLE,)),
    "parts and places": (lambda x: (np.sort(x)[:, ::-1] == x.max(-1, keepdims=True)).argmax(-1), (REAL,)),
    "choices": (lambda x: np.where(x > 0, x, np.abs(x)) >= np.maximum(x, -x), (REAL,)),
    "roundings": (lambda x: np.floor(x) + np.round(x) + (x * 2).astype(np.int32), (TENTHS,)),
}


@pytest.mark.parametrize("name", FIRM)
def test_what_needs_no_rounding_stays(name: str) -> None:
    function, args = FIRM[name]
    model = from_function(function, args).model
    values = dict(zip((leaf.attrs[0] for leaf in model.main.inputs), args, strict=True))
    exact = interpret.evaluate(model.main.outputs, values)
    for seed in range(6):
        found = [Shaken(values, seed).tensor(root) for root in model.main.outputs]
        for one, wanted in zip(found, exact, strict=True):
            np.testing.assert_array_equal(one, wanted)


def test_what_is_rounded_moves_as_far_as_roundings_do() -> None:
    model = from_function(lambda x: np.exp(x @ x.T / 9), (REAL,)).model
    (exact,) = interpret.evaluate(model.main.outputs, {"x": REAL})
    found = [Shaken({"x": REAL}, seed).tensor(model.main.outputs[0]) for seed in range(6)]
    spread = np.abs(np.stack(found) / exact - 1).max(0)
    assert (spread > 0).all() and (spread < 1e-4).all()


@pytest.mark.parametrize("jump", [np.floor, lambda x: x >= 3, np.sign])
def test_a_jump_goes_both_ways_where_a_rounding_decides(jump: Callable[..., Any]) -> None:
    x = np.array([3, 2.5], np.float32)
    model = from_function(lambda x: jump(x * np.float32(0.1) * 10), (x,)).model
    found = [Shaken({"x": x}, seed).tensor(model.main.outputs[0]) for seed in range(9)]
    decided = [len({float(one[i]) for one in found}) == 1 for i in range(2)]
    assert decided == [jump is np.sign, True]
