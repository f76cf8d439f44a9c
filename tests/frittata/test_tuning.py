"""Choosing by measurement: what takes longer than predicted gives way, and what was learnt is kept."""

import json
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
from frittata.remembered import prices_key

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


LOOKUP = """
def main(table: f32[1, 4], places: i64[30]) -> f32[30, 4]:
    v1: f32[30, 4] = take(table, places, axis=-2)
    v2: f32[30, 4] = exp(v1)
    return v2
"""


def test_arguments_that_are_drawn_are_places_of_an_axis(tmp_path: Path) -> None:
    fast = ft.optimize(ft.parse(LOOKUP), machine=REFERENCE, cache=tmp_path, tune="measure")
    assert fast.verify().is_right
    (seconds,) = ft.load(fast.save(tmp_path / "model.frt"), cache=tmp_path).measure().values()
    assert seconds > 0


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), None, "x", [1]], ids=repr)
def test_prices_that_cannot_be_are_left_out(factor: object, tmp_path: Path) -> None:
    tune = partial(ft.optimize, tiny(), (X,), machine=REFERENCE, cache=tmp_path, tune="measure")
    found = cache_folder.prices_in(tmp_path)
    key = prices_key(REFERENCE.running(sum(v.nbytes for v in tiny().params.values())), Options(tune="measure"))
    names = tune().compilation.prices.factor_by_key
    for content in ({name: factor for name in names}, [factor]):
        found.store(key, json.dumps(content).encode())
        assert not tuning.load(found, key).factor_by_key
        fast = tune(time_limit_s=1.0 if isinstance(content, list) else 2.0)  # other than before: nothing is remembered
        assert not fast.report.is_remembered
        assert set(fast.compilation.prices.factor_by_key) & set(names)


def test_what_took_no_time_has_a_price(tmp_path: Path) -> None:
    prices = Prices()
    program = ft.optimize(tiny(), machine=REFERENCE, cache=tmp_path).program
    for _ in range(2):
        prices.note(program, {kernel.name: 0.0 for kernel in program.kernels})
    assert prices.knows(program) and all(factor > 0 for factor in prices.factor_by_key.values())
