"""The examples run, and do what they say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_a_trained_classifier_keeps_its_labels(capsys: pytest.CaptureFixture[str]) -> None:
    share = runpy.run_path(str(EXAMPLES / "clothes.py"))["main"]()
    assert share > 0.9
    assert "all as torch names them" in capsys.readouterr().out
