"""Random networks of torch's layers: what is compiled computes what they compute in double precision.

`make fuzz` tries more of them.
"""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from random_networks import Network, networks

import frittata as ft
from bench.acceptance import relative_error
from frittata.egraph.machine import REFERENCE

PARTS = 4
"""Each part has its seed, so that they can run side by side."""

TOLERANCE = 1e-5
"""Relative to the largest value of an output, beside ten times the error of torch in single precision."""

ALL_CHECKS: list[HealthCheck] = [*HealthCheck]  # type: ignore[list-item]


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_networks_compute_what_torch_computes(
    request: pytest.FixtureRequest, part: int, tmp_path: Path
) -> None:
    examples, first = (request.config.getoption(name) for name in ("--examples", "--first-seed"))
    assert isinstance(examples, int) and isinstance(first, int)

    @seed(first * PARTS + part)
    @settings(max_examples=-(-examples // (10 * PARTS)), suppress_health_check=ALL_CHECKS, report_multiple_bugs=False)
    @given(drawn=networks())
    def check(drawn: tuple[Network, torch.Tensor]) -> None:
        network, x = drawn
        found, single = ft.optimize(network, (x,), machine=REFERENCE, cache=tmp_path)(x), network(x)
        law = network.double()(x.double())
        assert relative_error(found, law) <= TOLERANCE + 10 * relative_error(single, law)

    with torch.no_grad():
        check()
