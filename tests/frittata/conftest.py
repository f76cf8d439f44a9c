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
