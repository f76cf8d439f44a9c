"""Saturation in phases: which families run together, under which limits, and why each phase stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from frittata.egraph import snapshot
from frittata.egraph.engine import Engine, Program, Statistics
from frittata.egraph.snapshot import Snapshot
from frittata.egraph.terms import Term, walk


class StopReason(Enum):
    """Why a phase ended."""

    SATURATED = "saturated"
    ROUNDS = "round limit"
    NODES = "node limit"
    TIME = "time limit"


@dataclass(frozen=True)
class Phase:
    """Families that run together until nothing changes or a limit is met. Limits are checked between rounds."""

    name: str
    families: tuple[str, ...]
    round_limit: int = 40
    node_limit: int = 200_000
    time_limit_s: float = 20.0


@dataclass
class PhaseReport:
    """What a phase did: rounds, matches and seconds for each rule, seconds spent between rounds, stop reason."""

    name: str
    stop: StopReason = StopReason.SATURATED
    rounds: int = 0
    nodes: int = 0
    seconds: float = 0.0
    between_rounds_s: float = 0.0
    statistics: Statistics = field(default_factory=Statistics)


@dataclass
class Saturation:
    """The saturated e-graph and the account of how it came about."""

    snapshot: Snapshot
    phases: list[PhaseReport]
    load_s: float
    read_s: float
    rule_names: dict[int, str]


_STEPS = 4
"""How many egglog iterations run before Python answers guards and types."""


def saturate(
    roots: tuple[Term, ...],
    programs_by_family: Mapping[str, tuple[Program, ...]],
    phases: tuple[Phase, ...],
    constants: Callable[[Term], bool],
) -> Saturation:
    """Load terms, run all phases, read the e-graph back.

    Raises: SaturationError if egglog fails or an unsound merge is found.
    """
    start = time.perf_counter()
    names = {p.number: p.name for programs in programs_by_family.values() for p in programs}
    used = {family for phase in phases for family in phase.families}
    able, operators = _able(roots, {f: p for f, p in programs_by_family.items() if f in used})
    engine = Engine(operators)
    engine.load(roots, constants)
    loaded = time.perf_counter()
    for family, programs in able.items():
        engine.add(family, programs)
    reports = [_run_phase(engine, phase, set(programs_by_family)) for phase in phases]
    before = time.perf_counter()
    result = snapshot.read(engine, roots, names)
    return Saturation(result, reports, loaded - start, time.perf_counter() - before, names)


def _able(
    roots: tuple[Term, ...], programs_by_family: Mapping[str, tuple[Program, ...]]
) -> tuple[dict[str, list[Program]], set[str]]:
    """Keep the rules that can ever match: whose operators are in the model or made by such rules. Return both."""
    present = {f"{term.sort[0]}_{term.op}" for term in walk(*roots)}
    waiting = [(family, program) for family, programs in programs_by_family.items() for program in programs]
    kept: set[int] = set()
    while True:
        ready = [p for _, p in waiting if p.number not in kept and p.matches <= present]
        if not ready:
            break
        kept.update(p.number for p in ready)
        present = present.union(*(p.makes for p in ready))
    able = {family: [p for p in programs if p.number in kept] for family, programs in programs_by_family.items()}
    return able, present


def _run_phase(engine: Engine, phase: Phase, known: set[str]) -> PhaseReport:
    report = PhaseReport(phase.name)
    start = time.perf_counter()
    ruleset = f"phase_{phase.name}"
    engine.combine(ruleset, [family for family in phase.families if family in known])
    while True:
        step = engine.run(ruleset, _STEPS)
        report.rounds += 1
        _accumulate(report.statistics, step)
        before = time.perf_counter()
        rows = engine.freeze()
        report.nodes = sum(len(r) for name, r in rows.items() if name[:2] in ("t_", "e_"))
        answered = engine.answer(rows)
        now = time.perf_counter()
        report.between_rounds_s += now - before
        if not step.updated and not answered:
            report.stop = StopReason.SATURATED
            break
        if report.nodes > phase.node_limit:
            report.stop = StopReason.NODES
            break
        if now - start > phase.time_limit_s:
            report.stop = StopReason.TIME
            break
        if report.rounds >= phase.round_limit:
            report.stop = StopReason.ROUNDS
            break
    report.seconds = time.perf_counter() - start
    return report


def _accumulate(total: Statistics, step: Statistics) -> None:
    for name, count in step.matches_by_rule.items():
        total.matches_by_rule[name] = total.matches_by_rule.get(name, 0) + count
    for name, seconds in step.seconds_by_rule.items():
        total.seconds_by_rule[name] = total.seconds_by_rule.get(name, 0.0) + seconds
    total.rebuild_s += step.rebuild_s
    total.updated = total.updated or step.updated
