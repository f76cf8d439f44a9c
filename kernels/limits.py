"""Constants that leave the range of their dtype: noted as they are computed.

Rules over the reals move factors into weights. Of weights and factors near the ends of a range they make infinity, or
nothing but zeros and denormal numbers, where the model's own steps may stay between.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import dtypes
from frittata.egraph.interpret import Interpreter
from frittata.egraph.terms import Term, walk

Array = NDArray[Any]

_NOTED: ContextVar[list[Term] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Generator[list[Term]]:
    """Give the list of the terms that leave their range first, of constants that are computed here."""
    noted: list[Term] = []
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


class _Wide(Interpreter):
    """Computes in the machine's widest float."""

    def _leaf(self, term: Term, shape: tuple[int, ...]) -> Array:
        value = super()._leaf(term, shape)
        return value.astype(np.longdouble) if dtypes.is_float(term.dtype) else value


def note(constant: Term, interpreter: Interpreter, value_by_param: Mapping[str, Array]) -> None:
    """Note where a constant leaves its range, while someone listens; `interpreter` has computed it."""
    noted = _NOTED.get()
    if noted is None:
        return
    exact = _Wide(value_by_param)

    def is_out(term: Term) -> bool:
        value = interpreter.tensor(term)
        if not dtypes.is_float(term.dtype):
            return False
        if not np.isfinite(value).all():
            return True
        tiny = dtypes.finfo(term.dtype).tiny
        return bool(term.args) and np.abs(value).max() < tiny and 0 < np.abs(exact.tensor(term)).max() < tiny

    def divides_by_zero(term: Term) -> bool:
        """Whether a reciprocal is infinite where its divisor is zero, and nowhere else."""
        finite = np.isfinite(interpreter.tensor(term))
        return term.op == "reciprocal" and not finite.all() and not interpreter.tensor(term.args[0])[~finite].any()

    def overflows(term: Term) -> bool:
        """Whether a value is lost that the widest float holds: others of the constant may be infinite by themselves."""
        lost = ~np.isfinite(interpreter.tensor(term))
        return bool(lost.any() and np.isfinite(exact.tensor(term))[lost].any())

    if is_out(constant):
        out = [part for part in walk(constant) if part.sort == "tensor" and is_out(part)]
        over = [part for part in out if overflows(part)]
        noted += [part for part in _first(out) if part.args and not divides_by_zero(part)] + _first(over)


def _first(parts: list[Term]) -> list[Term]:
    """Return those that are computed of no other."""
    return [part for part in parts if not any(other in parts for arg in part.args for other in walk(arg))]
