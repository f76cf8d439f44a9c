"""The e-graph around a kernel as a person reads it: values, each with all its forms.

`load(build(e)) = e` ties the class of a tensor to the class of its element. They are shown as one value: how the tensor
is written as a whole, and what its element is at one index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import frittata.tables as tables
from frittata.account import Account
from frittata.egraph.program import Kernel
from frittata.egraph.snapshot import Node
from frittata.labels import Labels

MOST_ROWS = 7
_TEXT = 40
_NOTE = 30
_ATOMS = ("const", "iota")


@dataclass(frozen=True)
class Row:
    """One form of a value: an e-node. `targets` are the values that it is computed from, as far as they are shown."""

    key: str
    text: str
    full: str
    note: str
    rule: str
    rule_text: str
    chosen: bool
    imported: bool
    section: str
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Value:
    """A value with its forms. `kind`: result, inner, constant, input, or buffer, whose memory `kernel` writes."""

    key: str
    title: str
    type: str
    kind: str
    kernel: str
    description: str
    rows: tuple[Row, ...]


def values_of(account: Account, kernel: Kernel) -> list[Value]:
    """Return the values that a kernel runs through, results first."""
    return list(_Reader(account, kernel).values())


class _Reader:
    def __init__(self, account: Account, kernel: Kernel) -> None:
        self._account = account
        self._kernel = kernel
        self._part = account.placement.part(kernel.name)
        self._labels = Labels(account, self._part.nodes)
        self._results = {account.placement.class_by_buffer[output.name] for output in kernel.outputs}
        snapshot = account.snapshot
        self._elements = {
            class_: node
            for class_, node in self._part.nodes.items()
            if snapshot.sorts[class_] == "element" and node.op not in _ATOMS
        }
        built = {class_: self._part.nodes[class_].args[0] for class_ in self._results if class_ in self._part.nodes}
        self._element_by_tensor = {tensor: element for tensor, element in built.items() if element in self._elements}
        for class_ in self._elements:
            for node in snapshot.nodes[class_]:
                if node.op == "load":
                    self._element_by_tensor.setdefault(node.args[0], class_)

    def values(self) -> Iterable[Value]:
        if self._kernel.is_opaque:
            yield from self._call()
        for class_, node in self._elements.items():
            if node.op == "load":
                inlined = [n for n in self._account.snapshot.nodes[class_] if n.op not in ("load", *_ATOMS)]
                yield self._leaf(class_, node.args[0], len(inlined))
            else:
                yield self._inner(class_, node)

    def _call(self) -> Iterable[Value]:
        """The results of an opaque operator, and the tensors that it is given."""
        for class_, node in self._part.nodes.items():
            row = self._row(f"{class_}t", node, "t", chosen=True, targets=tuple(f"v{arg}" for arg in node.args))
            name, type_ = self._labels.tensor(class_), str(self._account.snapshot.types[class_])
            yield Value(f"v{class_}", tables.shortened(name, 30), type_, "result", "", f"{name}: {type_}", (row,))
        for class_ in sorted(self._part.leaves):
            yield self._leaf(class_, class_, 0)

    def _leaf(self, class_: int, tensor: int, forms: int) -> Value:
        """A value that the kernel loads: how it is computed belongs to another kernel, or to no kernel at all.

        `forms` counts the ways to compute it here instead.
        """
        placement = self._account.placement
        name = self._labels.tensor(tensor)
        step = placement.step_by_buffer.get(name)
        program = self._account.program
        kind = "buffer" if step else "constant" if name in program.constants else "input"
        type_ = str(self._account.snapshot.types[tensor])
        row = Row(
            f"{class_}",
            f"load({tables.shortened(name, _TEXT - 6)})",
            f"load({name})",
            kind,
            "",
            "",
            True,
            False,
            "e",
            (),
        )
        rows = (row,)
        if kind == "buffer" and forms:
            note = f"or compute it here: {forms} form{'s' * (forms > 1)}"
            rows += (Row(f"{class_}+", note, note, "", "", "", False, False, "e", ()),)
        writers = map(placement.step_by_buffer.get, self._account.boundaries.sources(name))
        kernel = next((writer.name for writer in writers if isinstance(writer, Kernel)), "")
        return Value(f"v{class_}", tables.shortened(name, 30), type_, kind, kernel, f"{kind} {name}: {type_}", rows)

    def _inner(self, class_: int, chosen: Node) -> Value:
        snapshot = self._account.snapshot
        tensors = [t for t, e in self._element_by_tensor.items() if e == class_]
        tensors.sort(key=lambda t: t not in self._results)
        forms = [
            (t, node)
            for t in tensors
            for node in snapshot.nodes[t]
            if node.op not in ("build", "param", "input", "full")
        ]
        forms.sort(key=lambda pair: pair[1].rule)
        rows = [self._row(f"{t}t{i}", node, "t", chosen=False) for i, (t, node) in enumerate(forms)]
        rows = self._limited(rows, f"{class_}t")
        elements = [self._row(f"{class_}e", chosen, "e", chosen=True)]
        for i, node in enumerate(snapshot.nodes[class_]):
            if node is not chosen and node.op not in _ATOMS and not self._is_itself(node):
                elements.append(self._row(f"{class_}e{i}", node, "e", chosen=False))
        rows += self._limited(elements, f"{class_}e")
        is_result = any(t in self._results for t in tensors)
        name = next((self._labels.tensor(t) for t in tensors if t in self._results), chosen.op)
        type_ = str(snapshot.types[tensors[0]]) if tensors else str(snapshot.types[class_])
        classes = ", ".join(f"#{c}" for c in (*tensors, class_))
        description = f"{name}: {type_}, e-classes {classes}"
        kind = "result" if is_result else "inner"
        return Value(f"v{class_}", tables.shortened(name, 30), type_, kind, "", description, tuple(rows))

    def _is_itself(self, node: Node) -> bool:
        """Whether a form of a result says only that it may be loaded once it is stored."""
        return node.op == "load" and node.args[0] in self._results

    def _row(self, key: str, node: Node, section: str, *, chosen: bool, targets: tuple[str, ...] = ()) -> Row:
        chains = self._account.chains
        rule = chains.rule_of(node)
        full = self._labels.node(node)
        targets = targets or tuple(t for t in map(self._target, node.args) if t)
        return Row(
            key,
            tables.shortened(full, _TEXT),
            full,
            "if a kernel stores it" if node.op == "load" else tables.shortened(rule, _NOTE) if rule else "imported",
            rule,
            chains.text_of(rule) if rule else "",
            chosen,
            node.rule == 0,
            section,
            tuple(dict.fromkeys(targets)),
        )

    def _target(self, class_: int) -> str:
        element = class_ if class_ in self._elements else self._element_by_tensor.get(class_)
        return f"v{element}" if element is not None else ""

    def _limited(self, rows: list[Row], key: str) -> list[Row]:
        if len(rows) <= MOST_ROWS:
            return rows
        rest = len(rows) - MOST_ROWS + 1
        note = f"... and {rest} more forms"
        return [*rows[: MOST_ROWS - 1], Row(f"{key}+", note, note, "", "", "", False, False, rows[0].section, ())]
