"""Choosing by measurement: what takes longer than predicted gives way, and what was learnt is kept."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tiny_model import tiny

import frittata as ft
from frittata import cache as cache_folder
from frittata import tuning
from frittata.egraph.machine import REFERENCE
from frittata.egraph.program import Program
from frittata.extract.prices import Prices
from frittata.options import Options
from frittata.pipeline import choose_rules, extract_model, saturate_model

X = np.random.default_rng(0).standard_normal((4, 24)).astype(np.float32)
OPTIONS = Options(library=False)


def tuned(times_of: tuning.TimesOf) -> Program:
    model = tiny()
    choose = partial(extract_model, model, saturate_model(model, choose_rules(OPTIONS)), REFERENCE, OPTIONS)
    return tuning.tune(choose(Prices()), choose, times_of, Prices()).program


def predicted(program: Program) -> dict[str, float]:
    return {kernel.name: kernel.estimate.seconds for kernel in program.kernels}


def test_a_kernel_that_takes_longer_than_predicted_gives_way() -> None:
    def times_of(program: Program) -> Mapping[str, float]:
        return {k.name: 1.0 if k.template == "contraction" else 1e-6 for k in program.kernels}

    assert "contraction" in {kernel.template for kernel in tuned(predicted).kernels}
    assert "contraction" not in {kernel.template for kernel in tuned(times_of).kernels}


def test_it_ends_once_all_kernels_of_a_choice_were_timed() -> None:
    programs: list[Program] = []

    def times_of(program: Program) -> Mapping[str, float]:
        programs.append(program)
        return predicted(program)

    tuned(times_of)
    assert len(programs) == 2
    assert programs[0].kernels == programs[1].kernels


def test_the_fastest_program_that_ran_is_kept() -> None:
    programs: list[Program] = []

    def times_of(program: Program) -> Mapping[str, float]:
        """Whatever is chosen next is slower: predictions of what was not timed are too low."""
        programs.append(program)
        return {kernel.name: float(len(programs)) for kernel in program.kernels}

    assert tuned(times_of) is programs[0]
    assert len(programs) > 2


def test_results_are_right_and_what_was_learnt_is_kept(tmp_path: Path) -> None:
    plain = ft.optimize(tiny(), machine=REFERENCE, cache=tmp_path)
    fast = ft.optimize(tiny(), (X,), machine=REFERENCE, cache=tmp_path, tune="measure")
    np.testing.assert_allclose(fast(X), plain(X), rtol=1e-5)
    assert "tune" in fast.report.phase_seconds
    again = ft.optimize(tiny(), (X,), machine=REFERENCE, cache=tmp_path, tune="measure")
    assert again.report.is_remembered and again.program == fast.program
    assert again.compilation.prices.knows(again.program)
    assert again.compilation.extraction.program == fast.program
    assert len(cache_folder.files(tmp_path)["prices"]) == 1
    cache_folder.clear(tmp_path)
    assert not (tmp_path / "prices").exists()


@pytest.mark.parametrize(
    ("options", "said"), [({"tune": "guess"}, "no tune 'guess'"), ({"tune": "measure", "form": "plain"}, "plain form")]
)
def test_what_cannot_be_tuned_is_said(options: dict[str, str], said: str) -> None:
    with pytest.raises(ft.FrittataError, match=said):
        ft.optimize(tiny(), (X,), machine=REFERENCE, **options)


@pytest.mark.parametrize("args", [(), (X,)], ids=["drawn", "given"])
def test_parameters_that_are_read_at_every_call_are_arguments(args: tuple[np.ndarray, ...], tmp_path: Path) -> None:
    fast = ft.optimize(tiny(), args, machine=REFERENCE, cache=tmp_path, tune="measure", freeze=False)
    np.testing.assert_allclose(fast(X), ft.optimize(tiny(), machine=REFERENCE, cache=tmp_path)(X), rtol=1e-5)
