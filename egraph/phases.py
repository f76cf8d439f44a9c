"""Phases of saturation, as data."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = (0, 1, 2)
"""How much takes part: the levels of families and transforms, and the values of `opt_level`."""


@dataclass(frozen=True)
class Phase:
    """Families that run together until nothing changes or a limit is met. Limits are checked between rounds."""

    name: str
    families: tuple[str, ...]
    round_limit: int = 40
    node_limit: int = 200_000
    time_limit_s: float = 20.0
