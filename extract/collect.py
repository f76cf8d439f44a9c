"""From kernel candidates to the problem of choice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from frittata.egraph.errors import ExtractionError
from frittata.egraph.ops.elements import CONTRACTIONS
from frittata.egraph.snapshot import Snapshot
from frittata.extract.candidates import Candidate, Enumerator
from frittata.extract.cuts import FOLDS
from frittata.extract.pricing import Spread
from frittata.extract.problem import Problem, derive

_MOST_LEVELS = 3
"""So many classes deep is looked for the folds and contractions that a class is computed from."""


def collect(enumerator: Enumerator, roots: Iterable[int], spread: Spread | None = None) -> Problem[Candidate]:
    """Enumerate the candidates of every class that some candidate loads, from the roots on.

    With `spread` they are priced in several processes.

    Raises: ExtractionError if a root cannot be produced.
    """
    problem: Problem[Candidate] = Problem(frozenset(roots) - enumerator.free)
    if spread is not None:
        enumerator.price(problem.roots, spread)
    seen: set[int] = set()
    known: set[frozenset[Any]] = set()
    stack = sorted(problem.roots)
    while stack:
        class_ = stack.pop()
        if class_ in seen:
            continue
        seen.add(class_)
        for candidate in enumerator.candidates(class_):
            if frozenset(candidate.bodies) in known:
                continue  # a call with several results is offered for each of them
            known.add(frozenset(candidate.bodies))
            loads = candidate.loads - enumerator.free
            problem.candidates.append(replace(candidate, loads=loads))
            stack.extend(loads - seen)
    return _solvable(problem, seen, enumerator)


def _solvable(problem: Problem[Candidate], classes: set[int], enumerator: Enumerator) -> Problem[Candidate]:
    """Drop candidates that load what nothing can produce."""
    kept = [problem.candidates[n] for n in sorted(derive(problem, range(len(problem.candidates))))]
    done = {class_ for candidate in kept for class_ in candidate.produces}
    lost = problem.roots - done
    if lost:
        class_ = _missing(problem, lost, done)
        nodes = ", ".join(map(repr, enumerator.snapshot.nodes[class_][:6]))
        raise ExtractionError(
            f"no kernel can compute a tensor of type {enumerator.snapshot.types[class_]}",
            f"e-class with nodes {nodes}",
            "rules define operators: see disable= and opt_level=; one of your own needs such a rule, or opaque=True",
        )
    by_class: dict[int, list[int]] = {class_: [] for class_ in classes if class_ in done}
    for number, candidate in enumerate(kept):
        for class_ in candidate.produces:
            if class_ in by_class:
                by_class[class_].append(number)
    return Problem(problem.roots, kept, by_class, covers=_covers(problem.roots, kept, enumerator))


def _missing(problem: Problem[Candidate], lost: Iterable[int], done: set[int]) -> int:
    """Return a class without candidates that a lost one waits for; a lost one if they wait for each other."""
    seen = set[int]()
    stack = sorted(lost)
    while stack:
        class_ = stack.pop()
        if class_ not in seen:
            seen.add(class_)
            loads = [c.loads for c in problem.candidates if class_ in c.produces]
            if not loads:
                return class_
            stack.extend(set[int]().union(*loads) - done)
    return min(lost)


def _covers(roots: Iterable[int], candidates: list[Candidate], enumerator: Enumerator) -> tuple[frozenset[int], ...]:
    """Return sets of candidates of which all programs have one at least.

    For each fold and contraction that all programs compute, in any layout or as a part of another, those that do; for
    each tensor that all programs store in some layout, those that produce it from others.
    """
    always = 0
    for root in roots:
        always |= enumerator.evaluated.below.get(root, 0)
    group_of = {class_: group for group in _stored(always, enumerator) for class_ in group}
    found: dict[int, set[int]] = {}
    produced: dict[frozenset[int], set[int]] = {}
    for number, candidate in enumerate(candidates):
        for element in candidate.binders:
            found.setdefault(element, set()).add(number)
        for class_ in candidate.produces:
            group = group_of.get(class_, frozenset[int]())
            if group and not group & candidate.loads:
                produced.setdefault(group, set()).add(number)
    bound = (
        frozenset[int]().union(*(found.get(binder, ()) for binder in binders))
        for binders in _always_bound(always, found, enumerator)
    )
    return (*dict.fromkeys(cover for cover in bound if cover), *map(frozenset, produced.values()))


def _always_bound(always: int, found: Iterable[int], enumerator: Enumerator) -> Iterator[set[int]]:
    """Visit for each fold and contraction that all programs compute, in some form, all classes that stand for it."""
    snapshot, bit = enumerator.snapshot, enumerator.evaluated.bit
    layouts: dict[int, list[int]] = {bit[element]: [] for element in found if always & bit.get(element, 0)}
    for class_, own in bit.items():
        if own in layouts and snapshot.sorts[class_] == "element":
            layouts[own].append(class_)
    for classes in layouts.values():
        binders = [_binders(snapshot, class_, ()) for class_ in classes]
        if all(binders):
            yield set[int]().union(*binders)


def _binders(snapshot: Snapshot, element: int, above: tuple[int, ...]) -> set[int]:
    """Return folds and contractions of which every way to an element class computes one; none if some way does not."""
    binders: set[int] = set()
    path = (*above, element)
    if len(path) > _MOST_LEVELS:
        return binders
    for node in snapshot.nodes[element]:
        if node.op in CONTRACTIONS or node.op in FOLDS:
            binders.add(element)
        elif node.op != "load" and not set(node.args) & set(path):
            inner = next(filter(None, (_binders(snapshot, arg, path) for arg in node.args)), None)
            if inner is None:
                return set()
            binders |= inner
    return binders


def _stored(always: int, enumerator: Enumerator) -> list[frozenset[int]]:
    """Return the layouts, if there are several, of each tensor that all programs evaluate and users load."""
    found: dict[int, set[int]] = {}
    for class_, nodes in enumerate(enumerator.snapshot.nodes):
        bit = enumerator.evaluated.bit.get(class_, 0) & always
        for node in nodes if bit else ():
            if node.op == "load":
                found.setdefault(bit, set()).add(node.args[0])
    return [frozenset(group) for group in found.values() if len(group) > 1 and group <= enumerator.cuts.must]
