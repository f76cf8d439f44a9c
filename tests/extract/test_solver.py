"""The solver against brute force, on random problems."""

import time
from itertools import product

import numpy as np
import pytest

from frittata.egraph.program import Estimate
from frittata.extract import check, neighbourhoods
from frittata.extract.candidates import Candidate
from frittata.extract.exact import solve
from frittata.extract.greedy import completed, greedy
from frittata.extract.integer import Solution
from frittata.extract.problem import Problem, Way
from frittata.extract.regions import cut, necessary


def random_problem(seed: int) -> Problem[Candidate]:
    """Classes 0 .. n-1, cyclic loads and kernels with several outputs included."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 7))
    problem: Problem[Candidate] = Problem(
        frozenset({0} | {int(c) for c in rng.integers(0, count, int(rng.integers(0, 2)))})
    )
    for class_ in range(count):
        for number in range(int(rng.integers(1, 4))):
            loads = {int(c) for c in rng.integers(0, count, int(rng.integers(0, 3)))} if number else set()
            if not number:
                loads = {int(c) for c in range(class_ + 1, count) if rng.random() < 0.4}
            produces = {class_} | ({int(rng.integers(0, count))} if number and rng.random() < 0.2 else set())
            if loads & produces:
                continue
            estimate = Estimate(float(rng.integers(1, 20)) * 1e-6, 0, 0)
            bodies = tuple((c, None) for c in sorted(produces, key=lambda c: c != class_))
            problem.candidates.append(Candidate(bodies, frozenset(loads), "any", estimate))  # type: ignore[arg-type]
    problem.by_class = {c: [n for n, k in enumerate(problem.candidates) if c in k.produces] for c in range(count)}
    return problem


def brute_force(problem: Problem[Candidate]) -> float:
    best = float("inf")
    for chosen in product((False, True), repeat=len(problem.candidates)):
        numbers = [n for n, taken in enumerate(chosen) if taken]
        price = check.cost(problem, numbers)
        if price < best and check.is_valid(problem, numbers):
            best = price
    return best


@pytest.mark.parametrize("seed", range(60))
def test_exact_is_optimal_and_never_worse_than_greedy(seed: int) -> None:
    problem = random_problem(seed)
    first = greedy(problem)
    assert check.is_valid(problem, first)
    solution = solve(problem, first, 5.0)
    best = brute_force(problem)
    assert check.is_valid(problem, solution.chosen)
    assert solution.cost == pytest.approx(best)
    assert solution.cost <= check.cost(problem, first) + 1e-15
    assert solution.bound <= best + 1e-12


def test_what_is_shared_at_every_depth_is_not_computed_again() -> None:
    """The last class is had from all below at a price, or from what is stored of it twice."""
    depth, price = 12, 1e-6
    found: Problem[Way] = Problem(frozenset({depth + 1}), [Way((0,), frozenset(), price)], {0: [0]})

    def add(class_: int, loads: set[int], cost: float) -> None:
        found.by_class.setdefault(class_, []).append(len(found.candidates))
        found.candidates.append(Way((class_,), frozenset(loads), cost))

    for class_ in range(depth):
        add(100 + class_, {class_}, price)
        add(class_ + 1, {class_, 100 + class_}, price)
    add(200, {depth}, price)
    add(depth + 1, {depth, 200}, price)
    add(depth + 1, {depth}, 50 * price)
    chosen = greedy(found)
    assert check.is_valid(found, chosen)
    assert check.cost(found, chosen) == pytest.approx((2 * depth + 3) * price)
    (lowest,) = found.by_class[1]
    assert completed(found, chosen - {lowest}) == chosen


@pytest.mark.parametrize("seed", range(20))
def test_regions_hold_every_necessary_class_once(seed: int) -> None:
    problem = random_problem(seed)
    needed = [c for region in cut(problem, necessary(problem)) for c in region.roots]
    assert sorted(needed) == sorted(necessary(problem))


def test_a_choice_is_improved_in_which_two_kernels_produce_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of them needs what is computed from what the first produces."""
    for name in ("_FIRST_SIZE", "_LEAST_SIZE"):
        monkeypatch.setattr(neighbourhoods, name, 1)
    found: Problem[Candidate] = Problem(frozenset({0}))
    made = ((1,), ()), ((2,), (1,)), ((0, 1), (2,))
    for produces, loads in made:
        bodies = tuple((class_, None) for class_ in produces)
        found.candidates.append(Candidate(bodies, frozenset(loads), "any", Estimate(1e-6, 0, 0)))  # type: ignore[arg-type]
    found.by_class = {0: [2], 1: [0, 2], 2: [1]}
    start = Solution(frozenset({0, 1, 2}), 3e-6, 0.0)
    improved = neighbourhoods.improve(found, start, time.thread_time() + 60, 0.0, 8)
    assert improved.chosen == {0, 1, 2}


def test_a_neighbourhood_that_is_everything_has_a_bound_and_is_the_last() -> None:
    ways = [Way((0,), frozenset({1}), 1.0), Way((1,), frozenset(), 2.0), Way((0,), frozenset(), 4.0)]
    found = Problem(frozenset({0}), ways, {0: [0, 2], 1: [1]})
    improved = neighbourhoods.improve(found, Solution(frozenset({2}), 4.0, 0.0), time.thread_time() + 60, 0.0)
    assert improved.chosen == {0, 1} and improved.bound == pytest.approx(improved.cost)
