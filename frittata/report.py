"""The account of one optimization: its kernels and their prices, rules, phases, what was folded, the gap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import frittata.tables as tables
from frittata.account import Account, KernelView
from frittata.egraph.ops import externs
from frittata.egraph.program import Kernel, Program
from frittata.egraph.terms import TensorType, Term, walk
from frittata.kernels.templates import LIBRARY
from frittata.pipeline import Compilation, unfused


@dataclass(frozen=True)
class Folded:
    """A constant that was computed before run time: its type, the term over params, and the rules that led there."""

    name: str
    type: TensorType
    term: str
    params: tuple[str, ...]
    rules: tuple[str, ...]


@dataclass(frozen=True)
class RuleRow:
    """What one rule did: its matches, the nodes of the final e-graph that it made, seconds of search and apply."""

    name: str
    matches: int
    nodes: int
    seconds: float


@dataclass(frozen=True)
class PhaseRow:
    """What one phase of saturation did; `between_rounds_s` is the time for guards, attributes and types."""

    name: str
    stop: str
    rounds: int
    nodes: int
    seconds: float
    between_rounds_s: float
    rebuild_s: float


@dataclass
class Report:
    """Everything that `optimize` found and did. Print it, or take its parts.

    Units: `*_s` and `phase_seconds` in seconds. `gap` is how far the program may be from the best one, as a share of
    its price, against the enumerated candidates: kernels that were not enumerated are not compared with.
    """

    account: Account = field(repr=False)
    _measure: Callable[..., object] = field(repr=False)

    @property
    def compilation(self) -> Compilation:
        """What the stages produced."""
        return self.account.compilation

    @property
    def _program(self) -> Program:
        return self.account.program

    @property
    def kernels(self) -> tuple[KernelView, ...]:
        """The steps of the driver, in order."""
        return self.account.kernels

    @property
    def library(self) -> tuple[str, ...]:
        """The kernels that are calls into a library, chosen because they are cheaper."""
        return tuple(kernel.name for kernel in self._program.kernels if kernel.template == LIBRARY.name)

    @property
    def externs(self) -> tuple[str, ...]:
        """The kernels that fall back to the framework the model came from."""
        return tuple(kernel.name for kernel in self._program.kernels if _is_extern(kernel))

    @property
    def bands(self) -> tuple[tuple[str, ...], ...]:
        """The kernels that run together, some lines of an image at a time; measured time is shared out among them."""
        return tuple(band.kernels for band in self._program.bands)

    @property
    def flops(self) -> float:
        """Floating-point operations of all kernels, as predicted."""
        return sum(kernel.estimate.flops for kernel in self._program.kernels)

    @property
    def bytes(self) -> float:
        """Bytes moved by all kernels, as predicted."""
        return sum(kernel.estimate.bytes for kernel in self._program.kernels)

    @property
    def predicted_s(self) -> float:
        """The price of the program."""
        return self._program.cost_s

    @property
    def measured_s(self) -> float | None:
        """The sum over the kernels; None until measured."""
        return sum(self.account.measured.values()) if self.account.measured else None

    @property
    def gap(self) -> float:
        """Against the enumerated candidates; 0 is a proven optimum over them."""
        return self._program.gap

    @property
    def is_remembered(self) -> bool:
        """Whether the program was chosen by an earlier `optimize` and came from the cache, with the gap it had."""
        return self.compilation.is_remembered

    @property
    def greedy_s(self) -> float:
        """The price of the greedy choice over the same candidates."""
        return self.compilation.choice.greedy_cost_s

    @cached_property
    def cost_before_s(self) -> float:
        """The price of the program with every operator a kernel of its own. It is extracted when first asked for."""
        return unfused(self.compilation).program.cost_s

    @property
    def candidates(self) -> int:
        """How many kernel candidates the choice was among."""
        return len(self.compilation.extraction.problem.candidates)

    @property
    def classes(self) -> int:
        """How many e-classes there are."""
        return len(self.compilation.saturation.snapshot.nodes)

    @property
    def nodes(self) -> int:
        """How many e-nodes there are."""
        return self.compilation.saturation.snapshot.node_count

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Seconds of each stage of the pipeline."""
        return self.compilation.phase_seconds

    @cached_property
    def rules(self) -> tuple[RuleRow, ...]:
        """The rules of one's own; then the others that matched or made nodes, those with most nodes first."""
        saturation = self.compilation.saturation
        made = Counter(node.rule for nodes in saturation.snapshot.nodes for node in nodes)
        nodes = {name: made[number] for number, name in saturation.rule_names.items() if made[number]}
        matches: Counter[str] = Counter()
        seconds: Counter[str] = Counter()
        for phase in saturation.phases:
            matches.update(phase.statistics.matches_by_rule)
            for name, spent in phase.statistics.seconds_by_rule.items():
                seconds[name] += spent  # pyright: ignore[reportArgumentType]
        own = {rule.full_name: self.account.matches(rule) for rule in self.account.own_rules}
        counts = {**matches, **own}
        names = {name for name in (*counts, *nodes) if name in own or counts.get(name) or nodes.get(name)}
        rows = [RuleRow(name, counts.get(name, 0), nodes.get(name, 0), float(seconds[name])) for name in names]
        return tuple(sorted(rows, key=lambda row: (row.name not in own, -row.nodes, -row.matches, row.name)))

    @property
    def phases(self) -> tuple[PhaseRow, ...]:
        """The phases of saturation and why each stopped."""
        return tuple(
            PhaseRow(p.name, p.stop.value, p.rounds, p.nodes, p.seconds, p.between_rounds_s, p.statistics.rebuild_s)
            for p in self.compilation.saturation.phases
        )

    @cached_property
    def folded(self) -> tuple[Folded, ...]:
        """The constants that are more than one param as it was given."""
        rows: list[Folded] = []
        for name, term in self._program.constants.items():
            if term.op != "param":
                params = tuple(leaf.attrs[0] for leaf in walk(term) if leaf.op == "param")
                type_ = TensorType(term.shape, term.dtype)
                rows.append(Folded(name, type_, term_text(term), params, self._rules_of(name, term)))
        return tuple(rows)

    def _rules_of(self, name: str, term: Term) -> tuple[str, ...]:
        class_ = self.account.placement.class_by_buffer.get(name)
        if class_ is None:
            return ()
        nodes = self.account.placement.constant_nodes(class_, term)
        return tuple(sorted({step.rule for at, node in nodes for step in self.account.chains.chain(at, node)}))

    @property
    def compile(self) -> dict[str, float]:
        """How many distinct kernels were compiled now, or found in this process or the cache, and the seconds of it."""
        executable = self.compilation.executable
        return {
            "kernels": executable.steps,
            "distinct": executable.distinct_kernels,
            "compiled": executable.newly_compiled,
            "found": executable.distinct_kernels - executable.newly_compiled,
            "seconds": self.phase_seconds["compile"],
        }

    @property
    def compile_line(self) -> str:
        """Say `compile` in words."""
        return "{distinct} distinct kernels: {compiled} compiled, {found} found".format(**self.compile)

    def measure(self, repeats: int = 10) -> Report:
        """Time every kernel on the example arguments and return the report with `measured_s` filled."""
        self._measure(repeats=repeats)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data that `json.dumps` takes."""
        numbers = ("flops", "bytes", "predicted_s", "measured_s", "gap", "greedy_s", "cost_before_s")
        sizes = ("candidates", "classes", "nodes")
        return {
            "kernels": [kernel.to_dict() for kernel in self.kernels],
            **{name: getattr(self, name) for name in (*numbers, *sizes)},
            "gap_is_against": "the enumerated candidates",
            "is_remembered": self.is_remembered,
            "library": list(self.library),
            "externs": list(self.externs),
            "bands": [list(band) for band in self.bands],
            "folded": [_folded_dict(row) for row in self.folded],
            "rules": [vars(row) for row in self.rules],
            "phases": [vars(row) for row in self.phases],
            "phase_seconds": dict(self.phase_seconds),
            "compile": dict(self.compile),
            "machine": self.compilation.machine.to_dict(),
        }

    def __str__(self) -> str:
        parts = [
            self._summary(),
            self._kernel_table(),
            _section("Folded before run time", folded_lines(self.folded)),
            self._rule_table(),
            self._time_table(),
        ]
        return "\n\n".join("\n".join(part) for part in parts if part)

    __repr__ = __str__

    def _summary(self) -> list[str]:
        steps = f"{len(self.kernels)} kernel{'s' * (len(self.kernels) != 1)}"
        measured = f", {tables.seconds(self.measured_s)} measured" if self.account.measured else ""
        lines = [
            f"{steps}: {tables.seconds(self.predicted_s)} predicted{measured}; "
            f"{tables.count(self.flops, 'flop')}, {tables.count(self.bytes, 'B')}",
            f"each operator a kernel of its own: {tables.seconds(self.cost_before_s)}; "
            f"greedy choice: {tables.seconds(self.greedy_s)}",
            f"gap {self.gap:.2%} against the {self.candidates} enumerated candidates; "
            f"e-graph of {self.nodes} nodes in {self.classes} classes",
        ]
        return [*lines, *self.notes]

    @property
    def notes(self) -> list[str]:
        """What else there is to know of the program: the machine, where it came from, what runs otherwise."""
        notes = [f"prices are for the machine {self.compilation.machine.name}"]
        if (lost := self.compilation.lost) is not None:
            is_exact = self.compilation.options.numerics == "exact"
            without = 'numerics is "exact"' if is_exact else "there is no program without rules over the reals"
            what = f"a constant leaves the range of its dtype ({lost.op}, {lost.type})"
            notes.append(f"{without}: by {'rules over the reals' if is_exact else 'these'} {what}")
        if self.is_remembered:
            notes.append("chosen by an earlier run, and found in the cache or in a saved file")
        if self.library:
            notes.append(f"library calls, where they are cheaper: {', '.join(self.library)}")
        if self.externs:
            notes.append(f"fallbacks to the framework: {', '.join(self.externs)}")
        return notes + [f"some lines at a time, together: {', '.join(band)}" for band in self.bands]

    def _kernel_table(self) -> list[str]:
        return tables.table(KERNEL_HEAD, list(map(kernel_row, self.kernels)), right=(2, 3, 4, 5))

    def _rule_table(self) -> list[str]:
        most = max(12, len(self.account.own_rules))
        rows = [(r.name, str(r.matches), str(r.nodes), tables.seconds(r.seconds)) for r in self.rules[:most]]
        lines = tables.table(("rule", "matches", "nodes", "time"), rows, right=(1, 2, 3), indent="  ")
        rest = len(self.rules) - most
        return _section("Rules", [*lines, f"  ... and {rest} more"] if rest > 0 else lines)

    def _time_table(self) -> list[str]:
        rows = [tuple(tables.seconds(spent) for spent in self.phase_seconds.values())]
        lines = tables.table(tuple(self.phase_seconds), rows, indent="  ")
        for p in self.phases:
            lines.append(
                f"  phase {p.name}: {p.stop} after {p.rounds} rounds, {p.nodes} nodes, {tables.seconds(p.seconds)}, "
                f"of which {tables.seconds(p.between_rounds_s)} between rounds"
            )
        return _section("Time", [*lines, f"  {self.compile_line}"])


def _is_extern(kernel: Kernel) -> bool:
    return any(externs.is_extern(output.body.op) for output in kernel.outputs)


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [title, *lines] if lines else []


def folded_lines(rows: Sequence[Folded]) -> list[str]:
    """Write constants, each with what it is computed from and the rules that led there."""
    lines: list[str] = []
    for row in rows:
        lines += tables.wrapped(f"{row.name}: {row.type} = {row.term}", "  ")
        if row.rules:
            lines += tables.wrapped(f"by {', '.join(row.rules)}", "      ", "")
    return lines


def _folded_dict(row: Folded) -> dict[str, Any]:
    return {**vars(row), "type": str(row.type), "params": list(row.params), "rules": list(row.rules)}


def term_text(term: Term, depth: int = 8) -> str:
    """Write a term over params on one line, params by name: mul(conv1.weight, reshape(bn1.weight, (64, 1, 1, 1)))."""
    if term.op in ("param", "input"):
        return str(term.attrs[0])
    if term.op == "full" or term.op == "const":
        return str(term.attrs[0])
    if not depth:
        return "..."
    return f"{term.op}({', '.join([*(term_text(arg, depth - 1) for arg in term.args), *map(str, term.attrs)])})"


KERNEL_HEAD = ("kernel", "template", "predicted", "measured", "flops", "bytes", "result")


def kernel_row(view: KernelView) -> tuple[str, ...]:
    """Return what tables tell of a kernel under `KERNEL_HEAD`."""
    return (
        view.name,
        view.template,
        tables.seconds(view.predicted_s),
        tables.seconds(view.measured_s),
        tables.count(view.flops),
        tables.count(view.bytes),
        ", ".join(str(output.body.type) for output in view.kernel.outputs),
    )
