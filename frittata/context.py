"""Options for all that is optimized within a `with` block."""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

_GIVEN: ContextVar[dict[str, Any] | None] = ContextVar("_GIVEN", default=None)


class Context:
    """Options of `optimize` that hold in a block, where a call does not give others; blocks within one add to it.

    >>> with Context(opt_level=1, disable=["winograd"]):
    ...     current()["opt_level"]
    1

    Raises: FrittataError if there is no such option.
    """

    def __init__(self, **options: Any) -> None:
        from frittata.options import check_names

        check_names(options)
        self._options = options
        self._tokens: list[Token[dict[str, Any] | None]] = []

    def __enter__(self) -> Self:
        self._tokens.append(_GIVEN.set({**current(), **self._options}))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _GIVEN.reset(self._tokens.pop())


def current() -> dict[str, Any]:
    """Return the options that hold here."""
    return _GIVEN.get() or {}
