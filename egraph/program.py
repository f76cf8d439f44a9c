"""The chosen program: kernels, views and constants, in the language of terms, and what a kernel template promises.

A body is a `build` term whose tensors are `input` leaves named after buffers: what the kernel reads. The body of an
opaque operator is that operator over such leaves: a host step runs it, or a kernel of its own. Buffers are row-major
and contiguous, but for those that lie in another: see `places`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from frittata.egraph import shapes, terms
from frittata.egraph.machine import Machine
from frittata.egraph.model import Function, Model
from frittata.egraph.ops import registry
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import TensorType, Term

HOST = "host"
"""The template of opaque operators: what runs in Python, between kernels."""


@dataclass(frozen=True)
class Output:
    """A buffer that a kernel writes, and the body that says what."""

    name: str
    body: Term


@dataclass(frozen=True)
class Estimate:
    """What a kernel is predicted to take. Units: seconds, floating-point operations, bytes moved."""

    seconds: float
    flops: float
    bytes: float


@dataclass(frozen=True)
class Kernel:
    """One step: computes its outputs in one pass of one template, all of one shape unless it is a host step."""

    name: str
    template: str
    outputs: tuple[Output, ...]
    operands: tuple[str, ...]
    estimate: Estimate
    rules: tuple[str, ...] = ()

    @property
    def is_opaque(self) -> bool:
        """Whether it runs an operator that has no definition by elements."""
        return registry.get(self.outputs[0].body.op).opaque


@dataclass(frozen=True)
class View:
    """A contiguous part of another buffer, from element `offset` on, under a shape of its own: no work at run time."""

    name: str
    source: str
    type: TensorType
    offset: int = 0


@dataclass(frozen=True)
class Join:
    """A concatenation of buffers, or a buffer with a border of one value: parts are written in place, no work is left.

    `body` is the operator over `input` leaves named after the parts.
    """

    name: str
    body: Term

    @property
    def parts(self) -> tuple[str, ...]:
        """The buffers that lie in it."""
        return tuple(leaf.attrs[0] for leaf in self.body.args)

    @property
    def type(self) -> TensorType:
        """The type of the whole."""
        return _tensor_type(self.body)


Step = Kernel | View | Join


@dataclass(frozen=True)
class Band:
    """Kernels, one after the other, that run together, some lines of an image at a time: see `bands`.

    The lines of the last one fall into so many `parts`, each done by one thread.
    """

    kernels: tuple[str, ...]
    parts: int


@dataclass(frozen=True)
class Program:
    """Steps in order. `inputs` are arguments; `constants` are computed from params before run time."""

    inputs: dict[str, TensorType]
    constants: dict[str, Term]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    cost_s: float = 0.0
    gap: float = 0.0
    bands: tuple[Band, ...] = ()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The steps that compute."""
        return tuple(step for step in self.steps if isinstance(step, Kernel))

    def constant_buffers(self) -> frozenset[str]:
        """Return the names of buffers known before run time: constants, and views of them."""
        names = set(self.constants)
        names.update(step.name for step in self.steps if isinstance(step, View) and step.source in names)
        return frozenset(names)

    def types(self) -> dict[str, TensorType]:
        """Return the type of every buffer."""
        out = dict(self.inputs)
        out.update({name: _tensor_type(term) for name, term in self.constants.items()})
        for step in self.steps:
            if isinstance(step, View | Join):
                out[step.name] = step.type
            else:
                out.update({output.name: _tensor_type(output.body) for output in step.outputs})
        return out

    def to_terms(self) -> tuple[Term, ...]:
        """Return the outputs as terms over inputs and params, with every body substituted: for the interpreter."""
        value: dict[str, Term] = {
            name: registry.make("input", "tensor", (), (name, t.shape, t.dtype)) for name, t in self.inputs.items()
        }
        value.update(self.constants)
        for step in self.steps:
            if isinstance(step, View):
                value[step.name] = _part(value[step.source], step.offset, step.type.shape)
                continue
            bodies = {step.name: step.body} if isinstance(step, Join) else {o.name: o.body for o in step.outputs}
            for name, body in bodies.items():
                leaves = {leaf: value[leaf.attrs[0]] for leaf in operands_of(body)}
                value[name] = terms.substitute(body, leaves)
        return tuple(value[name] for name in self.outputs)

    def as_model(self, chosen_for: Model) -> Model:
        """Return the model that says what the kernels compute, with inputs and params of the one it was chosen for."""
        return Model({"main": Function(chosen_for.main.inputs, self.to_terms())}, chosen_for.params)


def _part(source: Term, offset: int, shape: Shape) -> Term:
    length = shapes.size(shape)
    if length != shapes.size(source.shape):
        flat = _reshaped(source, (shapes.size(source.shape),))
        source = registry.make("slice", "tensor", (flat,), (-1, offset, 1, length))
    return _reshaped(source, shape)


def _reshaped(term: Term, shape: Shape) -> Term:
    return registry.make("reshape", "tensor", (term,), (shape,))


def _tensor_type(term: Term) -> TensorType:
    assert isinstance(term.type, TensorType)
    return term.type


def operands_of(*bodies: Term) -> Iterator[Term]:
    """Visit the buffers that bodies read, as `input` leaves, in order of first use."""
    for term in terms.walk(*bodies):
        if term.op == "input":
            yield term


class Template(Protocol):
    """One way to compute kernels. `name` identifies it in programs and reports.

    One that has `in_place = True` also takes `part` bodies: it stores each value where `at` says and nothing else.
    One that has `opaque = True` takes opaque operators, and is not asked for anything else.
    One whose results are not equal to what bodies say but for rounding has the level of such rules as its `level`.
    One whose estimates take long has a method `least_s(bodies, machine)`, which says in less that it takes no less.
    """

    name: str

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the cost of computing `bodies`, all of one shape, in one kernel; None if the template cannot.

        `constants` names the operands known before run time, which may be packed for free.
        """
        ...


def is_in_place(template: Template) -> bool:
    """Whether a template writes and reads buffers that lie apart in others."""
    return getattr(template, "in_place", False)


def least_s(template: Template, bodies: tuple[Term, ...], machine: Machine) -> float:
    """Return seconds than which a template will estimate no less; 0 if it does not say."""
    bound: Callable[[tuple[Term, ...], Machine], float] | None = getattr(template, "least_s", None)
    return 0.0 if bound is None else bound(bodies, machine)


def level_of(template: Template) -> str:
    """Return the loosest level of numerics that a template asks for."""
    return getattr(template, "level", "exact")


def takes_opaque(template: Template) -> bool:
    """Whether a template runs opaque operators."""
    return getattr(template, "opaque", False)
