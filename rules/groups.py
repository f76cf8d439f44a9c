"""Fusion groups (`[one kernel]`): the places of a model that a rule file wants computed by one kernel each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from frittata.egraph.snapshot import Group, Snapshot
from frittata.egraph.terms import Term, walk
from frittata.rules.matching import match_rule
from frittata.rules.pattern import Node, Number, Pattern, Rule


@dataclass(frozen=True)
class _Place:
    """Where a rule matches: the result, what it is computed from, and what lies between."""

    rule: Rule
    root: Term
    operands: frozenset[Term]
    inner: frozenset[Term]


def find_groups(snapshot: Snapshot, outputs: tuple[Term, ...], rules: Iterable[Rule]) -> list[Group]:
    """Return the fusion groups that rules mark in a model, by the classes of its terms.

    Users are asked before what they use, rules in their order; what is in one group is in no other.
    """
    places = list(_places(outputs, [rule for rule in rules if rule.kind == "group"]))
    return [_group(place, snapshot, outputs) for place in places]


def _places(outputs: tuple[Term, ...], rules: list[Rule]) -> Iterator[_Place]:
    taken: set[Term] = set()
    for term in reversed([*walk(*outputs)] if rules else []):
        for rule in rules:
            place = _place(rule, term)
            if place is not None and not taken & {term, *place.inner}:
                taken |= {term, *place.inner}
                yield place
                break


def _place(rule: Rule, term: Term) -> _Place | None:
    if match_rule(rule, term) is None:
        return None
    matched, operands = set[Term](), set[Term]()
    _split(rule.left[0].pattern, term, matched, operands)
    return _Place(rule, term, frozenset(operands), frozenset(matched - operands - {term}))


def _split(pattern: Pattern, term: Term, matched: set[Term], operands: set[Term]) -> None:
    """Tell what nodes of a pattern matched from what its variables and numbers did."""
    if isinstance(pattern, Node):
        matched.add(term)
        for inner, arg in zip(pattern.args, term.args, strict=True):
            _split(inner, arg, matched, operands)
    elif not isinstance(pattern, Number):
        operands.add(term)


def _group(place: _Place, snapshot: Snapshot, outputs: tuple[Term, ...]) -> Group:
    classes = snapshot.class_by_term
    live = _without(place, outputs)
    return Group(
        place.rule.full_name,
        classes[place.root],
        frozenset(classes[term] for term in place.operands),
        frozenset(classes[term] for term in place.inner),
        frozenset(classes[term] for term in live if term is not place.root and term.sort == "tensor"),
    )


def _without(place: _Place, outputs: tuple[Term, ...]) -> set[Term]:
    """Return the terms that the model needs if the root of a group comes from its operands at once."""
    live, stack = set[Term](), [*outputs]
    while stack:
        term = stack.pop()
        if term not in live:
            live.add(term)
            stack.extend(place.operands if term is place.root else term.args)
    return live
