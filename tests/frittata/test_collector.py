"""The collector of garbage rests while a model is compiled, and works again afterwards if it worked before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_model import tiny

import frittata as ft
from frittata.egraph.errors import ModelError
from frittata.egraph.machine import REFERENCE
from frittata.instruments import Instrument, Stage


class Noted(Instrument):
    """Notes in which stages the collector works."""

    def __init__(self) -> None:
        self.worked: set[bool] = set()

    def after(self, stage: Stage) -> None:
        self.worked.add(gc.isenabled())


@pytest.fixture
def off() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def compiled(folder: Path, **given: Any) -> Noted:
    noted = Noted()
    ft.optimize(tiny(), machine=REFERENCE, cache=folder, instruments=noted, **given)
    return noted


def test_it_rests_and_works_again(tmp_path: Path) -> None:
    assert compiled(tmp_path).worked == {False}
    assert gc.isenabled()


def test_it_works_again_after_an_error() -> None:
    with pytest.raises(ModelError):
        ft.optimize(ft.parse("def main(x: f32[0, 2]) -> f32[0, 2]:\n    return x\n"), machine=REFERENCE)
    assert gc.isenabled()


@pytest.mark.usefixtures("off")
def test_one_that_rested_before_rests_on(tmp_path: Path) -> None:
    assert compiled(tmp_path).worked == {False}
    assert not gc.isenabled()
