"""A saturated e-graph as flat arrays: classes, nodes, facts, and the rule that made each node."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isclose
from typing import TYPE_CHECKING, Any

from frittata.egraph import dtypes, interning
from frittata.egraph.errors import SaturationError
from frittata.egraph.ops import registry
from frittata.egraph.schema import CONFLICT
from frittata.egraph.terms import Sort, TensorType, Term, walk

if TYPE_CHECKING:
    from frittata.egraph.engine import Engine

_MOVES = ("input", "param", "permute", "reshape", "channels_first")
"""Operators that compute nothing."""


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One e-node: an operator over classes; `rule` is the number of the rule that made it, 0 for the import."""

    op: str
    sort: Sort
    args: tuple[int, ...]
    attrs: tuple[Any, ...]
    rule: int

    def __repr__(self) -> str:
        return f"{self.op}({', '.join([*(f'#{a}' for a in self.args), *map(str, self.attrs)])})"


@dataclass(frozen=True)
class Group:
    """A fusion group, by classes: the `root` that one kernel computes from the `operands`.

    `inner` lie between in the model, `outside` are what the model has beside the group.
    """

    rule: str
    root: int
    operands: frozenset[int]
    inner: frozenset[int]
    outside: frozenset[int]


@dataclass(eq=False)
class Snapshot:
    """The e-graph read back.

    `nodes[c]` are the nodes of class c, `sorts[c]` its sort; `types[c]` its type if it is a tensor class, its dtype if
    it is an element class. `constants` are the tensor classes known before run time. `class_by_term` finds the class of
    each imported term. `groups` are what has to be one kernel each.
    """

    nodes: list[list[Node]] = field(default_factory=list[list[Node]])
    sorts: list[Sort] = field(default_factory=list[Sort])
    types: list[Any] = field(default_factory=list[Any])
    constants: set[int] = field(default_factory=set[int])
    class_by_term: dict[Term, int] = field(default_factory=dict[Term, int])
    groups: list[Group] = field(default_factory=list[Group])

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return sum(map(len, self.nodes))

    def proper(self) -> Snapshot:
        """Return this without element nodes that compute a class from itself, x + 0: they are no way to have it."""

        def is_proper(class_: int, node: Node) -> bool:
            return node.sort == "tensor" or class_ not in node.args or not registry.get(node.op, "element").pointwise

        kept = [[node for node in nodes if is_proper(class_, node)] for class_, nodes in enumerate(self.nodes)]
        return replace(self, nodes=kept)

    def builds(self, class_: int) -> list[Node]:
        """Return the definitions of a tensor class by its elements."""
        return [node for node in self.nodes[class_] if node.op == "build"]

    @cached_property
    def first_by_last(self) -> dict[int, int]:
        """The class of the same values with the channels first, for each class that has them last."""
        pairs = ((node, class_) for class_, nodes in enumerate(self.nodes) for node in nodes)
        return {node.args[0]: class_ for node, class_ in pairs if node.op == "channels_first"}

    def forms(self, class_: int) -> list[tuple[int, Node]]:
        """Return the nodes of a class, and those that compute its values with the channels first, each with its class.

        What a model computes with the channels first may never be a tensor of the program.
        """
        first = self.first_by_last.get(class_)
        more = [] if first is None else [(first, node) for node in self.nodes[first] if node.op not in _MOVES]
        return [*((class_, node) for node in self.nodes[class_]), *more]

    def tensor_type(self, class_: int) -> TensorType:
        """Return the type of a tensor class."""
        return self.types[class_]


def read(engine: Engine, roots: tuple[Term, ...], rule_names: dict[int, str]) -> Snapshot:
    """Read an engine's e-graph.

    Raises: SaturationError if two types or two constants met in one class.
    """
    rows = engine.freeze()
    out = Snapshot()
    number_by_value: dict[tuple[str, Any], int] = {}

    def class_of(sort: Sort, value: Any) -> int:
        key = (sort, value)
        if key not in number_by_value:
            number_by_value[key] = len(out.nodes)
            out.nodes.append([])
            out.sorts.append(sort)
            out.types.append(None)
        return number_by_value[key]

    for op in engine.ops:
        rule_by_columns = {tuple(row.inputs): engine.integer(row.output) for row in rows[f"by_{op.key}"]}
        split = len(op.operands)
        for row in rows[op.key]:
            args = tuple(
                class_of(sort, value) for (_, sort), value in zip(op.operands, row.inputs[:split], strict=True)
            )
            attrs = tuple(interning.value_of(engine.integer(value)) for value in row.inputs[split:])
            rule = rule_by_columns.get(tuple(row.inputs), 0)
            out.nodes[class_of(op.sort, row.output)].append(Node(op.name, op.sort, args, attrs, rule))
    for table, sort in (("ty", "tensor"), ("dt", "element")):
        for row in rows[table]:
            number = engine.integer(row.output)
            class_ = class_of(sort, row.inputs[0])  # pyright: ignore[reportArgumentType]
            if number >= CONFLICT:
                raise _alarm("types", out, class_, rule_names)
            out.types[class_] = interning.value_of(number)
    for row in rows["scalar"]:
        class_ = class_of("element", row.inputs[0])
        if engine.integer(row.output) >= CONFLICT and not _differ_by_rounding(out.nodes[class_]):
            raise _alarm("constants", out, class_, rule_names)
    out.constants = {class_of("tensor", row.inputs[0]) for row in rows["varies"] if not engine.integer(row.output)}
    value_by_number = {
        sort: {engine.integer(row.inputs[0]): row.output for row in rows[table]}
        for table, sort in (("tn", "tensor"), ("en", "element"))
    }
    for term in walk(*roots):
        out.class_by_term[term] = class_of(term.sort, value_by_number[term.sort][engine.number_of(term)])
    return out


def _differ_by_rounding(nodes: list[Node]) -> bool:
    """Whether the constants of a class are one number, computed in different orders."""
    constants = [node.attrs[0] for node in nodes if node.op == "const"]
    if not all(dtypes.is_float(c.dtype) for c in constants):
        return False
    tolerance = 16 * max(float(dtypes.finfo(c.dtype).eps) for c in constants)
    return all(isclose(c.value, constants[0].value, rel_tol=tolerance) for c in constants)


def _alarm(what: str, snapshot: Snapshot, class_: int, rule_names: dict[int, str]) -> SaturationError:
    nodes = snapshot.nodes[class_]
    rules = sorted({rule_names.get(node.rule, "import") for node in nodes})
    return SaturationError(
        f"unsound: two different {what} met in one e-class",
        f"nodes {', '.join(map(repr, nodes[:8]))}",
        f"audit the rules that met there: {', '.join(rules)}",
    )
