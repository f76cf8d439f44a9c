"""Where every buffer of a program lies: in an argument, a constant, an output, or a slice of one arena.

Views lie in their source, the parts of a join in the join. Slices are reused: two buffers overlap only if one is dead
before the other is made. What has a border shares a slice only with what has the same: the border is written once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import dtypes
from frittata.egraph.errors import LoweringError
from frittata.egraph.interpret import Interpreter
from frittata.egraph.places import Places, find_places
from frittata.egraph.program import Program
from frittata.egraph.terms import Scalar, Term, size_bytes, walk
from frittata.kernels import limits
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
    strides_by_name: Mapping[str, tuple[int, ...]]
    """The distances of neighbours in elements, of buffers that are not contiguous."""
    borders: tuple[tuple[str, Scalar], ...] = ()
    """The buffers, all in the arena, that are filled with a value before the first run, in order."""
    kept: Mapping[int, int] = field(default_factory=dict[int, int])
    """The arena offset of memory that is a step's alone, by its number."""
    last: Mapping[int, int] = field(default_factory=dict[int, int])
    """The number of the step with which another runs."""


@dataclass(frozen=True)
class Together:
    """Steps that run together, as the last of them: `last` has its number for each; they hand on `buffers`.

    Those have no place, but `kept_bytes` of memory are theirs, by the number of the last step.
    """

    last: Mapping[int, int] = field(default_factory=dict[int, int])
    buffers: frozenset[str] = frozenset()
    kept_bytes: Mapping[int, int] = field(default_factory=dict[int, int])


def plan_buffers(
    program: Program, scratch_bytes: Mapping[tuple[int, int], int], together: Together | None = None
) -> Plan:
    """Place every buffer of a program.

    `scratch_bytes` gives the size of scratch memory by (number of kernel, number of argument).

    Raises: LoweringError if a join is wrong.
    """
    together = together or Together()
    places = find_places(program)
    if places.wrong:
        raise LoweringError(f"the parts of {', '.join(sorted(places.wrong))} cannot be written in place")
    types = program.types()
    fixed = _fixed_places(program)
    copied: list[int] = []
    for index, name in enumerate(program.outputs):
        found = places.by_name[name]
        is_whole = found.is_contiguous and size_bytes(types[found.root]) == size_bytes(types[name])
        if is_whole and found.root not in fixed and not places.is_bordered(found.root):
            fixed[found.root] = InOutput(index)
        else:
            copied.append(index)
    lives = [life for life in _lives(program, places, together.last) if life.name not in together.buffers]
    slot_by_root = _slots(program, places, lives)
    always = 0, len(program.kernels)  # borders are written before the first run and read in all of them
    kept = {slot: Life(slot, size_bytes(types[slot]), *always) for slot in slot_by_root.values()}
    lives = [life for life in lives if life.name not in fixed and life.name not in slot_by_root] + list(kept.values())
    lives += [Life(key, size, key[0], key[0]) for key, size in scratch_bytes.items()]
    lives += [Life(number, size, *always) for number, size in together.kept_bytes.items()]
    offsets, arena_bytes = assign_offsets(lives)
    place: dict[str, Place] = {}
    for name, found in places.by_name.items():
        if found.root in together.buffers:
            continue
        slot = slot_by_root.get(found.root, found.root)
        whole = fixed[slot] if slot in fixed else InArena(offsets[slot])
        place[name] = replace(whole, offset=whole.offset + found.offset * dtypes.itemsize(types[name].dtype))
    apart = {name: found.strides for name, found in places.by_name.items() if not found.is_contiguous}
    strides = {name: given for name, given in apart.items() if given is not None}
    borders = tuple((join, value) for join, value in places.border_by_join.items() if join in place)
    scratch = {key: offsets[key] for key in scratch_bytes}
    kept = {number: offsets[number] for number in together.kept_bytes}
    return Plan(arena_bytes, place, scratch, tuple(copied), strides, borders, kept, together.last)


def _fixed_places(program: Program) -> dict[str, Place]:
    places: dict[str, Place] = {name: InArgument(i) for i, name in enumerate(program.inputs)}
    places.update({name: InConstant(name) for name in program.constants})
    return places


def _lives(program: Program, places: Places, last_of: Mapping[int, int]) -> list[Life]:
    types = program.types()
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    root_by_name = {name: place.root for name, place in places.by_name.items()}
    for number, kernel in enumerate(program.kernels):
        for output in kernel.outputs:
            first.setdefault(root_by_name[output.name], number)
            last[root_by_name[output.name]] = number
        for name in kernel.operands:
            last[root_by_name[name]] = last_of.get(number, number)
    for name in program.outputs:
        last[root_by_name[name]] = len(program.kernels)
    return [Life(root, size_bytes(types[root]), start, last[root]) for root, start in first.items()]


def _slots(program: Program, places: Places, lives: list[Life]) -> dict[str, str]:
    """Return for each buffer with a border the one whose slice it uses: alike in type and borders, at another time."""
    borders: dict[str, list[Hashable]] = {}
    for join, value in places.border_by_join.items():
        place = places.by_name[join]
        borders.setdefault(place.root, []).append((place.at, place.shape, value))
    types = program.types()
    last_by_slot: dict[str, int] = {}
    slots_by_kind: dict[Hashable, list[str]] = {}
    slot_by_root: dict[str, str] = {}
    for life in sorted(lives, key=lambda life: life.first):
        root = str(life.name)
        if root in borders:
            slots = slots_by_kind.setdefault((types[root], tuple(borders[root])), [])
            free = [slot for slot in slots if last_by_slot[slot] < life.first]
            if not free:
                slots.append(root)
            slot_by_root[root] = slot = free[0] if free else root
            last_by_slot[slot] = life.last
    return slot_by_root


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
    """Compute the constants of a program, each operator rounded to its dtype; equal terms share one array.

    Rounded once at the end, `trunc(log(x / 8) / log(16) * 8)` of a power of two would be another integer than the
    framework's, whose steps are exact there.

    What only moves the values of a param is a view of them, so that large weights are not copied here.

    Raises: ModelError if a param has no value.
    """
    array_by_term: dict[Term, Array] = {}
    for term in program.constants.values():
        if term not in array_by_term:
            array_by_term[term] = constant_value(term, value_by_param)
    return {name: array_by_term[term] for name, term in program.constants.items()}


_MOVES = frozenset({"param", "permute", "reshape", "slice"})


def constant_value(term: Term, value_by_param: Mapping[str, Array]) -> Array:
    """Compute one constant, as `constant_values` does.

    Raises: ModelError if a param has no value.
    """
    precision = "native" if all(part.op in _MOVES for part in walk(term)) else "rounded"
    interpreter = Interpreter(value_by_param, precision)
    value = interpreter.tensor(term)
    if precision == "rounded":
        limits.note(term, interpreter, value_by_param)
    return np.asarray(value).astype(dtypes.to_numpy(term.dtype), copy=False)
