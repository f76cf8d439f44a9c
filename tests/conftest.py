"""Settings for the whole suite."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# The first example of a test may compile a kernel, so there is no deadline; on CI the same examples run every time.
settings.register_profile("frittata", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("frittata")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")
    parser.addoption("--examples", type=int, default=300, help="how many random models are tried (default 300)")
    parser.addoption("--first-seed", type=int, default=0, help="where the seeds of random models start (default 0)")


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
