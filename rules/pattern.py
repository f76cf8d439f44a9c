"""What a rule says, as data: patterns on both sides, conditions, numerics level."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal as Choice

from frittata.egraph.terms import Sort


@dataclass(frozen=True)
class Location:
    """Where a rule stands: file, line and column count from 1."""

    file: str
    line: int
    column: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, eq=False)
class Expression:
    """An expression of attributes, types and numbers, in Python's syntax; `names` are the variables it mentions."""

    text: str
    tree: ast.expr = field(repr=False)
    names: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


@dataclass(frozen=True)
class Variable:
    """A variable for a whole term; or, on the right, a name given to a result on either side."""

    name: str
    sort: Sort


@dataclass(frozen=True)
class Number:
    """A literal: an element `const` or a tensor `full` of shape (); its dtype is that of `like` (None: of the root)."""

    value: int | float | bool
    sort: Sort
    like: str | None


@dataclass(frozen=True)
class AttrVariable:
    """A variable for an attribute: binds it on the left, stands for it on the right."""

    name: str


@dataclass(frozen=True)
class Node:
    """An operator applied to patterns; each attribute is a variable or an expression.

    On the left an expression without variables must equal the attribute; one with variables is compared with it.
    `build` without a shape, allowed at a root on the right, has the shape of the class it joins: its attribute is None.
    """

    op: str
    sort: Sort
    args: tuple[Pattern, ...]
    attrs: tuple[AttrVariable | Expression | None, ...]


Pattern = Variable | Number | Node


@dataclass(frozen=True)
class Binding:
    """`name = pattern`; a rule with a single pattern calls it `it`."""

    name: str
    pattern: Pattern


@dataclass(frozen=True)
class Condition:
    """One conjunct of a guard: an expression, or what some variables are.

    They are constants, they vary (depend on an input), or they are bare: vary, and are no sum with a constant.
    """

    constants: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    expression: Expression | None = None


@dataclass(frozen=True)
class Level:
    """The numerics level: exact, reassoc, loose, or approx with a relative tolerance.

    A loose equation holds over the reals, as one of reassoc does, but its rounding error may be ten times that of a
    plain evaluation, and what is not finite may spread to other results.
    `unless` names a rule of the same family that says the same at a looser level: where that takes part, this does not.
    """

    kind: Choice["exact", "reassoc", "loose", "approx"] = "exact"
    tolerance: float = 0.0
    unless: str = ""


Kind = Choice["equation", "transform", "group"]


@dataclass(frozen=True)
class Rule:
    """One directed rule. `<=>` is read as two of these, named `name` and `name.reverse`.

    Equation (`=>`): both sides mean the same, they join one class. Transform (`~>`): replaces, before saturation.
    Fusion group (`[one kernel]`): what matches is computed by one kernel; it has no right side.
    """

    name: str
    family: str
    kind: Kind
    left: tuple[Binding, ...]
    right: tuple[Binding, ...]
    conditions: tuple[Condition, ...]
    level: Level
    location: Location
    sort_by_variable: dict[str, Sort] = field(default_factory=dict[str, Sort])

    def __hash__(self) -> int:
        return hash((self.family, self.name))  # of its patterns it would take longer than all else that asks for it

    @property
    def full_name(self) -> str:
        """`family/name`."""
        return f"{self.family}/{self.name}"

    def __str__(self) -> str:
        return self.location.text.strip() or self.full_name


@dataclass(frozen=True)
class Family:
    """The rules of one file."""

    name: str
    rules: tuple[Rule, ...]
    opt_level: int = 0


def nodes(pattern: Pattern) -> Iterator[Node]:
    """Visit the operator applications of a pattern, outermost first."""
    if isinstance(pattern, Node):
        yield pattern
        for arg in pattern.args:
            yield from nodes(arg)


LEAST_SIZE = 16
"""From where on an integer in an attribute may be an extent."""


def numbers_in(rule: Rule) -> set[float]:
    """Return the numbers that a rule mentions, those in attributes and in its guard too."""
    operands = {float(arg.value) for node in _every_node(rule) for arg in node.args if isinstance(arg, Number)}
    return operands.union(*map(_constants, (*_attributes(rule), *_guards(rule))))


def sizes_in(rule: Rule) -> tuple[int, ...]:
    """Return the positive integers that the guard of a rule mentions, each as often as it does, and its attributes.

    One that reads several extents may ask a number of two of them. Small ones among attributes are axes, and left out.
    """
    guards = [value for guard in _guards(rule) for value in _constants(guard)]
    reads = (node for guard in _guards(rule) for node in ast.walk(guard.tree) if isinstance(node, ast.Subscript))
    guards *= min(len(set(map(ast.unparse, reads))), 2) or 1
    attrs = {value for attr in _attributes(rule) for value in _constants(attr) if value >= LEAST_SIZE}
    every = (*guards, *sorted(attrs))
    return tuple(int(value) for value in every if value.is_integer() and value > 0)


def _every_node(rule: Rule) -> list[Node]:
    return [node for binding in (*rule.left, *rule.right) for node in nodes(binding.pattern)]


def _attributes(rule: Rule) -> list[Expression]:
    return [attr for node in _every_node(rule) for attr in node.attrs if isinstance(attr, Expression)]


def _guards(rule: Rule) -> list[Expression]:
    return [condition.expression for condition in rule.conditions if condition.expression is not None]


def _constants(expression: Expression) -> list[float]:
    every = (node.value for node in ast.walk(expression.tree) if isinstance(node, ast.Constant))
    return [float(value) for value in every if isinstance(value, int | float)]
