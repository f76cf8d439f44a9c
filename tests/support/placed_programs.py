"""Random programs with joins, and a run of them over the memory that the plan gives, one kernel after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from kernel_cases import Array, build, element, leaf, softmax

from frittata.egraph import dtypes, interpret, program, shapes
from frittata.egraph.ops.registry import tensor
from frittata.egraph.places import find_places, placed_bodies
from frittata.egraph.program import Estimate, Join, Kernel, Output, Program, Step, View
from frittata.egraph.terms import Scalar, TensorType, Term
from frittata.kernels.plan import InArena, InArgument, InConstant, InOutput, Plan, plan_buffers
from frittata.kernels.segments import part_of_memory

_FREE = Estimate(0, 0, 0)


def typed(name: str, type_: TensorType) -> Term:
    """Return the leaf that stands for a buffer."""
    return leaf(name, *shapes.concrete(type_.shape), dtype=type_.dtype)


@dataclass
class _Grower:
    """Grows the steps of a program; joins that cannot be in place are taken back."""

    rng: np.random.Generator
    types: dict[str, TensorType]
    steps: list[Step] = field(default_factory=list[Step])

    def any(self) -> str:
        """Draw a buffer, often one of the latest."""
        names = list(self.types)
        return str(self.rng.choice(names[-3:] if self.rng.random() < 0.6 else names))

    def kernel(self, name: str) -> None:
        source = self.any()
        shape = shapes.concrete(self.types[source].shape)
        loaded = element("load", typed(source, self.types[source]))
        bodies = [element("tanh", loaded), element("add", loaded, loaded)]
        if shape:
            bodies.append(softmax(loaded, -1, shape[-1]))
        body = build(bodies[self.rng.integers(len(bodies))], *shape)
        self.add(Kernel(name, "nest", (Output(name, body),), (source,), _FREE), TensorType(shape, "f32"))

    def view(self, name: str) -> None:
        """Merge the first two axes, or take a part of what is contiguous along the first."""
        source = self.any()
        shape = shapes.concrete(self.types[source].shape)
        rank = len(shape)
        if self.rng.random() < 0.5 and rank > 2:
            type_ = TensorType((shape[0] * shape[1], *shape[2:]), "f32")
            self.add(View(name, source, type_), type_)
        elif shape[0] > 1:
            type_ = TensorType((shape[0] - 1, *shape[1:]), "f32")
            self.add(View(name, source, type_, shapes.size(shape[1:])), type_)

    def concat(self, name: str) -> None:
        first = self.any()
        shape = self.types[first].shape
        axis = int(self.rng.integers(-len(shape), 0))
        fitting = [
            other
            for other, type_ in self.types.items()
            if len(type_.shape) == len(shape)
            and all(a == b for i, (a, b) in enumerate(zip(type_.shape, shape, strict=True)) if i - len(shape) != axis)
        ]
        second = str(self.rng.choice(fitting))
        self.join(name, tensor("concat", *(typed(n, self.types[n]) for n in (first, second)), axis=axis))

    def pad(self, name: str) -> None:
        source = self.any()
        rank = len(self.types[source].shape)
        low, high = (tuple(map(int, self.rng.integers(0, 3, rank))) for _ in range(2))
        value = Scalar.of(self.rng.integers(-2, 3), "f32")
        self.join(name, tensor("pad", typed(source, self.types[source]), low=low, high=high, value=value))

    def permute(self, name: str) -> None:
        source = self.any()
        order = tuple(map(int, self.rng.permutation(len(self.types[source].shape))))
        self.join(name, tensor("permute", typed(source, self.types[source]), permutation=order))

    def join(self, name: str, body: Term) -> None:
        if shapes.size(body.shape) < 300:
            self.add(Join(name, body), TensorType(body.shape, "f32"))

    def add(self, step: Step, type_: TensorType) -> None:
        self.steps.append(step)
        if find_places(self.program(())).wrong:
            self.steps.pop()
        else:
            self.types[step.name] = type_

    def program(self, outputs: tuple[str, ...]) -> Program:
        return Program(
            {"a": TensorType((2, 3, 4), "f32"), "b": TensorType((3, 1, 5), "f32")}, {}, (*self.steps,), outputs
        )


def random_placed_program(seed: int, length: int = 20) -> Program:
    """Draw a program of kernels, views, concatenations and borders, nested in any way that is right."""
    rng = np.random.default_rng(seed)
    grower = _Grower(rng, {})
    grower.types = dict(grower.program(()).inputs)
    for number in range(length):
        makers = (grower.kernel, grower.kernel, grower.concat, grower.pad, grower.permute, grower.view)
        makers[rng.integers(len(makers))](f"v{number}")
    places = find_places(grower.program(()))
    whole = [name for name in grower.types if places.by_name[name].strides is not None]
    return grower.program(tuple(map(str, rng.choice(whole, min(4, len(whole)), replace=False))))


def run_over_memory(program_: Program, plan: Plan, values: list[list[Array]]) -> list[list[Array]]:
    """Run a program for each list of arguments over one arena, with the law for kernels and their places for memory."""
    places = find_places(program_)
    types = program_.types()
    arena = np.full(plan.arena_bytes, 0xA5, np.uint8)

    def memory(name: str, arguments: list[Array], outputs: list[Array]) -> tuple[Array, int]:
        match plan.place_by_name[name]:
            case InArena(offset=offset):
                return arena, offset
            case InArgument(index=index, offset=offset):
                return arguments[index], offset
            case InOutput(index=index, offset=offset):
                return outputs[index], offset
            case InConstant():
                raise AssertionError("there are none")

    for name, value in plan.borders:
        part_of_memory(*memory(name, [], []), types[name], plan.strides_by_name.get(name))[...] = value.value
    results: list[list[Array]] = []
    for arguments in values:
        outputs = [np.zeros(shapes.concrete(types[n].shape), dtypes.to_numpy(types[n].dtype)) for n in program_.outputs]
        for kernel in program_.kernels:
            bodies = placed_bodies(kernel, places)
            given = {
                operand.attrs[0]: part_of_memory(
                    *memory(operand.attrs[0], arguments, outputs), TensorType(operand.shape, operand.dtype)
                ).copy()
                for operand in program.operands_of(*bodies)
            }
            found = interpret.evaluate(bodies, given, "native")
            for output, body, value in zip(kernel.outputs, bodies, found, strict=True):
                store(body, value, *memory(output.name, arguments, outputs))
        for index in plan.copied_outputs:
            name = program_.outputs[index]
            outputs[index][...] = part_of_memory(
                *memory(name, arguments, outputs), types[name], plan.strides_by_name.get(name)
            )
        results.append(outputs)
    return results


def store(body: Term, value: Array, where: Array, offset: int) -> None:
    """Write what a body computes where its place says."""
    if body.op == "build":
        part_of_memory(where, offset, TensorType(body.shape, body.dtype))[...] = value
        return
    flat = where.reshape(-1).view(np.uint8)[offset:]
    elements = flat[: flat.size // value.itemsize * value.itemsize].view(value.dtype)
    grids = np.indices(value.shape)
    at = body.attrs[1].evaluate(lambda axis: grids[axis])
    elements[np.broadcast_to(at, value.shape)] = value


def planned(program_: Program) -> Plan:
    """Plan a program whose kernels need no scratch memory."""
    return plan_buffers(program_, {})
