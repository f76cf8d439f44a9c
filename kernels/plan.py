"""Where every buffer of a program lies: in an argument, a constant, an output, or a slice of one arena.

Views lie in their source, the parts of a join in the join. Slices are reused: two buffers overlap only if one is dead
before the other is made.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import dtypes, shapes
from frittata.egraph.interpret import Interpreter
from frittata.egraph.program import Join, Program, View
from frittata.egraph.terms import TensorType, Term, walk
from frittata.kernels.lowered import aligned

Array = NDArray[Any]


@dataclass(frozen=True)
class InArgument:
    """In the array of an argument, from byte `offset` on."""

    index: int
    offset: int = 0


@dataclass(frozen=True)
class InConstant:
    """In the array of a constant, from byte `offset` on."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class InOutput:
    """In the array that the call returns as output number `index`, from byte `offset` on."""

    index: int
    offset: int = 0


@dataclass(frozen=True)
class InArena:
    """In the arena, from byte `offset` on."""

    offset: int


Place = InArgument | InConstant | InOutput | InArena


@dataclass(frozen=True)
class Life:
    """A piece of memory of `size_bytes` that is in use from step `first` to step `last`, both included."""

    name: Hashable
    size_bytes: int
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """Whether both are in use in some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Plan:
    """The place of every buffer; `scratch` gives the arena offset for each kernel and number of scratch argument."""

    arena_bytes: int
    place_by_name: Mapping[str, Place]
    scratch: Mapping[tuple[int, int], int]
    copied_outputs: tuple[int, ...]
    """Outputs that are no kernel's to write: arguments, constants, the memory of another output, or parts of some."""


def plan_buffers(program: Program, scratch_bytes: Mapping[tuple[int, int], int]) -> Plan:
    """Place every buffer of a program.

    `scratch_bytes` gives the size of scratch memory by (number of kernel, number of argument).
    """
    memory = _memories(program)
    types = program.types()
    fixed = _fixed_places(program)
    copied: list[int] = []
    for index, name in enumerate(program.outputs):
        root, _ = memory[name]
        if root in fixed or size_bytes(types[root]) != size_bytes(types[name]):
            copied.append(index)
        else:
            fixed[root] = InOutput(index)
    lives = [life for life in _lives(program, memory) if life.name not in fixed]
    lives += [Life(key, size, key[0], key[0]) for key, size in scratch_bytes.items()]
    offsets, arena_bytes = assign_offsets(lives)
    place: dict[str, Place] = {}
    for name, (root, offset) in memory.items():
        whole = fixed[root] if root in fixed else InArena(offsets[root])
        place[name] = replace(whole, offset=whole.offset + offset)
    return Plan(arena_bytes, place, {key: offsets[key] for key in scratch_bytes}, tuple(copied))


def _memories(program: Program) -> dict[str, tuple[str, int]]:
    """Return for each buffer the one whose memory it uses, and from which byte on."""
    types = program.types()
    around: dict[str, tuple[str, int]] = {}

    def find(name: str) -> tuple[str, int]:
        offset = 0
        while name in around:
            name, more = around[name]
            offset += more
        return name, offset

    for step in program.steps:
        if isinstance(step, View):
            around[step.name] = step.source, step.offset * dtypes.itemsize(step.type.dtype)
        elif isinstance(step, Join):
            end = 0
            for part in step.parts:
                around[find(part)[0]] = step.name, end
                end += size_bytes(types[part])
    return {name: find(name) for name in types}


def _fixed_places(program: Program) -> dict[str, Place]:
    places: dict[str, Place] = {name: InArgument(i) for i, name in enumerate(program.inputs)}
    places.update({name: InConstant(name) for name in program.constants})
    return places


def _lives(program: Program, memory: Mapping[str, tuple[str, int]]) -> list[Life]:
    types = program.types()
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, kernel in enumerate(program.kernels):
        for output in kernel.outputs:
            root, _ = memory[output.name]
            first.setdefault(root, number)
            last[root] = number
        for name in kernel.operands:
            last[memory[name][0]] = number
    for name in program.outputs:
        last[memory[name][0]] = len(program.kernels)
    return [Life(root, size_bytes(types[root]), start, last[root]) for root, start in first.items()]


def size_bytes(type_: TensorType) -> int:
    """Return the size of a buffer."""
    return shapes.size(type_.shape) * dtypes.itemsize(type_.dtype)


def assign_offsets(lives: list[Life]) -> tuple[dict[Hashable, int], int]:
    """Give each life an offset: the largest first, each as low as it goes beside those it meets.

    Returns the offsets and the size of it all.
    Source: greedy by size, Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020.
    """
    placed: list[tuple[int, int, Life]] = []
    for life in sorted(lives, key=lambda life: -life.size_bytes):
        offset = 0
        for start, end in sorted((start, end) for start, end, other in placed if other.meets(life)):
            if start - offset >= aligned(life.size_bytes):
                break
            offset = max(offset, end)
        placed.append((offset, offset + aligned(life.size_bytes), life))
    return {life.name: start for start, _, life in placed}, max((end for _, end, _ in placed), default=0)


def evaluate_constants(program: Program, value_by_param: Mapping[str, Array]) -> dict[str, Array]:
    """Compute the constants of a program as contiguous arrays; equal terms share one.

    Raises: ModelError if a param has no value.
    """
    values = constant_values(program, value_by_param)
    array_by_id = {id(value): np.require(value, requirements=["C", "A"]) for value in values.values()}
    return {name: array_by_id[id(value)] for name, value in values.items()}


def constant_values(program: Program, value_by_param: Mapping[str, Array]) -> dict[str, Array]:
    """Compute the constants of a program, in float64 and then rounded; equal terms share one array.

    What only moves the values of a param is a view of them, so that large weights are not copied here.

    Raises: ModelError if a param has no value.
    """
    array_by_term: dict[Term, Array] = {}
    for term in program.constants.values():
        if term not in array_by_term:
            array_by_term[term] = _constant(term, value_by_param)
    return {name: array_by_term[term] for name, term in program.constants.items()}


_MOVES = frozenset({"param", "permute", "reshape", "slice"})


def _constant(term: Term, value_by_param: Mapping[str, Array]) -> Array:
    precision = "native" if all(part.op in _MOVES for part in walk(term)) else "f64"
    value = Interpreter(value_by_param, precision).tensor(term)
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(dtypes.to_numpy(term.dtype), copy=False)
