"""Where the chosen program stands in the e-graph: the class of each buffer, the nodes that each kernel is made of."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from frittata.egraph.errors import FrittataError, ModelError
from frittata.egraph.program import Kernel, Program, Step, View, operands_of
from frittata.egraph.snapshot import Node, Snapshot
from frittata.egraph.terms import Term
from frittata.extract.candidates import Candidate
from frittata.extract.choose import Extraction

_WITHIN = {"attend": ("softmax",)}
"""Tensor operators that an element operator computes on its way, of which no class of the kernel is the value."""


@dataclass(frozen=True, eq=False)
class Part:
    """What a candidate takes from the e-graph.

    `nodes` has the chosen node of each class that its bodies run through, results first; `holds` are the tensor classes
    that it computes, stored or not; `leaves` those that it loads, constants and inputs among them.
    """

    nodes: dict[int, Node]
    holds: frozenset[int]
    leaves: frozenset[int]


@dataclass
class Placement:
    """Finds the program's steps and buffers in the e-graph."""

    snapshot: Snapshot
    extraction: Extraction
    _matched: dict[tuple[Term, int], Node | None] = field(default_factory=dict[tuple[Term, int], "Node | None"])
    _part_by_number: dict[int, Part] = field(default_factory=dict[int, Part])

    @property
    def program(self) -> Program:
        """The chosen program."""
        return self.extraction.program

    @cached_property
    def number_by_step(self) -> dict[str, int]:
        """The number of each step's candidate in the problem."""
        return {step.name: n for step, n in zip(self.program.steps, self.extraction.chosen, strict=True)}

    @cached_property
    def class_by_buffer(self) -> dict[str, int]:
        """The class of each input, constant and result."""
        found: dict[str, int] = {}
        for step in self.program.steps:
            candidate = self.candidate(step.name)
            written = {class_: body for class_, body in candidate.bodies}
            if not isinstance(step, Kernel):
                ((class_, body),) = candidate.bodies
                found[step.name] = class_
                sources = (step.source,) if isinstance(step, View) else step.parts
                found.update(zip(sources, map(class_of_leaf, operands_of(body)), strict=True))
                continue
            for output, class_ in zip(step.outputs, self._stored(candidate), strict=True):
                found[output.name] = class_
                pairs = zip(operands_of(output.body), operands_of(written[class_]), strict=True)
                found.update({name.attrs[0]: class_of_leaf(leaf) for name, leaf in pairs})
        for term, class_ in self.snapshot.class_by_term.items():
            if term.op == "input":
                found.setdefault(term.attrs[0], class_)
        return found

    @cached_property
    def buffer_by_class(self) -> dict[int, str]:
        """The buffer that holds a class."""
        return {class_: name for name, class_ in self.class_by_buffer.items()}

    @cached_property
    def step_by_buffer(self) -> dict[str, Step]:
        """The step that writes a buffer; inputs and constants have none."""
        found: dict[str, Step] = {}
        for step in self.program.steps:
            names = [output.name for output in step.outputs] if isinstance(step, Kernel) else [step.name]
            found.update(dict.fromkeys(names, step))
        return found

    def candidate(self, step: str) -> Candidate:
        """Return the chosen candidate behind a step."""
        return self.extraction.problem.candidates[self.number_by_step[step]]

    def part(self, step: str) -> Part:
        """Return the nodes of a step."""
        return self.part_of(self.number_by_step[step])

    def part_of(self, number: int) -> Part:
        """Return the nodes of any candidate."""
        if number not in self._part_by_number:
            self._part_by_number[number] = self._locate(self.extraction.problem.candidates[number])
        return self._part_by_number[number]

    def step_of_node(self) -> dict[Node, str]:
        """Return for each chosen node the first step that uses it."""
        found: dict[Node, str] = {}
        for step in self.program.steps:
            for node in self.part(step.name).nodes.values():
                found.setdefault(node, step.name)
        return found

    def constant_nodes(self, class_: int, term: Term) -> list[tuple[int, Node]]:
        """Return the nodes that a constant's term was read from, with their classes."""
        found: dict[int, Node] = {}
        stack = [(term, class_)]
        while stack:
            part, at = stack.pop()
            node = self._match(part, at)
            if node is not None and at not in found:
                found[at] = node
                stack.extend(zip(part.args, node.args, strict=True))
        return list(found.items())

    def kernels_with(self, name: str) -> list[Kernel]:
        """Return the kernel of a name, or those that hold an operator of that name; `softmax_2` is the second of them.

        Raises: FrittataError that says why there is none, or names the nearest.
        """
        if not isinstance(name, str):  # pyright: ignore
            raise ModelError(f"a kernel is named by a text, got {name!r}")
        kernels = self.program.kernels
        exact = [kernel for kernel in kernels if kernel.name == name]
        if exact:
            return exact
        holding = self._holding(name)
        numbered = re.fullmatch(r"(\w+)_(\d+)", name)
        if not holding and numbered:
            holding = self._holding(numbered[1])[int(numbered[2]) - 1 :][:1]
        if holding:
            return holding
        known = sorted({kernel.name for kernel in kernels} | {op for k in kernels for op in self.operators(k.name)})
        if any(term.op == name for term in self.snapshot.class_by_term):
            raise FrittataError(
                f"no kernel computes {name}: it was folded, became a view, or was rewritten into something else",
                do="see its forms in fast.egraph.graph(), and what was folded in fast.report.folded",
            )
        near = difflib.get_close_matches(name, known, 3, 0.5)
        do = f"did you mean {' or '.join(near)}?" if near else f"kernels are {', '.join(k.name for k in kernels)}"
        raise FrittataError(f"no kernel {name!r}, and no kernel holds an operator of that name", do=do)

    def kernel_with(self, name: str) -> Kernel:
        """Return the one kernel that a name means.

        Raises: FrittataError if there is none, or if several kernels hold the operator.
        """
        found = self.kernels_with(name)
        if len(found) > 1:
            some = ", ".join(kernel.name for kernel in found)
            raise FrittataError(f"{len(found)} kernels hold {name}: {some}", do=f"name one of them, or say {name}_2")
        return found[0]

    def _stored(self, candidate: Candidate) -> list[int]:
        """Return the classes that a chosen candidate writes to memory: those that some step or the caller wants."""
        return [class_ for class_ in candidate.produces if class_ in self._wanted]

    @cached_property
    def _wanted(self) -> frozenset[int]:
        problem = self.extraction.problem
        return problem.roots.union(*(problem.loads(number) for number in self.extraction.chosen))

    def _holding(self, op: str) -> list[Kernel]:
        imported = [k for k in self.program.kernels if op in self.operators(k.name, imported=True)]
        return imported or [k for k in self.program.kernels if op in self.operators(k.name)]

    def operators(self, step: str, *, imported: bool = False) -> set[str]:
        """Return the tensor operators whose value a step computes, in any form or as imported."""
        within = {op for node in self.part(step).nodes.values() for op in _WITHIN.get(node.op, ())}
        return within | {node.op for _, _, node in self.computed(step) if node.rule == 0 or not imported}

    def computed(self, step: str) -> Iterator[tuple[int, int, Node]]:
        """Visit the tensor operators whose value a step computes: its class, that of the operator, and the node.

        They differ where the step computes with the channels last what the operator has first. What the step loads, and
        only lays out otherwise, is not among them.
        """
        part = self.part(step)
        loaded = {self.snapshot.first_by_last.get(leaf) for leaf in part.leaves}
        for class_ in part.holds - loaded:
            for at, node in self.snapshot.forms(class_):
                if node.op != "build" and at not in loaded:
                    yield class_, at, node

    def _locate(self, candidate: Candidate) -> Part:
        nodes: dict[int, Node] = {}
        holds = set(candidate.produces)
        leaves: set[int] = set()
        for class_, body in candidate.bodies:
            stack = [(body, class_)]
            while stack:
                term, at = stack.pop()
                node = self._match(term, at)
                if node is None or at in nodes:
                    continue
                nodes[at] = node
                if node.op == "load" or (node.args and node.sort == "tensor" and node.op != "build"):
                    leaves.update(node.args)
                    continue
                if node.sort == "element":
                    holds.update(other.args[0] for other in self.snapshot.nodes[at] if other.op == "load")
                stack.extend(reversed(list(zip(term.args, node.args, strict=True))))
        return Part(nodes, frozenset(holds - leaves - self.snapshot.constants), frozenset(leaves))

    def _match(self, term: Term, class_: int) -> Node | None:
        """Return the node of a class that a body's term was read from."""
        key = (term, class_)
        if key not in self._matched:
            self._matched[key] = next((node for node in self.snapshot.nodes[class_] if self._is(node, term)), None)
        return self._matched[key]

    def _is(self, node: Node, term: Term) -> bool:
        if node.op != term.op or node.attrs != term.attrs:
            return False
        if term.args and (node.op == "load" or node.sort == "tensor") and term.args[0].op == "input":
            return node.args == tuple(map(class_of_leaf, term.args))
        return all(self._match(arg, class_) is not None for arg, class_ in zip(term.args, node.args, strict=True))


def class_of_leaf(leaf: Term) -> int:
    """Return the class that a leaf of a candidate's body is named after."""
    return int(leaf.attrs[0][1:])
