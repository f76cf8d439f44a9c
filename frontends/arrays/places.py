"""Where in the user's source the operators of a traced function stand."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from frittata.egraph.model import note_origin
from frittata.egraph.terms import Term
from frittata.frontends.idioms_complex import Complex, terms_of

_PASSED_THROUGH = ("frittata", "numpy")
_ORIGIN_BY_TERM: ContextVar[dict[Term, str] | None] = ContextVar("origin_by_term", default=None)


@contextmanager
def noted() -> Generator[dict[Term, str]]:
    """Note the place of all terms that are made meanwhile."""
    origin_by_term: dict[Term, str] = {}
    token = _ORIGIN_BY_TERM.set(origin_by_term)
    try:
        yield origin_by_term
    finally:
        _ORIGIN_BY_TERM.reset(token)


def note(value: Complex | Term) -> None:
    """Note as the place of a tensor's terms the innermost line that is being run outside of this package and numpy."""
    origin_by_term = _ORIGIN_BY_TERM.get()
    if origin_by_term is not None:
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_THROUGH:
            frame = frame.f_back
        for term in terms_of(value):
            note_origin(origin_by_term, term, f"{frame.f_code.co_filename}:{frame.f_lineno}")
