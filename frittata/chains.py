"""Chains of rules: how a node of the e-graph can be derived from the model as it was imported.

A node knows the rule that made it, not what the rule matched. The premise is found again: in the class of the rule's
result, or in a class above if the node stands deeper in the rule's right side, a node that the left side matches, and
for which the right side makes the node if there is such a one. Where several do, the chain is the shortest; so it is
one derivation, not the history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from frittata.egraph.snapshot import Node, Snapshot
from frittata.rules import pattern
from frittata.rules.pattern import Pattern, Rule

_DEEPEST_RESULT = 8

Bindings = Mapping[str, int]
"""From variables to the classes that they stand for."""


@dataclass(frozen=True)
class Step:
    """One rule on the way: the node that its left side matched, and the node that it made."""

    rule: str
    text: str
    before: Node
    after: Node
    class_: int


@dataclass
class Chains:
    """Derivations over one snapshot."""

    snapshot: Snapshot
    rule_names: Mapping[int, str]
    rule_by_name: Mapping[str, Rule]
    _found: dict[Node, tuple[Step, ...]] = field(default_factory=dict[Node, tuple[Step, ...]])

    @cached_property
    def _users(self) -> dict[int, list[tuple[int, Node]]]:
        users: dict[int, list[tuple[int, Node]]] = {}
        for class_, nodes in enumerate(self.snapshot.nodes):
            for node in nodes:
                for arg in dict.fromkeys(node.args):
                    users.setdefault(arg, []).append((class_, node))
        return users

    def rule_of(self, node: Node) -> str:
        """Return the name of the rule that made a node, empty for the import."""
        return self.rule_names.get(node.rule, "") if node.rule else ""

    def text_of(self, rule: str) -> str:
        """Return a rule as it stands in its file, on one line."""
        found = self.rule_by_name.get(rule)
        return " ".join(str(found).split()) if found else rule

    def chain(self, class_: int, node: Node) -> tuple[Step, ...]:
        """Return the rules from an imported node to `node`, in order; empty if it was imported itself.

        If the way back is lost, the chain starts at the earliest rule found.
        """
        if node in self._found:
            return self._found[node]
        came: dict[Node, Step | None] = {node: None}
        queue: deque[tuple[int, Node]] = deque([(class_, node)])
        last = node
        while queue:
            at, current = queue.popleft()
            last = current
            if current.rule == 0:
                break
            for origin, before in self._premises(at, current):
                if before not in came:
                    rule = self.rule_of(current)
                    came[before] = Step(rule, self.text_of(rule), before, current, at)
                    queue.append((origin, before))
        steps: list[Step] = []
        here = came[last]
        while here is not None:
            steps.append(here)
            here = came[here.after]
        if last.rule:
            rule = self.rule_of(last)
            steps.insert(0, Step(rule, self.text_of(rule), last, last, class_))
        self._found[node] = tuple(steps)
        return self._found[node]

    def _premises(self, class_: int, node: Node) -> Iterator[tuple[int, Node]]:
        """Yield nodes that the left side of the node's rule matches, nearest class first."""
        rule = self.rule_by_name.get(self.rule_of(node))
        if rule is None:
            return
        lefts = [binding.pattern for binding in rule.left if isinstance(binding.pattern, pattern.Node)]
        found = self._above(class_, node, lefts, same_rule=True)
        if not found:  # two rules may have made what lies between
            found = self._above(class_, node, lefts, same_rule=False)
        rights = [part for binding in rule.right for part in pattern.nodes(binding.pattern)]
        yield from [pair for pair in found if self._is_made(node, pair[1], lefts, rights)] or found

    def _above(self, class_: int, node: Node, lefts: list[pattern.Node], *, same_rule: bool) -> list[tuple[int, Node]]:
        """Look for premises in a class, then in those computed from it, up to the first that has some."""
        layer = [class_]
        seen = {class_}
        for _ in range(_DEEPEST_RESULT):
            here = ((at, other) for at in layer for other in self.snapshot.nodes[at] if other is not node)
            found = [(at, other) for at, other in here if any(self._matches(left, other) for left in lefts)]
            if found:
                return found
            users = (pair for at in layer for pair in self._users.get(at, ()))
            above = [up for up, user in users if user.rule == node.rule or not same_rule]
            layer = [up for up in dict.fromkeys(above) if up not in seen]
            seen.update(layer)
        return []

    def _matches(self, left: pattern.Node, node: Node) -> bool:
        """Whether a pattern is found at a node, whatever its attributes."""
        return any(True for _ in self._bound(left, node, {}))

    def _is_made(self, node: Node, before: Node, lefts: list[pattern.Node], rights: list[pattern.Node]) -> bool:
        """Whether a part of the right side makes a node of what the variables stand for where the left side matches."""
        known = (bindings for left in lefts for bindings in self._bound(left, before, {}))
        return any(True for each in known for right in rights for _ in self._bound(right, node, each))

    def _bound(self, part: pattern.Node, node: Node, known: Bindings) -> Iterator[Bindings]:
        """Visit what variables stand for where a pattern is found at a node, whatever its attributes."""
        if (part.op, part.sort) != (node.op, node.sort):
            return
        found: Iterable[Bindings] = [known]
        for inner, class_ in zip(part.args, node.args, strict=False):
            found = [after for before in found for after in self._bound_in(inner, class_, before)]
        yield from found

    def _bound_in(self, part: Pattern, class_: int, known: Bindings) -> Iterator[Bindings]:
        match part:
            case pattern.Node():
                for node in self.snapshot.nodes[class_]:
                    yield from self._bound(part, node, known)
            case pattern.Number():
                op = "const" if part.sort == "element" else "full"
                if any(node.op == op for node in self.snapshot.nodes[class_]):
                    yield known
            case pattern.Variable(name=name):
                if known.get(name, class_) == class_:
                    yield {**known, name: class_}
