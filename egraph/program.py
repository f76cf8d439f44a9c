"""The chosen program: kernels, views and constants, in the language of terms, and what a kernel template promises.

A body is a `build` term whose tensors are `input` leaves named after buffers: what the kernel reads. All buffers are
row-major and contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from frittata.egraph import terms
from frittata.egraph.machine import Machine
from frittata.egraph.ops import registry
from frittata.egraph.terms import TensorType, Term


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
    """One step: computes its outputs, all of one shape, in one pass of one template."""

    name: str
    template: str
    outputs: tuple[Output, ...]
    operands: tuple[str, ...]
    estimate: Estimate
    rules: tuple[str, ...] = ()
    class_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class View:
    """Another shape for the same memory: no work at run time."""

    name: str
    source: str
    type: TensorType


@dataclass(frozen=True)
class Program:
    """Steps in order. `inputs` are arguments; `constants` are computed from params before run time."""

    inputs: dict[str, TensorType]
    constants: dict[str, Term]
    steps: tuple[Kernel | View, ...]
    outputs: tuple[str, ...]
    cost_s: float = 0.0
    gap: float = 0.0
    notes: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The steps that compute."""
        return tuple(step for step in self.steps if isinstance(step, Kernel))

    def types(self) -> dict[str, TensorType]:
        """Return the type of every buffer."""
        out = dict(self.inputs)
        out.update({name: _tensor_type(term) for name, term in self.constants.items()})
        for step in self.steps:
            if isinstance(step, View):
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
                value[step.name] = registry.make("reshape", "tensor", (value[step.source],), (step.type.shape,))
                continue
            for output in step.outputs:
                leaves = {leaf: value[leaf.attrs[0]] for leaf in operands_of(output.body)}
                value[output.name] = terms.substitute(output.body, leaves)
        return tuple(value[name] for name in self.outputs)


def _tensor_type(term: Term) -> TensorType:
    assert isinstance(term.type, TensorType)
    return term.type


def operands_of(*bodies: Term) -> Iterator[Term]:
    """Visit the buffers that bodies read, as `input` leaves, in order of first use."""
    for term in terms.walk(*bodies):
        if term.op == "input":
            yield term


class Template(Protocol):
    """One way to compute kernels. `name` identifies it in programs and reports."""

    name: str

    def estimate(self, bodies: tuple[Term, ...], constants: frozenset[str], machine: Machine) -> Estimate | None:
        """Predict the cost of computing `bodies`, all of one shape, in one kernel; None if the template cannot.

        `constants` names the operands known before run time, which may be packed for free.
        """
        ...
