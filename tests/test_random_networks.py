"""Random networks of torch's layers and programs of its functions: compiled, they compute what torch does in float64.

`make fuzz` tries more of them.
"""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.strategies import SearchStrategy
from random_functions import programs
from random_networks import Network, networks

import frittata as ft
from bench.acceptance import relative_error
from frittata.egraph.machine import REFERENCE

PARTS = 4
"""Each part has its seed, so that they can run side by side."""

TOLERANCE = 1e-5
"""Relative to the largest value of an output, beside ten times the error of torch in single precision."""

Sample = tuple[Network, torch.Tensor]

ALL_CHECKS: list[HealthCheck] = [*HealthCheck]  # type: ignore[list-item]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("drawn", "share"), [(networks(), 10), (programs(), 3)], ids=["networks", "programs"])
def test_what_is_compiled_computes_what_torch_computes(
    request: pytest.FixtureRequest, drawn: SearchStrategy[Sample], share: int, part: int, tmp_path: Path
) -> None:
    examples, first = (request.config.getoption(name) for name in ("--examples", "--first-seed"))
    assert isinstance(examples, int) and isinstance(first, int)

    count = -(-examples // (share * PARTS))

    @seed(first * PARTS + part)
    @settings(max_examples=count, suppress_health_check=ALL_CHECKS, report_multiple_bugs=False)
    @given(sample=drawn)
    def check(sample: Sample) -> None:
        network, x = sample
        found, single = ft.optimize(network, (x,), machine=REFERENCE, cache=tmp_path)(x), network(x)
        law = network.double()(x.double())
        assert relative_error(found, law) <= TOLERANCE + 10 * relative_error(single, law)

    with torch.no_grad():
        check()
