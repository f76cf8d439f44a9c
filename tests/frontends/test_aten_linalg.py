"""Linear algebra of small matrices, which is written out, and least squares."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_cases import Forward, assert_compiled, assert_imported, drawn

import frittata as ft
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.machine import REFERENCE
from frittata.frontends.torch_export import from_module
from frittata.frontends.torch_functions import as_module

MATRICES, RIGHT = drawn(7, 3, 3), drawn(7, 3, 2)
SINGULAR = MATRICES.clone()
SINGULAR[0] = 0
SINGULAR[1, 1, 1], SINGULAR[2, 0, 0] = 0, math.inf
SINGULAR[3, 2, 2], SINGULAR[4] = math.nan, -SINGULAR[4]


def test_determinants_of_small_matrices() -> None:
    assert_imported(lambda x: [torch.det(x[:, :extent, :extent]) for extent in (1, 2, 3)], MATRICES)
    assert "host" not in assert_compiled(torch.det, MATRICES)


@pytest.mark.parametrize("extent", [1, 2, 3])
def test_logarithms_of_determinants(extent: int) -> None:
    x = SINGULAR[:, :extent, :extent]
    finite = x[x.isfinite().all((1, 2))]
    assert "host" not in assert_compiled(lambda x: (*torch.linalg.slogdet(x), torch.logdet(x)), finite)
    huge = torch.full((1, 1, 1), 1e30) * torch.eye(extent)
    assert "host" not in assert_compiled(torch.linalg.slogdet, huge)


def test_logarithms_of_determinants_that_are_no_numbers() -> None:
    assert_compiled(lambda x: torch.linalg.slogdet(x).sign, SINGULAR[3:4])
    assert_compiled(torch.logdet, SINGULAR[3:4])


TRIANGULAR: dict[str, Forward] = {
    "lower": lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
    "upper": lambda a, b: torch.linalg.solve_triangular(a[:, :2, :2], b[:, 1:], upper=True),
    "ones on the diagonal": lambda a, b: torch.linalg.solve_triangular(a, b, upper=True, unitriangular=True),
    "from the right": lambda a, b: torch.linalg.solve_triangular(a, b.mT, upper=False, left=False),
    "one system": lambda a, b: torch.linalg.solve_triangular(a[0, :1, :1], b[:, :1], upper=True),
    "one side for all": lambda a, b: torch.linalg.solve_triangular(a, b[0], upper=True, unitriangular=True),
    "one side for all, from the right": lambda a, b: (
        torch.linalg.solve_triangular(a, b[0].mT, upper=True, left=False, unitriangular=True)
    ),
    "one system for all": lambda a, b: (
        *torch.triangular_solve(b, a[0]), *torch.triangular_solve(b[0], a), torch.cholesky_solve(b[0], a)
    ),
    "by its older name": lambda a, b: (
        torch.triangular_solve(b, a)[0], torch.triangular_solve(b, a, upper=False, transpose=True)[0]
    ),
    "by a factor": lambda a, b: (torch.cholesky_solve(b, a), torch.cholesky_solve(b, a, upper=True)),
}


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
@pytest.mark.parametrize("name", TRIANGULAR)
def test_triangular_systems(name: str) -> None:
    assert_imported(TRIANGULAR[name], MATRICES, RIGHT)


@pytest.mark.parametrize("name", ["lower", "upper"])
def test_triangular_systems_without_a_solution(name: str) -> None:
    assert_imported(TRIANGULAR[name], SINGULAR, RIGHT)
    assert "host" not in assert_compiled(TRIANGULAR[name], SINGULAR[:3], RIGHT[:3])


def test_powers_of_matrices() -> None:
    x = drawn(2, 5, 5) / 2
    assert_imported(lambda x: [torch.linalg.matrix_power(x, n) for n in (0, 1, 2, 3, 7, 12)], x)


LEFT: dict[str, tuple[Forward, tuple[Tensor, ...], str]] = {
    "a determinant": (torch.det, (drawn(2, 4, 4),), "determinants of 4 x 4"),
    "a logarithm of one": (torch.linalg.slogdet, (drawn(2, 4, 4).float(),), "determinants of 4 x 4"),
    "one in double precision": (torch.linalg.slogdet, (MATRICES,), "of float64"),
    "a system": (TRIANGULAR["lower"], (drawn(2, 4, 4), drawn(2, 4, 1)), "systems of 4 x 4"),
    "a negative power": (lambda x: torch.linalg.matrix_power(x, -1), (MATRICES,), "negative power"),
    "an inverse, which raises for singular matrices": (torch.linalg.inv, (MATRICES,), "linalg_inv"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_torch(name: str) -> None:
    function, args, what = LEFT[name]
    with pytest.raises(UnsupportedOpError, match=what):
        from_module(as_module(function), args, fallback="error")


LEAST: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "one system": ((5, 2), (5, 1), {}),
    "a batch": ((4, 5, 2), (4, 5, 3), {"driver": "gelsd"}),
    "a vector of each": ((4, 5, 2), (4, 5), {}),
    "square": ((3, 3), (3, 2), {"driver": "gels"}),
    "more unknowns than equations": ((2, 5), (2, 1), {}),
    "values that count as zero": ((5, 2), (5, 1), {"rcond": 0.9, "driver": "gelsd"}),
}


@pytest.mark.parametrize("name", LEAST)
def test_least_squares(name: str) -> None:
    left, right, named = LEAST[name]
    assert_compiled(lambda a, b: torch.linalg.lstsq(a, b=b, **named).solution, drawn(*left), drawn(*right))


def test_what_drivers_give_beside_least_squares() -> None:
    def function(a: Tensor, b: Tensor) -> list[Tensor]:
        plain, whole = torch.linalg.lstsq(a, b), torch.linalg.lstsq(a, b, driver="gelsd")
        return [plain.rank, whole.residuals, whole.rank, whole.singular_values]

    assert_compiled(function, drawn(2, 5, 3), drawn(2, 5, 2))


GROUPED, EXPERTS = drawn(9, 8).bfloat16(), drawn(4, 8, 16).bfloat16()


def test_rows_by_the_matrices_of_their_groups() -> None:
    ends = torch.tensor([2, 2, 7, 9], dtype=torch.int32)  # one group is empty
    multiply = as_module(lambda x, w, ends: nn.functional.grouped_mm(x, w, offs=ends)).eval()
    assert multiply(GROUPED, EXPERTS, ends).dtype is torch.bfloat16
    fast = ft.optimize(multiply, (GROUPED, EXPERTS, ends), machine=REFERENCE)
    for now in (ends, torch.tensor([0, 5, 5, 9], dtype=torch.int32)):
        expected = torch.cat([x @ w for x, w in zip(GROUPED.tensor_split(now[:3].long()), EXPERTS, strict=True)])
        torch.testing.assert_close(fast(GROUPED, EXPERTS, now), expected)


def test_what_transformers_calls_in_place_of_torch_is_the_same() -> None:
    name = "transformers::grouped_mm_fallback"
    multiply = torch.library.custom_op(name, _by_groups, mutates_args=())
    multiply.register_fake(lambda x, w, _: x.new_empty(len(x), w.shape[2]))
    assert_imported(as_module(multiply), drawn(9, 8), drawn(4, 8, 16), torch.tensor([2, 2, 7, 8]))


def _by_groups(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    rows = x.tensor_split(ends)
    return torch.cat([*(part @ matrix for part, matrix in zip(rows[:-1], w, strict=True)), 0 * rows[-1] @ w[0]])


def test_groups_of_matrices_without_ends_are_a_batch() -> None:
    batch = as_module(lambda x, w: nn.functional.grouped_mm(x, w)).eval()
    fast = ft.optimize(batch, (GROUPED[:8].reshape(4, 2, 8), EXPERTS), machine=REFERENCE)
    torch.testing.assert_close(fast(GROUPED[:8].reshape(4, 2, 8), EXPERTS), GROUPED[:8].reshape(4, 2, 8) @ EXPERTS)


def test_other_groups_are_refused() -> None:
    ends = torch.tensor([8, 16], dtype=torch.int32)
    depths = as_module(lambda x, w: nn.functional.grouped_mm(x, w, offs=ends)).eval()
    with pytest.raises(ModelError, match=r"groups of bf16\[8, 16\](.|\n)*group rows"):
        from_module(depths, (drawn(8, 16).bfloat16(), drawn(16, 8).bfloat16()))
