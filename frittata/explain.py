"""Why a kernel is what it is: its term and price, what else was possible, the rules behind it, and its boundaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import frittata.tables as tables
from frittata.account import Account, KernelView
from frittata.chains import Step
from frittata.egraph.model import short_origin
from frittata.egraph.snapshot import Node
from frittata.labels import Labels
from frittata.neighbours import Boundary
from frittata.report import Folded, Report, folded_lines

MOST_ALTERNATIVES = 6


@dataclass(frozen=True)
class Held:
    """An imported operator whose value the kernel computes, and where in the user's source it stands."""

    op: str
    type: str
    origin: str
    is_result: bool


@dataclass(frozen=True)
class Rival:
    """Another candidate for the kernel's result.

    `delta_s` compares the kernels alone; `program_delta_s` the cheapest programs with one and the other (None: none has
    this candidate). `loads` are the buffers and tensors that it would read.
    """

    template: str
    loads: tuple[str, ...]
    also_stores: tuple[str, ...]
    seconds: float
    delta_s: float
    program_delta_s: float | None


@dataclass(frozen=True)
class Derivation:
    """Nodes of the kernel that were made by the same rules from the same imported operator, and those rules' text."""

    origin: str
    rules: tuple[str, ...]
    texts: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """Everything there is to say about one kernel. Print it, or take its parts."""

    kernel: KernelView
    asked: str
    share: float
    holds: tuple[Held, ...]
    rivals: tuple[Rival, ...]
    more_rivals: int
    derivations: tuple[Derivation, ...]
    boundaries: tuple[Boundary, ...]
    folded: tuple[Folded, ...]
    fusing_rules: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as data that `json.dumps` takes."""
        return {
            "kernel": self.kernel.to_dict(),
            "share": self.share,
            "holds": [vars(held) for held in self.holds],
            "rivals": [vars(rival) for rival in self.rivals],
            "more_rivals": self.more_rivals,
            "derivations": [vars(derivation) for derivation in self.derivations],
            "boundaries": [{**vars(boundary), "type": str(boundary.type)} for boundary in self.boundaries],
            "folded": [{**vars(row), "type": str(row.type)} for row in self.folded],
        }

    def __str__(self) -> str:
        kernel = self.kernel
        measured = f", {tables.seconds(kernel.measured_s)} measured" if kernel.measured_s is not None else ""
        lines = [
            f"{kernel.name}, by the template {kernel.template}"
            + (f" (holds {self.asked})" if self.asked != kernel.name else ""),
            f"  {tables.seconds(kernel.predicted_s)} predicted ({self.share:.0%} of the program){measured}; "
            f"{tables.count(kernel.flops, 'flop')}, {tables.count(kernel.bytes, 'B')}",
        ]
        blocks = (
            ("Computes", [piece for line in kernel.op.splitlines() for piece in tables.wrapped(line, "  ")]),
            ("Holds these operators of the model", _held_lines(self.holds)),
            ("Other candidates for its result", _rival_lines(self)),
            ("Rules that made its nodes", _derivation_lines(self.derivations, self.fusing_rules)),
            ("Why its neighbours are kernels of their own", _boundary_lines(self.boundaries)),
            ("Constants folded for it", folded_lines(self.folded)),
        )
        for title, block in blocks:
            if block:
                lines += ["", title, *block]
        return "\n".join(lines)

    __repr__ = __str__


def explain(account: Account, name: str) -> Explanation:
    """Explain the kernel of that name, or the one that holds that operator.

    Raises: FrittataError that names the nearest.
    """
    view = account.kernel(name)
    report = Report(account, lambda **_: None)
    total = account.program.cost_s
    read = set(view.kernel.operands)
    rivals, more = _rivals(account, view)
    return Explanation(
        view,
        name,
        view.predicted_s / total if total else 0.0,
        tuple(_held(account, view)),
        rivals,
        more,
        tuple(_derivations(account, view)),
        tuple(account.boundaries.of(view.name)),
        tuple(row for row in report.folded if row.name in read),
        account.fusing_rules if view.is_fused else (),
    )


def _held(account: Account, view: KernelView) -> Iterable[Held]:
    results = {account.placement.class_by_buffer[output.name] for output in view.kernel.outputs}
    computed = sorted(account.placement.computed(view.name), key=lambda found: (found[0] not in results, found[0]))
    told: set[Node] = set()
    for class_, at, node in computed:
        if node.rule == 0 and node not in told:
            told.add(node)
            origin = next(iter(account.origins(at)), "")
            yield Held(node.op, str(account.snapshot.types[at]), short_origin(origin), class_ in results)


def _rivals(account: Account, view: KernelView) -> tuple[tuple[Rival, ...], int]:
    extraction = account.compilation.extraction
    chosen = account.placement.number_by_step[view.name]
    result = extraction.problem.candidates[chosen].produces[0]
    found, more = account.alternatives.of(result, chosen, MOST_ALTERNATIVES)
    parts = [account.placement.part_of(rival.number) for rival in found]
    stored = [rival.candidate.produces[1:] for rival in found]
    name = _named(account, {*chain(*(part.leaves for part in parts), *stored)})
    rivals = tuple(
        Rival(
            rival.candidate.template,
            tuple(name[class_] for class_ in sorted(part.leaves)),
            tuple(name[class_] for class_ in also),
            rival.candidate.cost,
            rival.candidate.cost - view.predicted_s,
            None if rival.program_s is None else rival.program_s - extraction.program.cost_s,
        )
        for rival, part, also in zip(found, parts, stored, strict=True)
    )
    return rivals, more


def _named(account: Account, classes: Iterable[int]) -> dict[int, str]:
    """Name classes so that each has another name: exp #27, exp #28."""
    labels = Labels(account)
    names = {class_: labels.tensor(class_) for class_ in classes}
    shared = Counter(names.values())
    return {class_: name if shared[name] == 1 else f"{name} #{class_}" for class_, name in names.items()}


def _derivations(account: Account, view: KernelView) -> Iterable[Derivation]:
    """Group the kernel's nodes by the chain of rules that leads to them."""
    groups: dict[tuple[str, ...], tuple[Node, list[Step], list[str]]] = {}
    for class_, node in account.placement.part(view.name).nodes.items():
        if node.op in ("load", "const", "iota"):
            continue
        steps = account.chains.chain(class_, node)
        if steps:
            start = steps[0].before
            key = (start.op, *(step.rule for step in steps))
            groups.setdefault(key, (start, list(steps), []))[2].append(node.op)
    for start, steps, made in groups.values():
        rules = tuple(step.rule for step in steps)
        yield Derivation(start.op, rules, tuple(step.text for step in steps), tuple(dict.fromkeys(made)))


# ---- text ------------------------------------------------------------------------------------------------------------


def _held_lines(holds: tuple[Held, ...]) -> list[str]:
    rows = [(h.op, h.type, "result" if h.is_result else "inside", h.origin) for h in holds]
    return tables.table(("operator", "type", "", "from"), rows, indent="  ") if rows else []


RIVAL_HEAD = ("template", "price", "program", "loads")


def rival_rows(explanation: Explanation) -> list[tuple[str, ...]]:
    """Return what tables tell under `RIVAL_HEAD`: of the chosen candidate, then of each other one.

    The price is that of the kernel, and under `program` stands how much more the cheapest program with it takes.
    """
    view = explanation.kernel
    also = [output.name for output in view.kernel.outputs[1:]]
    rows = [(view.template, tables.seconds(view.predicted_s), "chosen", _memory(view.kernel.operands, also))]
    for r in explanation.rivals:
        rows.append((r.template, tables.seconds(r.seconds), signed(r.program_delta_s), _memory(r.loads, r.also_stores)))
    return rows


def _memory(loads: Iterable[str], also_stores: Iterable[str]) -> str:
    stores = ", ".join(also_stores)
    return ", ".join(loads) + (f"; also stores {stores}" if stores else "")


def _rival_lines(explanation: Explanation) -> list[str]:
    if not explanation.rivals:
        return ["  none: no other body for it was kept"]
    lines = tables.table(RIVAL_HEAD, rival_rows(explanation), right=(1, 2), indent="  ")
    more = explanation.more_rivals
    return [*lines, f"  ... and {more} more"] if more else lines


def signed(value: float | None) -> str:
    """Write how much more something takes; none where there is no such thing."""
    if value is None:
        return "none"
    if abs(value) < 1e-12:
        return "same"
    return ("+" if value > 0 else "-") + tables.seconds(abs(value))


def _derivation_lines(derivations: tuple[Derivation, ...], fusing: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    told: set[str] = set()
    for derivation in derivations:
        chain = " > ".join(derivation.rules)
        lines += tables.wrapped(f"{', '.join(derivation.nodes)}: {derivation.origin} > {chain}", "  ", "      ")
        for rule, text in zip(derivation.rules, derivation.texts, strict=True):
            if rule not in told:
                told.add(rule)
                lines += tables.wrapped(text if text != rule else f"{rule} (native)", "      ", "    ")
    if lines and fusing:
        lines.append(f"  all in one kernel by {', '.join(fusing)}")
    return lines


def _boundary_lines(boundaries: tuple[Boundary, ...]) -> list[str]:
    lines: list[str] = []
    for b in boundaries:
        lines.append(f"  {b.producer} -> {b.consumer}, over {b.buffer}: {b.type}")
        lines += tables.wrapped(b.reason, "      ", "")
    return lines
