"""A program that was chosen before, in an e-graph saturated anew: explanations need its candidates, nothing else does.

Classes have other numbers each time, so the program is found by its terms: each class by the node that a term is, from
the inputs and params on. Nothing is searched for: the choice is the one that was made, whatever the time allowed today.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from frittata.egraph import interning
from frittata.egraph.errors import ExtractionError
from frittata.egraph.machine import Machine
from frittata.egraph.ops import registry
from frittata.egraph.program import Estimate, Kernel, Program, Step, Template, View, operands_of
from frittata.egraph.snapshot import Snapshot
from frittata.egraph.terms import Term, rebuild, walk
from frittata.extract.candidates import JOIN, VIEW, Candidate
from frittata.extract.choose import Extraction, enumerate_candidates
from frittata.extract.constants import Folder
from frittata.extract.integer import Solution
from frittata.extract.prices import Prices
from frittata.extract.problem import Problem, restricted

_Rows = tuple[tuple[int, Term], ...]


@dataclass(frozen=True)
class Choice:
    """What is kept of an extraction: the program, the bodies of steps that are no kernels, and the greedy price."""

    program: Program
    bodies: Mapping[str, Term]
    greedy_cost_s: float


def choice_of(extraction: Extraction) -> Choice:
    """Return what is to be kept of an extraction."""
    bodies: dict[str, Term] = {}
    for step, number in zip(extraction.program.steps, extraction.chosen, strict=True):
        if not isinstance(step, Kernel):
            ((_, body),) = extraction.problem.candidates[number].bodies
            names = dict(zip(operands_of(body), _sources(step), strict=True))
            bodies[step.name] = _renamed(body, {leaf.attrs[0]: name for leaf, name in names.items()})
    return Choice(extraction.program, bodies, extraction.greedy_cost_s)


def recall(
    choice: Choice,
    snapshot: Snapshot,
    inputs: tuple[Term, ...],
    outputs: tuple[Term, ...],
    templates: tuple[Template, ...],
    machine: Machine,
    prices: Prices,
) -> Extraction:
    """Return the extraction that led to a choice, as `extract` would with the same answer of the search.

    Raises: ExtractionError if the e-graph does not have the program.
    """
    start = time.perf_counter()
    folder = Folder(snapshot)
    roots = [snapshot.class_by_term[term] for term in outputs]
    problem, free = enumerate_candidates(snapshot, folder, inputs, roots, templates, machine, prices)
    places = _Places(snapshot, {term.attrs[0]: snapshot.class_by_term.get(term, -1) for term in inputs})
    for name, term in choice.program.constants.items():
        places.class_by_buffer[name] = places.class_of(term)
    rows_by_step = {step: _rows(step, choice, places) for step in choice.program.steps}
    wanted = set(roots).union(*(_loads(rows) for rows in rows_by_step.values()))
    chosen = [_number(step, rows, wanted, problem, free) for step, rows in rows_by_step.items()]
    refused = {n for n in problem.numbers() if problem.candidates[n].template == JOIN}.difference(chosen)
    problem = restricted(problem, set(problem.numbers()).difference(refused))
    cost = choice.program.cost_s
    solution = Solution(frozenset(chosen), cost, cost * (1 - choice.program.gap))
    seconds = {"enumerate": time.perf_counter() - start}
    return Extraction(choice.program, problem, tuple(chosen), solution, choice.greedy_cost_s, seconds)


def _rows(step: Step, choice: Choice, places: _Places) -> _Rows:
    """Return what a step writes: the classes, and the bodies over classes."""
    if isinstance(step, Kernel):
        bodies = {output.name: output.body for output in step.outputs}
    else:
        bodies = {step.name: choice.bodies[step.name]}
    name_by_buffer = {name: f"c{class_}" for name, class_ in places.class_by_buffer.items()}
    rows = tuple((places.result(body), _renamed(body, name_by_buffer)) for body in bodies.values())
    places.class_by_buffer.update(zip(bodies, (class_ for class_, _ in rows), strict=True))
    return rows


def _loads(rows: _Rows) -> set[int]:
    return {int(leaf.attrs[0][1:]) for leaf in operands_of(*(body for _, body in rows))}


def _number(step: Step, rows: _Rows, wanted: Set[int], problem: Problem[Candidate], free: frozenset[int]) -> int:
    """Return the candidate behind a step, which writes no other of the `wanted` classes.

    One that is not among those enumerated today joins them.
    """
    if isinstance(step, Kernel):
        template, estimate = step.template, step.estimate
    else:
        template, estimate = VIEW if isinstance(step, View) else JOIN, Estimate(0.0, 0.0, 0.0)

    def is_behind(candidate: Candidate) -> bool:
        written = {(class_, body) for class_, body in candidate.bodies if class_ in wanted}
        return candidate.template == template and written == set(rows)

    found = [n for n in problem.by_class.get(rows[0][0], ()) if is_behind(problem.candidates[n])]
    if found:
        return min(found, key=lambda n: (abs(problem.cost(n) - estimate.seconds), len(problem.candidates[n].bodies)))
    problem.candidates.append(Candidate(rows, frozenset(_loads(rows)) - free, template, estimate))
    for class_, _ in rows:
        problem.by_class.setdefault(class_, []).append(len(problem.candidates) - 1)
    problem.covers = ()
    return len(problem.candidates) - 1


@dataclass
class _Places:
    """Finds the classes of terms over buffers; those of buffers are noted as they are met."""

    snapshot: Snapshot
    class_by_buffer: dict[str, int]
    _class_by_term: dict[Term, int] = field(default_factory=dict[Term, int])

    def __post_init__(self) -> None:
        self._class_by_node = {
            _key(node.op, node.sort, node.args, node.attrs): class_
            for class_, nodes in enumerate(self.snapshot.nodes)
            for node in nodes
        }

    def class_of(self, root: Term) -> int:
        """Return the class that has a term.

        Raises: ExtractionError if there is none.
        """
        for term in walk(root):
            if term not in self._class_by_term:
                found = self._find(term)
                if found is None:
                    raise ExtractionError(
                        f"the e-graph has no node {term!r} of a program from the cache",
                        do="optimize with an empty cache folder, or clear it: `frittata cache clear`",
                    )
                self._class_by_term[term] = found
        return self._class_by_term[root]

    def result(self, body: Term) -> int:
        """Return the class of what a body computes: that of its node, or one that is loaded as its element."""
        if body.op == "build":
            element = self.class_of(body.args[0])
            loaded = (node.args[0] for node in self.snapshot.nodes[element] if node.op == "load")
            stored = next((tensor for tensor in loaded if self.snapshot.types[tensor] == body.type), None)
            if self._find(body) is None and stored is not None:
                return stored
        return self.class_of(body)

    def _find(self, term: Term) -> int | None:
        if term.op == "input":
            return self.class_by_buffer.get(term.attrs[0])
        args = tuple(self._class_by_term[arg] for arg in term.args)
        return self._class_by_node.get(_key(term.op, term.sort, args, term.attrs))


def _key(op: str, sort: str, args: tuple[int, ...], attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    return op, sort, args, tuple(map(interning.intern, attrs))


def _sources(step: Step) -> tuple[str, ...]:
    """Return the buffers that a view or a join is of."""
    assert not isinstance(step, Kernel)
    return (step.source,) if isinstance(step, View) else step.parts


def _renamed(body: Term, name_by_leaf: Mapping[str, str]) -> Term:
    def replace(term: Term, args: tuple[Term, ...]) -> Term:
        attrs = (name_by_leaf[term.attrs[0]], *term.attrs[1:]) if term.op == "input" else term.attrs
        return registry.make(term.op, term.sort, args, attrs)

    return rebuild(body, replace)
