"""The integer program of one region, solved by HiGHS under a limit of processor time.

Binary x_n chooses candidate n; y_c, which becomes integral by itself, says that class c is produced, and z_nc <= x_n
that users of c take it from n; z is x for a candidate that produces only c. A needed class has y = 1; y_c = sum of z
over the candidates of c; those that load d sum to at most y_d, for one producer of c suffices. Covers sum to 1 at
least. That no class waits for itself is cut lazily, first in the relaxation: among classes S one is produced first, so
for each j in S the candidates of S that load nothing in S sum to y_j at least.
Source: loop formulas of answer set programming, Lin and Zhao, 2004.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from frittata.extract import check
from frittata.extract.chains import chains_below
from frittata.extract.greedy import made_at_once
from frittata.extract.problem import Problem, components, derive, edges, restricted

Array = np.ndarray[Any, np.dtype[Any]]

_SCALE = 1e3
"""What the first choice costs in the units of the program, whose tolerances are absolute."""

_RELAXATIONS = 40
_RELAXED_SHARE = 0.4
_BRANCH_LEAST = 10
"""So many times what one relaxation takes must be left: at its root node HiGHS rarely looks at the time."""

_FEW = 3
"""To choose among so large a part of the candidates, one of so many, is no easier than among all."""

_TAKEN = 0.01
_GATHERED_SHARE = 0.3

_SLOWEST = 8.0
"""HiGHS ends after so many times what its processor time may be, where it does not ask whether it should."""

GAP = 1e-9
"""What is left to rounding, as a share of the cost."""

_THRESHOLDS = (0.5, 0.1, 1e-6)
_SETS_AT_ONCE = 200


@dataclass(frozen=True)
class Solution:
    """A choice of candidates, its cost and a lower bound on that of all, both in the unit of the candidates' costs."""

    chosen: frozenset[int]
    cost: float
    bound: float

    def is_within(self, gap: float) -> bool:
        """Whether no choice is cheaper by more than this share of the cost."""
        return self.bound >= self.cost * (1 - gap)

    @property
    def gap(self) -> float:
        """How far the cost may be from the optimum over the candidates, as a share of the cost."""
        return 0.0 if self.is_within(GAP) else 1 - self.bound / self.cost


def minimize(problem: Problem[Any], start: Iterable[int], deadline: float, enough: float = GAP) -> Solution:
    """Improve on a valid choice until its gap is small enough or the time is up."""
    first = frozenset(start)
    cost = check.cost(problem, first)
    if not 0 < cost < np.inf or time.thread_time() >= deadline:
        return Solution(first, cost, 0.0)
    program = _Program(problem, first, cost, deadline, enough)
    if program.relax():
        program.gather()
        program.branch()
    return Solution(program.best, program.cost, min(program.bound, program.cost))


class _Limit:
    """Ends HiGHS where it asks, once the thread has had its processor time: other work takes none of it away."""

    deadline = np.inf

    def asked(self, kind: Any, message: str, out: Any, answer: Any, _: Any) -> None:
        """Say whether to go on."""
        if time.thread_time() > self.deadline:
            answer.user_interrupt = True


class _Program:
    """One HiGHS model, the best choice so far and the best bound."""

    def __init__(
        self, problem: Problem[Any], first: frozenset[int], cost: float, deadline: float, enough: float
    ) -> None:
        self.problem, self.best, self.cost, self.deadline, self.enough = problem, first, cost, deadline, enough
        self.bound = simple_bound(problem)
        self.unit = cost / _SCALE
        self.numbers = problem.numbers()
        self.classes = list(problem.by_class)
        self.column = {n: i for i, n in enumerate(self.numbers)}
        self.y = {c: len(self.numbers) + i for i, c in enumerate(self.classes)}
        self.z = self._shares()
        self.values = self.duals = np.zeros(0)
        """Of the last relaxation."""
        self.begun = time.thread_time()
        self.solver = highspy.Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", enough), ("mip_abs_gap", 1e-7)):
            self.solver.setOptionValue(option, value)
        self.limit = _Limit()
        self.solver.setCallback(self.limit.asked, None)
        for kind in ("kCallbackMipInterrupt", "kCallbackSimplexInterrupt"):
            self.solver.startCallback(getattr(highspy.cb.HighsCallbackType, kind))
        self._pass_model()

    def relax(self) -> bool:
        """Solve the relaxation and cut its cycles, for a bound, choices near it, and candidates that cannot pay.

        Return whether it was so quick that branching on it can lead somewhere.
        """
        limit = self.begun + _RELAXED_SHARE * (self.deadline - self.begun)
        quick = False
        for _ in range(_RELAXATIONS):
            now = time.thread_time()
            if not self._run(limit) or self.solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                return quick
            spent = time.thread_time() - now
            quick = quick or _BRANCH_LEAST * spent < self.deadline - now
            self.bound = max(self.bound, self.solver.getInfo().objective_function_value * self.unit)
            solution = self.solver.getSolution()
            values = np.asarray(solution.col_value)
            self.values, self.duals = values, np.asarray(solution.col_dual)
            self._round(values)
            if self._is_done():
                return False
            self._fix(values, self.duals)
            if not self._cut(values):
                break
        return quick

    def gather(self) -> None:
        """Choose among what the relaxation takes a share of, and the best choice so far.

        Source: Danna, Rothberg and Le Pape, Exploring relaxation induced neighborhoods to improve MIP solutions, 2005.
        """
        taken = self.best.union(n for n, i in self.column.items() if self.values[i] > _TAKEN)
        now = time.thread_time()
        if _FEW * len(taken) < len(self.numbers):
            limit = now + _GATHERED_SHARE * (self.deadline - now)
            self._offer(minimize(restricted(self.problem, taken), self.best, limit, self.enough).chosen)
            self._fix(self.values, self.duals)

    def branch(self) -> None:
        """Solve the integer program; where the answer has a cycle, cut it and solve again."""
        count = len(self.numbers)
        columns = np.arange(count, dtype=np.int32)
        self.solver.changeColsIntegrality(count, columns, np.full(count, highspy.HighsVarType.kInteger))
        while not self._is_done():
            values = self._values(self.best)
            start = highspy.HighsSolution()
            start.col_value = values.tolist()
            self.solver.setSolution(start)
            if not self._run(self.deadline):
                return
            info = self.solver.getInfo()
            if np.isfinite(info.mip_dual_bound):
                self.bound = max(self.bound, info.mip_dual_bound * self.unit)
            if info.primal_solution_status != highspy.kSolutionStatusFeasible:
                return
            values = np.asarray(self.solver.getSolution().col_value)
            chosen = {n for n, i in self.column.items() if values[i] > 0.5}
            if len(derive(self.problem, chosen)) == len(chosen):
                self._offer(self._pruned(chosen))
                return
            self._round(values)
            if not self._cut(values):
                return

    def _is_done(self) -> bool:
        return self.bound >= self.cost * (1 - self.enough)

    def _run(self, deadline: float) -> bool:
        left = deadline - time.thread_time()
        if left <= 0.01:
            return False
        self.limit.deadline = deadline
        self.solver.setOptionValue("time_limit", self.solver.getRunTime() + _SLOWEST * left)
        self.solver.run()
        return True

    def _shares(self) -> dict[tuple[int, int], int]:
        """Return the columns of candidates as producers of each of their classes, where they have several."""
        produced = ((n, [c for c in self.problem.candidates[n].produces if c in self.y]) for n in self.numbers)
        pairs = [(n, c) for n, classes in produced if len(classes) > 1 for c in classes]
        return {pair: len(self.numbers) + len(self.classes) + i for i, pair in enumerate(pairs)}

    def _values(self, chosen: Iterable[int]) -> Array:
        values = np.zeros(len(self.numbers) + len(self.classes) + len(self.z))
        for number in derive(self.problem, chosen):
            values[self.column[number]] = 1.0
            for class_ in self.problem.candidates[number].produces:
                if class_ in self.y and not values[self.y[class_]]:
                    values[self.y[class_]] = 1.0
                    values[self.z.get((number, class_), self.column[number])] = 1.0
        return values

    def _pruned(self, chosen: set[int]) -> set[int]:
        """Keep one producer of each class, and what the roots reach."""
        choice: dict[int, int] = {}
        for number in derive(self.problem, chosen):
            for class_ in self.problem.candidates[number].produces:
                choice.setdefault(class_, number)
        return check.needed(self.problem, choice)

    def _round(self, values: Array) -> None:
        """Offer a choice made at once where what the relaxation chose is cheap."""
        chosen = made_at_once(
            self.problem, lambda n: self.problem.cost(n) * max(0.0, 1 - values[self.column[n]]) + 1e-6 * self.unit
        )
        self._offer(chosen)

    def _offer(self, chosen: Set[int]) -> None:
        cost = check.cost(self.problem, chosen)
        if cost < self.cost:
            self.best, self.cost = frozenset(chosen), cost

    def _fix(self, values: Array, duals: Array) -> None:
        """Exclude candidates with which the bound would exceed the best cost."""
        count = len(self.numbers)
        slack = (self.cost - self.bound) / self.unit + 1e-6
        out = np.flatnonzero((values[:count] < 1e-9) & (duals[:count] > slack)).astype(np.int32)
        keep = [i for i in out if self.numbers[i] not in self.best]
        if keep:
            zeros = np.zeros(len(keep))
            self.solver.changeColsBounds(len(keep), np.asarray(keep, np.int32), zeros, zeros)

    def _cut(self, values: Array) -> bool:
        """Add the loop formulas that the values violate; tell whether there are any."""
        before = self.solver.getNumRow()
        seen: set[frozenset[int]] = set()
        for threshold in _THRESHOLDS:
            for classes in self._loops(values, threshold):
                if len(seen) < _SETS_AT_ONCE and frozenset(classes) not in seen:
                    seen.add(frozenset(classes))
                    self._add_formula(classes, values)
        return self.solver.getNumRow() > before

    def _loops(self, values: Array, threshold: float) -> list[list[int]]:
        """Return sets of classes that wait for each other if only candidates above the threshold are taken."""
        taken = [n for n, i in self.column.items() if values[i] > threshold]
        derived = derive(self.problem, taken)
        done = {c for n in derived for c in self.problem.candidates[n].produces}
        waits: dict[int, set[int]] = {}
        for number in set(taken).difference(derived):
            for class_ in self.problem.candidates[number].produces:
                if class_ in self.y and class_ not in done:
                    waits.setdefault(class_, set()).update(self.problem.loads(number) - done)
        found = components(waits)
        group = {class_: i for i, members in enumerate(found) for class_ in members}
        return [
            members
            for i, members in enumerate(found)
            if all(group.get(load, i) == i for class_ in members for load in waits[class_])
        ]

    def _pairs(self) -> list[list[int]]:
        """Return the classes that may wait for each other two by two: most loops of an e-graph."""
        loads = edges(self.problem)
        return [[c, d] for c, others in loads.items() for d in sorted(others) if c < d and c in loads[d]]

    def _first(self, classes: list[int]) -> list[int]:
        """Return the columns of candidates for some of the classes that load none of them."""
        inside = set(classes)
        first = {n for c in classes for n in self.problem.by_class[c] if not self.problem.loads(n) & inside}
        return sorted(self.column[n] for n in first)

    def _add_formula(self, classes: list[int], values: Array) -> None:
        columns = self._first(classes)
        sum_ = values[columns].sum()
        wanted = sorted(classes, key=lambda c: (-values[self.y[c]], c))[:8]
        for class_ in wanted:
            if values[self.y[class_]] > sum_ + 1e-6:
                indices = np.array([*columns, self.y[class_]], np.int32)
                ones = np.array([1.0] * len(columns) + [-1.0])
                self.solver.addRow(0.0, highspy.kHighsInf, len(indices), indices, ones)

    def _pass_model(self) -> None:
        rows = _Rows()
        problem = self.problem
        for class_, numbers in problem.by_class.items():
            shares = {n: self.z.get((n, class_), self.column[n]) for n in numbers}
            rows.add(list(shares.values()), self.y[class_], 0.0, 0.0)
            users: dict[int, list[int]] = {}
            for number, column in shares.items():
                for load in problem.loads(number):
                    users.setdefault(load, []).append(column)
            for load, columns in users.items():
                if load not in problem.roots:
                    rows.add([self.y[class_]] if len(columns) == len(numbers) else columns, self.y[load], -np.inf, 0.0)
        of_candidate: dict[int, list[int]] = {}
        for (number, _), column in self.z.items():
            of_candidate.setdefault(self.column[number], []).append(column)
            rows.add([column], self.column[number], -np.inf, 0.0)
        for column, shared in of_candidate.items():
            rows.add(shared, column, 0.0, np.inf)
        for cover in problem.covers:
            rows.add([self.column[n] for n in cover], None, 1.0, np.inf)
        for pair in self._pairs():
            first = self._first(pair)
            for class_ in pair:
                rows.add(first, self.y[class_], 0.0, np.inf)
        model = highspy.HighsLp()
        count = len(self.numbers) + len(self.classes) + len(self.z)
        costs, least = np.zeros(count), np.zeros(count)
        costs[: len(self.numbers)] = [problem.cost(n) / self.unit for n in self.numbers]
        least[[self.y[root] for root in problem.roots]] = 1.0
        model.num_col_, model.num_row_ = count, len(rows.lower)
        model.col_cost_, model.col_lower_ = costs, least
        model.col_upper_ = np.ones(count)
        model.row_lower_, model.row_upper_ = np.array(rows.lower), np.array(rows.upper)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.array(rows.starts, np.int32)
        model.a_matrix_.index_ = np.array(rows.columns, np.int32)
        model.a_matrix_.value_ = np.array(rows.values)
        self.solver.passModel(model)


def simple_bound(problem: Problem[Any]) -> float:
    """Return a bound without a program: the dearest chain, or the cheapest candidate of each needed class."""
    below = chains_below(problem)
    chain = max(below[root] for root in problem.roots)
    if any(len(problem.candidates[n].produces) > 1 for root in problem.roots for n in problem.by_class[root]):
        return chain
    return max(chain, sum(min(map(problem.cost, problem.by_class[root])) for root in problem.roots))


class _Rows:
    """Rows of the form: sum of columns, minus one column if it is given, between bounds."""

    def __init__(self) -> None:
        self.starts, self.columns, self.values = [0], list[int](), list[float]()
        self.lower, self.upper = list[float](), list[float]()

    def add(self, columns: list[int], minus: int | None, lower: float, upper: float) -> None:
        """Append a row."""
        self.columns += columns if minus is None else [*columns, minus]
        self.values += [1.0] * len(columns) + [-1.0] * (minus is not None)
        self.starts.append(len(self.columns))
        self.lower.append(lower)
        self.upper.append(upper)
