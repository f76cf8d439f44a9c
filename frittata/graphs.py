"""The program and the e-graph as networkx graphs, and either as text in the DOT language."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import networkx as nx

import frittata.tables as tables
from frittata.account import Account
from frittata.egraph.program import Kernel, View
from frittata.egraph.snapshot import Node
from frittata.egraph.terms import TensorType, size_bytes
from frittata.labels import Labels

Graph: TypeAlias = "nx.DiGraph[str]"


def program_graph(account: Account) -> Graph:
    """Return the program as a graph.

    Nodes have a `kind`: input, constant, kernel (with template, predicted_s, measured_s, flops, bytes, rules), view,
    join, output. Edges are buffers: `buffers` names them, `type` is that of the first, `bytes` the size of all.
    """
    program = account.program
    types = program.types()
    graph: Graph = nx.DiGraph(name="program")
    for name, type_ in program.inputs.items():
        graph.add_node(name, kind="input", type=str(type_))
    for name, term in program.constants.items():
        graph.add_node(name, kind="constant", type=str(types[name]), folded=term.op != "param")
    writer = dict.fromkeys((*program.inputs, *program.constants), "")
    for name in writer:
        writer[name] = name
    kernels = {view.name: view for view in account.kernels}
    for step in program.steps:
        if not isinstance(step, Kernel):
            is_view = isinstance(step, View)
            graph.add_node(step.name, kind="view" if is_view else "join", type=str(step.type))
            for source in (step.source,) if is_view else step.parts:
                _connect(graph, writer[source], step.name, source, types[source])
            writer[step.name] = step.name
            continue
        row = kernels[step.name]
        graph.add_node(
            step.name,
            kind="kernel",
            type=str(types[step.outputs[0].name]),
            template=row.template,
            predicted_s=row.predicted_s,
            measured_s=row.measured_s,
            flops=row.flops,
            bytes=row.bytes,
            rules=row.rules,
        )
        for operand in step.operands:
            _connect(graph, writer[operand], step.name, operand, types[operand])
        writer.update({output.name: step.name for output in step.outputs})
    for number, name in enumerate(program.outputs):
        end = f"output {number}"
        graph.add_node(end, kind="output", type=str(types[name]))
        _connect(graph, writer[name], end, name, types[name])
    return graph


def _connect(graph: Graph, source: str, target: str, buffer: str, type_: TensorType) -> None:
    size = size_bytes(type_)
    if graph.has_edge(source, target):
        edge = graph.edges[source, target]
        if buffer not in edge["buffers"]:
            edge["buffers"] += (buffer,)
            edge["bytes"] += size
    else:
        graph.add_edge(source, target, buffers=(buffer,), type=str(type_), bytes=size)


@dataclass
class EGraph:
    """The e-graph after saturation."""

    account: Account

    @property
    def class_count(self) -> int:
        """How many e-classes there are."""
        return len(self.account.snapshot.nodes)

    @property
    def node_count(self) -> int:
        """How many e-nodes there are."""
        return self.account.snapshot.node_count

    def __repr__(self) -> str:
        return f"EGraph({self.node_count} nodes in {self.class_count} classes)"

    def graph(self, around: str | None = None, radius: int = 1) -> Graph:
        """Return e-classes and e-nodes as a graph, as far as they reach an output.

        Nodes `c<number>` are classes (`kind` class, `sort`, `type`, `constant`, `label`); nodes `n<class>.<number>` are
        e-nodes (`kind` node, `op`, `label`, `rule`, `imported`, `chosen`, `kernel`). An edge from a class to an e-node
        says that it is one of its alternatives; edges from an e-node lead to its arguments, with their `position`. Both
        carry `chosen` and `rule`. `around` names a kernel, or an operator: the graph is cut to the classes of the
        kernels that hold it, and those at most `radius` e-nodes away.

        Raises: FrittataError if no kernel is meant by `around`.
        """
        snapshot = self.account.snapshot
        wanted = self.reachable() if around is None else self._near(around, radius)
        labels = Labels(self.account)
        step_by_node = self.account.placement.step_of_node()
        graph: Graph = nx.DiGraph(name="e-graph")
        for class_ in sorted(wanted):
            type_ = snapshot.types[class_]
            is_constant = class_ in snapshot.constants
            graph.add_node(
                f"c{class_}",
                kind="class",
                sort=snapshot.sorts[class_],
                type=str(type_),
                constant=is_constant,
                label=labels.of(class_),
            )
        for class_ in sorted(wanted):
            for number, node in enumerate(snapshot.nodes[class_]):
                if all(arg in wanted for arg in node.args) or node in step_by_node or around is None:
                    self._add(graph, f"n{class_}.{number}", class_, node, labels, step_by_node.get(node))
        return graph

    def _add(self, graph: Graph, key: str, class_: int, node: Node, labels: Labels, step: str | None) -> None:
        rule = self.account.chains.rule_of(node)
        chosen = step is not None
        graph.add_node(
            key,
            kind="node",
            op=node.op,
            label=labels.node(node),
            rule=rule,
            imported=node.rule == 0,
            chosen=chosen,
            kernel=step or "",
        )
        graph.add_edge(f"c{class_}", key, kind="member", chosen=chosen, rule=rule)
        for position, arg in enumerate(node.args):
            if graph.has_node(f"c{arg}"):
                graph.add_edge(key, f"c{arg}", kind="argument", position=position, chosen=chosen, rule=rule)

    def reachable(self) -> set[int]:
        """Return the classes that an output is computed from, in any way."""
        snapshot = self.account.snapshot
        outputs = self.account.compilation.model.main.outputs
        return _closure({snapshot.class_by_term[term] for term in outputs}, self._arguments, None)

    def _near(self, around: str, radius: int) -> set[int]:
        placement = self.account.placement
        start: set[int] = set()
        for kernel in placement.kernels_with(around):
            part = placement.part(kernel.name)
            start |= part.nodes.keys() | part.holds | part.leaves
        return _closure(start, self._arguments, radius)

    def _arguments(self, class_: int) -> Iterable[int]:
        return (arg for node in self.account.snapshot.nodes[class_] for arg in node.args)


def _closure(start: set[int], step: Callable[[int], Iterable[int]], radius: int | None) -> set[int]:
    found = set(start)
    layer = set(start)
    while layer and (radius is None or radius > 0):
        layer = {target for class_ in layer for target in step(class_)} - found
        found |= layer
        radius = None if radius is None else radius - 1
    return found


# ---- DOT -------------------------------------------------------------------------------------------------------------

_SHAPES: Mapping[str, str] = {
    "input": "ellipse",
    "output": "ellipse",
    "constant": "note",
    "view": "plain",
    "join": "plain",
    "kernel": "box",
    "node": "box",
}
_CHOSEN, _IMPORTED = ("#d6e3fc", "#fff6e0")
"""The grounds of chosen and of imported forms, as on the page."""


def to_dot(graph: Graph) -> str:
    """Write a graph of either kind in the DOT language; e-classes become clusters around their e-nodes."""
    lines = [
        f"digraph {_quoted(graph.graph.get('name', 'graph'))} {{",
        "  compound=true; fontname=monospace; fontsize=10;",
        "  node [fontname=monospace, fontsize=11]; edge [fontname=monospace, fontsize=9];",
    ]
    members: dict[str, list[str]] = {}
    for key, data in graph.nodes(data=True):
        if data["kind"] == "class":
            members[key] = [n for n in graph.successors(key) if graph.edges[key, n]["kind"] == "member"]
    for key, nodes in members.items():
        data = graph.nodes[key]
        title = _quoted(f"{key} {data['type']}{', constant' if data['constant'] else ''}")
        lines.append(f"  subgraph {_quoted(f'cluster_{key}')} {{ label={title}; {_quoted(key)} [shape=point];")
        lines += [f"    {_dot_node(node, graph.nodes[node])}" for node in nodes]
        lines.append("  }")
    class_by_node = {node: key for key, nodes in members.items() for node in nodes}
    for key, data in graph.nodes(data=True):
        if key not in class_by_node and key not in members:
            lines.append(f"  {_dot_node(key, data)}")
    for source, target, data in graph.edges(data=True):
        if data.get("kind") != "member":
            ends_at_class = target in members and class_by_node[source] != target
            head = [f"lhead={_quoted(f'cluster_{target}')}"] if ends_at_class else []
            lines.append(f"  {_quoted(source)} -> {_quoted(target)} [{', '.join([*_dot_edge(data), *head])}];")
    return "\n".join([*lines, "}"]) + "\n"


def _dot_node(key: str, data: Mapping[str, Any]) -> str:
    text = [data.get("label", key)]
    style: list[str] = []
    if data["kind"] == "kernel":
        text += [data["template"], tables.times(data["predicted_s"], data["measured_s"])]
    if data["kind"] == "node":
        text.append(data["rule"] or "imported")
        ground = _CHOSEN if data["chosen"] else _IMPORTED if data["imported"] else ""
        style = [f'style="filled{",bold" * data["chosen"]}"', f'fillcolor="{ground}"'] if ground else []
    shape = f"shape={_SHAPES[data['kind']]}"
    return f"{_quoted(key)} [{', '.join([f'label={_quoted(chr(10).join(text))}', shape, *style])}];"


def _dot_edge(data: Mapping[str, Any]) -> list[str]:
    if "buffers" in data:
        return [f"label={_quoted(data['type'])}"]
    return ["style=bold" if data["chosen"] else "color=gray"]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
