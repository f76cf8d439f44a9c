"""Why two steps of a program are not one kernel: the limit that forbids it, or the price."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import frittata.tables as tables
from frittata.alternatives import Alternatives
from frittata.egraph.ops.elements import CONTRACTIONS
from frittata.egraph.program import HOST, Kernel, View, operands_of
from frittata.egraph.terms import TensorType, Term, walk
from frittata.extract.candidates import OPTION_LIMIT
from frittata.extract.cuts import (
    ATTENDED,
    CONTRACTED,
    FOLDED,
    POINTWISE,
    Cuts,
    find_cuts,
    may_stand_under,
)
from frittata.placement import Placement

_WORD = {POINTWISE: "point-wise work", FOLDED: "a fold", CONTRACTED: "a contraction", ATTENDED: "an attention"}
_BINDER = {
    "fold": "a fold",
    "dot": "a contraction",
    "window_dot": "a convolution",
    "winograd_dot": "a convolution",
    "attend": "an attention",
    "reindex": "a change of index",
    "at": "a look-up",
    "scan": "a running fold",
}


@dataclass(frozen=True)
class Boundary:
    """A buffer between two steps, and why it is stored."""

    producer: str
    consumer: str
    buffer: str
    type: TensorType
    reason: str


@dataclass
class Boundaries:
    """Looks at the buffers between the steps of one program; nothing `fuses` if no equation that does took part."""

    placement: Placement
    alternatives: Alternatives
    fuses: bool

    @cached_property
    def _cuts(self) -> Cuts:
        roots = self.placement.extraction.problem.roots
        return find_cuts(self.placement.snapshot, roots)

    def of(self, name: str) -> list[Boundary]:
        """Return the boundaries of a kernel, those to its producers first."""
        return [b for b in self.all() if b.consumer == name] + [b for b in self.all() if b.producer == name]

    def all(self) -> list[Boundary]:
        """Return every boundary between two kernels, in the order of the program; views are looked through."""
        return self._all

    @cached_property
    def _all(self) -> list[Boundary]:
        out: list[Boundary] = []
        types = self.placement.program.types()
        for consumer in self.placement.program.kernels:
            for operand in dict.fromkeys(consumer.operands):
                for buffer in self.sources(operand):
                    producer = self.placement.step_by_buffer.get(buffer)
                    if isinstance(producer, Kernel):
                        reason = self._reason(producer, consumer, buffer, operand, buffer != operand)
                        out.append(Boundary(producer.name, consumer.name, buffer, types[buffer], reason))
        return out

    def sources(self, operand: str) -> list[str]:
        """Return the buffers whose memory an operand is, through views and joins."""
        step = self.placement.step_by_buffer.get(operand)
        if step is None or isinstance(step, Kernel):
            return [operand]
        parts = (step.source,) if isinstance(step, View) else step.parts
        return [source for part in parts for source in self.sources(part)]

    def _reason(self, producer: Kernel, consumer: Kernel, buffer: str, operand: str, through: bool) -> str:
        for step in (producer, consumer):
            if step.is_opaque:
                where = "it runs in Python, between kernels" if step.template == HOST else "it has a kernel of its own"
                return f"a limit: {step.name} has no definition by elements: {where}"
        if not self.fuses:
            return "a limit: nothing is fused, for fusion/index-built took no part (its explain_rule says why)"
        class_ = self.placement.class_by_buffer[buffer]
        priced = self._priced(consumer, class_, producer)
        return (
            priced
            or self._limit(producer, consumer, operand, through)
            or self._needed_elsewhere(consumer, class_)
            or "no kernel that contains both was kept: enumeration drops a body when another of its kind is no dearer "
            f"in both work and loads, and keeps {OPTION_LIMIT} for each place"
        )

    def _priced(self, consumer: Kernel, class_: int, producer: Kernel) -> str:
        """Compare with the cheapest candidate that computes the consumer and the producer's tensor in one kernel."""
        extraction = self.placement.extraction
        wanted = self.placement.candidate(consumer.name).produces[0]
        rivals: list[float] = []
        for number in extraction.problem.by_class[wanted]:
            part = self.placement.part_of(number)
            if class_ in part.holds and class_ not in part.leaves:
                price = self.alternatives.program_with(wanted, number)
                if price is not None:
                    rivals.append(price)
        if not rivals:
            return ""
        more = min(rivals) - extraction.program.cost_s
        if more <= 1e-12:
            return f"a price: one kernel that also computes {producer.name} makes the program no cheaper"
        return f"a price: with {producer.name} computed inside, the cheapest program takes {tables.seconds(more)} more"

    def _limit(self, producer: Kernel, consumer: Kernel, operand: str, through: bool) -> str:
        """Find what stands between the load and the result of the consumer."""
        made = max(_kind(output.body) for output in producer.outputs)
        word = _WORD[made]
        for output in consumer.outputs:
            leaf = next((leaf for leaf in operands_of(output.body) if leaf.attrs[0] == operand), None)
            if leaf is None:
                continue
            for term in _over(output.body, leaf):
                if not may_stand_under(term.op, made):
                    binder = _binder(term)
                    return f"a limit: {binder} of {consumer.name} stands over it, and may not stand over {word}"
            if through and not may_stand_under("reindex", made):
                return f"a limit: {consumer.name} reads it by another shape, which may not stand over {word}"
            if made >= CONTRACTED and _kind(output.body) != POINTWISE:
                return f"a limit: {consumer.name} has {_WORD[_kind(output.body)]} of its own, and no kernel holds both"
            if made != POINTWISE and leaf.shape != output.body.shape:
                return f"a limit: {consumer.name} broadcasts it, which would repeat {word}"
        return ""

    def _needed_elsewhere(self, consumer: Kernel, class_: int) -> str:
        if class_ in self.placement.extraction.problem.roots:
            return "it is an output of the model, so it is stored in any case"
        if class_ not in self._cuts.must:
            return ""
        for made in (FOLDED, CONTRACTED, ATTENDED):
            binder = self._binder_over(consumer, class_, made)
            if binder:
                return (
                    f"a limit: it can be computed together with {_WORD[made]}, over which {binder} of {consumer.name} "
                    "may not stand, so it is stored in any case"
                )
        users = (
            kernel.name
            for kernel in self.placement.program.kernels
            if kernel is not consumer and any(class_ in self._classes_read(operand) for operand in kernel.operands)
        )
        who = next(users, "another kernel")
        return f"{who} has to load it, so it is stored in any case, and computing it twice is not considered"

    def _binder_over(self, consumer: Kernel, class_: int, made: int) -> str:
        for output in consumer.outputs:
            for leaf in operands_of(output.body):
                if class_ in self._classes_read(leaf.attrs[0]):
                    over = (term for term in _over(output.body, leaf) if not may_stand_under(term.op, made))
                    return next(map(_binder, over), "")
        return ""

    def _classes_read(self, operand: str) -> set[int]:
        return {self.placement.class_by_buffer[source] for source in self.sources(operand)}


def _kind(body: Term) -> int:
    ops = {term.op for term in walk(body)}
    if "attend" in ops:
        return ATTENDED
    return CONTRACTED if ops & CONTRACTIONS else FOLDED if "fold" in ops else POINTWISE


def _over(body: Term, leaf: Term) -> Iterator[Term]:
    """Yield the terms between a leaf and the root, innermost first."""
    above: set[Term] = {leaf}
    for term in walk(body):
        if term is not leaf and any(arg in above for arg in term.args):
            above.add(term)
            yield term


def _binder(term: Term) -> str:
    detail = f" ({term.attrs[0]})" if term.op == "fold" else ""
    return f"{_BINDER.get(term.op, term.op)}{detail}"
