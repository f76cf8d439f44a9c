"""Linear algebra of small matrices, written out value by value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from frittata.egraph import shapes
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_indices, idioms_windows

_MOST_ROWS = 3
"""What larger matrices ask for is computed by elimination, which nothing expresses."""


def rows_of(x: Term, what: str) -> int:
    """Return how many rows square matrices have.

    Raises: UnsupportedOpError if they are too many, ModelError for what is no square.
    """
    if len(x.shape) < 2 or x.shape[-2] != x.shape[-1]:
        raise ModelError(f"{what} of {x.type}", do="give square matrices")
    extent = idioms.number(x.shape[-1])
    if extent > _MOST_ROWS:
        raise UnsupportedOpError(f"{what} of {extent} x {extent}")
    return extent


def determinant(x: Term) -> Term:
    """Return the determinants of matrices of up to three rows, along the first.

    Raises: as `rows_of`.
    """
    extent = range(rows_of(x, "determinants"))
    return _along_first([[_value(x, i, j) for j in extent] for i in extent])


def _value(x: Term, row: int, column: int) -> Term:
    return idioms.select(idioms.select(x, -2, row), -1, column)


def _along_first(rows: Sequence[Sequence[Term]]) -> Term:
    """Add each value of the first row times the determinant of the rest without its column, with alternating signs."""
    first, *rest = rows
    if not rest:
        return first[0]
    minors = [_along_first([[*row[:at], *row[at + 1 :]] for row in rest]) for at in range(len(first))]
    total, *others = (tensor("mul", value, minor) for value, minor in zip(first, minors, strict=True))
    for at, part in enumerate(others):
        total = tensor("add" if at % 2 else "sub", total, part)
    return total


def log_determinant(x: Term) -> tuple[Term, Term]:
    """Return the signs of determinants of float32, and the logarithms of their sizes, by float64, which holds them.

    Raises: as `rows_of`; UnsupportedOpError for float64.
    """
    if x.dtype == "f64":
        raise UnsupportedOpError("of float64")
    found = determinant(idioms.cast(x, "f64"))
    sign = tensor("where", tensor("eq", found, found), tensor("sign", found), idioms.like(found, 0))
    return idioms.cast(sign, x.dtype), idioms.cast(tensor("log", tensor("abs", found)), x.dtype)


def solved_triangular(a: Term, b: Term, upper: bool, unitriangular: bool = False) -> Term:
    """Solve a x = b for triangular matrices of up to three rows, one row after the other; the other half is not read.

    Shapes: a (*batch, n, n), b (*batch, n, columns), whose batches are broadcast.
    Raises: as `rows_of`.
    """
    extent = rows_of(a, "systems")
    b = idioms.expand(b, (*shapes.broadcast(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]))
    x: dict[int, Term] = {}
    for i in range(extent)[:: -1 if upper else 1]:
        row = idioms.select(b, -2, i)
        for j, known in x.items():
            row = tensor("sub", row, tensor("mul", idioms.unsqueeze(_value(a, i, j), -1), known))
        x[i] = row if unitriangular else tensor("div", row, idioms.unsqueeze(_value(a, i, i), -1))
    return idioms_windows.concat([idioms.unsqueeze(x[i], -2) for i in range(extent)], -2)


def power(x: Term, exponent: int) -> Term:
    """Raise square matrices of floats to a power, not negative, by squares.

    Raises: UnsupportedOpError if it is negative.
    """
    if exponent < 0:
        raise UnsupportedOpError("to a negative power")
    if exponent == 0:
        rows, columns = x.shape[-2:]
        return idioms.expand(idioms_indices.eye(rows, columns, x.dtype), x.shape)
    squares, factors = x, list[Term]()
    for at in range(exponent.bit_length()):
        squares = idioms.matmul(squares, squares) if at else x
        if exponent >> at & 1:
            factors.append(squares)
    return reduce(idioms.matmul, factors)
