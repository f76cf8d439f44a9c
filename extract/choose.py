"""Extraction as a whole: from a saturated e-graph to the program that costs least."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field, replace

from frittata.egraph.errors import ExtractionError
from frittata.egraph.machine import Machine
from frittata.egraph.ops import externs, registry
from frittata.egraph.program import Estimate, Join, Kernel, Output, Program, Step, Template, View, operands_of
from frittata.egraph.snapshot import Node, Snapshot
from frittata.egraph.terms import TensorType, Term, rebuild, walk
from frittata.extract import check, groups
from frittata.extract.bands import choose_bands
from frittata.extract.candidates import JOIN, VIEW, Candidate, Enumerator
from frittata.extract.collect import collect
from frittata.extract.constants import Folder
from frittata.extract.cuts import Cuts, everywhere, find_cuts
from frittata.extract.exact import solve
from frittata.extract.greedy import completed, greedy
from frittata.extract.integer import Solution
from frittata.extract.joins import Settlement, Settler
from frittata.extract.prices import Prices
from frittata.extract.pricing import Spread
from frittata.extract.problem import Problem, restricted
from frittata.extract.views import view_offset

log = logging.getLogger("frittata")

_CONTRACTION_NAMES = {"window_dot": "conv", "winograd_dot": "conv_winograd", "attend": "attention", "dot": "matmul"}
"""What kernels are called after."""

ENOUGH = 1e-3
"""The gap with which a choice is taken: no price is right to a thousandth."""

ENOUGH_AGAIN = 5e-3
"""The same where joins turned out to cost something: to prove more takes long and gains little."""

_USUAL_S = 6.0
"""Where it takes longer to find the candidates, the search among them may be as much longer."""

_SHARE_AT_FIRST = 0.4
"""Of the time, for the first choice: another may be needed once it is known what joins cost."""

_SHARE_AGAIN = 0.5
"""Of the time that is left, for making a choice anew: more such choices may follow."""

_SHARE_FREE = 0.4
"""Of the time, in which joins that were refused may be replaced by others; after it there are no new ones."""

_MOST_REPRICED = 5
"""How often a choice is made anew because joins turned out to cost something."""


@dataclass
class Extraction:
    """The chosen program and how it was found: candidates, choice, costs in seconds, and seconds by activity."""

    program: Program
    problem: Problem[Candidate]
    chosen: tuple[int, ...]
    solution: Solution
    greedy_cost_s: float
    seconds: dict[str, float]


@dataclass(frozen=True)
class _Tried:
    """A choice as a program: the problem where its joins cost what they were seen to, and the joins that cannot be."""

    problem: Problem[Candidate]
    solution: Solution
    program: Program
    settled: Settlement
    wrong: set[int]


def extract(
    snapshot: Snapshot,
    inputs: tuple[Term, ...],
    outputs: tuple[Term, ...],
    templates: tuple[Template, ...],
    machine: Machine,
    rule_names: dict[int, str],
    time_limit_s: float = 3.0,
    prices: Prices | None = None,
    spread: Spread | None = None,
) -> Extraction:
    """Choose the program for `outputs`, which are terms of the imported model.

    `prices` are what kernels were found to take. With `spread` candidates are priced in several processes. The search
    may take so many seconds of processor time: to wait for other processes does not count.

    Raises: ExtractionError if some output has no legal program.
    """
    start, begun = time.perf_counter(), time.thread_time()
    folder = Folder(snapshot)
    roots = [snapshot.class_by_term[term] for term in outputs]
    problem, _ = enumerate_candidates(snapshot, folder, inputs, roots, templates, machine, prices, spread)

    settler = Settler(templates, machine)

    def tried(problem: Problem[Candidate], solution: Solution) -> _Tried:
        program = build_program(snapshot, folder, rule_names, inputs, roots, problem, solution)
        return _tried(program, problem, solution, settler.settle(program))

    enumerated, now = time.perf_counter(), time.thread_time()
    limit_s = time_limit_s * max(1.0, (now - begun) / _USUAL_S)
    late, deadline = now + _SHARE_FREE * limit_s, now + limit_s
    first = greedy(problem)
    solution = solve(problem, first, _SHARE_AT_FIRST * limit_s, ENOUGH)
    repriced = 0
    best: _Tried | None = None
    while True:
        found = tried(problem, solution)
        refused = found.wrong | _too_dear(found.problem, found.solution, first)
        if not refused and (best is None or found.solution.cost < best.solution.cost):
            best = found
        gap = found.solution.gap
        if refused:
            is_late = time.thread_time() > late
            out = refused | (_joins_of(problem, problem.numbers()) - solution.chosen if is_late else set())
            problem = _without(problem, out)
        elif gap > max(solution.gap, ENOUGH) and repriced < _MOST_REPRICED and time.thread_time() < deadline:
            problem = found.problem  # perhaps another choice is better now
            repriced += 1
        else:
            break
        first = greedy(problem)
        near = min(first, completed(problem, solution.chosen), key=lambda chosen: check.cost(problem, chosen))
        again = solve(problem, near, (deadline - time.thread_time()) * _SHARE_AGAIN, ENOUGH_AGAIN)
        solution = replace(again, bound=max(again.bound, solution.bound))  # joins were refused or made dearer
    assert best is not None
    at_once = _greedy(best.problem, best.solution.bound, tried)
    best = min(best, at_once, key=lambda one: one.solution.cost)
    problem, solution, settled = best.problem, best.solution, best.settled
    steps = tuple(settled.kernel_by_name.get(step.name, step) for step in best.program.steps)
    program = replace(best.program, steps=steps, cost_s=solution.cost, gap=solution.gap)
    program = replace(program, bands=choose_bands(program, templates, machine))
    solved = time.perf_counter()
    seconds = {"enumerate": enumerated - start, "solve": solved - enumerated}
    chosen = tuple(check.order(problem, solution.chosen))
    return Extraction(program, problem, chosen, solution, at_once.solution.cost, seconds)


def _greedy(
    problem: Problem[Candidate], bound: float, tried: Callable[[Problem[Candidate], Solution], _Tried]
) -> _Tried:
    """Return the choice made at once, without the joins that cannot be in it, at what the others cost."""
    while True:
        chosen = frozenset(greedy(problem))
        found = tried(problem, Solution(chosen, check.cost(problem, chosen), bound))
        if not found.wrong:
            return found
        problem = _without(problem, found.wrong)


def enumerate_candidates(
    snapshot: Snapshot,
    folder: Folder,
    inputs: tuple[Term, ...],
    roots: list[int],
    templates: tuple[Template, ...],
    machine: Machine,
    prices: Prices | None = None,
    spread: Spread | None = None,
) -> tuple[Problem[Candidate], frozenset[int]]:
    """Return the problem of choice for the classes `roots`, and the classes that cost nothing to have.

    Raises: ExtractionError if some root has no legal program.
    """
    snapshot, constants = snapshot.proper(), folder.classes()
    free = constants | {snapshot.class_by_term[term] for term in inputs if term in snapshot.class_by_term}
    known = prices or Prices()
    parts = groups.parts_of(snapshot, free)

    def found(cuts: Cuts, wanted: groups.Parts) -> Problem[Candidate]:
        enumerator = Enumerator(snapshot, templates, machine, constants, free, groups.fused(cuts, wanted), known)
        return groups.admitted(collect(enumerator, roots, spread), wanted)

    try:
        return found(find_cuts(snapshot, roots), parts), free
    except ExtractionError as error:  # the analysis of cuts is a heuristic
        log.info("extract: all tensors may be stored, which takes long; with fewer there is no program: %s", error)
    problem = found(everywhere(snapshot), {})
    for group, classes in parts.items():
        with groups.blamed(group, snapshot):
            problem = found(everywhere(snapshot), {group: classes})
    return found(everywhere(snapshot), parts) if len(parts) > 1 else problem, free


def _tried(program: Program, problem: Problem[Candidate], solution: Solution, settled: Settlement) -> _Tried:
    """Let joins bear the most that they were seen to make dearer: bounds remain bounds, and the search ends."""
    order = check.order(problem, solution.chosen)
    number_by_join = {step.name: n for step, n in zip(program.steps, order, strict=True) if isinstance(step, Join)}
    candidates = list(problem.candidates)
    for join, number in number_by_join.items():
        most = max(settled.extra_by_join.get(join, 0.0), problem.cost(number))
        candidates[number] = replace(candidates[number], estimate=Estimate(most, 0.0, 0.0))
    priced = replace(problem, candidates=candidates)
    cost = check.cost(priced, solution.chosen)
    wrong = {number_by_join[join] for join in settled.wrong}
    return _Tried(priced, Solution(solution.chosen, cost, min(solution.bound, cost)), program, settled, wrong)


def _without(problem: Problem[Candidate], numbers: Set[int]) -> Problem[Candidate]:
    return restricted(problem, (number for number in problem.numbers() if number not in numbers))


def _too_dear(problem: Problem[Candidate], solution: Solution, start: Iterable[int]) -> set[int]:
    """Return the chosen joins that cost more than a kernel; all that cost anything if the greedy choice is cheaper."""
    joins = {n for n in _joins_of(problem, solution.chosen) if problem.cost(n) > 0}
    if solution.cost > check.cost(problem, start):
        return joins
    return {n for n in joins if problem.cost(n) >= _least_kernel_s(problem, n)}


def _joins_of(problem: Problem[Candidate], numbers: Iterable[int]) -> set[int]:
    return {n for n in numbers if problem.candidates[n].template == JOIN}


def _least_kernel_s(problem: Problem[Candidate], join: int) -> float:
    """Return the least price of a kernel that does what a join does."""
    numbers = problem.by_class[problem.candidates[join].produces[0]]
    kernels = (n for n in numbers if problem.candidates[n].template != JOIN)
    return min(map(problem.cost, kernels), default=float("inf"))


def build_program(
    snapshot: Snapshot,
    folder: Folder,
    rule_names: dict[int, str],
    inputs: tuple[Term, ...],
    roots: list[int],
    problem: Problem[Candidate],
    solution: Solution,
) -> Program:
    """Write a valid choice as a program.

    Raises: ExtractionError if the choice is not valid.
    """
    given = {snapshot.class_by_term[term]: term for term in inputs if term in snapshot.class_by_term}
    chosen = [problem.candidates[number] for number in check.order(problem, solution.chosen)]
    return _Builder(snapshot, folder, rule_names, given).program(inputs, roots, chosen, solution)


@dataclass
class _Builder:
    """Names buffers and kernels, and writes bodies over the buffers' names."""

    snapshot: Snapshot
    folder: Folder
    rule_names: dict[int, str]
    input_by_class: dict[int, Term]
    name_by_class: dict[int, str] = field(default_factory=dict[int, str])
    constants: dict[str, Term] = field(default_factory=dict[str, Term])
    taken: dict[str, int] = field(default_factory=dict[str, int])
    wanted: set[int] = field(default_factory=set[int])

    def program(
        self, inputs: tuple[Term, ...], roots: list[int], chosen: list[Candidate], solution: Solution
    ) -> Program:
        for term in inputs:
            self.taken[term.attrs[0]] = 1
        for class_, term in self.input_by_class.items():
            self.name_by_class[class_] = term.attrs[0]
        self.wanted = set(roots).union(*(candidate.loads for candidate in chosen))
        steps = [self._step(candidate) for candidate in chosen]
        types = {term.attrs[0]: TensorType(term.shape, term.dtype) for term in inputs}
        names = tuple(self._name(class_) for class_ in roots)
        return Program(types, self.constants, tuple(steps), names, solution.cost, solution.gap)

    def _step(self, candidate: Candidate) -> Step:
        if candidate.template in (VIEW, JOIN):
            ((class_, body),) = candidate.bodies
            written = self._written(body)
            name = self.name_by_class[class_] = self._fresh(candidate.template)
            if candidate.template == JOIN:
                return Join(name, written)
            assert isinstance(body.type, TensorType)
            (source,) = operands_of(written)
            return View(name, source.attrs[0], body.type, view_offset(body) or 0)
        written = [(class_, self._written(body)) for class_, body in candidate.bodies if class_ in self.wanted]
        label = self._fresh(self._label(candidate))
        outputs: list[Output] = []
        for i, (class_, body) in enumerate(written):
            name = self.name_by_class[class_] = label if i == 0 else self._fresh(f"{label}_also")
            outputs.append(Output(name, body))
        operands = tuple(leaf.attrs[0] for leaf in operands_of(*(body for _, body in written)))
        rules = tuple(sorted(self.rule_names[r] for r in candidate.rules if r))
        return Kernel(label, candidate.template, tuple(outputs), operands, candidate.estimate, rules)

    def _written(self, body: Term) -> Term:
        def replace(term: Term, args: tuple[Term, ...]) -> Term:
            if term.op == "input":
                return registry.make("input", "tensor", (), (self._name(int(term.attrs[0][1:])), *term.attrs[1:]))
            return registry.make(term.op, term.sort, args, term.attrs)

        return rebuild(body, replace)

    def _name(self, class_: int) -> str:
        if class_ not in self.name_by_class:
            term = self.folder.term(class_)
            name = self._fresh(str(term.attrs[0]).replace(".", "_") if term.op == "param" else "folded")
            self.name_by_class[class_] = name
            self.constants[name] = term
        return self.name_by_class[class_]

    def _fresh(self, stem: str) -> str:
        count = self.taken[stem] = self.taken.get(stem, 0) + 1
        if count == 1:
            return stem
        name = f"{stem}_{count}"
        if name in self.taken:
            return self._fresh(stem)
        self.taken[name] = 1
        return name

    def _label(self, candidate: Candidate) -> str:
        """Name a kernel after its binders and the operator of its result: `matmul_relu`.

        One that only changes the layout does not compute what its result was imported as.
        """
        class_, body = candidate.bodies[0]
        parts = [part for op, part in _CONTRACTION_NAMES.items() if _mentions(body, op)][:1]
        nodes = [node for _, node in self.snapshot.forms(class_) if node.op != "build"]
        back = [node for node in nodes if node.op == "channels_first" and node.args[0] in candidate.loads]
        nodes = back or nodes
        nodes.sort(key=lambda node: (node.rule != 0, registry.get(node.op).pointwise, node.rule))
        result = _called(nodes[0]) if nodes else body.args[0].op
        if result not in parts:
            parts.append(result)
        return "_".join(parts)


def _called(node: Node) -> str:
    """Return the name of an operator, or of the function that an extern calls."""
    return externs.label_of(node.attrs[0]) if externs.is_extern(node.op) else node.op


def _mentions(body: Term, op: str) -> bool:
    return any(term.op == op for term in walk(body))
