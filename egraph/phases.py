"""Phases of saturation, as data, and what each did."""

from __future__ import annotations

from dataclasses import dataclass, field

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


@dataclass
class Statistics:
    """What one phase did: matches and seconds for each rule by name, seconds by activity, matches of all parts."""

    matches_by_rule: dict[str, int] = field(default_factory=dict[str, int])
    seconds_by_rule: dict[str, float] = field(default_factory=dict[str, float])
    rebuild_s: float = 0.0
    updated: bool = False
    matches: int = 0
