"""Where every buffer of a program lies: in an argument, a constant, an output, or a slice of one arena.

Views lie where their source lies. Slices are reused: two buffers overlap only if one is dead before the other is made.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.interpret import Interpreter
from frittata.egraph.program import Program, View
from frittata.egraph.terms import TensorType, Term
from frittata.kernels.lowered import aligned

Array = NDArray[Any]


@dataclass(frozen=True)
class InArgument:
    """In the array of an argument."""

    index: int


@dataclass(frozen=True)
class InConstant:
    """In the array of a constant."""

    name: str


@dataclass(frozen=True)
class InOutput:
    """In the array that the call returns as output number `index`."""

    index: int


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
    """Outputs that are no kernel's to write: arguments, constants, or the same memory as another output."""


def plan_buffers(program: Program, scratch_bytes: Mapping[tuple[int, int], int]) -> Plan:
    """Place every buffer of a program.

    `scratch_bytes` gives the size of scratch memory by (number of kernel, number of argument).
    """
    root = _roots(program)
    fixed = _fixed_places(program)
    copied: list[int] = []
    for index, name in enumerate(program.outputs):
        if root[name] in fixed:
            copied.append(index)
        else:
            fixed[root[name]] = InOutput(index)
    lives = [life for life in _lives(program, root) if life.name not in fixed]
    lives += [Life(key, size, key[0], key[0]) for key, size in scratch_bytes.items()]
    offsets, arena_bytes = assign_offsets(lives)
    place = {name: fixed[r] if r in fixed else InArena(offsets[r]) for name, r in root.items()}
    return Plan(arena_bytes, place, {key: offsets[key] for key in scratch_bytes}, tuple(copied))


def _roots(program: Program) -> dict[str, str]:
    """Name for each buffer the one whose memory it uses."""
    root = {name: name for name in (*program.inputs, *program.constants)}
    for step in program.steps:
        if isinstance(step, View):
            root[step.name] = root[step.source]
        else:
            root.update({output.name: output.name for output in step.outputs})
    return root


def _fixed_places(program: Program) -> dict[str, Place]:
    places: dict[str, Place] = {name: InArgument(i) for i, name in enumerate(program.inputs)}
    places.update({name: InConstant(name) for name in program.constants})
    return places


def _lives(program: Program, root: Mapping[str, str]) -> list[Life]:
    types = program.types()
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, kernel in enumerate(program.kernels):
        for output in kernel.outputs:
            first[output.name] = last[output.name] = number
        for name in kernel.operands:
            last[root[name]] = number
    return [Life(name, size_bytes(types[name]), start, last[name]) for name, start in first.items()]


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
    """Compute the constants of a program, in float64 and then rounded; equal terms share one array.

    Raises: ModelError if a param has no value.
    """
    interpreter = Interpreter(value_by_param, "f64")
    array_by_term: dict[Term, Array] = {}
    for term in program.constants.values():
        if term not in array_by_term:
            array_by_term[term] = _constant(term, value_by_param, interpreter)
    return {name: array_by_term[term] for name, term in program.constants.items()}


def _constant(term: Term, value_by_param: Mapping[str, Array], interpreter: Interpreter) -> Array:
    dtype = dtypes.to_numpy(term.dtype)
    if term.op == "param" and term.attrs[0] in value_by_param:
        value = np.asarray(value_by_param[term.attrs[0]])
        if value.shape != term.shape:
            raise ModelError(f"param {term.attrs[0]!r} has shape {value.shape}, declared {shapes.fmt(term.shape)}")
    else:
        value = interpreter.tensor(term)
    with np.errstate(over="ignore"):
        return np.require(value, dtype, ["C", "A"])
