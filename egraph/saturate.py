"""Saturation in phases: which families run together, under which limits, and why each phase stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from frittata.egraph import snapshot
from frittata.egraph.phases import Phase, Statistics
from frittata.egraph.schema import KNOWN, Program
from frittata.egraph.snapshot import Snapshot
from frittata.egraph.terms import Term, walk

if TYPE_CHECKING:
    from frittata.egraph.engine import Engine


class Noted(Protocol):
    """What is told what a round did."""

    def ended(self, made: Any, size: int | None = None, matches: int | None = None) -> None:
        """Note the number of e-nodes after it, and of matches in it."""
        ...


Around = Callable[[str], AbstractContextManager[Noted | None]]
"""From the name of a round to what it runs in."""


class StopReason(Enum):
    """Why a phase ended."""

    SATURATED = "saturated"
    ROUNDS = "round limit"
    NODES = "node limit"
    TIME = "time limit"


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
    read_s: float
    rule_names: dict[int, str]


_EXPLODES = 10
"""So many times what there was before is no growth that ends: what comes next would do the same to it."""

_STEPS = 4
"""How many egglog iterations make a round, after which Python answers guards and types."""


def saturate(
    roots: tuple[Term, ...],
    programs_by_family: Mapping[str, tuple[Program, ...]],
    phases: tuple[Phase, ...],
    constants: Callable[[Term], bool],
    around: Around = lambda name: nullcontext(),
    over_reals: bool = True,
) -> Saturation:
    """Load terms, run all phases, read the e-graph back; `around` gives what each round of a phase runs in.

    `over_reals`: that rules join what is equal but for rounding, and not only what is equal bit for bit.

    Raises: SaturationError if egglog fails or an unsound merge is found.
    """
    from frittata.egraph.engine import Engine

    names = {p.number: p.name for programs in programs_by_family.values() for p in programs}
    used = {family for phase in phases for family in phase.families}
    able, operators = _able(roots, {f: p for f, p in programs_by_family.items() if f in used}, constants)
    engine = Engine(operators)
    engine.load(roots, constants, over_reals)
    for family, programs in able.items():
        engine.add(family, programs)
    reports = [_run_phase(engine, phase, set(programs_by_family), around) for phase in phases]
    before = time.perf_counter()
    result = snapshot.read(engine, roots, names)
    return Saturation(result, reports, time.perf_counter() - before, names)


def _able(
    roots: tuple[Term, ...], programs_by_family: Mapping[str, tuple[Program, ...]], constants: Callable[[Term], bool]
) -> tuple[dict[str, list[Program]], set[str]]:
    """Keep the rules that can ever match: whose operators are in the model or made by such rules. Return both.

    Where nothing is known before run time, params or numbers, that leaves out those that ask for it.
    """
    present = {f"{term.sort[0]}_{term.op}" for term in walk(*roots)}
    is_known = any(not term.args and constants(term) for term in walk(*roots))
    waiting = [(family, program) for family, programs in programs_by_family.items() for program in programs]
    kept: set[int] = set()
    while True:
        known = {KNOWN} if is_known or "t_full" in present else set[str]()
        ready = [p for _, p in waiting if p.number not in kept and p.matches <= present | known]
        if not ready:
            break
        kept.update(p.number for p in ready)
        present = present.union(*(p.makes for p in ready))
    able = {family: [p for p in programs if p.number in kept] for family, programs in programs_by_family.items()}
    return able, present


def _run_phase(engine: Engine, phase: Phase, known: set[str], around: Around) -> PhaseReport:
    report = PhaseReport(phase.name)
    start = time.perf_counter()
    ruleset = f"phase_{phase.name}"
    engine.combine(ruleset, [family for family in phase.families if family in known])
    while True:
        before = report.nodes
        with around(f"{phase.name} {report.rounds + 1}") as noted:
            step, answered, exploded = _run_round(engine, ruleset, report, start + phase.time_limit_s, phase.node_limit)
            if noted is not None:
                noted.ended(None, report.nodes, sum(step.matches_by_rule.values()))
        now = time.perf_counter()
        if not step.updated and not answered:
            report.stop = StopReason.SATURATED
            break
        if exploded or _explodes(before, report.nodes, phase.node_limit):
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


def _explodes(before: int, after: int, limit: int) -> bool:
    """Whether a number has passed its limit, or would if it were multiplied once more as it was."""
    growth = after / before if before else 1.0
    return after * (growth if growth > _EXPLODES else 1) > limit


def _run_round(
    engine: Engine, ruleset: str, report: PhaseReport, deadline: float, limit: int
) -> tuple[Statistics, bool, bool]:
    """Run some iterations and answer what they ask.

    Return what they did, whether answers may lead on, and whether the next iteration would have too many matches.
    """
    step, exploded, matches = Statistics(), False, 0
    for _ in range(_STEPS):
        found = engine.run(ruleset)
        _accumulate(step, found)
        before, matches = matches, found.matches
        exploded = _explodes(before, matches, limit)
        if exploded or not found.updated:
            break
    report.rounds += 1
    _accumulate(report.statistics, step)
    asked = time.perf_counter()
    rows = engine.freeze()
    report.nodes = sum(len(r) for name, r in rows.items() if name[:2] in ("t_", "e_"))
    answered = engine.answer(rows, deadline)
    report.between_rounds_s += time.perf_counter() - asked
    return step, bool(answered), exploded


def _accumulate(total: Statistics, step: Statistics) -> None:
    for name, count in step.matches_by_rule.items():
        total.matches_by_rule[name] = total.matches_by_rule.get(name, 0) + count
    for name, seconds in step.seconds_by_rule.items():
        total.seconds_by_rule[name] = total.seconds_by_rule.get(name, 0.0) + seconds
    total.rebuild_s += step.rebuild_s
    total.matches += step.matches
    total.updated = total.updated or step.updated
