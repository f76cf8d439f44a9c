"""The exact choice: an integer program for each region, solved by HiGHS under a time limit.

Binary x_k chooses candidate k; every needed class has a chosen producer; whoever loads a class needs one:
sum of x over the producers of c >= x_k for each k that loads c. Cycles are cut lazily: not all
of their candidates, unless one more produces a class that they wait for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import highspy
import numpy as np

from frittata.extract import check
from frittata.extract.problem import Problem
from frittata.extract.regions import Region, cut, necessary, signature

_CYCLE_ROUNDS = 20


@dataclass(frozen=True)
class Solution:
    """A choice of candidates, its cost and a lower bound, both in seconds."""

    chosen: frozenset[int]
    cost_s: float
    bound_s: float

    @property
    def gap(self) -> float:
        """How far the cost may be from the optimum over the enumerated candidates, as a share of the cost."""
        return 0.0 if self.cost_s <= 0 else max(0.0, 1 - self.bound_s / self.cost_s)


def solve(problem: Problem, start: set[int], time_limit_s: float) -> Solution:
    """Improve on a valid choice, region by region; never return a worse one."""
    deadline = time.perf_counter() + time_limit_s
    fixed = necessary(problem)
    given = check.cost(problem, start)
    found = _solve_regions(problem, cut(problem), fixed, deadline)
    if found is not None and not check.is_valid(problem, found[0]):
        everything = tuple(range(len(problem.candidates)))
        whole = Region(tuple(sorted(fixed)), everything, tuple(sorted(problem.by_class)))
        found = _solve_regions(problem, [whole], fixed, deadline)  # a cycle ran through several regions
    if found is None:
        return Solution(frozenset(start), given, 0.0)
    chosen, bound = found
    price = check.cost(problem, chosen)
    if not check.is_valid(problem, chosen) or price > given:
        return Solution(frozenset(start), given, min(bound, given))
    return Solution(frozenset(chosen), price, min(bound, price))


def _solve_regions(
    problem: Problem, regions: list[Region], fixed: set[int], deadline: float
) -> tuple[set[int], float] | None:
    """Return the choice and a lower bound in seconds; None if some region found no solution in time."""
    chosen: set[int] = set()
    bound = 0.0
    solved: dict[object, tuple[tuple[int, ...], float] | None] = {}
    for region in regions:
        key = signature(problem, region)
        if key not in solved:
            solved[key] = _solve_region(problem, region, fixed, deadline)
        found = solved[key]
        if found is None:
            return None
        chosen.update(region.candidates[i] for i in found[0])
        bound += found[1]
    return chosen, bound


def _solve_region(
    problem: Problem, region: Region, fixed: set[int], deadline: float
) -> tuple[tuple[int, ...], float] | None:
    """Return positions of the chosen candidates in the region and a lower bound in seconds, None without a solution."""
    position = {number: i for i, number in enumerate(region.candidates)}
    inside = set(region.classes)
    makers = {c: [position[n] for n in problem.by_class[c]] for c in region.classes}
    if all(len(makers[c]) == 1 for c in region.needed) and len(region.classes) == len(region.needed):
        chosen = tuple(sorted({makers[c][0] for c in region.needed}))
        return chosen, sum(problem.candidates[region.candidates[i]].cost for i in chosen)
    rows: list[tuple[dict[int, float], float]] = []
    for class_ in region.needed:
        rows.append((dict.fromkeys(makers[class_], 1.0), 1.0))
    for number in region.candidates:
        for class_ in problem.loads(number) & inside - fixed:
            row = dict.fromkeys(makers[class_], 1.0)
            row[position[number]] = row.get(position[number], 0.0) - 1.0
            rows.append((row, 0.0))
    costs = [problem.candidates[n].cost * 1e6 for n in region.candidates]
    for _ in range(_CYCLE_ROUNDS):
        answer = _highs(costs, rows, max(0.05, deadline - time.perf_counter()))
        if answer is None:
            return None
        chosen, bound = answer
        cycle, missing = _cycle(problem, region, chosen)
        if not cycle:
            return chosen, bound / 1e6
        others = {i for class_ in missing for i in makers[class_]} - cycle
        rows.append(({**dict.fromkeys(sorted(cycle), -1.0), **dict.fromkeys(sorted(others), 1.0)}, 1.0 - len(cycle)))
    return None


def _highs(
    costs: list[float], rows: list[tuple[dict[int, float], float]], time_limit_s: float
) -> tuple[tuple[int, ...], float] | None:
    """Minimize over binaries subject to rows >= bounds; return the chosen positions and the dual bound."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", time_limit_s)
    solver.setOptionValue("mip_rel_gap", 1e-6)
    solver.setOptionValue("threads", 1)
    count = len(costs)
    solver.addVars(count, np.zeros(count), np.ones(count))
    everyone = np.arange(count, dtype=np.int32)
    solver.changeColsCost(count, everyone, np.asarray(costs, np.float64))
    solver.changeColsIntegrality(count, everyone, np.full(count, highspy.HighsVarType.kInteger))
    for row, bound in rows:
        indices = np.fromiter(row, np.int32, len(row))
        solver.addRow(bound, highspy.kHighsInf, len(row), indices, np.fromiter(row.values(), np.float64, len(row)))
    solver.run()
    info = solver.getInfo()
    if info.primal_solution_status != highspy.kSolutionStatusFeasible:
        return None
    values = solver.getSolution().col_value
    return tuple(i for i, value in enumerate(values) if value > 0.5), float(info.mip_dual_bound)


def _cycle(problem: Problem, region: Region, chosen: tuple[int, ...]) -> tuple[set[int], set[int]]:
    """Return positions of chosen candidates that wait for each other, and the classes that they wait for."""
    waiting = set(chosen)
    inside = set(region.classes)
    done: set[int] = set()
    changed = True
    while changed:
        changed = False
        for i in sorted(waiting):
            number = region.candidates[i]
            if problem.loads(number) & inside <= done:
                done.update(problem.candidates[number].produces)
                waiting.discard(i)
                changed = True
    missing = {c for i in waiting for c in problem.loads(region.candidates[i]) & inside} - done
    return waiting, missing
