"""One tiny model, optimized once, for all tests of what the user sees."""

from pathlib import Path

import pytest
from tiny_model import tiny

import frittata as ft
from frittata.egraph.machine import REFERENCE
from frittata.optimized import Optimized


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def fast(cache: Path) -> Optimized:
    return ft.optimize(tiny(), machine=REFERENCE, cache=cache, library=False)


JOINED = """
def main(x: f32[512, 64], y: f32[512, 64]) -> f32[1024, 32]:
    w: f32[64, 32] = full(f32(0.5), shape=(64, 32))
    a: f32[512, 64] = softmax(x, axis=-2)
    b: f32[512, 64] = softmax(y, axis=-2)
    c: f32[1024, 64] = concat(a, b, axis=-2)
    v: f32[1024, 32] = matmul(c, w)
    return v
"""


@pytest.fixture(scope="session")
def joined(cache: Path) -> Optimized:
    """A program in which two kernels write the parts of what a third reads."""
    return ft.optimize(ft.parse(JOINED), machine=REFERENCE, cache=cache, library=False)
