"""The argument tables of a program's kernels: which address stands where, and which change from call to call."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import program, shapes
from frittata.egraph.program import Program, View
from frittata.kernels.lowered import (
    ALIGNMENT_BYTES,
    Argument,
    HostStep,
    LoweredKernel,
    Operand,
    PackedConstant,
    Result,
    Scratch,
    Status,
    Unread,
)
from frittata.kernels.plan import InArena, InArgument, InConstant, Place, Plan

Array = NDArray[Any]


class Tables:
    """The argument tables of all kernels in one array, and which of its entries change.

    `fixed` holds addresses of constants and offsets into the arena, which `in_arena` points out; of `moving`, each
    triple (entry, source, offset) has an entry that takes the address of argument number `source` at each call, the
    outputs counted after the arguments, plus `offset` bytes; entries `in_status` are offsets into the `status_words`
    words of status; the table of the i-th compiled kernel begins at `starts[i]`.
    """

    def __init__(
        self, program_: Program, lowered: Sequence[LoweredKernel | HostStep], plan: Plan, constants: Mapping[str, Array]
    ) -> None:
        self.constants = _constants_by_buffer(program_, constants)
        self._plan = plan
        self._inputs = len(program_.inputs)
        self._packed: dict[Any, Array] = {}
        self._kept: list[Array] = []
        self._entries: list[int] = []
        self._in_arena: list[int] = []
        self.moving: list[tuple[int, int, int]] = []
        self.in_status: list[int] = []
        self.status_words = 0
        self.starts: list[int] = []
        for number, (kernel, low) in enumerate(zip(program_.kernels, lowered, strict=True)):
            if not isinstance(low, LoweredKernel):
                continue
            self.starts.append(len(self._entries))
            names = [leaf.attrs[0] for leaf in program.operands_of(*(output.body for output in kernel.outputs))]
            results = [output.name for output in kernel.outputs]
            for position, argument in enumerate(low.arguments):
                self._add(argument, names, results, (number, position))
        self._forget_packed(program_, lowered)
        self.fixed = np.array(self._entries, np.int64)
        self.in_arena = np.array(self._in_arena, np.intp)

    def _add(self, argument: Argument, names: list[str], results: list[str], key: tuple[int, int]) -> None:
        match argument:
            case Operand(index=index):
                self._add_place(self._plan.place_by_name[names[index]])
            case Unread():
                self._entries.append(0)
            case Result(index=index):
                self._add_place(self._plan.place_by_name[results[index]])
            case Status(words=words):
                self.in_status.append(len(self._entries))
                self._entries.append(8 * self.status_words)
                self.status_words += words
            case Scratch():
                self._add_place(InArena(self._plan.scratch[key]))
            case PackedConstant():
                self._add_array(self._pack(argument, names))
            case _:
                self._add_array(np.ascontiguousarray(argument.array))

    def _add_place(self, place: Place) -> None:
        entry = len(self._entries)
        if isinstance(place, InConstant):
            self._add_array(self._contiguous(place.name), place.offset)
        elif isinstance(place, InArena):
            self._in_arena.append(entry)
            self._entries.append(place.offset)
        else:
            source = place.index if isinstance(place, InArgument) else self._inputs + place.index
            self.moving.append((entry, source, place.offset))
            self._entries.append(0)

    def _add_array(self, array: Array, offset: int = 0) -> None:
        self._kept.append(array)
        self._entries.append(address(array) + offset)

    def _contiguous(self, name: str) -> Array:
        """Lay a constant out as kernels read it, once."""
        array = self.constants[name]
        if not (array.flags.c_contiguous and array.flags.aligned):
            array = self.constants[name] = np.require(array, requirements=["C", "A"])
        return array

    def _forget_packed(self, program_: Program, lowered: Sequence[LoweredKernel | HostStep]) -> None:
        """Drop constants that only packing needed: beside weights and their packed form there is no third copy."""
        steps = zip(program_.kernels, lowered, strict=True)
        names = {name for kernel, low in steps if isinstance(low, HostStep) for name in kernel.operands}
        places = (self._plan.place_by_name[name] for name in names.union(program_.outputs))
        needed = {place.name for place in places if isinstance(place, InConstant)}
        self.constants = {name: array for name, array in self.constants.items() if name in needed}

    def _pack(self, argument: PackedConstant, names: list[str]) -> Array:
        arrays = [self.constants[names[i]] for i in argument.operands]
        key = (argument.key, *map(id, arrays))
        if key not in self._packed:
            self._packed[key] = np.ascontiguousarray(argument.pack(*arrays))
        return self._packed[key]


def _constants_by_buffer(program_: Program, constants: Mapping[str, Array]) -> dict[str, Array]:
    """Return the values of constants and of views of them."""
    out = dict(constants)
    for step in program_.steps:
        if isinstance(step, View) and step.source in out:
            out[step.name] = part_of(out[step.source], step)
    return out


def part_of(array: Array, view: View) -> Array:
    """Return the part of a contiguous array that a view names."""
    shape = shapes.concrete(view.type.shape)
    return array.reshape(-1)[view.offset : view.offset + prod(shape)].reshape(shape)


def address(array: Array) -> int:
    """Return where the first element of an array lies."""
    return array.__array_interface__["data"][0]


_POINTER = object.__basicsize__
"""In numpy's binary interface the address is the first field after the head of the object."""
_from_address = ctypes.c_ssize_t.from_address


def _quick_addresses(arrays: Iterable[Array]) -> list[int]:
    return [_from_address(id(array) + _POINTER).value for array in arrays]


def _choose_addresses() -> Callable[[Iterable[Array]], list[int]]:
    array = np.empty(1)
    quick = sys.implementation.name == "cpython" and _quick_addresses([array]) == [address(array)]
    return _quick_addresses if quick else lambda arrays: list(map(address, arrays))


quick_addresses: Callable[[Iterable[Array]], list[int]] = _choose_addresses()
"""`address` of each, ten times as fast, for arrays of type ndarray itself."""


def aligned_bytes(size: int) -> Array:
    """Return memory that starts at a cache line."""
    raw = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    start = -address(raw) % ALIGNMENT_BYTES
    return raw[start : start + size]
