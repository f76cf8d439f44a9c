"""Bands: kernels that run together, some lines at a time, give what they give one after the other, to the bit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from image_programs import Images, banded, run

from frittata.egraph import interpret
from frittata.egraph.program import Band
from frittata.kernels import runtime
from frittata.kernels.bands import NOTHING
from frittata.kernels.plan import plan_buffers

CASES = {
    "expanded": lambda: Images((1, 17, 13, 8)).product(24).padded(1).windows().product(5),
    "stride": lambda: Images((1, 23, 19, 7)).product(16).padded(1).windows(stride=2).product(9),
    "gaps": lambda: Images((1, 29, 11, 4)).product(8).windows(kernel=2, stride=5),
    "dilation": lambda: Images((1, 21, 15, 4)).scaled().padded(2, 1.5).windows(dilation=2).product(6),
    "large windows": lambda: Images((1, 31, 9, 3)).product(17).padded(3).windows(kernel=7).softmax().product(4),
    "extremes": lambda: Images((1, 15, 15, 5)).product(6).padded(1, -np.inf).windows("max", stride=2).scaled(),
    "two borders": lambda: Images((1, 19, 7, 3)).product(8).padded(1).windows().padded(2, 0.5).windows("min", kernel=5),
    "images": lambda: Images((3, 11, 9, 4)).product(12).padded(1).windows().product(4).residual(),
    "one line": lambda: Images((2, 1, 9, 4)).product(12).padded(1).windows().product(4),
    "long": lambda: Images((1, 13, 7, 6)).scaled().product(6).softmax().padded(1).windows().scaled().residual(),
}


@pytest.mark.parametrize("name", CASES)
def test_bands_change_nothing(name: str) -> None:
    images = CASES[name]()
    apart, argument = images.program(), images.image()
    expected = run(images, apart, argument)
    (law,) = interpret.evaluate(apart.to_terms(), {"x": argument, **images.values()})
    assert np.abs(expected - law).max() <= 2e-6 * np.abs(law).max()
    for parts in (1, 2, 5):
        together = banded(apart, parts)
        assert sum(len(band.kernels) for band in together.bands) >= 2
        np.testing.assert_array_equal(run(images, together, argument), expected, f"in {parts} parts")


def test_all_lines_come_from_the_last_call() -> None:
    """Memory of a band is used again in the next run, borders as well: nothing of the run before shows."""
    images = CASES["expanded"]()
    executable = runtime.build(banded(images.program(), 3), images.values())
    apart = runtime.build(images.program(), images.values())
    for seed in range(4):
        argument = images.image(seed)
        argument[0, seed * 3, seed] = (np.nan, np.inf, -np.inf, 0.0)[seed]
        np.testing.assert_array_equal(executable(argument)[0], apart(argument)[0])


def test_several_callers_at_once() -> None:
    images = CASES["stride"]()
    executable = runtime.build(banded(images.program(), 4), images.values())
    arguments = [images.image(seed) for seed in range(6)]
    wanted = [executable(argument)[0] for argument in arguments]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda argument: executable(argument)[0], arguments * 8))
    for number, got in enumerate(found):
        np.testing.assert_array_equal(got, wanted[number % 6])


def test_what_is_between_has_memory_for_some_lines_only() -> None:
    images = Images((1, 97, 64, 16)).product(96).padded(1).windows(stride=2).product(16)
    apart = images.program()
    executable = runtime.build(banded(apart, 2), images.values())
    assert executable.plan.arena_bytes < 0.5 * plan_buffers(apart, {}).arena_bytes
    assert [low is NOTHING for low in executable.lowered] == [True, True, False]


def test_times_of_a_band_are_divided_by_what_was_predicted() -> None:
    images = CASES["expanded"]()
    seconds = runtime.build(banded(images.program(), 2), images.values()).measure(images.image(), repeats=3)
    assert (seconds > 0).all()
    assert np.ptp(seconds) == 0  # these kernels are predicted to take the same


def test_lines_that_are_not_alike_are_refused() -> None:
    turned = Images((1, 17, 13, 8)).product(24).reversed_lines().program()
    assert not banded(turned, 2).bands


def test_a_band_that_cannot_be_is_left_out() -> None:
    """A program may name kernels that do not run together here: they run one after the other."""
    images = Images((1, 17, 13, 8)).product(24).reversed_lines()
    program = images.program()
    named = replace(program, bands=(Band(tuple(kernel.name for kernel in program.kernels), 2),))
    argument = images.image()
    np.testing.assert_array_equal(run(images, named, argument), run(images, program, argument))


def test_what_others_read_is_not_handed_on() -> None:
    images = Images((1, 17, 13, 8)).product(8)
    first = images.last
    program = images.padded(0).scaled().residual(first).program()
    assert all(first not in band.kernels for band in banded(program, 2).bands)
