"""Driving egglog: loading a model in linear time, running rules, reading everything back.

The module is loaded with the first e-graph: egglog takes as long to load as a small model to compile from the cache.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from functools import cache
from math import inf
from typing import Any

from egglog import bindings

from frittata.egraph import interning, terms
from frittata.egraph.errors import SaturationError
from frittata.egraph.ops import registry
from frittata.egraph.phases import Statistics
from frittata.egraph.schema import ADDENDS, ALWAYS, CONFLICT, TABLES, Plan, Program, fact_rules, ruleset_of, schema_of
from frittata.egraph.terms import TensorType, Term

_SPAN = bindings.PanicSpan()

_PROCESS = os.getpid()
"""The process that egglog was loaded in, which starts threads."""


def _new_egraph() -> bindings.EGraph:
    """Return an empty e-graph.

    Raises: SaturationError in a fork of the process that loaded egglog: its threads are not there, and it would wait
        for them for ever.
    """
    if os.getpid() != _PROCESS:
        do = "start processes with the method 'spawn', or fork before the first optimize; models run in forks"
        raise SaturationError("a fork of a process that has loaded egglog cannot optimize a model", do=do)
    return bindings.EGraph()


@cache
def _parse(text: str) -> tuple[Any, ...]:
    return tuple(_new_egraph().parse_program(text))


class Engine:
    """One e-graph in egglog, of those operators that can occur in it: declaring one takes a millisecond."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._egraph = _new_egraph()
        self.ops = [registry.by_key(key) for key in sorted({*keys, *ALWAYS})]
        self._number_by_term: dict[Term, int] = {}
        self._seen_by_table: dict[str, set[Any]] = {}
        self._plans: list[Plan] = []
        self._begun: set[str] = set()
        self._run_text(TABLES + "".join(map(schema_of, self.ops)))

    def load(self, roots: Iterable[Term], constants: Callable[[Term], bool], over_reals: bool) -> None:
        """Insert every term under `roots`, one node at a time; `constants` tells the leaves known before run time.

        `over_reals`: classes are what is equal but for rounding, so that sums tell their constant addends.
        """
        commands: list[Any] = []
        varying: set[Term] = set()
        for term in terms.walk(*roots):
            is_varying_leaf = term.sort == "tensor" and not term.args and term.op != "full" and not constants(term)
            if is_varying_leaf or not varying.isdisjoint(term.args):
                varying.add(term)
            number = self._number_by_term[term] = len(self._number_by_term)
            key = f"{term.sort[0]}_{term.op}"
            columns = [*(self._name(arg) for arg in term.args), *(_int(interning.intern(a)) for a in term.attrs)]
            commands.append(_set(f"{term.sort[0]}n", [_int(number)], bindings.Call(_SPAN, key, columns)))
            commands.append(_set(f"by_{key}", columns, _int(0)))
            name = self._name(term)
            if isinstance(term.type, TensorType):
                commands.append(_set("ty", [name], _int(interning.intern(term.type))))
                if not term.args and constants(term):
                    commands.append(_set("varies", [name], _int(0)))
                elif term in varying:
                    is_shifted = term.op == "add" and term.args[0] in varying and term.args[1] not in varying
                    commands += [_set("varies", [name], _int(1)), _set("shifted", [name], _int(is_shifted))]
            else:
                commands.append(_set("dt", [name], _int(interning.intern(term.type.dtype))))
        self._run(commands, "loading the model")
        self._run_text(fact_rules(self.ops))  # after the data: egglog plans joins by the tables it sees
        if over_reals and ADDENDS.matches <= {op.key for op in self.ops}:
            self._declare([ADDENDS], "adding the rule of addends")

    def add(self, family: str, programs: Iterable[Program]) -> None:
        """Declare the rules of a family as a ruleset of its name."""
        self._run_text(f"(ruleset {ruleset_of(family)})")
        self._declare(programs, f"adding the rules of {family}")

    def _declare(self, programs: Iterable[Program], what: str) -> None:
        commands: list[Any] = []
        for program in programs:
            commands += [*_parse(program.tables), *_parse(program.rules)]
            if program.plan is not None:
                self._plans.append(program.plan)
        self._run(commands, what)

    def combine(self, name: str, families: Iterable[str]) -> None:
        """Declare a ruleset that runs several families and the facts together."""
        self._run_text(f"(unstable-combined-ruleset {name} facts {' '.join(map(ruleset_of, families))})")

    def run(self, ruleset: str) -> Statistics:
        """Run a ruleset for one iteration."""
        schedule = bindings.Run(_SPAN, bindings.RunConfig(ruleset))
        (output,) = self._run([bindings.RunSchedule(schedule)], f"running {ruleset}")
        report = output.report
        statistics = Statistics(updated=report.updated, matches=sum(report.num_matches_per_rule.values()))
        for name, count in report.num_matches_per_rule.items():
            if "#" not in name:
                statistics.matches_by_rule[name] = count
        text = str(report)
        for name, seconds in _durations(text, "search_and_apply_time_per_rule"):
            rule = name.partition("#")[0]
            statistics.seconds_by_rule[rule] = statistics.seconds_by_rule.get(rule, 0.0) + seconds
        statistics.rebuild_s = sum(seconds for _, seconds in _durations(text, "rebuild_time_per_ruleset"))
        return statistics

    def freeze(self) -> dict[str, list[Any]]:
        """Return all rows of all tables."""
        return {name: function.rows for name, function in self._egraph.freeze().functions.items()}

    def integer(self, value: Any) -> int:
        """Convert a column that holds a number."""
        return self._egraph.value_to_i64(value)

    def answer(self, rows_by_table: dict[str, list[Any]], deadline: float = inf) -> int:
        """Evaluate the plans of all new matches and insert the results in one batch; return how many were new.

        After the deadline, a time of `perf_counter`, what is left waits for the next answer.
        """
        tables: list[Any] = []
        commands: list[Any] = []
        rules: list[Any] = []
        new = 0
        for plan in self._plans:
            seen = self._seen_by_table.setdefault(plan.match_table, set())
            for row in rows_by_table[plan.match_table]:
                columns = tuple(row.inputs[plan.skip :])
                if columns in seen:
                    continue
                if time.perf_counter() > deadline:
                    break
                seen.add(columns)
                given = tuple(map(self._egraph.value_to_i64, columns))
                if max(given, default=0) >= CONFLICT:
                    continue
                result = plan.evaluate(given)
                if result is not None:
                    new += 1
                    if plan.plan_table not in self._begun:
                        self._begun.add(plan.plan_table)
                        tables += _parse(plan.tables)
                        rules += _parse(plan.rules)
                    commands.append(_insert(plan.plan_table, [_int(i) for i in (*given, *result)]))
        self._run([*tables, *commands, *rules], "inserting guards and types")
        return new

    def number_of(self, term: Term) -> int:
        """Return the number under which a loaded term is named."""
        return self._number_by_term[term]

    def _name(self, term: Term) -> Any:
        return bindings.Call(_SPAN, f"{term.sort[0]}n", [_int(self._number_by_term[term])])

    def _run_text(self, text: str) -> None:
        self._run(list(_parse(text)), text.strip()[:200])

    def _run(self, commands: list[Any], what: str) -> list[Any]:
        try:
            return self._egraph.run_program(*commands)
        except bindings.EggSmolError as error:
            raise SaturationError(f"egglog refused: {error.context}", what) from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            raise SaturationError(
                f"egglog panicked: {error}", what, "disable the family of rules named here"
            ) from error


_DURATION = re.compile(r'"([^"]*)": ([\d.]+)(ns|µs|ms|s)')
_SECONDS_BY_UNIT = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def _durations(report: str, table: str) -> list[tuple[str, float]]:
    """Read seconds by name from the text of a report: in Python, those of egglog 13.2 are 1000 times too short."""
    text = report.rpartition(f"{table}: {{")[2].partition("}")[0]
    return [(name, float(number) * _SECONDS_BY_UNIT[unit]) for name, number, unit in _DURATION.findall(text)]


def _int(value: int) -> Any:
    return bindings.Lit(_SPAN, bindings.Int(value))


def _set(table: str, key: list[Any], value: Any) -> Any:
    return bindings.ActionCommand(bindings.Set(_SPAN, table, key, value))


def _insert(table: str, columns: list[Any]) -> Any:
    return bindings.ActionCommand(bindings.Expr_(_SPAN, bindings.Call(_SPAN, table, columns)))
