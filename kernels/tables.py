"""The argument tables of a program's kernels: which address stands where, and which change from call to call."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import program
from frittata.egraph.program import Program
from frittata.egraph.terms import Term
from frittata.kernels.constants import Constants
from frittata.kernels.lowered import (
    ALIGNMENT_BYTES,
    Argument,
    Call,
    Counter,
    Held,
    HostStep,
    LoweredKernel,
    Number,
    Operand,
    PackedConstant,
    Result,
    Scratch,
    Status,
    Unread,
    Walk,
    Within,
)
from frittata.kernels.plan import InArena, InArgument, InConstant, Place, Plan
from frittata.kernels.shared import shared

Array = NDArray[Any]


class Tables:
    """The argument tables of all kernels in one array, and which of its entries change.

    `fixed` holds addresses of constants and offsets into the arena, which `in_arena` points out; of `moving`, each
    triple (entry, source, offset) has an entry that takes the address of argument number `source` at each call, the
    outputs counted after the arguments, plus `offset` bytes; entries `in_status` are offsets into the `status_words`
    words of status and counters; entries `in_tables` are offsets into the tables themselves; the table of the i-th
    compiled kernel begins at `starts[i]`. `code` has the addresses of the kernels that others call.
    """

    def __init__(
        self,
        program_: Program,
        lowered: Sequence[LoweredKernel | HostStep],
        plan: Plan,
        constants: Constants,
        code: Mapping[LoweredKernel, int],
    ) -> None:
        self._code = code
        self._constants = constants
        self._plan = plan
        self._inputs = len(program_.inputs)
        self._packed: dict[Any, Array] = {}
        self._kept: list[Array] = []
        self._entries: list[int] = []
        self._in_arena: list[int] = []
        self.moving: list[tuple[int, int, int]] = []
        self.in_status: list[int] = []
        self.status_words = 0
        self._counters: list[int] = []
        self._in_tables: list[int] = []
        self.starts: list[int] = []
        needed = self._needed(program_, lowered)
        self.constants = {name: constants.contiguous(name) for name in needed}
        last = self._last_reads(program_)
        for number, (kernel, low) in enumerate(zip(program_.kernels, lowered, strict=True)):
            if not isinstance(low, LoweredKernel):
                continue
            names = [leaf.attrs[0] for leaf in program.operands_of(*(output.body for output in kernel.outputs))]
            results = [output.name for output in kernel.outputs]
            self.starts.append(len(self._entries))
            for position, argument in enumerate(low.arguments):
                self._add(argument, names, results, (number, position))
            constants.forget(term for term, reader in last.items() if reader == number)
        self._place_counters()
        self.fixed = np.array(self._entries, np.int64)
        self.in_arena = np.array(self._in_arena, np.intp)
        self.in_tables = np.array(self._in_tables, np.intp)

    def _add(self, argument: Argument, names: list[str], results: list[str], key: tuple[int, int]) -> None:
        match argument:
            case Operand(index=index, start=start):
                place = self._plan.place_by_name[names[index]]
                self._add_place(replace(place, offset=place.offset + start))
            case Unread():
                self._entries.append(0)
            case Result(index=index):
                self._add_place(self._plan.place_by_name[results[index]])
            case Status(words=words):
                self.in_status.append(len(self._entries))
                self._entries.append(8 * self.status_words)
                self.status_words += words
            case Counter():
                self._counters.append(len(self._entries))
                self._entries.append(0)
            case Scratch():
                self._add_place(InArena(self._plan.scratch[key]))
            case PackedConstant():
                self._add_array(self._pack(argument, names))
            case Walk():
                self._add_walk(argument, self._plan.kept[key[0]])
            case _:
                self._add_array(np.ascontiguousarray(argument.array))

    def _add_walk(self, walk: Walk, memory: int) -> None:
        """Add where rows begin and the row of each chunk; behind them the tables of calls, then the rows.

        The memory of the calls is `memory` bytes into the arena.
        """
        rows = len(self._entries)
        self._add_entry(0)
        self._entries += [0, *accumulate(map(len, walk.calls))]
        tables = [(call, self._add_call(call, memory)) for calls in walk.calls for call in calls]
        self._entries[rows] = 8 * len(self._entries)
        for call, table in tables:
            self._entries.append(self._code[call.kernel])
            self._add_entry(table)
            self._entries.append(call.kernel.chunks)

    def _add_call(self, call: Call, memory: int) -> int:
        start = len(self._entries)
        names = [place.buffer if isinstance(place, Within) else "" for place in call.operands]
        for argument in call.kernel.arguments:
            match argument:
                case Operand(index=index):
                    self._add_within(call.operands[index], memory)
                case Result():
                    assert call.result is not None
                    self._add_within(call.result, memory)
                case Scratch():
                    self._add_place(InArena(memory + call.scratch))
                case _:
                    self._add(argument, names, [], (0, 0))
        return start

    def _add_within(self, where: Held | Within | Number, memory: int) -> None:
        if isinstance(where, Number):
            self._entries.append(where.value)
        elif isinstance(where, Held):
            self._add_place(InArena(memory + where.offset))
        else:
            place = self._plan.place_by_name[where.buffer]
            self._add_place(replace(place, offset=place.offset + where.offset))

    def _add_entry(self, entry: int) -> None:
        """Add the address of another entry."""
        self._in_tables.append(len(self._entries))
        self._entries.append(8 * entry)

    def _place_counters(self) -> None:
        """Let counters follow the words of status, which are numbered by look-ups."""
        for entry in self._counters:
            self.in_status.append(entry)
            self._entries[entry] = 8 * self.status_words
            self.status_words += 1

    def _add_place(self, place: Place) -> None:
        entry = len(self._entries)
        if isinstance(place, InConstant):
            self._add_array(self._constants.contiguous(place.name), place.offset)
        elif isinstance(place, InArena):
            self._in_arena.append(entry)
            self._entries.append(place.offset)
        else:
            source = place.index if isinstance(place, InArgument) else self._inputs + place.index
            self.moving.append((entry, source, place.offset))
            self._entries.append(0)

    @cached_property
    def constant_memory(self) -> list[tuple[int, int]]:
        """Where constants lie that kernels read: pairs of addresses, of the first byte and behind the last."""
        starts = map(address, self._kept)
        return [(start, start + array.nbytes) for start, array in zip(starts, self._kept, strict=True)]

    def _add_array(self, array: Array, offset: int = 0) -> None:
        self._kept.append(array)
        self._entries.append(address(array) + offset)

    def _needed(self, program_: Program, lowered: Sequence[LoweredKernel | HostStep]) -> set[str]:
        """Return the constants that are read otherwise than by compiled kernels: those stay by name."""
        steps = zip(program_.kernels, lowered, strict=True)
        names = {name for kernel, low in steps if isinstance(low, HostStep) for name in kernel.operands}
        places = (self._plan.place_by_name[name] for name in names.union(program_.outputs))
        return {place.name for place in places if isinstance(place, InConstant)}

    def _last_reads(self, program_: Program) -> dict[Term, int]:
        """Return for each constant term with which kernel it is read last."""
        return {
            self._constants.term(name): self._plan.last.get(number, number)
            for number, kernel in enumerate(program_.kernels)
            for name in kernel.operands
            if name in self._constants
        }

    def _pack(self, argument: PackedConstant, names: list[str]) -> Array:
        read = [names[i] for i in argument.operands]
        key = (argument.key, *map(self._constants.identity, read))
        if key not in self._packed:
            values = [self._constants[name] for name in read]
            self._packed[key] = shared(np.ascontiguousarray(argument.pack(*values)), values)
        return self._packed[key]


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
