"""Classes that are computed from each other: parts of a whole, and the whole from its parts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import frittata as ft
from bench.acceptance import relative_error
from frittata.egraph import shapes
from frittata.egraph.machine import REFERENCE
from frittata.extract import choose
from frittata.extract.candidates import Enumerator
from frittata.extract.problem import Problem
from frittata.extract.views import Views

SHIFTS = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))


class Lattice(nn.Module):
    """Densities that move along five directions and relax. Source: Qian, d'Humieres, Lallemand, 1992."""

    def forward(self, f: Tensor) -> Tensor:
        for _ in range(3):
            f = torch.stack([part.roll(shift, (0, 1)) for part, shift in zip(f, SHIFTS, strict=True)])
            total = f.sum(0)
            x, y = (f[1] - f[2]) / total, (f[3] - f[4]) / total
            rest = [total * (1 + a * x + b * y) / len(SHIFTS) for a, b in SHIFTS]
            f = f + 0.6 * (torch.stack(rest) - f)
        return f


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Enumerator]:
    found: list[Enumerator] = []
    init = Enumerator.__post_init__

    def noted(self: Enumerator) -> None:
        init(self)
        found.append(self)

    monkeypatch.setattr(Enumerator, "__post_init__", noted)
    return found


def test_what_is_computed_from_each_other_is_searched_in_turns(
    seen: list[Enumerator], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    times: Counter[Any] = Counter()
    evaluate = Enumerator._evaluate  # pyright: ignore[reportPrivateUsage]

    def counted(self: Enumerator, key: Any) -> Any:
        times[id(self), key] += 1
        return evaluate(self, key)

    monkeypatch.setattr(Enumerator, "_evaluate", counted)
    f = torch.rand(5, 17, 16) + 0.1
    fast = ft.optimize(Lattice().eval(), (f,), machine=REFERENCE, cache=tmp_path)
    assert relative_error(fast(f), Lattice()(f)) < 1e-5
    assert len(seen) == 1  # what is stored where was found at the first attempt
    assert max(times.values()) <= 9 and max(times.values()) > 1


def test_a_choice_has_time_by_how_long_its_candidates_took(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limits: list[float] = []
    solve = choose.solve

    def noted(problem: Problem[Any], start: Any, time_limit_s: float, enough: float) -> Any:
        limits.append(time_limit_s)
        return solve(problem, start, 0.0, enough)

    monkeypatch.setattr(choose, "solve", noted)
    monkeypatch.setattr(choose, "_USUAL_S", 1e-9)
    x = torch.rand(3, 4)
    ft.optimize(nn.Tanh().eval(), (x,), machine=REFERENCE, cache=tmp_path, time_limit_s=2.0)
    assert limits[0] > 1.2


def test_parts_are_known(seen: list[Enumerator], tmp_path: Path) -> None:
    """Rows of a tensor are parts of it, columns are not, nor is what is stretched."""
    text = """
        def main(x: f32[6, 4]) -> (f32[2, 4], f32[6, 2], f32[6, 4]):
            r: f32[2, 4] = slice(x, axis=-2, start=2, step=1, length=2)
            rows: f32[2, 4] = exp(r)
            c: f32[6, 2] = slice(x, axis=-1, start=1, step=1, length=2)
            columns: f32[6, 2] = exp(c)
            one: f32[1, 4] = slice(x, axis=-2, start=0, step=1, length=1)
            wide: f32[6, 4] = expand(one, shape=(6, 4))
            sums: f32[6, 4] = add(wide, x)
            return rows, columns, sums
    """
    ft.optimize(ft.parse("\n".join(line[8:] for line in text.split("\n"))), machine=REFERENCE, cache=tmp_path)
    snapshot = seen[0].snapshot
    (x,) = seen[0].free
    shown = {
        snapshot.tensor_type(c).shape
        for c, sort in enumerate(snapshot.sorts)
        if sort == "tensor" and x in Views(snapshot).shown(c)
    }
    assert shown == {(2, 4), (1, 4)}


@pytest.mark.parametrize(
    ("shape", "context", "expected"),
    [
        ((3, 4), (3, 4), True),
        ((1, 4), (3, 4), True),
        ((4,), (3, 4), True),
        ((3, 1), (3,), False),
        ((2, 4), (3, 4), False),
    ],
)
def test_a_shape_fits_where_it_broadcasts(shape: tuple[int, ...], context: tuple[int, ...], expected: bool) -> None:
    assert shapes.fits(shape, context) == expected
