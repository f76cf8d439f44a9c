"""A run in segments: the driver walks compiled steps; host steps run in Python between them.

A segment is bound to one arena and one table; what changes from call to call, arguments and outputs, it takes as
`moving`: the arrays of arguments, then those of outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from frittata.egraph import dtypes, program, shapes
from frittata.egraph.program import Program
from frittata.egraph.terms import TensorType, size_bytes
from frittata.kernels import driver
from frittata.kernels.lowered import HostStep, LoweredKernel
from frittata.kernels.plan import InArena, InArgument, InConstant, Plan

Array = NDArray[Any]
Lowered = LoweredKernel | HostStep


class Segment(Protocol):
    """A part of a run."""

    def run(self, moving: Sequence[Array]) -> None:
        """Run the steps."""
        ...

    def run_timed(self, moving: Sequence[Array]) -> NDArray[np.float64]:
        """Run the steps and return the seconds of each."""
        ...


@dataclass(frozen=True, eq=False)
class Compiled:
    """Steps of the driver, one after the other; to share them is predicted to save `saved_s`."""

    steps: driver.Steps
    saved_s: float

    def run(self, moving: Sequence[Array], meanwhile: Callable[[], None] | None = None) -> None:
        """Run the steps; the calling thread first does what is to be done meanwhile, once others may have begun."""
        driver.run(self.steps, self.saved_s, meanwhile)

    def run_timed(self, moving: Sequence[Array]) -> NDArray[np.float64]:
        """Run the steps and return the seconds of each."""
        return driver.run_timed(self.steps)


Bound = Callable[[Sequence[Array]], Array]
"""Finds the array of a buffer among those that move, or knows it."""


@dataclass(frozen=True, eq=False)
class OnHost:
    """One host step and where its buffers are."""

    step: HostStep
    operands: tuple[Bound, ...]
    results: tuple[Bound, ...]

    def run(self, moving: Sequence[Array]) -> None:
        """Run the step."""
        self.step.run([bound(moving) for bound in self.operands], [bound(moving) for bound in self.results])

    def run_timed(self, moving: Sequence[Array]) -> NDArray[np.float64]:
        """Run the step and return its seconds."""
        start = time.perf_counter()
        self.run(moving)
        return np.array([time.perf_counter() - start])


@dataclass(frozen=True, eq=False)
class Layout:
    """How the steps of a program fall into segments, and where the buffers of its host steps are."""

    program: Program
    lowered: tuple[Lowered, ...]
    plan: Plan
    constants: Mapping[str, Array]

    def bind(self, rows: NDArray[np.int64], arena: Array) -> tuple[Segment, ...]:
        """Return the segments over the driver's rows of the compiled steps, in order, which they keep, and an arena."""
        out: list[Segment] = []
        row, threads = 0, driver.thread_count()
        for on_host, group in groupby(enumerate(self.lowered), lambda pair: isinstance(pair[1], HostStep)):
            members = list(group)
            if on_host:
                out += [self._on_host(number, arena) for number, _ in members]
            else:
                saved_s = sum(
                    self.program.kernels[number].estimate.seconds * (min(low.chunks or threads, threads) - 1)
                    for number, low in members  # what has no chunks runs together with a later one
                    if isinstance(low, LoweredKernel)
                )
                out.append(Compiled(driver.Steps(rows[row : row + len(members)]), saved_s))
                row += len(members)
        return tuple(out)

    def _on_host(self, number: int, arena: Array) -> OnHost:
        step = self.lowered[number]
        assert isinstance(step, HostStep)
        outputs = self.program.kernels[number].outputs
        leaves = program.operands_of(*(output.body for output in outputs))
        operands = tuple(self.bound(leaf.attrs[0], arena) for leaf in leaves)
        results = tuple(self.bound(output.name, arena) for output in outputs)
        return OnHost(step, operands, results)

    def bound(self, name: str, arena: Array) -> Bound:
        """Return what finds the array of a buffer."""
        type_, place, strides = self._types[name], self.plan.place_by_name[name], self.plan.strides_by_name.get(name)
        if isinstance(place, InArena):
            fixed = part_of_memory(arena, place.offset, type_, strides)
            return lambda moving: fixed
        if isinstance(place, InConstant):
            constant = part_of_memory(np.ascontiguousarray(self.constants[place.name]), place.offset, type_, strides)
            return lambda moving: constant
        index = place.index if isinstance(place, InArgument) else len(self.program.inputs) + place.index
        return lambda moving: part_of_memory(moving[index], place.offset, type_, strides)

    def fill_borders(self, arena: Array) -> None:
        """Write what no kernel writes, before the first run over an arena."""
        for name, value in self.plan.borders:
            self.bound(name, arena)(())[...] = value.value

    @cached_property
    def _types(self) -> dict[str, TensorType]:
        return self.program.types()


def part_of_memory(memory: Array, offset: int, type_: TensorType, strides: tuple[int, ...] | None = None) -> Array:
    """Return the tensor that begins at byte `offset` of contiguous memory; with `strides`, in elements, it has gaps."""
    shape, dtype = shapes.concrete(type_.shape), dtypes.to_numpy(type_.dtype)
    flat = memory.reshape(-1).view(np.uint8)
    if strides is None:
        return flat[offset : offset + size_bytes(type_)].view(dtype).reshape(shape)
    return np.ndarray(shape, dtype, flat, offset, tuple(stride * dtype.itemsize for stride in strides))
