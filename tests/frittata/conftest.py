"""One tiny model, optimized once, for all tests of what the user sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import frittata as ft
from frittata.egraph.machine import REFERENCE
from frittata.egraph.model import Model
from frittata.optimized import Optimized

SCRIPT = """
def main(
    x: f32[4, 24],
    param w: f32[24, 24],
    param b: f32[24],
    param v: f32[24, 8],
) -> f32[4, 8]:
    v1: f32[4, 24] = matmul(x, w)
    v2: f32[4, 24] = add(v1, b)
    v3: f32[4, 24] = relu(v2)
    v4: f32[4, 24] = softmax(v3, axis=-1)
    v5: f32[24, 8] = mul(v, v)
    v6: f32[4, 8] = matmul(v4, v5)
    return v6
"""


def tiny() -> Model:
    """Two products with a softmax between them, and weights that are squared before run time."""
    model = ft.parse(SCRIPT)
    rng = np.random.default_rng(0)
    shapes = {"w": (24, 24), "b": (24,), "v": (24, 8)}
    return Model(model.functions, {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()})


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def fast(cache: Path) -> Optimized:
    return ft.optimize(tiny(), machine=REFERENCE, cache=cache, library=False)
