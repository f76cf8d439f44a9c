"""Rows of aten operators of linear algebra: of small matrices, and without a check that raises on values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frittata.egraph.errors import ModelError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_linalg


def _solved(a: Term, b: Term, upper: bool, left: bool = True, unitriangular: bool = False) -> Term:
    if left:
        return idioms_linalg.solved_triangular(a, b, upper, unitriangular)
    return idioms.swap(idioms_linalg.solved_triangular(idioms.swap(a), idioms.swap(b), not upper, unitriangular))


def _solved_before(b: Term, a: Term, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    """Torch's older name for it."""
    found = _solved(idioms.swap(a) if transpose else a, b, upper != transpose, True, unitriangular)
    return found, idioms.expand(a, (*found.shape[:-2], *a.shape[-2:]))


def _solved_by_cholesky(b: Term, factor: Term, upper: bool = False) -> Term:
    """Solve l l^T x = b."""
    lower = idioms.swap(factor) if upper else factor
    return _solved(idioms.swap(lower), _solved(lower, b, False), True)


def _grouped(a: Term, b: Term, ends: Term | None = None, bias: None = None, dtype: str | None = None) -> Term:
    """Multiply rows by the matrices of their groups, as mixtures of experts do."""
    if ends is None:
        out = idioms.matmul(a, b)
    elif (len(a.shape), len(b.shape)) == (2, 3):
        out = tensor("grouped_matmul", a, b, ends)
    else:
        raise ModelError(f"groups of {a.type} times {b.type}", do="group rows: (m, k) by (groups, k, n)")
    return idioms.cast(out, dtype or out.dtype)


ROWS: dict[str, Callable[..., Any]] = {
    "aten._linalg_det.default": lambda x: (idioms_linalg.determinant(x), None, None),
    "aten._linalg_slogdet.default": lambda x: (*idioms_linalg.log_determinant(x), None, None),
    "aten.linalg_solve_triangular.default": _solved,
    "aten.triangular_solve.default": _solved_before,
    "aten.cholesky_solve.default": _solved_by_cholesky,
    "aten.linalg_matrix_power.default": idioms_linalg.power,
    **{f"{space}.default": _grouped for space in ("aten._grouped_mm", "transformers.grouped_mm_fallback")},
}
"""What each overload means."""
