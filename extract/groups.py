"""Fusion groups: what has to be one kernel is computed from its operands, and nothing between is ever stored.

The values of the root may lie in any order, and a larger kernel may hold the group. What the model uses beside the
group may be stored all the same; the group does not read it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace

from frittata.egraph.errors import ExtractionError
from frittata.egraph.snapshot import Group, Snapshot
from frittata.extract.candidates import Candidate
from frittata.extract.cuts import Cuts
from frittata.extract.layouts import layouts
from frittata.extract.problem import Problem, restricted
from frittata.extract.views import Views

Parts = Mapping[Group, tuple[frozenset[int], frozenset[int]]]
"""By group: the tensor classes that are its root, in any order; those between root and operands."""


def parts_of(snapshot: Snapshot, free: frozenset[int]) -> Parts:
    """Find the classes of each group; what is `free` is between nothing."""
    if not snapshot.groups:
        return {}
    layout_of, views = layouts(snapshot), Views(snapshot)
    return {group: _parts(group, snapshot, free, layout_of, views) for group in snapshot.groups}


def fused(cuts: Cuts, parts: Parts) -> Cuts:
    """Return the cuts but those within groups."""
    within = frozenset[int]().union(*(between - group.outside for group, (_, between) in parts.items()))
    return replace(cuts, may=cuts.may - within, must=cuts.must - within)


def admitted(problem: Problem[Candidate], parts: Parts) -> Problem[Candidate]:
    """Return the problem without the candidates that take a group apart.

    Raises: ExtractionError if a root has none left.
    """
    for group, (roots, between) in parts.items():
        kept: list[int] = []
        for number in problem.numbers():
            candidate = problem.candidates[number]
            is_group = not roots.isdisjoint(candidate.produces)
            if candidate.loads.isdisjoint(between if is_group else between - group.outside):
                kept.append(number)
        problem = restricted(problem, kept)
    if not all(problem.by_class[root] for root in problem.roots):
        raise ExtractionError("fusion groups leave no program", do="mark less")
    return problem


@contextmanager
def blamed(group: Group, snapshot: Snapshot) -> Generator[None]:
    """Say of which group it is that nothing can be extracted."""
    try:
        yield
    except ExtractionError as error:
        raise ExtractionError(
            f"no kernel can compute what {group.rule} marks",
            f"a tensor of type {snapshot.types[group.root]}, e-class #{group.root}",
            "mark less, and let the rules that fuse take part: opt_level=, disable=",
        ) from error


def _parts(
    group: Group, snapshot: Snapshot, free: frozenset[int], layout_of: Callable[[int], int], views: Views
) -> tuple[frozenset[int], frozenset[int]]:
    below = _reached(snapshot, group.operands, {group.root, *group.inner})
    within = _reached(snapshot, (group.root,), group.operands | free)
    tensors = {c for c in within - below if snapshot.sorts[c] == "tensor"}
    orders = {layout_of(build.args[0]) for build in snapshot.builds(group.root)}
    same = [c for c in tensors if any(layout_of(build.args[0]) in orders for build in snapshot.builds(c))]
    roots = _shown((group.root, *same), group.operands, views)
    return frozenset(roots), frozenset((tensors | group.inner) - roots - group.operands - free)


def _reached(snapshot: Snapshot, classes: Iterable[int], without: Iterable[int]) -> set[int]:
    """Return classes and all that they can be computed from, but for those that are `without`."""
    found, out, stack = set[int](), set(without), [*classes]
    while stack:
        class_ = stack.pop()
        if class_ not in found:
            found.add(class_)
            stack.extend(arg for node in snapshot.nodes[class_] for arg in node.args if arg not in out)
    return found


def _shown(tensors: Iterable[int], operands: frozenset[int], views: Views) -> set[int]:
    """Return tensors and those that they are views of."""
    found, stack = set[int](), [*tensors]
    while stack:
        class_ = stack.pop()
        if class_ not in found | operands:
            found.add(class_)
            stack.extend(views.shown(class_))
    return found
