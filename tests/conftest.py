"""Settings for the whole suite."""

import gc
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# The first example of a test may compile a kernel, so there is no deadline; on CI the same examples run every time.
settings.register_profile("frittata", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("frittata")

GOLDEN = Path(__file__).parent / "golden"
_TESTS_UNTIL_FREEZING = 100
_ENDED = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")
    parser.addoption("--examples", type=int, default=200, help="how many random models are tried (default 200)")
    parser.addoption("--first-seed", type=int, default=0, help="where the seeds of random models start (default 0)")


def pytest_collection_finish() -> None:
    _freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_teardown() -> None:
    if next(_ENDED) % _TESTS_UNTIL_FREEZING == 0:
        _freeze()


def _freeze() -> None:
    """Let the collector look no more at what is left: imports and compiled kernels stay to the end of the process.

    To look through them, again and again, took a tenth of the suite's time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a function that compares a text with the file of that name in tests/golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{name} differs: pytest --update-golden writes it anew"

    return compare
